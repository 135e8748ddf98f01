"""Optional packages: the extra that installs each, and the error where one is missing; imports nothing of ours."""

import importlib
import importlib.metadata
import importlib.util
import re
from typing import Any

EXTRAS = {
    "train": ("jax", "optax", "gymnasium", "jinja2", "matplotlib", "imageio", "imageio-ffmpeg"),
    "atari": ("ale-py", "opencv-python-headless"),
    "tensorboard": ("tensorboardX",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
    "trackio": ("trackio",),
    "torch": ("torch", "safetensors"),
    "onnx": ("onnx", "onnxscript"),
    "sb3": ("stable-baselines3",),
    "tianshou": ("tianshou",),
    "torchrl": ("torchrl",),
    "rllib": ("ray", "torch"),
    "ray": ("ray",),
    "slurm": ("submitit",),
}

TESTED = {
    "sb3": ("2.4", "2.10"),
    "tianshou": ("2.0", "2.1"),
    "torchrl": ("0.14", "0.15"),
    "rllib": ("2.60", "2.61"),
    "ray": ("2.50", "3.0"),
    "slurm": ("1.5", "2.0"),
}
"""Versions of an extra's first package that are taken: from the first on, and below the second."""


class MissingExtra(ImportError):
    """A package that an optional part needs is not installed; the message is one line naming the extra."""

    def __init__(self, package: str, extra: str):
        super().__init__(f'{package} is not installed; run: pip install "softbellman[{extra}]"')


def missing(error: ModuleNotFoundError) -> MissingExtra:
    """Return the error that names the extra with a module, by the error that Python raised; `all` if no extra has it.

    >>> str(missing(ModuleNotFoundError(name="jax.numpy")))
    'jax is not installed; run: pip install "softbellman[train]"'
    """
    package = (error.name or "a package").partition(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package.replace("_", "-") in packages), "all")
    return MissingExtra(package, extra)


class UntestedVersion(ImportError):
    """A package is installed in a version with which an optional part was not tested."""

    def __init__(self, package: str, version: str, extra: str):
        low, high = TESTED[extra]
        super().__init__(
            f"{package} {version} is installed, and softbellman was tested with {low} and later, below {high}; "
            f'run: pip install "softbellman[{extra}]"'
        )


def require_extra(extra: str) -> None:
    """Refuse to go on without the packages of an extra, whose names are those of their modules; none is imported.

    Raises:
        MissingExtra: if one is not installed.
    """
    for package in EXTRAS[extra]:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, extra)


def require_tested(extra: str) -> None:
    """Refuse the package of an extra of `TESTED` that is missing, or installed in another version; nothing is imported.

    Raises:
        MissingExtra: it is not installed.
        UntestedVersion: it is, in another version.
    """
    package = EXTRAS[extra][0]
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtra(package, extra) from None
    _require_version(package, version, extra)


def imported(extra: str) -> Any:
    """Import the package of an extra of `TESTED`.

    Raises:
        MissingExtra: it is not installed.
        UntestedVersion: it is, in another version.
    """
    package = EXTRAS[extra][0]
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError:
        raise MissingExtra(package, extra) from None
    _require_version(package, module.__version__, extra)
    return module


def _require_version(package: str, version: str, extra: str) -> None:
    low, high = map(_release, TESTED[extra])
    if not low <= _release(version) < high:
        raise UntestedVersion(package, version, extra)


def _release(version: str) -> tuple[int, ...]:
    """Returns major and minor of a version: what a range is about."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
