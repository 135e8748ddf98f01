"""Our games of MinAtar beside the reference package's, from the same draws: every observation, reward and end.

No state is carried over: both begin from the same draws and get the same ones at each step, so that whatever differs
once is seen from then on. Games that last forever reach what no chance policy would: all slots taken, the last ramp,
no oxygen left.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman.envs import device, make_device
from softbellman.envs.device import copy_keys
from softbellman.envs.minatar import GAMES, MinAtarProtocol
from softbellman.envs.minatar.board import LEFT, NONE, RIGHT, UP

pytest.importorskip("minatar")
from .reference import Reference

WITHOUT_END = [game for game in GAMES if game != "breakout"]  # its ball would be out
PERSISTENCE = 0.6  # chance that a policy goes on with what it does, so that it gets somewhere


def actions_of(seed, steps):
    rng = np.random.default_rng(seed)
    chosen = rng.integers(6, size=steps)
    goes_on = rng.random(steps) < PERSISTENCE
    for i in np.flatnonzero(goes_on[1:]) + 1:
        chosen[i] = chosen[i - 1]
    return chosen.astype(np.int32)


def skilled(game, state, action):
    """Action 0 becomes what a player would do, where chance alone would see little of the game."""
    if game == "breakout":
        better = jnp.where(state.ball_x < state.paddle, LEFT, jnp.where(state.ball_x > state.paddle, RIGHT, NONE))
        return jnp.where(action < 5, better, action)
    return jnp.where(action < 5, UP, action) if game == "freeway" else action


@partial(jax.jit, static_argnums=0)
def play(env, key, actions):
    """A trajectory under the protocol, and the words that it was played from."""

    def one(state, action):
        words = device.draw(key, state.game, state.time + 1, 1 + env.rules.step_words)
        first = device.draw(key, state.game + 1, jnp.int32(0), env.rules.start_words)
        action = skilled(env.game, state.play, action)
        after, step = env.step(state, action, key)
        return after, (step, words, first, action)

    state, obs = env.reset(key)
    return obs, jax.lax.scan(one, state, actions)[1]


@partial(jax.jit, static_argnums=0)
def play_on(env, key, actions):
    """A trajectory that no end of the game ends."""
    rules = env.rules

    def one(state, number_and_action):
        number, action = number_and_action
        words = device.draw(key, jnp.int32(0), number, rules.step_words)
        action = skilled(env.game, state, action)
        state, reward, terminated = rules.advance(state, action, words)
        return state, (state, rules.observe(state), reward, terminated, words, action)

    state = rules.start(device.draw(key, jnp.int32(0), jnp.int32(0), rules.start_words))
    return jax.lax.scan(one, state, (jnp.arange(1, len(actions) + 1), actions))[1]


def compare_games(game, seed, steps):
    env = make_device(f"minatar/{game}")
    key = copy_keys(seed, training=True, num_envs=1)[0]
    first_obs, played = jax.tree.map(np.asarray, play(env, key, actions_of(seed, steps)))
    step, words, next_words, actions = played
    reference = Reference(game)
    first_words = device.draw(key, jnp.int32(0), jnp.int32(0), env.rules.start_words)
    assert (first_obs == reference.reset(np.asarray(first_words))).all()
    games = 0
    for i, action in enumerate(actions.tolist()):
        state, reward, terminal = reference.step(action, words[i])
        assert (state == step.next_obs[i]).all(), f"step {i}"
        assert (reward, terminal) == (step.reward[i], step.terminated[i]), f"step {i}"
        if terminal:
            games += 1
            state = reference.reset(next_words[i])
        assert (state == step.obs[i]).all(), f"step {i}"
        assert step.game_ended[i] == terminal and not step.truncated[i]
    return games, step.reward


def compare_without_end(game, seed, steps, ramping=True):
    env = make_device(f"minatar/{game}", MinAtarProtocol(ramping=ramping))
    key = copy_keys(seed, training=True, num_envs=1)[0]
    states, obs, rewards, ends, words, actions = jax.tree.map(np.asarray, play_on(env, key, actions_of(seed, steps)))
    reference = Reference(game, sticky_probability=0.0, ramping=ramping)
    reference.reset(np.asarray(device.draw(key, jnp.int32(0), jnp.int32(0), env.rules.start_words)))
    for i, action in enumerate(actions.tolist()):
        state, reward, terminal = reference.step(action, np.append(np.uint32(0), words[i]))
        assert (state == obs[i]).all(), f"step {i}"
        assert (reward, terminal) == (rewards[i], ends[i]), f"step {i}"
        reference.survive()
    return states, rewards


@pytest.mark.parametrize("game", GAMES)
def test_games_are_those_of_the_reference_under_the_whole_protocol(game):
    """Sticky actions too, with the last action kept from game to game, and freeway's end on step 2,501."""
    games, rewards = compare_games(game, seed=1, steps=2_600)
    assert games >= {"breakout": 3, "freeway": 1}.get(game, 20)
    assert rewards.sum() >= {"breakout": 60, "seaquest": 3}.get(game, 10)


@pytest.mark.parametrize("game", WITHOUT_END)
def test_games_without_end_are_those_of_the_reference(game):
    states, rewards = compare_without_end(game, seed=2, steps=4_000)
    if game == "asterix":
        assert states.present.all(axis=1).mean() > 0.1  # no row is free for what is due
        assert states.spawn_interval[-1] == states.move_interval[-1] == 1
    elif game == "seaquest":
        assert states.oxygen.min() < 0 and states.ramp_index[-1] > 3
        assert rewards.sum() > 30
        assert not any(slots.present[:, -1].any() for slots in (states.enemies, states.divers, states.bullets))
    elif game == "space_invaders":
        assert states.move_interval[-1] < 12 and rewards.sum() > 24


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("game", GAMES)
def test_long_games_are_those_of_the_reference(game, seed):
    compare_games(game, 10 + seed, 20_000)
    for ramping in (True, False) if game in WITHOUT_END else ():
        compare_without_end(game, 20 + seed, 20_000, ramping)
