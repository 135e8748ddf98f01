"""Panels: parts of a picture that can stand in a grid, as in the paper, or each by itself, as a phone shows them."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from softbellman.report.pictures import new_figure, tidy

_SINGLE = (5.2, 3.9)  # inches of 72 points: on a phone, about its true size


class Panel(NamedTuple):
    """A part of a picture: its title, and a function that draws it on an axis of Matplotlib's."""

    title: str
    draw: Callable[[Any], None]


def compose(rows: Sequence[Sequence[Panel]], title: str) -> Any:
    """Draw panels in a grid, a legend of all of them below."""
    width, height = max(map(len, rows)), len(rows)
    figure = new_figure(max(3.3 * width, 5.0), 2.7 * height + 0.9)
    axes = figure.subplots(height, width, squeeze=False)
    for row, panels in zip(axes, rows, strict=True):
        for axis, panel in itertools.zip_longest(row, panels):
            if panel is None:
                axis.set_axis_off()
                continue
            _draw(axis, panel)
    _add_legend(figure)
    figure.suptitle(title, fontsize="medium", wrap=True)
    return figure


def alone(panel: Panel) -> Any:
    """Draw a panel as a picture of its own."""
    from matplotlib import rc_context

    with rc_context({"font.size": 11}):
        figure = new_figure(*_SINGLE)
        _draw(figure.subplots(), panel)
        _add_legend(figure)
    return figure


def draw_band(axis: Any, x: np.ndarray, values: np.ndarray, label: str, line: dict[str, Any]) -> None:
    """Draw the mean of `[seed, points]` over seeds, and one standard deviation to either side where there are two."""
    count = (~np.isnan(values)).sum(axis=0)
    if not count.any():
        return
    shown = count > 0
    middle = np.full(len(x), np.nan)
    middle[shown] = np.nanmean(values[:, shown], axis=0)
    axis.plot(x, middle, **line, linewidth=1.6, label=label)
    spread = np.full(len(x), np.nan)
    several = count > 1
    spread[several] = np.nanstd(values[:, several], axis=0, ddof=1)
    low = middle - spread
    if axis.get_yscale() == "log":  # a band that reaches 0 goes on beyond the picture
        low = np.where(low > 0, low, np.nanmin(middle) / 10)
    axis.fill_between(x, low, middle + spread, color=line["color"], alpha=0.15, linewidth=0)


def _draw(axis: Any, panel: Panel) -> None:
    tidy(axis)
    panel.draw(axis)
    axis.set_title(panel.title, fontsize="medium")
    if not axis.has_data():
        axis.text(0.5, 0.5, "no run counts yet", transform=axis.transAxes, ha="center", color="0.5")


def _add_legend(figure: Any) -> None:
    """Name what the axes show, below them, in as many columns as fit."""
    found = {
        label: handle for axis in figure.axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if found:
        longest = max(map(len, found))
        columns = max(1, int(figure.get_figwidth() * 72 // (36 + 5.2 * longest)))  # points, of small letters
        figure.legend(
            found.values(), found.keys(), loc="outside lower center", ncols=columns, frameon=False, fontsize="small"
        )
