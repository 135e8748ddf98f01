"""Rows of a run in a tracker: once each, in one run of the tracker's, whatever stops training."""

import json
import sys
import time
from threading import Thread

import pytest

from softbellman.sinks import SINKS, Sinks, require_sinks
from softbellman.sinks.tracked import Tracked
from softbellman.study.files import write_atomically

from ..studies import EPOCH, row, synthetic


class Service:
    """A tracker in memory that other processes go on with: rows by run, and how each run ended."""

    def __init__(self, answers=True):
        self.rows, self.ends, self.told, self.answers = {}, {}, [], answers

    def __call__(self, facts, known):
        self.told.append(facts)
        id = known or f"run-{len(self.rows)}"
        self.rows.setdefault(id, [])
        return Opened(self, id)


class Opened:
    def __init__(self, service, id):
        self.service, self.id = service, id
        held = max((step for step, _ in service.rows[id]), default=-1)
        self.newest = held if service.answers else None

    def row(self, step, values):
        self.service.rows[self.id].append((step, values))

    def end(self, state):
        self.service.ends[self.id] = state


@pytest.fixture
def run(tmp_path):
    study = synthetic(tmp_path / "study", operators=["softmax(5)"], seeds=[3], ends={("softmax(5)", 3): "running"})
    return study.runs[0]


def rows(*phases):
    return [row(phase, 12, 0, 3, 1) for phase in phases]


def given(service, run, *batches):
    """Opens a sink for each batch of phases, as each process does that goes on, and closes none: they are killed."""
    for batch in batches:
        sink = Tracked("service", service, run)
        for each in rows(*batch):
            sink.row(each)
    return sink


def steps(service):
    return {id: [step // EPOCH for step, _ in held] for id, held in service.rows.items()}


@pytest.mark.parametrize("answers", [True, False])
def test_rows_past_the_checkpoint_are_not_there_twice(run, answers):
    service = Service(answers)
    given(service, run, [1, 2, 3], [1, 2, 3, 4], [1], [1, 2, 3, 4, 5])
    assert steps(service) == {"run-0": [1, 2, 3, 4, 5]}
    assert json.loads((run.path / "trackers" / "service.json").read_text()) == {"id": "run-0", "agent_steps": 5 * EPOCH}


def test_a_row_that_a_killed_process_kept_in_a_queue_is_given_again(run):
    service = Service()
    given(service, run, [1, 2, 3])
    del service.rows["run-0"][1:]
    given(service, run, [1, 2, 3, 4])
    assert steps(service) == {"run-0": [1, 2, 3, 4]}


def test_of_one_that_got_nothing_before_the_kill_all_is_given(run):
    service = Service()
    given(service, run, [1])
    service.rows["run-0"].clear()
    given(service, run, [1, 2])
    assert steps(service) == {"run-0": [1, 2]}


def test_a_kill_between_the_note_and_the_row_gives_no_row_twice(run):
    service = Service(answers=False)
    sink = given(service, run, [1])
    sink._tracker.row = None  # as if killed there
    with pytest.raises(TypeError):
        sink.row(rows(2)[0])
    given(service, run, [1, 2, 3])
    assert steps(service) == {"run-0": [1, 3]}


def test_a_run_put_aside_has_a_run_of_the_tracker_of_its_own(run):
    service = Service()
    given(service, run, [1, 2])
    run.path.rename(run.path.with_name("seed-3.before-1"))
    run.path.mkdir()
    given(service, run, [1])
    assert steps(service) == {"run-0": [1, 2], "run-1": [1]}


def test_it_is_told_the_settings_of_the_arm_and_how_the_run_ended(tmp_path):
    arm = "mine=max, learner.gamma=0.5"
    study = synthetic(tmp_path / "study", operators=["softmax(5)", arm], seeds=[0])
    service = Service()
    for run in study.runs:
        sink = Tracked("service", service, run)
        sink.status("finished", agent_steps=3)
        sink.close()
    given(service, study.runs[0], []).close()  # nothing was said: it has died
    first, second, _ = service.told
    assert (first.name, first.study) == ("minatar/breakout, softmax(5), seed 0", "study")
    assert first.settings["learner.gamma"] == 0.99 and second.settings["learner.gamma"] == 0.5
    asked = ("environment", "arm", "operator", "seed")
    assert [second.settings[name] for name in asked] == ["minatar/breakout", "mine", "max", 0]
    assert service.ends == {"run-0": "failed", "run-1": "finished"}


def test_quantities_that_could_not_be_had_are_left_out(run):
    service = Service()
    Tracked("service", service, run).row(rows(1)[0] | {"overestimation": None})
    ((_, values),) = service.rows["run-0"]
    assert "overestimation" not in values and values["test_return"] == rows(1)[0]["test_return"]


@pytest.mark.parametrize("fault", ["damaged", "away"])
def test_a_tracker_that_can_not_be_opened_is_told_of_and_ends_nothing(run, monkeypatch, fault):
    def away(facts, known):
        raise ConnectionError("no answer from the service")

    said = []
    monkeypatch.setitem(SINKS, "wandb", lambda run: Tracked("wandb", away, run))
    if fault == "damaged":
        (run.path / "trackers").mkdir()
        write_atomically(run.path / "trackers" / "wandb.json", "{")
    sinks = Sinks(["wandb"], run, [], said.append)
    sinks.row(rows(1)[0])
    sinks.close()
    (note,) = said
    assert note.startswith("sink wandb failed: ") and note.endswith("; training goes on without it")
    assert "no answer from the service" in note or "JSONDecodeError" in note


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio", "tensorboard"])
def test_a_missing_package_is_one_line_before_any_work(name, monkeypatch):
    package = {"tensorboard": "tensorboardX"}.get(name, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError) as refused:
        require_sinks([name])
    assert str(refused.value) == f'{package} is not installed; run: pip install "softbellman[{name}]"'


def test_trackers_are_opened_one_at_a_time(run):
    """Two processes that make MLflow's data base at once spoil it."""
    inside, most = 0, 0

    def slowly(facts, known):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.2)
        inside -= 1
        return Service()(facts, known)

    threads = [Thread(target=Tracked, args=(f"service-{n}", slowly, run)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and len(list((run.path / "trackers").iterdir())) == 3
