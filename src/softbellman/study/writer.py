"""Run writer: rows, parameters and status, each file replaced whole."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from softbellman.study.files import save_params, write_atomically
from softbellman.study.runs import RunPath, merit
from softbellman.training.checkpoint import Checkpoint, Damaged, leftovers

BEST = "best.safetensors"
FILES = ("metrics.csv", "status.json", "error.txt", "final.safetensors", BEST)  # of a run


class RunWriter:
    """Writes what comes of one run. Each file is replaced whole; one that can't be is tried again with the next.

    Attributes:
        rows: the cells of `metrics.csv` so far, as text.
    """

    def __init__(
        self,
        run: RunPath,
        columns: tuple[str, ...],
        rows: Iterable[Mapping[str, str]] = (),
        made_with: Mapping[str, Any] | None = None,
        confirm: Callable[[], None] = lambda: None,
        best: bytes = b"",
    ) -> None:
        """Makes the run's directory and its `metrics.csv`, and removes what a process that was killed has left there.

        Args:
            run: the run.
            columns: the columns of `metrics.csv`.
            rows: the rows that a run which is resumed has already; whatever else was there is dropped. A column that
                they lack is left empty.
            made_with: the provenance; the version and the revision of it are in `status.json`.
            confirm: called before each file is written; an OSError of it counts as one of the file.
            best: `best.safetensors` as it was with these rows, if that is known; a later one may have replaced it.
        """
        self.run, self.columns, self._confirm, made = run, columns, confirm, made_with or {}
        self._made = {"version": made["versions"].get("softbellman"), "revision": made["revision"]} if made else {}
        self.rows = [[row.get(column, "") for column in columns] for row in rows]
        self._unwritten: dict[str, Callable[[], None]] = {}
        run.path.mkdir(parents=True, exist_ok=True)
        confirm()
        for leftover in (path for name in FILES for path in leftovers(run.path / name)):
            leftover.unlink(missing_ok=True)
        (run.path / "error.txt").unlink(missing_ok=True)
        self._write({"metrics.csv": self._write_rows})
        if best:
            self._write({BEST: partial(write_atomically, run.path / BEST, best)})
        self._best = self._merit_of_best()
        self.status("running")

    @property
    def is_complete(self) -> bool:
        """All is on disk but what is written again when the run goes on from a checkpoint that has its rows."""
        return self._unwritten.keys() <= {"metrics.csv", "status.json"}

    @property
    def best(self) -> bytes:
        """`best.safetensors` as it is on disk; empty if it is not there.

        Raises:
            OSError: it can't be read.
        """
        try:
            return (self.run.path / BEST).read_bytes()
        except FileNotFoundError:
            return b""

    def row(self, row: Mapping[str, Any]) -> None:
        """Adds a row, by the names of columns; None becomes an empty cell.

        Raises:
            OSError: as `flush`; so do the other methods.
        """
        self.rows.append(["" if row[name] is None else str(row[name]) for name in self.columns])
        self._write({"metrics.csv": self._write_rows})

    def params(self, params: Any, agent_steps: int, updates: int, test_return: float) -> None:
        """Keeps the parameters as the final ones so far, and as the best if no test phase before had their merit."""
        names, reached = ["final.safetensors"], merit(updates, test_return)
        if reached > self._best:
            names.append(BEST)
            self._best = reached
        facts = (params, agent_steps, test_return)
        self._write({name: partial(save_params, self.run.path / name, *facts) for name in names})

    def status(self, state: str, **facts: Any) -> None:
        """Records how the run stands: running, finished, failed, diverged or stopped."""
        self._write({"status.json": partial(write_status, self.run, state, **self._made, **facts)})

    def flush(self) -> None:
        """Writes what could not be written before.

        Raises:
            OSError: a file can't be written, its `filename`; the others are.
        """
        self._write({})

    def _write(self, files: Mapping[str, Callable[[], None]]) -> None:
        self._unwritten |= files
        failure = None
        for name, write in list(self._unwritten.items()):
            try:
                self._confirm()
                write()
                del self._unwritten[name]
            except OSError as error:
                failure = failure or OSError(error.errno, error.strerror or str(error), str(self.run.path / name))
        if failure is not None:
            raise failure

    def _merit_of_best(self) -> tuple[bool, float]:
        """Returns the merit of the network that is kept as the best; the lowest if that is of none of the rows."""
        try:
            kept = Checkpoint(self.run.path / BEST).facts
        except (FileNotFoundError, Damaged):
            kept = {}
        for row in (dict(zip(self.columns, row, strict=True)) for row in self.rows):
            if row["agent_steps"] == str(kept.get("agent_steps")):
                return merit(int(row["updates"]), kept["test_return"])
        return False, -np.inf

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
    """Counts the rows that a run has written so far.

    Raises:
        OSError: they can't be read now.
    """
    try:
        return len((run.path / "metrics.csv").read_bytes().splitlines()) - 1
    except FileNotFoundError:
        return 0
