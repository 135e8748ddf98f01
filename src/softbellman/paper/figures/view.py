"""View: a figure or table of the paper, its data, its checks, and its files."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from softbellman.paper.arms import chosen, needed
from softbellman.paper.figures.panels import Panel, compose
from softbellman.paper.grid import Scale
from softbellman.paper.results import Missing, Results
from softbellman.paper.verdicts import Verdict
from softbellman.report.pictures import save_picture
from softbellman.report.wording import count, decimals, number
from softbellman.study.files import write_atomically


class View(NamedTuple):
    """A figure or table.

    Attributes:
        name: what it goes by.
        title: its title.
        expected: what the paper shows, in sentences; its numbers are in `expected.py`, and stand beside ours.
        notes: how ours is to be read, and what differs; `{chosen}` stands for how a scale's parameters are chosen.
        analyse: from data to rows, each with the same headings.
        panels: from data to rows of panels; None: nothing is drawn.
        check: from data to verdicts.
        arms: the arms that it needs; none for what is measured anew.
        measure: for what is not trained: gives the data.
    """

    name: str
    title: str
    expected: str
    notes: str
    analyse: Callable[[Any], list[dict[str, Any]]]
    panels: Callable[[Any], list[list[Panel]]] | None
    check: Callable[[Any], list[Verdict]]
    arms: tuple[str, ...] = ()
    measure: Callable[[], Any] | None = None

    def data(self, results: Results) -> Any:
        """Return what the other functions take: the results, or what is measured anew."""
        return self.measure() if self.measure else results

    def meaning(self, scale: Scale) -> str:
        """Say how ours is to be read at a scale."""
        return self.notes.format(chosen=chosen(scale))

    def missing(self, results: Results) -> Missing:
        """Say which of its runs are missing."""
        return results.missing(needed(results, self.arms))

    def diverged(self, results: Results) -> str:
        """Say how many of its runs diverged, and where they count; nothing if none did."""
        counted = self._diverged(results)
        return (
            f"{count(counted, 'run')} diverged: curves, and the tables below them, leave out what diverged; tables of "
            "scores have it at the random policy's score"
            if counted
            else ""
        )

    def heading(self, results: Results) -> str:
        """Title its picture, marked if runs are missing or diverged."""
        if self.measure:
            return self.title
        missing, diverged = self.missing(results), self._diverged(results)
        so_far = f"; so far: {missing.asked - missing.runs} of {missing.asked} runs" if missing.runs else ""
        lost = f"; {count(diverged, 'run')} diverged" if diverged else ""
        return f"{self.title}\nscale {results.scale.name}{so_far}{lost}"

    def _diverged(self, results: Results) -> int:
        return int((needed(results, self.arms) & results.diverged).sum())

    def plot(self, results: Results, data: Any) -> Any:
        """Draw it as a figure of Matplotlib's, or return None if nothing is drawn."""
        return compose(self.panels(data), self.heading(results)) if self.panels else None

    def write(self, results: Results, data: Any, rows: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
        """Write its rows as CSV and its picture; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: "" if _unknown(cell) else cell for name, cell in row.items()} for row in rows)
        paths = [folder / f"{self.name}.csv"]
        write_atomically(paths[0], text.getvalue())
        if self.panels:
            paths.append(save_picture(self.plot(results, data), folder / f"{self.name}.png"))
        return paths


class Layout(NamedTuple):
    """Rows as text: headings, and the cells below them."""

    headings: list[str]
    cells: list[list[str]]


def lay_out(rows: Sequence[dict[str, Any]], left_out: Sequence[str] = ()) -> Layout:
    """Write rows as text: numbers with three digits or more, each with its deviation, a dash for what is unknown.

    Args:
        rows: rows of the same headings; `x sd` is the deviation of `x`.
        left_out: headings that are not shown.

    >>> lay_out([{"tau": float("inf"), "mean": 5523.8, "mean sd": 694.7, "variance": float("nan")}])
    Layout(headings=['tau', 'mean (sd)', 'variance'], cells=[['∞', '5,524 (695)', '-']])
    """
    names = [name for name in rows[0] if not name.endswith(" sd") and name not in left_out]
    headings = [f"{name} (sd)" if f"{name} sd" in rows[0] else name for name in names]
    return Layout(headings, [[_cell(row, name) for name in names] for row in rows])


def _cell(row: dict[str, Any], name: str) -> str:
    spread = row.get(f"{name} sd", float("nan"))
    return _text(row[name]) + ("" if _unknown(spread) else f" ({_text(spread)})")


def _text(value: Any) -> str:
    if _unknown(value):
        return "-"
    if not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "∞"
    return f"{value:.3g}".replace("-", "−") if 0 < abs(value) < 1e-3 else number(value, decimals([value]))


def _unknown(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
