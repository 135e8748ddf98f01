"""Published learning curves, which a report shows in grey behind those of a study.

Five runs of Dopamine's DQN (Castro et al., *Dopamine: a research framework for deep reinforcement learning*, 2018;
Apache License 2.0), from `baselines/atari/data` of github.com/google/dopamine at 5873f54, reduced to their means by
`benchmarks/published_curves.py`.
"""

import csv
from importlib.resources import files

import numpy as np

from softbellman.analysis.curves import Band
from softbellman.config import Config, preset

NOTE = (
    "Grey: DQN of Dopamine (Castro et al. 2018), mean of 5 runs and its 95% interval. Its games are those of training, "
    "with 1% random actions and the game's minimal set of actions; its target is copied every 8,000 agent steps."
)
"""Source of the published curves, and how they differ from ours."""


def published_curve(environment: str, config: Config) -> Band | None:
    """Give the curve that stands beside a study's in one environment, if one was made under its protocol.

    Args:
        environment: name of the environment.
        config: the study's configuration.

    Returns:
        Scores at the middle of each million frames, up to the study's length; None where there are none.
    """
    if config.protocol != preset("machado-atari").config.protocol or not environment.startswith("atari/"):
        return None
    table = (files("softbellman.report.published") / "dopamine-dqn.csv").read_text()
    rows = [row for row in csv.DictReader(table.splitlines()) if f"atari/{row['game']}" == environment]
    columns = {
        name: np.array([float(row[name]) for row in rows]) for name in ("agent_steps", "mean", "low", "high", "runs")
    }
    shown = columns["agent_steps"] <= config.loop.steps
    return Band(*(column[shown] for column in columns.values())) if shown.any() else None
