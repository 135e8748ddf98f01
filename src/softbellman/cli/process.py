"""Process setup before JAX loads: XLA's threads and flags, memory."""

import os
from collections.abc import Mapping
from typing import Any


def leave_memory_of_the_gpu() -> None:
    """Has JAX, before it loads, take no more of a GPU than it needs: the workers use it too."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def set_up_xla(threads: int | None, recorded: Mapping[str, Any] = {}, *, deterministic: bool = False) -> None:
    """Prepares the process before JAX loads: freed memory is kept, and XLA told its threads and flags.

    These two are what results depend on in their last bits.

    Args:
        threads: size of its thread pool; by default what was recorded, else `NPROC`, else all cores.
        recorded: the provenance of a study that is resumed.
        deterministic: asks for operations that repeat to the last bit on a GPU.
    """
    from softbellman.memory import keep_freed_memory
    from softbellman.running.engines import xla_flags
    from softbellman.study.provenance import thread_pool

    if threads is not None and threads < 1:
        raise ValueError(f"threads ({threads}) must be at least 1")
    os.environ["NPROC"] = str(threads or recorded.get("threads") or thread_pool())
    flags = xla_flags(recorded, deterministic=deterministic)
    if flags:
        os.environ["XLA_FLAGS"] = flags
    keep_freed_memory()
