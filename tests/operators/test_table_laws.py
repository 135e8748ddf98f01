"""The laws of every operator of the table, searched on every library; and what each declares false, found to be so."""

import math

import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.operators.table import TABLE

EXAMPLES = [entry.spec for entry in TABLE.values()] + ["double(keep(0.1))", "double(softmax(5))", "maxmin(softmax(5))"]


class Elsewhere:
    """An operator that is evaluated on the arrays of another library; what goes in and comes out is NumPy's."""

    def __init__(self, op, library):
        self.op, self.library, self.laws, self.for_actions = op, library, op.laws, op.for_actions
        self._evaluate = {name: self._on(getattr(op, name)) for name in ("__call__", "weights", "gradient")}

    def _on(self, function):
        if self.library.name == "jax":
            import jax

            function = jax.jit(function)

        def evaluate(*arrays):
            arrays = [None if a is None else np.ascontiguousarray(a) for a in arrays]
            given = [
                None if a is None else self.library.mask(a) if a.dtype == bool else self.library.array(a)
                for a in arrays
            ]
            return np.asarray(function(*given))

        return evaluate

    def __call__(self, q, selector=None, where=None):
        flat = [
            None if a is None else np.broadcast_to(a, q.shape).reshape(-1, q.shape[-1]) for a in (q, selector, where)
        ]
        return self._evaluate["__call__"](*flat).reshape(q.shape[:-1])

    def weights(self, q, where=None):
        return self._evaluate["weights"](q, where)

    def gradient(self, q, selector=None, where=None):
        return self._evaluate["gradient"](q, selector, where)

    def largest_gap(self, actions):
        return self.op.largest_gap(actions)

    def __str__(self):
        return str(self.op)


@pytest.mark.parametrize("spec", EXAMPLES)
def test_what_is_claimed_holds_and_what_is_not_is_false(spec):
    judge(ops.check_operator(ops.parse(spec), trials=200), ops.parse(spec))


HARD_TO_ROUND = [  # values far larger than what is compared, roots of what cancels, a quadrature, steep powers
    *("logsumexp(1e-9)", "logsumexp(0.01)", "logsumexp(0.1)", "logsumexp(5)", "sparsemax(0.01)", "sparsemax(5)"),
    *("sparsemax(100)", "general_mellowmax(mean, 0.5, 0.001)", "signed_power(3)", "signed_power(5)", "perturbed(1)"),
    *("power_mean(1e5)", "power_mean(1e9)", "p_norm(1e9)"),
]


@pytest.mark.parametrize("spec", HARD_TO_ROUND)
def test_rounding_violates_no_law(spec):
    for seed in range(3):
        report = ops.check_operator(ops.parse(spec), seed=seed)
        assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("spec", EXAMPLES)
def test_so_it_is_with_as_many_draws_as_users_make(spec):
    for seed in range(4):
        judge(ops.check_operator(ops.parse(spec), seed=seed), ops.parse(spec))


@pytest.mark.slow
@pytest.mark.parametrize("spec", EXAMPLES)
def test_so_it_is_on_every_library(spec, in_float64):
    op = ops.parse(spec)
    judge(ops.check_operator(Elsewhere(op, in_float64), trials=200, seed=1), op)


def judge(report, op):
    for finding in report.findings:
        vacuous = finding.law == "within_largest_gap" and op.largest_gap(op.for_actions or 4) == math.inf
        assert finding.held or not finding.claimed, f"{op} claims {finding.law}\n{report}"
        assert finding.claimed or not finding.held or vacuous, f"{op} does not claim {finding.law}\n{report}"


@pytest.mark.parametrize("rho", [0.02, 0.1, 0.5, 0.9])
def test_keep_is_a_non_expansion_and_monotone_over_many_pairs(rho):
    rng, op = np.random.default_rng(3), ops.keep(rho)
    for actions in (2, 3, 6):
        q, other = rng.standard_normal((2, 3000, actions)) * 10 ** rng.uniform(-2, 2, (2, 3000, 1))
        near = q + 10 ** rng.uniform(-4, 0, (3000, 1)) * rng.standard_normal(q.shape)
        for there in (other, near):
            moved = op(there) - op(q)
            assert np.all(np.abs(moved) <= np.max(np.abs(there - q), axis=-1) + 1e-11 * np.abs(q).max(axis=-1))
        higher = op(np.maximum(q, near)) - op(q)
        assert np.all(higher >= -1e-12 * np.abs(q).max(axis=-1))
        assert op(8 * q) == pytest.approx(8 * op(q), rel=1e-11, abs=1e-11)


@pytest.mark.parametrize(("rho", "share"), [(0.02, 0.0045), (0.05, 0.013), (0.1, 0.029), (0.2, 0.068), (0.3, 0.114)])
def test_the_largest_gap_of_keep_is_a_share_of_the_spread(rho, share):
    op, rng = ops.keep(rho), np.random.default_rng(0)
    assert op.largest_share(6) == pytest.approx(share, abs=6e-4)
    q = rng.standard_normal((2000, 6)) ** 3
    assert np.all(np.max(q, axis=-1) - op(q) <= op.largest_share(6) * np.ptp(q, axis=-1) * (1 + 1e-9))


@pytest.mark.parametrize("spec", [spec for spec in EXAMPLES if math.isfinite(ops.parse(spec).largest_share(3))])
def test_the_largest_share_is_none_too_small(spec):
    op, rng = ops.parse(spec), np.random.default_rng(0)
    actions = op.for_actions or 4
    q, selector = rng.standard_normal((2, 500, actions)) ** 3
    q = np.concatenate([q, 1.0 * np.eye(actions), -np.eye(actions)])
    selector = np.concatenate([selector, np.roll(np.eye(actions), 1, axis=0), np.eye(actions)])
    gap = np.max(q, axis=-1) - op(q, selector)
    assert np.all(gap <= op.largest_share(actions) * np.ptp(q, axis=-1) + 1e-12)


def test_the_largest_gap_of_sm2_goes_over_into_those_of_its_ends():
    softmax, mellowmax = ops.softmax(5).largest_gap(4), ops.mellowmax(5).largest_gap(4)
    assert [ops.sm2(5, x).largest_gap(4) for x in (0, 5e-324, 1e-12)] == pytest.approx([softmax] * 3)
    assert [ops.sm2(x, 5).largest_gap(4) for x in (0, 1e-320, 1e-12)] == pytest.approx([mellowmax] * 3)
    assert ops.sm2(1e-320, 5).largest_gap(1) == ops.sm2(5, 5e-324).largest_gap(1) == 0


@pytest.mark.parametrize("spec", ["softmax(3)", "sm2(1, 1)", "sm2(5, 1)", "sm2(1, 5)", "keep(0.1)", "sparsemax(2)"])
def test_the_lipschitz_constant_is_none_too_small(spec):
    """SM2 is an average of softmax over tau, so softmax's constant bounds it."""
    op, report = ops.parse(spec), ops.check_operator(ops.parse(spec), trials=400)
    assert report["non_expansion"].worst <= op.lipschitz(10) * (1 + 1e-6)
    assert (report["non_expansion"].worst > 1.01) == (not op.laws.non_expansion)


def test_a_subclass_has_no_lipschitz_constant_that_it_does_not_claim():
    class Steeper(ops.Softmax):
        pass

    class Other(ops.SoftMellowmax):
        pass

    assert Steeper(1.0).lipschitz(3) == Other(1.0, 1.0).lipschitz(3) == math.inf


def test_a_jump_is_found_where_no_step_is_small_enough():
    """Self-correction moves to a worse action at once; between its jumps it is as monotone as the maximum."""
    report = ops.check_operator(ops.self_correcting(3), trials=200)
    q, other, selector = report["monotone"].witness
    op = ops.self_correcting(3)
    assert np.all(q <= other) and op(q, selector) > op(other, selector)
