"""Drawings of Figures 2 and 7 from simulated cells, and of temperatures."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from softbellman.operators import family
from softbellman.paper.figures.panels import Panel
from softbellman.report.pictures import COLOURS, new_figure, save_picture, tidy
from softbellman.simulation import Cell, Curve, parameter
from softbellman.temperature import Temperature

_SIGNS = {"tau": "τ", "omega": "ω"}
_MARKERS = "osD^vP*X"
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))


def draw_bias(cells: Sequence[Cell], path: str | Path) -> Path:
    """Draw overestimation over the number of actions: Figure 2.

    One panel for each parameter among the operators, from left to right; those without a parameter, such as max,
    are in all of them. A mark is the mean, a bar one standard deviation of a trial to either side.

    Args:
        cells: as `measure` gives them, for one or more numbers of actions.
        path: where the picture goes; its ending chooses the format.

    Returns:
        `path`.
    """
    return _drawn(bias_panels(cells), 4.2, 4, path)


def bias_panels(cells: Sequence[Cell]) -> list[Panel]:
    """Make the panels of Figure 2: see `draw_bias`."""
    parameters = {named for cell in cells if (named := parameter(cell.operator)) is not None}
    return [
        Panel(_title(panel), partial(_draw_bias, cells, panel))
        for panel in sorted(parameters, key=lambda named: (named[1], named[0])) or [None]
    ]


def _draw_bias(cells: Sequence[Cell], panel: tuple[str, float] | None, axis: Any) -> None:
    families = list(dict.fromkeys(family(str(cell.operator)) for cell in cells))
    actions = sorted({cell.actions for cell in cells})
    for number, name in enumerate(families):
        shown = [
            cell
            for cell in sorted(cells, key=lambda cell: cell.actions)
            if family(str(cell.operator)) == name and parameter(cell.operator) in (panel, None)
        ]
        aside = 2 ** (0.13 * (number - (len(families) - 1) / 2))  # so that the bars stand beside each other
        axis.errorbar(
            [cell.actions * aside for cell in shown],
            [cell.overestimation.mean for cell in shown],
            [cell.overestimation.std for cell in shown],
            **_style(number),
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=3.5,
            linewidth=0.8,
            elinewidth=1.2,
            label=name,
        )
    axis.set_xscale("log", base=2)
    axis.set_xticks(actions, [str(number) for number in actions])
    axis.tick_params(axis="x", labelsize="x-small", which="both")
    axis.axhline(0.0, color="0.5", linewidth=0.8, zorder=0)
    axis.set(xlabel="number of actions", ylabel="overestimation error")


def draw_comparison(curves: Sequence[Curve], path: str | Path) -> Path:
    """Draw the two errors over `tau` or `omega`: Figure 7, left the approximation error, right the overestimation.

    A colour for each number of actions, a kind of line for each family, means over the trials.

    Args:
        curves: as `compare` gives them, for one or more numbers of actions.
        path: where the picture goes; its ending chooses the format.

    Returns:
        `path`.
    """
    return _drawn(comparison_panels(curves), 5.2, len({curve.actions for curve in curves}), path)


def comparison_panels(curves: Sequence[Curve]) -> list[Panel]:
    """Make the panels of Figure 7: see `draw_comparison`."""
    return [
        Panel(title, partial(_draw_comparison, curves, quantity))
        for title, quantity in (
            ("approximation error to the max", "approximation_error"),
            ("overestimation error", "overestimation"),
        )
    ]


def _draw_comparison(curves: Sequence[Curve], quantity: str, axis: Any) -> None:
    families = list(dict.fromkeys(curve.family for curve in curves))
    actions = sorted({curve.actions for curve in curves})
    for curve in curves:
        axis.plot(
            curve.parameters,
            [getattr(cell, quantity).mean for cell in curve.cells],
            color=_style(actions.index(curve.actions))["color"],
            linestyle=_DASHES[families.index(curve.family) % len(_DASHES)],
            label=f"{curve.family}, {curve.actions:,} actions",
        )
    axis.set(xlabel="τ or ω", xlim=(0, None), ylim=(min(0.0, axis.get_ylim()[0]), None))


def draw_temperatures(found: Sequence[Temperature], path: str | Path) -> Path:
    """Draw tau times sigma over sigma, one panel for each correlation: without bias, and as controllers choose it.

    Args:
        found: as `temperatures` gives them.
        path: where the picture goes; its ending chooses the format.

    Returns:
        `path`.
    """
    correlations = list(dict.fromkeys(each.correlation for each in found))
    figure, axes = _figure(len(correlations), width=4.2)
    for correlation, axis in zip(correlations, axes, strict=True):
        own = sorted((each for each in found if each.correlation == correlation), key=lambda each: each.sigma)
        for number, name in enumerate(("unbiased", "noise", "match")):
            chosen = [(each.sigma, choice.tau * each.sigma) for each in own if (choice := getattr(each, name))]
            sigmas, taus = np.array([point for point in chosen if np.isfinite(point[1])]).reshape(-1, 2).T
            label = {"unbiased": "without bias"}.get(name, name)
            axis.plot(sigmas, taus, **_style(number), marker=_MARKERS[number], markersize=4, linewidth=1.2, label=label)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.minorticks_off()
        axis.set_xticks([each.sigma for each in own], [f"{each.sigma:g}" for each in own])
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set_yticks((0.2, 0.5, 1, 2, 5))
        axis.set(title=f"noise correlated by {correlation:g}", xlabel="sigma, the noise of either network")
    axes[0].set_ylabel("τ times sigma")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return save_picture(figure, path)


def _title(panel: tuple[str, float] | None) -> str:
    return "" if panel is None else f"{_SIGNS.get(panel[0], panel[0])} = {panel[1]:g}"


def _style(number: int) -> dict[str, Any]:
    return {"color": COLOURS[number % len(COLOURS)]}


def _drawn(panels: Sequence[Panel], width: float, columns: int, path: str | Path) -> Path:
    """Draw panels beside each other, `width` inches each, with a legend of so many columns, into a file."""
    figure, axes = _figure(len(panels), width)
    for panel, axis in zip(panels, axes, strict=True):
        panel.draw(axis)
        axis.set(title=panel.title)
        axis.label_outer()
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)
    return save_picture(figure, path)


def _figure(panels: int, width: float) -> tuple[Any, Any]:
    figure = new_figure(width * panels, 3.8)
    axes = np.atleast_1d(figure.subplots(1, panels, sharey=True))
    for axis in axes:
        tidy(axis)
    return figure, axes
