"""Code and tables of docs/operators.md are true."""

import csv
import importlib.util
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.operators.table import TABLE

from ..pages import read_page, run_page
from .test_laws import Coarse

PAGE, BLOCKS = read_page("operators.md")


@pytest.fixture(scope="module")
def names():
    """Everything that the page defines."""
    with run_page(BLOCKS, "mine", tolerance=5e-5) as (defined, promises):
        assert promises == 8
        yield defined


def test_the_table_of_laws():
    columns = {
        "max": ops.maximum(),
        "mean": ops.mean(),
        "softmax": ops.softmax(5),
        "mellowmax": ops.mellowmax(5),
        "keep": ops.keep(0.1),
        "double": ops.double(ops.softmax(5)),
    }
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.split("## Laws")[1].split("## An operator")[0], re.MULTILINE)
    assert [law for law, _ in rows] == [field.name for field in fields(ops.Laws)]
    for law, cells in rows:
        for op, cell in zip(columns.values(), cells.split(" | "), strict=True):
            assert getattr(op.laws, law) == {"yes": True, "no": False}[cell]


def test_the_table_of_tolerances():
    names = [field.name for field in fields(ops.Laws)]
    rows = re.findall(r"^\| (.*?) \| \$.*?\$ \| (\S+) \| (\S+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    shown = {law: next(row[1:] for row in rows if f"`{law}`" in row[0] or row[0] == "all others") for law in names}
    for column, op in enumerate((ops.maximum(), Coarse(1.0))):
        report = ops.check_operator(op, trials=40)
        assert all(report[law].tolerance == pytest.approx(float(shown[law][column]), rel=0.05) for law in names)


def test_the_example_is_short():
    example = BLOCKS[-1]
    assert len(example[example.index("@ops.operator") :].splitlines()) < 20


def test_the_example_averages_the_best(names):
    op = names["TopMean"](2)
    assert op(np.array([[1.0, 5.0, 3.0], [0.0, -1.0, -2.0]])).tolist() == [4.0, -0.5]
    assert op([9.0, 1.0, 2.0], where=np.array([False, True, True])) == 1.5
    assert op.weights([1.0, 5.0, 3.0]).tolist() == [0, 0.5, 0.5]
    assert op([3.0, 1.0, 1.0]) == ops.top_k(2)([3.0, 1.0, 1.0]) == 2.0
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


@pytest.fixture(scope="module")
def gallery():
    path = Path(__file__).parents[2] / "docs" / "gallery.py"
    spec = importlib.util.spec_from_file_location("gallery", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_gallery_is_what_the_table_of_operators_makes(gallery):
    assert gallery.page(PAGE) == PAGE, "python docs/gallery.py"
    there = (gallery.DOCS / "operators.svg").read_text()
    drawn = gallery.picture()
    numbers = re.compile(r"-?\d+\.\d")
    assert numbers.sub("#", drawn) == numbers.sub("#", there), "python docs/gallery.py"
    ours, theirs = ([float(number) for number in numbers.findall(text)] for text in (drawn, there))
    assert ours == pytest.approx(theirs, abs=0.2)  # another processor may round a tenth of a pixel


def test_what_was_measured_is_within_what_is_said(gallery):
    """Five times softmax; where roots are found, or an integral, forty."""
    with gallery.SPEEDS.open() as file:
        ratios = {row["operator"]: float(row["to_softmax"]) for row in csv.DictReader(file)}
    assert ratios.keys() == TABLE.keys()
    for name, ratio in ratios.items():
        assert ratio <= (40 if name in ("keep", "entmax", "barrier", "mellowmax", "perturbed", "weighted") else 5), name
