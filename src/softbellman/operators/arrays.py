"""Arrays as users give them: one that NumPy would take without its meaning is refused, with what to pass instead.

Labels, as of pandas, are no part of that meaning: values are taken by their position.
"""

import numbers
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray


def lost_meaning(values: Any) -> str | None:
    """Tell what NumPy would drop from an array, or from arrays in lists, and what to pass; None if nothing.

    Example:
        >>> lost_meaning(np.ma.array([1.0, 99.0], mask=[False, True]))
        'a masked array, and its mask would be lost; pass its data, and the actions that are legal as a bool array'
        >>> lost_meaning([1.0, 2.0])
    """
    return _lost_among((values,))


def _lost_among(members: Sequence[Any]) -> str | None:
    kinds = set(map(type, members))  # few, however long the list is
    is_nested = any(issubclass(kind, list | tuple) for kind in kinds)
    lists = filter(lambda member: isinstance(member, list | tuple), members if is_nested else ())
    return next(filter(None, (*map(_lost_by_kind, kinds), *map(_lost_among, lists))), None)


def _lost_by_kind(kind: type[Any]) -> str | None:
    if kind in (np.ndarray, np.memmap):
        return None
    if issubclass(kind, np.ma.MaskedArray):
        return (
            "a masked array, and its mask would be lost; pass its data, and the actions that are legal as a bool array"
        )
    if issubclass(kind, np.matrix):
        return "an np.matrix, which has two axes whatever is done to it; pass np.asarray() of it"
    if hasattr(kind, "todense"):
        return "a sparse array, which is not taken here; pass its toarray()"
    if issubclass(kind, np.ndarray) or hasattr(kind, "__array_function__"):
        name = f"{kind.__module__}.{kind.__qualname__}"
        return f"of {name}, and what that adds to numbers, such as a unit, would be lost; pass the numbers alone"
    return None


def floats(values: Any, name: str) -> NDArray[np.float64]:
    """Make values float64, without a copy where they are.

    Args:
        values: real numbers or bools, as an array or in lists; exact ones, such as fractions, are rounded.
        name: for the message.

    Raises:
        ValueError: they are of another kind, or more than numbers.

    Example:
        >>> from fractions import Fraction
        >>> floats([Fraction(1, 4), 1], "probability").tolist()
        [0.25, 1.0]
    """
    array = plain(values, name)
    if array.dtype.kind not in "biuf" and not _are_exact_numbers(array):
        raise ValueError(f"{name} has dtype {array.dtype}; it must be of real numbers, such as float64.")
    return array.astype(np.float64, copy=False)


def flags(values: Any, name: str) -> NDArray[np.bool_]:
    """Make bools of bools, or of numbers that are 0 or 1.

    Raises:
        ValueError: they are anything else.
    """
    array = floats(values, name)
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} has values other than True and False, or 1 and 0.")
    return array.astype(bool)


def whole(values: Any, name: str) -> NDArray[np.int64]:
    """Make whole numbers int64; an empty list has none that are not.

    Raises:
        ValueError: they are of another kind.
    """
    array = plain(values, name)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name} has dtype {array.dtype}; it must be whole numbers.")
    return array.astype(np.int64)


def plain(values: Any, name: str) -> NDArray[Any]:
    """Make values an array, whatever its dtype.

    Raises:
        ValueError: they form no array, or are more than one.
    """
    if lost := lost_meaning(values):
        raise ValueError(f"{name} is {lost}.")
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} is no array of numbers: {error}") from None


def _are_exact_numbers(array: NDArray[Any]) -> bool:
    return array.dtype == object and all(isinstance(x, numbers.Real | Decimal) for x in array.flat)
