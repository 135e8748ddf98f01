"""Parameters of operators: the range of each is declared once, beside its field, and checked where one is built."""

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

from softbellman.operators.row import Number, compat

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """The numbers that a parameter may be.

    Attributes:
        low, high: its ends; an infinite one is never reached.
        ends: what the operator is there, in words.
        limit: the operator that it tends to where the parameter is infinite; empty where there is none.
        above: `low` itself is left out.
        whole: only whole numbers.
        example: a parameter as good as any.
    """

    low: float
    high: float
    ends: str
    limit: str
    above: bool
    whole: bool
    example: float

    def __str__(self) -> str:
        """Say in words what is allowed."""
        kind = "whole and " if self.whole else ""
        if self.high < math.inf:
            return f"{kind}from {self.low:g} to {self.high:g}"
        return f"{kind}finite and {'above' if self.above else 'at least'} {self.low:g}"

    def check(self, function: str, name: str, value: Number) -> Number:
        """Check a Python number and cast it to float; leave arrays and tracers of JAX and PyTorch alone.

        Raises:
            TypeError: it is no number.
            ValueError: it is out of range.
        """
        if compat.is_jax_array(value) or compat.is_torch_array(value):
            return value
        if isinstance(value, bool | np.timedelta64) or not isinstance(value, numbers.Real):
            raise TypeError(f"{function}: {name} ({value!r}) must be a number, {self}, such as {self.example}.")
        try:
            number = float(value) + 0.0  # no -0.0
        except OverflowError:
            number = math.inf
        if number == math.inf and self.limit:
            raise ValueError(f"{function}: {name} ({value}) must be finite; for its limit use {self.limit}.")
        is_within = number < math.inf and self.low <= number <= self.high and not (self.above and number == self.low)
        if not is_within or (self.whole and number != int(number)):
            raise ValueError(f"{function}: {name} ({value}) must be {self}; {self.ends}.")
        return number


def parameter(
    low: float,
    high: float = math.inf,
    *,
    ends: str,
    limit: str = "",
    above: bool = False,
    whole: bool = False,
    example: float = 5.0,
) -> Any:
    """Declare a field as a parameter of an operator; see `Range`."""
    return field(metadata={"range": Range(low, high, ends, limit, above, whole, example)})


def ranges(cls: type[Any]) -> dict[str, Range]:
    """Give the parameters of an operator's class by name."""
    return {f.name: f.metadata["range"] for f in fields(cls) if "range" in f.metadata}


def checked(cls: type[T], function: str, *values: Number, **others: Any) -> T:
    """Build an operator from its parameters in their order, each in its range, and from what else its fields are.

    Raises:
        TypeError: a parameter is no number.
        ValueError: it is out of range.
    """
    given = zip(ranges(cls).items(), values, strict=True)
    return cls(**others, **{name: within.check(function, name, value) for (name, within), value in given})


def shares(function: str, name: str, given: Sequence[Number], *, positive: bool = False) -> tuple[Number, ...]:
    """Check that numbers are a distribution: none negative, and of sum 1 up to what decimals leave out.

    Raises:
        TypeError: one is no number.
        ValueError: they are no distribution.
    """
    each = Range(0.0, 1.0, "", "", False, False, 0.5)
    if any(compat.is_jax_array(number) or compat.is_torch_array(number) for number in given):
        return tuple(given)
    said = f"{function}: {name} ({', '.join(map(str, given))})"
    if not given:
        raise ValueError(f"{function}: {name} is empty; pass a number for each action, of sum 1.")
    if any(isinstance(number, bool) or not isinstance(number, numbers.Real) for number in given):
        raise TypeError(f"{said} must be numbers, one for each action, such as 0.5, 0.3, 0.2.")
    if not all(each.low <= float(number) <= each.high for number in given) or abs(sum(given) - 1) > 1e-6:
        raise ValueError(f"{said} must be at least 0 and of sum 1, which is {sum(map(float, given)):.6g}.")
    if positive and min(given) == 0:
        raise ValueError(f"{said} must be above 0; an action that may not be taken is one that `where` masks out.")
    return tuple(float(number) for number in given)
