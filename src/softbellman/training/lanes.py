"""Blocks of runs: the lanes of a compiled call, along a leading axis that a block of one does not have."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from softbellman.operators import register_pytrees


class Run(NamedTuple):
    """One run of a group: its operator, which differs from the others' in parameters only, and its seed."""

    operator: Any
    seed: int


def blocks_of(runs: Sequence[Run], width: int) -> list[list[Run]]:
    """Parts the runs of a group into blocks of at most `width`.

    Raises:
        ValueError: there is no run, or their operators differ in more than parameters.
    """
    register_pytrees()  # an operator may be older than JAX's loading
    if len({jax.tree.structure(run.operator) for run in runs}) != 1:
        given = ", ".join(dict.fromkeys(str(run.operator) for run in runs)) or "no run"
        raise ValueError(f"a group's operators have one structure and differ in parameters only; got {given}")
    return [list(runs[start : start + width]) for start in range(0, len(runs), width)]


def filled_up(items: Sequence[Any], width: int) -> list[Any]:
    """Fills a block's items up to its width with the last one.

    >>> filled_up("ab", 4)
    ['a', 'b', 'b', 'b']
    """
    return [*items, *[items[-1]] * (width - len(items))]


def stack(trees: Sequence[Any], width: int, xp: Any = jnp) -> Any:
    """Stacks a tree for each run of a block along an axis of lanes; a block of one has no such axis."""
    if width == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: xp.stack([xp.asarray(leaf) for leaf in leaves]), *filled_up(trees, width))


def lane_of(tree: Any, lane: int, width: int) -> Any:
    """Returns the part of a stacked tree that belongs to one lane."""
    return tree if width == 1 else jax.tree.map(lambda leaf: leaf[lane], tree)


def over_lanes(function: Callable[..., Any], width: int) -> Callable[..., Any]:
    """Maps a function of one run over the lanes of a block. For a block of one, an axis would cost a fifth on a CPU."""
    return function if width == 1 else jax.vmap(function)
