"""Study directory: `study.json`, a directory for each run, and what came of them.

    <study>/study.json                                resolved configuration, versions, revision, hardware
    <study>/runs/<environment>/<operator>/seed-<k>/   metrics.csv, status.json, best.safetensors, final.safetensors
    <study>/groups/<id>/                              runs that train together, and their exact state, until they end
    <study>/report/                                   see `report`
    <study>/paper/                                    see `paper.view`; may be there before the study is

Files are replaced whole: a reader never meets half of one, and a disk that is full spoils none.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from softbellman.arguments import as_path
from softbellman.config import Config, config_from
from softbellman.config.arms import noun_of
from softbellman.operators import parse
from softbellman.study.files import read_metrics, write_atomically
from softbellman.study.locks import Lease, locked
from softbellman.study.place import RECORD, require_new, unwritable
from softbellman.study.provenance import provenance
from softbellman.study.runs import RunPath, read_status, runs_of
from softbellman.training import checkpoint

FORMAT = 2
_SHOWN = 4  # runs that a message lists
_UNSYNCED = "what was written last before a power failure may be lost, and training goes on from the file before"


class Study:
    """A study's directory: the runs of every operator with every seed in every environment.

    Attributes:
        path: the directory.
        record: what `study.json` holds, as this version writes it.
        config: the resolved configuration.
        environments: names of the environments.
        arms: the arms, by name.
        operators: names of the arms: of those that are operators alone, the specs.
        noun: what the arms are called: `operator` where each is its operator alone, else `arm`.
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
            operators: the arms, or Bellman operators.
            seeds: the seeds of the runs of each.
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

    def __repr__(self) -> str:
        """Says what it is of, and how many runs have finished, of those whose status can be read."""
        finished = 0
        for run in self.runs:
            with suppress(OSError, ValueError):
                finished += read_status(run) == "finished"
        asked = {"environment": self.environments, self.noun: self.arms, "seed": self.seeds}
        of = ", ".join(f"{len(each)} {name}{'s' * (len(each) != 1)}" for name, each in asked.items())
        return f"<Study {self.path}: {of}; {finished} of {len(self.runs)} run{'s' * (len(self.runs) != 1)} finished>"

    @contextmanager
    def locked(self) -> Iterator[Lease]:
        """Keeps every other process from training this study. A process that dies holds no lock for long.

        Yields:
            The lease, with notes on what the file system can't give.

        Raises:
            Held: another process is training it.
            ValueError: the directory can't be written.
        """
        with ExitStack() as stack:
            try:
                lease = stack.enter_context(locked(self.path))
                if not checkpoint.sync_folder(self.path):
                    lease.notes.append(f"the file system of {self.path} can't sync directories; {_UNSYNCED}")
            except OSError as error:
                raise unwritable(self.path, error, "copy the study to a place that can be") from None
            yield lease

    def config_of(self, run: RunPath) -> Config:
        """Returns the configuration of a run, in which its arm's settings are in place of the study's."""
        return run.arm.config(self.config)

    def update(self, **changes: Any) -> None:
        """Changes fields of `study.json`, and takes the runs that it now asks for."""
        record = self.record | changes
        write_atomically(self.path / RECORD, _as_json(record))
        self.record = record  # not before it is on disk: what could not be written is tried again
        self._take_runs()

    def take_config(self, config: Config, command: Sequence[str]) -> None:
        """Takes a configuration that differs in nothing decisive, and the arguments that asked for it, if any did."""
        if config != self.config:
            self.update(config=asdict(config), command=[*command] or self.record["command"])
            self.config = config

    def record_resumption(
        self, agent_steps: dict[str, int], notes: list[str], made_with: dict[str, Any], *, again: bool = False
    ) -> None:
        """Adds to `study.json` that training went on, from which step, with what, and what was not as before.

        Args:
            agent_steps: the step from which on, of each group.
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

        Raises:
            ValueError: if what a run measured can't be read.
        """
        from softbellman.analysis.records import Records
        from softbellman.report import table

        return table(Records.read(self))

    def plot(self) -> Any:
        """Draws the learning curves into a figure of Matplotlib's, means over the seeds with their intervals.

        Raises:
            ValueError: if what a run measured can't be read.
            MissingExtra: if Matplotlib is not installed.
        """
        from softbellman.analysis.records import Records
        from softbellman.report import plot

        return plot(Records.read(self))

    def report(self, out: str | Path | None = None) -> Path:
        """Writes the page of figures, tables and films, and returns its path.

        Args:
            out: its directory; by default `<study>/report`.

        Raises:
            ValueError: if what a run measured can't be read.
            MissingExtra: if Matplotlib or Jinja is not installed.
        """
        from softbellman.analysis.findings import find_all
        from softbellman.analysis.records import Records
        from softbellman.report import write

        records = Records.read(self)
        return write(records, find_all(records), None if out is None else as_path(out))

    def _take_runs(self) -> None:
        environments, operators, seeds = (self.record[name] for name in ("environments", "operators", "seeds"))
        if not all(isinstance(name, str) for name in (*environments, *operators)):
            raise ValueError("its environments and operators must be names")
        if not (environments and operators and seeds) or not all(type(seed) is int and seed >= 0 for seed in seeds):
            raise ValueError(
                "it must have at least one environment, operator and seed, and seeds are integers, at least 0"
            )
        self.environments, self.seeds = list(environments), list(seeds)
        self.runs = runs_of(self.path, environments, operators, seeds)
        self.arms = {run.operator: run.arm for run in self.runs}
        self.operators = list(self.arms)
        self.noun = noun_of(self.arms.values())


def study_in(path: Path) -> Study | None:
    """Opens the study in a directory, or returns None where none has been begun.

    Raises:
        ValueError: if there is one that can't be read.
    """
    return Study(path) if (path / RECORD).exists() else None


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


def find_run(
    path: str | Path,
    *,
    environment: str | None = None,
    arm: Any = None,
    seed: int | None = None,
    remedy: str = "name one of them",
) -> tuple[Study, RunPath]:
    """Finds the run that a path names: a run's own directory, or a study with just one run, or one of those chosen.

    Args:
        path: the directory.
        environment: the only environment that counts, if there are several.
        arm: the only arm: its name, or an operator.
        seed: the only seed.
        remedy: what to do where there are several.

    Raises:
        ValueError: if the path names no run, or several; with the runs that there are.
        TypeError: it is no path.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"a {type(path).__name__} is no path; give that of a run, such as study.runs[0].path")
    path = as_path(path)
    if path.is_file():
        raise ValueError(f"{path} is a file; give the directory of its run")
    for folder in (path, *path.resolve().parents):
        if (folder / "study.json").exists():
            study = Study(folder)
            break
    else:
        raise ValueError(f"{path} is no run and no study: give a directory that `softbellman train --out` made")
    inside = [run for run in study.runs if run.path.resolve() == path.resolve()]
    below = inside or [run for run in study.runs if run.path.resolve().is_relative_to(path.resolve())]
    arms = {str(arm), getattr(arm, "name", None), _spelled(arm)}
    matching = [
        run
        for run in below
        if environment in (None, run.environment) and (arm is None or run.operator in arms) and seed in (None, run.seed)
    ]
    if len(matching) == 1:
        return study, matching[0]
    if (environment, arm, seed) == (None, None, None):
        runs = below or study.runs
        raise ValueError(f"{path} holds {len(below)} runs; {remedy}: {_some([run.path for run in runs], ', ')}")
    asked = {"environment": environment, "arm": arm, "seed": seed}.items()
    chosen = ", ".join(f"{name} {value}" for name, value in asked if value is not None)
    raise ValueError(f"{path} holds {len(matching)} runs with {chosen}; there are {_some(matching or below, '; ')}")


def _some(things: Sequence[Any], between: str) -> str:
    """Lists the first of them, and says by dots that there are more."""
    return between.join([*map(str, things[:_SHOWN]), *["..."] * (len(things) > _SHOWN)])


def _spelled(arm: Any) -> str | None:
    """Returns an operator as it is recorded, such as `softmax(5)` for `softmax:5`; None for what is none."""
    try:
        return str(parse(str(arm)))
    except ValueError:
        return None
