"""Pictures of a study's quantities against the parameter of its operators."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from softbellman.analysis.sweeps import Point, Sweep
from softbellman.report.pictures import look, panels, tidy
from softbellman.report.wording import significant
from softbellman.training.metrics import Panel

DRAWN = ("test_return", "overestimation", "gradient_norm", "action_gap", "value_error", "value_bias", "policy_loss")
"""The quantities, by their columns: what a parameter is chosen for, and what tells why."""
MOST_TICKS = 8  # of parameters that are each named on an axis
MOST_UNITLESS = 5  # of products with a gap, whose digits are more, on the axis above


class Beside(NamedTuple):
    """The first operator of a study where it is in no sweep, as a line to hold the others against.

    Attributes:
        operator: its name.
        gap: its action gap, the unit of the upper axis; NaN: not known.
    """

    operator: str
    gap: float


def drawn() -> dict[str, Panel]:
    """Returns the panels of these quantities by their columns."""
    of = panels()
    return {column: of[column] for column in DRAWN}


def draw_sweeps(
    axis: Any, panel: Panel, found: Sequence[tuple[int, Sweep]], points: Mapping[str, Point], beside: Beside | None
) -> bool:
    """Draws a quantity against the parameter, a line for each family, bars for the intervals.

    Args:
        axis: where to.
        panel: the quantity.
        found: the sweeps, each with the number of its look.
        points: the quantity by operator.
        beside: the operator to hold them against.

    Returns:
        True if an interval is wider than what is shown.
    """
    ends, means = [], []
    for number, sweep in found:
        shown = [points[name] for name in sweep.operators]
        mean = np.array([point.mean for point in shown])
        low, high = np.array([point.interval or (np.nan, np.nan) for point in shown]).T
        style = look(number)
        axis.plot(sweep.parameters, mean, **style.line, marker="o", markersize=4, linewidth=1.6, label=sweep.family)
        axis.vlines(sweep.parameters, low, high, color=style.colour, alpha=0.5, linewidth=1.4)
        ends += [low, high]
        means.append(mean)
    if beside is not None and np.isfinite((point := points[beside.operator]).mean):
        axis.axhline(point.mean, color="0.35", linewidth=1.2, linestyle="--", label=beside.operator)
        if point.interval is not None:
            axis.axhspan(*point.interval, color="0.5", alpha=0.12, linewidth=0)
            ends.append(np.array(point.interval))
        means.append(np.array([point.mean]))
    parameters = np.unique(np.concatenate([sweep.parameters for _, sweep in found]))
    axis.set_xscale("log" if parameters.min() > 0 else "symlog")
    named = parameters[:: -(-len(parameters) // MOST_TICKS)]
    axis.set_xticks(named, [f"{value:g}" for value in named])
    axis.minorticks_off()
    axis.set(xlabel="parameter", ylabel=panel.label)
    have_a_unit = all(sweep.is_inverse_temperature for _, sweep in found)
    if beside is not None and beside.gap > 0 and parameters.min() > 0 and have_a_unit:
        upper = axis.secondary_xaxis("top")
        apart = named[:: -(-len(named) // MOST_UNITLESS)]
        upper.set_xticks(apart, [significant(value * beside.gap, 2) for value in apart])
        upper.minorticks_off()
        upper.set_xlabel(f"parameter times the action gap of {beside.operator}, {beside.gap:.2g}", fontsize=10)
    tidy(axis)
    axis.legend(frameon=False, fontsize=10, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return _bounded(axis, np.concatenate(means), np.concatenate(ends))


def _bounded(axis: Any, means: np.ndarray, ends: np.ndarray) -> bool:
    """Shows the means with a wide margin, so that one wild interval does not flatten all; says if any goes beyond."""
    known = means[np.isfinite(means)]
    if not len(known):
        return False
    margin = 0.6 * (known.max() - known.min()) or 0.5 * abs(known.max()) or 0.5
    low, high = known.min() - margin, known.max() + margin
    seen = ends[np.isfinite(ends)]
    bottom, top = min(seen.min(initial=np.inf), known.min()), max(seen.max(initial=-np.inf), known.max())
    axis.set_ylim(max(low, bottom - 0.05 * margin), min(high, top + 0.05 * margin))
    return bool((seen < low).any() or (seen > high).any())
