"""The simulations against exact expectations, and the equivalence of softmax and mellowmax against known values."""

import csv
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import lambertw

from softbellman import operators as ops
from softbellman import simulation
from softbellman.simulation import compare, equivalent_omega, laplace, measure, one_better, uniform, write_csv

DATA = Path(__file__).parent / "data"
BIAS = json.loads((DATA / "bias.json").read_text())
COMPARISON = json.loads((DATA / "operator_comparison.json").read_text())
SINGLE = {"softmax": ops.softmax, "mellowmax": ops.mellowmax}


def within(summary, exact, errors, slack=0.0):
    """The mean is within so many standard errors, and `slack`, of the exact one."""
    return abs(summary.mean - exact) <= errors * summary.standard_error + slack


# The bias study. An independent quadrature gave the exact values.


def check_bias_table(actions, trials):
    column = BIAS["m"].index(actions)
    expected = {"max": (BIAS["max"][column], BIAS["max_sd"][column]), "double(max)": (0.0, 1.0)}
    for tau, exact in BIAS["tau"].items():
        expected[f"softmax({tau})"] = exact["softmax"][column], exact["softmax_sd"][column]
        expected[f"double(softmax({tau}))"] = 0.0, exact["double_softmax_sd"][column]
        expected[f"mellowmax({tau})"] = exact["mellowmax"][column], None
    for cell in measure([ops.parse(spec) for spec in expected], np.zeros(actions), trials=trials):
        mean, std = expected[str(cell.operator)]
        assert within(cell.overestimation, mean, 4), cell
        assert std is None or cell.overestimation.std == pytest.approx(std, rel=5 / math.sqrt(trials)), cell
        assert cell.overestimation.standard_error == pytest.approx(cell.overestimation.std / math.sqrt(trials))


@pytest.mark.parametrize("actions", [2, 4, 8, 16, 32])
def test_figure_2_is_within_4_standard_errors_of_the_exact_table(actions):
    check_bias_table(actions, trials=100_000)


@pytest.mark.slow
@pytest.mark.parametrize("actions", [64, 128, 256, 512, 1024])
def test_figure_2_with_many_actions(actions):
    check_bias_table(actions, trials=100_000)


def test_the_maximum_of_two_normals_is_one_over_root_pi():
    (cell,) = measure([ops.maximum()], [0.0, 0.0], trials=400_000, seed=1)
    assert within(cell.overestimation, 1 / math.sqrt(math.pi), 4)


@pytest.mark.parametrize("actions", [2, 5, 20])
def test_uniform_noise_overestimates_by_m_minus_1_over_m_plus_1(actions):
    (cell,) = measure([ops.maximum()], np.zeros(actions), noise=uniform, trials=50_000)
    assert within(cell.overestimation, (actions - 1) / (actions + 1), 4)


def test_laplace_noise_has_variance_1():
    (cell,) = measure([ops.mean()], [0.0], noise=laplace, trials=200_000)
    assert within(cell.overestimation, 0.0, 4)
    assert cell.overestimation.std == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("tau", [1.0, 5.0])
def test_steins_identity_ties_the_bias_of_softmax_to_the_spread_of_double_softmax(tau):
    """`E sm_tau = tau (1 - E|w|^2)` for normal noise, and `E|w|^2` is the variance of double softmax."""
    trials = 200_000
    single, double = measure([ops.softmax(tau), ops.double(ops.softmax(tau))], np.zeros(8), trials=trials)
    error = math.hypot(single.overestimation.standard_error, tau * math.sqrt(2 / trials))
    assert abs(single.overestimation.mean - tau * (1 - double.overestimation.std**2)) < 4 * error


@pytest.mark.parametrize(
    ("true_values", "spec", "exact"),
    [
        ([0.0, -0.5, -1.0, -2.0], "max", 0.025),
        ([0.0, -0.5, -1.0, -2.0], "softmax(1)", -0.395),
        ([0.0, -0.5, -1.0, -2.0], "softmax(5)", -0.015),
        ([0.0, -0.5, -1.0, -2.0], "double(max)", -0.062),
        ([0.0, -0.5, -1.0, -2.0], "double(softmax(1))", -0.453),
        ([0.0, -0.5, -1.0, -2.0], "double(softmax(5))", -0.111),
        ([0.0, -2.0, -2.0, -2.0], "softmax(1)", -0.557),
    ],
)
def test_with_unequal_true_values_errors_can_be_negative(true_values, spec, exact):
    """Values known to three digits, by simulation; under A1 no single operator here has a negative bias."""
    (cell,) = measure([ops.parse(spec)], true_values, scale=0.3, trials=40_000)
    assert within(cell.overestimation, exact, 5, slack=0.003)


def test_what_hundred_trials_can_show_of_double_softmax():
    """Both double means are 0, so which is nearer 0 is chance; that double softmax spreads less is not."""
    operators = [ops.double(ops.maximum()), ops.double(ops.softmax(1.0))]
    nearer = 0
    for seed in range(100):
        by_max, by_softmax = (cell.overestimation for cell in measure(operators, np.zeros(16), seed=seed))
        assert by_softmax.std < by_max.std
        nearer += abs(by_softmax.mean) < abs(by_max.mean)
    assert 70 <= nearer <= 97  # about 86 %: no assertion for a single run


# Does the error of double softmax shrink with the number of actions, as Section 5.1 says?


@pytest.mark.parametrize("tau", [1.0, 5.0, 10.0])
def test_under_equal_values_only_the_spread_of_double_softmax_shrinks(tau):
    cells = [measure([ops.double(ops.softmax(tau))], np.zeros(m), trials=20_000)[0] for m in (2, 8, 32, 128)]
    assert all(within(cell.overestimation, 0.0, 4) for cell in cells)
    assert all(a.overestimation.std > b.overestimation.std for a, b in itertools.pairwise(cells))


@pytest.mark.parametrize("spec", ["softmax(1)", "softmax(5)", "mellowmax(5)", "max"])
def test_under_unequal_values_the_negative_error_of_double_grows_with_the_number_of_actions(spec):
    op = ops.double(ops.parse(spec))
    cells = [measure([op], one_better(m, 1.0), trials=4_000)[0] for m in (2, 8, 32, 128)]
    for fewer, more in itertools.pairwise(cells):
        error = math.hypot(fewer.overestimation.standard_error, more.overestimation.standard_error)
        assert more.overestimation.mean < fewer.overestimation.mean - 4 * error
    assert cells[-1].overestimation.mean > -1.0 - 4 * cells[-1].overestimation.standard_error


# The comparison. Figure 7's grid.


def check_comparison(actions, trials):
    column = COMPARISON["m"].index(actions)
    parameters = [float(parameter) for parameter in COMPARISON["softmax"]]
    for curve in compare(SINGLE, parameters, actions, trials=trials):
        for parameter, cell in zip(COMPARISON[curve.family], curve.cells, strict=True):
            exact = COMPARISON[curve.family][parameter][column]
            assert within(cell.overestimation, exact, 5, slack=1e-6), cell
            assert within(cell.approximation_error, COMPARISON["max"][column] - exact, 5, slack=2e-6), cell


@pytest.mark.parametrize("actions", [2, 4, 8, 10, 16, 32])
def test_figure_7_is_within_5_standard_errors_of_the_exact_grid(actions):
    check_comparison(actions, trials=20_000)


@pytest.mark.slow
@pytest.mark.parametrize("actions", [64, 100, 128, 256, 512, 1024])
def test_figure_7_with_many_actions(actions):
    check_comparison(actions, trials=20_000)


def test_with_many_actions_softmax_overestimates_by_tau_and_mellowmax_by_half_omega():
    (soft,), (mellow,) = (curve.cells for curve in compare(SINGLE, [0.5], 20_000, trials=50))
    assert soft.overestimation.mean == pytest.approx(0.5, abs=0.01)
    assert mellow.overestimation.mean == pytest.approx(0.25, abs=0.01)


def test_softmax_nears_the_max_as_one_over_tau_squared_not_exponentially():
    """Near ties have probability 1 / tau: with 2 actions the gap is `pi^(3/2) / (12 tau^2)`."""
    taus, trials = [20.0, 50.0, 100.0], 1_000_000
    (curve,) = compare({"softmax": ops.softmax}, taus, 2, trials=trials)
    for tau, cell in zip(taus, curve.cells, strict=True):
        assert within(cell.approximation_error, math.pi**1.5 / 12 / tau**2, 5, slack=1 / tau**4)


def test_mellowmax_nears_the_max_as_log_m_over_omega():
    (curve,) = compare({"mellowmax": ops.mellowmax}, [20.0, 100.0], 8, trials=10_000)
    for omega, share, cell in zip(curve.parameters, (0.95, 0.99), curve.cells, strict=True):
        assert share * math.log(8) / omega < cell.approximation_error.mean + 0.002
        assert cell.approximation_error.mean < math.log(8) / omega


@pytest.mark.parametrize("actions", [2, 7, 50])
def test_what_holds_in_every_trial(actions):
    """mm <= sm <= max, both grow with their parameter, and `max - sm <= W((m - 1) / e) / tau`."""
    q = np.random.default_rng(actions).normal(size=(5_000, actions))
    best, rounding = q.max(axis=-1), 1e-12
    lower = q.mean(axis=-1), q.mean(axis=-1)
    for parameter in (0.1, 1.0, 5.0, 10.0, 100.0):
        soft, mellow = ops.softmax(parameter)(q), ops.mellowmax(parameter)(q)
        assert np.all(mellow <= soft + rounding) and np.all(soft <= best + rounding)
        assert np.all(soft >= lower[0] - rounding) and np.all(mellow >= lower[1] - rounding)
        assert np.all(best - soft <= lambertw((actions - 1) / math.e).real / parameter + rounding)
        lower = soft, mellow


# The noise: a function of the seed and the number of actions.


def test_a_cell_does_not_depend_on_its_neighbours():
    soft, double = ops.softmax(5.0), ops.double(ops.maximum())
    together = measure([ops.maximum(), soft, double], np.zeros(6), seed=3)
    assert measure([soft], np.zeros(6), seed=3) == together[1:2]
    assert measure([double], np.zeros(6), seed=3) == together[2:]
    assert measure([soft], np.zeros(6), seed=4) != together[1:2]
    curves = compare(SINGLE, [1.0, 5.0], 6, seed=3)
    assert curves[0].cells[1] == together[1]
    assert [curve.family for curve in curves] == ["softmax", "mellowmax"]


@pytest.mark.parametrize("noise", [simulation.normal, uniform, laplace])
def test_trials_in_parts_are_the_same_trials(noise, monkeypatch):
    operators = [ops.maximum(), ops.double(ops.softmax(1.0))]
    whole = measure(operators, np.zeros(5), noise=noise, trials=1_000)
    monkeypatch.setattr(simulation, "_VALUES_AT_ONCE", 35)
    assert measure(operators, np.zeros(5), noise=noise, trials=1_000) == whole


def test_weights_and_values_of_a_double_estimate_are_independent_and_alike():
    """With weights from the values' own estimate, double max would be max."""
    seen = []

    class Recorder(ops.Operator):
        def __call__(self, q, selector=None, where=None):
            seen.append((q, selector))
            return q.max(axis=-1)

        def policy(self, row):
            return ops.maximum().policy(row)

    measure([Recorder()], np.zeros(4), trials=10_000)
    q, selector = seen[-1]
    assert abs(np.corrcoef(q.ravel(), selector.ravel())[0, 1]) < 0.02
    assert q.std() == pytest.approx(1, abs=0.02)
    assert selector.std() == pytest.approx(1, abs=0.02)


def test_errors_are_measured_from_the_best_true_value():
    (cell,) = measure([ops.mean()], [3.0, 1.0], scale=0.0, trials=10)
    assert cell.overestimation == (-1.0, 0.0, 0.0)
    assert cell.approximation_error == (1.0, 0.0, 0.0)
    assert one_better(4, 2.0).tolist() == [0.0, -2.0, -2.0, -2.0]
    for wrong in (-1.0, math.inf, math.nan):  # at -1 the others would be better
        with pytest.raises(ValueError, match=rf"^distance \({wrong}\) must be finite and at least 0$"):
            one_better(4, wrong)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([[]], {}, "true values"),
        ([[0.0, math.nan]], {}, "true values"),
        ([[[0.0]]], {}, "true values"),
        ([[0.0]], {"trials": 1}, r"trials \(1\) must be at least 2"),
        ([[0.0]], {"scale": -1.0}, r"scale \(-1.0\)"),
        ([[0.0]], {"scale": math.nan}, r"scale \(nan\)"),
        ([[0.0]], {"seed": -1}, r"seed \(-1\) must be at least 0"),
        (
            [[0.0, 0.0]],
            {"noise": lambda rng, _: rng.normal()},
            r"noise\(rng, \(100, 2\)\) gave an array of shape \(\); it",
        ),
        (
            [[0.0, 0.0]],
            {"noise": lambda rng, shape: rng.normal(size=(shape[0], 1))},
            r"gave an array of shape \(100, 1\)",
        ),
        ([[0.0]], {"noise": lambda _, shape: np.full(shape, np.nan)}, "gave an array that is not finite; it must give"),
        ([[0.0]], {"noise": lambda _, __: "noise"}, "noise has dtype"),
    ],
)
def test_what_cannot_be_simulated_is_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        measure([ops.maximum()], *arguments, **options)


def test_an_operator_of_ones_own_is_tried_before_any_noise_is_drawn():
    class OneWeight(ops.Operator):
        def policy(self, row):
            return row.z[..., :1]

    class BreaksBelow(ops.Operator):
        def policy(self, row):
            if row.best.min() < -1:
                raise KeyError("no such policy")
            return ops.mean().policy(row)

    class NanBelow(ops.Operator):
        def policy(self, row):
            return ops.mean().policy(row) * row.xp.where(row.best < -1, np.nan, 1.0)

    for operators in (OneWeight(), ["max", ops.double(OneWeight())]):
        with pytest.raises(ValueError, match=r"OneWeight.* gives weights of shape \(\d, 1\)"):
            measure(operators, np.zeros(3), noise=None)
    with pytest.raises(ValueError, match=r"^KeyError: 'no such policy' \(.*test_simulation.py, line \d+\)$") as caught:
        measure(BreaksBelow(), np.zeros(2))
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ValueError, match=r"NanBelow gives nan for the action values \[-\d"):
        measure(NanBelow(), np.zeros(2))


def test_one_or_many_operators_their_specs_and_numbers_of_numpy_are_alike():
    plain = measure([ops.maximum(), ops.softmax(5.0)], [0.0, 1.0], scale=0.5, trials=100, seed=3)
    numbers = {"scale": np.float32(0.5), "trials": 1e2, "seed": np.int64(3)}
    assert measure(["max", "softmax(5)"], np.array([0, 1]), **numbers) == plain
    assert measure("max", [0.0, 1.0], **numbers) == measure(ops.maximum(), [0.0, 1.0], **numbers) == plain[:1]
    (curve,) = compare({"sm": ops.softmax}, 5.0, np.int64(2))
    assert curve == compare({"sm": ops.softmax}, [5.0], 2)[0]
    with pytest.raises(ValueError, match=r"trials \(10.5\) must be a whole number"):
        measure("max", [0.0], trials=10.5)


def test_csv_goes_where_a_word_says(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert write_csv(measure("max", [0.0]), "~/cells.csv") == tmp_path / "cells.csv"
    assert (tmp_path / "cells.csv").exists()


def test_csv_holds_every_number(tmp_path):
    cells = measure([ops.maximum(), ops.double(ops.softmax(5.0))], np.zeros(3), trials=7)
    with write_csv(cells, tmp_path / "new" / "cells.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["operator"] for row in rows] == ["max", "double(softmax(5))"]
    assert [row["parameter"] for row in rows] == ["", "5.0"]
    for row, cell in zip(rows, cells, strict=True):
        assert (int(row["actions"]), int(row["trials"])) == (3, 7)
        for quantity in ("overestimation", "approximation_error"):
            found = [float(row[f"{quantity}_{name}"]) for name in ("mean", "std", "standard_error")]
            assert tuple(found) == getattr(cell, quantity)


# The equivalence of softmax and mellowmax.


@pytest.mark.parametrize(
    ("q", "tau", "omega", "digits"),
    [
        ([0, 1], 0.01, 0.0200001666678, 1e-12),
        ([0, 1], 1, 2.178556588939, 1e-12),
        ([0, 1], 5, 103.565309971, 1e-11),
        ([0, 1], 10, 15268.2758, 1e-8),
        ([0, 1], 20, 3.3629e8, 1e-5),
        ([1, 2, 3], 1, 2.353092272262, 1e-12),
        ([1, 2, 3], 5, 161.9718200, 1e-9),
        ([1, 2, 3], 10, 24197.4475, 1e-8),
        ([-1, 0, 0.5, 2], 1, 2.533014406786, 1e-12),
        ([-1, 0, 0.5, 2], 5, 1505.54438, 1e-8),
    ],
)
def test_known_equivalences(q, tau, omega, digits):
    found = equivalent_omega(q, tau)
    assert found.omega == pytest.approx(omega, rel=digits)
    assert not found.saturated


@settings(deadline=None, max_examples=60)
@example(q=np.array([[-47.0, 0.0]]), tau=15.0)  # a value of -3e-305, for which no omega is large enough
@given(
    q=arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(-50, 50)),
    tau=st.floats(0, 20),
)
def test_mellowmax_at_the_omega_gives_what_softmax_gives(q, tau):
    omega, saturated = equivalent_omega(q, tau)
    assert np.all(omega >= tau)
    assert not np.any(np.isnan(omega))
    assert np.all(saturated | np.isfinite(omega))
    for row, rate in zip(q, omega, strict=True):
        mellow = ops.mellowmax(rate)(row) if np.isfinite(rate) else row.max()
        assert mellow == pytest.approx(float(ops.softmax(tau)(row)), rel=1e-12, abs=1e-12 * np.ptp(row))


LONELY = [1.0] + 999 * [0.0]


@pytest.mark.parametrize(
    ("q", "tau", "omega"),
    [
        (LONELY[:18], 2.1e-8, 4.199999986933333e-8),
        (LONELY[:18], 1.1e-4, 2.199964149782187e-4),
        (LONELY, 3e-7, 5.99999970060003e-7),
        (LONELY, 1.1e-4, 2.199959748815126e-4),
        ([-x for x in LONELY[:18]], 5e-5, 1.000007407560873e-4),
        ([0, 1, 5], 1e-5, 1.999995714592517e-5),
        ([0, 1, 5], 1e-12, 2e-12),
    ],
)
def test_a_small_tau_is_half_of_its_omega_and_a_little_more(q, tau, omega):
    """Found in 60 digits; near the mean both sides are the same float."""
    assert equivalent_omega(q, tau).omega == pytest.approx(omega, rel=2e-9)


def test_saturation_is_said():
    """Softmax rounds to the max from tau = 37.5 on; a finite omega serves until `exp(-tau)` leaves the floats."""
    omega, saturated = equivalent_omega([0.0, 1.0], [37.3, 37.6, 600.0, 1000.0, 1e300])
    assert saturated.tolist() == [False, True, True, True, True]
    assert omega[:3] == pytest.approx(np.log(2) * np.exp([37.3, 37.6, 600.0]), rel=1e-11)
    assert omega[3:].tolist() == [math.inf, math.inf]
    shifted = equivalent_omega([1e6, 1e6 + 1], 30.0)
    assert shifted.saturated
    assert shifted.omega == pytest.approx(np.log(2) * np.exp(30.0), rel=1e-11)


def test_equal_values_have_the_limit():
    omega, saturated = equivalent_omega([[2.0, 2.0], [2.0, -np.inf], [2.0, 1.0]], 3.0)
    assert omega[:2].tolist() == [6.0, 6.0]
    assert saturated.tolist() == [True, True, False]
    assert equivalent_omega([0.0, 1.0], 0.0).omega == 0.0


def test_actions_that_may_not_be_taken_do_not_count():
    assert equivalent_omega([0.0, 1.0, -np.inf], 5.0).omega == equivalent_omega([0.0, 1.0], 5.0).omega


@pytest.mark.parametrize(
    ("q", "tau", "message"),
    [([0, 1], -1, "tau"), ([0, 1], math.inf, "tau"), ([0, 1], math.nan, "tau"), ([0, math.nan], 1, "NaN or an inf")],
)
def test_what_has_no_equivalent_is_refused(q, tau, message):
    with pytest.raises(ValueError, match=message):
        equivalent_omega(q, tau)
