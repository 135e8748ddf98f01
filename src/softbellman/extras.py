"""Optional packages: the extra that installs each, and the error where one is missing; imports nothing of ours."""

import importlib
import importlib.util
from typing import Any

EXTRAS = {
    "train": ("jax", "optax", "gymnasium", "jinja2", "matplotlib", "imageio", "imageio-ffmpeg"),
    "atari": ("ale-py", "opencv-python-headless"),
    "tensorboard": ("tensorboardX",),
    "ray": ("ray",),
    "slurm": ("submitit",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
    "trackio": ("trackio",),
}


class MissingExtra(ImportError):
    """A package that an optional part needs is not installed; the message is one line naming the extra."""

    def __init__(self, package: str, extra: str):
        super().__init__(f'{package} is not installed; run: pip install "softbellman[{extra}]"')


def imported(package: str, extra: str, oldest: tuple[int, int], after: tuple[int, int]) -> Any:
    """Import a package of which only some versions were tried.

    Args:
        package: its name.
        extra: the extra that installs it.
        oldest: the first version that was tried.
        after: the first version that is refused.

    Raises:
        MissingExtra: it is not installed.
        ValueError: it is of another version.
    """
    try:
        module = importlib.import_module(package)
    except ImportError:
        raise MissingExtra(package, extra) from None
    if not oldest <= tuple(map(int, module.__version__.split(".")[:2])) < after:
        first, last = (".".join(map(str, each)) for each in (oldest, after))
        raise ValueError(f"{package} {module.__version__} was not tried: install one from {first} on, before {last}")
    return module


def require_extra(extra: str) -> None:
    """Refuse to go on without the packages of an extra, whose names are those of their modules; none is imported.

    Raises:
        MissingExtra: if one is not installed.
    """
    for package in EXTRAS[extra]:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, extra)
