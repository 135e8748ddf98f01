"""A group is trained from end to end, and what comes of it is on disk, also when something goes wrong."""

import importlib
import json
import sys
import textwrap

import gymnasium
import numpy as np
import pandas as pd
import pytest

from softbellman import config as configs
from softbellman import operators as ops
from softbellman.running.engines.here import Here
from softbellman.running.group_training import Refused, train_group
from softbellman.running.launch import find_work, launch
from softbellman.running.progress import Reporter
from softbellman.study.files import load_params
from softbellman.study.groups import Group, open_groups
from softbellman.study.locks import Lost
from softbellman.study.runs import read_status
from softbellman.study.store import Study
from softbellman.study.writer import RunWriter
from softbellman.training.metrics import columns

from ..studies import TINY, created, trained
from ..studies import train as train_study

CRASH = """
    import gymnasium
    import numpy as np

    Fault, LIFE = RuntimeError, 50

    class Crash(gymnasium.Env):
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

        def __init__(self):
            self.steps = 0

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.steps += 1
            if self.steps > LIFE:
                raise Fault("the simulator is gone")
            return np.zeros(1, np.float32), 0.0, False, False, {}

    gymnasium.register("Crash-v0", Crash)
"""


def test_metrics_are_read_by_pandas_with_no_options(cartpole):
    study, rows = cartpole
    for index, run in enumerate(study.runs):
        frame = pd.read_csv(run.path / "metrics.csv")
        assert tuple(frame.columns) == columns()
        assert list(frame["agent_steps"]) == list(frame["env_frames"]) == [200, 400]
        assert list(frame["updates"]) == [50, 150]
        assert list(frame["test_return"]) == [phase.mean for at, _, phase in rows if at == index]
        assert frame["operator_parameter"].tolist() == [5.0, 5.0]
        assert (frame[["test_episodes", "test_seed", "seconds", "gradient_norm", "held_out_value"]] > 0).all(axis=None)
        told = pd.DataFrame([row for at, row, _ in rows if at == index])
        pd.testing.assert_frame_equal(frame, told.astype(frame.dtypes), rtol=1e-12)


def test_l5_seeds_differ(cartpole):
    study, _ = cartpole
    first, second = (pd.read_csv(run.path / "metrics.csv") for run in study.runs)
    assert list(first["loss"]) != list(second["loss"])
    assert list(first["test_seed"]) != list(second["test_seed"])


def test_a_finished_run_says_so_and_leaves_its_networks(cartpole):
    study, rows = cartpole
    made = study.record["provenance"]
    for index, run in enumerate(study.runs):
        assert json.loads((run.path / "status.json").read_text()) == {
            "state": "finished",
            "version": made["versions"]["softbellman"],
            "revision": made["revision"],
            "agent_steps": 400,
            "updates": 150,
        }
        scores = [phase.mean for at, _, phase in rows if at == index]
        _, best = load_params(run.path / "best.safetensors")
        final_params, final = load_params(run.path / "final.safetensors")
        assert float(best["test_return"]) == max(scores)
        assert (final["agent_steps"], final["test_return"]) == (400, scores[-1])
        assert final_params["q"]["w"].shape == (128, 2)
        assert all(np.isfinite(array).all() for layer in final_params.values() for array in layer.values())


def test_l7_l26_an_atari_game_is_trained_on_and_its_protocol_recorded(tmp_path):
    pytest.importorskip("ale_py")
    values = TINY | {"loop.steps": 200, "learner.replay_capacity": 1_000, "loop.test_steps": 150}
    study, rows = trained(tmp_path / "breakout", "atari/breakout", "demo-atari", "softmax(5)", [0], values)
    facts = study.record["environment_facts"]["atari/breakout"]
    assert (facts["name"], facts["repeat_action_probability"], facts["noop_max"]) == ("paper-atari", 0.0, 30)
    assert (facts["frame_skip"], facts["life_loss_terminates"], facts["num_actions"]) == (4, True, 4)
    (frame,) = (pd.read_csv(run.path / "metrics.csv") for run in study.runs)
    assert (frame["agent_steps"][0], frame["env_frames"][0], frame["updates"][0]) == (200, 800, 25)
    assert rows[0][2].steps <= 150
    params, _ = load_params(study.runs[0].path / "final.safetensors")
    assert sum(array.size for layer in params.values() for array in layer.values()) == 1_686_180


def test_a_study_alone_reruns_it(cartpole, tmp_path):
    """The contents of `study.json`, and nothing else, give the same rows."""
    study, _ = cartpole
    record = study.record
    operators = [ops.parse(spec) for spec in record["operators"]]
    facts = record["environment_facts"]
    again = Study.create(tmp_path, study.environments, operators, study.seeds, study.config, facts, [])
    train_study(again)
    for first, second in zip(study.runs, again.runs, strict=True):
        pd.testing.assert_frame_equal(
            *(pd.read_csv(run.path / "metrics.csv").drop(columns="seconds") for run in (first, second)),
            check_exact=True,
        )


@pytest.fixture
def crash(tmp_path, monkeypatch):
    (tmp_path / "crash.py").write_text(textwrap.dedent(CRASH))
    monkeypatch.syspath_prepend(tmp_path)
    config = configs.preset("classic-control").config
    for name, value in (TINY | {"checkpoint.minutes": 0.0}).items():
        config = configs.replaced(config, name, value)
    yield Study.create(tmp_path / "study", "gym/crash:Crash-v0", [ops.maximum()], [0], config, {}, [])
    gymnasium.registry.pop("Crash-v0", None)
    sys.modules.pop("crash", None)


@pytest.fixture
def launched(crash):
    """Trains that study in this process, as `train` does; returns what was told."""

    def run(**options):
        notes = []

        class Told(Reporter):
            note = notes.append

        work = find_work(crash.runs, open_groups(crash), 1, 1, **options)
        launch(crash, work, engine=Here(), variables={}, progress=Told())
        return notes

    return run


@pytest.mark.parametrize("moment", [150, 399])
def test_a_group_that_another_process_took_over_is_left_alone(moment, tmp_path):
    """As when this one was asleep for long: nothing is written any more, and nothing removed."""
    study = created(tmp_path / "study", "gym/CartPole-v1", "classic-control", "max", [0], TINY)
    group, files = Group.create(study, study.runs), {}

    def take_over(agent_steps):
        if agent_steps == moment:
            (lease,) = group.path.glob(".lock.*")
            lease.rename(lease.with_name(".lock.2"))
            files.update({path: path.read_bytes() for path in study.path.rglob("*") if path.is_file()})

    with study.locked():
        with pytest.raises(Refused, match="another process has taken over"):
            train_group(study, group, on_progress=take_over)
        assert files and {path: path.read_bytes() for path in study.path.rglob("*") if path.is_file()} == files


def test_training_ends_where_what_hears_of_it_has_lost_the_study(tmp_path):
    """As in one process that holds the lease of the study too."""
    study = created(tmp_path / "study", "gym/CartPole-v1", "classic-control", "max", [0], TINY)

    def lost(agent_steps):
        raise Lost("another process has taken over")

    with study.locked(), pytest.raises(Refused, match="another process has taken over"):
        train_group(study, Group.create(study, study.runs), on_progress=lost)


def test_a_group_that_is_taken_over_while_its_ends_are_written_is_left_alone(tmp_path, monkeypatch):
    study = created(tmp_path / "study", "gym/CartPole-v1", "classic-control", "max", [0, 1], TINY)
    group, status = Group.create(study, study.runs), RunWriter.status

    def take_over(writer, state, **facts):
        status(writer, state, **facts)
        if state == "finished":
            (lease,) = group.path.glob(".lock.*")
            lease.rename(lease.with_name(".lock.2"))

    monkeypatch.setattr(RunWriter, "status", take_over)
    with study.locked(), pytest.raises(Refused, match="another process has taken over"):
        train_group(study, group)
    assert [read_status(run) for run in study.runs] == ["finished", "running"] and (group.path / "cells.json").exists()


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_a_run_that_fails_says_why_and_where(crash, launched, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("crash"), "Fault", kind)
    assert launched() == []  # once is enough: it fails again in the same place
    status = json.loads((crash.runs[0].path / "status.json").read_text())
    said = f"gym/crash:Crash-v0 fails in step: {kind.__name__}: the simulator is gone"
    reason = f"{said} ({tmp_path / 'crash.py'}, line 20)"
    assert status == {"state": "failed", "reason": reason}
    assert "in step" in (crash.runs[0].path / "error.txt").read_text()


def test_a_run_alone_that_failed_goes_on_from_its_checkpoint_when_it_is_retried(crash, launched, monkeypatch):
    launched()
    assert read_status(crash.runs[0]) == "failed" and launched() == []
    monkeypatch.setattr(importlib.import_module("crash"), "LIFE", 60)
    assert launched(retry_failed=True) == ["goes on from agent step 50, exactly as it was"]
    assert launched(retry_failed=True) == ["goes on from agent step 60, exactly as it was"]


def test_a_run_that_is_stopped_says_so(crash, launched, monkeypatch):
    monkeypatch.setattr(importlib.import_module("crash"), "Fault", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        launched()
    assert json.loads((crash.runs[0].path / "status.json").read_text())["state"] == "stopped"
