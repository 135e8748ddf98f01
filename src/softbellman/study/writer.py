"""Writes what comes of a run: rows, parameters, how it stands. Each file is replaced whole."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from softbellman.study.store import RunPath, save_params, write_atomically


class RunWriter:
    """Writes what comes of one run. Each file is replaced whole.

    Attributes:
        rows: the cells of `metrics.csv` so far, as text.
    """

    def __init__(self, run: RunPath, columns: tuple[str, ...], rows: Iterable[Mapping[str, str]] = ()) -> None:
        """Makes the run's directory and its `metrics.csv`.

        Args:
            run: the run.
            columns: the columns of `metrics.csv`.
            rows: the rows that a run which is resumed has already; whatever else was there is dropped. A column that
                they lack is left empty.
        """
        self.run, self.columns = run, columns
        self.rows = [[row.get(column, "") for column in columns] for row in rows]
        scores = [row[columns.index("test_return")] for row in self.rows]
        self._best = max((float(score) for score in scores if score), default=-np.inf)
        run.path.mkdir(parents=True, exist_ok=True)
        (run.path / "error.txt").unlink(missing_ok=True)
        self._write_rows()
        self.status("running")

    def row(self, values: tuple[Any, ...]) -> None:
        """Adds a row; None becomes an empty cell."""
        self.rows.append(["" if value is None else str(value) for value in values])
        self._write_rows()

    def params(self, params: Any, agent_steps: int, test_return: float) -> None:
        """Keeps the parameters as the final ones so far, and as the best if no test phase before scored as much."""
        save_params(self.run.path / "final.safetensors", params, agent_steps, test_return)
        if test_return > self._best:
            save_params(self.run.path / "best.safetensors", params, agent_steps, test_return)
            self._best = test_return

    def status(self, state: str, **facts: Any) -> None:
        """Records how the run stands: running, finished, failed, diverged or stopped."""
        write_status(self.run, state, **facts)

    def _write_rows(self) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        write_atomically(self.run.path / "metrics.csv", text.getvalue())


def write_status(run: RunPath, state: str, **facts: Any) -> None:
    """Records how a run stands: running, finished, failed, diverged or stopped."""
    run.path.mkdir(parents=True, exist_ok=True)
    write_atomically(run.path / "status.json", json.dumps({"state": state, **facts}, indent=2) + "\n")


def write_error(run: RunPath, state: str, reason: str, report: str) -> None:
    """Records what stopped a run: in a line in `status.json`, the whole of it in `error.txt`."""
    run.path.mkdir(parents=True, exist_ok=True)
    write_atomically(run.path / "error.txt", report)
    write_status(run, state, reason=reason)


def count_rows(run: RunPath) -> int:
    """Counts the rows that a run has written so far."""
    try:
        return len((run.path / "metrics.csv").read_bytes().splitlines()) - 1
    except OSError:
        return 0
