"""Reduces Dopamine's published runs of DQN to the curves that reports of `machado-atari` show in grey.

    git clone https://github.com/google/dopamine
    python benchmarks/published_curves.py dopamine

The repository has a value for each run and iteration, `baselines/atari/data/<game>.json`. This script writes the
mean of the five runs and its 95% interval to `src/softbellman/report/published/dopamine-dqn.csv`.
"""

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from softbellman.analysis.statistics import mean_interval

GAMES = ("asterix", "breakout", "crazy_climber", "ms_pacman", "qbert", "seaquest")
STEPS = 250_000  # agent steps of an iteration, a million frames
OUT = Path(__file__).parents[1] / "src" / "softbellman" / "report" / "published" / "dopamine-dqn.csv"


def main() -> None:
    """Read the repository and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dopamine", type=Path, help="a clone of the repository")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["game", "agent_steps", "runs", "mean", "low", "high"])
        for game in GAMES:
            path = arguments.dopamine / "baselines" / "atari" / "data" / f"{game.replace('_', '')}.json"
            values = defaultdict[int, list[float]](list)
            for entry in json.loads(path.read_text()):
                if entry["Agent"] == "DQN":
                    values[entry["Iteration"]].append(entry["Value"])
            for iteration, runs in sorted(values.items()):
                interval = mean_interval(np.array(runs))
                if interval is None:
                    parser.error(f"{path} has fewer than two runs of iteration {iteration}")
                numbers = (f"{number:.5g}" for number in (np.mean(runs), *interval))
                writer.writerow([game, round((iteration + 0.5) * STEPS), len(runs), *numbers])
    print(arguments.out)


if __name__ == "__main__":
    main()
