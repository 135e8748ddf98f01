"""CSV tables of a report, one row for one thing."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from softbellman.analysis.findings import Across, Found, scores_of_runs
from softbellman.analysis.records import Records
from softbellman.analysis.scores import Summary
from softbellman.analysis.statistics import Difference, Interval
from softbellman.report.pictures import Curves
from softbellman.study.files import write_atomically


def write_tables(
    records: Records,
    found: Sequence[Found],
    curves: Mapping[str, Mapping[str, Sequence[Curves]]],
    games: Sequence[Across],
    folder: Path,
) -> list[Path]:
    """Writes `operators.csv`, `runs.csv`, `curves.csv`; `choices.csv` of families, `games.csv` of several environments.

    Args:
        records: what the runs of the study left.
        found: what it found in each environment.
        curves: what its panels show, by environment and column.
        games: what it found over all environments; empty if there is but one.
        folder: where the tables go.

    Returns:
        Their paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "operators.csv": of_operators(found),
        "runs.csv": _runs(records),
        "curves.csv": _curves(records, curves),
        **({"choices.csv": _choices(found)} if any(each.choices for each in found) else {}),
        **({"games.csv": _games(games)} if games else {}),
    }
    for name, rows in tables.items():
        write_table(folder / name, rows)
    return [folder / name for name in tables]


def of_operators(found: Iterable[Found]) -> Iterator[dict[str, Any]]:
    """Makes the rows of `operators.csv`.

    `difference` is that of conclusions: Dunnett's where there are several comparisons, else the paired one.
    """
    for each in found:
        for row, (_, overestimation, more) in zip(each.rows, each.overestimation, strict=True):
            yield {
                "environment": row.environment,
                "operator": row.operator,
                "counted": row.counted,
                "asked": row.asked,
                **_summary("final", row.final),
                **_summary("best", row.best),
                **_summary("last_phase", row.last_phase),
                "final_iqm": row.final.interquartile_mean,
                **_ends("final_iqm", row.final.interquartile_interval),
                **_paired("difference", row.told),
                **_paired("paired_difference", row.difference),
                "permutation_p": row.permutation,
                "improvement": row.improvement,
                **_ends("improvement", row.improvement_interval),
                **_summary("overestimation", overestimation),
                **_paired("overestimation_difference", more),
            }


def in_short(row: Mapping[str, Any]) -> list[str]:
    """Writes a row of `operators.csv` for a narrow table: operator, runs that count, score and its interval."""
    mean, low, high = row["final"], row["final_low"], row["final_high"]
    return [
        row["operator"],
        f"{row['counted']} of {row['asked']}",
        "-" if mean is None else f"{mean:.2f}",
        "-" if low is None else f"{low:.2f} to {high:.2f}",
    ]


def _runs(records: Records) -> Iterable[Mapping[str, Any]]:
    scores = scores_of_runs(records)
    for run in records.study.runs:
        place = scores["final"].place(run)
        yield {
            "environment": run.environment,
            "operator": run.operator,
            "seed": run.seed,
            "state": scores["final"].states[place],
            **{name: each.values[place] for name, each in scores.items()},
        }


def _curves(records: Records, curves: Mapping[str, Mapping[str, Sequence[Curves]]]) -> Iterable[Mapping[str, Any]]:
    for environment, columns in curves.items():
        for column, shown in columns.items():
            for number, _, band in shown:
                if band is None:
                    continue
                for point, (x, mean, n) in enumerate(zip(band.x, band.mean, band.n, strict=True)):
                    yield {
                        "environment": environment,
                        "operator": records.study.operators[number],
                        "column": column,
                        "agent_steps": int(x),
                        "n": int(n),
                        "mean": mean,
                        "low": None if band.low is None else band.low[point],
                        "high": None if band.high is None else band.high[point],
                    }


def _choices(found: Sequence[Found]) -> Iterable[Mapping[str, Any]]:
    for each in found:
        for choice in each.choices:
            yield {
                "environment": each.environment,
                "family": choice.family,
                "way": choice.way,
                "chosen": choice.chosen,
                "counted": choice.scores.counted,
                **_summary("final", choice.scores),
                **_paired("difference", choice.difference),
            }


def _games(games: Sequence[Across]) -> Iterable[Mapping[str, Any]]:
    for row in games:
        normalised = row.normalised
        yield {
            "operator": row.operator,
            "counted": row.counted,
            "asked": row.asked,
            "improvement": row.improvement,
            **_ends("improvement", row.improvement_interval),
            "normalised_iqm": normalised and normalised.interquartile_mean,
            **_ends("normalised_iqm", normalised and normalised.interval),
        }


def _summary(name: str, summary: Summary) -> dict[str, float | None]:
    return {name: summary.mean, f"{name}_std": summary.std, **_ends(name, summary.interval)}


def _paired(name: str, paired: Difference | None) -> dict[str, float | None]:
    mean, interval, n = paired or (None, None, None)
    return {name: mean, **_ends(name, interval), f"{name}_seeds": n}


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def write_table(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows as CSV, their names first; a cell without a value is empty."""
    rows = list(rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if rows:
        writer.writerow(rows[0])
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    write_atomically(path, text.getvalue())


def _cell(value: Any) -> Any:
    """Leaves a cell empty where there is no value: None, or NaN, which alone differs from itself."""
    if value is None or value != value:
        return ""
    return value.item() if hasattr(value, "item") else value
