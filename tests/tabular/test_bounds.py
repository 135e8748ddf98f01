"""The bounds hold, and are met where they say they are."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import brentq

from softbellman import operators as ops
from softbellman.tabular import bounds, examples
from softbellman.tabular.iterates import iterate_both

LIPSCHITZ = [
    (2, 1.1996786, 0.83356),
    (3, 1.3273290, 0.75339),
    (4, 1.4224945, 0.70299),
    (5, 1.4988153, 0.66719),
    (6, 1.5627319, 0.63991),
    (9, 1.7096317, 0.58492),
    (10, 1.7488244, 0.57181),
    (18, 1.9745446, 0.50645),
    (100, 2.6882842, 0.37198),
    (1000, 3.7283194, 0.26822),
]
SHARP_GAP = [
    (2, 0.27846454),
    (3, 0.46305551),
    (4, 0.60354574),
    (6, 0.81455331),
    (9, 1.04011258),
    (18, 1.45690145),
]
ROWS = hnp.arrays(float, st.tuples(st.just(4), st.integers(1, 8)), elements=st.floats(-20, 20))
TAUS = st.floats(0.01, 100)


def one_best(actions: int, distance) -> np.ndarray:
    """One best action, and all others equally far below: `[..., actions]`."""
    return -np.asarray(distance, float)[..., None] * (np.arange(actions) > 0)


def gap(tau: float, q: np.ndarray) -> np.ndarray:
    return q.max(axis=-1) - ops.softmax(tau)(q)


def slope(tau: float, q: np.ndarray) -> np.ndarray:
    return np.abs(ops.softmax(tau).gradient(q)).sum(axis=-1)


@pytest.mark.parametrize(("actions", "constant", "gamma"), LIPSCHITZ)
def test_the_lipschitz_constant_of_softmax(actions, constant, gamma):
    assert bounds.softmax_lipschitz(actions) == pytest.approx(constant, abs=6e-8)
    assert 1 / bounds.softmax_lipschitz(actions) == pytest.approx(gamma, abs=6e-6)


@pytest.mark.parametrize("tau", [0.1, 1.0, 50.0])
@pytest.mark.parametrize("actions", [2, 3, 10, 100])
def test_the_lipschitz_constant_is_met_and_not_exceeded_whatever_tau(actions, tau):
    constant = bounds.softmax_lipschitz(actions)
    assert slope(tau, one_best(actions, 2 * constant / tau)) == pytest.approx(constant, rel=1e-12)
    distances = np.linspace(0, 20, 4001)
    assert slope(tau, one_best(actions, distances / tau)).max() == pytest.approx(constant, rel=1e-5)
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((2_000, actions)) * rng.uniform(0, 10, (2_000, 1)) / tau
    assert slope(tau, draws).max() <= constant + 1e-12


def test_one_action_leaves_nothing_to_soften():
    assert bounds.softmax_lipschitz(1) == 1
    assert bounds.largest_gap(1.0, 1) == bounds.smallest_gap(1.0, 1, 0.0) == 0
    assert bounds.largest_gap(0.0, 1, 0.0) == 0


@pytest.mark.parametrize(("actions", "constant"), SHARP_GAP)
@pytest.mark.parametrize("tau", [0.1, 1.0, 20.0])
def test_the_sharp_gap(actions, constant, tau):
    assert bounds.largest_gap(tau, actions) == pytest.approx(constant / tau, rel=1e-8)
    assert gap(tau, one_best(actions, (1 + constant) / tau)) == pytest.approx(constant / tau, rel=1e-8)
    assert gap(tau, one_best(actions, np.linspace(0, 10, 2001) / tau)).max() <= constant / tau * (1 + 1e-8)


@given(q=ROWS, tau=TAUS)
def test_the_gap_is_between_its_bounds(q, tau):
    actions, spread, found = q.shape[-1], np.ptp(q, axis=-1), gap(tau, q)
    limits = [
        bounds.largest_gap(tau, actions, spread),
        bounds.largest_gap(tau, actions),
        bounds.entropy_gap(tau, q),
        bounds.per_action_gap(tau, actions),
        bounds.lemma_2_upper(tau, actions, spread),
    ]
    for limit in limits:
        assert np.all(found <= limit + 1e-12)
    assert np.all(found >= bounds.smallest_gap(tau, actions, spread) - 1e-12)
    lower = bounds.lemma_2_lower(tau, actions, spread)  # equal where tau d is 0, but for rounding
    assert np.all(bounds.smallest_gap(tau, actions, spread) >= lower * (1 - 1e-15))


@given(tau=TAUS, actions=st.integers(2, 1000), spread=st.floats(0, 1000))
def test_which_bound_is_better(tau, actions, spread):
    sharp = bounds.largest_gap(tau, actions)
    assert bounds.largest_gap(tau, actions, spread) <= sharp * (1 + 1e-12)
    assert sharp <= ops.mellowmax(tau).largest_gap(actions)  # log(m) / tau
    assert sharp <= bounds.per_action_gap(tau, actions)
    assert bounds.largest_gap(tau, actions, spread) <= bounds.lemma_2_upper(tau, actions, spread) * (1 + 1e-12)


@given(q=ROWS, tau=TAUS)
def test_entropy_is_what_separates_softmax_from_mellowmax(q, tau):
    """`sm - mm = KL(p || uniform) / tau`, and KL to the uniform policy is `log(m) - H(p)`."""
    actions = q.shape[-1]
    divergence = math.log(actions) / tau - bounds.entropy_gap(tau, q)
    assert ops.softmax(tau)(q) - ops.mellowmax(tau)(q) == pytest.approx(divergence, abs=1e-9 / min(tau, 1))
    assert np.all(bounds.entropy_gap(tau, q) <= math.log(actions) / tau + 1e-12)


@pytest.mark.parametrize("rate", [0.2, 1.0, 5.0])
def test_how_operators_grow_with_their_parameter(rate):
    """`d sm / d tau = Var_p(q)` and `d mm / d omega = KL(p || uniform) / omega^2`, neither negative."""
    q, step = np.random.default_rng(0).normal(size=(100, 5)), 1e-5
    p = ops.softmax(rate).weights(q)
    variance = np.sum(p * q**2, axis=-1) - np.sum(p * q, axis=-1) ** 2
    divergence = math.log(5) - rate * bounds.entropy_gap(rate, q)
    for build, expected in ((ops.softmax, variance), (ops.mellowmax, divergence / rate**2)):
        slopes = (build(rate + step)(q) - build(rate - step)(q)) / (2 * step)
        assert slopes == pytest.approx(expected, abs=1e-8)
        assert np.all(slopes > 0)


@pytest.mark.parametrize("best", [1, 2, 5])
def test_mellowmax_falls_short_of_the_maximum_by_its_share_of_maximisers(best):
    q = np.where(np.arange(5) < best, 1.0, 0.0)
    assert 1 - ops.mellowmax(1e3)(q) == pytest.approx(math.log(5 / best) / 1e3, abs=1e-12)


@pytest.mark.parametrize("tau", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("spread", [0.0, 0.1, 2.0, 100.0])
@pytest.mark.parametrize("actions", [2, 5])
def test_bounds_given_a_spread_are_met(actions, spread, tau):
    attained = gap(tau, one_best(actions, np.linspace(0, spread, 100_001))).max()
    assert bounds.largest_gap(tau, actions, spread) == pytest.approx(attained, rel=1e-6)
    one_worst = np.append(np.zeros(actions - 1), -spread)
    assert bounds.smallest_gap(tau, actions, spread) == pytest.approx(gap(tau, one_worst), rel=1e-9, abs=1e-15)


def test_at_tau_0_only_the_spread_bounds_the_gap():
    assert bounds.largest_gap(0.0, 4) == math.inf
    assert bounds.largest_gap(0.0, 4, 2.0) == 1.5


@pytest.mark.parametrize(("tau", "stated", "sharp"), [(1.0, 914.0, 1.46), (5.0, 22.8, 0.291), (10.0, 1.42, 0.146)])
def test_lemma_2_is_loose(tau, stated, sharp):
    """18 actions, Qmax 100: at tau 1 the bound is more than the span of 200 that values have."""
    assert bounds.lemma_2_upper(tau, 18, 200.0) == pytest.approx(stated, rel=3e-3)
    assert bounds.largest_gap(tau, 18) == pytest.approx(sharp, rel=3e-3)


def test_a_single_action_has_no_gap():
    assert bounds.largest_gap(0.0, 1) == bounds.largest_gap(5.0, 1) == 0


def test_lemma_2_is_met_at_tau_0_with_two_actions():
    assert gap(0.0, one_best(2, 3.0)) == bounds.lemma_2_upper(0.0, 2, 3.0) == 1.5


@pytest.mark.parametrize(("q_max", "tau"), [(1, 1.92), (10, 4.92), (100, 7.55), (1000, 10.09)])
def test_lemma_2_is_of_order_1_over_tau_from_some_tau_on(q_max, tau):
    crossing = brentq(lambda tau: 1 / (tau + 2) - 2 * q_max / (1 + math.exp(tau)), 0.0, 50.0)
    assert crossing == pytest.approx(tau, abs=0.005)
    assert bounds.lemma_2_upper(crossing + 0.1, 2, 2 * q_max) == pytest.approx(1 / (crossing + 2.1))


def test_the_lower_bound_of_lemma_2_fails_for_a_third_of_all_values():
    """Values from [-1, 1]^2, where the largest spread is 2: the chance that theirs is too small, d below `near`."""
    near = brentq(lambda d: float(gap(1.0, one_best(2, d)) - bounds.lemma_2_lower(1.0, 2, 2.0)), 0.0, 1.0)
    assert 1 - (1 - near / 2) ** 2 == pytest.approx(0.297, abs=0.001)
    q = np.random.default_rng(0).uniform(-1, 1, (20_000, 2))
    fails = gap(1.0, q) < bounds.lemma_2_lower(1.0, 2, 2.0)
    assert fails.mean() == pytest.approx(1 - (1 - near / 2) ** 2, abs=0.01)


def test_the_lower_bound_of_lemma_2_at_its_smallest_counterexample():
    assert bounds.lemma_2_lower(1.0, 2, 1.0) == pytest.approx(0.18394, abs=5e-6)
    assert gap(1.0, np.array([0.01, 0.0])) == pytest.approx(0.004975, abs=5e-7)
    assert gap(1.0, np.array([0.0, 0.0])) == 0


def test_lemma_2_where_no_reward_is_positive():
    assert gap(0.1, np.array([0.0, -10.0])) == pytest.approx(2.6894, abs=5e-5)
    assert bounds.lemma_2_upper(0.1, 2, 0.0) == pytest.approx(0.4762, abs=5e-5)
    assert bounds.lemma_2_upper(0.1, 2, 10.0) == pytest.approx(4.7502, abs=5e-5)


def test_gaps_add_up():
    for steps in (0, 1, 7):
        assert bounds.discounted_sum(0.9, steps) == pytest.approx(sum(0.9**j for j in range(1, steps + 1)))
    assert bounds.discounted_sum(0.9) == pytest.approx(9.0)


@given(
    gamma=st.floats(0, 0.99),
    rewards=st.tuples(st.floats(-5, 0), st.floats(0, 5)).map(lambda pair: np.array(pair) + 1.0),
    start=st.tuples(st.floats(-5, 0), st.floats(0, 5)).map(np.array),
)
def test_what_values_can_be_reached(gamma, rewards, start):
    """The recursion that the bound sums up: a reward, and a discounted value that was within the last bound."""
    limits = start
    for steps in range(12):
        reached = bounds.reachable_values(gamma, rewards, start, steps)
        assert reached == pytest.approx(limits, abs=1e-9)
        limits = rewards + gamma * limits
    assert bounds.reachable_values(gamma, rewards, start) == pytest.approx(rewards / (1 - gamma))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.per_action_gap(0.0, 2), r"tau \(0\.0\) must be finite and above 0; at 0 softmax is the mean"),
        (lambda: bounds.per_action_gap(math.inf, 2), r"tau \(inf\) must be finite and above 0"),
        (lambda: bounds.entropy_gap(0.0, [0.0, 1.0]), r"tau \(0\.0\) must be finite and above 0"),
        (lambda: bounds.entropy_gap(-1.0, [0.0, 1.0]), r"tau \(-1\.0\) must be finite and above 0"),
        (
            lambda: bounds.lemma_2_lower(1.0, 2, -1.0),
            r"distance \(-1\.0\) must be at least 0; a distance is the larger",
        ),
        (
            lambda: bounds.lemma_2_lower(1.0, 2, 1.0, 0.5),
            r"largest_distance \(0\.5\) must be at least distance \(1\.0\)",
        ),
        (lambda: bounds.lemma_2_lower(1.0, 2, [1.0, math.nan]), r"distance \(\[1\.0, nan\]\) must be at least 0"),
        (lambda: bounds.smallest_gap(1.0, 2, -1.0), r"spread \(-1\.0\) must be at least 0"),
        (lambda: bounds.largest_gap(1.0, 2, -1.0), r"spread \(-1\.0\) must be at least 0"),
        (
            lambda: iterate_both(examples.one_state(), tau=1.0, steps=1, blocks=0),
            r"blocks \(0\) must be at least 1 and divide the number of states, 1",
        ),
        (lambda: iterate_both(examples.one_state(), tau=1.0, steps=1, blocks=-1), r"blocks \(-1\) must be at least 1"),
    ],
)
def test_what_no_bound_is_for_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
