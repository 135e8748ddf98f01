"""Base of the parts: a frozen dataclass whose fields are the arguments of its spec."""


class Part:
    """A part of a recipe; its subclasses are frozen dataclasses, equal and hashed by value."""

    def __str__(self) -> str:
        """Write the part as a spec, such as `gap(0.9)`."""
        from softbellman.learning.parts.table import spelled

        return spelled(self)


def require(condition: bool, message: str) -> None:
    """Refuse arguments of a part.

    Raises:
        ValueError: the condition does not hold.
    """
    if not condition:
        raise ValueError(message)
