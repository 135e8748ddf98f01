"""Operators in JAX's transformations: how often they compile, and that JAX is not loaded for them."""

import itertools
import pickle
import subprocess
import sys
from dataclasses import field

import numpy as np
import pytest

from softbellman import operators as ops

jax = pytest.importorskip("jax")
jnp = jax.numpy

Q = np.array([[0.3, -1.2, 0.9, 0.1], [2.0, 1.0, -3.0, 0.5]], dtype=np.float32)
BUILDERS = {
    "softmax": ops.softmax,
    "double(mellowmax)": lambda omega: ops.double(ops.mellowmax(omega)),
}


class CountedCall:
    """A function of an operator and values that counts how often it is traced."""

    def __init__(self):
        self.traces = 0

    def __call__(self, op, q):
        self.traces += 1
        return op(q, q), op.weights(q), op.gradient(q, q)


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_a_new_parameter_compiles_nothing(build):
    call = CountedCall()
    compiled = jax.jit(call)
    for rate in (0.0, 0.5, 5.0, 1e30, 3):
        for ours, eager in zip(compiled(build(rate), Q), call.__class__()(build(rate), Q), strict=True):
            assert np.asarray(ours) == pytest.approx(eager, abs=3e-6)
    assert call.traces == 1


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_a_batch_of_parameters_is_one_compilation(build):
    """`vmap` over the parameter itself, and over an operator whose parameter is an array."""
    call, rates = CountedCall(), jnp.array([0.0, 1.0, 5.0, 1e30])
    values = jax.jit(jax.vmap(lambda rate: call(build(rate), jnp.asarray(Q))[0]))(rates)
    assert call.traces == 1
    again = jax.jit(jax.vmap(CountedCall(), in_axes=(0, None)))(build(rates), jnp.asarray(Q))[0]
    for rate, row, same in zip(rates, values, again, strict=True):
        assert np.asarray(row) == pytest.approx(np.asarray(build(float(rate))(Q, Q)), abs=3e-6)
        assert np.asarray(row) == pytest.approx(np.asarray(same), abs=1e-6)


def test_parameters_are_leaves_and_structure_is_static():
    assert jax.tree.leaves(ops.double(ops.softmax(5.0))) == [5.0]
    assert jax.tree.leaves(ops.double(ops.maximum())) == []
    doubled = jax.tree.map(lambda rate: 2 * rate, ops.double(ops.mellowmax(3.0)))
    assert doubled == ops.double(ops.mellowmax(6.0))


SINGLE = [ops.maximum(), ops.mean(), ops.softmax(5.0), ops.mellowmax(5.0)]


@pytest.mark.parametrize(
    ("one", "other"), list(itertools.combinations([*SINGLE, *map(ops.double, SINGLE)], 2)), ids=str
)
def test_operators_of_two_kinds_never_have_one_structure(one, other):
    """Compiled functions are kept by structure: a comparison that took two kinds for one would mix them up."""
    assert jax.tree.structure(one) != jax.tree.structure(other)
    assert jax.tree.structure(one) == jax.tree.structure(jax.tree.map(lambda rate: 2 * rate, one))


def test_static_fields_shape_the_computation():
    @ops.operator
    class Some(ops.Operator):
        rate: float
        count: int = field(default=1, metadata={"static": True})

        def policy(self, row):
            return row.boltzmann(row.constant(self.rate)) if self.count == 1 else row.normalise(row.xp.ones_like(row.z))

    call = CountedCall()
    compiled = jax.jit(call)
    for op in (Some(1.0), Some(2.0), Some(1.0, 2), Some(3.0, 2)):
        compiled(op, Q)
    assert call.traces == 2
    assert jax.tree.leaves(Some(1.0, 2)) == [1.0]


@pytest.mark.parametrize("op", [ops.maximum(), ops.mellowmax(2.0)], ids=str)
def test_vmap_over_rows_is_the_batch(op):
    for op_or_double in (op, ops.double(op)):
        rows = jax.vmap(op_or_double)(jnp.asarray(Q), jnp.asarray(Q[::-1].copy()))
        assert np.asarray(rows) == pytest.approx(np.asarray(op_or_double(Q, Q[::-1])), abs=1e-6)


def test_a_shared_mask_needs_no_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        for op in (ops.maximum(), ops.mellowmax(2.0)):
            for op_or_double in (op, ops.double(op)):
                mask = jnp.array([True, False, True, True])
                op_or_double(jnp.asarray(Q), jnp.asarray(Q), mask)
                op_or_double.weights(jnp.asarray(Q), mask)
                op_or_double.gradient(jnp.asarray(Q), jnp.asarray(Q), mask)


def test_a_rate_for_each_row():
    rates = np.array([[0.5], [5.0]], dtype=np.float32)
    values = ops.softmax(jnp.asarray(rates))(jnp.asarray(Q))
    assert np.asarray(values) == pytest.approx(np.stack([ops.softmax(0.5)(Q[0]), ops.softmax(5)(Q[1])]), rel=1e-6)


def test_operators_are_values():
    op = ops.double(ops.softmax(5.0))
    assert op == ops.double(ops.softmax(5)) and hash(op) == hash(ops.double(ops.softmax(5)))
    assert op != ops.double(ops.softmax(6.0))
    assert pickle.loads(pickle.dumps(op)) == op
    with pytest.raises(AttributeError, match="cannot assign"):
        op.op.tau = 1.0


def run_python(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_and_using_operators_loads_neither_jax_nor_torch():
    run_python(
        "import sys; from softbellman import operators as ops; ops.double(ops.mellowmax(5.0))([1.0, 2.0], [2.0, 1.0]); "
        "ops.parse('softmax:5').gradient([1.0, 2.0]); ops.check_operator(ops.maximum(), trials=10); "
        "assert not {'jax', 'torch'} & set(sys.modules)"
    )


@pytest.mark.parametrize("then", ["ops.register_pytrees()", "ops.maximum()", "op([1.0, 2.0])"])
def test_operators_made_before_jax_is_imported_become_pytrees(then):
    run_python(
        "from softbellman import operators as ops; op = ops.softmax(5.0); import jax; "
        f"{then}; assert jax.tree.leaves(op) == [5.0]"
    )
