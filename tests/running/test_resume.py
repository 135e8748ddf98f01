"""A study goes on after a stop of any kind as if there had been none, and says so where it can't."""

import errno
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from softbellman import config as configs
from softbellman import operators as ops
from softbellman.running import group_training as groups
from softbellman.running.engines import Here
from softbellman.running.launch import find_work
from softbellman.running.launch import launch as launch_study
from softbellman.running.progress import Reporter
from softbellman.running.stopping import EXIT_CODE, Stopped, StopRequests
from softbellman.study import locks, provenance, writer
from softbellman.study.files import load_params, save_params
from softbellman.study.matching import require_within
from softbellman.study.runs import read_status
from softbellman.study.store import Study
from softbellman.training.checkpoint import Checkpoint, State, save
from softbellman.training.loop import Diverged

from ..studies import TINY
from ..studies import train as train_study

SMALL = TINY | {"loop.test_episodes": 3, "loop.test_steps": 150, "checkpoint.minutes": 60.0}
AT_EVERY_STEP = SMALL | {"checkpoint.minutes": 0.0}


class Killed(BaseException):
    """Stands for a kill: nothing is done on the way out but what Python does."""


def study_of(folder, values=SMALL, seeds=(0,), environment="gym/CartPole-v1", operator=None):
    config = configs.preset("classic-control").config
    for name, value in values.items():
        config = configs.replaced(config, name, value)
    return Study.create(folder, environment, [operator or ops.softmax(5.0)], list(seeds), config, {}, [])


def killed_at(step):
    def on_progress(done):
        if done == step:
            raise Killed

    return on_progress


def rows(study, index=0):
    return pd.read_csv(study.runs[index].path / "metrics.csv").drop(columns="seconds")


def networks(study, index=0):
    return [(study.runs[index].path / f"{which}.safetensors").read_bytes() for which in ("best", "final")]


def assert_equal(one, other):
    for index in range(len(one.runs)):
        pd.testing.assert_frame_equal(rows(one, index), rows(other, index), check_exact=True)
        assert networks(one, index) == networks(other, index)
        assert read_status(one.runs[index]) == read_status(other.runs[index]) == "finished"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    study = study_of(tmp_path_factory.mktemp("studies") / "undisturbed", seeds=(0, 3))
    train_study(study)
    return study


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    study = study_of(tmp_path_factory.mktemp("studies") / "killed", AT_EVERY_STEP, seeds=(0, 3))
    with pytest.raises(Killed):
        train_study(study, on_progress=killed_at(257))
    return study


@pytest.fixture
def begun(killed, tmp_path):
    """A study that was killed at agent step 257, after its first test phase, with its last checkpoint there."""
    return Study(shutil.copytree(killed.path, tmp_path / "begun"))


def checkpoints(study):
    return sorted(study.path.glob("groups/*/checkpoint/*"))


def saved_steps(study):
    return [int(file.stem.removeprefix("step-")) for file in checkpoints(study)]


# ------------------------------------------------------------------------------------------------------- going on


def test_l3_l34_a_study_goes_on_as_if_it_had_not_been_stopped(begun, undisturbed):
    notes = []
    train_study(begun, on_note=notes.append)
    assert notes == ["goes on from agent step 257, exactly as it was"]
    assert_equal(begun, undisturbed)
    (resumption,) = json.loads((begun.path / "study.json").read_text())["resumptions"]
    assert ([*resumption["agent_steps"].values()], resumption["notes"]) == ([257], [])
    assert resumption["provenance"]["versions"] == begun.record["provenance"]["versions"]
    assert not (begun.path / "groups").exists() or not checkpoints(begun)


def test_the_first_checkpoint_comes_behind_the_first_test_phase(tmp_path):
    study = study_of(tmp_path / "study")
    with pytest.raises(Killed):
        train_study(study, on_progress=killed_at(250))
    assert saved_steps(study) == [200]


def test_a_checkpoint_comes_as_many_minutes_after_the_last_as_are_asked_for(tmp_path, monkeypatch):
    """An agent step takes a second, by the clock that is put in."""
    seconds = [0]
    monkeypatch.setattr(groups, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    study = study_of(tmp_path / "study", SMALL | {"checkpoint.minutes": 1.5, "loop.epoch_steps": 400})

    def on_progress(done):
        seconds[0] = done
        killed_at(199)(done)

    with pytest.raises(Killed):
        train_study(study, on_progress=on_progress)
    assert saved_steps(study) == [91, 181]  # what is done is looked at before it is told


def test_a_run_that_is_given_more_steps_is_the_run_that_had_them_from_the_start(undisturbed, tmp_path):
    study = study_of(tmp_path / "study", AT_EVERY_STEP | {"loop.steps": 300}, seeds=(0, 3))
    with pytest.raises(Killed):
        train_study(study, on_progress=killed_at(257))
    longer = configs.replaced(study.config, "loop.steps", 400)
    require_within(study, study.environments, study.operators, study.seeds, longer, {})
    study.take_config(longer, ["train", "--steps", "400"])
    train_study(Study(study.path))
    assert_equal(study, undisturbed)
    assert Study(study.path).record["command"] == ["train", "--steps", "400"]


def test_a_budget_that_is_too_small_or_too_late_is_refused(begun, undisturbed):
    def ask(study, steps):
        config = configs.replaced(study.config, "loop.steps", steps)
        require_within(study, study.environments, study.operators, study.seeds, config, {})

    ask(begun, 257)
    with pytest.raises(ValueError, match=r"loop\.steps 400 there, 256 asked for: 257 are taken already"):
        ask(begun, 256)
    ask(undisturbed, 400)
    with pytest.raises(ValueError, match=r"401 asked for: a run that has ended can't go on\); name another directory"):
        ask(undisturbed, 401)


def test_l34_rows_after_the_checkpoint_are_written_again_and_not_twice(begun, undisturbed):
    """The newest checkpoint is of before the first test phase; its row is in the file already."""
    early = study_of(begun.path.with_name("early"), AT_EVERY_STEP, seeds=(0, 3))
    with pytest.raises(Killed):
        train_study(early, on_progress=killed_at(150))
    shutil.rmtree(begun.path / "groups")
    shutil.copytree(early.path / "groups", begun.path / "groups")
    assert len(rows(begun)) == 1
    train_study(begun)
    assert_equal(begun, undisturbed)
    frame = pd.read_csv(begun.runs[0].path / "metrics.csv")
    assert frame["agent_steps"].is_monotonic_increasing and frame["epoch"].tolist() == [1, 2]


def test_the_best_network_is_that_of_the_checkpoints_rows(begun, undisturbed):
    """A phase after the checkpoint has replaced the file; that phase may come out otherwise, or not at all."""
    best = begun.runs[0].path / "best.safetensors"
    kept = best.read_bytes()
    save_params(best, load_params(best)[0], 300, 1e6)
    with pytest.raises(Killed):
        train_study(begun, on_progress=killed_at(259))
    assert best.read_bytes() == kept
    train_study(begun)
    assert_equal(begun, undisturbed)


def test_l34_a_column_that_is_new_shifts_no_other(begun, undisturbed, monkeypatch):
    """Rows of a version that had one column less keep theirs; the new one is empty in them."""
    read = groups.Checkpoints.newest

    def older(self, note):
        found = read(self, note)
        assert found is not None
        for row in (row for own in found.facts["rows"] for row in own):
            del row["q_std"]
        return found

    monkeypatch.setattr(groups.Checkpoints, "newest", older)
    train_study(begun)
    expected = rows(undisturbed)
    expected.loc[0, "q_std"] = np.nan
    pd.testing.assert_frame_equal(rows(begun), expected, check_exact=True)


def test_l21_a_spoilt_checkpoint_is_told_of_and_the_one_before_used(begun, undisturbed):
    newest, notes = checkpoints(begun)[-1], []
    newest.write_bytes(newest.read_bytes()[:-1])
    train_study(begun, on_note=notes.append)
    assert str(newest) in notes[0] and notes[1] == "goes on from agent step 256, exactly as it was"
    assert_equal(begun, undisturbed)


@pytest.mark.parametrize("what", ["newest", "restore"])
def test_a_checkpoint_that_cant_be_read_for_a_moment_costs_nothing(begun, undisturbed, monkeypatch, what):
    files, read = checkpoints(begun), Checkpoint.__init__ if what == "newest" else Checkpoint.read_into

    def unanswered(self, *arguments):
        read(self, *arguments)
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(files[-1]))

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, read.__name__, unanswered)
        with pytest.raises(groups.Refused, match="Input/output error"):
            train_study(begun)
    assert checkpoints(begun) == files and not list(begun.path.rglob("*.before-*"))
    train_study(begun)
    assert_equal(begun, undisturbed)


def test_without_any_checkpoint_the_run_begins_again_and_what_it_wrote_is_kept(begun, undisturbed):
    kept = networks(begun)
    shutil.rmtree(begun.path / "groups")
    other = begun.runs[0].path.with_name("seed-0.before-2") / "metrics.csv"  # the first was removed since
    other.parent.mkdir()
    other.write_text("older")
    notes = []
    train_study(begun, on_note=notes.append)
    assert all("the run begins again" in note for note in notes) and len(notes) == 2
    assert_equal(begun, undisturbed)
    aside = begun.runs[0].path.with_name("seed-0.before-1")
    assert len(pd.read_csv(aside / "metrics.csv")) == 1 and (aside / "final.safetensors").read_bytes() == kept[1]
    assert other.read_text() == "older"


def test_a_study_that_is_over_is_left_alone(undisturbed):
    def contents():  # but for the lease, whose number grows
        files = (path for path in undisturbed.path.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files if not path.name.startswith(".lock.")}

    before, notes = contents(), []
    train_study(undisturbed, on_note=notes.append)
    assert notes == [] and contents() == before


def test_what_is_no_longer_the_same_is_said(begun, monkeypatch):
    now = provenance.provenance() | {"threads": "64"}
    now["versions"] = now["versions"] | {"jax": "9.9.9"}
    monkeypatch.setattr(groups, "provenance", lambda: now)
    notes = []
    train_study(begun, on_note=notes.append)
    then = begun.record["provenance"]
    assert notes == [
        "goes on from agent step 257",
        f"perhaps not to the last bit: jax {then['versions']['jax']} then, 9.9.9 now",
        f"perhaps not to the last bit: threads {then['threads']} then, 64 now",
    ]
    assert json.loads((begun.path / "study.json").read_text())["resumptions"][0]["notes"] == notes[1:]


def test_a_study_json_that_was_changed_meanwhile_is_refused(begun):
    record = json.loads((begun.path / "study.json").read_text())
    then, record["config"]["learner"]["learning_rate"] = record["config"]["learner"]["learning_rate"], 0.5
    (begun.path / "study.json").write_text(json.dumps(record))
    files = checkpoints(begun)
    with pytest.raises(ValueError, match=rf"other settings: learner.learning_rate {then} then, 0.5 now"):
        train_study(Study(begun.path))
    assert checkpoints(begun) == files and len(rows(begun)) == 1


@pytest.mark.parametrize("layout", [None, 1, "another"], ids=str)
def test_a_checkpoint_of_another_version_is_refused_with_the_version_to_use(begun, layout):
    """Its arrays have other names, or its minibatches were drawn otherwise: to begin again would be no answer."""
    path = checkpoints(begun)[-1]
    saved = Checkpoint(path)
    facts = {name: value for name, value in saved.facts.items() if name != "layout"}
    facts |= {"layout": layout} if layout else {}
    save(path, State(facts, {name: [saved.array(name)] for name in saved.names}))
    made = re.escape(begun.record["provenance"]["versions"]["softbellman"])
    with pytest.raises(groups.Refused, match=rf"another version of softbellman \({made}\).*go on with that version"):
        train_study(begun)
    assert checkpoints(begun)[-1] == path and not list(begun.path.rglob("*.before-*"))


def test_l22_without_the_replay_it_goes_on_with_an_empty_one_and_says_so(tmp_path):
    study, notes = study_of(tmp_path / "study", AT_EVERY_STEP | {"checkpoint.replay": False}), []
    with pytest.raises(Killed):
        train_study(study, on_progress=killed_at(150))
    assert checkpoints(study)[-1].stat().st_size < 500_000
    train_study(study, on_note=notes.append)
    assert notes[0] == "goes on from agent step 150" and "not exact: the replay was not saved" in notes[1]
    assert read_status(study.runs[0]) == "finished"


# ------------------------------------------------------------------------------------------------- what goes wrong


def test_l21_checkpoints_that_cant_be_written_are_told_of_and_training_goes_on(tmp_path, undisturbed, monkeypatch):
    def full(self, state, agent_steps, confirm):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    study, notes = study_of(tmp_path / "study", AT_EVERY_STEP, seeds=(0, 3)), []
    monkeypatch.setattr(groups.Checkpoints, "save", full)
    train_study(study, on_note=notes.append)
    assert "a checkpoint in" in notes[0] and "No space left on device; training goes on" in notes[0]
    assert_equal(study, undisturbed)


def test_a_disk_too_small_for_the_checkpoints_is_said_beforehand(tmp_path, monkeypatch):
    free = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    study, notes = study_of(tmp_path / "study"), []
    with pytest.raises(Killed):
        train_study(study, on_note=notes.append, on_progress=killed_at(3))
    assert "checkpoints can come to 2,400,000 bytes" in notes[0] and "1,000,000 left" in notes[0]


def test_l42_rows_that_cant_be_written_are_written_later(tmp_path, undisturbed, monkeypatch):
    write, failing = writer.write_atomically, [True]

    def sometimes(path, content):
        if path.name == "metrics.csv" and failing:
            failing.pop()
            raise OSError(errno.EACCES, "Permission denied")
        write(path, content)

    study = study_of(tmp_path / "study", seeds=(0, 3))
    notes = []

    def then_fail(done):
        if done == 100:
            monkeypatch.setattr(writer, "write_atomically", sometimes)

    train_study(study, on_note=notes.append, on_progress=then_fail)
    assert len(notes) == 1 and "metrics.csv could not be written: Permission denied; training goes on" in notes[0]
    assert_equal(study, undisturbed)


def test_a_network_that_cant_be_written_is_written_before_a_checkpoint_has_its_row(tmp_path, undisturbed, monkeypatch):
    full = []

    def sometimes(*of):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        save_params(*of)

    def between_steps(done):
        full[:] = [True] * (done == 200)  # until the step after the first test phase
        if done == 203:
            raise Killed

    monkeypatch.setattr(writer, "save_params", sometimes)
    study = study_of(tmp_path / "study", AT_EVERY_STEP, seeds=(0, 3))
    with pytest.raises(Killed):
        train_study(study, on_progress=between_steps)
    assert all(len(rows(study, index)) == 1 and len(networks(study, index)) == 2 for index in range(2))
    train_study(study)
    assert_equal(study, undisturbed)


def test_a_lease_that_does_not_answer_during_a_test_phase_loses_no_row(tmp_path, undisturbed, monkeypatch):
    confirm, silent = locks.Lease.confirm, []

    def sometimes(self):
        if silent:
            raise OSError(errno.EIO, os.strerror(errno.EIO), ".lock.1")
        confirm(self)

    def between_steps(done):
        silent[:] = [True] * (done == 200)  # until the step after the first test phase

    monkeypatch.setattr(locks.Lease, "confirm", sometimes)
    study, notes = study_of(tmp_path / "study", seeds=(0, 3)), []
    train_study(study, on_note=notes.append, on_progress=between_steps)
    assert len(notes) == 4 and "Input/output error; training goes on and tries again later" in notes[0]
    assert_equal(study, undisturbed)


def test_what_cant_be_written_at_the_end_leaves_the_run_unfinished_and_it_can_go_on(tmp_path, undisturbed, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def then_full(done):
        if done == 300:
            monkeypatch.setattr(writer, "save_params", full)

    study, notes = study_of(tmp_path / "study", seeds=(0, 3)), []
    with pytest.raises(groups.Refused, match=r"\(No space left on device: .*seed-0/final\.safetensors\); make room"):
        train_study(study, on_note=notes.append, on_progress=then_full)
    assert [read_status(run) for run in study.runs] == ["running", "running"] and checkpoints(study)
    monkeypatch.undo()
    train_study(study, on_note=notes.append)
    assert_equal(study, undisturbed)


@pytest.mark.parametrize("what", ["on_row", "on_progress"])
def test_l42_a_logger_that_fails_does_not_stop_training(tmp_path, undisturbed, what):
    def fail(*_):
        raise RuntimeError("the server is away")

    study, notes = study_of(tmp_path / "study", seeds=(0, 3)), []
    train_study(study, on_note=notes.append, **{what: fail})
    place = f"{__file__}, line {fail.__code__.co_firstlineno + 1}"
    assert notes == [
        f"what reports on training failed, and training goes on: RuntimeError: the server is away ({place})"
    ]  # once, and not at every step
    assert_equal(study, undisturbed)


RICH = """
    import gymnasium
    import numpy as np

    class Rich(gymnasium.Env):
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        moments = 0

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.moments += 1
            return np.zeros(1, np.float32), 1e30 if self.moments == 250 else 1.0, self.moments % 10 == 0, False, {}

    gymnasium.register("Wealth-v0", Rich)
"""


def test_a_loss_that_is_not_finite_marks_the_run_and_says_where_its_last_good_state_is(tmp_path, monkeypatch):
    (tmp_path / "wealth.py").write_text(textwrap.dedent(RICH))
    monkeypatch.syspath_prepend(tmp_path)
    study = study_of(
        tmp_path / "study", AT_EVERY_STEP | {"learner.huber_delta": 1e20}, environment="gym/wealth:Wealth-v0"
    )
    notes = []
    with pytest.raises(Diverged):
        train_study(study, on_note=notes.append)
    status = json.loads((study.runs[0].path / "status.json").read_text())
    assert status["state"] == "diverged" and 250 < status["agent_steps"] <= 400
    assert f"the loss was not finite at agent step {status['agent_steps']}" in status["reason"]
    assert "lower learner.learning_rate" in status["hint"]
    saved = max(saved_steps(study))
    assert saved < status["agent_steps"] and f"the last good state is of agent step {saved}, in" in notes[-1]
    told = len(notes)
    train_study(study, on_note=notes.append)  # it would come to the same end
    assert len(notes) == told


# ------------------------------------------------------------------------------------------------------------- locks


def test_l34_a_second_process_is_refused(begun):
    with begun.locked(), pytest.raises(ValueError, match=rf"trained by another process \(process {os.getpid()} on "):
        train_study(Study(begun.path))


def test_l34_a_dead_process_holds_no_lock(begun):
    code = f"""
        import time
        from pathlib import Path
        from softbellman.study.store import Study
        with Study(Path({str(begun.path)!r})).locked():
            print("locked", flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    with pytest.raises(ValueError, match=f"another process .process {process.pid} on "), begun.locked():
        pass
    process.kill()
    process.communicate()
    with begun.locked():
        pass


def test_a_file_system_without_links_and_syncs_of_directories_will_do_and_what_is_weaker_is_told_once(
    tmp_path, undisturbed, monkeypatch
):
    def lacking(code):
        def fail(*_, **__):
            raise OSError(code, os.strerror(code))

        return fail

    def sync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "link", lacking(errno.EPERM))
    monkeypatch.setattr(os, "fsync", sync)
    study, notes = study_of(tmp_path / "study", AT_EVERY_STEP, seeds=(0, 3)), []
    with pytest.raises(Killed):
        train_study(study, on_progress=killed_at(257), on_note=notes.append)
    assert len(notes) == 1 and "can't sync directories" in notes[0]
    train_study(study)
    assert_equal(study, undisturbed)


# ----------------------------------------------------------------------------------------------------------- signals


def test_a_stop_that_is_asked_for_comes_between_two_steps(tmp_path, undisturbed):
    study, notes = study_of(tmp_path / "study", seeds=(0, 3)), []

    def interrupt(done):
        if done == 123:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped):
        train_study(study, on_progress=interrupt, on_note=notes.append)
    assert notes == ["stopping: the state is saved first; once more to leave at once"]
    assert signal.getsignal(signal.SIGINT) == before
    assert [file.name for file in checkpoints(study)] == ["step-000000000124.safetensors"]
    status = json.loads((study.runs[0].path / "status.json").read_text())
    assert (status["state"], status["agent_steps"]) == ("stopped", 124)
    assert not (study.runs[0].path / "error.txt").exists()
    train_study(study)
    assert_equal(study, undisturbed)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU])
def test_signals_that_announce_an_end_save_the_state_however_often_they_come(number, tmp_path, undisturbed, request):
    """A terminal that closes, a queue that preempts, a limit of CPU time; then SIGTERM, once, which loses nothing."""
    request.addfinalizer(partial(signal.signal, number, signal.signal(number, signal.SIG_DFL)))  # nohup ignores one
    study, notes = study_of(tmp_path / "study", seeds=(0, 3)), []

    def announce(done):
        if done == 123:
            for each in (number, number, signal.SIGTERM):
                os.kill(os.getpid(), each)

    with pytest.raises(Stopped):
        train_study(study, on_progress=announce, on_note=notes.append)
    assert notes == ["stopping: the state is saved first"] and signal.getsignal(number) == signal.SIG_DFL
    assert [file.name for file in checkpoints(study)] == ["step-000000000124.safetensors"]
    assert {read_status(run) for run in study.runs} == {"stopped"}
    train_study(study)
    assert_equal(study, undisturbed)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU])
def test_a_study_that_trains_in_this_process_stops_too(number, tmp_path, request):
    """As `sb.train` does: who launches listens to signals, and so does who trains."""
    request.addfinalizer(partial(signal.signal, number, signal.signal(number, signal.SIG_DFL)))
    study, notes = study_of(tmp_path / "study"), []

    class Told(Reporter):
        note = notes.append

    work = find_work(study.runs, [], 1, 1)
    with pytest.raises(Stopped):
        launch_study(
            study, work, engine=Here(), variables={}, progress=Told(), on_phase=lambda *_: os.kill(os.getpid(), number)
        )
    assert len(notes) == 1 and "stopping: the state is saved first" in notes[0]
    status = json.loads((study.runs[0].path / "status.json").read_text())
    assert (status["state"], status["agent_steps"]) == ("stopped", 201)
    assert signal.getsignal(number) == signal.SIG_DFL


def test_a_request_before_training_begins_or_after_it_has_ended_is_not_lost():
    with StopRequests(lambda text: None) as outer:
        os.kill(os.getpid(), signal.SIGTERM)
        with StopRequests(lambda text: None) as inner, pytest.raises(Stopped):
            inner.check()
    with StopRequests(lambda text: None) as outer:
        with StopRequests(lambda text: None):
            os.kill(os.getpid(), signal.SIGTERM)
        assert outer.was_signalled


def test_a_signal_that_comes_within_a_print_stops_and_breaks_nothing():
    def within_another(text):
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stdout>'>")  # as Python does

    with StopRequests(within_another) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped):
            stop.check()


def test_a_signal_that_is_ignored_or_handled_already_is_left_alone():
    """Under nohup, SIGHUP is ignored; a script may have a use of its own for SIGUSR1."""
    code = """
        import os, signal
        from softbellman.running.stopping import StopRequests
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, lambda *_: print("mine", flush=True))
        with StopRequests(print) as stop:
            for number in (signal.SIGHUP, signal.SIGUSR1):
                os.kill(os.getpid(), number)
            stop.check()
        print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)
    """
    process = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (0, "mine\nTrue\n")


def test_a_test_phase_is_broken_off_for_a_stop(tmp_path, undisturbed, monkeypatch):
    study = study_of(tmp_path / "study", seeds=(0, 3))
    test = groups.Loop.test

    def interrupted(self, on_step):
        os.kill(os.getpid(), signal.SIGTERM)  # as a scheduler does
        return test(self, on_step)

    with monkeypatch.context() as patched:
        patched.setattr(groups.Loop, "test", interrupted)
        with pytest.raises(Stopped):
            train_study(study)
    assert checkpoints(study)[-1].name == "step-000000000200.safetensors"
    train_study(study)
    assert_equal(study, undisturbed)


def test_the_second_request_leaves_at_once():
    code = """
        import os, signal
        from softbellman.running.stopping import StopRequests
        with StopRequests(print):
            os.kill(os.getpid(), signal.SIGINT)
            print("still here", flush=True)
            os.kill(os.getpid(), signal.SIGINT)
            print("never printed", flush=True)
    """
    process = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert process.returncode == EXIT_CODE
    assert process.stdout.endswith("still here\n") and process.stderr == ""


def test_elsewhere_than_in_the_main_thread_signals_are_left_alone():
    from concurrent.futures import ThreadPoolExecutor

    def enter():
        with StopRequests(print) as stop:
            stop.check()
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(enter).result() == signal.getsignal(signal.SIGINT)


# ------------------------------------------------------------------------------------------- processes that are killed

COMMON = ["--loop.held-out-states", "320", "--loop.gradient-batches", "2", "--learner.replay-start-steps", "100"]
CARTPOLE = [
    *("train", "gym/CartPole-v1", "--operator", "double(softmax(5))", "--steps", "8000", "--loop.epoch-steps", "1000"),
    *("--loop.test-steps", "200", "--learner.target-period-updates", "30", "--learner.replay-capacity", "1500"),
    *COMMON,
]
BREAKOUT = [
    *("train", "atari/breakout", "--preset", "demo-atari", "--operator", "softmax(5)", "--steps", "900"),
    *("--loop.epoch-steps", "300", "--loop.test-steps", "60", "--learner.target-period-updates", "30"),
    *("--learner.replay-capacity", "600", *COMMON),
]


def launch(words, out):
    return subprocess.Popen(
        [sys.executable, "-c", "from softbellman.cli import main; main()", *words, "--quiet", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def trained_through_kills(words, out, kills, rng):
    """Trains by the same command again and again, killed at random moments after it went on; gives the kills done."""
    done = 0
    while True:
        process = launch([*words, "--checkpoint.minutes", "0.001"], out)
        before, wanted = newest(out), done < kills
        while wanted and process.poll() is None and newest(out) == before:
            time.sleep(0.01)
        try:
            process.wait(rng.uniform(0, 0.15) if wanted else None)
        except subprocess.TimeoutExpired:
            process.kill()
            done += 1
        _, errors = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), errors
        if process.returncode == 0:
            return done


def newest(out):
    return max((file.name for file in Path(out).glob("groups/*/checkpoint/step-*")), default="")


@pytest.mark.parametrize(
    ("words", "kills"),
    [
        pytest.param([{"8000": "1200"}.get(word, word) for word in CARTPOLE], 1, id="CartPole, a kill"),
        pytest.param(CARTPOLE, 20, id="CartPole, 20 kills", marks=pytest.mark.slow),
        pytest.param(BREAKOUT, 20, id="Breakout, 20 kills", marks=pytest.mark.slow),
    ],
)
def test_l3_killed_at_random_moments_it_comes_to_the_same_end(words, kills, tmp_path):
    if words is BREAKOUT:
        pytest.importorskip("ale_py")
    process = launch(words, tmp_path / "undisturbed")
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    done = trained_through_kills(words, tmp_path / "killed", kills, np.random.default_rng(kills))
    assert done == kills
    assert_equal(Study(tmp_path / "killed"), Study(tmp_path / "undisturbed"))
