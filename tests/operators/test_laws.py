"""Claims of operators, checked in two ways: by hypothesis here, and by their own search."""

import math
import time
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from softbellman import operators as ops
from softbellman import tabular

OPERATORS = [
    ops.maximum(),
    ops.mean(),
    *(ops.softmax(tau) for tau in (0, 0.1, 5, 1e30)),
    *(ops.mellowmax(omega) for omega in (0, 0.1, 5, 1e30)),
    *(ops.double(op) for op in (ops.maximum(), ops.mellowmax(5))),
]
PAIRS = hnp.arrays(float, st.tuples(st.just(3), st.integers(1, 6)), elements=st.floats(-100, 100))
ROUNDING = 1e-11


def monotone(op, q, other, selector):
    return op(np.maximum(q, other), selector) - op(q, selector) >= -ROUNDING


def translation_equivariant(op, q, other, selector):
    return abs(op(q + other[0], selector) - op(q, selector) - other[0]) <= ROUNDING


def non_expansion(op, q, other, selector):
    return abs(op(q, selector) - op(other, selector)) <= np.max(np.abs(q - other)) + ROUNDING


def at_least_mean(op, q, other, selector):
    return op(q, selector) >= np.mean(q) - ROUNDING


def at_most_max(op, q, other, selector):
    return op(q, selector) <= np.max(q) + ROUNDING


def averages_with_its_weights(op, q, other, selector):
    return abs(op(q, q) - np.sum(op.weights(q) * q)) <= ROUNDING


def weights_are_policy(op, q, other, selector):
    return np.all(op.weights(q) >= 0) and abs(np.sum(op.weights(q)) - 1) <= ROUNDING


def ignores_illegal(op, q, other, selector):
    legal = q <= np.median(q)
    both = op(q, selector, legal) - op(q[legal], selector[legal])
    return abs(both) <= ROUNDING and np.all(op.weights(q, legal)[~legal] == 0)


def within_largest_gap(op, q, other, selector):
    return np.max(q) - op(q, selector) <= op.largest_gap(q.size) + ROUNDING


def homogeneous(op, q, other, selector):
    return abs(op(8 * q, 8 * selector) - 8 * op(q, selector)) <= 8 * ROUNDING


def optimality_preserving(op, q, other, selector):
    return abs((np.max(q) - op(q, q)) - (np.max(other) - op(other, other))) <= ROUNDING


LAWS = {
    law.__name__: law
    for law in (
        monotone,
        translation_equivariant,
        non_expansion,
        at_least_mean,
        at_most_max,
        averages_with_its_weights,
        weights_are_policy,
        ignores_illegal,
        within_largest_gap,
        homogeneous,
        optimality_preserving,
    )
}  # that a gradient is the derivative is tested in test_gradients.py


@pytest.mark.parametrize("law", LAWS)
@settings(deadline=None, max_examples=40)
@given(rows=PAIRS)
def test_claimed_laws_hold(law, rows):
    for op in OPERATORS:
        assert LAWS[law](op, *rows) or not getattr(op.laws, law), str(op)


def test_what_is_claimed():
    everything = {field.name for field in fields(ops.Laws)}
    claims = {
        "max": everything,
        "mean": everything - {"within_largest_gap", "optimality_preserving"},
        "softmax": everything - {"monotone", "non_expansion", "homogeneous", "optimality_preserving"},
        "mellowmax": everything - {"homogeneous", "optimality_preserving"},
        "double(max)": everything - {"at_least_mean", "within_largest_gap"},
        "double(mellowmax)": everything
        - {"at_least_mean", "within_largest_gap", "homogeneous", "optimality_preserving"},
    }
    for op in OPERATORS:
        claimed = {law for law in everything if getattr(op.laws, law)}
        assert claimed == claims[ops.family(str(op))]


def test_softmax_is_not_monotone():
    values = [ops.softmax(1)([x, 3.0]) for x in (0.0, 0.5, 1.0)]
    assert values == pytest.approx([2.857722, 2.810355, 2.761594], abs=1e-6)


def test_softmax_is_not_a_non_expansion():
    """Moving each value by 0.1 moves the result by 0.1199."""
    before, after = ops.softmax(1)([2.4, 0.0]), ops.softmax(1)([2.5, -0.1])
    assert (before, after) == pytest.approx((2.200385528415, 2.320240107107), abs=1e-12)
    assert (after - before) / 0.1 == pytest.approx(1.198546, abs=1e-6)


@pytest.mark.parametrize(
    ("actions", "gap"), [(2, 0.27846454), (3, 0.46305551), (4, 0.60354574), (6, 0.81455331), (18, 1.45690145)]
)
def test_largest_gap_of_softmax_is_attained(actions, gap):
    """With all other actions at the same distance `(1 + gap) / tau` from the best."""
    for tau in (0.1, 1.0, 50.0):
        assert ops.softmax(tau).largest_gap(actions) == pytest.approx(gap / tau)
        worst = np.where(np.arange(actions) == 0, 0.0, -(1 + gap) / tau)
        assert -ops.softmax(tau)(worst) == pytest.approx(gap / tau)


def test_largest_gap_of_the_others():
    assert ops.mellowmax(5).largest_gap(4) == pytest.approx(math.log(4) / 5)
    assert 5 - ops.mellowmax(5)([0, 0, 0, 5.0]) == pytest.approx(math.log(4) / 5)
    assert ops.maximum().largest_gap(4) == 0
    for op in (ops.mean(), ops.softmax(0), ops.mellowmax(0), ops.double(ops.maximum())):
        assert op.largest_gap(4) == math.inf


@pytest.mark.parametrize("op", OPERATORS, ids=str)
def test_the_search_finds_nothing_against_a_claim(op):
    report = ops.check_operator(op)
    assert report.ok, str(report)
    assert [finding.law for finding in report.findings] == [field.name for field in fields(ops.Laws)]
    assert all(np.isfinite(finding.worst) for finding in report.findings)


@pytest.mark.parametrize(("tau", "seed"), [(1e-3, 0), (0.1, 1), (1, 2), (5, 3), (50, 4), (1e3, 5)])
def test_the_search_finds_what_softmax_does_not_satisfy(tau, seed):
    op = ops.softmax(tau)
    report = ops.check_operator(op, trials=400, seed=seed)
    monotone, non_expansion = report["monotone"], report["non_expansion"]
    assert not monotone.held and not non_expansion.held
    q, other, _ = monotone.witness
    assert np.all(q <= other) and op(q) > op(other)
    q, other, _ = non_expansion.witness
    ratio = abs(op(q) - op(other)) / np.max(np.abs(q - other))
    assert ratio == pytest.approx(non_expansion.worst) and 1.1 < ratio < 1.7489


@pytest.mark.parametrize("op", [ops.softmax(5), ops.double(ops.mellowmax(5))], ids=str)
def test_the_search_is_quick_and_repeatable(op):
    start = time.process_time()
    first = ops.check_operator(op)
    assert time.process_time() - start < 3
    assert str(first) == str(ops.check_operator(op))


def test_a_report_is_a_table():
    lines = str(ops.check_operator(ops.softmax(5), trials=200)).splitlines()
    assert lines[0] == "softmax(5): no claimed law violated (200 draws)"
    assert lines[2].split() == ["law", "claimed", "found", "worst", "allowed", "tolerance"]
    assert lines[3].split()[:3] == ["monotone", "no", "violated"]
    assert lines[4].split()[-2:] == ["0", "1.8e-12"]
    assert len({len(line) for line in lines[2:]}) == 1


def test_a_report_says_how_many_draws_were_made():
    drawn = []

    @ops.operator
    class Counted(ops.Maximum):
        only: int | None = None

        @property
        def for_actions(self):
            return self.only

        def weights(self, q, where=None):
            drawn.append(np.shape(q))
            return super().weights(q, where)

    for only, trials, expected in ((None, 1000, 1000), (3, 1000, 1000), (3, 50, 50), (None, 1003, 1000), (None, 5, 16)):
        drawn.clear()
        report = ops.check_operator(Counted(only), trials=trials)
        most = {actions: max(shape[0] for shape in drawn if shape[-1] == actions) for _, actions in drawn}
        assert report.trials == sum(most.values()) == expected
        assert f"({expected} draws)" in str(report)


@ops.operator
class Shifted(ops.Maximum):
    """The maximum and a constant."""

    by: float = 1.0

    def __call__(self, q, selector=None, where=None):
        return super().__call__(q, selector, where) + self.by


@pytest.mark.parametrize("by", [1.0, -0.01, 30.0])
def test_a_distance_that_all_states_have_in_common_preserves_no_optimality_beside_an_end(by):
    op = Shifted(by)
    finding = ops.check_operator(op)["optimality_preserving"]
    assert not finding.held and finding.witness.other.tolist() == [0.0] * finding.witness.q.size
    values = finding.witness.q  # state 1 has these and ends; state 0 goes there, or ends at once
    actions = values.size
    transition, reward = np.zeros((3, actions, 3)), np.zeros((3, actions))
    transition[:, :, 2] = 1.0
    transition[0, 0] = [0, 1, 0]
    reward[1] = values
    reward[0, 1:] = 0.9 * (np.max(values) + by / 2)
    mdp = tabular.FiniteMDP(transition, reward, 0.9, terminal=[False, False, True])
    best, found = (tabular.solve(mdp, each).q[0, :2].argmax() for each in (ops.maximum(), op))
    assert best != found


class LikeTheMaximum(ops.Operator):
    laws = ops.Maximum.laws

    def gradient(self, q, selector=None, where=None):
        return self.weights(q, where)

    def largest_gap(self, actions):
        return 0.0


@ops.operator
class First(LikeTheMaximum):
    """The maximum, but for the mask."""

    def policy(self, row):
        best = row.xp.astype(row.z == 0, row.z.dtype)
        return row.normalise(row.xp.where(row.xp.cumulative_sum(best, axis=-1) == 1, best, 0.0))


@ops.operator
class Both(LikeTheMaximum):
    """The maximum, but for ties."""

    def policy(self, row):
        return row.legally(row.xp.astype(row.z == 0, row.z.dtype))


@ops.operator
class TopAndTied(ops.Operator):
    """The mean of the two best actions, and of all that are equal to the second."""

    laws = replace(ops.Mean.laws, gradient_is_derivative=False)

    def policy(self, row):
        better = (row.z[..., None, :] > row.z[..., :, None]) & row.legal[..., None, :]
        return row.normalise(row.xp.astype(row.xp.sum(better, axis=-1) < 2, row.z.dtype))


@pytest.mark.parametrize(
    ("kind", "laws"),
    [
        (First, {"ignores_illegal"}),
        (Both, {"averages_with_its_weights", "weights_are_policy"}),
        (TopAndTied, {"monotone", "non_expansion"}),
    ],
)
def test_what_is_wrong_at_ties_or_behind_a_mask_only_is_found(kind, laws):
    for seed in range(3):
        report = ops.check_operator(kind(), trials=200, seed=seed)
        assert {finding.law for finding in report.findings if finding.claimed and not finding.held} == laws


@ops.operator
class Backwards(ops.Softmax):
    """Softmax, with the part of its gradient turned round that moves its weights."""

    def gradient(self, q, selector=None, where=None):
        return 2 * self.weights(q, where) - super().gradient(q, selector, where)


@pytest.mark.parametrize("tau", [1e-3, 1, 1e4, 1e8, 1e10])
def test_a_wrong_gradient_is_found_at_any_steepness(tau):
    for seed in range(3):
        assert not ops.check_operator(Backwards(tau), trials=200, seed=seed)["gradient_is_derivative"].held
        assert ops.check_operator(ops.softmax(tau), trials=200, seed=seed)["gradient_is_derivative"].held


CLAIMS_ALL = ops.Laws(**{field.name: True for field in fields(ops.Laws)})


@ops.operator
class Liar(ops.Operator):
    """Claim everything of an operator that is wrong in a way of one's choice."""

    wrong: str

    @property
    def laws(self):
        return replace(CLAIMS_ALL, optimality_preserving=self.wrong == "optimality_preserving")

    def policy(self, row):
        uniform = row.normalise(row.xp.ones_like(row.z))
        return uniform * {"weights_are_policy": 1.01}.get(self.wrong, 1.0)

    def __call__(self, q, selector=None, where=None):
        q = np.asarray(q)
        mean = ops.mean()(q, where=where)
        return {
            "monotone": lambda: 2 * mean - ops.maximum()(q, where=where),
            "translation_equivariant": lambda: mean * 0.9,
            "non_expansion": lambda: 1.05 * mean,
            "at_least_mean": lambda: mean - 1e-6 * np.ptp(q, axis=-1),
            "at_most_max": lambda: ops.maximum()(q, where=where) + 1e-6 * np.ptp(q, axis=-1),
            "averages_with_its_weights": lambda: ops.maximum()(q, where=where),
            "homogeneous": lambda: mean + 1e-3,
            "ignores_illegal": lambda: ops.mean()(np.where(np.isfinite(q), q, 0)),
        }.get(self.wrong, lambda: mean)()

    def gradient(self, q, selector=None, where=None):
        return self.weights(q, where) * {"gradient_is_derivative": 1.01}.get(self.wrong, 1.0)

    def largest_gap(self, actions):
        return {"within_largest_gap": 1e3}.get(self.wrong, math.inf)


@pytest.mark.parametrize("law", [field.name for field in fields(ops.Laws)])
def test_a_wrong_claim_is_caught(law):
    report = ops.check_operator(Liar(law))
    assert not report.ok and not report[law].held
    assert report[law].witness is not None
    told = str(report).splitlines()[0]
    finding = report[law]
    assert "violates what it claims: " in told
    assert f"{law} ({finding.worst:.4g}, above {finding.allowed:g} by more than {finding.tolerance:.2g})" in told


def test_honest_claims_of_the_same_operator_pass():
    assert ops.check_operator(Liar("nothing")).ok


def test_claims_are_opt_in():
    @ops.operator
    class Claimless(Liar):
        laws = ops.Laws()

    report = ops.check_operator(Claimless("monotone"))
    assert report.ok and not report["monotone"].held
    assert replace(ops.Laws(), monotone=True).monotone


@ops.operator
class Coarse(ops.Mellowmax):
    """Mellowmax, in float32."""

    def __call__(self, q, selector=None, where=None):
        return super().__call__(np.asarray(q, "float32"), where=where)


def test_an_operator_that_answers_in_float32_is_judged_by_float32():
    report = ops.check_operator(Coarse(1.0))
    assert report.ok, str(report)
    assert report["translation_equivariant"].worst > 1e-8
    assert report["translation_equivariant"].tolerance == pytest.approx(6.4e-6, rel=0.01)


TOLERANCES = {"monotone": 1 / 2, "non_expansion": 1 / 2, "gradient_is_derivative": 1 / 3}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_tolerance_is_that_of_the_precision_and_decides(dtype):
    eps = np.finfo(dtype).eps

    @ops.operator
    class Raised(ops.Maximum):
        by: float = 0.0

        def __call__(self, q, selector=None, where=None):
            value = super().__call__(q, where=where)
            return np.asarray(value + self.by * np.max(np.abs(q), axis=-1, initial=0.0, where=np.isfinite(q)), dtype)

    report = ops.check_operator(Raised(0.0), trials=200)
    for law in (field.name for field in fields(ops.Laws)):
        power = TOLERANCES.get(law)
        assert report[law].tolerance == pytest.approx(10 * eps**power if power else eps**0.75)
        assert report[law].held == (report[law].worst <= report[law].allowed + report[law].tolerance)
    for factor, held in ((0.5, True), (2.0, False)):
        finding = ops.check_operator(Raised(factor * eps**0.75), trials=200)["at_most_max"]
        assert finding.held is held
        assert (finding.worst > finding.allowed + finding.tolerance) is not held
