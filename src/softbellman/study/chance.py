"""Scores of the random policy in the environments of a study, kept beside its runs."""

import json
from pathlib import Path

import numpy as np

from softbellman.operators.spec import plain
from softbellman.study.files import write_record
from softbellman.study.store import Study
from softbellman.training.evaluation import TestPhase


def write(study: Study, environment: str, phase: TestPhase) -> None:
    """Write the random policy's test phase in an environment."""
    write_record(_file(study, environment), {"environment": environment}, {"random": phase})


def read(study: Study, environment: str) -> np.ndarray | None:
    """Read the scores `[games]` of the random policy, or None if there are none, or none of a finished game."""
    try:
        played = json.loads(_file(study, environment).read_text())["policies"]["random"]
        return None if played["unfinished"] else np.array(played["scores"], float)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _file(study: Study, environment: str) -> Path:
    return study.path / "random" / f"{plain(environment)}.json"
