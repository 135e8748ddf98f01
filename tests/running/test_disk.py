"""Faults of a disk, and files moved or removed by hand, cost no state. A loop that computes nothing trains."""

import errno
import json
import os
import shutil
import signal
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest

from softbellman import config as configs
from softbellman.running import group_training as groups
from softbellman.running.engines import Here
from softbellman.running.launch import find_work, launch
from softbellman.running.progress import Reporter
from softbellman.running.stopping import Stopped
from softbellman.study import locks, writer
from softbellman.study.files import load_params, read_metrics
from softbellman.study.groups import Group, open_groups
from softbellman.study.runs import read_status
from softbellman.study.store import Study
from softbellman.training.checkpoint import State
from softbellman.training.metrics import columns

NAME = "mdp-forest-softmax-5-seed-0"  # of the group
SETTINGS = {
    "loop.epoch_steps": 200,
    "loop.steps": 1000,
    "loop.test_steps": 100,
    "learner.replay_start_steps": 100,
    "learner.target_period_updates": 50,
}


class Loop:
    """Counts steps by fifties; `events` are called by their step, each once."""

    events, returns = {}, {}
    replay_bytes = 0

    def __init__(self, environment, config, runs, scale):
        self.config, self.runs = config, runs
        self.agent_steps, self.epoch, self.diverged = 0, 0, {}

    @property
    def updates(self):
        return self.agent_steps

    @property
    def test_is_due(self):
        return self.config.loop.test_is_due(self.agent_steps, self.epoch)

    def advance(self, steps, between_steps):
        end = self.agent_steps + steps
        while self.agent_steps < end:
            self.agent_steps += 50
            self.events.pop(self.agent_steps, lambda: None)()
            between_steps(self.agent_steps)

    def test(self, between_steps):
        self.epoch += 1
        score = float(self.returns.get(self.agent_steps, self.epoch))
        row = dict.fromkeys(columns(), 0) | {"epoch": self.epoch, "agent_steps": self.agent_steps}
        row |= {"updates": self.updates, "test_return": score}
        return {index: (row, SimpleNamespace(mean=score, scores=[score])) for index in range(len(self.runs))}

    def params(self, index):
        return {"layer": {"w": np.full(4, self.agent_steps, np.float32)}}

    def policy(self, index):
        return None

    def snapshot(self, with_replay):
        facts = {"layout": groups.LAYOUT, "steps": self.agent_steps, "epoch": self.epoch}
        return State(facts, {"x": [np.zeros(4, np.float32)]})

    def restore(self, saved, *, inexact):
        self.agent_steps, self.epoch = saved.facts["steps"], saved.facts["epoch"]
        return []

    def close(self):
        pass


@pytest.fixture
def events(monkeypatch):
    """What happens, by the agent step."""
    monkeypatch.setattr(groups, "make_loop", Loop)
    monkeypatch.setattr(groups, "obs_scale", lambda *_: 1.0)
    monkeypatch.setattr(Loop, "events", {})
    return Loop.events


def study_of(folder, seeds=(0, 1), **settings):
    config = configs.Config()
    for name, value in (SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}).items():
        config = configs.replaced(config, name, value)
    return Study.create(folder, "mdp/forest", ["softmax(5)"], list(seeds), config, {}, [])


def launched(study, **options):
    """Goes on with a study; returns what was told."""
    notes = []

    class Told(Reporter):
        note = notes.append

    work = find_work(study.runs, open_groups(study), 8, 1, **options)
    with study.locked() as lease, suppress(Stopped):
        launch(study, work, engine=Here(), variables={}, progress=Told(), confirm=lease.confirm)
    return notes


def stop():
    os.kill(os.getpid(), signal.SIGINT)


def stopped_at(step, folder, events, **options):
    study = study_of(folder, **options)
    events[step] = stop
    launched(study)
    assert read_status(study.runs[0]) == "stopped"
    return study


def states(study):
    return [read_status(run) for run in study.runs]


def checkpoints(study):
    return sorted(path.name for path in study.path.glob("groups/*/checkpoint/step-*"))


def failing(real, fails):
    """Returns a function that can't write what `fails`, by its arguments, says."""

    def write(*of):
        if fails(*of):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(of[0]))
        return real(*of)

    return write


# ----------------------------------------------------------------------------------------------------- a disk is full


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
@pytest.mark.parametrize("what", ["lease", "writer"])
def test_a_disk_that_is_full_when_a_group_goes_on_costs_nothing(what, seeds, tmp_path, events, monkeypatch):
    study = stopped_at(500, tmp_path / "study", events, seeds=seeds)
    saved = checkpoints(study)
    full = {
        "lease": (locks, "_claim", lambda folder, number: folder.parent.name == "groups"),
        "writer": (writer, "write_atomically", lambda path, content: path.name == "metrics.csv"),
    }
    module, name, fails = full[what]
    with monkeypatch.context() as patch:
        patch.setattr(module, name, failing(getattr(module, name), fails))
        with pytest.raises(ValueError, match=r"can't be written \(No space left on device.*make room, and go on"):
            launched(study)
    assert states(study) == ["stopped"] * len(seeds) and checkpoints(study) == saved
    assert launched(study) == ["goes on from agent step 500, exactly as it was"]
    assert states(study) == ["finished"] * len(seeds)


def test_a_disk_that_is_full_at_the_end_leaves_the_last_state(tmp_path, events, monkeypatch):
    study, full = study_of(tmp_path / "study"), []
    bad = failing(writer.write_atomically, lambda path, content: full and path.name == "status.json")
    monkeypatch.setattr(writer, "write_atomically", bad)
    events[1000] = lambda: full.append(True)
    with pytest.raises(ValueError, match=r"can't be written .*make room, and go on with the study"):
        launched(study)
    assert checkpoints(study)[-1] == "step-000000001000.safetensors"
    full.clear()
    assert launched(study) == ["goes on from agent step 1,000, exactly as it was"]
    assert states(study) == ["finished"] * 2 and not (study.path / "groups").exists()


def test_what_the_environment_raises_is_no_fault_of_the_disk(tmp_path, events):
    def broken():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the environment's own")

    study = study_of(tmp_path / "study", seeds=(0,))
    events[700] = broken
    launched(study)
    assert states(study) == ["failed"]


def test_a_group_that_is_broken_up_leaves_its_checkpoint(tmp_path, events):
    def die():
        events[700] = die
        raise KeyError("dead")

    study = study_of(tmp_path / "study")
    events[700] = die
    notes = launched(study)
    aside = study.path / "groups" / f"{NAME}.before-1"
    assert sum(
        f"the checkpoint of agent step 200, which holds them together, is put aside: {aside}" in n for n in notes
    )
    assert [path.name for path in aside.iterdir()] == ["step-000000000200.safetensors"]


def test_the_best_network_that_could_not_be_written_is_not_lost(tmp_path, events, monkeypatch):
    study, full = study_of(tmp_path / "study", seeds=(0,), checkpoint__minutes=0), []
    monkeypatch.setattr(Loop, "returns", {600: 100.0})
    monkeypatch.setattr(writer, "save_params", failing(writer.save_params, lambda *_: full))

    def die():
        raise KeyError("dead")

    events |= {600: lambda: full.append(True), 700: die}
    launched(study)
    assert states(study) == ["failed"] and checkpoints(study)[-1] == "step-000000000600.safetensors"  # before its test
    full.clear()
    launched(study, retry_failed=True)
    assert read_metrics(study.runs[0].path / "metrics.csv")["test_return"].max() == 100
    assert load_params(study.runs[0].path / "best.safetensors")[1]["agent_steps"] == 600


@pytest.mark.parametrize("what", ["checkpoint", "all"])
def test_a_stop_that_cant_save_the_state_says_so(what, tmp_path, events, monkeypatch):
    monkeypatch.setattr(groups, "PAUSES", (0.0, 0.0, 0.0))
    full = []
    bad = failing(groups.Checkpoints.save, lambda *_: full)
    monkeypatch.setattr(groups.Checkpoints, "save", bad)
    if what == "all":
        monkeypatch.setattr(writer, "write_atomically", failing(writer.write_atomically, lambda *_: full))
    study = study_of(tmp_path / "study")
    events |= {450: lambda: full.append(True), 500: stop}
    notes = launched(study)
    if what == "all":
        assert notes[-1] == f"{NAME}: it did not say how it stopped; the newest checkpoint is of agent step 200"
        return
    assert sum("a checkpoint in " in note and "could not be written" in note for note in notes) == 3
    said = "the state of agent step 500 could not be saved; the newest checkpoint is of agent step 200"
    assert notes[-1] == f"{NAME}: {said}"
    assert json.loads((study.runs[0].path / "status.json").read_text())["reason"] == said


def test_a_state_that_is_saved_at_the_second_try_is_saved(tmp_path, events, monkeypatch):
    monkeypatch.setattr(groups, "PAUSES", (0.0, 0.0, 0.0))
    full = []
    bad = failing(groups.Checkpoints.save, lambda *_: full and full.pop())
    monkeypatch.setattr(groups.Checkpoints, "save", bad)
    study = study_of(tmp_path / "study")
    events |= {450: lambda: full.append(True), 500: stop}
    notes = launched(study)
    assert "it is tried again" in notes[-1] and checkpoints(study)[-1] == "step-000000000500.safetensors"


# ----------------------------------------------------------------------------------------------- files gone or too many


def test_a_group_whose_cells_are_gone_has_them_in_its_checkpoint(tmp_path, events):
    study = stopped_at(500, tmp_path / "study", events)
    (study.path / "groups" / NAME / "cells.json").unlink()
    assert launched(study) == ["goes on from agent step 500, exactly as it was"]
    assert states(study) == ["finished"] * 2 and not (study.path / "groups").exists()


def test_a_checkpoint_in_the_place_of_a_new_group_is_put_aside(tmp_path, events):
    study = stopped_at(500, tmp_path / "study", events)
    Group.create(study, study.runs)
    assert len(list((study.path / "groups" / f"{NAME}.before-1").iterdir())) == 2
    assert launched(study)[0].startswith("no checkpoint can be used: the run begins again")


def test_a_copy_beside_a_checkpoint_is_in_nobodys_way(tmp_path, events):
    study = stopped_at(500, tmp_path / "study", events)
    newest = study.path / "groups" / NAME / "checkpoint" / checkpoints(study)[-1]
    for name in (f"{newest.name}.bak", "step-mine.safetensors", "step-000000000900 (copy).safetensors"):
        shutil.copy(newest, newest.with_name(name))
    assert [group.saved_steps for group in open_groups(study)] == [500]
    assert launched(study) == ["goes on from agent step 500, exactly as it was"]


def test_a_study_that_is_moved_while_it_is_trained_says_so(tmp_path, events):
    study = study_of(tmp_path / "study")
    events[500] = lambda: study.path.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"study.* was moved or removed while it was trained"):
        launched(study)
    assert not study.path.exists() and checkpoints(Study(tmp_path / "moved")) == ["step-000000000200.safetensors"]
