"""Specs of parts: from text such as `gap(0.9)` to a value of one table."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from softbellman.arguments import nearest
from softbellman.operators.spec import SpecError, name_and_arguments, parse
from softbellman.references import found, is_reference

WORDS = ("mean", "min", "median", "mix")
"""Arguments that stand for themselves; every other word is an operator."""


def read_part(role: str, spec: str, factories: Mapping[str, Callable[..., Any]], kind: type) -> Any:
    """Read a part from its spec.

    Args:
        role: field of the recipe, which messages name.
        spec: such as `gap(0.9)`, or `package.module:name(...)` for one of your own.
        factories: functions that make a part, by name.
        kind: class that a part of this role is of.

    Raises:
        ValueError: the name is unknown, or the arguments are not what it takes.
    """
    where = f"recipe.{role} {spec!r}"
    try:
        name, words = name_and_arguments(spec)
        arguments = [_argument(word) for word in words]
    except SpecError as error:
        raise ValueError(f"{where}: {error}") from None
    if name in factories:
        factory = factories[name]
    elif is_reference(name):
        factory = found(name, f"recipe.{role}")
    else:
        hint = nearest(name, factories)
        raise ValueError(f"{where}: there is no {name!r}{hint}; there are {', '.join(factories)}")
    if not callable(factory):
        raise ValueError(f"{where}: {name} is a {type(factory).__name__}, and must make a {kind.__name__}")
    try:
        signature = inspect.signature(factory)
        signature.bind(*arguments)
    except ValueError:  # one of Python's own, which keeps its signature to itself
        pass
    except TypeError:
        wanted = ", ".join(signature.parameters) or "no argument"  # pyright: ignore[reportPossiblyUnbound]
        raise ValueError(f"{where}: {name} takes {wanted}, and was given {len(arguments) or 'none'}") from None
    try:
        made = factory(*arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    if not isinstance(made, kind):
        raise ValueError(f"{where}: {name} made a {type(made).__name__}, and must make a {kind.__name__}")
    return made


def _argument(word: str) -> Any:
    if word in WORDS:
        return word
    try:
        number = float(word)
    except ValueError:
        return parse(word)
    return int(word) if word.lstrip("+-").isdigit() else number
