# softbellman with Atari games, for a CPU. The tests build no image; `make try-wheel` runs the same installation.
#
#   docker build --tag softbellman .
#   docker run --rm --volume "$PWD/runs:/home/trainer/runs" softbellman train gym/CartPole-v1 --operator "softmax(5)" --out runs/first
FROM python:3.12-slim
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir "/src[atari,tensorboard]" && rm -r /src && useradd --create-home trainer
USER trainer
WORKDIR /home/trainer
ENTRYPOINT ["softbellman"]
CMD ["doctor"]
