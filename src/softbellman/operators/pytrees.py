"""Operators as JAX pytrees, without importing JAX."""

import sys
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

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
        from jax import tree_util

        while _unregistered:
            tree_util.register_dataclass(_unregistered.pop())
