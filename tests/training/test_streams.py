"""Random streams: each seed, role and counter has its own, and nothing else matters."""

import itertools
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from softbellman.training import streams
from softbellman.training.streams import Role

SEEDS = (0, 1, 2, 2**31, 2**32 - 1)


def test_l5_every_seed_and_role_has_a_key_of_its_own():
    keys = [tuple(jax.random.key_data(streams.key(seed, role)).tolist()) for seed in SEEDS for role in Role]
    assert len(set(keys)) == len(SEEDS) * len(Role)
    assert keys[0] == tuple(jax.random.key_data(streams.key(0, Role.INIT)).tolist())


def words_of(seed, role, counter, size=3):
    return np.asarray(streams.words(jax.random.fold_in(streams.key(seed, role), counter), size))


def test_l5_every_seed_role_and_counter_has_draws_of_its_own():
    counters = (0, 1, 2, 10**9, 2**32 - 1)
    draws = {
        words_of(seed, role, counter).tobytes() for seed, role, counter in itertools.product(SEEDS, Role, counters)
    }
    assert len(draws) == len(SEEDS) * len(Role) * len(counters)
    np.testing.assert_array_equal(words_of(3, Role.REPLAY, 7), words_of(3, Role.REPLAY, 7))


def test_neighbouring_counters_share_no_words():
    drawn = [words_of(0, Role.REPLAY, counter, 50) for counter in range(200)]
    assert len({tuple(pair) for own in drawn for pair in itertools.pairwise(own.tolist())}) == 200 * 49


@pytest.mark.parametrize("counter", [0, 1, streams.SPAN - 1, streams.SPAN, 5 * streams.SPAN + 7, 3])
def test_what_is_drawn_ahead_is_what_each_use_draws_alone(counter):
    seeds = (0, 3, 2**32 - 1)
    ahead = streams.Ahead(streams.words, (32,), streams.keys(seeds, Role.REPLAY))
    np.testing.assert_array_equal(ahead.at(counter), [words_of(seed, Role.REPLAY, counter, 32) for seed in seeds])


def test_derived_seeds_differ_and_suit_every_environment():
    seeds = [streams.derived_seed(seed, role, counter) for seed in (0, 1) for role in Role for counter in range(200)]
    assert len(set(seeds)) == len(seeds)
    assert all(type(seed) is int and 0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize("seed", [-1, 2**32, 2**32 + 5])
def test_l5_a_seed_that_jax_would_cut_is_refused(seed):
    """JAX takes 32 bits of a seed and drops the rest: 2^32 + 5 would be trained as 5."""
    with pytest.raises(ValueError, match=f"seed \\({seed}\\) must be in 0 .. 4294967295"):
        streams.key(seed, Role.INIT)


CHILD = """
import numpy as np
from softbellman import operators as ops
from softbellman.learning.settings import LearnerSettings
from softbellman.learning.networks import mlp
from softbellman.learning.recipe import Recipe
from softbellman.training.host_stage import host_loop
from softbellman.training.lanes import Run
from softbellman.training.settings import LoopSettings
from softbellman.envs.step import Step

class Env:
    num_envs, num_actions, obs_shape, obs_dtype, stack, frames_per_step = 1, 2, (2,), np.dtype("float32"), None, 1
    legal = None
    def __init__(self):
        self.obs = np.zeros((1, 2), np.float32)
    def reset(self):
        return self.obs.copy()
    def step(self, actions):
        self.obs[0, int(actions[0])] += 0.1
        no = np.zeros(1, bool)
        return Step(self.obs.copy(), self.obs.copy(), self.obs.sum(1), no, no, no, no)

learner = LearnerSettings(replay_start_steps=32, replay_capacity=100, epsilon_decay_steps=10, target_period_updates=2)
loop = LoopSettings(steps=60, epoch_steps=60)
recipe = Recipe(mlp((2,), 2, ()), learner.update)
group = host_loop([Run(ops.softmax(5.0), 3)], lambda *_: Env(), lambda *_: recipe, learner, loop)
group.advance(60)
print(group.stages[0].obs[0].tobytes().hex(), np.asarray(group.params(0)["q"]["w"]).tobytes().hex(), group.updates)
"""


def test_l5_the_hash_seed_of_python_changes_nothing():
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD], env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True
        )
        for seed in ("0", "12345")
    ]
    outputs = [child.communicate()[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert outputs[0] == outputs[1] and outputs[0].strip().endswith(" 7")
