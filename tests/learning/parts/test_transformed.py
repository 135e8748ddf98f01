"""Transformed values against their inverse, and rlax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.learning.parts.transformed import Transformed

ESTIMATE = Transformed(0.001)
SIZES = 10.0 ** np.arange(-6, 9)
VALUES = jnp.asarray([*-SIZES, 0.0, *SIZES], jnp.float32)


def test_values_are_the_inverse_for_values_of_all_sizes():
    np.testing.assert_allclose(ESTIMATE.values(ESTIMATE.squashed(VALUES)), VALUES, rtol=1e-5)
    np.testing.assert_allclose(Transformed(1.0).values(Transformed(1.0).squashed(VALUES)), VALUES, rtol=1e-5)
    gradient = jax.vmap(jax.grad(ESTIMATE.values))(VALUES)
    assert np.isfinite(gradient).all() and (gradient > 0).all()


@pytest.mark.parametrize("doubled", [False, True])
def test_losses_agree_with_rlax(doubled):
    rlax = pytest.importorskip("rlax")
    rng = np.random.default_rng(0)
    out, out_next, selector = (jnp.asarray(rng.normal(0, 3, (20, 4)), jnp.float32) for _ in range(3))
    action, reward = jnp.asarray(rng.integers(4, size=20)), jnp.asarray(rng.normal(0, 9, 20), jnp.float32)
    discount = jnp.asarray(0.9 * (rng.random(20) < 0.8), jnp.float32)
    online = ESTIMATE.values(selector)
    operator = ops.double(ops.maximum()) if doubled else ops.maximum()
    best = (online if doubled else ESTIMATE.values(out_next)).argmax(axis=-1)

    def theirs(q, action, q_next, best, reward, discount):
        one = (jnp.stack([part]) for part in (q, action, q_next, best, reward, discount))
        return rlax.transformed_n_step_q_learning(*one, n=1, tx_pair=rlax.SIGNED_HYPERBOLIC_PAIR)[0]

    expected = jax.vmap(theirs)(out, action, out_next, best, reward, discount)
    target = ESTIMATE.target(operator, reward, discount, out_next, online)
    losses, errors = ESTIMATE.losses(ESTIMATE.taken(out, action), target, 1e30)
    np.testing.assert_allclose(errors, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(losses, 0.5 * expected**2, rtol=1e-3, atol=1e-3)


def test_networks_are_averaged_as_values():
    outs = ESTIMATE.squashed(jnp.asarray([[[1.0, -4.0]], [[9.0, 4.0]]]))
    np.testing.assert_allclose(ESTIMATE.values(ESTIMATE.average(outs)), [[5.0, 0.0]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("slope", [0.0, -1.0, 1.5, float("nan")])
def test_a_slope_out_of_range_is_refused(slope):
    with pytest.raises(ValueError, match=r"above 0 and at most 1"):
        Transformed(slope)
