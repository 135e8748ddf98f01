"""Test phases on the device: many games of each run, side by side, in one compiled program.

Every copy's first game counts, whatever its length: if the phase were filled with games until its budget was used up,
short games would be counted more often than long ones.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.device import copy_keys
from softbellman.envs.step import DeviceEnv
from softbellman.learning import learner
from softbellman.learning.recipe import Recipe
from softbellman.learning.settings import UpdateSettings
from softbellman.training import streams
from softbellman.training.evaluation import TestPhase, realised_return
from softbellman.training.settings import LoopSettings, check_side_by_side
from softbellman.training.streams import Role

CHUNK = 250  # steps of a copy between two looks at whether all first games are over


class Seen(NamedTuple):
    """Record of each step, `[T, R, C]`."""

    value: Any
    reward: Any
    training_end: Any
    cut: Any
    game_ended: Any
    print: Any  # a number that differs, but for chance, where the observations so far do


def play(
    env: DeviceEnv,
    recipe: Recipe,
    params: Any,
    seeds: Sequence[int],
    loop: LoopSettings,
    on_step: Callable[[], None] | None = None,
) -> list[TestPhase]:
    """Plays a test phase of each of `R` runs: `loop.test_episodes` games, within `loop.test_steps` agent steps.

    Args:
        env: the environment.
        recipe: the learner's, with the discount factor and the clipping of the realised return.
        params: the online parameters, with `[R]` in front.
        seeds: `[R]`, of each run's games and actions.
        loop: number of games, budget of agent steps, epsilon.
        on_step: called after each chunk of steps.

    Returns:
        The phases. A game that the budget cut short counts only if no other of its run has ended.

    Raises:
        ValueError: as `check_side_by_side`.
    """
    copies = check_side_by_side(loop)
    longest = loop.test_steps // copies
    act_keys = streams.keys(seeds, Role.TEST)
    env_keys = jnp.stack([copy_keys(seed, training=False, num_envs=copies) for seed in seeds])
    games, obs = _begin(env, env_keys)
    carry, chunks, taken = (games, obs, _print(obs)), [], 0
    while taken < longest:
        carry, seen = _play(env, recipe, params, carry, act_keys, env_keys, taken, loop.test_epsilon, CHUNK)
        chunks.append(jax.tree.map(np.asarray, seen))
        taken += CHUNK
        if on_step is not None:
            on_step()
        if np.any([chunk.game_ended.any(axis=0) for chunk in chunks], axis=0).all():
            break
    seen = Seen(*(np.concatenate(parts)[:longest] for parts in zip(*chunks, strict=True)))
    return [_phase(Seen(*(array[:, run] for array in seen)), recipe.update) for run in range(len(seeds))]


def _phase(seen: Any, update: UpdateSettings) -> TestPhase:
    """Counts the first game of each copy, `[T, C]`."""
    over = seen.game_ended.any(axis=0)
    lengths = np.where(over, seen.game_ended.argmax(axis=0) + 1, len(seen.reward))
    played = np.arange(len(seen.reward))[:, None] < lengths
    scores = np.where(played, seen.reward, 0.0).sum(axis=0, dtype=np.float64)
    counted = over if over.any() else np.arange(len(over)) == 0
    realised, overestimation = realised_return(
        seen.value, update.seen(seen.reward, np), seen.training_end, seen.cut, update.gamma, played
    )
    prints = seen.print[lengths - 1, np.arange(len(over))][over]
    return TestPhase(
        scores=scores[counted],
        lengths=lengths[counted],
        unfinished=not over.any(),
        steps=int(lengths.sum()),
        realised_return=realised,
        overestimation=overestimation,
        identical=len(prints) > 1 and len(set(prints.tolist())) == 1,
    )


@partial(jax.jit, static_argnames=("env",))
def _begin(env: DeviceEnv, env_keys: jax.Array) -> Any:
    return jax.vmap(jax.vmap(env.reset))(env_keys)


@partial(jax.jit, static_argnames=("env", "recipe", "steps"))
def _play(
    env: DeviceEnv,
    recipe: Recipe,
    params: Any,
    carry: Any,
    act_keys: jax.Array,
    env_keys: jax.Array,
    taken: Any,
    epsilon: Any,
    steps: int,
) -> Any:
    """Takes `steps` steps of every copy of every run."""

    def step(carry: Any, moment: jax.Array) -> Any:
        games, obs, print_ = carry

        def act(params: Any, obs: jax.Array, key: jax.Array) -> Any:
            return learner.act_greedily(recipe, params, obs, jax.random.fold_in(key, moment), epsilon)

        actions, value = jax.vmap(act)(params, obs, act_keys)
        games, step = jax.vmap(jax.vmap(env.step))(games, actions, env_keys)
        print_ = print_ * jnp.uint32(1_000_003) + _print(step.next_obs)
        cut = step.truncated & ~step.training_end
        seen = Seen(value, step.reward, step.training_end, cut, step.game_ended, print_)
        return (games, step.obs, print_), seen

    return jax.lax.scan(step, carry, taken + jnp.arange(steps))


def _print(obs: jax.Array) -> jax.Array:
    """Computes a number of each observation `[R, C, *obs_shape]`, `[R, C]` uint32."""
    flat = obs.reshape(*obs.shape[:2], -1)
    bits = jax.lax.bitcast_convert_type(flat.astype(jnp.float32), jnp.uint32)
    weights = 2 * jnp.arange(flat.shape[-1], dtype=jnp.uint32) + 1
    return (bits * weights[None, None]).sum(axis=-1, dtype=jnp.uint32)
