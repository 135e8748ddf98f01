"""Figures 2 and 7: what is drawn, where, and that it is what was measured."""

import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.paper.figures import simulations
from softbellman.paper.figures.simulations import draw_bias, draw_comparison, draw_temperatures
from softbellman.simulation import compare, measure
from softbellman.temperature import temperatures

PAPERS = ["max", "double(max)"] + [
    f"{kind.format(tau)}" for tau in (1, 5) for kind in ("softmax({})", "double(softmax({}))")
]


@pytest.fixture
def drawn(monkeypatch):
    """Every figure that is drawn, after it was saved."""
    figures, save = [], simulations.save_picture

    def keep(figure, path):
        figures.append(figure)
        return save(figure, path)

    monkeypatch.setattr(simulations, "save_picture", keep)
    return figures


def cells_of(specs, actions=(2, 8)):
    return [cell for m in actions for cell in measure([ops.parse(spec) for spec in specs], np.zeros(m), trials=20)]


def test_figure_2_has_a_panel_for_each_tau_with_all_four_series(drawn, tmp_path):
    cells = cells_of(PAPERS)
    path = draw_bias(cells, tmp_path / "new" / "bias.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    (figure,) = drawn
    assert [axis.get_title() for axis in figure.axes] == ["τ = 1", "τ = 5"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["max", "double(max)", "softmax", "double(softmax)"]
    for axis, tau in zip(figure.axes, (1, 5), strict=True):
        assert [label.get_text() for label in axis.get_xticklabels()] == ["2", "8"]
        for spec, series in zip(
            ("max", "double(max)", f"softmax({tau})", f"double(softmax({tau}))"), axis.containers, strict=True
        ):
            shown = [cell.overestimation for cell in cells if str(cell.operator) == spec]
            means, _, (bars,) = series
            assert means.get_ydata().tolist() == [summary.mean for summary in shown]
            lengths = [top - bottom for (_, bottom), (_, top) in bars.get_segments()]
            assert lengths == pytest.approx([2 * summary.std for summary in shown])
            assert np.allclose(means.get_xdata(), [2, 8], rtol=0.2)


def test_temperatures_have_a_panel_for_each_correlation(drawn, tmp_path):
    found = temperatures(sigmas=(2.0, 0.5), correlations=(0.0, 1.0), trials=200)
    draw_temperatures(found, tmp_path / "a.png")
    (figure,) = drawn
    assert [axis.get_title() for axis in figure.axes] == ["noise correlated by 0", "noise correlated by 1"]
    independent, shared = figure.axes
    for line, name in zip(independent.lines, ("unbiased", "noise", "match"), strict=True):
        assert line.get_xdata().tolist() == [0.5, 2.0]
        assert list(line.get_ydata()) == [getattr(each, name).tau * each.sigma for each in (found[1], found[0])]
    assert [len(line.get_xdata()) for line in shared.lines] == [2, 0, 0]  # where nothing is seen, the choice is max


def test_any_operators_can_be_drawn(drawn, tmp_path):
    draw_bias(cells_of(["max", "mean"]), tmp_path / "a.svg")
    draw_bias(cells_of(["mellowmax(5)", "softmax(5)", "softmax(1)"]), tmp_path / "b.pdf")
    without, mixed = drawn
    assert [axis.get_title() for axis in without.axes] == [""]
    assert [axis.get_title() for axis in mixed.axes] == ["τ = 1", "ω = 5", "τ = 5"]


def test_a_picture_is_the_same_when_it_is_drawn_again(tmp_path):
    cells = cells_of(PAPERS)
    first, second = (draw_bias(cells, tmp_path / name).read_bytes() for name in ("a.png", "b.png"))
    assert first == second


def test_figure_7_has_approximation_left_and_overestimation_right(drawn, tmp_path):
    families = {"softmax": ops.softmax, "mellowmax": ops.mellowmax}
    curves = [curve for m in (2, 10) for curve in compare(families, [0.01, 5.0, 100.0], m, trials=20)]
    draw_comparison(curves, tmp_path / "comparison.png")
    left, right = drawn[0].axes
    assert "approximation error" in left.get_title()
    assert "overestimation" in right.get_title()
    for curve, error, over in zip(curves, left.lines, right.lines, strict=True):
        assert tuple(error.get_xdata()) == curve.parameters
        assert list(error.get_ydata()) == [cell.approximation_error.mean for cell in curve.cells]
        assert list(over.get_ydata()) == [cell.overestimation.mean for cell in curve.cells]
    assert left.lines[0].get_color() == left.lines[1].get_color() != left.lines[2].get_color()
    assert left.lines[0].get_linestyle() == left.lines[2].get_linestyle() != left.lines[1].get_linestyle()
    assert len(drawn[0].legends[0].get_texts()) == 4
