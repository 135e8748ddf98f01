"""A study's directory on disk: what was asked for, one directory for each run, and what came of it.

    <study>/study.json                                    resolved configuration, versions, revision, hardware
    <study>/runs/<environment>/<operator>/seed-<k>/       metrics.csv, status.json, best.safetensors, final.safetensors

Files are replaced whole or, `metrics.csv`, appended to row by row: a reader never meets half of one.
"""

import csv
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softbellman.envs import nearest
from softbellman.study.config import Config, checked, fields, replaced
from softbellman.training.evaluation import TestPhase

FORMAT = 1
_PACKAGES = ("softbellman", "numpy", "jax", "jaxlib", "optax", "gymnasium", "ale-py", "opencv-python-headless")


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
            self.runs = self._runs()
        except OSError as error:
            raise ValueError(f"{path} is no study that can be read: {error.strerror}: {file}") from None
        except KeyError as error:
            raise ValueError(f"{file} cannot be read: it has no field {error}") from None
        except (ValueError, TypeError, AttributeError) as error:
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

    def _runs(self) -> list[RunPath]:
        """Lists the runs, in the order of `study.json`."""
        environment = self.record["environment"]
        return [
            RunPath(self.path / "runs" / plain(environment) / plain(spec) / f"seed-{seed}", environment, spec, seed)
            for spec in self.record["operators"]
            for seed in self.record["seeds"]
        ]


def require_new(path: Path) -> None:
    """Refuses a directory that holds something already.

    Raises:
        ValueError: if it does, or if it is no directory.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} is there already and nothing is overwritten; name another directory with --out")


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
    """Writes what comes of one run; rows are appended and flushed one by one, parameters replaced whole."""

    def __init__(self, run: RunPath, columns: tuple[str, ...]) -> None:
        """Makes the run's directory and starts its `metrics.csv` with the header."""
        self.run, self._best = run, -np.inf
        run.path.mkdir(parents=True)
        self._file = (run.path / "metrics.csv").open("w", newline="")
        self._rows = csv.writer(self._file, lineterminator="\n")
        self._rows.writerow(columns)
        self._file.flush()
        self.status("running")

    def row(self, values: tuple[Any, ...]) -> None:
        """Appends a row; None becomes an empty cell."""
        self._rows.writerow(["" if value is None else value for value in values])
        self._file.flush()

    def params(self, params: Any, agent_steps: int, test_return: float) -> None:
        """Keeps the parameters as the final ones so far, and as the best if no test phase before scored as much."""
        save_params(self.run.path / "final.safetensors", params, agent_steps, test_return)
        if test_return > self._best:
            self._best = test_return
            save_params(self.run.path / "best.safetensors", params, agent_steps, test_return)

    def status(self, state: str, **facts: Any) -> None:
        """Records how the run stands: running, finished, failed or stopped."""
        write_atomically(self.run.path / "status.json", json.dumps({"state": state, **facts}, indent=2) + "\n")

    def error(self, state: str, last_line: str, traceback: str) -> None:
        """Records what stopped the run: its last line in `status.json`, the whole in `error.txt`."""
        write_atomically(self.run.path / "error.txt", traceback)
        self.status(state, reason=last_line)

    def close(self) -> None:
        """Closes `metrics.csv`."""
        self._file.close()


def read_metrics(path: Path) -> dict[str, np.ndarray]:
    """Reads a `metrics.csv` into float64 columns `[rows]`; an empty cell is NaN."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    table = np.array([[float(cell) if cell else np.nan for cell in row] for row in rows]).reshape(-1, len(header))
    return dict(zip(header, table.T, strict=True))


def save_params(path: Path, params: Any, agent_steps: int, test_return: float) -> None:
    """Writes parameters as named arrays, whole or not at all."""
    from safetensors.numpy import save

    arrays = {f"{layer}/{name}": np.asarray(array) for layer, part in params.items() for name, array in part.items()}
    facts = {"agent_steps": str(agent_steps), "test_return": repr(test_return)}
    write_atomically(path, save(arrays, metadata=facts))


def load_params(path: Path) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, str]]:
    """Reads parameters `{layer: {name: array}}` and the facts stored beside them.

    Raises:
        ValueError: if the file is missing or damaged.
    """
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        raise ValueError(f"{path} is not there: the run has not finished its first test phase")
    params: dict[str, dict[str, np.ndarray]] = {}
    try:
        with safe_open(path, "numpy") as file:
            for key in file.keys():  # noqa: SIM118 - not a dictionary
                layer, _, name = key.partition("/")
                params.setdefault(layer, {})[name] = file.get_tensor(key)
            return params, dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
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
    """Writes a file beside its place and moves it there: a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    data = content.encode() if isinstance(content, str) else content
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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


def plain(name: str) -> str:
    """Writes a name in letters that any path takes.

    >>> plain("atari/breakout"), plain("double(softmax(5))")
    ('atari-breakout', 'double-softmax-5')
    """
    return re.sub(r"[^\w.+-]+", "-", name).strip("-")


def provenance() -> dict[str, Any]:
    """Says with what a result was made: versions, revision of the source, hardware, threads."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "versions": versions,
        "revision": _revision(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": available_cores(),
        "threads": os.environ.get("NPROC"),
    }


def available_cores() -> int:
    """Returns how many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _revision() -> str | None:
    """Returns the revision of the source, with `+` if it was changed since, or None outside a checkout."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", str(folder)) else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
