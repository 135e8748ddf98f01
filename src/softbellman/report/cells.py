"""Table cells of the page, as text; each names its column, for a phone's layout."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from softbellman.analysis.findings import Across, Found, scores_of_runs
from softbellman.analysis.records import Record, Records
from softbellman.analysis.scores import Summary
from softbellman.analysis.statistics import Difference, Interval
from softbellman.report.pictures import look
from softbellman.report.wording import decimals, decimals_of_difference, ends, number, signed
from softbellman.study.store import Study

MISSING = "–"


class Operator(NamedTuple):
    """An operator or arm on the page: its number in the study, its name, its colour, the dashes of its lines."""

    number: int
    name: str
    colour: str
    dashes: str


class Cell(NamedTuple):
    """A cell: the label of its column, its value, in small print the value's interval or reason, and if it is text."""

    label: str
    value: str
    interval: str = ""
    text: bool = False


class Line(NamedTuple):
    """A row: the heading of the first column, what stands there, the operator it is about if any, the other cells."""

    heading: str
    name: str
    operator: Operator | None
    cells: list[Cell]


def operators_of(study: Study) -> dict[str, Operator]:
    """Returns the operators of a study as the page shows them, by spec."""
    shown = {}
    for position, spec in enumerate(study.operators):
        colour, dashes = look(position)
        shown[spec] = Operator(position, spec, colour, " ".join(f"{3 * length:g}" for length in dashes))
    return shown


def of_operators(found: Found, operators: dict[str, Operator]) -> list[Line]:
    """Writes the table that compares the operators of an environment."""
    baseline, lines = found.rows[0].operator, []
    digits = decimals([row.final.mean for row in found.rows])
    over_digits = decimals([summary.mean for _, summary, _ in found.overestimation])
    for row, (_, overestimation, _) in zip(found.rows, found.overestimation, strict=True):
        cells = [
            Cell("runs", f"{row.counted} of {row.asked}"),
            _mean("final score", row.final, digits),
            _difference(baseline, row.told),
            Cell("permutation p", MISSING if row.permutation is None else f"{row.permutation:.2g}"),
            _better(baseline, row.improvement, row.improvement_interval),
            _value("interquartile mean", row.final.interquartile_mean, row.final.interquartile_interval, digits),
            _mean("best", row.best, digits),
            _mean("last phase", row.last_phase, digits),
            _mean("overestimation", overestimation, over_digits),
        ]
        lines.append(Line(found.noun, row.operator, operators[row.operator], cells))
    return lines


def of_choices(found: Found) -> list[Line]:
    """Writes the table of families whose parameter was chosen."""
    digits, baseline = decimals([row.final.mean for row in found.rows]), found.rows[0].operator
    return [
        Line(
            "family",
            choice.family,
            None,
            [
                Cell("parameter", choice.way, text=True),
                Cell(found.noun, choice.chosen, text=True),
                _mean("final score", choice.scores, digits),
                _difference(baseline, choice.difference),
            ],
        )
        for choice in found.choices
    ]


def of_games(games: Sequence[Across], operators: dict[str, Operator], noun: str) -> list[Line]:
    """Writes the table of operators, or of what `noun` says, over all environments."""
    lines = []
    for row in games:
        cells = [
            Cell("runs", f"{row.counted} of {row.asked}"),
            _better(games[0].operator, row.improvement, row.improvement_interval),
        ]
        if row.normalised is not None:
            mean, interval = row.normalised.interquartile_mean, row.normalised.interval
            cells.append(_value("normalised, interquartile mean", mean, interval, 3))
        lines.append(Line(noun, row.operator, operators[row.operator], cells))
    return lines


def of_runs(records: Records, operators: dict[str, Operator]) -> list[Line]:
    """Writes the table of all runs, those that do not count with the reason."""
    study = records.study
    scores = scores_of_runs(records)
    states, lines = scores["final"], []
    for record in records.runs:
        run = record.run
        place = states.place(run)
        values = {name.replace("_", " "): float(each.values[place]) for name, each in scores.items()}
        digits = decimals([value for value in values.values() if math.isfinite(value)])
        cells = [
            *([Cell("environment", run.environment, text=True)] if len(study.environments) > 1 else []),
            Cell("seed", str(run.seed)),
            Cell("state", str(states.states[place]), _reason(record, study.path), text=True),
            *(Cell(name, number(value, digits) if math.isfinite(value) else MISSING) for name, value in values.items()),
        ]
        lines.append(Line(study.noun, run.operator, operators[run.operator], cells))
    return lines


def _reason(record: Record, study: Path) -> str:
    """Returns why a run did not go on, and where all of it is written."""
    reason, log = record.reason, record.run.path / "error.txt"
    return f"{reason} ({log.relative_to(study)})" if log.exists() else reason


def _mean(label: str, summary: Summary, digits: int) -> Cell:
    return _value(label, summary.mean, summary.interval, digits)


def _difference(baseline: str, paired: Difference | None) -> Cell:
    label = f"difference to {baseline}"
    if paired is None or paired.mean is None:
        return Cell(label, MISSING)
    digits = decimals_of_difference(paired.mean, paired.interval)
    return Cell(label, signed(paired.mean, digits), ends(paired.interval, digits))


def _better(baseline: str, value: float | None, interval: Interval | None) -> Cell:
    """Writes a probability of improvement where there is more than one run to tell it from."""
    return _value(f"better than {baseline}", None if interval is None else value, interval, 2)


def _value(label: str, value: float | None, interval: Interval | None, digits: int) -> Cell:
    return Cell(label, MISSING) if value is None else Cell(label, number(value, digits), ends(interval, digits))
