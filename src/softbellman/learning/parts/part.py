"""Part of a recipe: the base of all, a frozen dataclass whose fields are the arguments of its spec."""

import dataclasses
from typing import Any, ClassVar

from softbellman.operators.core import Operator


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


def _text(value: Any) -> str:
    if isinstance(value, str | Operator):
        return str(value)
    return repr(value).removesuffix(".0").replace("e+", "e")
