"""A study's directory on disk: what was asked for, one directory for each run, and what came of it.

    <study>/study.json                                    resolved configuration, versions, revision, hardware
    <study>/runs/<environment>/<operator>/seed-<k>/       metrics.csv, status.json, best.safetensors, final.safetensors
"""

import csv
import importlib.metadata
import json
import os
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softbellman import operators as ops
from softbellman.study.config import Config, checked, fields, replaced

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
            ValueError: if the directory holds none.
        """
        self.path = path
        try:
            self.record = json.loads((path / "study.json").read_text())
        except FileNotFoundError:
            raise ValueError(f"{path} is no study: it has no study.json; give the directory that --out named") from None

    @classmethod
    def create(
        cls, path: Path, environment: str, operators: list[Any], seeds: list[int], config: Config, command: list[str]
    ) -> "Study":
        """Makes the directory with its `study.json`.

        Raises:
            ValueError: if the directory holds something already: nothing is overwritten.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(f"{path} is there already and nothing is overwritten; name another directory with --out")
        path.mkdir(parents=True, exist_ok=True)
        record = {
            "format": 1,
            "environment": environment,
            "operators": [str(operator) for operator in operators],
            "seeds": seeds,
            "config": asdict(config),
            "command": command,
            "provenance": provenance(),
        }
        write_atomically(path / "study.json", json.dumps(record, indent=2) + "\n")
        return cls(path)

    @property
    def config(self) -> Config:
        """The resolved configuration."""
        return config_from(self.record["config"])

    @property
    def runs(self) -> list[RunPath]:
        """The runs, in the order of `study.json`."""
        environment = self.record["environment"]
        return [
            RunPath(self.run_path(environment, operator, seed), environment, operator, seed)
            for operator in self.record["operators"]
            for seed in self.record["seeds"]
        ]

    def run_path(self, environment: str, operator: str, seed: int) -> Path:
        """Returns the directory of one run."""
        return self.path / "runs" / plain(environment) / ops.plain_name(ops.parse(operator)) / f"seed-{seed}"


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
        names = ", ".join(str(run.path) for run in matching[:4])
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
        """Records how the run stands: running, finished, or failed with the reason."""
        write_atomically(self.run.path / "status.json", json.dumps({"state": state, **facts}, indent=2) + "\n")

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
        raise ValueError(f"{path} is not there: the run has not reached its first test phase")
    params: dict[str, dict[str, np.ndarray]] = {}
    try:
        with safe_open(path, "numpy") as file:
            for key in file.keys():  # noqa: SIM118 - not a dictionary
                layer, _, name = key.partition("/")
                params.setdefault(layer, {})[name] = file.get_tensor(key)
            return params, dict(file.metadata() or {})
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file beside its place and moves it there: a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    data = content.encode() if isinstance(content, str) else content
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def config_from(record: dict[str, Any]) -> Config:
    """Rebuilds a configuration from `study.json`.

    Raises:
        ValueError: for an unknown field, or values that could not run.
    """
    config = Config()
    known = dict(fields(config))
    for section, values in record.items():
        for name, value in values.items():
            path = f"{section}.{name}"
            if path not in known:
                raise ValueError(f"study.json has an unknown field {path!r}: it was written by another version")
            config = replaced(config, path, tuple(value) if isinstance(value, list) else value)
    return checked(config)


def plain(environment: str) -> str:
    """Returns an environment's name as a directory's: `atari-breakout`."""
    return "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in environment)


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
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": os.environ.get("NPROC"),
    }


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
