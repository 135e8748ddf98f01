"""Sum tree: numbers drawn in proportion to their priorities, with equal bits in NumPy and in JAX.

Priorities stand in rows of a fixed width, beside the sums of the rows; a draw chooses a row, then a place in it. All
sums are pairwise additions of neighbours, written out: a reduction's order is a compiler's to choose. No product is a
term of a sum, which a compiler may round once in place of twice. A partial sum is that of the halves it is made of, so
it never falls from one place to the next, and rises only at a priority above 0: no other is ever drawn.
"""

from typing import Any, NamedTuple

import numpy as np

WIDTH = 256  # of a row, a power of 2


class SumTree(NamedTuple):
    """Priorities by number, and their sums.

    Attributes:
        leaves: `[K, WIDTH]` float32, the priorities; 0 where there is none.
        sums: `[S]` float32, those of the rows; `S` is a power of 2, at least `K`.
    """

    leaves: Any
    sums: Any


def empty(size: int, xp: Any) -> SumTree:
    """Make a tree for the numbers `0 .. size - 1`, of `xp`: `numpy` or `jax.numpy`."""
    rows, sums = _sizes(size)
    return SumTree(xp.zeros((rows, WIDTH), xp.float32), xp.zeros(sums, xp.float32))


def bytes_needed(size: int) -> int:
    """Compute the bytes of a tree.

    >>> bytes_needed(100_000)
    402432
    """
    rows, sums = _sizes(size)
    return 4 * (rows * WIDTH + sums)


def put(tree: SumTree, numbers: Any, priorities: Any, xp: Any) -> SumTree:
    """Set priorities `[M]` of numbers `[M]`; of a number that is there twice, the first. The tree is given away."""
    first = (numbers[:, None] == numbers[None]).argmax(axis=1)
    rows, columns = numbers // WIDTH, numbers % WIDTH
    return with_rows_summed(tree._replace(leaves=_set(tree.leaves, (rows, columns), priorities[first], xp)), rows, xp)


def with_rows_summed(tree: SumTree, rows: Any, xp: Any) -> SumTree:
    """Sum rows `[M]` of leaves that have changed. The tree is given away."""
    return tree._replace(sums=_set(tree.sums, rows, _sum(tree.leaves[rows]), xp))


def draw(tree: SumTree, shares: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Draw numbers by shares `[B]` of the sum of all priorities, from 0 up to 1.

    Returns:
        Numbers `[B]` int32, their priorities, and the sum of all.
    """
    before = _partial(tree.sums, xp)
    threshold = shares * before[-1]
    row = _place(before[None], threshold, xp)
    start = xp.where(row > 0, before[row - 1], xp.float32(0))
    column = _place(_partial(tree.leaves[row], xp), threshold, xp, start)
    return row * WIDTH + column, tree.leaves[row, column], before[-1]


def _sizes(size: int) -> tuple[int, int]:
    """Return the numbers of rows and of their sums."""
    rows = -(-size // WIDTH)
    return rows, 1 << (rows - 1).bit_length()


def _sum(values: Any) -> Any:
    """Sum along the last axis, whose length is a power of 2."""
    while values.shape[-1] > 1:
        values = values[..., 0::2] + values[..., 1::2]
    return values[..., 0]


def _partial(values: Any, xp: Any) -> Any:
    """Compute partial sums along the last axis, whose length is a power of 2; the last is `_sum`."""
    shape, half = values.shape, 1
    while half < shape[-1]:
        pairs = values.reshape(*shape[:-1], -1, 2, half)
        low, high = pairs[..., 0, :], pairs[..., 1, :]
        values = xp.concatenate([low, low[..., -1:] + high], axis=-1)
        half *= 2
    return values.reshape(shape)


def _place(partial: Any, threshold: Any, xp: Any, start: Any = None) -> Any:
    """Find the first place where partial sums `[B, L]`, above `start` `[B]`, exceed thresholds `[B]`, or last rise."""
    above = partial if start is None else start[:, None] + partial
    return xp.sum((above <= threshold[:, None]) & (partial < partial[:, -1:]), axis=1, dtype=xp.int32)


def _set(array: Any, index: Any, values: Any, xp: Any) -> Any:
    if xp is not np:
        return array.at[index].set(values)
    array[index] = values
    return array
