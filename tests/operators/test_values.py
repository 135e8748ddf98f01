"""Values of operators: those worked out by hand or by others, and identities between them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import brentq
from scipy.special import softmax as scipy_softmax

from softbellman import operators as ops

# q, omega, mellowmax, and the rate of its maximum-entropy policy.
MELLOWMAX = [
    ((0, 1), 1, 0.620114506958, 0.490034276419),
    ((0, 1), 5, 0.862713633586, 1.838013799290),
    ((0, 1), 10, 0.930689821834, 2.597334288604),
    ((0, 1), 16.55, 0.958117999055, 3.130114779770),
    ((1, 2, 3), 1, 2.308993675776, 0.481172666835),
    ((1, 2, 3), 5, 2.781629630976, 1.641015098051),
    ((1, 2, 3), 10, 2.890143311229, 2.287430361982),
    ((0, 0, 1), 5, 0.782954722611, 1.976116066010),
    ((-1, 0, 0.5, 2), 5, 1.722860849976, 1.433834202825),
    ((0, 0.1), 10, 0.062011450696, 4.900342764192),
    ((0, 0.1), 50, 0.086271363359, 18.380137992902),
    ((10, 11, 12, 13), 10, 12.861375103984, 2.100128621925),
    ((0, 0, 0, 0, 0, 10), 10, 9.820824053077, 0.561332995928),
]
POLICIES = [
    ((0, 1), 1, (0.37988549, 0.62011451)),
    ((0, 1), 5, (0.13728637, 0.86271363)),
    ((0, 1), 10, (0.06931018, 0.93068982)),
    ((0, 1), 16.55, (0.041882, 0.958118)),
    ((1, 2, 3), 1, (0.1909928, 0.30902073, 0.49998647)),
    ((1, 2, 3), 5, (0.03049693, 0.15737651, 0.81212656)),
    ((1, 2, 3), 10, (0.00927092, 0.09131484, 0.89941423)),
    ((0, 0, 1), 5, (0.10852264, 0.10852264, 0.78295472)),
    ((-1, 0, 0.5, 2), 5, (0.01141596, 0.04788711, 0.09807804, 0.84261889)),
    ((0, 0.1), 10, (0.37988549, 0.62011451)),
    ((0, 0.1), 50, (0.13728637, 0.86271363)),
    ((10, 11, 12, 13), 10, (0.00161121, 0.01315908, 0.10747311, 0.8777566)),
    ((0, 0, 0, 0, 0, 10), 10, (*5 * (0.00358352,), 0.98208241)),
]
SOFTMAX = [
    ((0, 1), 1, 0.731058578630),
    ((0, 1), 5, 0.993307149076),
    ((0, 1), 10, 0.999954602131),
    ((1, 2, 3), 1, 2.575210382604),
    ((1, 2, 3), 5, 2.993217262801),
    ((1, 2, 3), 10, 2.999954598009),
]
# q, tau, and the omega at which mellowmax is worth as much.
EQUIVALENT = [
    ((0, 1), 0.01, 0.0200001666678),
    ((0, 1), 1, 2.178556588939),
    ((0, 1), 5, 103.565309971),
    ((1, 2, 3), 1, 2.353092272262),
    ((1, 2, 3), 5, 161.9718200),
    ((-1, 0, 0.5, 2), 1, 2.533014406786),
    ((-1, 0, 0.5, 2), 5, 1505.54438),
]
ROWS = hnp.arrays(float, st.tuples(st.just(3), st.integers(1, 8)), elements=st.floats(-50, 50))
RATES = st.floats(1e-3, 1e3)


def rate_of(policy, q) -> float:
    """The rate of a softmax policy, from its largest and smallest weights."""
    weights, best, worst = np.asarray(policy), np.argmax(q), np.argmin(q)
    return math.log(weights[best] / weights[worst]) / (q[best] - q[worst])


@pytest.mark.parametrize(("q", "omega", "value", "rate"), MELLOWMAX)
def test_mellowmax_and_the_rate_of_its_policy(library, q, omega, value, rate):
    op, array = ops.mellowmax(omega), library.array(q)
    near = max(10 * library.eps, 1e-12)
    assert float(op(array)) == pytest.approx(value, rel=near)
    assert rate_of(op.weights(array), q) == pytest.approx(rate, rel=near * 3)


@pytest.mark.parametrize(("q", "omega", "policy"), POLICIES)
def test_mellowmax_policy(library, q, omega, policy):
    assert np.asarray(ops.mellowmax(omega).weights(library.array(q))) == pytest.approx(policy, abs=6e-9 + library.eps)


@pytest.mark.parametrize(("q", "tau", "value"), SOFTMAX)
def test_softmax(library, q, tau, value):
    assert float(ops.softmax(tau)(library.array(q))) == pytest.approx(value, rel=max(2 * library.eps, 1e-12))


@pytest.mark.parametrize(("q", "tau", "omega"), EQUIVALENT)
def test_for_each_tau_an_omega_is_worth_as_much(q, tau, omega):
    assert ops.mellowmax(omega)(q) == pytest.approx(ops.softmax(tau)(q), abs=1e-9)


@pytest.mark.parametrize(
    ("op", "value"),
    [
        (ops.softmax(0), 2.0),
        (ops.softmax(1), 2.575210),
        (ops.softmax(5), 2.993217),
        (ops.softmax(10), 2.999955),
        (ops.softmax(1e6), 3.0),
        (ops.mellowmax(1e-3), 2.000333),
        (ops.mellowmax(1), 2.308994),
        (ops.mellowmax(5), 2.781630),
        (ops.mellowmax(1000), 2.998901),
        (ops.mellowmax(0), 2.0),
    ],
    ids=str,
)
def test_l14_temperature_is_inverse(library, op, value):
    assert float(op(library.array([1, 2, 3]))) == pytest.approx(value, abs=6e-7)


@pytest.mark.parametrize(
    ("op", "q", "value"),
    [
        (ops.softmax(5), [20, 19, 0], 19.993307),
        (ops.softmax(10), [1000, 1001, 1002], 1001.999955),
        (ops.softmax(5), [1e4, 9999, -1e4], 9999.993307),
        (ops.mellowmax(10), [1000, 1001, 1002], 1001.890143),
        (ops.mellowmax(5), [-1e4, -9999, 1e4], 9999.780278),
        (ops.softmax(1e30), [1000, 1001, 1002], 1002),
        (ops.mellowmax(1e30), [1000, 1001, 1002], 1002),
        (ops.softmax(0), [1000, 1001, 1002], 1001),
        (ops.mellowmax(0), [1000, 1001, 1002], 1001),
    ],
    ids=str,
)
def test_l15_nothing_overflows(library, op, q, value):
    assert float(op(library.array(q))) == pytest.approx(value, abs=1e-6 + 2 * library.eps * abs(value))


@pytest.mark.parametrize("op", [ops.maximum(), ops.mean(), ops.softmax(5), ops.mellowmax(5)], ids=str)
def test_l15_shifting_values_shifts_the_result(library, op):
    q = np.array([[0.3, -0.7, 1.1], [2.0, 2.0, -5.0]])
    shifted, plain = np.asarray(op(library.array(q + 1e4))), np.asarray(op(library.array(q)))
    assert shifted == pytest.approx(plain + 1e4, abs=1e-2 if library.eps > 1e-10 else 1e-10)


@settings(deadline=None)
@given(ROWS, RATES)
def test_order(q, rate):
    """Mean <= mellowmax <= softmax <= max."""
    ordered = [ops.mean()(q), ops.mellowmax(rate)(q), ops.softmax(rate)(q), ops.maximum()(q)]
    assert np.all(np.diff(ordered, axis=0) >= -1e-13 * (1 + np.max(np.abs(q))))


@settings(deadline=None)
@given(ROWS, RATES)
def test_softmax_against_scipy(q, rate):
    policy = scipy_softmax(rate * q, axis=-1)
    assert ops.softmax(rate).weights(q) == pytest.approx(policy, abs=1e-11)
    assert ops.softmax(rate)(q) == pytest.approx(np.sum(policy * q, axis=-1), abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_rate_of_the_mellowmax_policy_against_brent(seed):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=rng.integers(2, 10)) * 10 ** rng.uniform(-3, 3)
    omega = 10 ** rng.uniform(-2, 2) / np.ptp(q)
    deviation = q - ops.mellowmax(omega)(q)
    rate = brentq(lambda rate: np.sum(np.exp(rate * deviation) * deviation), 0, omega, xtol=1e-300, rtol=1e-14)
    assert rate_of(ops.mellowmax(omega).weights(q), q) == pytest.approx(rate, rel=1e-9)
    assert min(omega, 1 / np.ptp(q)) / 5 <= rate <= omega


def test_mellowmax_policy_of_two_actions_is_its_value():
    for omega in (1e-9, 0.1, 1.0, 30.0, 1e4, 1e30):
        assert ops.mellowmax(omega).weights([0.0, 1.0])[1] == pytest.approx(ops.mellowmax(omega)([0.0, 1.0]), rel=1e-14)


def test_rate_of_the_mellowmax_policy_is_half_of_omega_where_values_are_close():
    q = np.array([0.0, 1e-3, 3e-3])
    assert rate_of(ops.mellowmax(2.0).weights(q), q) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("omega", [0.0, 1e-300, 1e-30, 1e-6, 1.0, 1e6, 1e30, 1e300])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-6, 1.0, 1e12])
def test_everything_stays_finite_and_the_policy_averages_to_the_value(library, scale, omega):
    pattern = np.array([[0, -1, 1], [1, 1, -1], [0, 1e-6, 1], [0, 0, 1], [1, -1e-3, -1], [1, 1, 1]])
    q = library.array(scale * pattern)
    spread = np.ptp(np.asarray(q, dtype=float), axis=-1)
    for op in (ops.softmax(omega), ops.mellowmax(omega)):
        value, weights = np.asarray(op(q), dtype=float), np.asarray(op.weights(q), dtype=float)
        assert np.sum(weights, axis=-1) == pytest.approx(1, abs=4 * library.eps) and np.all(weights >= 0)
        average = np.sum(weights * np.asarray(q, dtype=float), axis=-1)
        assert np.all(np.abs(value - average) <= 20 * library.eps * (spread + scale))
        assert np.all(np.isfinite(np.asarray(op.gradient(q))))
        assert np.all(value <= np.max(np.asarray(q, dtype=float), axis=-1))


def test_equal_values_have_the_uniform_policy(library):
    for op in (ops.mean(), ops.softmax(3), ops.mellowmax(0), ops.mellowmax(7), ops.mellowmax(1e30)):
        assert np.asarray(op.weights(library.array([2, 2, 2, 2]))).tolist() == [0.25] * 4


def test_the_first_of_equal_best_actions_has_the_weight(library):
    q = library.array([[3, 5, 5, 1], [2, 2, 2, 2]])
    assert np.asarray(ops.maximum().weights(q)).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]


def test_double_takes_the_policy_from_the_selector(library):
    q, selector = library.array([[1, 2, 3]]), library.array([[3, 2, 1]])
    for op, value in ((ops.maximum(), 1.0), (ops.softmax(5), 1.0067827), (ops.mellowmax(5), 1.2183704)):
        assert np.asarray(ops.double(op)(q, selector)) == pytest.approx([value], abs=1e-6)
        assert np.asarray(ops.double(op)(q, q)) == pytest.approx(np.asarray(op(q)), rel=1e-6)
        assert np.array_equal(np.asarray(ops.double(op).weights(q)), np.asarray(op.weights(q)))


def test_double_without_a_selector_says_what_to_pass():
    for call in (ops.double(ops.softmax(5)), ops.double(ops.softmax(5)).gradient):
        with pytest.raises(ValueError, match=r"double\(softmax\(5\)\) needs a selector.*op\(q_target, q_online\)"):
            call([1.0, 2.0])


def test_double_refuses_a_selector_of_another_shape():
    with pytest.raises(ValueError, match=r"q has shape \(2, 3\) and selector \(3,\)"):
        ops.double(ops.maximum())(np.zeros((2, 3)), np.zeros(3))


def test_double_takes_an_operator_once():
    with pytest.raises(ValueError, match=r"double\(double\(max\)\): it is doubled already"):
        ops.double(ops.double(ops.maximum()))
    for wrong in ("softmax(5)", 5, ops.Softmax, ops.maximum):
        with pytest.raises(TypeError, match="not an operator"):
            ops.double(wrong)


def test_single_operators_ignore_a_selector():
    for op in (ops.maximum(), ops.mean(), ops.softmax(2), ops.mellowmax(2)):
        assert op([1.0, 2.0], [9.0, -9.0]) == op([1.0, 2.0])


@pytest.mark.parametrize("build", [ops.softmax, ops.mellowmax])
def test_parameters_outside_their_domain_are_refused(build):
    for wrong in (-1, -1e-300, math.nan):
        with pytest.raises(ValueError, match="must be finite and at least 0; 0 is the mean"):
            build(wrong)
    for wrong in (math.inf, 10**400):
        with pytest.raises(ValueError, match=r"for its limit use max, or double\(max\)"):
            build(wrong)
    for wrong in (True, np.True_, "5", None, 1j, [1.0], np.zeros(2)):
        with pytest.raises(TypeError, match=r"must be a number, finite and at least 0, such as 5\.0"):
            build(wrong)


def test_half_precision_is_refused():
    with pytest.raises(TypeError, match=r"^q has dtype float16, which .*; convert it to float32 first\.$"):
        ops.softmax(5.0)(np.array([1, 2, 3], np.float16))


def test_bfloat16_is_refused():
    jnp = pytest.importorskip("jax.numpy")
    for op in (ops.perturbed(1.0), ops.weighted(1.0), ops.softmax(5.0)):
        with pytest.raises(TypeError, match=r"^q has dtype bfloat16, which .*; convert it to float32 first\.$"):
            op(jnp.asarray([1.0, 2.0], jnp.bfloat16))


def test_values_without_an_axis_of_actions_are_refused(library):
    with pytest.raises(ValueError, match=r"q is a single number, .*; it must have an axis of actions"):
        ops.maximum()(library.array(5.0))


def test_a_mask_of_another_shape_is_refused_with_both(library):
    with pytest.raises(ValueError, match=r"where has shape \(2,\) and q \(4, 3\); where must broadcast to q"):
        ops.maximum()(library.array(np.zeros((4, 3))), where=library.mask([True, False]))


@pytest.mark.parametrize("number", [5, 5.0, np.float32(5), np.float64(5), np.int64(5)], ids=lambda x: type(x).__name__)
def test_parameters_become_python_floats(number):
    assert type(ops.softmax(number).tau) is float and ops.softmax(number) == ops.softmax(5.0)
    assert math.copysign(1, ops.mellowmax(-0.0).omega) == 1


def test_the_precision_of_values_is_kept(library):
    q = library.array([[1, 2, 3]])
    for op in (ops.maximum(), ops.mean(), ops.softmax(5.0), ops.mellowmax(5.0), ops.double(ops.mellowmax(5.0))):
        for result in (op(q, q), op.weights(q), op.gradient(q, q)):
            assert result.dtype == q.dtype


def test_integers_become_the_default_float():
    assert ops.softmax(1)(np.array([1, 2, 3])).dtype == np.float64
    assert float(ops.mean()([1, 2])) == 1.5
    jnp = pytest.importorskip("jax.numpy")
    assert ops.softmax(1)(jnp.array([1, 2, 3])).dtype == jnp.float32
    for wrong in (np.array([True, False]), np.array([1j])):
        with pytest.raises(TypeError, match="must be real numbers"):
            ops.mean()(wrong)


def test_any_leading_axes(library):
    q = np.arange(24.0).reshape(2, 3, 4) % 7
    for op in (ops.maximum(), ops.softmax(1), ops.mellowmax(1), ops.double(ops.mellowmax(1))):
        whole = np.asarray(op(library.array(q), library.array(q)))
        assert whole.shape == (2, 3)
        assert whole[1, 2] == pytest.approx(float(op(library.array(q[1, 2]), library.array(q[1, 2]))), rel=1e-6)
        assert op(library.array(np.zeros((0, 4))), library.array(np.zeros((0, 4)))).shape == (0,)


def test_nan_is_not_hidden(library):
    q = library.array([[math.nan, 1], [0, 1]])
    for op in (ops.maximum(), ops.mean(), ops.softmax(1), ops.mellowmax(1)):
        assert np.isnan(np.asarray(op(q))).tolist() == [True, False]
