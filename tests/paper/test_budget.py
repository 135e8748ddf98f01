"""The budget of runs: counted from what is left, and paced by a calibration that trains as the runs will."""

import pytest

from softbellman.config import checked
from softbellman.paper import budget
from softbellman.paper.grid import SCALES
from softbellman.running.comparison import Resources
from softbellman.running.launch import Work
from softbellman.study.files import save_params
from softbellman.study.groups import open_group
from softbellman.study.runs import runs_of
from softbellman.study.store import Study
from softbellman.study.writer import RunWriter
from softbellman.training.metrics import columns

from ..studies import planned_of, row

SMOKE, LAPTOP, FULL = SCALES.values()
TWO = Resources(2, 1)


def test_what_is_left_is_summed_up(tmp_path):
    comparison = planned_of(LAPTOP, ["max", "softmax(1)"])
    runs = runs_of(tmp_path, comparison.environments, comparison.specs, comparison.seeds)
    work = Work([], [runs[:3], runs[3:4]])
    lines = dict(budget.summary(comparison, work, 2, TWO, budget.Calibration(1000.0, 5_000, "by hand")))
    assert lines["agent steps"] == "3,600,000 in all, 6 runs"
    assert lines["time"] == "about 60 minutes, 2 groups at once"
    replays = 4 * comparison.plans[0].replay_bytes
    assert lines["disk"].startswith(f"{6 * (5_000 + 12 * 600):,} bytes that stay, and up to {2 * replays:,} for")
    assert lines["calibrated"] == "by hand"


def clocking(seen, state="finished"):
    """An engine that trains nothing: the runs of each group end their second phase after 4, 8, ... seconds."""

    class Engine:
        capacity, process_bytes, spec = 2, 0, "local"

        def train(self, tasks, on_event, check):
            for number, task in enumerate(tasks, start=1):
                study = Study(task.study)
                runs = open_group(study, task.group).runs
                seen.append((study, [run.seed for run in runs]))
                for run in runs:
                    writer = RunWriter(run, columns())
                    for phase, clock in ((1, 60.0), (2, 60.0 + 4.0 * number)):
                        writer.row(row(phase, 2, 0, 0, 1) | {"seconds": clock})
                    save_params(run.path / "best.safetensors", {"layer": {"w": [0.0] * 100}}, 1, 0.0)
                    writer.status(state, reason="the loss was not finite")

    return Engine()


def test_a_calibration_takes_the_second_phase_of_as_many_groups_as_there_are_workers(monkeypatch):
    comparison, seen = planned_of(SMOKE, ["double(max)"]), []
    monkeypatch.setattr("os.getloadavg", lambda: (1.25, 9.0, 9.0))
    found = budget.calibrate(comparison, TWO._replace(engine=clocking(seen)))
    study = seen[0][0]
    assert [seeds for _, seeds in seen] == [[0], [1]]
    assert study.environments == ["minatar/breakout"] and study.operators == ["double(max)"]
    assert found.steps_per_second == pytest.approx(10_000 / 4 + 10_000 / 8)
    assert 800 <= found.run_bytes <= 2_000
    assert "2 side by side on minatar/breakout with double(max), 10,000 agent steps a run" in found.told
    assert "3,750 steps a second together; in the minute before, 1.2 other programs were at work on" in found.told
    assert not study.path.exists()


@pytest.mark.parametrize("scale", [SMOKE, FULL])
def test_a_calibration_trains_groups_of_the_width_of_a_block(scale):
    if scale.is_atari:
        pytest.importorskip("ale_py")
    wide = scale._replace(settings=scale.settings | {"loop.block_width": 3, "learner.replay_capacity": 60_000})
    seen = []
    found = budget.calibrate(planned_of(wide, ["max"]), TWO._replace(engine=clocking(seen)))
    steps = budget.HOST_STEPS if scale.is_atari else budget.DEVICE_STEPS
    assert [seeds for _, seeds in seen] == [[0, 1, 2], [3, 4, 5]]
    assert found.steps_per_second == pytest.approx(3 * (steps / 4 + steps / 8))
    assert f"2 side by side, 3 runs each, on {scale.environments[0]}" in found.told


@pytest.mark.parametrize(
    ("state", "why"), [("failed", "its process ended without a word"), ("diverged", "the loss was not finite")]
)
def test_a_calibration_that_comes_to_no_end_says_why(state, why):
    seen = []
    with pytest.raises(ValueError, match=rf"calibration did not come .*max, seed 0: {why}"):
        budget.calibrate(planned_of(SMOKE, ["max"]), TWO._replace(engine=clocking(seen, state)))
    assert not seen[0][0].path.exists()


@pytest.mark.parametrize(("scale", "steps"), [(SMOKE, 10_000), (LAPTOP, 10_000), (FULL, 1_500)])
def test_a_calibration_updates_and_tests_in_the_shares_of_a_run(scale, steps):
    config = checked(budget._shortened(scale.config, steps))
    loop, true = config.loop, scale.config.loop
    assert loop.steps == 2 * loop.epoch_steps == 2 * steps
    assert loop.test_steps / steps == pytest.approx(true.test_steps / true.epoch_steps, rel=0.01)
    assert config.learner.replay_start_steps < steps
    assert config.learner.update_period_steps == scale.config.learner.update_period_steps
