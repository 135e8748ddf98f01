"""The rounding of operators in float64, against arithmetic of 60 digits."""

import decimal

import numpy as np
import pytest

from softbellman import operators as ops

from . import decimals

SPECS = [
    *("keep(0.01)", "keep(0.5)", "keep(0.999)", "keep(0.999999999)"),
    *("gini(0.3)", "gini(0.5625)", "gini(0.999999)", "gini(0.999999999999)", "gini(1)"),
    *("entmax(1.0001, 100)", "entmax(1.1, 0.3)", "entmax(3, 2)", "entmax(8, 1e-4)"),
    *("entmax(40, 1)", "entmax(100, 1e-6)", "entmax(1000, 1)", "entmax(1e5, 1)"),
    *("sparsemax(5)", "sparsemax(1e-6)", "logsumexp(5)", "logsumexp(1e-8)", "mellowmax(300)", "mellowmax(1e-5)"),
    *("barrier(1e-8)", "barrier(5)", "barrier(1000)", "general_mellowmax(mean, 0, 1e-8)"),
]


def rows(actions):
    """Values that are random, in steps, far apart, nearly tied but for one, tied in groups."""
    rng = np.random.default_rng(actions)
    lone, normal = np.eye(actions)[0], rng.normal(size=actions)
    yield from (normal, np.arange(float(actions)), normal**5, lone + 1e-6 * normal, 1e-9 * normal - lone)
    yield np.where(np.arange(actions) < (actions + 1) // 2, 0.0, -1.0) + 1e-9 * normal
    yield np.where(np.arange(actions) < (actions + 1) // 2, 0.0, -1.0)
    yield from (1e-12 * normal, np.zeros(actions))


@pytest.mark.parametrize("spec", SPECS)
def test_rounding_is_within_its_bound(spec):
    op = ops.parse(spec)
    for actions in (2, 9):
        for q in rows(actions):
            q = q - q.max()
            with decimal.localcontext(decimals.PRECISION):
                error = abs(decimal.Decimal(float(op(q))) - decimals.value(spec, q))
            assert error <= op.rounding(actions, float(np.ptp(q))) + 1e-30, (actions, q)


@pytest.mark.parametrize(("alpha", "tau"), [(40, 1), (60, 1), (1000, 1), (1e5, 1e-30), (1e38, 1e38), (1e300, 1e-20)])
def test_entmax_with_a_large_alpha_is_the_maximum_with_a_policy(library, alpha, tau):
    op = ops.entmax(alpha, tau)
    for actions in (2, 9, 18):
        every, height = np.stack(list(rows(actions))), op.largest_excess(actions)
        values, weights = (np.asarray(each(library.array(every)), float) for each in (op, op.weights))
        for q, value, p in zip(every, values, weights, strict=True):
            assert np.max(q) - 1e-6 * np.ptp(q) <= value <= (np.max(q) + height) * (1 + 1e-6) + 1e-6
            assert np.min(p) >= 0 and np.sum(p) == pytest.approx(1, abs=1e-5)
            ties = np.sum(q == np.max(q))
            assert p[q == np.max(q)] == pytest.approx(np.full(ties, np.max(p)), abs=1e-6)


def test_the_derivative_of_entmax_is_its_policy(of_any_precision):
    """Also where that turns from one policy to another within the last bits of the values."""
    library = of_any_precision
    q = library.array(np.stack(list(rows(9))))
    for alpha in (1.5, 8.0, 1000.0):
        op = ops.entmax(alpha, 1.0)
        found, p = np.asarray(library.gradient(op, q)), np.asarray(op.weights(q))
        assert found == pytest.approx(p, abs=1e3 * library.eps), alpha


def test_gini_near_the_mean_is_as_exact_as_elsewhere(library):
    """The weights go with the root of what the bound leaves above equal ones, no difference of larger numbers."""
    for rho in (1.0, 1 - 2.0**-23, 1 - 2.0**-20, 1 - 2.0**-12, 0.75):
        for actions in (3, 11, 18):
            q = np.arange(float(actions))
            error = float(ops.gini(rho)(library.array(q))) - float(decimals.value(f"gini({rho!r})", q))
            assert abs(error) <= 4 * actions * library.eps * actions, (rho, actions)
