"""The replay on the device: what goes in comes out, uniformly, and nothing else."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from softbellman.envs.step import Step
from softbellman.learning import device_replay
from softbellman.learning.parts.sampling import Uniform

RUNS, ENVS, CAPACITY, GAMMA = 2, 2, 10, 0.9


def step_number(moment, *, dtype=np.float32):
    """A step of every environment whose arrays all tell which one it was."""
    number = 100 * np.arange(RUNS)[:, None] + 10 * moment + np.arange(ENVS)[None]
    obs = np.stack([number, -number], axis=-1).astype(dtype)
    ended = number % 3 == 0
    step = Step(obs, obs + 1, number.astype(np.float32), ended, ~ended & False, ended, ended)
    return jnp.asarray(obs), jnp.asarray(number.astype(np.int32)), jax.tree.map(jnp.asarray, step)


def filled_by(steps):
    one = device_replay.empty(CAPACITY, (2,), np.float32)
    replay = jax.tree.map(lambda array: jnp.stack([array] * RUNS), one)
    for moment in range(steps):
        write = partial(_write, jnp.int32(moment * ENVS % CAPACITY))
        replay = jax.vmap(write)(replay, *step_number(moment))
    return replay


def _write(slot, replay, obs, action, step):
    return device_replay.write(replay, slot, obs, action, step, GAMMA)


def one_of(replay, run):
    return jax.tree.map(lambda array: array[run], replay)


def drawn(replay, filled, batch=1_000):
    keys = jnp.stack([jax.random.key(run) for run in range(RUNS)])
    words = jax.vmap(lambda key: jax.random.bits(key, (batch,)))(keys)
    return jax.vmap(lambda *given: at_words(*given, filled))(replay, words)


def at_words(replay, words, filled, **more):
    numbers, _ = Uniform().draw(None, words, jnp.int32(filled), jnp)
    return device_replay.gather(replay, numbers.astype(jnp.int32), (2,), np.float32, **more)


@pytest.mark.parametrize("steps", [1, 3, 5, 7, 23])
def test_l23_what_is_drawn_was_stored_and_is_not_too_old(steps):
    batch = drawn(filled_by(steps), min(steps * ENVS, CAPACITY))
    oldest = max(0, steps - CAPACITY // ENVS)
    for run in range(RUNS):
        stored = {100 * run + 10 * moment + env for moment in range(oldest, steps) for env in range(ENVS)}
        assert set(np.asarray(batch.action[run]).tolist()) == stored
    number = np.asarray(batch.action)
    np.testing.assert_array_equal(batch.obs[..., 0], number)
    np.testing.assert_array_equal(batch.next_obs[..., 0], number + 1)
    np.testing.assert_array_equal(batch.reward, number)
    np.testing.assert_array_equal(batch.discount, np.where(number % 3 == 0, 0.0, np.float32(GAMMA)))


def test_draws_are_uniform_and_a_runs_own():
    batch = drawn(filled_by(5), CAPACITY, batch=20_000)
    counts = [np.unique(np.asarray(batch.action[run]), return_counts=True)[1] for run in range(RUNS)]
    assert all(stats.chisquare(count).pvalue > 0.001 for count in counts)
    assert not np.array_equal(np.asarray(batch.action[0]), np.asarray(batch.action[1]) - 100)


def test_one_of_several_runs_draws_as_if_it_were_alone():
    replay, words = filled_by(5), jax.random.bits(jax.random.key(7), (50,))
    for run in range(RUNS):
        batch = at_words(replay, words, 6, of=(jnp.int32(run),))
        alone = at_words(one_of(replay, run), words, 6)
        jax.tree.map(np.testing.assert_array_equal, batch, alone)


@pytest.mark.parametrize("shape", [(10, 10, 4), (10, 10, 7), (3,)])
def test_bits_are_packed_and_come_back(shape):
    obs = np.random.default_rng(0).random((2, 5, *shape)) < 0.3
    packed = device_replay.pack(jnp.asarray(obs), len(shape))
    assert packed.dtype == jnp.uint8 and packed.shape == (2, 5, -(-np.prod(shape) // 8))
    np.testing.assert_array_equal(device_replay.unpack(packed, shape, bool), obs)


@pytest.mark.parametrize(("shape", "dtype"), [((10, 10, 4), bool), ((7,), np.float32)])
def test_the_bytes_said_are_the_bytes_there(shape, dtype):
    replay = device_replay.empty(100, shape, dtype)
    assert sum(array.nbytes for array in jax.tree.leaves(replay)) == device_replay.bytes_needed(100, shape, dtype)
