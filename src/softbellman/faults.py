"""The place of a fault: file and line of a user's own code that an exception came through; imports nothing of ours."""

import sysconfig
import traceback
from pathlib import Path

_OURS = Path(__file__).parent


def users_place(error: BaseException) -> str | None:
    """Name the innermost line of a user's code that softbellman called and that `error` came through.

    A user's code is what belongs neither to softbellman, nor to Python, nor to an installed package. A script that
    called softbellman does not count: the fault lies deeper.

    Returns:
        `file.py, line 12`, or None if the fault lies elsewhere.
    """
    if isinstance(error, SyntaxError) and error.filename and _is_users(error.filename):
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [number for number, frame in enumerate(frames) if _is_ours(frame.filename)]
    if not ours:
        return None
    users = [frame for frame in frames[ours[0] :] if _is_users(frame.filename)]
    return f"{users[-1].filename}, line {users[-1].lineno}" if users else None


def _is_ours(filename: str) -> bool:
    return Path(filename).is_relative_to(_OURS)


def _is_users(filename: str) -> bool:
    """Tell a user's file from ours, from the standard library, from installed packages and from code without a file."""
    if filename.startswith("<") or _is_ours(filename):
        return False
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not any(Path(filename).is_relative_to(place) for place in installed)
