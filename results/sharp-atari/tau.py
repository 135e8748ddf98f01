"""Tau by the rule of README.md beside this file, and the command of its run.

.venv/bin/python results/sharp-atari/tau.py
"""

import math
import sys
from pathlib import Path

from softbellman.analysis.records import Record, Records
from softbellman.study.store import Study

HERE = Path(__file__).parent
FROM, TO = 100_000, 500_000  # agent steps of the test phases that count
AVERAGED = 1.5  # tau times the mean action gap


def mean_gap(run: Record) -> float:
    """Averages the action gap over the test phases that count.

    Raises:
        ValueError: if the run has not come to the last of them.
    """
    steps = run.column("agent_steps")
    if not len(steps) or steps[-1] < TO:
        raise ValueError(f"{run.run.path}: the rule looks at test phases up to {TO:,} agent steps; go on with it first")
    return float(run.column("action_gap")[(steps >= FROM) & (steps <= TO)].mean())


def tau_for(gap: float) -> float:
    """Returns 1.5 over a gap, rounded to the nearest of 1, 2 and 5 times a power of ten on a logarithmic scale."""
    asked = AVERAGED / gap
    power = math.floor(math.log10(asked))
    round_ones = [digit * 10.0**exponent for exponent in (power, power + 1) for digit in (1, 2, 5)]
    return min(round_ones, key=lambda tau: abs(math.log(tau / asked)))


def main() -> str:
    """Returns what is to be printed."""
    study = Study(HERE / "study")
    (run,) = [run for run in Records.read(study).runs if run.run.operator == "max"]
    gap = mean_gap(run)
    tau = tau_for(gap)
    asked = f'softbellman compare atari/breakout --operators max "softmax({tau:g})" --seeds 1 --preset sharp-atari'
    return "\n".join(
        [
            f"mean action gap of max from {FROM:,} to {TO:,} agent steps: {gap:.4f}",
            f"1.5 / {gap:.4f} = {AVERAGED / gap:.1f}, rounded: tau {tau:g}",
            f"{asked} --workers 1 --threads 2 --out results/sharp-atari/study",
        ]
    )


if __name__ == "__main__":
    try:
        print(main())
    except ValueError as error:
        sys.exit(f"tau.py: {error}")
