"""Replay buffer on the device: arrays that a compiled program writes to and draws from.

The functions are of one run's replay, to be mapped over runs. All runs of a block share one clock, so that a step's
transitions go to the same slots in each: one contiguous write, and no slot that holds anything else than a whole
transition. Successors are stored beside the observations; binary planes are packed, eight to a byte, which makes a
transition of MinAtar's Breakout 112 bytes.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.step import Step
from softbellman.learning.replay import Transition


class DeviceReplay(NamedTuple):
    """The replay of a run, `C` transitions.

    Attributes:
        obs: `[C, n]`, packed: see `pack`.
        next_obs: `[C, n]`, the true successors.
        action: `[C]` int32.
        reward: `[C]` float32, raw.
        discount: `[C]` float32, `gamma * (1 - terminated)`.
    """

    obs: Any
    next_obs: Any
    action: Any
    reward: Any
    discount: Any


def empty(capacity: int, obs_shape: tuple[int, ...], obs_dtype: Any) -> DeviceReplay:
    """Allocates a replay."""
    size, dtype = _packed(obs_shape, obs_dtype)
    obs = ((capacity, size), dtype)
    kinds = DeviceReplay(obs, obs, (capacity, jnp.int32), (capacity, jnp.float32), (capacity, jnp.float32))
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
    """Stores one step of `E` environments in the slots from `slot` on.

    Args:
        replay: the replay.
        slot: the first slot, a multiple of `E`; `C` must be one, too.
        obs: `[E, *obs_shape]`, the observations acted on.
        action: `[E]`.
        step: what came of it, with `[E]` in front.
        gamma: discount factor.
    """
    rank = obs.ndim - 1
    new = DeviceReplay(
        pack(obs, rank),
        pack(step.next_obs, rank),
        action,
        step.reward,
        jnp.where(step.terminated, 0.0, gamma).astype(jnp.float32),
    )
    return jax.tree.map(
        lambda all, some: jax.lax.dynamic_update_slice(all, some, (slot, *(0,) * (all.ndim - 1))), replay, new
    )


def draw(
    replay: DeviceReplay,
    words: jax.Array,
    filled: Any,
    obs_shape: tuple[int, ...],
    obs_dtype: Any,
    of: tuple[Any, ...] = (),
) -> Transition:
    """Returns a transition for each random word, uniformly and with replacement (Deviation D19).

    Args:
        replay: the replay.
        words: `[B]` uint32, random.
        filled: number of slots that hold a transition, the first ones.
        obs_shape: shape of an observation.
        obs_dtype: its dtype.
        of: `(run,)` where the arrays have an axis of runs in front; nothing but what is drawn is copied.

    Returns:
        Transitions with `[B]` in front.
    """
    indices = (words % jnp.uint32(filled)).astype(jnp.int32)  # uniform to within `filled / 2^32`
    drawn = jax.tree.map(lambda array: array[(*of, indices)], replay)
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
