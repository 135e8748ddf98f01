"""Pictures against the parameter: a line for each family, the first operator beside them, on any study."""

import numpy as np
import pytest

from softbellman.analysis.sweeps import Point, Sweep
from softbellman.report.by_parameter import Beside, draw_sweeps, drawn
from softbellman.report.pictures import new_figure
from softbellman.training.metrics import rare

from ..studies import synthetic

TAUS = tuple(f"softmax({tau})" for tau in (1, 10, 100))


def test_the_page_has_a_picture_for_each_quantity_and_none_without_a_sweep(tmp_path):
    study = synthetic(tmp_path / "study", operators=("max", *TAUS), seeds=(0, 1, 2), phases=4)
    page = study.report().read_text()
    titles = [f"{panel.title} by parameter" for column, panel in drawn().items() if column not in rare()]
    assert len(titles) == 4 and all(title in page for title in titles)
    figures = list((tmp_path / "study" / "report" / "figures").glob("*by-parameter.svg"))
    assert len(figures) == 4
    other = synthetic(tmp_path / "other", operators=("max", *TAUS[:2]), seeds=(0, 1), phases=4)
    assert "by parameter" not in other.report().read_text()


def test_a_quantity_that_nothing_has_measured_is_left_out(tmp_path):
    values = {"gradient_norm": None}
    study = synthetic(tmp_path / "study", operators=("max", *TAUS), seeds=(0, 1), phases=4, values=values)
    page = study.report().read_text()
    assert "Gradient norm by parameter" not in page and "Action gap by parameter" in page


def axis_of(points, parameters=(1.0, 10.0, 100.0), beside=None, family="softmax"):
    axis = new_figure(4, 3).subplots()
    cut = draw_sweeps(axis, drawn()["test_return"], [(1, Sweep(family, TAUS, np.array(parameters)))], points, beside)
    return axis, cut


def test_the_first_operator_is_a_line_and_its_gap_the_upper_unit():
    points = {name: Point(mean, (mean - 1, mean + 1)) for name, mean in zip(TAUS, (1.0, 3.0, 2.0), strict=True)}
    axis, cut = axis_of(points | {"max": Point(2.5, (2.0, 3.0))}, beside=Beside("max", 0.25))
    assert not cut
    line, beside = axis.lines[0], axis.lines[-1]
    assert line.get_xdata().tolist() == [1, 10, 100] and line.get_ydata().tolist() == [1, 3, 2]
    assert set(beside.get_ydata()) == {2.5}
    (upper,) = axis.child_axes
    assert upper.get_xlabel() == "parameter times the action gap of max, 0.25"
    assert [text.get_text() for text in axis.get_xticklabels()] == ["1", "10", "100"]
    assert [text.get_text() for text in upper.get_xticklabels()] == ["0.25", "2.5", "25"]
    low, high = axis.get_ylim()
    assert low <= 0 and high >= 4


def test_the_interval_of_the_first_operator_is_shown_or_told_to_go_on():
    points = {name: Point(mean, (mean - 0.1, mean + 0.1)) for name, mean in zip(TAUS, (4.0, 4.2, 4.1), strict=True)}
    axis, cut = axis_of(points | {"max": Point(4.1, (3.95, 4.25))}, beside=Beside("max", 0.25))
    low, high = axis.get_ylim()
    assert not cut and low < 3.95 and high > 4.25
    _, cut = axis_of(points | {"max": Point(4.1, (1.0, 7.2))}, beside=Beside("max", 0.25))
    assert cut


@pytest.mark.parametrize("beside", [None, Beside("max", 0.0), Beside("max", float("nan"))])
def test_without_a_gap_there_is_no_upper_axis(beside):
    points = {name: Point(1.0, None) for name in (*TAUS, "max")}
    axis, cut = axis_of(points, beside=beside)
    assert not axis.child_axes and not cut


@pytest.mark.parametrize(
    ("family", "shown"),
    [
        ("softmax", True),
        ("double(mellowmax)", True),
        ("softmax, returns=3", True),
        ("keep", False),
        ("entmax", False),
        ("mine:sharp", False),
    ],
)
def test_only_an_inverse_temperature_is_multiplied_by_a_gap(family, shown):
    points = {name: Point(1.0, None) for name in (*TAUS, "max")}
    axis, _ = axis_of(points, beside=Beside("max", 0.25), family=family)
    assert bool(axis.child_axes) == shown


def test_a_wild_interval_does_not_flatten_the_rest_and_a_parameter_may_be_0():
    points = {name: Point(mean, (mean - 1e3, mean + 1e3)) for name, mean in zip(TAUS, (1.0, 3.0, 2.0), strict=True)}
    axis, cut = axis_of(points, parameters=(0.0, 1.0, 5.0))
    assert cut and axis.get_ylim()[1] < 10 and axis.get_xscale() == "symlog"
    empty = {name: Point(float("nan"), None) for name in TAUS}
    assert axis_of(empty)[1] is False
