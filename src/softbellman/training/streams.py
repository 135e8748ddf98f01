"""Random streams as functions of a run's seed, a role and a counter: no generator state."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LARGEST_SEED = 2**32 - 1  # all that a JAX key takes
SPAN = 1024  # uses of a stream that are drawn at once


class Role(IntEnum):
    """Purpose of a stream. Each role's draws are independent of every other's."""

    INIT = 0
    ACT = 1
    REPLAY = 2
    TEST = 3
    HELD_OUT = 4
    GRADIENT = 5


def key(seed: int, role: Role) -> jax.Array:
    """Returns a JAX key for a role of a run; fold a counter in before each use.

    Raises:
        ValueError: if the seed is not in `0 .. 2^32 - 1`; a larger one would silently lose its upper bits.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed ({seed}) must be in 0 .. {LARGEST_SEED}.")
    words = jnp.asarray(np.array([0, seed], np.uint32))
    own = jax.random.wrap_key_data(words, impl="threefry2x32")  # whichever generator JAX makes keys for by default
    return jax.random.fold_in(own, int(role))


def keys(seeds: Sequence[int], role: Role) -> jax.Array:
    """Returns the keys `[R]` for a role of several runs; see `key`."""
    return jnp.stack([key(seed, role) for seed in seeds])


def words(key: jax.Array, size: int) -> jax.Array:
    """Draws the random words `[size]` uint32 that a minibatch is drawn with; consumes the key."""
    return jax.random.bits(key, (size,))


def derived_seed(seed: int, role: Role, counter: int) -> int:
    """Returns a seed in `0 .. 2^31 - 1` for an environment of its own."""
    return int(np.random.SeedSequence([seed, int(role), counter]).generate_state(1)[0] >> 1)


class Ahead:
    """The draws of several runs from a stream, a span of uses at a time: those of a use are as if drawn alone."""

    def __init__(self, draw: Callable[..., Any], sizes: tuple[int, ...], keys: jax.Array) -> None:
        """Takes `draw(key, *sizes)`, which draws for one use of a run, and the runs' keys `[R]`."""
        self._draw, self._sizes, self._keys = draw, sizes, keys
        self._span, self._drawn = -1, None

    def at(self, counter: int) -> Any:
        """Returns the draws of a use, `[R, ...]`."""
        span, place = divmod(counter, SPAN)
        if span != self._span:
            drawn = _draw_span(self._draw, self._sizes, self._keys, np.uint32(span * SPAN))
            self._span, self._drawn = span, jax.tree.map(np.asarray, drawn)
        return jax.tree.map(lambda array: array[place], self._drawn)


@partial(jax.jit, static_argnames=("draw", "sizes"))
def _draw_span(draw: Callable[..., Any], sizes: tuple[int, ...], keys: jax.Array, first: Any) -> Any:
    """Draws for `SPAN` uses from `first` on, `[SPAN, R, ...]`; each depends on its run's key and its number alone."""

    def one(counter: jax.Array, key: jax.Array) -> Any:
        return draw(jax.random.fold_in(key, counter), *sizes)

    every_run = jax.vmap(one, in_axes=(None, 0))
    return jax.vmap(every_run, in_axes=(0, None))(first + jnp.arange(SPAN, dtype=jnp.uint32), keys)
