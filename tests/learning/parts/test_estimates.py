"""Estimates against the scalar target, rlax, and integrals in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.learning.parts.estimates import Categorical, Ensemble, Law, Quantiles, Value
from softbellman.learning.parts.transformed import Transformed
from softbellman.learning.target import td_target

B, A = 24, 4
OPERATORS = [
    ops.maximum(),
    ops.mean(),
    ops.softmax(3.0),
    ops.mellowmax(3.0),
    ops.keep(0.3),
    ops.logsumexp(3.0),
    ops.sparsemax(2.0),
    ops.top_k(2),
    ops.double(ops.maximum()),
    ops.double(ops.softmax(3.0)),
    ops.double(ops.mellowmax(3.0)),
    ops.maxmin(ops.maximum()),
]
ESTIMATES = [
    Value(),
    Ensemble(3, "mean"),
    Ensemble(3, "min"),
    Ensemble(3, "median"),
    Ensemble(3, "mix").drawn(jax.random.key(0)),
    Quantiles(7),
    Categorical(31, -9.0, 9.0),
    Transformed(),
]
IDS = ["value", "mean", "min", "median", "mix", "quantiles", "categorical", "transformed"]


def outputs_of(estimate, seed=0, size=B, spread=1.0):
    shape = (size, A) if estimate.outputs is None else (size, A, estimate.outputs)
    return jnp.asarray(spread * np.random.default_rng(seed).normal(size=shape), jnp.float32)


def transitions(seed=1, size=B):
    rng = np.random.default_rng(seed)
    reward = jnp.asarray(rng.normal(size=size), jnp.float32)
    return reward, jnp.asarray(0.9 * (rng.random(size) < 0.8), jnp.float32)


# ------------------------------------------------------------------------------------- one law for all of them


@pytest.mark.parametrize("estimate", ESTIMATES, ids=IDS)
def test_a_law_needs_weights_that_are_a_policy(estimate):
    for operator in OPERATORS:
        estimate.check(operator)
    for operator in (ops.deviation(2.0), ops.double(ops.deviation(0.5)), ops.clipped_double(ops.deviation(1.0))):
        if not estimate.is_law:
            estimate.check(operator)
            continue
        with pytest.raises(ValueError, match=r"^recipe\.estimate \w+\(.*are no policy.*; take an operator that does"):
            estimate.check(operator)


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
@pytest.mark.parametrize("estimate", ESTIMATES, ids=IDS)
def test_the_mean_of_the_target_is_the_scalar_target(estimate, operator):
    out, online = outputs_of(estimate), outputs_of(Value(), seed=2)
    reward, discount = transitions()
    legal = np.random.default_rng(3).random((B, A)) < 0.7
    legal[:, 0] |= ~legal.any(axis=1)
    for where in (None, jnp.asarray(legal)):
        target = estimate.target(operator, reward, discount, out, online, where)
        expected = td_target(operator, reward, discount, estimate.values(out), online, where)
        np.testing.assert_allclose(estimate.mean(target), expected, rtol=2e-5, atol=2e-5)
        if isinstance(target, Law):
            np.testing.assert_allclose(target.weights.sum(-1), 1.0, rtol=1e-5)
            assert (np.asarray(target.weights) >= 0).all()
            over = np.asarray(discount) == 0
            np.testing.assert_allclose(
                target.atoms[over], np.asarray(reward)[over, None] * np.ones_like(target.atoms[over])
            )


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_projection_keeps_the_mean_inside_of_the_support(operator):
    estimate = Categorical(31, -9.0, 9.0)
    reward, discount = transitions()
    law = estimate.target(operator, reward, discount, outputs_of(estimate, spread=0.3), outputs_of(Value(), seed=2))
    inside = np.asarray(((law.atoms > -9) & (law.atoms < 9)) | (law.weights == 0)).all(axis=1)
    p = estimate.projected(law)
    np.testing.assert_allclose(p.sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose((p @ estimate.support)[inside], law.mean[inside], rtol=1e-4, atol=1e-4)
    assert inside.sum() >= 5


def test_a_law_mixes_the_actions_by_the_operators_weights():
    """Two actions whose returns are sure, 0 and 4: softmax's target is 0 or 4, with its weights."""
    estimate, tau = Quantiles(2), 0.5
    out = jnp.asarray([[[0.0, 0.0], [4.0, 4.0]]])
    law = estimate.target(ops.softmax(tau), jnp.zeros(1), jnp.ones(1), out, estimate.values(out))
    weight = 1 / (1 + np.exp(-tau * 4))
    np.testing.assert_allclose(law.atoms[0], [0, 0, 4, 4], atol=1e-6)
    np.testing.assert_allclose(law.weights[0], [(1 - weight) / 2] * 2 + [weight / 2] * 2, rtol=1e-5)


# --------------------------------------------------------------------------------------------------------- rlax


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("name", ["categorical_q_learning", "categorical_double_q_learning"])
def test_categorical_losses_agree_with_rlax(name):
    rlax = pytest.importorskip("rlax")
    estimate = Categorical(21, -3.0, 5.0)
    out, out_next = outputs_of(estimate, 4), outputs_of(estimate, 5)
    reward, discount = transitions()
    action = jnp.asarray(np.random.default_rng(6).integers(A, size=B))
    online = outputs_of(Value(), seed=7)
    operator, more = ops.maximum(), ()
    if "double" in name:
        operator, more = ops.double(ops.maximum()), (online,)
    atoms = jnp.asarray(estimate.support)
    axes = (None, 0, 0, 0, 0, None, 0, *(0 for _ in more))
    expected = jax.vmap(getattr(rlax, name), in_axes=axes)(atoms, out, action, reward, discount, atoms, out_next, *more)
    target = estimate.target(operator, reward, discount, out_next, online)
    losses, errors = estimate.losses(estimate.taken(out, action), target, 1.0)
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(losses, errors)


@pytest.mark.parametrize("delta", [1.0, 0.3])
@pytest.mark.parametrize("doubled", [False, True])
def test_quantile_losses_agree_with_rlax(doubled, delta):
    rlax = pytest.importorskip("rlax")
    estimate = Quantiles(9)
    out, out_next = outputs_of(estimate, 4), outputs_of(estimate, 5)
    selector = outputs_of(estimate, 8) if doubled else out_next
    reward, discount = transitions()
    action = jnp.asarray(np.random.default_rng(6).integers(A, size=B))
    levels = jnp.tile((jnp.arange(9) + 0.5) / 9, (B, 1))

    def theirs(dist, levels, action, reward, discount, selector, after):
        turned = (part.T for part in (selector, after))  # quantiles first there
        return rlax.quantile_q_learning(dist.T, levels, action, reward, discount, *turned, huber_param=delta)

    expected = jax.vmap(theirs)(out, levels, action, reward, discount, selector, out_next)
    operator = ops.double(ops.maximum()) if doubled else ops.maximum()
    target = estimate.target(operator, reward, discount, out_next, estimate.values(selector))
    losses, _ = estimate.losses(estimate.taken(out, action), target, delta)
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------- reductions and tails


def test_heads_are_reduced_as_asked():
    out = jnp.asarray([[[3.0, 1.0, 8.0], [2.0, 2.0, 2.0]]])
    for reduce, expected in {"mean": [4, 2], "min": [1, 2], "median": [3, 2], "mix": [4, 2]}.items():
        np.testing.assert_allclose(Ensemble(3, reduce).values(out)[0], expected, rtol=1e-6)


def test_a_mix_is_a_random_convex_combination_of_heads():
    ensemble, out = Ensemble(3, "mix"), jnp.asarray([[[3.0, 1.0, 8.0]]])
    drawn = [ensemble.drawn(jax.random.key(seed)) for seed in range(50)]
    values = np.array([float(each.values(out)[0, 0]) for each in drawn])
    assert values.min() > 1 and values.max() < 8 and values.std() > 0.3
    np.testing.assert_allclose(drawn[0].values(jnp.full((1, 1, 3), 2.5)), 2.5, rtol=1e-6)
    taken = out[:, 0]
    losses, errors = drawn[0].losses(taken, jnp.asarray([10.0]), 1.0)
    np.testing.assert_allclose(errors, 10 - drawn[0].values(taken), rtol=1e-6)
    np.testing.assert_allclose(losses, Value().losses(drawn[0].values(taken), jnp.asarray([10.0]), 1.0)[0])


@pytest.mark.parametrize("level", [0.05, 0.25, 0.5, 1.0])
def test_the_lower_tail_is_the_mean_of_the_worst_returns(level):
    rng = np.random.default_rng(0)
    quantiles = rng.normal(size=(1, 1, 40))
    fine = np.sort(np.repeat(quantiles.ravel(), 1000))
    got = Quantiles(40).lower_tail(jnp.asarray(quantiles, jnp.float32), level)
    np.testing.assert_allclose(got[0, 0], fine[: int(level * len(fine))].mean(), rtol=1e-4, atol=1e-5)
    estimate = Categorical(11, -2.0, 2.0)
    p = rng.dirichlet(np.ones(11))
    draws = np.repeat(estimate.support, np.round(p * 1e6).astype(int))
    got = estimate.lower_tail(jnp.asarray(np.log(p), jnp.float32)[None, None], level)
    np.testing.assert_allclose(got[0, 0], draws[: int(level * len(draws))].mean(), rtol=1e-3, atol=1e-4)


def test_several_networks_are_averaged_as_laws():
    estimate = Categorical(5, 0.0, 4.0)
    outs = jnp.stack([outputs_of(estimate, seed) for seed in (0, 1)])
    mean = np.mean([estimate.values(out) for out in outs], axis=0)
    np.testing.assert_allclose(estimate.values(estimate.average(outs)), mean, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Quantiles(0), r"quantiles \(0\) must be 1 or more"),
        (lambda: Quantiles(2.5), r"quantiles \(2.5\) must be 1 or more"),
        (lambda: Categorical(1, 0.0, 1.0), "2 or more"),
        (lambda: Categorical(5, 1.0, 1.0), "below high"),
        (lambda: Ensemble(0), "1 or more"),
        (lambda: Ensemble(3, "max"), "mean, min, median, mix"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
