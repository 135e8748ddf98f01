"""What docs/operators.md shows is true."""

import re
from dataclasses import fields

import numpy as np
import pytest

from softbellman import operators as ops

from ..pages import read_page, run_page

PAGE, BLOCKS = read_page("operators.md")


@pytest.fixture(scope="module")
def names():
    """Everything that the page defines."""
    with run_page(BLOCKS, "mine", tolerance=5e-5) as (defined, promises):
        assert promises == 6
        yield defined


def test_the_table_of_laws():
    columns = {
        "max": ops.maximum(),
        "mean": ops.mean(),
        "softmax": ops.softmax(5),
        "mellowmax": ops.mellowmax(5),
        "double": ops.double(ops.softmax(5)),
    }
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.split("## Laws")[1].split("## An operator")[0], re.MULTILINE)
    assert [law for law, _ in rows] == [field.name for field in fields(ops.Laws)]
    for law, cells in rows:
        for op, cell in zip(columns.values(), cells.split(" | "), strict=True):
            assert getattr(op.laws, law) == {"yes": True, "no": False}[cell]


def test_the_example_is_short():
    example = BLOCKS[-1]
    assert len(example[example.index("@ops.operator") :].splitlines()) < 20


def test_the_example_averages_the_best(names):
    op = names["TopMean"](2)
    assert op(np.array([[1.0, 5.0, 3.0], [0.0, -1.0, -2.0]])).tolist() == [4.0, -0.5]
    assert op([9.0, 1.0, 2.0], where=np.array([False, True, True])) == 1.5
    assert op.weights([1.0, 5.0, 3.0]).tolist() == [0, 0.5, 0.5]
    assert ops.double(op)([1.0, 5.0, 3.0], [9.0, 8.0, 7.0]) == 3.0
    assert ops.check_operator(op).ok


def test_the_example_goes_by_a_spec(names):
    op = names["TopMean"](3)
    names["best_three"] = op
    for spec in ("mine:TopMean(3)", "mine:TopMean:3", "mine:best_three"):
        assert ops.parse(spec) == op
    assert ops.parse(str(ops.double(op))) == ops.double(op)
    assert str(op) == "mine:TopMean(3)"


def test_the_example_works_in_every_library(names, library):
    op, q = names["TopMean"](2), np.array([[1.0, 5.0, 3.0], [0.0, -1.0, -2.0]])
    assert np.asarray(op(library.array(q))).tolist() == [4.0, -0.5]
    assert np.asarray(op.gradient(library.array(q))).tolist() == [[0, 0.5, 0.5], [0.5, 0.5, 0]]
