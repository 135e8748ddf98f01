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
from softbellman.learning.windows import ONE_STEP, Reach, returns, window


class DeviceReplay(NamedTuple):
    """The replay of a run, `C` transitions.

    Attributes:
        obs: `[C, n]`, packed: see `pack`.
        next_obs: `[C, n]`, the true successors.
        action: `[C]` int32.
        reward: `[C]` float32, raw.
        discount: `[C]` float32, `gamma * (1 - terminated)`.
        last: `[C]` bool, the step ended its game; None where no steps are gathered but the transition's own.
    """

    obs: Any
    next_obs: Any
    action: Any
    reward: Any
    discount: Any
    last: Any = None


def empty(capacity: int, obs_shape: tuple[int, ...], obs_dtype: Any, reach: Reach = ONE_STEP) -> DeviceReplay:
    """Allocates a replay."""
    size, dtype = _packed(obs_shape, obs_dtype)
    obs, next_obs = jnp.zeros((capacity, size), dtype), jnp.zeros((capacity, size), dtype)
    action, reward, discount = (jnp.zeros(capacity, kind) for kind in (jnp.int32, jnp.float32, jnp.float32))
    last = jnp.zeros(capacity, bool) if reach != ONE_STEP else None
    return DeviceReplay(obs, next_obs, action, reward, discount, last)


def bytes_needed(capacity: int, obs_shape: tuple[int, ...], obs_dtype: Any, reach: Reach = ONE_STEP) -> int:
    """Returns the bytes of one run's replay.

    >>> bytes_needed(100_000, (10, 10, 4), bool)
    11200000
    """
    size, dtype = _packed(obs_shape, obs_dtype)
    return capacity * (2 * size * dtype.itemsize + 4 + 4 + 4 + (reach != ONE_STEP))


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
        None if replay.last is None else step.game_ended,
    )
    return jax.tree.map(
        lambda all, some: jax.lax.dynamic_update_slice(all, some, (slot, *(0,) * (all.ndim - 1))), replay, new
    )


def gather(
    replay: DeviceReplay,
    indices: jax.Array,
    obs_shape: tuple[int, ...],
    obs_dtype: Any,
    *,
    of: tuple[Any, ...] = (),
    reach: Reach = ONE_STEP,
    num_envs: int = 1,
    written: Any = None,
) -> Transition:
    """Returns the transitions in slots, with `[B]` in front.

    Args:
        replay: the replay.
        indices: `[B]` int32, the slots.
        obs_shape: shape of an observation.
        obs_dtype: its dtype.
        of: `(run,)` where the arrays have an axis of runs in front; nothing but what is gathered is copied.
        reach: steps gathered with a transition.
        num_envs: environments `E` that write side by side.
        written: transitions written since the replay was empty, of which it holds the last `C`; for more than one step.
    """

    def column(name: str, slots: jax.Array) -> jax.Array:
        return getattr(replay, name)[(*of, slots)]

    def read(name: str, slots: jax.Array) -> jax.Array:
        values = column(name, slots)
        return unpack(values, obs_shape, obs_dtype) if name in ("obs", "next_obs") else values

    last, around, reward, discount = indices, None, None, None
    if reach != ONE_STEP:
        after, before = _neighbours(replay, column, num_envs, written)
        if reach.returns > 1:
            reward, discount, last = returns(indices, reach.returns, after, read, jnp)
        if reach.around:
            around = jax.lax.optimization_barrier(window(indices, reach.around, after, before, read, jnp))
    if reach.returns == 1:
        reward, discount = column("reward", indices), column("discount", indices)
    obs, next_obs = read("obs", indices), read("next_obs", last)
    return Transition(obs, column("action", indices), reward, discount, next_obs, window=around)


def _neighbours(replay: DeviceReplay, column: Any, num_envs: int, written: Any) -> tuple[Any, Any]:
    """Makes the functions that lead from a slot to the next and to the one before in the same episode."""
    capacity = replay.action.shape[-1]
    newest = (written - num_envs) % capacity // num_envs  # number of the newest step in the ring

    def goes_on(slots: jax.Array) -> jax.Array:
        return (column("discount", slots) > 0) & ~column("last", slots) & (slots // num_envs != newest)

    def after(slots: jax.Array) -> tuple[jax.Array, jax.Array]:
        return (slots + num_envs) % capacity, goes_on(slots)

    def before(slots: jax.Array) -> tuple[jax.Array, jax.Array]:
        previous = (slots - num_envs) % capacity  # in a slot not yet written to, the discount is 0
        return previous, goes_on(previous)

    return after, before


def _packed(obs_shape: tuple[int, ...], obs_dtype: Any) -> tuple[int, np.dtype[Any]]:
    """Returns length and dtype of a packed observation."""
    size = math.prod(obs_shape)
    return (-(-size // 8), np.dtype(np.uint8)) if _is_bits(obs_dtype) else (size, np.dtype(obs_dtype))


def _is_bits(dtype: Any) -> bool:
    return np.dtype(dtype).kind == "b"
