"""Compiled program of the device stage: its state, and how that is moved on.

It is written for one run, as two nested loops, updates over environment steps, and mapped over the runs of a block; it
has no condition, of which both sides would be computed then. The number of turns of each loop is an argument, so that
one compilation serves all chunks.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from softbellman.envs.step import DeviceEnv
from softbellman.learning import device_replay, learner
from softbellman.learning.device_replay import DeviceReplay
from softbellman.learning.learner import LearnerState, Schedule
from softbellman.learning.parts.sampling import Uniform
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.training import counts, streams
from softbellman.training.counts import Counts
from softbellman.training.lanes import over_lanes


class World(NamedTuple):
    """All of a run's state but the learner's, with `E` environments; a block's has an axis of lanes in front."""

    replay: DeviceReplay
    games: Any  # the environments' states, [E, ...]
    obs: jax.Array  # [E, *obs_shape], acted on next
    counts: Counts
    memory: Any = None  # of sampling


class Keys(NamedTuple):
    """The keys of a run, never consumed: a counter goes in with each use."""

    act: jax.Array
    replay: jax.Array
    env: jax.Array  # [E], see `envs.device.copy_keys`


class Setting(NamedTuple):
    """Static arguments of the compiled program."""

    env: DeviceEnv
    recipe: Recipe
    replay_capacity: int
    batch_size: int
    num_envs: int
    width: int


class Moment(NamedTuple):
    """Where a program begins: agent steps so far, when the replay was empty, and the schedule of exploration."""

    agent_steps: Any
    replay_from: Any
    schedule: Schedule


@partial(jax.jit, static_argnames=("setting",))
def begin(setting: Setting, keys: Keys) -> World:
    """Makes the state of a block before its first step."""
    env = setting.env

    def one(keys: Keys) -> World:
        games, obs = jax.vmap(env.reset)(keys.env)
        capacity, recipe = setting.replay_capacity, setting.recipe
        replay = device_replay.empty(capacity, env.obs_shape, env.obs_dtype, recipe.reach)
        memory = recipe.sampling.memory(capacity, jnp)
        own = counts.zero(setting.num_envs, jnp, recipe.controller.needs_returns)
        return World(replay, games, obs, own, memory)

    return over_lanes(one, setting.width)(keys)


@partial(jax.jit, static_argnames=("setting",), donate_argnames=("world",))
def play(setting: Setting, world: World, params: Any, keys: Keys, moment: Moment, steps: Any) -> World:
    """Takes `steps` steps of every environment of a block, with epsilon-greedy actions."""

    def one(world: World, params: Any, keys: Keys) -> World:
        return _steps(setting, world, params, keys, moment, steps)

    return over_lanes(one, setting.width)(world, params, keys)


@partial(jax.jit, static_argnames=("setting",), donate_argnames=("state", "world"))
def learn(
    setting: Setting,
    state: LearnerState,
    world: World,
    operators: Any,
    keys: Keys,
    moment: Moment,
    first_update: Any,
    updates: Any,
    steps: Any,
) -> tuple[LearnerState, World]:
    """Makes `updates` updates of every run of a block, each after `steps` steps of every environment."""
    num_envs, capacity, sampling = setting.num_envs, setting.replay_capacity, setting.recipe.sampling

    def one(state: LearnerState, world: World, operator: Any, keys: Keys) -> tuple[LearnerState, World]:
        def update(number: jax.Array, carry: tuple[LearnerState, World]) -> tuple[LearnerState, World]:
            state, world = carry
            now = moment._replace(agent_steps=moment.agent_steps + number * steps * num_envs)
            world = _steps(setting, world, state.params, keys, now, steps)
            done = now.agent_steps + steps * num_envs
            key = jax.random.fold_in(keys.replay, first_update + number)
            written = done - moment.replay_from
            filled = jnp.minimum(written, capacity)
            words = streams.words(key, setting.batch_size)
            memory = sampling.written(world.memory, written, capacity)
            numbers, density = sampling.draw(memory, words, filled, jnp)
            batch = _gathered(setting, world.replay, numbers.astype(jnp.int32), written)._replace(density=density)
            returns = counts.summed_returns(world.counts)
            state, metrics = learner.learn_step(state, operator, batch, setting.recipe, returns)
            memory = sampling.learned(memory, numbers, metrics.priority, jnp)
            own = counts.with_loss(world.counts, metrics.loss, done, jnp)
            return state, world._replace(counts=own, memory=memory)

        return jax.lax.fori_loop(0, updates, update, (state, world))

    return over_lanes(one, setting.width)(state, world, operators, keys)


def _steps(setting: Setting, world: World, params: Any, keys: Keys, moment: Moment, steps: Any) -> World:
    """Takes `steps` steps of every environment of a run, and stores them."""
    env, num_envs, update = setting.env, setting.num_envs, setting.recipe.update

    def step(number: jax.Array, world: World) -> World:
        agent_steps = moment.agent_steps + number * num_envs
        key = jax.random.fold_in(keys.act, agent_steps // num_envs)
        actions = learner.act(setting.recipe, params, world.obs, key, moment.schedule.at(agent_steps))
        games, taken = jax.vmap(env.step)(world.games, actions, keys.env)
        slot = (agent_steps - moment.replay_from) % setting.replay_capacity
        replay = device_replay.write(world.replay, slot, world.obs, actions, taken, update.gamma)
        own = counts.with_step(world.counts, taken, update, jnp)
        own = counts.with_returns(own, taken, update, jnp)
        own = counts.with_games(own, taken.game_ended, jnp)
        return world._replace(replay=replay, games=games, obs=taken.obs, counts=own)

    return jax.lax.fori_loop(0, steps, step, world)


@partial(jax.jit, static_argnames=("setting",))
def minibatch(
    setting: Setting, replay: DeviceReplay, of: tuple[Any, ...], words: jax.Array, written: Any
) -> Transition:
    """Draws a minibatch for one run of a block, uniformly, outside training; `of` is its lane, where there are any."""
    numbers, _ = Uniform().draw(None, words, jnp.minimum(written, setting.replay_capacity), jnp)
    return _gathered(setting, replay, numbers.astype(jnp.int32), written, of)


def _gathered(
    setting: Setting, replay: DeviceReplay, slots: jax.Array, written: Any, of: tuple[Any, ...] = ()
) -> Transition:
    """Gathers the transitions in slots."""
    env, reach = setting.env, setting.recipe.reach
    more = {"of": of, "reach": reach, "num_envs": setting.num_envs, "written": written}
    return device_replay.gather(replay, slots, env.obs_shape, env.obs_dtype, **more)
