"""Directory checks: a place for a new study, and advice where one cannot be written."""

import errno
import os
from pathlib import Path

from softbellman.study.locks import PREFIX

RECORD = "study.json"


def require_new(path: Path) -> None:
    """Refuses a directory that holds something already, or can't be made or written. Nothing is written.

    Raises:
        ValueError: if it does, or if it is no directory.
    """
    try:
        if path.exists() and (not path.is_dir() or not all(_is_in_nobodys_way(each.name) for each in path.iterdir())):
            raise ValueError(f"{path} is there already and nothing is overwritten; name another directory with --out")
    except OSError as error:
        raise unwritable(path, error) from None
    require_directory(path)


def require_directory(path: Path, remedy: str = "name another directory with --out") -> None:
    """Refuses a directory that can't be made or written. Nothing is written.

    Args:
        path: the directory.
        remedy: what to do.

    Raises:
        ValueError: with the place at fault, the reason, and what to do.
    """
    try:
        _require_writable(path)
    except OSError as error:
        raise unwritable(path, error, remedy) from None


def require_file(path: Path) -> None:
    """Refuses a file that can't be made or replaced, before the work that it is to hold. Nothing is written.

    Raises:
        ValueError: as `require_directory`, or if it is a directory or a device.
    """
    try:
        place = Path(os.path.realpath(path))  # as `replacing` writes it
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if place.exists() and not place.is_file():
            raise OSError(errno.EINVAL, "it is no regular file")
        if place.exists() and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        _require_writable(place.parent)
    except OSError as error:
        raise unwritable(path, error, "name another file with --out") from None


def unwritable(path: Path, error: OSError, remedy: str = "name another directory with --out") -> ValueError:
    """Returns the error that says in one line why a place can't be written, and what to do."""
    where = "" if error.filename in (None, str(path)) else f": {error.filename}"
    return ValueError(f"{path} can't be written ({error.strerror or error}{where}); {remedy}")


def _is_in_nobodys_way(name: str) -> bool:
    """Says whether a name is in nobody's way: of what a failed try left, or of the paper's figures that need no run."""
    return name == "paper" or name.startswith((PREFIX, f".{RECORD}."))


def _require_writable(path: Path) -> None:
    """Refuses a directory in which nothing can be made, or under the nearest one that is there if it is not."""
    folder = next(folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder))
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        code = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(code, os.strerror(code), str(folder))
