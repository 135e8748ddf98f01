"""The Huber loss and its derivatives, for errors and deltas of all sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman.learning.target import huber

ERRORS = np.float32([0, *10.0 ** np.arange(-37, 38, 0.5), 3e38])
ERRORS = np.concatenate([ERRORS, -ERRORS])


DELTAS = np.float32([*10.0 ** np.arange(-3, 31), 3e38, np.inf])


def test_the_loss_and_its_gradient_are_right_for_errors_and_deltas_of_all_sizes():
    """The gradient is the error clipped to delta, bit for bit."""
    grid = jax.vmap(jax.vmap(jax.value_and_grad(huber), in_axes=(0, None)), in_axes=(None, 0))
    size, bound = np.float64(np.abs(ERRORS)), np.minimum(np.float64(DELTAS), 1e38)[:, None]
    exact = np.where(size > bound, bound * (size - bound / 2), size * (size / 2))
    fits = (exact > 1e-37) & (exact < 3.4e38)
    for function in (grid, jax.jit(grid)):
        losses, gradients = map(np.asarray, function(ERRORS, DELTAS))
        np.testing.assert_array_equal(gradients, np.clip(ERRORS, -DELTAS[:, None], DELTAS[:, None]))
        np.testing.assert_allclose(losses[fits], exact[fits], rtol=5e-7)
        assert np.all(losses[exact > 3.5e38] == np.inf) and np.all(losses[exact < 1e-37] < 2e-37)


@pytest.mark.parametrize("delta", [1e-3, 1.0, 1e9, 1e30, np.inf])
def test_the_gradient_is_right_for_a_delta_that_is_compiled_in(delta):
    clipped = np.clip(ERRORS, -np.float32(delta), np.float32(delta))
    total, mean = (jax.jit(jax.grad(lambda e, over=over: over(huber(e, delta)))) for over in (jnp.sum, jnp.mean))
    np.testing.assert_array_equal(total(ERRORS), clipped)
    np.testing.assert_allclose(mean(ERRORS), clipped / len(ERRORS), rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("delta", [1.0, 100.0])
def test_the_usual_losses_are_those_of_the_authors_form_bit_for_bit(delta):
    """Its gradient by automatic differentiation is `(b - delta) + delta`: off by what that rounds, and no more."""

    def authors(error):
        bounded = jnp.minimum(jnp.abs(error), delta)
        return 0.5 * bounded**2 + delta * (jnp.abs(error) - bounded)

    rng = np.random.default_rng(0)
    errors = np.float32(rng.normal(size=20_000) * delta * 10 ** rng.uniform(-5, 5, size=20_000))
    ours, theirs = (
        jax.jit(jax.vmap(jax.value_and_grad(form)))(errors) for form in (lambda error: huber(error, delta), authors)
    )
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert np.abs(ours[1] - theirs[1]).max() <= delta * 2**-24
    beyond = np.abs(errors) > delta
    np.testing.assert_array_equal(ours[1][beyond], theirs[1][beyond])


def test_the_loss_of_an_infinite_error_has_a_bounded_gradient_and_that_of_nan_is_nan():
    loss, gradient = jax.vmap(jax.value_and_grad(huber), in_axes=(0, None))(jnp.array([jnp.inf, -jnp.inf]), 2.0)
    assert loss.tolist() == [np.inf, np.inf] and gradient.tolist() == [2.0, -2.0]
    assert np.isnan(jax.value_and_grad(huber)(jnp.nan, 2.0)).all()


def test_the_second_derivative_of_the_loss_is_one_within_delta_and_zero_beyond():
    curvature = jax.vmap(jax.grad(jax.grad(lambda error: huber(error, 1.0))))
    assert curvature(jnp.array([0.5, -1e-9, 1.5, -1e30])).tolist() == [1.0, 1.0, 0.0, 0.0]
