# softbellman with Atari games, for a CPU. The tests build no image; `make try-wheel` runs the same installation.
#
#   docker build --tag softbellman .
#   mkdir -p runs
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD/runs:/app/runs" softbellman \
#     train gym/CartPole-v1 --operator "softmax(5)" --out runs/first
FROM python:3.12-slim
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir "/src[atari,tensorboard]" && rm -r /src && mkdir --mode 1777 /app
ENV HOME=/tmp
USER 1000:1000
WORKDIR /app
ENTRYPOINT ["softbellman"]
CMD ["doctor"]
