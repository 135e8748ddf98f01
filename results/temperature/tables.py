"""Tables of the studies of temperature, as Markdown for docs/measurements.md.

.venv/bin/python results/temperature/tables.py units     # what the unit of the rewards changes, from units/
.venv/bin/python results/temperature/tables.py truth     # distances from exact values, from truth/
.venv/bin/python results/temperature/tables.py scale     # what a parameter does, from scale/ and others/
.venv/bin/python results/temperature/tables.py screen    # rules beside softmax, from screen/
.venv/bin/python results/temperature/tables.py final     # the same of five games on other seeds, from final/
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from softbellman.analysis.records import Records
from softbellman.analysis.scores import Summary, collect, summarise
from softbellman.analysis.statistics import Interval, simultaneous_differences
from softbellman.analysis.sweeps import points, sweeps
from softbellman.report.wording import significant
from softbellman.study.store import Study

HERE = Path(__file__).parent
FINAL = ("breakout", "asterix", "seaquest", "freeway", "space_invaders")  # games of the last study


def units(records: Records) -> str:
    """Writes a table: scores, and overestimation over the unit of the rewards, each with its 95% interval.

    Within a unit, arms are compared with the first by Dunnett's intervals.
    """
    scores, over = collect(records, "final"), collect(records, "final", "overestimation")
    of_unit: dict[float, list[str]] = {}
    for name, arm in records.study.arms.items():
        of_unit.setdefault(arm.config(records.study.config).learner.reward_scale, []).append(name)
    lines = [
        "| rewards times | arm | score | minus the first | overestimation | minus the first |",
        "|" + "---|" * 6,
    ]
    for scale, names in of_unit.items():
        cells = []
        for runs in ([scores.of(name) for name in names], [over.of(name) / scale for name in names]):
            differences = [with_interval(each.mean, each.interval) for each in simultaneous_differences(runs)]
            cells.append(zip([_told(summarise(own)) for own in runs], ["", *differences], strict=True))
        for name, own, values in zip(names, *cells, strict=True):
            lines.append(f"| {scale:g} | `{name}` | {' | '.join((*own, *values))} |")
    return "\n".join(lines)


def truth(records: Records) -> str:
    """Writes a table for each MDP: final score and distances from the exact values."""
    return _by_game(
        records, ("test_return", "value_error", "value_bias", "policy_loss"), compared=("value_bias", "policy_loss")
    )


def screen(records: Records) -> str:
    """Writes a table for each game: final score, overestimation, and how far the operator is below the max."""
    return _by_game(records, ("test_return", "overestimation", "operator_gap"), compared=("test_return",))


def _by_game(records: Records, names: Sequence[str], *, compared: Sequence[str]) -> str:
    """Writes a table for each game: columns of `metrics.csv` in the last test phases, each with its 95% interval.

    Some are compared with the first arm by Dunnett's intervals.
    """
    lines = []
    for game in records.study.environments:
        columns = {}
        for name in names:
            scores = collect(records, "final", name)
            runs = [scores.of(arm, game) for arm in scores.operators]
            columns[name] = [_told(summarise(each)) for each in runs]
            if name in compared:
                columns[f"{name} minus {scores.operators[0]}"] = [
                    "",
                    *(with_interval(each.mean, each.interval) for each in simultaneous_differences(runs)),
                ]
        lines += [game, "", f"| arm | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
        lines += [
            f"| `{arm}` | {' | '.join(cells)} |"
            for arm, *cells in zip(records.study.operators, *columns.values(), strict=True)
        ]
        lines.append("")
    return "\n".join(lines)


def scale(records: Records) -> str:
    """Writes a table for each game: what each family's parameter does to the score and to overestimation.

    All arms are compared with the first by Dunnett's intervals. The first one's action gap makes a parameter a number
    without unit.
    """
    study, lines = records.study, []
    found, first = sweeps(study), study.operators[0]
    named = [dict(zip(sweep.parameters, sweep.operators, strict=True)) for sweep in found]
    parameters = np.unique(np.concatenate([sweep.parameters for sweep in found]))
    scores = collect(records, "final")
    for game in study.environments:
        compared = simultaneous_differences([scores.of(name, game) for name in study.operators])
        minus = dict(
            zip(study.operators[1:], [with_interval(each.mean, each.interval) for each in compared], strict=True)
        )
        over = points(records, game, "overestimation", partial=False)
        gap = points(records, game, "action_gap", partial=False)[first].mean
        own = f"`{first}`: score {_told(summarise(scores.of(first, game)))}, overestimation {over[first].mean:z.2f}"
        heads = [f"`{sweep.family}`, score minus `{first}`" for sweep in found]
        heads += [f"`{sweep.family}`, overestimation" for sweep in found]
        lines += [f"{game}, {own}, action gap {gap:.3g}", "", f"| parameter | times the gap | {' | '.join(heads)} |"]
        lines.append("|---|---|" + "---|" * len(heads))
        for parameter in parameters:
            at = [of_family.get(parameter) for of_family in named]
            cells = ["" if name is None else minus[name] for name in at]
            cells += ["" if name is None else f"{over[name].mean:z.2f}" for name in at]
            lines.append(f"| {parameter:g} | {significant(parameter * gap, 2)} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _told(summary: Summary) -> str:
    assert summary.mean is not None and summary.interval is not None
    return f"{summary.mean:z.2f} ({summary.interval[0]:z.2f} to {summary.interval[1]:z.2f})"


def with_interval(mean: float | None, interval: Interval | None) -> str:
    """Writes a difference and its interval."""
    assert mean is not None and interval is not None
    return f"{mean:+.3f} ({interval[0]:+.3f} to {interval[1]:+.3f})"


def main(words: Sequence[str]) -> str:
    """Returns the table that the first word names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("units", "truth", "scale", "screen", "final"))
    table = parser.parse_args(words).table
    if table == "scale":
        return "\n".join(scale(_records(name)) for name in ("scale", "others"))
    if table == "final":
        return "\n".join(screen(_records(f"final/{game}")) for game in FINAL)
    return {"units": units, "truth": truth, "screen": screen}[table](_records(table))


def _records(name: str) -> Records:
    return Records.read(Study(HERE / name))


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"tables.py: {error}")
