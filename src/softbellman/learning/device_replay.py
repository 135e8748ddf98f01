"""The replay buffer on the device: arrays that a compiled program writes to and draws from.

All runs of a block share one clock, so that a step's transitions go to the same slots in each run: one contiguous
write, and no slot that holds anything else than a whole transition. Successors are stored beside the observations;
binary planes are packed, eight to a byte, which makes a transition of MinAtar's Breakout 112 bytes.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.step import Step
from softbellman.learning.replay import Transition


class DeviceReplay(NamedTuple):
    """The replays of `R` runs, `C` transitions each.

    Attributes:
        obs: `[R, C, n]`, packed: see `pack`.
        next_obs: `[R, C, n]`, the true successors.
        action: `[R, C]` int32.
        reward: `[R, C]` float32, raw.
        discount: `[R, C]` float32, `gamma * (1 - terminated)`.
    """

    obs: Any
    next_obs: Any
    action: Any
    reward: Any
    discount: Any


def empty(runs: int, capacity: int, obs_shape: tuple[int, ...], obs_dtype: Any) -> DeviceReplay:
    """Allocates the replays of `runs` runs."""
    size, dtype = _packed(obs_shape, obs_dtype)
    obs = ((runs, capacity, size), dtype)
    number = (runs, capacity)
    kinds = DeviceReplay(obs, obs, (number, jnp.int32), (number, jnp.float32), (number, jnp.float32))
    return DeviceReplay(*(jnp.zeros(*kind) for kind in kinds))


def bytes_needed(capacity: int, obs_shape: tuple[int, ...], obs_dtype: Any) -> int:
    """Returns the bytes of one run's replay.

    >>> bytes_needed(100_000, (10, 10, 4), bool)
    11200000
    """
    size, dtype = _packed(obs_shape, obs_dtype)
    return capacity * (2 * size * dtype.itemsize + 4 + 4 + 4)


def pack(obs: jax.Array, obs_rank: int) -> jax.Array:
    """Flattens observations `[..., *obs_shape]` to `[..., n]`, eight bits to a byte where they are bool."""
    flat = obs.reshape(*obs.shape[: obs.ndim - obs_rank], -1)
    return jnp.packbits(flat, axis=-1) if _is_bits(obs.dtype) else flat


def unpack(packed: jax.Array, obs_shape: tuple[int, ...], obs_dtype: Any) -> jax.Array:
    """Returns the observations `[..., *obs_shape]` that `pack` flattened."""
    flat = packed
    if _is_bits(obs_dtype):
        flat = jnp.unpackbits(packed, axis=-1, count=math.prod(obs_shape)).astype(jnp.bool)
    return flat.reshape(*packed.shape[:-1], *obs_shape)


def write(
    replay: DeviceReplay, slot: jax.Array, obs: jax.Array, action: jax.Array, step: Step, gamma: float
) -> DeviceReplay:
    """Stores one step of the `E` environments of every run in the slots from `slot` on.

    Args:
        replay: the replays.
        slot: the first slot, a multiple of `E`; `C` must be one, too.
        obs: `[R, E, *obs_shape]`, the observations acted on.
        action: `[R, E]`.
        step: what came of it, with `[R, E]` in front.
        gamma: discount factor.
    """
    rank = obs.ndim - 2
    new = DeviceReplay(
        pack(obs, rank),
        pack(step.next_obs, rank),
        action,
        step.reward,
        jnp.where(step.terminated, 0.0, gamma).astype(jnp.float32),
    )
    return jax.tree.map(
        lambda all, some: jax.lax.dynamic_update_slice(all, some, (0, slot, *(0,) * (all.ndim - 2))), replay, new
    )


def draw(
    replay: DeviceReplay, keys: jax.Array, filled: jax.Array, batch: int, obs_shape: tuple[int, ...], obs_dtype: Any
) -> Transition:
    """Draws minibatches, uniformly and with replacement from the first `filled` slots.

    Args:
        replay: the replays.
        keys: `[R]`, one for each run, consumed.
        filled: number of slots that hold a transition.
        batch: transitions in a minibatch, `B`.
        obs_shape: shape of an observation.
        obs_dtype: its dtype.

    Returns:
        Transitions with `[R, B]` in front.
    """
    runs = jnp.arange(len(keys))

    def one(run: jax.Array, key: jax.Array) -> Transition:
        return draw_for(replay, run, key, filled, batch, obs_shape, obs_dtype)

    return jax.vmap(one)(runs, keys)


def draw_for(
    replay: DeviceReplay,
    run: Any,
    key: jax.Array,
    filled: Any,
    batch: int,
    obs_shape: tuple[int, ...],
    obs_dtype: Any,
) -> Transition:
    """Draws a minibatch `[B]` for one run, by its index; see `draw`. Nothing but what is drawn is copied."""
    words = jax.random.bits(key, (batch,))
    indices = (words % jnp.uint32(filled)).astype(jnp.int32)  # uniform to within `filled / 2^32`
    drawn = jax.tree.map(lambda array: array[run, indices], replay)
    return Transition(
        unpack(drawn.obs, obs_shape, obs_dtype),
        drawn.action,
        drawn.reward,
        drawn.discount,
        unpack(drawn.next_obs, obs_shape, obs_dtype),
    )


def _packed(obs_shape: tuple[int, ...], obs_dtype: Any) -> tuple[int, np.dtype[Any]]:
    """Returns length and dtype of a packed observation."""
    size = math.prod(obs_shape)
    return (-(-size // 8), np.dtype(np.uint8)) if _is_bits(obs_dtype) else (size, np.dtype(obs_dtype))


def _is_bits(dtype: Any) -> bool:
    return np.dtype(dtype).kind == "b"
