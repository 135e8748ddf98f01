"""Operators that are others in disguise, values worked out by hand, and independent ways to the same numbers."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.stats import norm

from softbellman import operators as ops

RNG = np.random.default_rng(0)
Q = np.concatenate([RNG.standard_normal((6, 5)), RNG.standard_normal((3, 5)) * 50, [[1, 1, 0, 0, -1], [2, 2, 2, 2, 2]]])
SELECTOR = RNG.standard_normal(Q.shape)
UNIFORM = (0.2,) * 5
PRIOR = (0.1, 0.3, 0.2, 0.15, 0.25)

SAME = {
    "logsumexp is mellowmax and log(m)/omega": (ops.logsumexp(2), ops.mellowmax(2), np.log(5) / 2),
    "centred logsumexp is mellowmax": (ops.centred(ops.logsumexp(2)), ops.mellowmax(2), 0),
    "entmax at 1 is logsumexp": (ops.entmax(1, 3), ops.logsumexp(3), 0),
    "entmax near 1 is logsumexp": (ops.entmax(1 + 1e-12, 3), ops.logsumexp(3), 0),
    "entmax at 2 is sparsemax": (ops.entmax(2, 3), ops.sparsemax(3), 0),
    "centred entmax at 2 is centred sparsemax": (ops.centred(ops.entmax(2, 3)), ops.centred(ops.sparsemax(3)), 0),
    "a uniform prior makes mellowmax": (ops.kl_prior(2, *UNIFORM), ops.mellowmax(2), 0),
    "a prior at 0 is the average with it": (ops.kl_prior(0, *PRIOR), ops.fixed(*PRIOR), 0),
    "SM2 at alpha 0 is mellowmax": (ops.sm2(0, 2), ops.mellowmax(2), 0),
    "SM2 at omega 0 is softmax": (ops.sm2(2, 0), ops.softmax(2), 0),
    "general: the mean and 1 is mellowmax": (ops.general_mellowmax(ops.mean(), 1, 2), ops.mellowmax(2), 0),
    "general: 0 is logsumexp": (ops.general_mellowmax(ops.mean(), 0, 2), ops.logsumexp(2), 0),
    "general: softmax and 1 is SM2": (ops.general_mellowmax(ops.softmax(1), 1, 2), ops.sm2(1, 2), 0),
    "general: a policy and 1 is KL": (ops.general_mellowmax(ops.fixed(*PRIOR), 1, 2), ops.kl_prior(2, *PRIOR), 0),
    "general: of the maximum, 0 is logsumexp": (ops.general_mellowmax(ops.maximum(), 0, 2), ops.logsumexp(2), 0),
    "general: of the maximum, 1 is max": (ops.general_mellowmax(ops.maximum(), 1, 2), ops.maximum(), 0),
    "epsilon 0 is max": (ops.epsilon_soft(0), ops.maximum(), 0),
    "epsilon 1 is the mean": (ops.epsilon_soft(1), ops.mean(), 0),
    "smoothed at 0 is max": (ops.smoothed(0), ops.maximum(), 0),
    "smoothed is epsilon-soft": (ops.smoothed(0.2), ops.epsilon_soft(0.25), 0),
    "top 1 is max": (ops.top_k(1), ops.maximum(), 0),
    "top m is the mean": (ops.top_k(5), ops.mean(), 0),
    "more than all are all": (ops.top_k(9), ops.mean(), 0),
    "a tail of 0 is max": (ops.tail(0), ops.maximum(), 0),
    "a tail of 1 is the mean": (ops.tail(1), ops.mean(), 0),
    "a tail of 2/5 is the top 2": (ops.tail(0.4), ops.top_k(2), 0),
    "yager at 0 is max": (ops.yager(0), ops.maximum(), 0),
    "yager at 1 is the mean": (ops.yager(1), ops.mean(), 0),
    "OWA: max": (ops.owa(1, 0, 0, 0, 0), ops.maximum(), 0),
    "OWA: min": (ops.owa(0, 0, 0, 0, 1), ops.minimum(), 0),
    "OWA: mean": (ops.owa(*UNIFORM), ops.mean(), 0),
    "OWA: median": (ops.owa(0, 0, 1, 0, 0), ops.median(), 0),
    "OWA: top k": (ops.owa(0.5, 0.5, 0, 0, 0), ops.top_k(2), 0),
    "OWA: Hurwicz": (ops.owa(0.7, 0, 0, 0, 0.3), ops.hurwicz(0.7), 0),
    "OWA: epsilon-soft": (ops.owa(0.6, *(0.1,) * 4), ops.epsilon_soft(0.5), 0),
    "quantile 1 is max": (ops.quantile(1), ops.maximum(), 0),
    "quantile 0 is min": (ops.quantile(0), ops.minimum(), 0),
    "quantile 1/2 is the median": (ops.quantile(0.5), ops.median(), 0),
    "Hurwicz at 1 is max": (ops.hurwicz(1), ops.maximum(), 0),
    "Hurwicz at 0 is min": (ops.hurwicz(0), ops.minimum(), 0),
    "keep 0 is max": (ops.keep(0), ops.maximum(), 0),
    "keep 1 is the mean": (ops.keep(1), ops.mean(), 0),
    "gini 0 is max": (ops.gini(0), ops.maximum(), 0),
    "gini 1 is the mean": (ops.gini(1), ops.mean(), 0),
    "expectile 1/2 is the mean": (ops.expectile(0.5), ops.mean(), 0),
    "expectile 1 is max": (ops.expectile(1), ops.maximum(), 0),
    "power mean 1 is the mean": (ops.power_mean(1), ops.mean(), 0),
    "Lehmer 1 is the mean": (ops.lehmer(1), ops.mean(), 0),
    "signed power 1 is the mean": (ops.signed_power(1), ops.mean(), 0),
    "a barrier of 0 is the mean": (ops.barrier(0), ops.mean(), 0),
    "no deviation is the mean": (ops.deviation(0), ops.mean(), 0),
    "relative 0 is the mean": (ops.relative(0), ops.mean(), 0),
    "weighted near 0 is max": (ops.weighted(1e-6), ops.top_k(1), 0),
    "perturbed near 0 is max": (ops.perturbed(1e-9), ops.maximum(), 0),
    "self-correcting at 0 is max": (ops.self_correcting(0), ops.maximum(), 0),
    "self-correcting at 1 is double": (ops.self_correcting(1), ops.double(ops.maximum()), 0),
    "weighted double, large c, is double": (ops.weighted_double(1e12), ops.double(ops.maximum()), 0),
}


@pytest.mark.parametrize(("one", "other", "difference"), SAME.values(), ids=SAME)
def test_the_same_value(one, other, difference):
    untied = [*range(9)] if "near 0" in str(SAME) and isinstance(one, ops.Weighted) else [*range(len(Q))]
    q, selector = Q[untied], SELECTOR[untied]
    near = 1e-7 if isinstance(one, ops.Perturbed | ops.WeightedDouble) else 1e-9
    assert one(q, selector) == pytest.approx(other(q, selector) + difference, abs=near, rel=1e-9)


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        *((f"{name}({rate})", "max") for name in ("softmax", "mellowmax", "logsumexp", "sparsemax") for rate in (1e9,)),
        *(
            (spec, "max")
            for spec in ("entmax(1.5, 1e9)", "barrier(1e9)", "relative(1e9)", "power_mean(1e7)", "p_norm(1e7)")
        ),
        *((spec, "max") for spec in ("lehmer(1e9)", "sm2(1e9, 1)", "sm2(1, 1e9)", "centred(entmax(1.5, 1e9))")),
        *((spec, "mean") for spec in ("weighted(1e9)", "centred(sparsemax(1e-9))", "centred(entmax(1.5, 1e-9))")),
        *(
            (spec, "mean")
            for spec in ("keep(0.999999999999)", "gini(0.999999999999)", "barrier(1e-9)", "sm2(1e-9, 1e-9)")
        ),
    ],
)
def test_the_limits_of_parameters(spec, limit):
    rows = Q[:9]
    assert ops.parse(spec)(rows) == pytest.approx(ops.parse(limit)(rows), abs=3e-4)


def test_the_entropy_of_the_policy_of_keep_is_the_share_asked_for(library):
    for rho in (1e-3, 0.1, 0.5, 0.9, 0.999):
        p = np.asarray(ops.keep(rho).weights(library.array(Q[:9])), float)
        entropy = -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=-1)
        assert entropy == pytest.approx(rho * np.log(5), abs=max(20 * library.eps, 1e-12))
        p = np.asarray(ops.gini(rho).weights(library.array(Q[:9])), float)
        assert 1 - np.sum(p**2, axis=-1) == pytest.approx(rho * 0.8, abs=20 * library.eps)


def test_tied_best_actions_share_the_weight_where_they_have_entropy_enough(library):
    q = library.array([[1, 1, 0, 0, -1], [2, 2, 2, 2, 2]])
    for op in (ops.keep(0.3), ops.gini(0.3)):
        assert np.asarray(op(q)).tolist() == [1, 2]
        expected = [[0.5, 0.5, 0, 0, 0], [0.2] * 5]
        assert np.asarray(op.weights(q)) == pytest.approx(np.array(expected), abs=4 * library.eps)
    near = np.asarray(ops.keep(0.3).weights(library.array([[1, 1 - 1e-6, 0, 0, -1]])))
    assert near[0, :2] == pytest.approx([0.8123, 0.1877], abs=1e-3)


def test_keep_is_softmax_at_the_rate_that_minimises_its_dual():
    """`keep(q) = min over t of t (logsumexp(q / t) - rho log m)`."""
    for rho in (0.05, 0.3, 0.8):
        for q in Q[:9]:

            def dual(log_t, q=q, rho=rho):
                t = np.exp(log_t)
                return q.max() + t * (np.log(np.sum(np.exp((q - q.max()) / t))) - rho * np.log(5))

            found = minimize_scalar(dual, bounds=(-12, 8), method="bounded", options={"xatol": 1e-10})
            assert ops.keep(rho)(q) == pytest.approx(found.fun, rel=1e-7, abs=1e-7)


def test_conjugates_against_a_general_solver():
    """`max <p, q> + S(p)` over the simplex."""
    entropies = {
        ops.sparsemax(2.0): lambda p: (1 - np.sum(p**2)) / 4,
        ops.entmax(1.5, 2.0): lambda p: (1 - np.sum(p**1.5)) / (1.5 * 0.5 * 2),
        ops.entmax(3.0, 2.0): lambda p: (1 - np.sum(p**3)) / (3 * 2 * 2),
        ops.logsumexp(2.0): lambda p: -np.sum(p * np.log(np.maximum(p, 1e-300))) / 2,
        ops.barrier(2.0): lambda p: np.sum(np.log(5 * np.maximum(p, 1e-300))) / 10,
    }
    for op, entropy in entropies.items():
        for q in Q[:4]:
            found = minimize(
                lambda p, q=q, entropy=entropy: -(p @ q + entropy(p)),
                np.full(5, 0.2),
                bounds=[(1e-12, 1)] * 5,
                constraints={"type": "eq", "fun": lambda p: np.sum(p) - 1},
                options={"ftol": 1e-14, "maxiter": 1000},
            )
            assert op(q) == pytest.approx(-found.fun, abs=2e-6), str(op)
            assert op.weights(q) == pytest.approx(found.x, abs=2e-3), str(op)


@pytest.mark.parametrize(
    ("q", "value", "weights"),
    [
        ((0, 0), 0.25, (0.5, 0.5)),
        ((0, 0.5), 0.5625, (0.25, 0.75)),
        ((0, 1), 1, (0, 1)),
        ((0, 0.2, 0.3), 0.523333333, (0.16667, 0.36667, 0.46667)),
        ((0.1, 0.1, 0.1, 0.1), 0.475, (0.25,) * 4),
    ],
)
def test_sparsemax_of_lee_choi_and_oh(library, q, value, weights):
    array = library.array(q)
    assert float(ops.sparsemax(1)(array)) == pytest.approx(value, abs=1e-8 + 4 * library.eps)
    assert np.asarray(ops.sparsemax(1).weights(array)) == pytest.approx(weights, abs=1e-5)
    assert float(ops.sparsemax(2)(library.array([0, 0.2, 0.3]))) == pytest.approx(0.38, abs=4 * library.eps)


def test_the_probability_of_being_the_best_of_two_is_normal(library):
    q = np.array([[0.0, 0.5], [0.0, 3.0], [1.0, 1.0]])
    for sigma in (0.3, 1.0, 20.0):
        best = norm.cdf((q[:, 1] - q[:, 0]) / (sigma * 2**0.5))
        weights = np.asarray(ops.weighted(sigma).weights(library.array(q)))
        assert weights[:, 1] == pytest.approx(best, abs=1e-12 + 8 * library.eps)


@pytest.mark.parametrize(
    ("actions", "expected"), [(2, 0.56418958), (4, 1.02937537), (16, 1.76599139), (64, 2.34373347)]
)
def test_the_expected_maximum_of_normal_noise(actions, expected):
    assert ops.perturbed(1.0)(np.zeros(actions)) == pytest.approx(expected, abs=1e-8)
    assert ops.perturbed(3.0)(np.full(actions, 2.0)) == pytest.approx(2 + 3 * expected, abs=1e-7)
    assert ops.perturbed(1.0).largest_excess(actions) == pytest.approx(expected, abs=1e-8)


def test_the_expectile_balances_both_sides():
    for kappa in (0.6, 0.9, 0.99):
        for q in Q[:9]:

            def pull(v, q=q, kappa=kappa):
                return np.sum(np.where(q < v, 1 - kappa, kappa) * (q - v))

            assert ops.expectile(kappa)(q) == pytest.approx(brentq(pull, q.min(), q.max(), xtol=1e-13), abs=1e-9)


def test_values_worked_out_by_hand():
    q = [1.0, 4.0, 2.0, 3.0]
    worth = {
        "epsilon_soft(0.5)": 3.25, "smoothed(0.3)": 3.4, "top_k(2)": 3.5, "top_k(3)": 3.0, "tail(0.5)": 3.5,
        "tail(0.375)": 11 / 3, "yager(0.5)": 4 * 0.5 + 3 * 0.2071067812 + 2 * 0.1589186226 + 0.1339745962,
        "owa(0.4, 0.3, 0.2, 0.1)": 3.0, "quantile(0.25)": 1.0, "quantile(0.5)": 2.0, "quantile(0.51)": 3.0,
        "median": 2.5, "min": 1.0, "hurwicz(0.75)": 3.25, "fixed(0.1, 0.2, 0.3, 0.4)": 2.7,
        "power_mean(2)": 1 + 3.5**0.5, "p_norm(2)": 1 + 14**0.5, "lehmer(2)": 1 + 14 / 6,
        "signed_power(2)": 7.5**0.5, "deviation(2)": 2.5 + 2 * 1.25**0.5,
    }  # fmt: skip
    for spec, value in worth.items():
        assert float(ops.parse(spec)(q)) == pytest.approx(value, abs=1e-9), spec
    assert ops.quantile(0.7)(np.arange(10.0)) == 6  # the seventh, though 0.7 times 10 rounds to more than 7
    assert ops.signed_power(3)([-2.0, 1.0, 1.0]) == pytest.approx(-(2 ** (1 / 3)))


def test_two_sets_of_values_worked_out_by_hand():
    q, selector = [1.0, 2.0, 4.0], [3.0, 5.0, 0.0]
    worth = {
        "double(max)": 2.0, "clipped_double(max)": 2.0, "maxmin(max)": 2.0, "averaged(max)": 3.5,
        "clipped_double(fixed(0.5, 0.25, 0.25))": 1.0, "maxmin(mean)": 1.0, "averaged(mean)": 2.5,
        "self_correcting(0.5)": 2.0, "self_correcting(0.2)": 4.0, "self_correcting(3)": 2.0,
        "weighted_double(1)": (2 / 3) * 5 + (1 / 3) * 2,
    }  # fmt: skip
    for spec, value in worth.items():
        assert float(ops.parse(spec)(q, selector)) == pytest.approx(value, abs=1e-12), spec


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0, 3.0, 1e9, 1e30])
def test_self_correction_is_the_maximum_where_both_sets_agree_or_differ_by_a_constant(beta, dtype):
    q = np.array([1, 3, 2], dtype)
    assert ops.self_correcting(beta)(q, q) == ops.self_correcting(beta)(q, q + 4) == 3
    assert ops.self_correcting(beta)(q * 0.01, q * 0.01) == (q * 0.01)[1]
    assert ops.self_correcting(1e30)(q, np.array([5, 3, 2], dtype)) == 1


@pytest.mark.parametrize("spec", ["averaged(max)", "maxmin(max)", "self_correcting(3)", "self_correcting(0.2)"])
def test_the_policy_of_a_call_is_that_of_the_action_that_is_valued(spec):
    op = ops.parse(spec)
    q, selector = np.random.default_rng(0).standard_normal((2, 50, 4))
    valued = {"averaged": (q + selector) / 2, "maxmin": np.minimum(q, selector)}.get(spec.split("(")[0], q)
    for mask in (None, np.arange(4) > 0):
        policy = op.mixture(q, selector, mask)
        assert np.sum(policy * valued, axis=-1) == pytest.approx(op(q, selector, mask), abs=1e-12)
        assert np.all(np.max(policy, axis=-1) == 1)
    assert ops.averaged(ops.maximum()).mixture([0.0, 10.0], [5.0, 0.0]).tolist() == [0, 1]


@pytest.mark.parametrize("spec", ["signed_power(3)", "softmax(5)", "power_mean(3)", "mellowmax(2)"])
def test_two_sets_together_are_worth_what_the_operator_has_for_them_wherever_they_lie(spec):
    """Also where its value changes with the level, as that of a signed power does."""
    op = ops.parse(spec)
    q, selector = 3 * np.random.default_rng(0).standard_normal((2, 50, 4))
    mask = np.arange(4) > 0
    for pair, together, share in (
        (ops.maxmin(op), np.minimum(q, selector), q < selector),
        (ops.averaged(op), (q + selector) / 2, 0.5),
    ):
        np.testing.assert_allclose(pair(q, selector, mask), op(together, where=mask), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(pair.mixture(q, selector, mask), op.weights(together, mask), atol=1e-9)
        gradient = op.gradient(together, where=mask) * share
        np.testing.assert_allclose(pair.gradient(q, selector, mask), gradient, rtol=1e-6, atol=1e-9)


def test_only_a_distribution_itself_makes_general_mellowmax_a_contraction():
    """A class derived from the mean may have weights that move."""

    @ops.operator
    class Moving(ops.Mean):
        laws = ops.softmax(17.0).laws

        def policy(self, row):
            return ops.softmax(17.0).policy(row)

    assert ops.general_mellowmax(ops.mean(), 1, 0.01).laws.non_expansion
    assert not ops.general_mellowmax(Moving(), 1, 0.01).laws.non_expansion


def test_a_prior_is_as_far_from_the_maximum_as_its_share():
    op = ops.kl_prior(5, 0.3333335, 0.3333335, 0.3333335)  # of sum 1, but for rounding that is let pass
    assert 1e3 - op([1e3, 0.0, 0.0]) <= op.largest_gap(3) * (1 + 1e-12)


@pytest.mark.parametrize("q", [[0.0, -30.0], [0.0, -3e4]])
def test_a_power_of_a_weight_may_be_larger_than_the_weight_is(library, q):
    """Of d = (1, exp(5 q)) to the power 0.01 there is much left where d is too small for a float."""
    value = ops.general_mellowmax(ops.softmax(5), 0.01, 0.01)(library.array(q))
    assert float(value) == pytest.approx(math.log1p(math.exp(0.06 * q[1])) / 0.01, rel=1e-5)
    assert float(ops.general_mellowmax(ops.softmax(5), 0, 0.01)(library.array(q))) == pytest.approx(
        math.log1p(math.exp(0.01 * q[1])) / 0.01, rel=1e-5
    )


def test_masks_spread_the_weights_of_ranks_over_those_that_are_left():
    q, legal = np.array([1.0, 9.0, 2.0, 3.0]), np.array([True, False, True, False])
    assert ops.owa(0.4, 0.3, 0.2, 0.1)(q, where=legal) == pytest.approx(0.7 * 2 + 0.3 * 1)
    assert ops.fixed(0.1, 0.2, 0.3, 0.4)(q, where=legal) == pytest.approx(0.25 * 1 + 0.75 * 2)


def test_centred_soft_maxima_keep_small_values_in_float32():
    """They are no difference of two large numbers."""
    q = np.array([0.0, 1e-6, 3e-6], np.float32)
    for op in (ops.sparsemax(1e-3), ops.entmax(1.5, 1e-3), ops.logsumexp(1e-3), ops.entmax(1.0, 1e-3)):
        assert ops.centred(op)(q) == pytest.approx(float(np.mean(q.astype(float))), rel=1e-5)


@pytest.mark.parametrize("ratio", [1e-9, 1e-4, 0.3, 0.99, 1.01, 5.0])
def test_the_centred_expected_maximum_is_right_for_errors_of_any_size(library, ratio):
    """Of two values d apart: the best and `(phi(x) - phi(0)) d / x - Phi(-x) d`, with `x = d / (sigma sqrt(2))`."""
    distance = 3.0
    for sigma in (distance / ratio, 1e-3):
        x = distance / sigma / np.sqrt(2)
        right = distance * (np.expm1(-(x**2) / 2) * norm.pdf(0) / x - norm.cdf(-x))
        found = ops.centred(ops.perturbed(sigma))(library.array([distance, 0.0]))
        assert float(found) - distance == pytest.approx(right, abs=16 * library.eps * distance + 1e-10 * distance)


def test_the_centred_expected_maximum_is_at_least_the_mean(library):
    """It nears the mean as the errors grow, from above."""
    q = library.array(Q[:9, :4])
    mean, spread = np.mean(Q[:9, :4], axis=-1), np.ptp(Q[:9, :4], axis=-1)
    last = np.inf
    for sigma in (0.1, 1.0, 10.0, 1e3, 1e5, 1e7, 1e30):
        above = (np.asarray(ops.centred(ops.perturbed(sigma))(q), float) - mean) / spread
        assert np.all(above >= -8 * library.eps - 1e-11) and np.all(above <= last + 8 * library.eps)
        last = above
    assert np.all(above <= 8 * library.eps)
