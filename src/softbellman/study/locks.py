"""Locks: one process at a time trains what is in a directory."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Held(ValueError):
    """Another process trains what is in a directory."""


@contextmanager
def locked(folder: Path, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Keeps every other process out of a directory. A process that dies, however it does, holds no lock.

    Args:
        folder: the directory.
        wait: called again and again with who holds the lock, until it is free; what it raises ends the wait. Without
            it, a lock that is held is an error.

    Raises:
        Held: another process holds the lock.
    """
    with (folder / ".lock").open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip()
                if wait is None:
                    raise Held(f"{folder} is being trained by another process ({holder})") from None
                wait(holder)
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield
