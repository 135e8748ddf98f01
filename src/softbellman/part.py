"""Parts beside the operator: a frozen dataclass whose fields are the arguments of its spec, and how that is read."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from softbellman.arguments import nearest
from softbellman.operators.core import Operator
from softbellman.operators.spec import SpecError, name_and_arguments, parse
from softbellman.references import is_reference, resolve

WORDS = ("mean", "min", "median", "mix")
"""Arguments that stand for themselves; every other word is an operator."""

_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)  # above 0, in float32


class Part:
    """A part of a recipe; its subclasses are frozen dataclasses, equal and hashed by value.

    Attributes:
        name: its name in specs; a class of your own, which has none, is `package.module:Class` there.
    """

    name: ClassVar[str]

    def __str__(self) -> str:
        """Write the part as a spec that reads back to an equal one, such as `gap(0.9)`."""
        kind, own = type(self), dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        name = vars(kind).get("name", f"{kind.__module__}:{kind.__qualname__}")
        given = [getattr(self, field.name) for field in own]
        while given and given[-1] == own[len(given) - 1].default:
            given.pop()
        return f"{name}({', '.join(map(_text, given))})" if given else name


def require(condition: bool, message: str) -> None:
    """Refuse arguments of a part.

    Raises:
        ValueError: the condition does not hold.
    """
    if not condition:
        raise ValueError(message)


def require_finite(name: str, number: float) -> None:
    """Refuse a number that is not finite in float32, in which parts are computed.

    Raises:
        ValueError: with its name.
    """
    require(-_LARGEST <= number <= _LARGEST, f"{name} ({number}) must be finite in float32")


def require_count(of: str, number: int, least: int = 1) -> None:
    """Refuse a number of things that is no integer, or below the least.

    Raises:
        ValueError: with what it is a number of.
    """
    fits = isinstance(number, Integral) and number >= least
    require(fits, f"the number of {of} ({number}) must be {least} or more")


def require_positive(name: str, number: float) -> None:
    """Refuse a number that is not above 0 and finite in float32.

    Raises:
        ValueError: with its name.
    """
    fits = _SMALLEST <= number <= _LARGEST
    require(fits, f"{name} ({number}) must be above 0, and finite{_in_float32(number)}")


def require_share(name: str, number: float) -> None:
    """Refuse a number that is not above 0, in float32 too, and at most 1.

    Raises:
        ValueError: with its name.
    """
    require(_SMALLEST <= number <= 1, f"{name} ({number}) must be above 0 and at most 1{_in_float32(number)}")


def _in_float32(number: float) -> str:
    """Says that it is float32 that a number above 0 does not fit into."""
    return " in float32" if 0 < number < math.inf else ""


def read_part(field: str, spec: str, factories: Mapping[str, Callable[..., Any]], kind: type) -> Any:
    """Read a part from its spec.

    Args:
        field: what is read, which messages name: `recipe.gap`.
        spec: such as `gap(0.9)`, or `package.module:name(...)` for one of your own.
        factories: functions that make a part, by name.
        kind: class that the part is of.

    Raises:
        ValueError: the name is unknown, or the arguments are not what it takes.
    """
    where = f"{field} {spec!r}"
    try:
        name, words = name_and_arguments(spec)
        arguments = [_argument(word) for word in words]
    except SpecError as error:
        raise ValueError(f"{where}: {error}") from None
    if name in factories:
        factory = factories[name]
    elif is_reference(name):
        factory = resolve(name, field)
    else:
        hint = nearest(name, factories) or f"; there are {', '.join(factories)}"
        raise ValueError(f"{where}: there is no {name!r}{hint}")
    if not callable(factory):
        raise ValueError(f"{where}: {name} is a {type(factory).__name__}, and must make a {kind.__name__}")
    try:
        signature = inspect.signature(factory)
        signature.bind(*arguments)
    except ValueError:  # one of Python's own, which keeps its signature to itself
        pass
    except TypeError:
        wanted = _wanted(signature)  # pyright: ignore[reportPossiblyUnbound]
        raise ValueError(f"{where}: {name} takes {wanted}, and was given {len(arguments) or 'none'}") from None
    try:
        made = factory(*arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    if not isinstance(made, kind):
        raise ValueError(f"{where}: {name} made a {type(made).__name__}, and must make a {kind.__name__}")
    return made


def _wanted(signature: inspect.Signature) -> str:
    """Lists arguments, with the values of those that may be left out."""
    named = (
        each.name if each.default is each.empty else f"{each.name}={_text(each.default)}"
        for each in signature.parameters.values()
    )
    return ", ".join(named) or "no argument"


def _text(value: Any) -> str:
    text = str(value)  # not repr(), which names the type of a number of NumPy's
    return text if isinstance(value, str | Operator) else text.removesuffix(".0").replace("e+", "e")


def _argument(word: str) -> Any:
    if word in WORDS:
        return word
    try:
        number = float(word)
    except ValueError:
        return parse(word)
    return int(word) if word.lstrip("+-").isdigit() else number
