"""JAX settings of training, whatever variables or a script set outside."""

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

# Under any other value of these, training would come to other results, or to none: it has its own.
OWN: dict[str, tuple[Any, str]] = {
    "enable_x64": (False, "trains in 32 bits"),
    "numpy_dtype_promotion": ("standard", "promotes dtypes as usual"),
    "threefry_partitionable": (True, "draws its random numbers in one way"),
    "default_matmul_precision": (None, "multiplies in the usual precision"),
    "disable_jit": (False, "is compiled: it would be too slow otherwise"),
    "transfer_guard": ("allow", "moves arrays between host and device"),
    "debug_key_reuse": (False, "folds counters into keys that are used again"),
}
_KEYS = {"JAX_DEFAULT_PRNG_IMPL", "JAX_RANDOM_SEED_OFFSET"}  # training makes its own keys
_PROBE = "import jax; print(jax.default_backend())"


@contextmanager
def own_settings() -> Iterator[None]:
    """Has JAX work as training needs it, in this thread, whatever was set outside; that holds again afterwards."""
    import jax

    with ExitStack() as stack:
        for name, (value, _) in OWN.items():
            stack.enter_context(getattr(jax, name)(value))
        yield


def require_backend() -> None:
    """Refuses to begin where JAX would not.

    Raises:
        ValueError: with the variable at fault, what there is instead, and what to do.
    """
    require_flags(os.environ.get("XLA_FLAGS", ""))
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        names = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME")
        asked = {name: getattr(jax.config, name.lower(), None) or os.environ.get(name) for name in names}
        said = " and ".join(f"{name} ({value})" for name, value in asked.items() if value) or "JAX"
        there, _ = _probed(dict.fromkeys(asked, ""))
        remedy = f"there is {there} here: unset it" if there else "no platform starts here"
        reason = f" ({str(error).splitlines()[0]})" if str(error) else ""
        raise ValueError(f"{said} can't be used{reason}; {remedy}") from None


@functools.cache
def require_flags(flags: str) -> None:
    """Refuses flags of XLA that it does not take. It would end the process: another one tries.

    Raises:
        ValueError: with the flags, and what XLA says of them.
    """
    if not flags:
        return
    there, words = _probed({"XLA_FLAGS": flags})
    complaints = [line.partition("] ")[2] or line for line in words.splitlines() if "XLA_FLAGS" in line]
    if not there and complaints:
        raise ValueError(f"XLA_FLAGS ({flags}) can't be used: {complaints[0]}; correct it, or unset it")


def _probed(variables: Mapping[str, str]) -> tuple[str, str]:
    """Returns the platform that JAX starts on in a process of its own, empty if it does not, and what it said."""
    process = subprocess.run(
        [sys.executable, "-c", _PROBE], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    said = process.stdout.split()  # what was printed while Python started is no answer
    return (said[-1] if said and not process.returncode else ""), process.stderr


def overruled() -> list[str]:
    """Says which settings made outside do not hold in training."""
    import jax

    given = {name: getattr(jax.config, f"jax_{name}") for name in OWN}
    return [
        f"JAX's {name} is {given[name]} outside, and training has its own: it {reason}"
        for name, (value, reason) in OWN.items()
        if given[name] not in (value, None)  # None: not set
    ]


def outside_variables() -> list[str]:
    """Lists the variables of JAX that are set outside and hold in training as elsewhere."""
    own = {f"JAX_{name.upper()}" for name in OWN} | _KEYS
    names = [name for name in sorted(os.environ) if name.startswith(("JAX_", "XLA_")) and name not in own]
    return [f"{name}={os.environ[name]}" for name in names]
