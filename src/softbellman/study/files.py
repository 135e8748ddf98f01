"""Files of a study: written whole or not at all; tables of metrics, test records and parameters read back."""

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from softbellman.arguments import as_path
from softbellman.study.provenance import provenance
from softbellman.training import checkpoint
from softbellman.training.checkpoint import Checkpoint, Damaged, State
from softbellman.training.evaluation import TestPhase
from softbellman.training.metrics import counted


def free_place(path: Path) -> Path:
    """Returns the first name beside a path that is free for what was there before."""
    places = (path.with_name(f"{path.name}.before-{number}") for number in itertools.count(1))
    return next(place for place in places if not place.exists())


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
        whole = {name for name in counted() & columns.keys() if np.isfinite(columns[name]).all()}
        return {name: column.astype(np.int64) if name in whole else column for name, column in columns.items()}
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{path} can't be read as a table of numbers: {error}") from None


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
        raise ValueError(f"{path} is not there: a run saves it with its first test phase")
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
