"""The compiled program of the device's loop: what it carries, and how it moves on.

It is written for one run, as two nested loops, updates over environment steps, and mapped over the runs of a block; it
has no condition, of which both sides would be computed then. The number of turns of each loop is an argument, so that
one compilation serves all chunks.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from softbellman.envs.step import DeviceEnv, Step
from softbellman.learning import device_replay, learner
from softbellman.learning.device_replay import DeviceReplay
from softbellman.learning.learner import LearnerState, Schedule
from softbellman.learning.networks import Network
from softbellman.learning.replay import Transition
from softbellman.learning.settings import UpdateSettings


class Counts(NamedTuple):
    """What is counted of a run; see `measurement.Tally`. The scores are of the games under way."""

    episodes: jax.Array
    finished: jax.Array
    return_sum: jax.Array
    clipped_return_sum: jax.Array
    score: jax.Array  # [E]
    clipped_score: jax.Array  # [E]
    loss_sum: jax.Array
    diverged_at: jax.Array  # the agent step at which the loss was no longer finite; 0: it is


class Block(NamedTuple):
    """The whole state of a run with `E` environments; of `R` runs, if each array has that axis in front."""

    learner: LearnerState
    replay: DeviceReplay
    games: Any  # the environments' states, [E, ...]
    obs: jax.Array  # [E, *obs_shape], acted on next
    counts: Counts


class Keys(NamedTuple):
    """The keys of a run, never consumed: a counter goes in with each use. Those of a block have `R` in front, too."""

    act: jax.Array
    replay: jax.Array
    env: jax.Array  # [E], see `envs.device.copy_keys`


class Setting(NamedTuple):
    """What a compiled program depends on."""

    env: DeviceEnv
    network: Network
    update: UpdateSettings
    replay_capacity: int
    batch_size: int
    num_envs: int


class Moment(NamedTuple):
    """Where a program begins: agent steps so far, when the replay was empty, and the schedule of exploration."""

    agent_steps: Any
    replay_from: Any
    schedule: Schedule


def _over_runs(function: Callable[..., Any], *arguments: Any) -> Any:
    """Maps over the leading axis of all arguments. For one run it is taken off: with it, an update takes longer."""
    if len(jax.tree.leaves(arguments)[0]) > 1:
        return jax.vmap(function)(*arguments)
    result = function(*jax.tree.map(lambda leaf: leaf[0], arguments))
    return jax.tree.map(lambda leaf: leaf[None], result)


@partial(jax.jit, static_argnames=("setting",))
def begin(setting: Setting, keys_init: jax.Array, keys_env: jax.Array) -> Block:
    """Makes the state of a block before its first step, from keys `[R]` and `[R, E]`."""
    env, num_envs = setting.env, setting.num_envs

    def one(key_init: jax.Array, keys_env: jax.Array) -> Block:
        games, obs = jax.vmap(env.reset)(keys_env)
        return Block(
            learner.init(setting.network, setting.update, key_init),
            device_replay.empty(setting.replay_capacity, env.obs_shape, env.obs_dtype),
            games,
            obs,
            Counts(
                **{name: jnp.zeros((), jnp.int32) for name in ("episodes", "finished", "diverged_at")},
                **{name: jnp.zeros(()) for name in ("return_sum", "clipped_return_sum", "loss_sum")},
                **{name: jnp.zeros(num_envs) for name in ("score", "clipped_score")},
            ),
        )

    return _over_runs(one, keys_init, keys_env)


@partial(jax.jit, static_argnames=("setting",), donate_argnames=("block",))
def play(setting: Setting, block: Block, keys: Keys, moment: Moment, steps: Any) -> Block:
    """Takes `steps` steps of every environment of a block, with epsilon-greedy actions."""
    return _over_runs(lambda block, keys: _steps(setting, block, keys, moment, steps), block, keys)


@partial(jax.jit, static_argnames=("setting",), donate_argnames=("block",))
def learn(
    setting: Setting,
    block: Block,
    operators: Any,
    keys: Keys,
    moment: Moment,
    first_update: Any,
    updates: Any,
    steps: Any,
) -> Block:
    """Makes `updates` updates of every run of a block, each after `steps` steps of every environment."""
    env, num_envs = setting.env, setting.num_envs

    def one(block: Block, operator: Any, keys: Keys) -> Block:
        def update(number: jax.Array, block: Block) -> Block:
            now = moment._replace(agent_steps=moment.agent_steps + number * steps * num_envs)
            block = _steps(setting, block, keys, now, steps)
            done = now.agent_steps + steps * num_envs
            key = jax.random.fold_in(keys.replay, first_update + number)
            filled = jnp.minimum(done - moment.replay_from, setting.replay_capacity)
            batch = device_replay.draw(block.replay, key, filled, setting.batch_size, env.obs_shape, env.obs_dtype)
            state, metrics = learner.learn_step(block.learner, operator, batch, setting.network, setting.update)
            counts, lost = block.counts, ~jnp.isfinite(metrics.loss)
            counts = counts._replace(
                loss_sum=counts.loss_sum + metrics.loss,
                diverged_at=jnp.where((counts.diverged_at == 0) & lost, done, counts.diverged_at),
            )
            return block._replace(learner=state, counts=counts)

        return jax.lax.fori_loop(0, updates, update, block)

    return _over_runs(one, block, operators, keys)


def _steps(setting: Setting, block: Block, keys: Keys, moment: Moment, steps: Any) -> Block:
    """Takes `steps` steps of every environment of a run, and stores them."""
    env, num_envs = setting.env, setting.num_envs
    params = block.learner.params

    def step(number: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        replay, games, obs, counts = carry
        agent_steps = moment.agent_steps + number * num_envs
        key = jax.random.fold_in(keys.act, agent_steps // num_envs)
        actions = learner.act(setting.network, params, obs, key, moment.schedule.at(agent_steps))
        games, taken = jax.vmap(env.step)(games, actions, keys.env)
        slot = (agent_steps - moment.replay_from) % setting.replay_capacity
        replay = device_replay.write(replay, slot, obs, actions, taken, setting.update.gamma)
        return replay, games, taken.obs, _counted(counts, taken, setting.update.reward_clip)

    carry = (block.replay, block.games, block.obs, block.counts)
    return Block(block.learner, *jax.lax.fori_loop(0, steps, step, carry))


def _counted(counts: Counts, step: Step, clip: float | None) -> Counts:
    """Adds a step to the scores, and to the counts those of the games that it ended."""
    reward, ended = step.reward, step.game_ended
    score = counts.score + reward
    clipped = counts.clipped_score + (reward if clip is None else jnp.clip(reward, -clip, clip))
    games = ended.sum(dtype=jnp.int32)
    return counts._replace(
        episodes=counts.episodes + games,
        finished=counts.finished + games,
        return_sum=counts.return_sum + jnp.where(ended, score, 0.0).sum(),
        clipped_return_sum=counts.clipped_return_sum + jnp.where(ended, clipped, 0.0).sum(),
        score=jnp.where(ended, 0.0, score),
        clipped_score=jnp.where(ended, 0.0, clipped),
    )


def next_epoch(counts: Counts) -> Counts:
    """Returns the counts with those of an epoch at zero."""
    zero = {name: jnp.zeros_like(getattr(counts, name)) for name in _OF_AN_EPOCH}
    return counts._replace(**zero)


_OF_AN_EPOCH = ("finished", "return_sum", "clipped_return_sum", "loss_sum")


@partial(jax.jit, static_argnames=("env", "size"))
def minibatch(env: DeviceEnv, replay: DeviceReplay, lane: Any, key: jax.Array, filled: Any, size: int) -> Transition:
    """Draws a minibatch `[size]` for one run of a block, outside training."""
    return device_replay.draw(replay, key, filled, size, env.obs_shape, env.obs_dtype, of=(lane,))
