"""Checkpoints: an exact state in one file, written whole or not at all, and read only if every byte is as written.

The file is in the safetensors format: a JSON header, then raw arrays; nothing in it can run code, and the safetensors
package of any Python reads it. It is written here because a replay of gigabytes must go to disk from where it lies in
memory, without a second copy. The header's `__metadata__` holds what is no array, as JSON, and the SHA-256 of the file
(of the file with the 64 places of the sum itself as zeros).
"""

import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

FORMAT = 1

_CODES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "int32": "I32",
    "int64": "I64",
    "float32": "F32",
    "float64": "F64",
}
_DTYPES = {code: np.dtype(name) for name, code in _CODES.items()}
_NO_SUM = "0" * 64
_CHUNK = 1 << 24  # bytes
_LONGEST_HEADER = 1 << 26  # bytes
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EACCES, errno.EPERM}
_NAME = re.compile(r"step-(\d{12})\.safetensors")


def step_of(name: str) -> int | None:
    """Returns the agent step of the checkpoint that has a name; None of another file, such as a copy beside it."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


class Damaged(ValueError):
    """A file is no checkpoint, or not as it was written."""


class Unreadable(Damaged):
    """A file can't be read now, or not by this version: it may be whole."""


def _agree() -> None:
    pass


class State(NamedTuple):
    """Contents of a checkpoint.

    Attributes:
        facts: whatever JSON can hold: counters, names, rows of a table.
        arrays: arrays by name, each as pieces to be joined along the first axis; a scalar is one piece.
    """

    facts: dict[str, Any]
    arrays: dict[str, list[np.ndarray]]


def save(path: Path, state: State, confirm: Callable[[], None] = _agree) -> None:
    """Writes a state beside its place and moves it there, so that whatever was there stays until this one is whole.

    Arrays are written from where they lie. Their contents must not change meanwhile. `confirm` is that of `replacing`.

    Raises:
        OSError: the file can't be written: the disk is full, say. The file that was at `path` is untouched.
    """
    header = _header(state).encode()
    with replacing(path, confirm) as file:
        total = hashlib.sha256()
        for part in _parts(header, state):
            total.update(part)
            file.write(part)
        file.seek(8 + header.index(_NO_SUM.encode()))
        file.write(total.hexdigest().encode())


@contextmanager
def replacing(path: Path, confirm: Callable[[], None] = _agree) -> Iterator[BinaryIO]:
    """Opens a file beside `path`, and moves it there once it is written: a reader never sees half of it.

    A symbolic link is followed, as by `open`, and not replaced. `confirm` is called before the file is moved, and what
    it raises keeps it from that.

    Raises:
        OSError: it can't be written, its `filename`: the disk is full, say. The file that was at `path` is untouched.
    """
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            _sync(file.fileno())
        confirm()
        temporary.replace(place)
        sync_folder(place.parent)
    except OSError as error:
        error.filename = str(path)  # a write that fails does not say of what
        raise
    finally:
        temporary.unlink(missing_ok=True)


def leftovers(path: Path) -> list[Path]:
    """Lists what processes that were killed while they were `replacing` a file have left beside it."""
    start = f".{path.name}."
    names = (name for name in os.listdir(path.parent) if name.startswith(start) and name[len(start) :].isdigit())
    return [path.parent / name for name in names]


def sync_folder(folder: Path) -> bool:
    """Has a name that was just given to a file outlast a power failure, and says whether the file system offers that.

    Raises:
        OSError: the disk is at fault.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a directory may be written and not read
        return False
    try:
        return _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> bool:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
        return False
    return True


class Checkpoint:
    """A checkpoint that has been found whole, to read from.

    Attributes:
        path: the file.
        facts: see `State`.
    """

    def __init__(self, path: Path) -> None:
        """Reads the whole file once, to check it, and keeps the header.

        Raises:
            Damaged: it is cut short, altered, or no checkpoint at all.
            Unreadable: it is of another format.
            OSError: it can't be read.
        """
        self.path = path
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            header, self._start = _read_header(file, size)
            self._entries, metadata = _checked_header(header, size - self._start)
            if metadata.get("format") != str(FORMAT):
                raise Unreadable(f"its format is {metadata.get('format')}, and this version reads {FORMAT}")
            recorded = str(metadata.get("sha256"))
            if _sum_without(file, recorded) != recorded:
                raise Damaged("its checksum is not that of its contents")
        self.facts: dict[str, Any] = _parsed(metadata["facts"])

    @property
    def names(self) -> set[str]:
        """The names of its arrays."""
        return set(self._entries)

    def array(self, name: str) -> np.ndarray:
        """Returns a copy of an array.

        Raises:
            Damaged: there is none of that name.
        """
        dtype, shape, _ = self._entry(name)
        made = np.empty(shape, dtype)
        self.read_into(name, [made])
        return made

    def read_into(self, name: str, pieces: list[np.ndarray]) -> None:
        """Reads an array into C-contiguous pieces, along the first axis, which together have its size.

        Raises:
            Damaged: there is none of that name, or it has another dtype or shape than the pieces together.
        """
        dtype, shape, begin = self._entry(name)
        if _joined(pieces) != (dtype, shape):
            there, wanted = (f"{kind} {list(size)}" for kind, size in ((dtype, shape), _joined(pieces)))
            raise Damaged(f"its array {name} is {there}, and {wanted} is needed")
        with self.path.open("rb") as file:
            file.seek(self._start + begin)
            for piece in pieces:
                if file.readinto(_bytes(piece)) != piece.nbytes:
                    raise Damaged(f"it ends within the array {name}")

    def _entry(self, name: str) -> tuple[np.dtype, tuple[int, ...], int]:
        if name not in self._entries:
            raise Damaged(f"it has no array {name}")
        return self._entries[name]


class Checkpoints:
    """The checkpoints of one group: a directory of which the newest few are kept."""

    def __init__(self, folder: Path, keep: int) -> None:
        """Takes a directory, which need not exist yet, and how many checkpoints to keep."""
        self.folder, self.keep = folder, keep
        self._whole: list[Path] = []

    def save(self, state: State, agent_steps: int, confirm: Callable[[], None] = _agree) -> Path:
        """Saves a state, then removes all but the newest `keep` of those that are known to be whole.

        Args:
            state: the state.
            agent_steps: when it was.
            confirm: called before the file takes its place, which may be minutes later, and before others are removed;
                what it raises keeps that from being done.

        Raises:
            OSError: it can't be written; those before it are untouched.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        path = self.folder / f"step-{agent_steps:012}.safetensors"
        save(path, state, confirm)
        self._whole = [*(other for other in self._whole if other != path), path][-self.keep :]
        for other in self._files():
            if other not in self._whole:
                confirm()
                other.unlink()
        return path

    def newest(self, note: Callable[[str], None]) -> Checkpoint | None:
        """Returns the newest checkpoint that is whole, or None.

        Args:
            note: told of each that is not.

        Raises:
            Unreadable: one that may be whole can't be read; passed over, it would be removed by the next `save`.
        """
        try:
            files = self._files()
        except OSError as error:
            raise Unreadable(f"{self.folder} can't be read: {error.strerror or error}; try again") from error
        for path in reversed(files):
            try:
                checkpoint = Checkpoint(path)
            except (OSError, Unreadable) as error:
                remedy = "go on with the version that made it" if isinstance(error, Unreadable) else "try again"
                why = (error.strerror if isinstance(error, OSError) else None) or error
                raise Unreadable(f"the checkpoint {path} can't be read: {why}; {remedy}, or remove it") from error
            except Damaged as error:
                note(f"the checkpoint {path} can't be used: {error}; taking the one before, if there is one")
                continue
            self._whole = [path]
            return checkpoint
        return None

    def _files(self) -> list[Path]:
        """Lists the checkpoints, oldest first."""
        try:
            return sorted(self.folder / name for name in os.listdir(self.folder) if step_of(name) is not None)
        except FileNotFoundError:
            return []

    def _remove_leftovers(self) -> None:
        """Removes what a process that was killed while saving has left."""
        for path in self.folder.glob(".step-*"):
            path.unlink(missing_ok=True)


def _header(state: State) -> str:
    entries: dict[str, Any] = {
        "__metadata__": {"sha256": _NO_SUM, "format": str(FORMAT), "facts": json.dumps(state.facts)}
    }
    begin = 0
    for name, pieces in state.arrays.items():
        dtype, shape = _joined(pieces)
        end = begin + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": _CODES[dtype.name], "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries)
    return text + " " * (-len(text) % 8)  # the format aligns the arrays


def _parts(header: bytes, state: State) -> Iterator[bytes | memoryview]:
    """Yields the file's bytes in order, the sum's own left as zeros."""
    yield len(header).to_bytes(8, "little")
    yield header
    for pieces in state.arrays.values():
        for piece in pieces:
            view = _bytes(np.ascontiguousarray(piece))
            for start in range(0, len(view), _CHUNK):
                yield view[start : start + _CHUNK]


def _read_header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """Returns the header and where the arrays start. No length in the file is believed before it is compared."""
    if size < 10:
        raise Damaged(f"it has {size} bytes, too few for any")
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(size - 8, _LONGEST_HEADER):
        raise Damaged(f"it has {size:,} bytes, and says that its header alone has {length:,}")
    return _parsed(file.read(length)), 8 + length


def _parsed(text: str | bytes) -> dict[str, Any]:
    """Parses what must be a JSON object."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise Damaged("its header can't be read")
    return parsed


def _checked_header(
    header: dict[str, Any], data_size: int
) -> tuple[dict[str, tuple[np.dtype, tuple[int, ...], int]], Any]:
    """Returns dtype, shape and first byte of each array, and the metadata, after checking that they fit the file."""
    entries, end = {}, 0
    try:
        metadata = header.pop("__metadata__")
        for name, entry in header.items():
            dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
            begin, after = entry["data_offsets"]
            if not all(isinstance(number, int) and number >= 0 for number in (*shape, begin, after)):
                raise Damaged(f"its array {name} has a size that is none")
            if begin != end or after - begin != math.prod(shape) * dtype.itemsize:
                raise Damaged(f"its array {name} is not where it should be")
            entries[name], end = (dtype, shape, begin), after
        if not isinstance(metadata, dict) or not isinstance(metadata["facts"], str):
            raise Damaged("it has no facts")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged("its header is not one of a checkpoint") from None
    if end != data_size:
        raise Damaged(f"it has {data_size:,} bytes of arrays, and should have {end:,}")
    return entries, metadata


def _sum_without(file: BinaryIO, recorded: str) -> str:
    """Computes the sum of a file, the sum that it records taken as zeros."""
    total, wanted, blank = hashlib.sha256(), recorded.encode(), _NO_SUM.encode()
    file.seek(0)
    first = file.read(_CHUNK)
    total.update(first.replace(wanted, blank, 1) if len(wanted) == len(blank) else first)
    while chunk := file.read(_CHUNK):
        total.update(chunk)
    return total.hexdigest()


def _joined(pieces: list[np.ndarray]) -> tuple[np.dtype, tuple[int, ...]]:
    """Returns the dtype and shape of pieces joined along the first axis."""
    first = pieces[0]
    if not first.ndim:
        return first.dtype, ()
    return first.dtype, (sum(len(piece) for piece in pieces), *first.shape[1:])


def _bytes(array: np.ndarray) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))
