"""A study's directory on disk: what was asked for, one directory for each run, and what came of it.

    <study>/study.json                                resolved configuration, versions, revision, hardware
    <study>/runs/<environment>/<operator>/seed-<k>/   metrics.csv, status.json, best.safetensors, final.safetensors
    <study>/groups/<id>/                              runs that train together, and their exact state, until they end
    <study>/report/                                   see `study.report`
    <study>/paper/                                    see `paper.view`; may be there before the study is

Files are replaced whole: a reader never meets half of one, and a disk that is full spoils none.
"""

import csv
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softbellman.arguments import as_path
from softbellman.operators.spec import plain
from softbellman.study.config import Config, config_from, fields
from softbellman.study.locks import locked
from softbellman.study.place import RECORD, require_new, unwritable
from softbellman.study.provenance import provenance
from softbellman.training import checkpoint
from softbellman.training.checkpoint import Checkpoint, Damaged, State
from softbellman.training.evaluation import TestPhase
from softbellman.training.metrics import COUNTS

FORMAT = 2
_UNSYNCED = "what was written last before a power failure may be lost, and training goes on from the file before"


class RunPath(NamedTuple):
    """Where one run of a study is, and what it is a run of."""

    path: Path
    environment: str
    operator: str
    seed: int

    def __str__(self) -> str:
        """Names the run in a few words."""
        return f"{self.environment}, {self.operator}, seed {self.seed}"


class Study:
    """A study's directory: the runs of every operator with every seed in every environment.

    Attributes:
        path: the directory.
        record: what `study.json` holds, as this version writes it.
        config: the resolved configuration.
        environments: names of the environments.
        operators: specs of the operators.
        seeds: the seeds.
        runs: all runs, seeds innermost, environments outermost.
    """

    def __init__(self, path: str | Path) -> None:
        """Opens a study.

        Raises:
            ValueError: if the directory holds none, or one that cannot be read.
        """
        self.path = path = as_path(path)
        file = path / RECORD
        try:
            self.record: dict[str, Any] = _current(json.loads(file.read_text()))
            self.config = config_from(self.record["config"])
            if not isinstance(self.record["provenance"], dict):
                raise ValueError("its provenance is none")
            self._take_runs()
        except OSError as error:
            raise ValueError(f"{path} is no study that can be read: {error.strerror}: {file}") from None
        except KeyError as error:
            raise ValueError(f"{file} cannot be read: it has no field {error}") from None
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{file} cannot be read: {error}") from None

    @classmethod
    def create(
        cls,
        path: str | Path,
        environments: str | Sequence[str],
        operators: Sequence[Any],
        seeds: Sequence[int],
        config: Config,
        facts: Mapping[str, Any],
        command: Sequence[str],
        **more: Any,
    ) -> "Study":
        """Makes the directory with its `study.json`.

        Args:
            path: the directory, new or empty.
            environments: name of the environment, or names of several.
            operators: the Bellman operators.
            seeds: the seeds of each operator's runs.
            config: the resolved configuration.
            facts: what each environment says of itself, by name.
            command: the arguments that asked for it all.
            more: fields of `study.json` to add, or to put in place of what they are otherwise.

        Raises:
            ValueError: if the directory holds something already: nothing is overwritten; if it can't be written; or
                if two runs would share a directory.
        """
        path = as_path(path)
        require_new(path)
        record = {
            "format": FORMAT,
            "environments": [environments] if isinstance(environments, str) else list(environments),
            "operators": [str(operator) for operator in operators],
            "seeds": list(seeds),
            "config": asdict(config),
            "environment_facts": dict(facts),
            "command": list(command),
            "provenance": provenance(),
        }
        runs_of(path, record["environments"], record["operators"], record["seeds"])

        def wait(_: str) -> None:
            require_new(path)
            time.sleep(0.01)

        try:
            path.mkdir(parents=True, exist_ok=True)
            with locked(path, wait):
                require_new(path)  # of two processes that try at once, one succeeds
                write_atomically(path / RECORD, _as_json(record | more))
        except OSError as error:
            raise unwritable(path, error) from None
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[list[str]]:
        """Keeps every other process from training this study. A process that dies, however it does, holds no lock.

        Yields:
            What the file system can't give, to be told once; mostly nothing.

        Raises:
            Held: another process is training it.
            ValueError: the directory can't be written.
        """
        with ExitStack() as stack:
            try:
                weaker = stack.enter_context(locked(self.path))
                if not checkpoint.sync_folder(self.path):
                    weaker.append(f"the file system of {self.path} can't sync directories; {_UNSYNCED}")
            except OSError as error:
                raise unwritable(self.path, error, "copy the study to a place that can be") from None
            yield weaker

    def update(self, **changes: Any) -> None:
        """Changes fields of `study.json`, and takes the runs that it now asks for."""
        self.record |= changes
        write_atomically(self.path / RECORD, _as_json(self.record))
        self._take_runs()

    def take_config(self, config: Config, command: Sequence[str]) -> None:
        """Takes a configuration that differs in nothing decisive, and the arguments that asked for it, if any did."""
        if config != self.config:
            self.config = config
            self.update(config=asdict(config), command=[*command] or self.record["command"])

    def record_resumption(
        self, agent_steps: int | dict[str, int], notes: list[str], made_with: dict[str, Any], *, again: bool = False
    ) -> None:
        """Adds to `study.json` that training went on, from which step, with what, and what was not as before.

        Args:
            agent_steps: the step from which on, of each group if there are several.
            notes: what was not as if there had been no stop.
            made_with: the provenance.
            again: takes the place of the resumption recorded last: more is known of it now.
        """
        before = self.record.get("resumptions", [])
        resumption = {"agent_steps": agent_steps, "notes": notes, "provenance": made_with}
        self.update(resumptions=[*(before[:-1] if again else before), resumption])

    def metrics(self) -> dict[str, np.ndarray]:
        """Reads the rows of all runs into columns of one length: environment, operator, seed, then those of a run.

        `pandas.DataFrame(study.metrics())` and `polars.DataFrame(study.metrics())` make a frame of them; see
        `read_metrics`.

        Raises:
            ValueError: if a run's metrics can't be read.
        """
        begun = [run for run in self.runs if (run.path / "metrics.csv").exists()]
        tables = [read_metrics(run.path / "metrics.csv") for run in begun]
        rows = [len(next(iter(table.values()))) for table in tables]
        names = dict.fromkeys(name for table in tables for name in table)
        columns = {
            "environment": np.repeat(np.array([run.environment for run in begun], str), rows),
            "operator": np.repeat(np.array([run.operator for run in begun], str), rows),
            "seed": np.repeat(np.array([run.seed for run in begun], np.int64), rows),
        }
        for name in names:
            parts = [table.get(name, np.full(count, np.nan)) for table, count in zip(tables, rows, strict=True)]
            columns[name] = np.concatenate(parts)
        return columns

    def table(self) -> list[dict[str, Any]]:
        """Compares the operators, a row for each in each environment, as in `operators.csv` of the report.

        `pandas.DataFrame(study.table())` and `polars.DataFrame(study.table())` make a frame of it; None is a quantity
        that can't be had.
        """
        from softbellman.study.report import table

        return table(self)

    def plot(self) -> Any:
        """Draws the learning curves into a figure of Matplotlib's, means over the seeds with their intervals."""
        from softbellman.study.report import plot

        return plot(self)

    def report(self, out: Path | None = None) -> Path:
        """Writes the page of figures, tables and films, and returns its path.

        Args:
            out: its directory; by default `<study>/report`.
        """
        from softbellman.study.report import write

        return write(self, out)

    def _take_runs(self) -> None:
        environments, operators, seeds = (self.record[name] for name in ("environments", "operators", "seeds"))
        if not all(isinstance(name, str) for name in (*environments, *operators)):
            raise ValueError("its environments and operators must be names")
        if not (environments and operators and seeds) or not all(type(seed) is int and seed >= 0 for seed in seeds):
            raise ValueError(
                "it must have at least one environment, operator and seed, and seeds are integers, at least 0"
            )
        self.environments, self.operators, self.seeds = list(environments), list(operators), list(seeds)
        self.runs = runs_of(self.path, environments, operators, seeds)


def study_in(path: Path) -> Study | None:
    """Opens the study in a directory, or returns None where none has been begun.

    Raises:
        ValueError: if there is one that can't be read.
    """
    return Study(path) if (path / RECORD).exists() else None


def runs_of(path: Path, environments: Sequence[str], operators: Sequence[str], seeds: Sequence[int]) -> list[RunPath]:
    """Lists the runs of a study in a directory, seeds innermost, environments outermost.

    Raises:
        ValueError: if two of them would share a directory.
    """
    runs = [
        RunPath(path / "runs" / plain(environment) / plain(spec) / f"seed-{seed}", environment, spec, seed)
        for environment, spec, seed in itertools.product(environments, operators, seeds)
    ]
    places: dict[Path, RunPath] = {}
    for run in runs:
        other = places.setdefault(run.path, run)
        if other is not run:
            twice = f"{run} is there twice" if run == other else f"{other} and {run} would share a directory"
            raise ValueError(f"{twice}; every run must be another")
    return runs


def _current(record: dict[str, Any]) -> dict[str, Any]:
    """Returns what a `study.json` holds as this version writes it; in format 1 there was one environment."""
    if record["format"] not in (1, FORMAT):
        raise ValueError(f"it has the format {record['format']}, and this version reads 1 and {FORMAT}")
    if record["format"] == FORMAT:
        return record
    name, facts = record["environment"], record["environment_facts"]
    rest = {key: value for key, value in record.items() if key != "environment"}
    return rest | {"format": FORMAT, "environments": [name], "environment_facts": {name: facts}}


def _as_json(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=2) + "\n"


def find_run(path: str | Path) -> tuple[Study, RunPath]:
    """Finds the run that a path names: a run's own directory, or a study with just one run.

    Raises:
        ValueError: if the path names no run, or a study with several.
    """
    path = as_path(path)
    for folder in (path, *path.resolve().parents):
        if (folder / "study.json").exists():
            study = Study(folder)
            break
    else:
        raise ValueError(f"{path} is no run and no study: give a directory that `softbellman train --out` made")
    inside = [run for run in study.runs if run.path.resolve() == path.resolve()]
    matching = inside or [run for run in study.runs if run.path.resolve().is_relative_to(path.resolve())]
    if len(matching) != 1:
        names = ", ".join(str(run.path) for run in (matching or study.runs)[:4])
        raise ValueError(f"{path} holds {len(matching)} runs; name one of them: {names}")
    return study, matching[0]


def read_status(run: RunPath) -> str | None:
    """Returns how a run stands, as `study.writer` recorded it, or None if it has not begun."""
    state = _status(run).get("state")
    return None if state is None else str(state)


def read_reason(run: RunPath) -> str:
    """Returns why a run did not go on, or an empty text."""
    return str(_status(run).get("reason", ""))


def _status(run: RunPath) -> dict[str, Any]:
    try:
        status = json.loads((run.path / "status.json").read_text())
    except (OSError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


def read_metrics(path: str | Path) -> dict[str, np.ndarray]:
    """Reads a `metrics.csv` into columns `[rows]`: int64 where they count, float64 otherwise, an empty cell NaN.

    Raises:
        ValueError: if it is not there, or no table of numbers.
    """
    path = as_path(path)
    try:
        with path.open(newline="") as file:
            header, *rows = csv.reader(file)
        table = np.array([[float(cell) if cell else np.nan for cell in row] for row in rows]).reshape(-1, len(header))
        columns = dict(zip(header, table.T, strict=True))
        whole = {name for name in COUNTS & columns.keys() if np.isfinite(columns[name]).all()}
        return {name: column.astype(np.int64) if name in whole else column for name, column in columns.items()}
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{path} can't be read as a table of numbers: {error}") from None


def merit(updates: int, score: float) -> tuple[bool, float]:
    """Orders the test phases of a run: its best network is a trained one, if it has any, and of these the highest.

    What scores well by chance before the first update counts only where nothing else does.
    """
    return bool(updates > 0), float(score)


def save_params(path: Path, params: Any, agent_steps: int, test_return: float) -> None:
    """Writes parameters as named arrays, whole or not at all, in the safetensors format."""
    arrays = {f"{layer}/{name}": [np.asarray(array)] for layer, part in params.items() for name, array in part.items()}
    checkpoint.save(path, State({"agent_steps": agent_steps, "test_return": test_return}, arrays))


def load_params(path: str | Path) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
    """Reads parameters `{layer: {name: array}}` and the facts stored beside them.

    Raises:
        ValueError: if the file is missing or damaged.
    """
    path = as_path(path)
    if not path.exists():
        raise ValueError(f"{path} is not there: the run has not finished its first test phase")
    params: dict[str, dict[str, np.ndarray]] = {}
    try:
        saved = Checkpoint(path)
        for key in saved.names:
            layer, _, name = key.partition("/")
            params.setdefault(layer, {})[name] = saved.array(key)
        return params, saved.facts
    except (Damaged, OSError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def write_record(path: str | Path, facts: dict[str, Any], phases: dict[str, TestPhase]) -> None:
    """Writes test phases as JSON: every score and length, with the facts and the provenance they belong to."""
    policies = {
        name: {
            "scores": phase.scores.tolist(),
            "lengths": phase.lengths.tolist(),
            "unfinished": phase.unfinished,
            "agent_steps": phase.steps,
            "realised_return": phase.realised_return,
            "overestimation": phase.overestimation,
        }
        for name, phase in phases.items()
    }
    path = as_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(facts | {"policies": policies, "provenance": provenance()}, indent=2) + "\n")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file whole or not at all; see `training.checkpoint.replacing`."""
    with checkpoint.replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def decisive(config: Config) -> dict[str, Any]:
    """Returns the fields by dotted name on which a run's next step depends, their values as JSON holds them.

    How checkpoints are saved and for how many steps training goes on are none of them.
    """
    names = {
        name: value for name, value in fields(config) if name != "loop.steps" and not name.startswith("checkpoint.")
    }
    return json.loads(json.dumps(names))
