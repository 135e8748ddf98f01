"""The place of a fault: file and line of a user's own code that an exception came through; imports nothing of ours."""

import functools
import importlib.metadata
import re
import sysconfig
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 600  # letters of a message in a line

_OURS = Path(__file__).parent
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in ', re.MULTILINE)  # of a traceback that a message tells
_INSTALLED = ("site-packages", "dist-packages")


class UsersFault(ValueError):
    """A fault in a user's own code; the message names its file and line, and `__cause__` is what was raised there."""


@contextmanager
def faults_placed() -> Iterator[None]:
    """Raise what comes out of a user's code as a `UsersFault`; all else passes. It serves as a decorator too.

    Raises:
        UsersFault: a user's code raised anything, a SystemExit too.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        place = users_place(error)
        if place is None or (isinstance(error, ValueError) and place in str(error)):  # it says so already
            raise
        raise UsersFault(in_a_line(error)) from error


def in_a_line(error: BaseException) -> str:
    """Say in one line what was raised, and where, if a user's own code raised it or called what did.

    Returns:
        `KeyError: 'x' (file.py, line 12)`. A message of softbellman's own about a user's fault, raised from that, keeps
        its words, without a class before them.
    """
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    said = textwrap.shorten(
        said.rstrip().rpartition("\n")[2] if _FRAME.search(said) else said, LONGEST, placeholder=" ..."
    )
    place = users_place(error)
    if place is None or _place(error, within_ours=False)[0] is not None:
        said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return said if place is None or place in said else f"{said} ({place})"


def reason_of(error: BaseException) -> str:
    """Say in one line why something could not be had; for a fault of a user's own code as `in_a_line`."""
    return in_a_line(error) if users_place(error) else next(iter(str(error).splitlines()), type(error).__name__)


def users_place(error: BaseException) -> str | None:
    """Name the innermost line of a user's code that softbellman called and that `error`, or its cause, came through.

    A user's code is what belongs neither to softbellman, nor to Python, nor to a package that softbellman needs:
    an installed package with a user's environments is the user's. A script that called softbellman does not count: the
    fault lies deeper.

    Returns:
        `file.py, line 12`, or None if the fault lies elsewhere.
    """
    raised, within_ours, seen = error, False, set[int]()
    while raised is not None and id(raised) not in seen:  # an exception may be raised from itself
        seen.add(id(raised))
        place, within_ours = _place(raised, within_ours)
        if place is not None:
            return place
        raised = raised.__cause__
    return None


def _place(error: BaseException, within_ours: bool) -> tuple[str | None, bool]:
    """Name the user's line of one exception, whatever its cause; and say whether softbellman called what raised it.

    Args:
        error: the exception.
        within_ours: it is the cause of one that softbellman called for, and its own traceback may begin further in.
    """
    if isinstance(error, UsersFault):
        return None, True  # its cause has the place
    if isinstance(error, SyntaxError) and error.filename and _is_users(error.filename):
        return f"{error.filename}, line {error.lineno}", True
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    first = next((number for number, (file, _) in enumerate(frames) if _is_ours(file)), None)
    if first is None and not within_ours:
        return None, False
    called = frames[first:] + [(file, int(line)) for file, line in _FRAME.findall(str(error))]  # by JAX's callbacks
    users = [f"{file}, line {line}" for file, line in called if _is_users(file)]
    return users[-1] if users else None, True


def _is_ours(filename: str) -> bool:
    return Path(filename).is_relative_to(_OURS)


def _is_users(filename: str) -> bool:
    """Tell a user's file from ours, from the standard library, from what we need and from code without a file."""
    if filename.startswith("<") or _is_ours(filename):
        return False
    parts = Path(filename).parts
    for folder in _INSTALLED:
        if folder in parts:
            needed = _needed()
            return bool(needed) and parts[parts.index(folder) + 1].removesuffix(".py") not in needed
    return not any(Path(filename).is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


@functools.cache
def _needed() -> frozenset[str]:
    """Names of the modules that are installed because softbellman needs them, itself or through another package."""
    packages, waiting = set[str](), ["softbellman"]
    while waiting:
        package = waiting.pop()
        try:
            requirements = importlib.metadata.requires(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        if package != "softbellman":  # whose extras are its own; those of others nobody asked for
            requirements = [line for line in requirements if "extra ==" not in line]
        names = {_plain(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in requirements}
        waiting += names - packages
        packages |= names
    modules = importlib.metadata.packages_distributions()
    return frozenset(name for name, owners in modules.items() if any(_plain(owner) in packages for owner in owners))


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()
