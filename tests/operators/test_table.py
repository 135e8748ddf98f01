"""Every operator of the table: its spec, parameters, masks, extreme values, derivatives and compilations."""

import inspect
import math
import re
from dataclasses import fields, replace

import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.operators import conjugates, core, doubles, entropy, means, mellow, noise, orders
from softbellman.operators.table import GROUPS, TABLE

ENTRIES = pytest.mark.parametrize("entry", TABLE.values(), ids=TABLE)
PATTERNS = np.array([[0, -1, 1], [1, 1, -1], [0, 1e-6, 1], [0, 0, 1], [1, -1e-3, -1], [1, 1, 1]])
Q = np.array([[0.3, -1.2, 0.9], [2.0, 1.0, -3.0], [0.0, 0.2, 0.1]])
SELECTOR = np.array([[0.1, 0.7, -0.4], [-1.0, 0.1, 0.45], [0.3, 0.25, 0.05]])


def example(entry) -> ops.Operator:
    return ops.parse(entry.spec)


def test_there_are_forty_and_all_are_in_the_table():
    assert len(TABLE) >= 40 and sum(map(len, GROUPS.values())) == len(TABLE)
    modules = (conjugates, core, doubles, entropy, means, mellow, noise, orders)
    classes = {
        cls
        for module in modules
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, ops.Operator) and hasattr(cls, "__dataclass_fields__")
    }
    assert classes == {entry.cls for entry in TABLE.values()}
    for entry in TABLE.values():
        assert entry.build.__name__ in ops.__all__ and entry.cls.__name__ in ops.__all__


@ENTRIES
def test_the_example_is_of_its_class_and_goes_by_its_spec(entry):
    op = example(entry)
    assert type(op) is entry.cls and ops.parse(str(op)) == op
    assert str(op) == entry.spec and hash(op) == hash(ops.parse(entry.spec))
    assert ops.parse(f"double({entry.spec})") == ops.double(op) if not isinstance(op, ops.Pair) else True


@ENTRIES
def test_a_parameter_out_of_range_is_refused_with_its_range_and_what_its_ends_are(entry):
    op = example(entry)
    numbers = [getattr(op, name) for name in entry.parameters]
    inner = [getattr(op, field.name) for field in fields(op) if field.name not in entry.parameters]
    before = [value for value in inner if isinstance(value, ops.Operator)]
    after = [number for value in inner if isinstance(value, tuple) for number in value]
    for i, (name, within) in enumerate(entry.parameters.items()):

        def build(number, i=i):
            return entry.build(*before, *numbers[:i], number, *numbers[i + 1 :], *after)

        outside = [within.low - 0.5, math.nan, *([within.high + 0.5] if within.high < math.inf else [])]
        outside += [within.low] if within.above else []
        outside += [within.low + 0.5] if within.whole else []
        for number in outside:
            said = re.escape(f"{entry.name}: {name} ({number}) must be {within}; {within.ends}.")
            with pytest.raises(ValueError, match=f"^{said}$"):
                build(number)
        if within.high == math.inf:
            advice = f"for its limit use {within.limit}" if within.limit else within.ends
            with pytest.raises(ValueError, match=rf"{name} \(inf\) must be .*finite.*; {re.escape(advice)}\.$"):
                build(math.inf)
        for wrong in ("1", None, True, 1j, [0.5]):
            with pytest.raises(TypeError, match=rf"{entry.name}: {name} \(.*\) must be a number, .*{within.low:g}"):
                build(wrong)
        assert within.ends and build(within.example) == build(np.float64(within.example))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ops.keep(1.5), r"keep: rho \(1\.5\) must be from 0 to 1; 0 is max and 1 the mean\.$"),
        (lambda: ops.entmax(0.5, 5), r"entmax: alpha \(0\.5\) must be finite and at least 1; 1 is logsumexp\(tau\)"),
        (lambda: ops.perturbed(math.inf), r"perturbed: sigma \(inf\) must be finite and above 0; near 0 it is max\.$"),
        (lambda: ops.deviation(math.inf), r"deviation: kappa \(inf\) must be finite and at least 0; 0 is the mean\.$"),
        (lambda: ops.self_correcting(math.inf), r"beta \(inf\) must be finite and at least 0; 0 is max, and 1"),
        (
            lambda: ops.signed_power(10**400),
            r"signed_power: p \(1000\d*\) must be finite and at least 1; 1 is the mean",
        ),
        (lambda: ops.weighted(math.inf), r"weighted: sigma \(inf\) must be finite; for its limit use the mean\.$"),
        (lambda: ops.top_k(1.5), r"top_k: k \(1\.5\) must be whole and finite and at least 1; 1 is max"),
        (lambda: ops.kl_prior(5, 0.5, 0.4), r"kl_prior: prior \(0\.5, 0\.4\) must be .* of sum 1, which is 0\.9"),
        (lambda: ops.kl_prior(5, 1.5, -0.5), r"prior \(1\.5, -0\.5\) must be at least 0 and of sum 1"),
        (lambda: ops.kl_prior(5, 1.0, 0.0), r"prior \(1\.0, 0\.0\) must be above 0; an action that may not be taken"),
        (lambda: ops.kl_prior(5, math.nan, 1.0), r"prior \(nan, 1\.0\) must be at least 0"),
        (lambda: ops.kl_prior(5), r"kl_prior: prior is empty; pass a number for each action"),
        (lambda: ops.fixed(0.2, 0.2), r"fixed: policy \(0\.2, 0\.2\) must be .* of sum 1, which is 0\.4"),
        (lambda: ops.owa(0.5, 0.6), r"owa: weights \(0\.5, 0\.6\) must be .* of sum 1, which is 1\.1"),
        (lambda: ops.owa(), r"owa: weights is empty"),
    ],
)
def test_what_a_bad_parameter_says(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_what_is_none_of_the_operators_it_takes_is_refused():
    with pytest.raises(TypeError, match=r"owa: weights \(0\.5, x\) must be numbers, one for each action"):
        ops.owa(0.5, "x")
    with pytest.raises(TypeError, match=r"centred\(softmax\(5\)\): pass a soft maximum: logsumexp"):
        ops.centred(ops.softmax(5))
    with pytest.raises(TypeError, match=r"general_mellowmax\(5\): not an operator"):
        ops.general_mellowmax(5, 1, 1)
    with pytest.raises(TypeError, match=r"general_mellowmax\(.*Softmax.*\): not an operator"):
        ops.general_mellowmax(ops.Softmax, 1, 2)
    with pytest.raises(ValueError, match=r"general_mellowmax\(double\(max\)\): it is doubled already.*pass max\."):
        ops.general_mellowmax(ops.double(ops.maximum()), 1, 2)
    for build in (ops.double, ops.clipped_double, ops.maxmin, ops.averaged):
        with pytest.raises(TypeError, match=rf"{build.__name__}\(5\): not an operator"):
            build(5)
        with pytest.raises(ValueError, match=rf"{build.__name__}\(maxmin\(max\)\): it is an operator on two sets"):
            build(ops.maxmin(ops.maximum()))
    for spec in ("self_correcting(3)", "weighted_double(1)"):
        with pytest.raises(ValueError, match="on two sets of values already"):
            ops.double(ops.parse(spec))


@pytest.mark.parametrize("spec", ["owa(0.5, 0.1, 0.4)", "kl_prior(5, 0.5, 0.3, 0.2)", "fixed(0.5, 0.3, 0.2)"])
def test_numbers_for_each_action_must_be_as_many_as_there_are(spec):
    for op in (ops.parse(spec), ops.parse(f"double({spec})"), ops.general_mellowmax(ops.parse(spec), 1, 1)):
        ops.require_contract(op, 3)
        with pytest.raises(ValueError, match=r"operator .* is for 3 actions, and there are 4$"):
            ops.require_contract(op, 4)
    with pytest.raises(ValueError, match="3 numbers are given, one for each action, and there are 4"):
        ops.parse(spec)(np.zeros(4))


@ENTRIES
def test_values_of_any_size_stay_finite_and_as_exact_as_their_floats(library, entry):
    op, scales = example(entry), np.repeat([0.0, 1e-30, 1e-6, 1.0, 1e12], len(PATTERNS))[:, None]
    q = library.array(scales * np.tile(PATTERNS, (5, 1)))
    exact = np.asarray(q, float)
    selector = library.array(exact[:, ::-1].copy())
    value, weights, gradient = op(q, selector), op.weights(q), op.gradient(q, selector)
    right = op(exact, exact[:, ::-1].copy())
    near = 64 * library.eps * np.maximum(scales[:, 0], np.abs(right))
    if entry.name == "signed_power":  # steep where the powers cancel
        near = near + scales[:, 0] * (64 * library.eps) ** (1 / 3)
    assert np.all(np.abs(np.asarray(value, float) - right) <= near)
    assert np.sum(np.asarray(weights, float), axis=-1) == pytest.approx(1, abs=8 * library.eps)
    assert np.all(np.isfinite(np.asarray(gradient))) and value.dtype == weights.dtype == gradient.dtype == q.dtype


FAR = (1e7, 1e27, 1e38, 1e300)
NEAR = (1e-30, 1e-39, 1e-46, 1e-300, 5e-324)  # some of which float32 takes for 0, or their inverse for infinite


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@ENTRIES
def test_parameters_at_both_ends_leave_all_finite(dtype, entry):
    rows = np.array([[1, 2, 3], [1, 1, 1], [0, 0, -1], [3, 3, -7]])
    for name, within in entry.parameters.items():
        ends = FAR if within.high == math.inf else (within.high,)
        for number in (*ends, *(within.low + near for near in NEAR), *([] if within.above else [within.low])):
            op = replace(example(entry), **{name: float(number)})
            # A value may be larger than any float itself, where kappa deviations are.
            for scale in (0.0, 1e-30, 1.0, 1e12 if entry.name != "deviation" else 1e-20):
                q = (scale * rows).astype(dtype)
                for selector in (q, q[:, ::-1].copy()):
                    for found in (op(q, selector), op.weights(q), op.gradient(q, selector)):
                        assert np.all(np.isfinite(found)), (number, scale)


def test_a_small_parameter_is_the_limit():
    q = np.array([1, 2, 3], np.float32)
    for small in (1e-39, 1e-46, 5e-324):
        assert ops.perturbed(small)(q) == ops.weighted(small)(q) == 3
        assert ops.weighted(small)(q[:1].repeat(3)) == 1
        assert ops.weighted_double(small)(q, q) == 3
        wide = ops.general_mellowmax(ops.mean(), 0.0, small)(q)
        assert np.isfinite(wide) and wide == ops.logsumexp(small)(q)


@ENTRIES
def test_one_action_and_no_action(library, entry):
    op = example(entry)
    if op.for_actions is None:
        one = library.array([[3.0], [-2.0]])
        excess = np.asarray(op(one, one), float) - [3, -2]
        allowed = op.largest_excess(1) if isinstance(op, ops.Conjugate) else 0
        assert excess == pytest.approx([allowed, allowed], abs=1e-6)
        assert np.asarray(op.weights(one)).tolist() == [[1], [1]]
    nothing = library.array([[1, 2, 0], [-math.inf, -math.inf, -math.inf]])
    for call in (lambda: op(nothing, nothing), lambda: op.weights(nothing), lambda: op.gradient(nothing, nothing)):
        with pytest.raises(ValueError, match="no legal action"):
            call()


@ENTRIES
def test_masked_actions_have_no_influence(library, entry):
    op, mask = example(entry), np.array([True, False, True, True])
    mask = mask if op.for_actions is None else mask[:3]
    q, selector = (np.pad(rows, ((0, 0), (0, mask.size - 3)), constant_values=0.5) for rows in (Q, SELECTOR))
    where = library.mask(mask)

    def answers(fill):
        arrays = [library.array(np.where(mask, values, fill)) for values in (q, selector)]
        return op(*arrays, where), op.weights(arrays[0], where), op.gradient(*arrays, where)

    value, weights, gradient = map(np.asarray, answers(0.1))
    for hidden in (1e12, math.nan, math.inf, -math.inf):
        for there, other in zip((value, weights, gradient), answers(hidden), strict=True):
            assert np.array_equal(there, np.asarray(other))
    assert np.all(weights[:, ~mask] == 0) and np.all(gradient[:, ~mask] == 0)
    if op.for_actions is None:
        alone = library.array(q[:, mask]), library.array(selector[:, mask])
        near = 40 * library.eps
        assert value == pytest.approx(np.asarray(op(*alone)), abs=near)
        assert weights[:, mask] == pytest.approx(np.asarray(op.weights(alone[0])), abs=near)
        assert gradient[:, mask] == pytest.approx(np.asarray(op.gradient(*alone)), abs=4 * near)


@ENTRIES
def test_gradients_against_automatic_ones_and_differences(differentiable, entry):
    op, q, selector = example(entry), differentiable.array(Q), differentiable.array(SELECTOR)
    automatic = np.asarray(differentiable.gradient(lambda q: op(q, selector), q))
    moves = 1e-6 * np.eye(3)
    numeric = np.stack([(op(Q + move, SELECTOR) - op(Q - move, SELECTOR)) / 2e-6 for move in moves], axis=-1)
    near = max(1e-7, 100 * differentiable.eps)
    assert automatic == pytest.approx(numeric, abs=near)
    assert np.asarray(op.gradient(q, selector)) == pytest.approx(automatic, abs=near)


@ENTRIES
def test_automatic_gradients_of_extreme_values_are_finite(differentiable, entry):
    op, scales = example(entry), np.repeat([0.0, 1.0, 1e12], len(PATTERNS))[:, None]
    q = differentiable.array(scales * np.tile(PATTERNS, (3, 1)))
    mask = differentiable.mask(np.array([True, True, False]))
    for function in (lambda q: op(q, q), lambda q: op(q, q, mask), lambda q: op.weights(q)[:, 0] + 0 * q[:, 0]):
        assert np.all(np.isfinite(np.asarray(differentiable.gradient(function, q))))


@ENTRIES
def test_a_new_parameter_compiles_nothing_and_a_batch_is_one_compilation(entry):
    jax = pytest.importorskip("jax")
    op, traces = example(entry), []
    leaves, structure = jax.tree.flatten(op)

    def call(op, q, selector):
        traces.append(None)
        return op(q, selector), op.weights(q), op.gradient(q, selector)

    q, selector = (jax.numpy.asarray(values, "float32") for values in (Q, SELECTOR))
    compiled = jax.jit(call)
    for factor in (1.0, 0.7):
        ours = jax.tree.unflatten(structure, [factor * leaf if len(leaves) < 3 else leaf for leaf in leaves])
        given = (op(np.float32(Q), np.float32(SELECTOR)) for op in (ours,))
        assert np.asarray(compiled(ours, q, selector)[0]) == pytest.approx(next(given), abs=1e-5)
    assert len(traces) == 1
    if leaves:
        batch = jax.tree.map(lambda leaf: jax.numpy.asarray([leaf, leaf], "float32"), op)
        value, weights, gradient = jax.jit(jax.vmap(call, in_axes=(0, None, None)))(batch, q, selector)
        assert len(traces) == 2
        for answer in (value, weights, gradient):
            assert np.array_equal(np.asarray(answer)[0], np.asarray(answer)[1])
        assert np.asarray(value)[0] == pytest.approx(op(Q, SELECTOR), abs=1e-5)


@ENTRIES
def test_a_row_with_no_legal_action_is_nan_under_tracing(entry):
    jax = pytest.importorskip("jax")
    op = example(entry)
    q = jax.numpy.asarray(np.where([[True], [False], [True]], Q, -np.inf), "float32")
    for result in jax.jit(lambda q: (op(q, q), op.weights(q), op.gradient(q, q)))(q):
        flat = np.asarray(result).reshape(3, -1)
        assert not np.any(np.isnan(flat[[0, 2]])) and np.all(np.isnan(flat[1]))


@ENTRIES
def test_nan_is_not_hidden_and_leading_axes_are_free(library, entry):
    op = example(entry)
    rows = np.where([[[True, False, False]]], math.nan, Q[:1])
    assert np.isnan(np.asarray(op(library.array(rows), library.array(rows)))).all()
    assert np.isnan(np.asarray(op.weights(library.array(rows)))).all()
    if isinstance(op, doubles.Pair):
        assert np.isnan(np.asarray(op(library.array(Q[:1]), library.array(rows[0])))).all()
    cube = library.array(np.stack([Q, Q[::-1]]))
    assert np.asarray(op(cube, cube))[1, 0] == pytest.approx(
        float(op(library.array(Q[2]), library.array(Q[2]))), rel=1e-5
    )
    assert op(library.array(np.zeros((0, 3))), library.array(np.zeros((0, 3)))).shape == (0,)
