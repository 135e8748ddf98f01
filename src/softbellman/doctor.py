"""Diagnosis of this machine: packages, environments, memory, video."""

import importlib.metadata
import platform
from collections.abc import Sequence
from typing import Literal, NamedTuple

from softbellman import envs
from softbellman.extras import EXTRAS, TESTED, missing, require_tested
from softbellman.memory import available_memory
from softbellman.running.jax_settings import outside_variables, overruled, require_backend
from softbellman.study.provenance import available_cores


class Check(NamedTuple):
    """One thing looked at.

    Attributes:
        name: what was looked at.
        state: `ok`, `FAIL`, or `-` for what is not as it could be and is no fault, such as an extra not installed.
        found: what was found, or what to do.
    """

    name: str
    state: Literal["ok", "FAIL", "-"]
    found: str


def examine() -> list[Check]:
    """Looks at everything that a run needs."""
    cores = available_cores()
    checks = [
        Check("Python", "ok", platform.python_version()),
        Check("processor", "ok", f"{cores} cores; --threads sets how many a run uses"),
    ]
    checks += [_extra(extra, packages) for extra, packages in EXTRAS.items()]
    jax = _jax()
    checks += jax
    if jax[0].state != "FAIL":  # else nothing that uses it can be looked at
        checks += [_environment(prefix, family) for prefix, family in envs.FAMILIES.items() if family.tried]
    checks += [_video(), _memory()]
    return checks


def _extra(extra: str, packages: Sequence[str]) -> Check:
    label, missing = f"extra [{extra}]", [package for package in packages if not _version(package)]
    if missing:
        return Check(label, "-", f'without {", ".join(missing)}: pip install "softbellman[{extra}]"')
    if extra in TESTED:
        try:
            require_tested(extra)
        except ImportError as error:
            return Check(label, "-", str(error))
    return Check(label, "ok", ", ".join(f"{package} {_version(package)}" for package in packages))


def _jax() -> list[Check]:
    """Looks at whether JAX starts, and at what is set for it outside."""
    try:
        require_backend()
        import jax

        checks = [Check("JAX", "ok", f"starts on {', '.join(str(device) for device in jax.devices())}")]
        checks += [Check("JAX's settings", "-", each) for each in overruled()]
    except ModuleNotFoundError as error:
        checks = [Check("JAX", "-", str(missing(error)))]
    except (ImportError, ValueError) as error:  # JAX itself raises one, when it loads, for a setting it does not know
        checks = [Check("JAX", "FAIL", str(error))]
    if (taken := outside_variables()) and checks[0].state == "ok":
        checks.append(Check("JAX's settings", "ok", f"taken as they are: {', '.join(taken)}"))
    return checks


def _memory() -> Check:
    try:
        from softbellman.learning.replay import FrameReplay
    except ImportError as error:
        return Check("memory", "-", str(error))
    memory, needed = available_memory(), FrameReplay.bytes_needed(1_000_000, (4, 84, 84), "uint8", 4)
    if memory is None:
        return Check("memory", "ok", "the system does not say how much is available")
    remedy = "" if memory >= needed else ": lower learner.replay_capacity"
    found = f"{memory / 1e9:.1f} GB available; the paper's replay of 1,000,000 frames takes {needed / 1e9:.1f} GB"
    return Check("memory", "ok" if memory >= needed else "FAIL", found + remedy)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _environment(prefix: str, family: envs.Family) -> Check:
    name, label = str(family.tried), family.title
    try:
        env = envs.make(name, seed=0)
        obs = env.reset()
        env.close()
    except envs.MissingExtra as error:
        return Check(label, "-", str(error))
    except Exception as error:  # whatever is wrong with it is what the reader wants to know
        return Check(label, "FAIL", f"{name}: {error}")
    count = sum(known.startswith(f"{prefix}/") for known in envs.known())
    return Check(label, "ok", f"{name} starts, observations {list(obs.shape[1:])} {obs.dtype}; {count} environments")


def _video() -> Check:
    try:
        import imageio_ffmpeg

        return Check("video", "ok", f"mp4, by ffmpeg {imageio_ffmpeg.get_ffmpeg_version()}")
    except Exception:  # a missing or broken encoder is one finding: films become GIFs
        return Check("video", "-", 'gif only; for mp4: pip install "softbellman[train]"')
