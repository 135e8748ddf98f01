"""Scores of the random policy in the environments of a study: played once, and kept beside its runs."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from softbellman.operators.spec import plain
from softbellman.study.play import evaluate_random
from softbellman.study.store import Study, write_record

GAMES = 100
MOST_STEPS = 10_000  # agent steps; slow games are fewer


def measure(study: Study, on_note: Callable[[str], None]) -> None:
    """Play the random policy in every environment that has no such scores yet, and write them.

    The budget is that of one test phase of the study, and at most `MOST_STEPS`. A failure is told of and does no harm:
    the report then says nothing of chance.
    """
    for environment in study.environments:
        if read(study, environment) is None:
            steps = min(MOST_STEPS, study.config.loop.test_steps)
            try:
                phase = evaluate_random(environment, study.config, episodes=GAMES, max_steps=steps, seed=0)
                write_record(_file(study, environment), {"environment": environment}, {"random": phase})
            except Exception as error:  # an environment may fail in any way
                on_note(f"the random policy could not be played in {environment}: {type(error).__name__}: {error}")


def read(study: Study, environment: str) -> np.ndarray | None:
    """Read the scores `[games]` of the random policy, or None if there are none, or none of a finished game."""
    try:
        played = json.loads(_file(study, environment).read_text())["policies"]["random"]
        return None if played["unfinished"] else np.array(played["scores"], float)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _file(study: Study, environment: str) -> Path:
    return study.path / "random" / f"{plain(environment)}.json"
