"""Figures 2 and 7 of the paper: what operators make of noise, drawn from simulated cells."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softbellman.operators import Operator
from softbellman.simulation import Cell, Curve, parameter
from softbellman.study.pictures import COLOURS, new_figure, save_picture, tidy

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
    parameters = {named for cell in cells if (named := parameter(cell.operator)) is not None}
    panels = sorted(parameters, key=lambda named: (named[1], named[0])) or [None]
    families = list(dict.fromkeys(family(cell.operator) for cell in cells))
    actions = sorted({cell.actions for cell in cells})
    figure, axes = _figure(len(panels), width=4.2)
    for panel, axis in zip(panels, axes, strict=True):
        for number, name in enumerate(families):
            shown = [
                cell
                for cell in sorted(cells, key=lambda cell: cell.actions)
                if family(cell.operator) == name and parameter(cell.operator) in (panel, None)
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
        axis.tick_params(axis="x", labelsize="small", which="both")
        axis.axhline(0.0, color="0.5", linewidth=0.8, zorder=0)
        axis.set(xlabel="number of actions", title=_title(panel))
    axes[0].set_ylabel("overestimation error")
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return save_picture(figure, path)


def draw_comparison(curves: Sequence[Curve], path: str | Path) -> Path:
    """Draw the two errors over `tau` or `omega`: Figure 7, left the approximation error, right the overestimation.

    A colour for each number of actions, a kind of line for each family, means over the trials.

    Args:
        curves: as `compare` gives them, for one or more numbers of actions.
        path: where the picture goes; its ending chooses the format.

    Returns:
        `path`.
    """
    figure, axes = _figure(2, width=5.2)
    families = list(dict.fromkeys(curve.family for curve in curves))
    actions = sorted({curve.actions for curve in curves})
    for curve in curves:
        for axis, quantity in zip(axes, ("approximation_error", "overestimation"), strict=True):
            axis.plot(
                curve.parameters,
                [getattr(cell, quantity).mean for cell in curve.cells],
                color=_style(actions.index(curve.actions))["color"],
                linestyle=_DASHES[families.index(curve.family) % len(_DASHES)],
                label=f"{curve.family}, {curve.actions:,} actions",
            )
    axes[0].set(title="approximation error to the max")
    axes[1].set(title="overestimation error")
    for axis in axes:
        axis.set(xlabel="τ or ω", xlim=(0, None), ylim=(min(0.0, axis.get_ylim()[0]), None))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(actions), frameon=False)
    return save_picture(figure, path)


def family(operator: Operator) -> str:
    """Name an operator without its numbers.

    Example:
        >>> from softbellman import operators as ops
        >>> family(ops.double(ops.softmax(5)))
        'double(softmax)'
    """
    return re.sub(r"\([-+.\d][^()]*\)", "", str(operator))


def _title(panel: tuple[str, float] | None) -> str:
    return "" if panel is None else f"{_SIGNS.get(panel[0], panel[0])} = {panel[1]:g}"


def _style(number: int) -> dict[str, Any]:
    return {"color": COLOURS[number % len(COLOURS)]}


def _figure(panels: int, width: float) -> tuple[Any, Any]:
    figure = new_figure(width * panels, 3.8)
    axes = np.atleast_1d(figure.subplots(1, panels, sharey=True))
    for axis in axes:
        tidy(axis)
    return figure, axes
