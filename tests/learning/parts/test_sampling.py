"""Sampling: which transitions are learned from, how much each counts, and what is kept in mind of them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softbellman.learning.parts.sampling import Prioritised, Uniform
from softbellman.learning.parts.table import part
from softbellman.learning.sum_tree import WIDTH

PRIORITISED = Prioritised()
written_in_jax = jax.jit(PRIORITISED.written, static_argnames=("capacity",))
drawn_in_jax = jax.jit(partial(PRIORITISED.draw, xp=jnp))
learned_in_jax = jax.jit(partial(PRIORITISED.learned, xp=jnp))


def words(seed, size=32):
    return np.random.default_rng(seed).integers(2**32, size=size, dtype=np.uint32)


def leaves(memory):
    return np.asarray(memory.tree.leaves).reshape(-1)


def after(moves, capacity=1_000):
    return PRIORITISED.moved(PRIORITISED.memory(capacity, np), moves)


def test_the_defaults_are_the_papers():
    assert part("sampling", "prioritised") == Prioritised(0.6, 0.4, 1.0, 100_000)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("prioritised(1.5)", r"alpha \(1.5\) must be in 0 .. 1"),
        ("prioritised(-0.1)", r"alpha \(-0.1\) must be in 0 .. 1"),
        ("prioritised(nan)", "alpha"),
        ("prioritised(0.6, 2)", r"beta_start \(2\) must be in 0 .. 1"),
        ("prioritised(0.6, 0.4, -1)", r"beta_end \(-1\) must be in 0 .. 1"),
        ("prioritised(0.6, 0.4, 1, 0)", r"updates \(0\)"),
        ("prioritised(0.6, 0.4, 1, 1.5)", r"updates \(1.5\)"),
        ("prioritized", "did you mean|there is no"),
        ("uniform(3)", "uniform takes no argument"),
    ],
)
def test_what_cannot_be_is_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        part("sampling", spec)


def test_uniform_draws_as_the_replay_does():
    numbers, density = Uniform().draw(None, words(0), 7, np)
    np.testing.assert_array_equal(numbers, words(0) % np.uint32(7))
    assert density is None and Uniform().weights(None, 3) is None and Uniform().priority(jnp.ones(3)) is None
    assert Uniform().memory(10, np) is None and Uniform().bytes_needed(10) == 0


def test_one_number_is_drawn_from_each_stratum():
    memory = after([-1] * 640)
    for seed in range(20):
        numbers, density = PRIORITISED.draw(memory, words(seed), 640, np)
        np.testing.assert_array_equal(numbers // 20, np.arange(32))
        np.testing.assert_allclose(density, 1.0, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 32, 50])
def test_the_largest_and_smallest_words_stay_within(size):
    memory = after([-1] * 3)
    for word in (0, 2**32 - 1):
        numbers, _ = PRIORITISED.draw(memory, np.full(size, word, np.uint32), 3, np)
        assert ((numbers >= 0) & (numbers < 3)).all()


def test_new_transitions_get_the_largest_priority_so_far():
    memory = after([-1, -1])
    assert leaves(memory)[:3].tolist() == [1.0, 1.0, 0.0]
    memory = PRIORITISED.learned(memory, np.int32([0]), np.float32([0.25]), np)
    memory = PRIORITISED.moved(memory, [-1])
    assert leaves(memory)[:3].tolist() == [0.25, 1.0, 1.0]
    memory = PRIORITISED.learned(memory, np.int32([1, 0]), np.float32([8.0, 2.0]), np)
    memory = PRIORITISED.learned(memory, np.int32([1]), np.float32([0.5]), np)
    memory = PRIORITISED.moved(memory, [-1])
    assert leaves(memory)[:4].tolist() == [2.0, 0.5, 1.0, 8.0]


def test_the_last_takes_the_place_of_one_that_went():
    memory = after([-1] * 4)
    memory = PRIORITISED.learned(memory, np.int32([0, 1, 2, 3]), np.float32([1.0, 2.0, 3.0, 4.0]), np)
    memory = PRIORITISED.moved(memory, [1])
    assert leaves(memory)[:4].tolist() == [1.0, 4.0, 3.0, 0.0]
    memory = PRIORITISED.moved(memory, [2])  # the last itself
    assert leaves(memory)[:4].tolist() == [1.0, 4.0, 0.0, 0.0]
    assert int(memory.known) == 2 and memory.tree.sums[0] == 5.0


def test_the_rows_of_both_places_are_summed_anew():
    memory = PRIORITISED.moved(after([-1] * (WIDTH + 3)), [1])
    assert memory.tree.sums.tolist()[:2] == [WIDTH, 2.0]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([3, 100, WIDTH, WIDTH + 1, 3 * WIDTH - 5]), st.data())
def test_a_ring_on_the_device_and_one_on_the_host_are_kept_in_mind_alike(seed, capacity, data):
    """Where the newest transition takes the number of the oldest."""
    rng, written = np.random.default_rng(seed), 0
    host, device = PRIORITISED.memory(capacity + 7, np), PRIORITISED.memory(capacity, jnp)
    for new in data.draw(st.lists(st.integers(1, 2 * capacity), min_size=1, max_size=6)):
        moves = []
        for number in range(written, written + new):
            moves += [-1] if number < capacity else [-1, number % capacity]
        written += new
        stored = min(written, capacity)
        host, device = PRIORITISED.moved(host, moves), written_in_jax(device, jnp.int32(written), capacity)
        np.testing.assert_array_equal(leaves(host)[:capacity], leaves(device)[:capacity])
        numbers, density = PRIORITISED.draw(host, words(seed), stored, np)
        others, same = drawn_in_jax(device, words(seed), jnp.int32(stored))
        np.testing.assert_array_equal(numbers, others)
        np.testing.assert_array_equal(density, same)
        priorities = rng.gamma(0.5, size=32).astype(np.float32)
        host = PRIORITISED.learned(host, numbers, priorities, np)
        device = learned_in_jax(device, others, jnp.asarray(priorities))
        assert float(host.largest) == float(device.largest)
        rows = len(device.tree.sums)
        np.testing.assert_array_equal(host.tree.sums[:rows], np.asarray(device.tree.sums))


def test_priorities_and_weights_are_those_of_the_paper():
    sampling = Prioritised(0.5, 0.4, 1.0, 10)
    np.testing.assert_allclose(sampling.priority(jnp.array([-4.0, 0.0, 9.0])), [2.0, 1e-3, 3.0], rtol=1e-5)
    density = jnp.array([0.25, 1.0, 4.0])
    for updates, beta in ((0, 0.4), (5, 0.7), (10, 1.0), (500, 1.0)):
        weights = (1 / np.asarray(density)) ** beta
        np.testing.assert_allclose(sampling.weights(density, jnp.int32(updates)), weights / weights.max(), rtol=1e-5)
    assert sampling.weights(None, 0) is None


def test_densities_are_probabilities_times_the_number_of_transitions():
    memory = after([-1] * 500)
    rng = np.random.default_rng(0)
    numbers = np.arange(500, dtype=np.int32)
    memory = PRIORITISED.learned(memory, numbers, rng.gamma(0.5, size=500).astype(np.float32), np)
    drawn, density = PRIORITISED.draw(memory, words(0), 500, np)
    priorities = leaves(memory)[:500].astype(np.float64)
    np.testing.assert_allclose(density, priorities[drawn] / priorities.sum() * 500, rtol=1e-5)


def test_weighted_draws_have_the_mean_of_uniform_ones():
    """At beta 1, each transition counts as often as it would without priorities."""
    memory = after([-1] * 100)
    rng = np.random.default_rng(2)
    memory = PRIORITISED.learned(
        memory, np.arange(100, dtype=np.int32), rng.gamma(1.0, size=100).astype(np.float32) + 0.1, np
    )
    values, total, count = rng.standard_normal(100), 0.0, 2_000
    for seed in range(count):
        numbers, density = PRIORITISED.draw(memory, words(seed), 100, np)
        total += (values[numbers] / density).mean()
    np.testing.assert_allclose(total / count, values.mean(), atol=0.01)


def test_the_bytes_said_are_the_bytes_there():
    there = sum(np.asarray(array).nbytes for array in jax.tree.leaves(PRIORITISED.memory(777, np)))
    assert PRIORITISED.bytes_needed(777) == there
