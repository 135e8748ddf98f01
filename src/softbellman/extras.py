"""Optional packages: the extra that installs each, and the error where one is missing; imports nothing of ours."""

EXTRAS = {
    "train": ("jax", "optax", "gymnasium", "jinja2", "matplotlib", "imageio", "imageio-ffmpeg"),
    "atari": ("ale-py", "opencv-python-headless"),
    "tensorboard": ("tensorboardX",),
}


class MissingExtra(ImportError):
    """A package that an optional part needs is not installed; the message is one line naming the extra."""

    def __init__(self, package: str, extra: str):
        super().__init__(f'{package} is not installed; run: pip install "softbellman[{extra}]"')
