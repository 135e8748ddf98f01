"""Targets: windows of steps folded into one, held against an independent implementation."""

import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from softbellman.learning.target import folded


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_a_fold_is_the_n_step_return(steps):
    rng = np.random.default_rng(steps)
    reward = rng.standard_normal((50, steps), np.float32)
    discount = np.where(rng.random((50, steps)) < 0.2, 0.0, 0.9).astype(np.float32)
    value = rng.standard_normal(50, np.float32)
    total, product = folded(jnp.asarray(reward), jnp.asarray(discount))
    for row in range(50):
        values = jnp.full(steps, value[row])
        expected = rlax.n_step_bootstrapped_returns(jnp.asarray(reward[row]), jnp.asarray(discount[row]), values, steps)
        np.testing.assert_allclose(total[row] + product[row] * value[row], expected[0], rtol=1e-5, atol=1e-6)


def test_a_fold_does_not_see_what_fills_a_window_up():
    reward, discount = jnp.array([[1.5, -2.0, 0.25]]), jnp.array([[0.9, 0.8, 0.7]])
    filled = folded(jnp.pad(reward, ((0, 0), (0, 4))), jnp.pad(discount, ((0, 0), (0, 4)), constant_values=1.0))
    for ours, theirs in zip(filled, folded(reward, discount), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_single_steps_stay_as_they_are():
    reward, discount = jnp.array([1.0, 2.0]), jnp.array([0.9, 0.0])
    assert folded(reward, discount)[0] is reward and folded(reward, discount)[1] is discount
