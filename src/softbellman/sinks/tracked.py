"""Trackers as sinks: a run of theirs for each of ours, gone on with after a stop, in which no row is there twice."""

import contextlib
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from softbellman.config import fields
from softbellman.study.files import write_atomically
from softbellman.study.locks import locked
from softbellman.study.runs import RunPath
from softbellman.study.store import find_run
from softbellman.training.metrics import Row

PROJECT = "softbellman"


class Facts(NamedTuple):
    """Facts of a run that a tracker is told, and all that it is told beside the rows and the end.

    Attributes:
        name: the run in a few words.
        study: name of the study's directory.
        settings: environment, arm, its operator, seed and configuration, by dotted name.
    """

    name: str
    study: str
    settings: Mapping[str, Any]


class Tracker(Protocol):
    """A run of a tracker.

    Attributes:
        id: what the tracker finds it again by.
        newest: agent step of the newest row that it has, -1 if it has none; None: it can't be asked.
    """

    id: str
    newest: int | None

    def row(self, step: int, values: Mapping[str, float]) -> None:
        """Take a row whole, or not at all."""
        ...

    def end(self, state: str) -> None:
        """Release what it holds, and take how the run stands where the tracker has a place for that.

        The state is finished, diverged, stopped or failed.
        """
        ...


class Tracked:
    """Sink that passes the rows of a run on to a tracker.

    `trackers/<name>.json` of the run's directory has the id of the tracker's run, and the agent step of the newest row
    that it was given, written before it is given: whatever kills this process, no row is given twice.
    """

    def __init__(self, name: str, make: Callable[[Facts, str | None], Tracker], run: RunPath) -> None:
        """Begin a run of the tracker, or go on with the one that there is.

        Args:
            name: name of the tracker.
            make: begins a run of it, or goes on with the one of an id.
            run: the run.
        """
        self._file, self._state = run.path / "trackers" / f"{name}.json", "failed"
        known = json.loads(self._file.read_text()) if self._file.exists() else {"id": None, "agent_steps": -1}
        with _alone(), contextlib.redirect_stdout(io.StringIO()):
            self._tracker = make(_facts(run), known["id"])
        self._given = known["agent_steps"] if self._tracker.newest is None else self._tracker.newest
        self._note()

    def row(self, row: Row) -> None:
        """Give the measures that could be had, unless the tracker was given this row before."""
        step = row["agent_steps"]
        if step > self._given:
            self._given = step
            self._note()
            self._tracker.row(step, {name: value for name, value in row.items() if value is not None})

    def status(self, state: str, **facts: Any) -> None:
        """Keep how the run stands, for its end."""
        self._state = state

    def close(self) -> None:
        """End the run of the tracker."""
        with contextlib.redirect_stdout(io.StringIO()):
            self._tracker.end(self._state)

    def _note(self) -> None:
        self._file.parent.mkdir(exist_ok=True)
        write_atomically(self._file, json.dumps({"id": self._tracker.id, "agent_steps": self._given}) + "\n")


def setting(variable: str) -> str:
    """Return the project that a user has set by a variable of a tracker's, else ours."""
    return os.environ.get(variable) or PROJECT


def _facts(run: RunPath) -> Facts:
    study, _ = find_run(run.path)
    settings = {"environment": run.environment, "arm": run.operator, "operator": run.arm.operator, "seed": run.seed}
    return Facts(str(run), study.path.resolve().name, settings | dict(fields(study.config_of(run))))


@contextlib.contextmanager
def _alone() -> Any:
    """Keep other processes of this user from opening a tracker: two that make one data base spoil it."""
    folder = Path(tempfile.gettempdir()) / f"softbellman-trackers-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    with locked(folder, lambda _: time.sleep(0.05)):
        yield
