"""Arguments as a user may write them, made plain: paths, numbers, names, one or many; imports nothing of ours."""

import difflib
import numbers
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


def as_path(given: str | os.PathLike[str]) -> Path:
    """Returns a path, with `~` and `~name` replaced by the home directory.

    Raises:
        ValueError: there is no such home directory.
        TypeError: it is no path.
    """
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{given}: {error}") from None


def as_integer(given: Any, name: str) -> int:
    """Returns a whole number of Python's or NumPy's as an int; a float only if it is one.

    Raises:
        ValueError: with the name, for anything else, a bool too.

    Example:
        >>> as_integer(np.int64(3), "seeds"), as_integer(1e3, "steps")
        (3, 1000)
    """
    number = _plain(given)
    if number is None or number != number // 1:  # an infinity and a NaN are not equal to that
        raise ValueError(f"{name} ({given!r}) must be a whole number, such as {_near(given)}")
    return int(number)


def as_number(given: Any, name: str) -> float:
    """Returns a number of Python's or NumPy's as a float; one of less precision as the shortest decimal that means it.

    Raises:
        ValueError: with the name, for anything else, a bool too.

    Example:
        >>> as_number(np.float32(0.9), "gamma"), as_number(1, "reward_clip")
        (0.9, 1.0)
    """
    number = _plain(given)
    try:
        return float(number)  # pyright: ignore[reportArgumentType]
    except (TypeError, OverflowError):
        raise ValueError(f"{name} ({given!r}) must be a number, such as 0.5") from None


def as_list(given: Any) -> list[Any]:
    """Returns a list of one or of many.

    Example:
        >>> as_list("max"), as_list(np.arange(2)), as_list(3)
        (['max'], [np.int64(0), np.int64(1)], [3])
    """
    return [given] if is_one(given) else list(given)


def is_one(given: Any) -> bool:
    """Says whether this is one thing, not many: a word is, and so is an array without axes."""
    return isinstance(given, str) or not isinstance(given, Iterable) or getattr(given, "shape", None) == ()


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns `"; did you mean ...?"` with the names most like `name`, case and punctuation aside, or nothing."""
    squeezed = {squeeze(candidate): candidate for candidate in names}
    matches = difflib.get_close_matches(squeeze(name), squeezed, n=3, cutoff=0.6)
    return f"; did you mean {', '.join(squeezed[match] for match in matches)}?" if matches else ""


def squeeze(name: str) -> str:
    """Returns `name` in lower case with nothing but its letters and digits: `Ms-Pacman` and `ms_pacman` agree.

    >>> squeeze("Ms-Pacman")
    'mspacman'
    """
    return re.sub("[^a-z0-9]", "", name.lower())


def _near(given: Any) -> int:
    """Returns a whole number near to what was given, if that can be read as a number."""
    try:
        return round(float(given if isinstance(given, str) else _plain(given)))  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        return 1000


def _plain(given: Any) -> int | float | None:
    """Returns a number as Python's, or None for what is none."""
    if getattr(given, "shape", None) == () and hasattr(given, "dtype"):  # a scalar of NumPy's, or an array without axes
        scalar = np.asarray(given)[()]
        given = float(str(scalar)) if scalar.dtype.kind == "f" else scalar.item()
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        return None
    return given if isinstance(given, int | float) else float(given)
