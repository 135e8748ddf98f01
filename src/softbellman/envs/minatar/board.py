"""The board that all games share: 10 x 10 cells, six actions, and planes of cells kept as bits.

A plane is `[10]` int32: bit `x` of number `y` is the cell in row `y`, column `x`. Whole planes are then moved, joined
and searched by a few operations on ten numbers, and nothing is written cell by cell, which would take the compiler a
kernel each. Only an observation is spread out, by one kernel for all of its channels.
"""

import jax
import jax.numpy as jnp

SIZE = 10
FULL_ROW = 2**SIZE - 1
NONE, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


def cell(y: jax.Array | int, x: jax.Array | int) -> jax.Array:
    """Returns the plane `[10]` with the one cell `(y, x)` set."""
    return jnp.where(jnp.arange(SIZE) == y, 1 << jnp.asarray(x), 0)


def block(rows: range, columns: range) -> jax.Array:
    """Returns the plane `[10]` with a block of cells set."""
    bits = sum(1 << column for column in columns)
    return jnp.array([bits if row in rows else 0 for row in range(SIZE)], jnp.int32)


def joined(planes: jax.Array, axis: int = -1) -> jax.Array:
    """Joins planes, or rows, along an axis: a cell is set if it is in any."""
    return jnp.bitwise_or.reduce(planes, axis=axis)


def is_set(y: jax.Array | int, x: jax.Array | int, plane: jax.Array) -> jax.Array:
    """Tells if a plane has the cell `(y, x)`, `[]` bool."""
    return (cell(y, x) & plane).any()


def spread(*planes: jax.Array) -> jax.Array:
    """Makes an observation `[10, 10, C]` bool of its planes, the channels last."""
    rows = jax.lax.optimization_barrier(jnp.stack(planes, axis=-1))  # else each cell would compute its row again
    bits = rows[:, None, :] >> jnp.arange(SIZE)[None, :, None]
    return (bits & 1).astype(bool)


def in_rows(present: jax.Array, y: jax.Array, x: jax.Array) -> jax.Array:
    """Returns the plane `[10]` of those things `[N]` that are present and on the board."""
    bits = jnp.where(present & on_board(x), 1 << x, 0)
    return joined(jnp.where(y[None, :] == jnp.arange(SIZE)[:, None], bits[None, :], 0))


def on_board(x: jax.Array) -> jax.Array:
    """Tells if columns are columns of the board."""
    return (x >= 0) & (x < SIZE)


def moved(at: jax.Array, action: jax.Array, back: int, forth: int, low: int = 0, high: int = SIZE - 1) -> jax.Array:
    """Returns a coordinate after an action: one less for `back`, one more for `forth`, within `low .. high`."""
    change = (action == forth).astype(jnp.int32) - (action == back).astype(jnp.int32)
    return jnp.clip(at + change, low, high)
