"""Locks: one process at a time trains what is in a directory, on whichever machine.

A lock is a lease: a file that its holder touches every few seconds. Another process takes the holder's place when that
is known to be over, as a process of this machine that has ended is; and when the file has stayed untouched for `LEASE`
seconds of the other's own clock. So a machine that is gone holds nothing, and no two clocks are compared. A process of
this machine that is hidden, as other users' are under `hidepid`, counts like one of another. The locks of the file
system are not relied upon: over a network a dead machine may keep one, or each machine has its own.

Each lease has a number, one more than the one before, and only the highest counts; and a word of its own, since numbers
begin anew in a directory that is made anew. The file system is taken to let one of two succeed that make a file of one
name (so it is on local ones, NFS from version 3 on, Lustre and GPFS); to show who opens a file when it was touched
last; and to leave a file its inode number, by which a copy is told. A holder that was asleep or cut off for longer
finds that out before it writes again, since another's file is there by then. One case is left: a holder that falls
asleep for longer than `LEASE` between that look and the rename or removal that follows it.
"""

import errno
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

BEAT = 5.0  # seconds between two touches
LEASE = 60.0  # seconds without any after which another process takes a holder's place
PREFIX = ".lock."
_LOOK = 0.1  # seconds between two looks at another's lease
_FREE = ".free"  # ends the name of a lease that its holder gave back; its number stays, so that none comes again there
_GONE = {errno.ENOENT, errno.ESTALE, errno.ENOTDIR}


class Held(ValueError):
    """Another process trains what is in a directory."""


class Lost(ValueError):
    """Another process has taken this one's place, as it may where this one was silent for too long; or it is gone."""


class Lease:
    """The lease of a directory, touched by a thread of its own until it is given back.

    Attributes:
        notes: guarantees that the file system can't give, to be told once.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        """Takes the file, which this process has just made, and what it wrote there."""
        self._path, self._content, self.notes = path, content, list[str]()
        self._folder = os.open(path.parent, os.O_RDONLY)  # while it is open, no other has its inode number
        self._touched, self._lost = _now(), ""
        self._over, self._touching = threading.Event(), threading.Lock()
        threading.Thread(target=self._keep, name=f"lease of {path}", daemon=True).start()

    def check(self) -> None:
        """Raises if the lease is known to be lost; looks at nothing.

        Raises:
            Lost: it is.
        """
        if self._lost:
            raise Lost(self._lost)

    def confirm(self) -> None:
        """Makes sure that the lease is held, before something is written.

        A file that was removed by hand, and is nobody else's since, is made anew under the next number.

        Raises:
            Lost: it is not.
            OSError: the file system does not answer.
        """
        self.check()
        with self._touching:
            if self._over.is_set():
                return
            try:
                os.utime(self._path)
                if self._path.read_bytes() != self._content:
                    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self._path))
                self._touched = _now()
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                self._lost = self._loss()
                self.check()

    def give_back(self) -> None:
        """Lets others have the directory."""
        with self._touching, suppress(OSError):  # the directory may be gone, or another's, and is left so
            if not self._over.is_set():
                self._over.set()
                os.close(self._folder)
            if self._path.read_bytes() == self._content:
                self._path.rename(f"{self._path}{_FREE}")

    def _loss(self) -> str:
        """Says to what the lease, whose file is gone, was lost; if to nothing, takes it again and returns no word."""
        folder, number = self._path.parent, int(self._path.name.removeprefix(PREFIX))
        try:
            is_there = os.path.samestat(os.fstat(self._folder), folder.stat())
            others = _numbered(folder)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            is_there, others = False, {}
        is_anothers = any(other >= number or path.suffix != _FREE for other, path in others.items())
        if not is_there and not is_anothers:
            return f"{folder} was moved or removed while it was trained"
        made = None if is_anothers else _made(folder, number + 1)
        if made is not None:
            (self._path, self._content), self._touched = made, _now()
            return ""
        why = f": this one was silent for over {LEASE:g} s" if _now() - self._touched > LEASE else ""
        return f"another process has taken over {folder}{why}"

    def _keep(self) -> None:
        while not self._lost and not self._over.wait(BEAT):
            with suppress(Lost, OSError):  # what is lost is noticed by `check`; what does not answer is tried again
                self.confirm()


@contextmanager
def locked(folder: Path, wait: Callable[[str], None] | None = None) -> Iterator[Lease]:
    """Keeps every other process out of a directory. A process that dies, however it does, holds no lock for long.

    Args:
        folder: the directory.
        wait: called again and again with who holds the lock, until it is free; what it raises ends the wait. Without
            it, a lock that is held is an error, as soon as it is known that its holder lives.

    Yields:
        The lease.

    Raises:
        Held: another process holds the lock.
        OSError: the lock can't be written.
    """
    lease = _acquired(folder, wait)
    try:
        yield lease
    finally:
        lease.give_back()


class Silence:
    """How long a file has stayed untouched, by this process's own clock."""

    def __init__(self) -> None:
        """Begins anew."""
        self._mark: tuple[Any, ...] | None = None
        self._since, self.touched = 0.0, False

    def seconds(self, path: Path, status: os.stat_result) -> float:
        """Returns how long the file has been seen as it is now.

        Args:
            path: the file; another one than the last time begins anew.
            status: of the file, opened just now.
        """
        mark = (path, status.st_ino, status.st_mtime_ns)
        if mark != self._mark:
            self.touched = self._mark is not None and self._mark[:2] == mark[:2]
            self._mark, self._since = mark, _now()
        return _now() - self._since


def is_held(folder: Path, silence: Silence | None = None) -> bool:
    """Tells whether a process trains what is in a directory; it only looks.

    Args:
        folder: the directory.
        silence: kept from one look to the next, it tells when a machine is gone; without it, every holder that can't
            be seen, as on another machine, counts as alive.
    """
    holder = _newest(folder) if folder.is_dir() else None
    if holder is None or holder.is_over:
        return False
    return holder.is_in_view or silence is None or silence.seconds(holder.path, holder.status) <= LEASE


class _Holder(NamedTuple):
    """Who has the newest lease of a directory."""

    number: int
    path: Path
    facts: dict[str, Any]
    status: os.stat_result

    @property
    def is_in_view(self) -> bool:
        """Says whether it can be seen if the holder lives: it is counted where this process is, and not hidden."""
        counted = bool(self.facts.get("space")) and self.facts["space"] == _facts(os.getpid())["space"]
        return counted and not _is_hidden(self.facts["pid"])

    @property
    def is_over(self) -> bool:
        """Says whether the holder is known to be over: it said so, its process has ended, or this file is a copy."""
        if self.path.suffix == _FREE or not self.is_in_view:
            return self.path.suffix == _FREE
        began = _facts(self.facts["pid"])["began"]
        return began is None or began != self.facts.get("began") or self.facts.get("file") != self.status.st_ino

    def __str__(self) -> str:
        """Names the holder in a few words."""
        facts = self.facts
        return f"process {facts['pid']} on {facts['host']}" if facts else f"it is not known which, by {self.path}"


def _acquired(folder: Path, wait: Callable[[str], None] | None) -> Lease:
    silence = Silence()
    while True:
        holder = _newest(folder)
        if holder is None or holder.is_over or silence.seconds(holder.path, holder.status) > LEASE:
            lease = _claim(folder, holder.number + 1 if holder else 1)
            if lease is not None:
                return lease
            continue
        if holder.is_in_view:
            silence = Silence()  # it is seen to live, however long it sleeps
        if wait is not None:
            wait(str(holder))
        elif holder.is_in_view or silence.touched:
            raise Held(f"{folder} is being trained by another process ({holder})")
        else:
            time.sleep(_LOOK)


def _numbered(folder: Path) -> dict[int, Path]:
    names = {name: re.fullmatch(re.escape(PREFIX) + rf"(\d+)({_FREE})?", name) for name in os.listdir(folder)}
    return {int(match[1]): folder / name for name, match in names.items() if match}


def _newest(folder: Path) -> _Holder | None:
    """Reads the newest lease of a directory; None if there is none."""
    while leases := _numbered(folder):
        number = max(leases)
        with suppress(FileNotFoundError), leases[number].open() as file:
            status = os.fstat(file.fileno())
            try:
                facts = json.loads(file.read())
                facts = facts if {"pid", "host"} <= facts.keys() and isinstance(facts["pid"], int) else {}
            except (ValueError, AttributeError):  # it is being written, or who wrote it was killed
                facts = {}
            return _Holder(number, leases[number], facts, status)
    return None


def _claim(folder: Path, number: int) -> Lease | None:
    """Takes a lease; None if another process was faster."""
    made = _made(folder, number)
    return None if made is None else Lease(*made)


def _made(folder: Path, number: int) -> tuple[Path, bytes] | None:
    """Makes the file of a lease, and returns it with what is in it; None if another process was faster."""
    path = folder / f"{PREFIX}{number}"
    try:
        file = path.open("xb")
    except FileExistsError:
        return None
    try:
        with file:
            own = {"file": os.fstat(file.fileno()).st_ino, "word": secrets.token_hex(8)}
            content = json.dumps(_facts(os.getpid()) | own).encode()
            file.write(content)
    except OSError:
        path.unlink(missing_ok=True)  # it would be in the way of others
        raise
    leases = _numbered(folder)
    if max(leases, default=number) > number:  # this one came late, and what it believed over was long replaced
        path.unlink(missing_ok=True)
        return None
    for other in leases.values():
        if other != path:
            other.unlink(missing_ok=True)
    return path, content


def _facts(pid: int) -> dict[str, Any]:
    """Tells a process from all others: number, within what it is counted, when it began, None if over or hidden."""
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


def _is_hidden(pid: int) -> bool:
    """Says whether there is a process of that number that this one is not shown."""
    if os.access(f"/proc/{pid}/stat", os.R_OK):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it lives, and is another user's
        pass
    return True


def _now() -> float:
    """Returns the seconds of a clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
