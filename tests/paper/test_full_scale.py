"""The first cell of Table 1 at scale full, on each of the paper's games: killed once, it comes to the end all the same.

Two minutes of one core for each game, and 7 GB of memory: the replay has the paper's size.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pandas as pd
import pytest

from softbellman.paper.grid import SCALES
from softbellman.study.runs import read_status
from softbellman.study.store import Study

FULL = SCALES["full"]
STEPS, LEARNING_FROM = 20_000, 14_000
SHORT = {
    "loop.steps": STEPS,
    "loop.epoch_steps": 5_000,
    "loop.test_steps": 500,
    "loop.held_out_states": 320,
    "loop.gradient_batches": 2,
    "learner.replay_start_steps": LEARNING_FROM,
    "learner.target_period_updates": 500,  # of 1,500 updates: copied before the kill and after it
    "checkpoint.minutes": 0.05,
}
TRAIN = """
    import json
    import sys
    from pathlib import Path

    from softbellman.paper.arms import needed
    from softbellman.paper.grid import SCALES, open_study, plan_runs
    from softbellman.paper.results import read
    from softbellman.running.comparison import Resources
    from softbellman.running.compare import train_comparison

    environment, settings, out = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
    full = SCALES["full"]
    scale = full._replace(environments=(environment,), seeds=full.seeds[:1], settings=full.settings | settings)
    comparison = plan_runs(scale, needed(read(scale, None), ["DDQN"]), open_study(scale, out))  # Table 1's first cell
    train_comparison(comparison, out, Resources(1, 1), quiet=True)
"""
DEADLINE = 900.0  # seconds


def begin(environment, out, scratch):
    """Begins to train, or goes on, in processes that keep what is temporary in `scratch`."""
    scratch.mkdir(exist_ok=True)
    words = [environment, json.dumps(SHORT), str(out)]
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(TRAIN), *words],
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process):
    """Waits for the end, which must be a good one."""
    out, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    return out + errors


def with_children(process):
    """Lists a process and those that it started."""
    return [process.pid, *map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())]


def kill_once_it_learns(process, out):
    """Kills all processes at one moment, some updates and a checkpoint after learning began."""
    ends = time.monotonic() + DEADLINE
    while saved_steps(out) <= LEARNING_FROM:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends, "no checkpoint"
        time.sleep(0.05)
    processes = with_children(process)
    assert len(processes) == 2
    for each in processes:
        os.kill(each, signal.SIGKILL)
    process.communicate()


def saved_steps(out):
    """Finds the agent step of the newest checkpoint."""
    steps = [int(file.stem.removeprefix("step-")) for file in out.glob("groups/*/checkpoint/step-*.safetensors")]
    return max(steps, default=0)


def rows(study):
    return pd.read_csv(study.runs[0].path / "metrics.csv").drop(columns="seconds")


@pytest.mark.slow
@pytest.mark.parametrize("environment", FULL.environments)
def test_20_000_steps_on_each_game_survive_a_kill(environment, tmp_path):
    """For one of the games, the end is compared with that of a run that nobody disturbed."""
    pytest.importorskip("ale_py")
    out, scratch = tmp_path / "killed", tmp_path / "scratch"
    process = begin(environment, out, scratch)
    kill_once_it_learns(process, out)
    study, moment = Study(out), saved_steps(out)
    assert LEARNING_FROM < moment < STEPS and read_status(study.runs[0]) == "running"
    said = end(begin(environment, out, scratch))
    assert f"goes on from agent step {moment:,}, exactly as it was" in said
    study = Study(out)
    assert (study.operators, read_status(study.runs[0])) == (["double(max)"], "finished")
    assert [each["notes"] for each in study.record["resumptions"]] == [[]]
    assert not (out / "groups").exists()
    found = rows(study)
    assert found["agent_steps"].tolist() == [5_000, 10_000, 15_000, 20_000]
    assert found["updates"].tolist() == [0, 0, 250, 1_500]
    assert found[["held_out_value", "gradient_norm", "loss"]].iloc[-1].notna().all()
    if environment == FULL.environments[0]:
        end(begin(environment, tmp_path / "undisturbed", scratch))
        undisturbed = Study(tmp_path / "undisturbed")
        pd.testing.assert_frame_equal(found, rows(undisturbed), check_exact=True)
        for name in ("best", "final"):
            one, other = ((each.runs[0].path / f"{name}.safetensors").read_bytes() for each in (study, undisturbed))
            assert one == other
