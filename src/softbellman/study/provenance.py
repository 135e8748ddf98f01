"""Provenance of a result: versions, revision, hardware, and changes since."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PACKAGES = ("softbellman", "numpy", "jax", "jaxlib", "optax", "gymnasium", "ale-py", "opencv-python-headless")
# Variables of JAX that change how programs are compiled, and so last bits, as XLA's flags do.
_COMPILING = (
    "JAX_DISABLE_MOST_OPTIMIZATIONS",
    "JAX_EXEC_TIME_OPTIMIZATION_EFFORT",
    "JAX_MEMORY_FITTING_EFFORT",
    "JAX_MEMORY_FITTING_LEVEL",
    "JAX_OPTIMIZATION_LEVEL",
)


def provenance() -> dict[str, Any]:
    """Says with what a result was made: versions, revision of the source, hardware, threads."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "versions": versions,
        "revision": _revision(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": available_cores(),
        "threads": _asked_threads(),
        "xla_flags": os.environ.get("XLA_FLAGS"),
        "jax_variables": {name: os.environ[name] for name in _COMPILING if name in os.environ} or None,
    }


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Says in what two provenances differ that results depend on in their last bits."""
    notes = [
        f"{package} {version} then, {found} now"
        for package, version, found in version_changes(then["versions"], now["versions"])
    ]
    for name in ("python", "machine", "processor", "threads", "xla_flags", "jax_variables", "revision"):
        if now[name] != then.get(name):
            notes.append(f"{name} {then.get(name)} then, {now[name]} now")
    return notes


def version_changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Lists the packages of other versions: each with that of then and that of now, or `missing`."""
    return [
        (package, version, now.get(package, "missing"))
        for package, version in then.items()
        if now.get(package) != version
    ]


def available_cores() -> int:
    """Returns how many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_pool() -> int:
    """Returns the size of the thread pool that XLA has, or will have, in this process: `NPROC`, or all cores.

    Raises:
        ValueError: NPROC is no such size.
    """
    given = _asked_threads()
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(
            f"the variable NPROC ({given}) must be a number of threads, 1 or more; correct it, or unset it"
        )
    return int(given)


def _asked_threads() -> str:
    """Returns `NPROC`, whatever it is, or without it the number of cores, as XLA takes them."""
    return os.environ.get("NPROC") or str(available_cores())


def _revision() -> str | None:
    """Returns the revision of the source, with `+` if it was changed since, or None outside a checkout of it."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # else it is installed within a checkout of another
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", str(folder)) else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
