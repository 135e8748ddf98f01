"""The sum tree: equal bits in NumPy and in JAX, the right probabilities, and nothing drawn that has none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from softbellman.learning import sum_tree
from softbellman.learning.sum_tree import WIDTH, SumTree

draw_in_jax = jax.jit(lambda tree, shares: sum_tree.draw(tree, shares, jnp))
put_in_jax = jax.jit(lambda tree, numbers, priorities: sum_tree.put(tree, numbers, priorities, jnp))


def tree_of(priorities):
    """A tree that holds these, in NumPy."""
    priorities = np.asarray(priorities, np.float32)
    tree = sum_tree.empty(len(priorities), np)
    tree.leaves.reshape(-1)[: len(priorities)] = priorities
    return sum_tree.with_rows_summed(tree, np.arange(len(tree.leaves)), np)


def in_jax(tree):
    return SumTree(*map(jnp.asarray, tree))


def assert_same(ours, theirs):
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def awkward(rng, size):
    """Priorities over many magnitudes, many of them 0, in runs."""
    priorities = np.exp(rng.normal(0, rng.uniform(0, 12), size))
    priorities[rng.random(size) < rng.uniform(0, 0.9)] = 0.0
    start = rng.integers(size)
    priorities[start : start + rng.integers(size)] = 0.0
    priorities[rng.integers(size)] = 1.0
    return priorities.astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, WIDTH, WIDTH + 1, 5 * WIDTH - 1, 40_000]))
def test_both_libraries_have_equal_bits(seed, size):
    rng = np.random.default_rng(seed)
    tree = tree_of(awkward(rng, size))
    other = in_jax(tree)
    for _ in range(3):
        numbers = rng.integers(size, size=32).astype(np.int32)
        priorities = awkward(rng, 32)
        tree, other = sum_tree.put(tree, numbers, priorities, np), put_in_jax(other, numbers, priorities)
        assert_same(tree, other)
        shares = rng.random(32, np.float32)
        assert_same(sum_tree.draw(tree, shares, np), draw_in_jax(other, shares))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, WIDTH, WIDTH + 1, 5 * WIDTH - 1, 3_000]))
def test_nothing_of_priority_zero_is_drawn(seed, size):
    rng = np.random.default_rng(seed)
    priorities = awkward(rng, size)
    shares = np.concatenate([rng.random(200, np.float32), np.float32([0.0, 1e-45, np.nextafter(1, 0), 1.0])])
    numbers, drawn, total = sum_tree.draw(tree_of(priorities), shares, np)
    assert (numbers < size).all() and (priorities[numbers] > 0).all()
    np.testing.assert_array_equal(drawn, priorities[numbers])
    np.testing.assert_allclose(total, priorities.sum(dtype=np.float64), rtol=1e-5)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([3, WIDTH + 1, 3_000]))
def test_a_share_leads_to_where_the_sum_of_all_before_it_is_passed(seed, size):
    """But for what rounding moves a threshold by."""
    rng = np.random.default_rng(seed)
    priorities = rng.gamma(0.5, size=size).astype(np.float32)
    shares = rng.random(100, np.float32)
    numbers, _, _ = sum_tree.draw(tree_of(priorities), shares, np)
    ends = np.cumsum(priorities, dtype=np.float64) / priorities.sum(dtype=np.float64)
    begins = np.concatenate([[0.0], ends[:-1]])
    assert (shares >= begins[numbers] - 1e-5).all() and (shares <= ends[numbers] + 1e-5).all()


def test_numbers_are_drawn_in_proportion_to_their_priorities():
    rng = np.random.default_rng(0)
    priorities = np.zeros(600, np.float32)
    priorities[::7] = rng.uniform(0.5, 3.0, 86)
    numbers, _, _ = sum_tree.draw(tree_of(priorities), rng.random(50_000, np.float32), np)
    drawn = np.flatnonzero(priorities)
    expected = priorities[drawn] / priorities[drawn].sum(dtype=np.float64) * 50_000
    assert stats.chisquare(np.bincount(numbers, minlength=600)[drawn], expected).pvalue > 0.001


def test_sums_do_not_depend_on_the_size_of_a_tree():
    """So that a replay with a few more slots draws the same."""
    rng = np.random.default_rng(1)
    priorities = np.exp(rng.normal(0, 3, 700)).astype(np.float32)
    small, large = tree_of(priorities), tree_of(np.concatenate([priorities, np.zeros(9_000, np.float32)]))
    shares = rng.random(500, np.float32)
    assert_same(sum_tree.draw(small, shares, np), sum_tree.draw(large, shares, np))


@pytest.mark.parametrize("put", [lambda *given: sum_tree.put(*given, np), put_in_jax])
def test_of_a_number_that_is_there_twice_the_first_priority_is_taken(put):
    tree = put(tree_of(np.ones(300)), np.array([7, 299, 7], np.int32), np.float32([5.0, 3.0, 2.0]))
    leaves = np.asarray(tree.leaves).reshape(-1)
    assert (leaves[7], leaves[299], leaves[8]) == (5.0, 3.0, 1.0)
    assert np.asarray(tree.sums).tolist() == [260.0, 46.0]


def test_what_is_not_finite_stays_within_the_tree():
    """The run is lost by then; the others of its group go on."""
    for wild in (np.inf, np.nan):
        priorities = np.ones(300, np.float32)
        priorities[270] = wild
        with np.errstate(all="ignore"):
            numbers, _, _ = sum_tree.draw(tree_of(priorities), np.float32([0.0, 0.3, 0.999]), np)
        assert ((numbers >= 0) & (numbers < 300)).all()


@pytest.mark.parametrize("size", [1, WIDTH, WIDTH + 1, 3_000])
def test_the_bytes_said_are_the_bytes_there(size):
    assert sum(array.nbytes for array in sum_tree.empty(size, np)) == sum_tree.bytes_needed(size)
