"""Derivatives, in closed form and by automatic differentiation; masked actions; values of extreme size."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from softbellman import operators as ops

SINGLE = [ops.maximum(), ops.mean(), ops.softmax(0), ops.softmax(1.5), ops.mellowmax(0), ops.mellowmax(1.5)]
ALL = [*SINGLE, *map(ops.double, (ops.maximum(), ops.softmax(1.5), ops.mellowmax(1.5)))]
Q = np.array([[0.3, -1.2, 0.9, 0.1], [2.0, 1.0, -3.0, 0.5], [0.0, 0.2, 0.1, -0.1]])
SELECTOR = np.array([[0.1, 0.7, -0.4, 0.2], [-1.0, 0.0, 0.4, 2.0], [0.3, 0.2, 0.1, 0.0]])


def central_differences(function, q, step=1e-6):
    """Differentiate `[..., A] -> [...]` in each action: `[..., A]`."""
    moves = step * np.eye(q.shape[-1])
    return np.stack([(function(q + move) - function(q - move)) / (2 * step) for move in moves], axis=-1)


@pytest.mark.parametrize("op", ALL, ids=str)
def test_closed_form_against_differences(op):
    assert op.gradient(Q, SELECTOR) == pytest.approx(central_differences(lambda q: op(q, SELECTOR), Q), abs=1e-8)


@settings(deadline=None)
@given(hnp.arrays(float, (2, 4), elements=st.floats(-3, 3)), st.floats(0, 20))
def test_closed_form_against_differences_anywhere(q, rate):
    for op in (ops.softmax(rate), ops.mellowmax(rate)):
        assert op.gradient(q) == pytest.approx(central_differences(op, q, 1e-5), abs=1e-5)


@pytest.mark.parametrize("op", ALL, ids=str)
def test_closed_form_against_automatic_differentiation(differentiable, op):
    q, selector = differentiable.array(Q), differentiable.array(SELECTOR)
    automatic = differentiable.gradient(lambda q: op(q, selector), q)
    assert np.asarray(op.gradient(q, selector)) == pytest.approx(np.asarray(automatic), abs=8 * differentiable.eps)


def test_a_tie_goes_to_the_first_by_automatic_differentiation_too(differentiable):
    tied = differentiable.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    automatic = np.asarray(differentiable.gradient(ops.maximum(), tied))
    assert automatic.tolist() == np.asarray(ops.maximum().gradient(tied)).tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("spec", ["lehmer(1)", "lehmer(1.5)", "signed_power(1)", "signed_power(1.5)", "lehmer(3)"])
def test_automatic_derivatives_of_powers_where_an_action_is_0(differentiable, spec):
    op, q = ops.parse(spec), np.array([[0.0, 1.0, 2.0], [2.0, 0.0, 1.0]])
    automatic = np.asarray(differentiable.gradient(lambda q: op(q), differentiable.array(q)))
    assert automatic == pytest.approx(op.gradient(q), abs=1e-5)
    if "(1)" in spec:
        assert automatic == pytest.approx(np.full((2, 3), 1 / 3), abs=1e-6)
        balanced = differentiable.array(np.array([[-1.0, 0.0, 1.0]]))
        assert np.asarray(differentiable.gradient(lambda q: op(q), balanced)) == pytest.approx(1 / 3, abs=1e-6)


def test_softmax_gradient_worked_out_by_hand():
    """At (0, 3) with tau = 1 it is negative in the first action, and its l1 norm is above 1."""
    assert ops.softmax(1.0).gradient([0.0, 3.0]) == pytest.approx([-0.0881, 1.0881], abs=1e-4)
    assert ops.mellowmax(1.0).gradient([0.0, 3.0]) == pytest.approx(ops.softmax(1.0).weights([0.0, 3.0]))


@pytest.mark.parametrize("op", SINGLE, ids=str)
def test_gradient_of_double_is_the_policy_of_the_selector(op):
    assert np.array_equal(ops.double(op).gradient(Q, SELECTOR), op.weights(SELECTOR))


@pytest.mark.parametrize("rate", [0.0, 1e-300, 1e-9, 1.0, 1e30, 1e300])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e12])
def test_automatic_gradients_of_extreme_values_are_finite_and_right(differentiable, scale, rate):
    q = differentiable.array(scale * np.array([[0, -1, 1], [1, 1, -1], [0.5, 0, 1], [1, 1, 1]]))
    for op in (ops.maximum(), ops.mean(), ops.softmax(rate), ops.mellowmax(rate)):
        automatic = np.asarray(differentiable.gradient(op, q))
        assert np.sum(automatic, axis=-1) == pytest.approx(1, abs=4e-6)
        if op != ops.maximum():  # at ties, where a maximum has no derivative
            assert automatic == pytest.approx(np.asarray(op.gradient(q)), abs=4e-6)


@pytest.mark.parametrize(
    ("q", "omega"),
    [
        ([0.3, -1.2, 0.9], 1.5),
        ([1.0, 1.0, 0.0], 40.0),
        ([2.0, 2.0, 2.0], 1.5),
        ([0.0, 1e-4, 3e-4], 40.0),
    ],
)
def test_mellowmax_policy_has_the_derivative_of_the_root(q, omega):
    """The implicit step: automatic differentiation of the bisected root, against differences of it."""
    jax = pytest.importorskip("jax")
    op = ops.mellowmax(omega)
    with jax.enable_x64(True):
        exact = np.asarray(jax.jacobian(op.weights)(jax.numpy.asarray(q)))
    assert exact == pytest.approx(central_differences(lambda q: op.weights(q).T, np.array(q)), abs=1e-6)


def test_mellowmax_policy_has_a_derivative_in_torch():
    torch = pytest.importorskip("torch")
    q = torch.tensor([0.3, -1.2, 0.9], dtype=torch.float64)
    exact = torch.autograd.functional.jacobian(ops.mellowmax(1.5).weights, q).numpy()
    assert exact == pytest.approx(central_differences(ops.mellowmax(1.5).weights, q.numpy(), 1e-5), abs=1e-8)


def test_double_has_a_derivative_in_the_selector(differentiable):
    q, selector = differentiable.array(Q), differentiable.array(SELECTOR)
    for op in (ops.softmax(1.5), ops.mellowmax(1.5)):
        automatic = differentiable.gradient(lambda selector, op=op: ops.double(op)(q, selector), selector)
        numeric = central_differences(lambda selector, op=op: ops.double(op)(Q, selector), SELECTOR)
        assert np.asarray(automatic) == pytest.approx(numeric, abs=max(1e-8, 20 * differentiable.eps))


# ------------------------------------------------------------------------------------- derivatives in the parameter

WITH_A_PARAMETER = {
    "softmax": ops.Softmax,
    "mellowmax": ops.Mellowmax,
    "double(softmax)": lambda tau: ops.Double(ops.Softmax(tau)),
    "double(mellowmax)": lambda omega: ops.Double(ops.Mellowmax(omega)),
}
RATES = (0.0, 1e-20, 1e-12, 1e-6, 1e-3, 1.0, 1e3)
SPREADS = (1e-6, 1e-3, 1.0, 1e3, 1e6)
# The best is 0, so that a value is what it is away from the best: differences lose nothing. The last row ties.
PATTERNS = np.array([[-1.0, -0.3, 0.0, -0.9], [0.0, -1e-3, -1.0, -1.0], [-1.0, 0.0, 0.0, 0.0]])


def parameter_grid():
    """Give rates, values and selectors of all sizes: `[N, 1]`, `[N, A]` and `[N, A]`."""
    cases = [(rate, spread * row) for rate in RATES for spread in SPREADS for row in PATTERNS]
    q = np.array([row for _, row in cases])
    return np.array([[rate] for rate, _ in cases]), q, np.roll(q, 1, axis=-1)


def differences_in_the_parameter(build, rate, q, selector):
    """Differentiate in the rate `[N, 1]` by differences in float64: forward where a step back would cross 0."""

    def value(rate):
        return build(rate)(q, selector)[:, None]

    step = 1e-3 * np.maximum(rate, 1 / np.ptp(q, axis=-1, keepdims=True))
    forward = (4 * value(rate + step) - 3 * value(rate) - value(rate + 2 * step)) / (2 * step)
    return np.where(rate < step, forward, (value(rate + step) - value(np.maximum(rate - step, 0))) / (2 * step))


@pytest.mark.parametrize("name", WITH_A_PARAMETER)
def test_derivatives_in_the_parameter_against_differences(of_any_precision, name):
    library = of_any_precision
    build = WITH_A_PARAMETER[name]
    rates, q, selector = parameter_grid()
    expected = differences_in_the_parameter(build, rates, q, selector)
    arrays = library.array(q), library.array(selector)
    found = library.gradient(lambda rates: build(rates)(*arrays), library.array(rates))
    variance = np.ptp(q, axis=-1, keepdims=True) ** 2  # the unit of a derivative
    assert np.asarray(found, float) / variance == pytest.approx(expected / variance, rel=2e-5, abs=2e-6)


def divergence_of_two(omega, spread):
    """Give `(y s(y) - log((1 + exp(y)) / 2)) / omega^2` with `y = omega spread`, s being the logistic function."""
    if omega == 0:
        return spread**2 / 8
    with localcontext() as context:
        context.prec = 120
        y = Decimal(omega) * Decimal(spread)
        slope = y / (1 + (-y).exp()) - ((1 + y.exp()) / 2).ln() if y < 10_000 else Decimal(2).ln()
        return float(slope / Decimal(omega) ** 2)


def test_the_derivative_of_mellowmax_in_omega_is_a_divergence_to_many_digits(of_any_precision):
    cases = [(omega, spread) for omega in (*RATES, 0.1, 0.49, 0.51, 3.0) for spread in SPREADS]
    q = of_any_precision.array([[0.0, spread] for _, spread in cases])
    rates = of_any_precision.array([[omega] for omega, _ in cases])
    found = of_any_precision.gradient(lambda rates: ops.Mellowmax(rates)(q), rates)
    as_given = zip(np.asarray(rates, float)[:, 0], np.asarray(q, float)[:, 1], strict=True)
    exact = [divergence_of_two(*case) for case in as_given]
    assert np.asarray(found)[:, 0] == pytest.approx(exact, rel=40 * of_any_precision.eps, abs=0)


def test_at_0_the_derivatives_in_the_parameter_are_moments(of_any_precision):
    """Softmax: the variance. Mellowmax: half of it. Masked actions do not count."""
    q = of_any_precision.array([[1.0, 2.0, 3.0], [0.0, 0.0, 3.0], [5.0, 5.0, 5.0]])
    zero = of_any_precision.array(np.zeros((3, 1)))
    first = of_any_precision.gradient(lambda tau: ops.Softmax(tau)(q), zero)
    assert np.asarray(first)[:, 0] == pytest.approx([2 / 3, 2, 0], abs=1e-6)
    first = of_any_precision.gradient(lambda omega: ops.Mellowmax(omega)(q), zero)
    assert np.asarray(first)[:, 0] == pytest.approx([1 / 3, 1, 0], abs=1e-6)
    masked = of_any_precision.mask([True, False, True])
    first = of_any_precision.gradient(lambda omega: ops.Mellowmax(omega)(q, where=masked), zero)
    assert np.asarray(first)[:, 0] == pytest.approx([1 / 2, 9 / 8, 0], abs=1e-6)


def test_second_derivatives_of_mellowmax(of_any_precision):
    """In omega twice, against differences of the first; in omega and q, the derivative of softmax's policy in tau."""
    library, omega = of_any_precision, np.repeat([0.0, 1e-12, 1e-4, 0.3, 2.0, 30.0], 2)[:, None]
    rows = np.tile([[0.3, -1.2, 0.9, 0.1], [2.0, 2.0, -3.0, 0.5]], (6, 1))
    q, rates = library.array(rows), library.array(omega)

    def first(rates, q):
        return library.gradient(lambda rates: ops.Mellowmax(rates)(q), rates, again=True)

    second = np.asarray(library.gradient(lambda rates: first(rates, q), rates))
    mixed = np.asarray(library.gradient(lambda q: first(rates, q), q))

    policy = ops.Softmax(omega).weights(rows)
    deviation = rows - np.sum(policy * rows, axis=-1, keepdims=True)
    assert mixed == pytest.approx(policy * deviation, abs=max(1e-9, 30 * library.eps))

    def divergence(omega):
        p = ops.Softmax(omega).weights(rows)
        return np.sum(p * np.log(p * rows.shape[-1]), axis=-1, keepdims=True) / omega**2

    large = np.maximum(omega, 0.3)
    differences = (divergence(large * 1.0001) - divergence(large * 0.9999)) / (2e-4 * large)
    moments = [np.mean((rows - rows.mean(-1, keepdims=True)) ** k, axis=-1, keepdims=True) for k in range(5)]
    cumulants = moments[3] / 3 + (moments[4] - 3 * moments[2] ** 2) * omega / 4  # right where omega is small
    assert second == pytest.approx(np.where(omega < 0.3, cumulants, differences), rel=1e-4)


def test_a_parameter_that_is_an_array_leaves_the_derivative_in_q_alone(of_any_precision):
    """Also where its own derivative is large: no product of 0 and infinity comes in."""
    cases = [(omega, scale * row) for omega in (0.0, 1e-20, 1.0, 1e3) for scale in (1e-6, 1.0, 1e12) for row in Q]
    q = of_any_precision.array([row for _, row in cases])
    rates = of_any_precision.array([[omega] for omega, _ in cases])
    found = of_any_precision.gradient(lambda q: ops.Mellowmax(rates)(q), q)
    exact = ops.Mellowmax(np.asarray(rates, float)).gradient(np.asarray(q, float))
    assert np.asarray(found) == pytest.approx(exact, abs=4e-6)


@pytest.mark.parametrize("op", ALL, ids=str)
@pytest.mark.parametrize("hidden", [math.nan, -math.inf])
def test_masked_actions_have_no_gradient_by_automatic_differentiation(differentiable, op, hidden):
    mask = np.array([True, False, True, True])
    q, selector = (
        differentiable.array(np.where(mask, Q, hidden)),
        differentiable.array(np.where(mask, SELECTOR, hidden)),
    )
    gradients = [differentiable.gradient(lambda q: op(q, selector, differentiable.mask(mask)), q)]
    if isinstance(op, ops.Softmax | ops.Mellowmax):
        gradients.append(differentiable.gradient(lambda q: op.weights(q, differentiable.mask(mask))[:, 0], q))
        gradients.append(differentiable.gradient(lambda s: ops.double(op)(q, s, differentiable.mask(mask)), selector))
    for gradient in gradients:
        assert np.all(np.isfinite(np.asarray(gradient))) and np.all(np.asarray(gradient)[:, 1] == 0)


@pytest.mark.parametrize("op", ALL, ids=str)
def test_a_row_with_no_legal_action_is_an_error(library, op):
    nothing = library.array([[1, 2], [-math.inf, -math.inf]])
    for call in (
        lambda: op(nothing, nothing),
        lambda: op.weights(nothing),
        lambda: op.gradient(nothing, nothing),
        lambda: op(library.array([[1, 2]]), library.array([[1, 2]]), library.mask([False, False])),
    ):
        with pytest.raises(ValueError, match="no legal action"):
            call()


def test_double_masks_what_either_set_of_values_masks():
    q, selector = np.array([-math.inf, 2.0, 5.0]), np.array([9.0, 1.0, -math.inf])
    for op in (ops.maximum(), ops.mean(), ops.softmax(1), ops.mellowmax(1)):
        assert ops.double(op)(q, selector) == 2.0
    with pytest.raises(ValueError, match="no legal action"):
        ops.double(ops.maximum())(q, np.array([1.0, -math.inf, -math.inf]))


def test_a_mask_may_be_shared_by_all_rows_and_must_be_bool(library):
    q = library.array(Q)
    shared = ops.softmax(1)(q, where=library.mask([True, True, False, True]))
    assert np.array_equal(
        np.asarray(shared), np.asarray(ops.softmax(1)(q, where=library.mask([[True, True, False, True]] * 3)))
    )
    with pytest.raises(TypeError, match="must be a bool mask"):
        ops.softmax(1)(q, where=library.array([1, 1, 0, 1]))


@ops.operator
class SoftMellowmax(ops.Operator):
    """A user's own, with no gradient: `log(sum(softmax(alpha q) exp(omega q))) / omega` (Gan et al., 2021)."""

    alpha: float
    omega: float

    def policy(self, row):
        return row.boltzmann(row.constant(self.alpha))

    def offset(self, row):
        omega = row.constant(self.omega)
        return row.xp.log(row.sum(self.policy(row) * row.xp.exp(omega * row.z))) / omega


def test_an_operator_without_a_gradient_gets_one(library):
    op = SoftMellowmax(1.0, 2.0)
    numeric = central_differences(op, Q)
    assert np.asarray(op.gradient(library.array(Q))) == pytest.approx(numeric, abs=max(1e-8, 20 * library.eps))
    masked = op.gradient(library.array(Q), where=library.mask([True, False, True, True]))
    assert np.all(np.asarray(masked)[:, 1] == 0)
    assert masked.dtype == library.array(Q).dtype
    with pytest.raises(ValueError, match="no legal action"):
        op.gradient(library.array(Q), where=library.mask([False] * 4))


def test_without_jax_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr("softbellman.operators.row._jax", lambda: __import__("a_library_that_is_not_there"))
    with pytest.raises(ImportError, match=r"pip install 'softbellman\[train\]', or define gradient\(\)"):
        SoftMellowmax(1.0, 2.0).gradient(Q)
