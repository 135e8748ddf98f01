"""Locks: one process at a time trains what is in a directory.

The system's own lock ends with its process. Where the file system has none, a file that only one process can make says
who trains; a process that was killed leaves it behind, and the next one on the same machine takes its place.
"""

import errno
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

LOCK, CLAIM = ".lock", ".lock.held"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM}


class Held(ValueError):
    """Another process trains what is in a directory."""


@contextmanager
def locked(folder: Path, wait: Callable[[str], None] | None = None) -> Iterator[list[str]]:
    """Keeps every other process out of a directory. A process that dies, however it does, holds no lock.

    Args:
        folder: the directory.
        wait: called again and again with who holds the lock, until it is free; what it raises ends the wait. Without
            it, a lock that is held is an error.

    Yields:
        Ways in which the lock is weaker than it should be; mostly none.

    Raises:
        Held: another process holds the lock.
        OSError: the lock can't be written.
    """
    with ExitStack() as stack:
        file = stack.enter_context((folder / LOCK).open("a+"))
        has_locks = True
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.truncate(0)
                file.write(f"process {os.getpid()}")
                file.flush()
                break
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip()
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                has_locks, holder = False, _claim(folder / CLAIM)
                if not holder:
                    stack.callback((folder / CLAIM).unlink, missing_ok=True)
                    break
            if wait is None:
                raise Held(f"{folder} is being trained by another process ({holder})")
            wait(holder)
        weaker = f"the file system of {folder} has no locks; {CLAIM} there says who trains, and must be removed by hand"
        yield [] if has_locks else [f"{weaker} before another machine goes on after a kill"]


def _claim(path: Path) -> str:
    """Makes the file that says who trains, and returns an empty text, or else who made it and may still be at work."""
    own = _facts(os.getpid())
    while True:
        try:
            with path.open("x") as file:
                _write_whole(file, json.dumps(own))
            return ""
        except FileExistsError:
            pass
        try:
            other = json.loads(path.read_text())
            if other["space"] == own["space"] and other != _facts(other["pid"]):
                path.unlink(missing_ok=True)  # it was killed
                continue
            who = f"process {other['pid']} on {other['host']}"
        except FileNotFoundError:
            continue
        except (ValueError, TypeError, KeyError):
            who = "it is not known which"
        return f"{who}, by {path}; if it is over, remove that file"


def _write_whole(file: TextIO, text: str) -> None:
    """Writes a file that is in nobody's way if that fails."""
    try:
        file.write(text)
        file.flush()
    except OSError:
        os.unlink(file.name)
        raise


def _facts(pid: int) -> dict[str, Any]:
    """Tells a process from all others: its number, within what it is counted, and when it began, None if it is over."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        space = ""
    try:
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        began = None if state in "ZX" else numbers[18]
    except OSError:
        began = None
    return {"pid": pid, "host": socket.gethostname(), "space": space, "began": began}
