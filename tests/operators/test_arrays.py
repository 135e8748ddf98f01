"""Arrays that are more than numbers: refused wherever they come in, with what to pass; those that are not are taken."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from softbellman import operators as ops
from softbellman import simulation
from softbellman.operators.arrays import flags, floats, lost_meaning
from softbellman.tabular import FiniteMDP, bounds, examples
from softbellman.tabular.iterates import iterate_both


class Metres(np.ndarray):
    """An array with a unit, as astropy and unyt make them: a subclass."""


class Quantity:
    """An array with a unit, as pint makes them: NumPy's functions are its own, and NumPy may strip it."""

    def __init__(self, magnitude):
        self.magnitude = np.asarray(magnitude)

    def __array__(self, dtype=None, copy=None):
        return self.magnitude.astype(dtype or self.magnitude.dtype)

    def __array_function__(self, function, types, args, kwargs):
        return NotImplemented


ROW = np.array([1.0, 2.0, 99.0])
MASKED = np.ma.array(ROW, mask=[False, False, True])
FOREIGN = {
    "masked": (MASKED, "a masked array, and its mask would be lost; pass its data, and the actions that are legal"),
    "unmasked": (np.ma.array(ROW), "a masked array"),
    "rows that are masked": ([MASKED, MASKED], "a masked array"),
    "a masked number": ([1.0, np.ma.masked, 3.0], "a masked array"),
    "a unit by subclass": (ROW.view(Metres), r"of .*Metres, and what that adds to numbers, such as a unit"),
    "numbers with units in lists": ([[1.0, 2.0], [ROW.view(Metres)[0:1], 2.0]], "Metres"),
    "a unit by protocol": (Quantity(ROW), "Quantity, and what that adds to numbers, such as a unit, would be lost"),
    "numbers with units": ((Quantity(1.0), Quantity(2.0)), "Quantity"),
    "matrix": (np.asmatrix(ROW), r"np.matrix, which has two axes whatever is done to it; pass np.asarray\(\) of it"),
    "records": (np.rec.array([(1.0,), (2.0,)], dtype=[("a", float)]), "recarray"),
}
DTYPES = {
    "sparse": (sparse.csr_array(ROW[None]), r"a sparse array, which is not taken here; pass its toarray\(\)"),
    "sparse matrix": (sparse.csr_matrix(ROW[None]), "a sparse array"),
    "spans of time": (np.array([1, 2, 3], "m8[s]"), "dtype timedelta64"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), "dtype datetime64"),
    "fields": (np.array([(1.0,), (2.0,)], dtype=[("a", float)]), r"dtype \[\('a', '<f8'\)\]"),
    "text": (["0.5", "1"], "dtype <U3"),
    "bytes": (np.array([b"1"]), "dtype .S1"),
    "nothing": ([None, 1.0], "dtype object"),
    "complex": (ROW + 0j, "dtype complex128"),
    "pandas with text": (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), "dtype object"),
    "pandas with spans of time": (pd.Series(pd.to_timedelta([1, 2], unit="s")), "dtype timedelta64"),
}
ANY = FOREIGN | DTYPES


def of(cases):
    return pytest.mark.parametrize(("values", "message"), cases.values(), ids=cases)


@of(ANY)
def test_operators_refuse_values_whose_meaning_would_be_lost(values, message):
    calls = [lambda op: op(values), lambda op: op.weights(values), lambda op: op.gradient(values, values)]
    for op in (ops.maximum(), ops.softmax(1.0), ops.mellowmax(1.0)):
        for call in calls:
            with pytest.raises(TypeError, match=message):
                call(op)
    for q, selector in ((values, ROW), (ROW, values)):
        with pytest.raises(TypeError, match=message):
            ops.double(ops.softmax(1.0))(q, selector)


@of(FOREIGN | {"sparse": DTYPES["sparse"]})
def test_operators_refuse_such_masks(values, message):
    with pytest.raises(TypeError, match=f"where is .*{message}"):
        ops.maximum()(ROW, where=values)


def test_masks_and_values_of_jax_are_looked_at_too():
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(TypeError, match="where is a masked array"):
        ops.maximum()(jnp.asarray(ROW), where=np.ma.array([True, True, False]))


@of(ANY)
def test_tabular_refuses_them(values, message):
    mdp = FiniteMDP(np.full((3, 2, 3), 1 / 3), np.zeros((3, 2)), 0.9)
    calls = {
        "transition": lambda: FiniteMDP([[values]], [[0.0]], 0.9),
        "reward": lambda: mdp.with_reward(values),
        "values": lambda: mdp.backup(values),
        "q": lambda: mdp.apply(ops.maximum(), values),
        "a start": lambda: mdp.values_of(ops.maximum(), values),
        "start": lambda: iterate_both(mdp, 1.0, start=values),
        "spread": lambda: bounds.smallest_gap(1.0, 3, values),
        "rewards": lambda: examples.one_state(values),
        **{f"list of {name}": lambda name=name: from_transitions(**{name: values}) for name in LISTS},
    }
    for name, call in calls.items():
        if name == "transition" and "sparse" in message:
            continue  # a list of sparse matrices has a meaning there
        with pytest.raises(ValueError, match=message if "list" not in name else f"{message}|shapes|whole numbers"):
            call()


LISTS = ("state", "action", "next_state", "probability", "reward", "terminated")


def from_transitions(**changes):
    plain = {name: [0, 1] for name in LISTS[:3]} | {name: [1.0, 1.0] for name in LISTS[3:]}
    return FiniteMDP.from_transitions(**plain | changes, num_states=2, num_actions=2, gamma=0.9)


@of(FOREIGN)
def test_each_list_of_transitions_is_looked_at(values, message):
    for name in LISTS:
        with pytest.raises(ValueError, match=f"{name.replace('_', ' ')} is .*{message}"):
            from_transitions(**{name: values})


def test_indices_and_ends_of_other_kinds_are_refused():
    for name in ("state", "action", "next_state"):
        with pytest.raises(ValueError, match="must be whole numbers"):
            from_transitions(**{name: np.array([0, 1], "m8"), "terminated": [False, False]})
    for wrong in (["False", "True"], [None, True], [0.5, 1.0], [2, 0], [np.nan, 0]):
        with pytest.raises(ValueError, match="terminated has"):
            from_transitions(terminated=wrong)


@pytest.mark.parametrize("name", ["legal", "terminal"])
@of(FOREIGN | {"sparse": DTYPES["sparse"]})
def test_masks_of_an_mdp_are_looked_at(name, values, message):
    with pytest.raises(ValueError, match=f"{name} is .*{message}"):
        FiniteMDP(np.ones((1, 1, 1)), [[0.0]], 0.9, **{name: values})


def test_sparse_matrices_of_other_numbers_are_refused():
    for form in (sparse.eye_array(2, dtype=complex), [sparse.eye_array(2, dtype=complex)]):
        with pytest.raises(ValueError, match="transition has dtype complex128"):
            FiniteMDP(form, [[0.0], [0.0]], 0.9)
    with pytest.raises(ValueError, match="reward has dtype complex128"):
        FiniteMDP([sparse.eye_array(2)], [sparse.eye_array(2, dtype=complex)], 0.9)


@of(ANY)
def test_simulations_refuse_them(values, message):
    for call in (
        lambda: simulation.measure([ops.maximum()], values),
        lambda: simulation.equivalent_omega(values, 1.0),
        lambda: simulation.equivalent_omega(ROW, values),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_span_of_time_is_no_parameter():
    with pytest.raises(TypeError, match=r"tau .*must be a number"):
        ops.softmax(np.timedelta64(5))
    with pytest.raises(TypeError, match=r"omega .*must be a number"):
        ops.mellowmax(np.timedelta64(5, "s"))


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1.0, 2.0, 99.0], index=[7, 5, 6]),
        pd.Series([1, 2, 99], dtype="Int64"),
        pd.Series([1, 2, 99], dtype="category"),
        pd.Series([1.0, 2.0, 99.0], dtype="Sparse[float]"),
        [np.float32(1), np.int8(2), 99],
        (1, 2, 99),
    ],
    ids=lambda values: str(getattr(values, "dtype", type(values).__name__)),
)
def test_labels_do_not_matter_and_values_are_taken_by_position(values):
    assert ops.mean()(values) == 34.0 and ops.mean()([values, values]).tolist() == [34.0, 34.0]
    assert floats(values, "values").tolist() == [1.0, 2.0, 99.0]


def test_columns_of_a_table_make_an_mdp():
    table = pd.DataFrame(
        {
            "state": [0, 1, 1], "action": [0, 0, 0], "next_state": [1, 0, 1], "probability": [1.0, 0.5, 0.5],
            "reward": [1, 2, 4], "terminated": [False, True, False], "comment": ["a", "b", "c"],
        }
    )  # fmt: skip
    columns = {name: table[::-1][name] for name in LISTS}
    mdp = FiniteMDP.from_transitions(**columns, num_states=2, num_actions=1, gamma=0.5)
    assert mdp.backup([0.0, 2.0]).tolist() == [[2.0], [3.5]]


def test_a_file_that_is_mapped_into_memory_is_an_array(tmp_path):
    np.save(tmp_path / "q.npy", ROW)
    assert ops.maximum()(np.load(tmp_path / "q.npy", mmap_mode="r")) == 99.0


def test_exact_numbers_are_rounded_and_flags_may_be_numbers():
    assert floats([[Fraction(1, 3), Decimal("0.5"), 10**20]], "p").tolist() == [[1 / 3, 0.5, 1e20]]
    assert FiniteMDP([[[Fraction(1, 3), Fraction(2, 3)]]] * 2, [[0], [True]], 0.9).reward.tolist() == [[0.0], [1.0]]
    for same in ([True, False], [1, 0], [1.0, 0.0], np.array([1, 0], np.uint8), pd.Series([True, False])):
        assert flags(same, "terminated").tolist() == [True, False]


def test_a_plain_array_of_float64_is_not_copied():
    assert floats(ROW, "q") is ROW and lost_meaning(ROW) is None
