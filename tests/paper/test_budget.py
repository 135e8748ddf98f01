"""What runs will take: counted from what is left, and paced by a calibration that trains as the runs will."""

import pytest

from softbellman.config import checked
from softbellman.paper import budget
from softbellman.paper.grid import SCALES, plan_runs
from softbellman.running.comparison import Resources
from softbellman.running.launch import Work
from softbellman.study.files import save_params
from softbellman.study.runs import runs_of
from softbellman.study.store import Study
from softbellman.study.writer import RunWriter
from softbellman.training.metrics import MetricsRow

from ..studies import row

SMOKE, LAPTOP, FULL = SCALES.values()
TWO = Resources(2, 1)


def test_what_is_left_is_summed_up(tmp_path):
    comparison = plan_runs(LAPTOP, ["max", "softmax(1)"], None)
    runs = runs_of(tmp_path, comparison.environments, comparison.specs, comparison.seeds)
    work = Work([], [runs[:3], runs[3:4]])
    lines = dict(budget.summary(comparison, work, TWO, budget.Calibration(1000.0, 5_000, "by hand")))
    assert lines["agent steps"] == "2,400,000 in all, 4 runs"
    assert lines["time"] == "about 40 minutes, 2 groups at once"
    replays = 4 * comparison.plans[0].replay_bytes
    assert lines["disk"].startswith(f"{4 * (5_000 + 12 * 600):,} bytes that stay, and up to {2 * replays:,} for")
    assert lines["calibrated"] == "by hand"


def test_a_calibration_takes_the_second_phase_of_as_many_runs_as_there_are_workers():
    comparison, seen = plan_runs(SMOKE, ["double(max)"], None), []

    class Writes:
        capacity, process_bytes, spec = 2, 0, "local"

        def train(self, tasks, on_event, check):
            for task in tasks:
                study = Study(task.study)
                seen.append(study)
                run = next(run for run in study.runs if f"seed-{run.seed}" in task.group)
                writer = RunWriter(run, MetricsRow._fields)
                for phase, clock in ((1, 60.0), (2, 60.0 + 4.0 * (run.seed + 1))):
                    writer.row(row(phase, 2, 0, 0, 1)._replace(seconds=clock))
                save_params(run.path / "best.safetensors", {"layer": {"w": [0.0] * 100}}, 1, 0.0)
                writer.status("finished")

    found = budget.calibrate(comparison, TWO._replace(engine=Writes()))
    assert len(seen) == 2 and seen[0].environments == ["minatar/breakout"] and seen[0].operators == ["double(max)"]
    assert found.steps_per_second == pytest.approx(10_000 / 4 + 10_000 / 8)
    assert 800 <= found.run_bytes <= 2_000
    assert "2 side by side on minatar/breakout with double(max), 10,000 agent steps each" in found.told
    assert "3,750 steps a second together" in found.told
    assert not seen[0].path.exists()


@pytest.mark.parametrize(("scale", "steps"), [(SMOKE, 10_000), (LAPTOP, 10_000), (FULL, 1_500)])
def test_a_calibration_updates_and_tests_in_the_shares_of_a_run(scale, steps):
    config = checked(budget._shortened(scale.config, steps))
    loop, true = config.loop, scale.config.loop
    assert loop.steps == 2 * loop.epoch_steps == 2 * steps
    assert loop.test_steps / steps == pytest.approx(true.test_steps / true.epoch_steps, rel=0.01)
    assert config.learner.replay_start_steps < steps
    assert config.learner.update_period_steps == scale.config.learner.update_period_steps
