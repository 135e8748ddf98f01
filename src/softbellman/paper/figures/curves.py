"""Figures over training: a row of panels for each quantity and set of arms, a column for each game.

A curve is the mean over seeds, its band one standard deviation to either side, as in the paper; x counts agent steps.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from softbellman.analysis.statistics import known_mean
from softbellman.paper.arms import ARMS, WHOLE, candidates, readings, take
from softbellman.paper.figures.panels import Panel, draw_band
from softbellman.paper.results import Results, deviation
from softbellman.report.pictures import look, thousands

BY_TAU = ()
"""No arms: S-DDQN with each tau of the grid instead, and DDQN, whose tau is infinite."""


class Quantity(NamedTuple):
    """A column of `metrics.csv`, and how it is called and drawn.

    Attributes:
        column: its name.
        label: what it is.
        log: it is drawn on a logarithmic axis.
    """

    column: str
    label: str
    log: bool = False


SCORE = Quantity("test_return", "test score")
VALUE = Quantity("held_out_value", "estimated Q-value")
NORM = Quantity("gradient_norm", "gradient norm, mean of norms", log=True)
NORM_OF_MEAN = Quantity("gradient_norm_of_mean", "gradient norm, norm of the mean", log=True)
VARIANCE = Quantity("gradient_variance", "gradient variance", log=True)


class Row(NamedTuple):
    """A row of panels: a quantity, and the arms that are compared, or `BY_TAU`."""

    quantity: Quantity
    arms: tuple[str, ...]


class _Line(NamedTuple):
    """A curve of one game.

    Attributes:
        label: its name.
        reading: how its parameter was chosen; a dash where nothing is chosen.
        operators: the operators behind it.
        values: `[seed, phase]`.
        number: the number of its look.
    """

    label: str
    reading: str
    operators: str
    values: np.ndarray
    number: int


def arms(rows: Sequence[Row]) -> tuple[str, ...]:
    """List the arms that the rows need."""
    return tuple(dict.fromkeys(arm for row in rows for arm in (("S-DDQN", "DDQN") if row.arms == BY_TAU else row.arms)))


def analyse(rows: Sequence[Row], results: Results) -> list[dict[str, Any]]:
    """Tabulate what the figure ends with: of each quantity and curve the last phases, and the best, with deviations."""
    found, late = {}, slice(-results.scale.final_phases, None)
    for row in rows:
        for game, name in enumerate(results.scale.games):
            for reading in (WHOLE,) if row.arms == BY_TAU else readings(results.scale):
                for line in _lines(row, results, game, reading):
                    runs = results.late(line.values)
                    found[name, row.quantity, line.label, line.reading] = {
                        "game": name,
                        "quantity": row.quantity.label,
                        "method": line.label,
                        "parameter": line.reading,
                        "operators": line.operators,
                        "runs": int((~np.isnan(runs)).sum()),
                        "mean": float(known_mean(runs)),
                        "mean sd": deviation(runs),
                        "sd all": deviation(line.values[:, late]),
                        "largest": float(known_mean(_extreme(line.values))),
                    }
    return list(found.values())


def panels(rows: Sequence[Row], results: Results) -> list[list[Panel]]:
    """Make the panels of the rows that are drawn: the parameter is chosen as verdicts have it."""
    games = range(len(results.scale.games))
    return [[Panel(_title(row, results, game), partial(_draw, row, results, game)) for game in games] for row in rows]


def _title(row: Row, results: Results, game: int) -> str:
    arms = "" if row.arms == BY_TAU or len(row.arms) > 2 else f": {' and '.join(row.arms)}"
    return results.scale.games[game].replace("_", " ") + arms


def _draw(row: Row, results: Results, game: int, axis: Any) -> None:
    if row.quantity.log:
        axis.set_yscale("log")
    for line in _lines(row, results, game, WHOLE):
        draw_band(axis, results.agent_steps, line.values, line.label, look(line.number).line)
    axis.set(xlabel="agent steps", ylabel=row.quantity.label, xlim=(0, results.agent_steps[-1]))
    axis.xaxis.set_major_formatter(thousands)


def _lines(row: Row, results: Results, game: int, reading: str) -> list[_Line]:
    values, lines = results.columns[row.quantity.column], []
    if row.arms == BY_TAU:
        for number, spec in enumerate((*candidates(results.scale, "S-DDQN"), "double(max)")):
            tau = "∞" if spec == "double(max)" else f"{results.scale.parameters[number]:g}"
            lines.append(_Line(f"τ = {tau}", "-", spec, results.of(spec, values)[game], number))
        return lines
    for name in row.arms:
        arm, chosen = take(results, name, reading), reading if "{" in ARMS[name] else "-"
        lines.append(_Line(name, chosen, arm.described(game), arm.of(values)[game], list(ARMS).index(name)))
    return lines


def _extreme(values: np.ndarray) -> np.ndarray:
    """Return the largest of `[seed, phase]` over phases; NaN of a seed without any."""
    known = ~np.isnan(values)
    return np.where(known.any(axis=1), np.max(values, axis=1, initial=-np.inf, where=known), np.nan)
