"""Operators as JAX pytrees, without importing JAX."""

import sys
from dataclasses import dataclass, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")
_unregistered: list[type] = []


@dataclass_transform(frozen_default=True)
def operator(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose fields JAX may trace.

    A field is a pytree leaf: one compilation serves all its values. A field that shapes the computation instead,
    such as a count, is declared with `dataclasses.field(metadata={"static": True})`. Checks belong in a function
    that builds the instance: JAX runs `__post_init__` again, with tracers.

    Example:
        >>> from softbellman import operators as ops
        >>> @ops.operator
        ... class HalfGreedy(ops.Operator):
        ...     def policy(self, row):
        ...         return (ops.maximum().policy(row) + ops.mean().policy(row)) / 2
        >>> float(HalfGreedy()([0.0, 1.0]))
        0.75
    """
    made = dataclass(frozen=True)(cls)
    _unregistered.append(made)
    register_pytrees()
    return made


def register_pytrees() -> None:
    """Tell JAX about the operators defined so far; where JAX is not loaded, do nothing.

    Making an operator calls this, and so does using one. It is needed by hand only for an operator made before
    JAX was imported and then given to a transformation as the very first thing.
    """
    if _unregistered and "jax" in sys.modules:
        while _unregistered:
            _register(_unregistered.pop())


def require_pytree(op: Any) -> None:
    """Refuse an operator that JAX does not know; JAX is loaded, and all classes are registered.

    Raises:
        ValueError: its class lacks the decorator.
    """
    from jax import tree_util

    if tree_util.all_leaves([op]):
        raise ValueError(f"JAX does not know the class of {op}: decorate it with softbellman.operators.operator")


def _register(cls: Any) -> None:
    """Register one class.

    Not by `register_dataclass`: with JAX 0.10.2 the structures of two dataclasses of the same fields compare equal, so
    that a compiled function, which looks its structures up by hash and then by comparison, now and then takes one
    operator for another.
    """
    from jax import tree_util

    leaves = [field.name for field in fields(cls) if not field.metadata.get("static")]
    static = [field.name for field in fields(cls) if field.metadata.get("static")]

    def flatten(op: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children = [(tree_util.GetAttrKey(name), getattr(op, name)) for name in leaves]
        return children, tuple(getattr(op, name) for name in static)

    def unflatten(values: tuple[Any, ...], children: Any) -> Any:
        return cls(**dict(zip(leaves, children, strict=True)), **dict(zip(static, values, strict=True)))

    tree_util.register_pytree_with_keys(cls, flatten, unflatten)  # pyright: ignore[reportUnknownMemberType]
