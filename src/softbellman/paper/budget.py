"""Budget of a scale's runs: agent steps, memory, disk, and hours from a short calibration."""

import math
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from softbellman.analysis.records import Records
from softbellman.config import Config, with_settings
from softbellman.envs import is_device
from softbellman.paper.results import duration
from softbellman.running.compare import train_comparison
from softbellman.running.comparison import Comparison, Resources, prepare
from softbellman.running.launch import Work
from softbellman.study.provenance import available_cores

DEVICE_STEPS, HOST_STEPS = 10_000, 1_500  # agent steps of a phase of the calibration
_ROW_BYTES = 600  # of metrics.csv; 540 to 580 were seen


class Calibration(NamedTuple):
    """Pace of a short training on this machine.

    Attributes:
        steps_per_second: agent steps of all workers together, tests included.
        run_bytes: bytes on disk of a run's parameters.
        told: how it was calibrated.
    """

    steps_per_second: float
    run_bytes: int
    told: str


def calibrate(comparison: Comparison, resources: Resources) -> Calibration:
    """Train as many groups side by side as there are workers, two short phases each, and take the pace of the second.

    In the first one programs are compiled. Updates begin early, tests have the share of the time that they will have.
    A group is one block, the runs that one compiled call moves on together: further blocks would take as long each.

    Args:
        comparison: what will be trained; its first environment and operator are calibrated with.
        resources: what it is trained with.

    Raises:
        ValueError: if one of the runs did not come to its end.
    """
    environment, workers, width = comparison.environments[0], resources.workers, comparison.config.loop.block_width
    steps = DEVICE_STEPS if is_device(environment) else HOST_STEPS
    config = _shortened(comparison.config, steps)
    short = prepare([environment], comparison.arms[:1], range(workers * width), config)
    load, cores = os.getloadavg()[0], available_cores()
    with tempfile.TemporaryDirectory(prefix="softbellman-") as folder:
        study = train_comparison(short, Path(folder) / "study", resources, quiet=True)
        records = Records.read(study).runs
        for record in records:
            if record.state != "finished":
                raise ValueError(f"the calibration did not come to its end: {record.run}: {record.reason}")
        clocks = [record.column("seconds") for record in records]
        size = max(sum(file.stat().st_size for file in run.path.glob("*.safetensors")) for run in study.runs)
    pace = sum(steps / (clock[1] - clock[0]) for clock in clocks)
    told = (
        f"{workers} side by side{f', {width} runs each,' * (width > 1)} on {environment} with {comparison.specs[0]}, "
        f"{steps:,} agent steps a run after as many to compile, updates from step "
        f"{config.learner.replay_start_steps:,} on: {pace:,.0f} steps a second together; in the minute before, "
        f"{load:.1f} other programs were at work on {cores} cores, whose share the pace lacks"
    )
    return Calibration(pace, size, told)


def summary(
    comparison: Comparison, work: Work, later: int, resources: Resources, found: Calibration
) -> list[tuple[str, str]]:
    """Say what is left to train and what it will take: a few labels, each with a text.

    Args:
        comparison: the comparison.
        work: what is left of it.
        later: how many runs are trained after it.
        resources: what it is trained with.
        found: the pace.
    """
    config, at_once = comparison.config, min(resources.workers, len(work.groups))
    begun = sum(len(group.unfinished) * (config.loop.steps - group.saved_steps) for group in work.begun)
    steps = begun + config.loop.steps * (sum(map(len, work.fresh)) + later)
    runs = sum(map(len, work.groups)) + later
    phases = math.ceil(config.loop.steps / config.loop.epoch_steps)
    kept = runs * (found.run_bytes + phases * _ROW_BYTES)
    saved = comparison.replay_bytes(work, at_once) * config.checkpoint.keep if config.checkpoint.replay else 0
    return [
        ("agent steps", f"{steps:,} in all, {runs} runs"),
        ("disk", f"{kept:,} bytes that stay, and up to {saved:,} for checkpoints while it trains"),
        ("time", f"{duration(steps / found.steps_per_second / 3600)}, {at_once} groups at once"),
        ("calibrated", found.told),
    ]


def _shortened(config: Config, steps: int) -> Config:
    share, loop = steps / config.loop.epoch_steps, config.loop
    games = None if loop.test_episodes is None else max(1, round(loop.test_episodes * share))
    return with_settings(
        config,
        {
            "loop.steps": 2 * steps,
            "loop.epoch_steps": steps,
            "loop.test_steps": max(1, round(loop.test_steps * share)),
            "loop.test_episodes": games,
            "loop.held_out_states": 320,
            "loop.gradient_batches": 1,
            "learner.replay_capacity": 2 * steps,
            "learner.replay_start_steps": steps // 3,
            "learner.target_period_updates": 100,
        },
    )
