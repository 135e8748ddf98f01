"""Common ground of all device environments: their draws, their keys, and how one game follows another."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry2x32_p

from softbellman.envs import make_device
from softbellman.envs.device import DeviceGame, below, copy_keys, draw, threefry, uniform
from softbellman.envs.step import DeviceEnv


class Count(NamedTuple):
    number: jax.Array
    mark: jax.Array  # drawn at the start


class Counting:
    """Counts its steps, pays the action, and is over at three unless the mark is odd."""

    start_words, step_words = 1, 1

    def start(self, words):
        return Count(jnp.int32(0), below(words[0], 1000))

    def advance(self, play, action, words):
        number = play.number + 1
        over = (number == 3) & (play.mark % 2 == 0)
        return Count(number, play.mark), action.astype(jnp.float32), over

    def observe(self, play):
        return jnp.stack([play.number, play.mark])


class CountingGame(DeviceGame):
    def __init__(self, sticky=0.0, limit=None):
        self.sticky, self.limit = sticky, limit

    rules = Counting()

    @property
    def sticky_probability(self):
        return self.sticky

    @property
    def max_steps(self):
        return self.limit


def key_of(seed=0):
    return copy_keys(seed, training=True, num_envs=1)[0]


@partial(jax.jit, static_argnums=0)
def rollout(env, actions, key):
    state, first = env.reset(key)
    return first, jax.lax.scan(lambda state, action: env.step(state, action, key), state, actions)[1]


def test_the_generator_is_jaxs_own():
    rng = np.random.default_rng(0)
    words = jnp.asarray(rng.integers(2**32, size=(4, 257), dtype=np.uint32))
    ours = jax.jit(threefry)((words[0], words[1]), words[2], words[3])
    for mine, theirs in zip(ours, threefry2x32_p.bind(*words), strict=True):
        assert (np.asarray(mine) == np.asarray(theirs)).all()


def test_draws_are_uniform_and_within_range():
    words = jax.jit(draw, static_argnums=3)(key_of(), jnp.int32(0), jnp.int32(1), 20_000)
    numbers = np.asarray(uniform(words))
    assert numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.01
    counts = np.bincount(np.asarray(below(words, 8)), minlength=8)
    assert len(counts) == 8 and abs(counts / 20_000 - 1 / 8).max() < 0.01
    limits = jnp.arange(1, 600)
    assert (np.asarray(below(jnp.full(limits.shape, 2**32 - 1, jnp.uint32), limits)) == limits - 1).all()


def test_every_game_and_step_of_every_copy_has_draws_of_its_own():
    games, times = (axis.ravel() for axis in np.meshgrid(np.arange(4), np.arange(5)))
    words = jax.jit(jax.vmap(jax.vmap(partial(draw, count=2), (None, 0, 0)), (0, None, None)))
    found = np.asarray(words(copy_keys(3, training=True, num_envs=3), games, times)).reshape(-1, 2)
    assert len(np.unique(found, axis=0)) == len(np.unique(found)) / 2 == 3 * 4 * 5


def test_l5_keys_of_runs_copies_and_streams_never_meet():
    keys = {
        tuple(data)
        for seed in (0, 1, 2, 2**40)
        for training in (True, False)
        for data in np.asarray(jax.random.key_data(copy_keys(seed, training=training, num_envs=3))).tolist()
    }
    assert len(keys) == 4 * 2 * 3
    one, three = (np.asarray(jax.random.key_data(copy_keys(5, training=True, num_envs=n))) for n in (1, 3))
    assert (three[:1] == one).all()  # a copy more changes nothing for the others


def test_a_game_that_ends_is_followed_by_the_next():
    """`next_obs` is the true successor, `obs` the first observation of a game with a mark of its own."""
    first, step = rollout(CountingGame(limit=5), np.ones(200, np.int32), key_of())
    marks, number = [int(first[1])], 0
    for i in range(200):
        number += 1
        assert step.next_obs[i].tolist() == [number, marks[-1]]
        over, cut = number == 3 and marks[-1] % 2 == 0, number == 5
        assert bool(step.terminated[i]) == bool(step.training_end[i]) == over
        assert bool(step.truncated[i]) == cut
        assert bool(step.game_ended[i]) == (over or cut)
        if over or cut:
            marks.append(int(step.obs[i, 1]))
            number = 0
        assert step.obs[i].tolist() == [number, marks[-1]]
    assert {mark % 2 for mark in marks} == {0, 1}  # both kinds of end were seen
    assert len(set(marks)) > len(marks) / 2


def test_a_game_over_at_its_limit_is_terminated_alone():
    env = CountingGame(limit=3)
    games = (rollout(env, np.ones(3, np.int32), key) for key in copy_keys(0, training=True, num_envs=9))
    step = next(step for first, step in games if int(first[1]) % 2 == 0)
    assert step.terminated.tolist() == [False, False, True]
    assert not step.truncated.any()


def test_a_game_is_a_function_of_its_key_and_index_whenever_it_is_begun():
    env, key = CountingGame(limit=5), key_of(7)
    _, step = rollout(env, np.ones(40, np.int32), key)
    following = [obs[1] for obs, ended in zip(step.obs.tolist(), step.game_ended.tolist(), strict=True) if ended]
    begin = jax.jit(env.begin)
    alone = [int(begin(key, game, 0)[1][1]) for game in range(1, len(following) + 1)]
    assert following == alone and len(following) > 6


def test_sticky_actions_repeat_what_was_done_last_across_games():
    env, key = CountingGame(sticky=0.3, limit=2), key_of(1)
    chosen = np.random.default_rng(0).integers(6, size=4_000)
    _, step = rollout(env, chosen.astype(np.int32), key)
    done = np.asarray(step.reward).astype(int)
    before = np.concatenate([[0], done[:-1]])
    assert ((done == chosen) | (done == before)).all()
    stuck = done != chosen
    assert abs(stuck[chosen != before].mean() - 0.3) < 0.03
    begins = np.concatenate([[False], np.asarray(step.game_ended)[:-1]])
    assert stuck[begins].sum() > 100  # the action kept is that of the game before


@pytest.mark.parametrize("name", ["minatar/breakout", "minatar/seaquest", "mdp/forest"])
def test_a_device_environment_is_a_static_argument_without_branches(name):
    env: DeviceEnv = make_device(name)
    assert make_device(name) == env and hash(make_device(name)) == hash(env)
    state, obs = jax.eval_shape(env.reset, key_of())
    assert (obs.shape, obs.dtype) == (env.obs_shape, env.obs_dtype)
    program = str(jax.make_jaxpr(env.step)(state, jnp.int32(0), key_of()))
    assert "cond[" not in program and "while[" not in program and "scatter" not in program
