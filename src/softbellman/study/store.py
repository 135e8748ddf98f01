"""A study's directory on disk: what was asked for, one directory for each run, and what came of it.

    <study>/study.json                                    resolved configuration, versions, revision, hardware
    <study>/runs/<environment>/<operator>/seed-<k>/       metrics.csv, status.json, best.safetensors, final.safetensors
    <study>/groups/<environment>-<operator>/checkpoint/   the exact state of runs that train together, until they end

Files are replaced whole: a reader never meets half of one, and a disk that is full spoils none.
"""

import csv
import fcntl
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softbellman.envs import nearest
from softbellman.operators.spec import plain
from softbellman.study.config import Config, checked, fields, replaced
from softbellman.study.provenance import provenance
from softbellman.training import checkpoint
from softbellman.training.checkpoint import Checkpoint, Damaged, State
from softbellman.training.evaluation import TestPhase

FORMAT = 1


class RunPath(NamedTuple):
    """Where one run of a study is, and what it is a run of."""

    path: Path
    environment: str
    operator: str
    seed: int


class Study:
    """A study's directory."""

    def __init__(self, path: Path) -> None:
        """Opens a study.

        Raises:
            ValueError: if the directory holds none, or one that cannot be read.
        """
        self.path, file = path, path / "study.json"
        try:
            self.record = json.loads(file.read_text())
            if self.record["format"] != FORMAT:
                raise ValueError(f"it has the format {self.record['format']}, and this version reads {FORMAT}")
            self.config = config_from(self.record["config"])
            if not isinstance(self.record["provenance"], dict):
                raise ValueError("its provenance is none")
            self.runs = self._runs()
        except OSError as error:
            raise ValueError(f"{path} is no study that can be read: {error.strerror}: {file}") from None
        except KeyError as error:
            raise ValueError(f"{file} cannot be read: it has no field {error}") from None
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{file} cannot be read: {error}") from None

    @classmethod
    def create(
        cls,
        path: Path,
        environment: str,
        operators: list[Any],
        seeds: list[int],
        config: Config,
        facts: dict[str, Any],
        command: list[str],
    ) -> "Study":
        """Makes the directory with its `study.json`.

        Args:
            path: the directory, new or empty.
            environment: name of the environment.
            operators: the Bellman operators.
            seeds: the seeds of each operator's runs.
            config: the resolved configuration.
            facts: what the environment says of itself.
            command: the arguments that asked for it all.

        Raises:
            ValueError: if the directory holds something already: nothing is overwritten.
        """
        require_new(path)
        path.mkdir(parents=True, exist_ok=True)
        record = {
            "format": FORMAT,
            "environment": environment,
            "operators": [str(operator) for operator in operators],
            "seeds": seeds,
            "config": asdict(config),
            "environment_facts": facts,
            "command": command,
            "provenance": provenance(),
        }
        write_atomically(path / "study.json", json.dumps(record, indent=2) + "\n")
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps every other process from training this study. A process that dies, however it does, holds no lock.

        Raises:
            ValueError: another process is training it.
        """
        with (self.path / ".lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip()
                raise ValueError(f"{self.path} is being trained by another process ({holder})") from None
            file.truncate(0)
            file.write(f"process {os.getpid()}")
            file.flush()
            yield

    def record_resumption(self, agent_steps: int, notes: list[str], made_with: dict[str, Any]) -> None:
        """Adds to `study.json` that training went on, from which step, with what, and what was not as before."""
        resumption = {"agent_steps": agent_steps, "notes": notes, "provenance": made_with}
        self.record.setdefault("resumptions", []).append(resumption)
        write_atomically(self.path / "study.json", json.dumps(self.record, indent=2) + "\n")

    def _runs(self) -> list[RunPath]:
        """Lists the runs, in the order of `study.json`."""
        environment, operators, seeds = (self.record[name] for name in ("environment", "operators", "seeds"))
        if not all(isinstance(name, str) for name in (environment, *operators)):
            raise ValueError("its environment and operators must be names")
        if not operators or not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
            raise ValueError("it must have at least one operator and one seed, and seeds are integers, at least 0")
        return [
            RunPath(self.path / "runs" / plain(environment) / plain(spec) / f"seed-{seed}", environment, spec, seed)
            for spec in operators
            for seed in seeds
        ]


def require_new(path: Path) -> None:
    """Refuses a directory that holds something already.

    Raises:
        ValueError: if it does, or if it is no directory.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} is there already and nothing is overwritten; name another directory with --out")


def require_same(study: Study, environment: str, operators: list[Any], seeds: list[int], config: Config) -> None:
    """Refuses to go on with a study that is another than the one asked for.

    Raises:
        ValueError: with all that differs; how checkpoints are saved is no difference.
    """
    there = {name: study.record[name] for name in ("environment", "operators", "seeds")} | decisive(study.config)
    asked = {"environment": environment, "operators": [str(operator) for operator in operators], "seeds": seeds}
    asked |= decisive(config)
    differing = [f"{name} {there[name]} there, {asked[name]} asked for" for name in asked if asked[name] != there[name]]
    if differing:
        raise ValueError(
            f"{study.path} holds another study already ({'; '.join(differing)}); name another directory with --out"
        )


def find_run(path: Path) -> tuple[Study, RunPath]:
    """Finds the run that a path names: a run's own directory, or a study with just one run.

    Raises:
        ValueError: if the path names no run, or a study with several.
    """
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
        scores = [float(row[columns.index("test_return")]) for row in self.rows]
        self._best = max(scores, default=-np.inf)
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
        write_atomically(self.run.path / "status.json", json.dumps({"state": state, **facts}, indent=2) + "\n")

    def error(self, state: str, last_line: str, traceback: str) -> None:
        """Records what stopped the run: its last line in `status.json`, the whole in `error.txt`."""
        write_atomically(self.run.path / "error.txt", traceback)
        self.status(state, reason=last_line)

    def _write_rows(self) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        write_atomically(self.run.path / "metrics.csv", text.getvalue())


def count_rows(run: RunPath) -> int:
    """Counts the rows that a run has written so far."""
    try:
        return len((run.path / "metrics.csv").read_bytes().splitlines()) - 1
    except OSError:
        return 0


def read_status(run: RunPath) -> str | None:
    """Returns how a run stands, as `RunWriter.status` recorded it, or None if it has not begun."""
    try:
        return str(json.loads((run.path / "status.json").read_text())["state"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_metrics(path: Path) -> dict[str, np.ndarray]:
    """Reads a `metrics.csv` into float64 columns `[rows]`; an empty cell is NaN.

    Raises:
        ValueError: if it is not there, or no table of numbers.
    """
    try:
        with path.open(newline="") as file:
            header, *rows = csv.reader(file)
        table = np.array([[float(cell) if cell else np.nan for cell in row] for row in rows]).reshape(-1, len(header))
        return dict(zip(header, table.T, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{path} can't be read as a table of numbers: {error}") from None


def save_params(path: Path, params: Any, agent_steps: int, test_return: float) -> None:
    """Writes parameters as named arrays, whole or not at all, in the safetensors format."""
    arrays = {f"{layer}/{name}": [np.asarray(array)] for layer, part in params.items() for name, array in part.items()}
    checkpoint.save(path, State({"agent_steps": agent_steps, "test_return": test_return}, arrays))


def load_params(path: Path) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
    """Reads parameters `{layer: {name: array}}` and the facts stored beside them.

    Raises:
        ValueError: if the file is missing or damaged.
    """
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


def write_record(path: Path, facts: dict[str, Any], phases: dict[str, TestPhase]) -> None:
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
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(facts | {"policies": policies, "provenance": provenance()}, indent=2) + "\n")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file whole or not at all; see `training.checkpoint.replacing`."""
    with checkpoint.replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def config_from(record: dict[str, Any]) -> Config:
    """Rebuilds a configuration from `study.json`.

    Raises:
        ValueError: for an unknown field (the nearest are listed), a value of the wrong kind, or values that could
            not run.
    """
    config = Config()
    known = dict(fields(config))
    for section, values in record.items():
        for name, value in values.items():
            path = f"{section}.{name}"
            if path not in known:
                raise ValueError(f"unknown field {path!r}{nearest(path, known)}; it may be of another version")
            value = tuple(value) if isinstance(value, list) else value
            kind = type(known[path]) if known[path] is not None else type(value)
            if value is not None and not isinstance(value, (kind, int) if kind is float else kind):
                raise ValueError(f"field {path!r} is {value!r}, which is no {kind.__name__}")
            config = replaced(config, path, value)
    return checked(config)


def decisive(config: Config) -> dict[str, Any]:
    """Returns the fields by dotted name that results depend on, their values as JSON holds them."""
    return json.loads(json.dumps({name: value for name, value in fields(config) if not name.startswith("checkpoint.")}))
