"""Studies that nobody trained: directories such as training leaves, with curves that are known beforehand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softbellman import operators as ops
from softbellman.study import config as configs
from softbellman.study.store import Study
from softbellman.study.writer import RunWriter, write_error
from softbellman.training.metrics import MetricsRow

EPOCH = 50_000  # agent steps between test phases


def synthetic(
    folder: Path,
    environments: Sequence[str] = ("minatar/breakout",),
    operators: Sequence[str] = ("max", "softmax(5)", "mellowmax(5)"),
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    *,
    phases: int = 12,
    frames: int = 1,
    ends: Mapping[tuple[str, int], str] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Study:
    """Makes a study whose operators score 4, 6, 8, ... a game in the end, with seeds half a point apart.

    Args:
        folder: where to; it must be new.
        environments: names of the environments; their scores are the same.
        operators: specs of the operators.
        seeds: the seeds.
        phases: test phases of a run that ends.
        frames: frames of an agent step.
        ends: how the run of an operator and a seed stands if it did not finish: it has half of the phases.
        values: columns of `metrics.csv` that are the same in each row.
    """
    config = configs.preset("paper-atari").config
    for name, value in (("loop.steps", phases * EPOCH), ("loop.epoch_steps", EPOCH)):
        config = configs.replaced(config, name, value)
    facts = {environment: {"environment": environment, "num_actions": 6} for environment in environments}
    command = ["compare", *environments, "--operators", *operators, "--seeds", str(len(seeds))]
    study = Study.create(folder, environments, [ops.parse(spec) for spec in operators], seeds, config, facts, command)
    for run in study.runs:
        number, end = list(operators).index(run.operator), (ends or {}).get((run.operator, run.seed), "finished")
        writer = RunWriter(run, MetricsRow._fields)
        rows = [row(phase, phases, number, run.seed, frames) for phase in range(1, phases + 1)]
        for each in rows[: phases if end == "finished" else phases // 2]:
            writer.row(each._replace(**(values or {})))
        if end == "failed":
            write_error(run, "failed", "RuntimeError: the emulator is gone", "Traceback (most recent call last): ...\n")
        else:
            writer.status(end, **({"reason": "the loss was not finite"} if end == "diverged" else {}))
    return study


def row(phase: int, phases: int, number: int, seed: int, frames: int) -> MetricsRow:
    """A row of a run: its score grows to its end, and differs from that of the other seeds by halves of a point."""
    noise = np.random.default_rng([phase, number, seed]).normal(size=6) / 50
    done, steps = phase / phases, phase * EPOCH
    score = (4 + 2 * number) * done + seed / 2 + noise[0]
    over = 1.5 - 0.1 * number + noise[1]
    return MetricsRow(
        epoch=phase,
        agent_steps=steps,
        env_frames=steps * frames,
        updates=steps // 4,
        episodes=phase * 100,
        test_return=float(score),
        test_episodes=30,
        test_unfinished=0,
        train_return=float(score),
        train_clipped_return=float(score),
        held_out_value=float(2 * done + over),
        held_out_value_common=float(2 * done + over),
        held_out_operator_value=float(2 * done),
        realised_return=float(2 * done),
        overestimation=float(over),
        gradient_norm=float(3 - done + noise[2]),
        gradient_variance=float((3 - done + noise[3]) * 1e-5),
        gradient_mean=0.0,
        gradient_norm_of_mean=0.5,
        action_gap=float(0.2 * done + noise[4]),
        policy_entropy=0.7,
        operator_gap=0.02 * number,
        operator_slope=float(0.99 + 0.01 * number * done + noise[5] / 10),
        q_std=0.3,
        loss=0.1,
        epsilon=0.1,
        operator_parameter=None,
        test_epsilon=0.05,
        test_seed=1,
        seconds=12.0 * phase,
    )
