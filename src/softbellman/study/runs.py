"""Runs of a study: where each has its directory, how it stands, and which of its networks is the best."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from softbellman.config.arms import Arm, parse_arm
from softbellman.operators.spec import plain

LONGEST_NAME = 255  # bytes of a name that usual file systems take

SavedNetwork = Literal["best", "final"]
"""A run's saved network: the one that its test phases found best, or the last one."""


class RunPath(NamedTuple):
    """Where one run of a study is, and what it is a run of."""

    path: Path
    environment: str
    arm: Arm
    seed: int

    @property
    def operator(self) -> str:
        """The name of its arm: of one that is an operator alone, the operator's spec."""
        return self.arm.name

    def __str__(self) -> str:
        """Names the run in a few words."""
        return f"{self.environment}, {self.operator}, seed {self.seed}"


def runs_of(path: Path, environments: Sequence[str], arms: Sequence[str], seeds: Sequence[int]) -> list[RunPath]:
    """Lists the runs of a study in a directory, seeds innermost, environments outermost.

    Args:
        path: the directory.
        environments: names of the environments.
        arms: arms or operators, as text.
        seeds: the seeds.

    Raises:
        ValueError: if two of them would share a directory, of their own or of their group, or a text is no arm, or its
            name is too long for one.
    """
    runs = [
        RunPath(path / "runs" / plain(environment) / plain(arm.name) / f"seed-{seed}", environment, arm, seed)
        for environment, arm, seed in itertools.product(environments, map(parse_arm, arms), seeds)
    ]
    places: dict[str, RunPath] = {}
    for run in runs:
        name = group_name(run)  # made of the names of the run's own directory, so that it is shared if that is
        if len(name.encode()) > LONGEST_NAME:
            raise ValueError(
                f"{run.arm} makes the name of a directory longer than {LONGEST_NAME} letters; give it a label, as in "
                f"'mine={str(run.arm).partition('(')[0]}(...)'"
            )
        other = places.setdefault(name, run)
        if other is not run:
            twice = f"{run} is there twice" if run == other else f"{other} and {run} would share a directory"
            raise ValueError(f"{twice}; every run must be another")
    return runs


def group_name(run: RunPath) -> str:
    """Returns the name of the directory of a group of which this is the first run."""
    return f"{plain(run.environment)}-{plain(run.operator)}-seed-{run.seed}"


def params_file(run: RunPath, network: SavedNetwork) -> Path:
    """Returns the file of a run's saved network, which need not be there.

    Raises:
        ValueError: if there is no such name.
    """
    if network not in get_args(SavedNetwork):
        raise ValueError(f"network ({network!r}) must be {' or '.join(get_args(SavedNetwork))}")
    return run.path / f"{network}.safetensors"


class Standing(NamedTuple):
    """How a run stands, None if it has not begun, and why it did not go on, or an empty text."""

    state: str | None
    reason: str


def read_standing(run: RunPath) -> Standing:
    """Reads how a run stands, as `study.writer` recorded it.

    Raises:
        OSError: that can't be read now. It does not count as not begun, or the run would be trained again.
        ValueError: what is there says nothing.
    """
    file = run.path / "status.json"
    try:
        status = json.loads(file.read_text())
        return Standing(str(status["state"]), str(status.get("reason", "")))
    except FileNotFoundError:
        return Standing(None, "")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{file} does not say how its run stands; remove it, and the run is trained again") from None


def read_status(run: RunPath) -> str | None:
    """Returns how a run stands, or None if it has not begun; raises as `read_standing`."""
    return read_standing(run).state


def merit(updates: int, score: float) -> tuple[bool, float]:
    """Orders the test phases of a run: its best network is a trained one, if it has any, and of these the highest.

    A network that scores well by chance before the first update counts only where there is no other.
    """
    return bool(updates > 0), float(score)
