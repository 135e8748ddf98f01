"""Sinks: the rows that a run has go to each, once, whatever stops the run; one that fails ends no training."""

import json
import re
import struct
import textwrap

import pytest

import softbellman as sb
from softbellman.sinks import Sinks, require_sinks
from softbellman.study.runs import runs_of
from softbellman.study.store import Study
from softbellman.training.metrics import columns

from ..studies import TINY, planned_study, row, train

VALUES = {name: value for name, value in TINY.items() if name != "loop.steps"}
OWN = """
    class Lines:
        def __init__(self, run):
            run.path.mkdir(parents=True, exist_ok=True)
            self.file = (run.path / "lines.txt").open("w")

        def row(self, row):
            print(row["agent_steps"], row["test_return"], file=self.file)

        def status(self, state, **facts):
            print(state, file=self.file)

        def close(self):
            self.file.close()

    class Full(Lines):
        def row(self, row):
            raise OSError("the tracker is away")

    NUMBER = 1
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module with sinks of a user's own."""
    (tmp_path / "mysinks.py").write_text(textwrap.dedent(OWN))
    monkeypatch.syspath_prepend(tmp_path)


def scalars(folder):
    """Every scalar of event files, `(tag, step)` to value, each of which must be there once."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for file in sorted(folder.glob("events*")):
        data = file.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    assert (value.tag, event.step) not in found
                    found[value.tag, event.step] = value.simple_value
    return found


def test_a_run_is_shown_in_tensorboard_row_by_row(tmp_path):
    pytest.importorskip("tensorboardX")
    options = {"settings": VALUES, "sinks": "tensorboard", "out": tmp_path / "study", "quiet": True}
    study = sb.train("gym/CartPole-v1", "max", 1, 400, **options)
    shown, rows = scalars(study.runs[0].path / "tensorboard"), study.metrics()
    assert study.record["log"] == ["tensorboard"]
    for name in ("test_return", "updates", "overestimation", "seconds"):
        for step, value in zip(rows["agent_steps"], rows[name], strict=True):
            assert shown[name, step] == pytest.approx(value, rel=1e-6)
    assert {tag for tag, _ in shown} <= set(columns())


def test_rows_are_not_there_twice_after_a_stop(tmp_path, mine):
    pytest.importorskip("tensorboardX")
    planned = planned_study("gym/CartPole-v1", "classic-control", "max", [0], TINY | {"checkpoint.minutes": 60.0})
    asked = (planned.environment, ["max"], [0], planned.config, {planned.environment: planned.facts}, [])
    study = Study.create(tmp_path / "study", *asked, log=["tensorboard", "mysinks:Lines"])

    def test_phases_then_stop(index, row, phase):
        if row["agent_steps"] == 400:
            raise KeyboardInterrupt  # behind the checkpoint of step 200, with two rows written

    with pytest.raises(KeyboardInterrupt):
        train(study, on_row=test_phases_then_stop)
    train(Study(study.path))
    (resumption,) = Study(study.path).record["resumptions"]
    assert [*resumption["agent_steps"].values()] == [200]
    rows, lines = study.metrics(), (study.runs[0].path / "lines.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["200", "400", "finished"]
    assert [float(line.split()[1]) for line in lines[:2]] == rows["test_return"].tolist()
    steps = sorted(step for tag, step in scalars(study.runs[0].path / "tensorboard") if tag == "test_return")
    assert steps == rows["agent_steps"].tolist() == [200, 400]


def test_one_that_fails_is_told_of_once_and_ends_nothing(tmp_path, mine, capsys):
    sinks = ["mysinks:Full", "mysinks:Lines"]
    study = sb.train("gym/CartPole-v1", "max", 1, 400, settings=VALUES, sinks=sinks, out=tmp_path / "study", quiet=True)
    assert json.loads((study.runs[0].path / "status.json").read_text())["state"] == "finished"
    (told,) = capsys.readouterr().err.splitlines()
    assert "sink mysinks:Full failed: OSError: the tracker is away" in told and "training goes on without it" in told
    assert (study.runs[0].path / "lines.txt").read_text().endswith("finished\n")


def test_rows_from_before_are_numbers_again(tmp_path):
    (run,) = runs_of(tmp_path, ["gym/X"], ["max"], [0])
    known, seen = row(1, 2, 0, 0, 4) | {"gradient_norm": None}, []

    class Seeing(Sinks):
        def row(self, row):
            seen.append(row)

    Seeing([], run, [{name: "" if value is None else str(value) for name, value in known.items()}], pytest.fail)
    assert seen == [known]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tensorbord", "unknown sink 'tensorbord'; there are tensorboard, wandb, mlflow, trackio, and module:function"),
        ("mysinks:Missing", "sink mysinks:Missing: mysinks has no Missing"),
        ("mysinks:NUMBER", "sink mysinks:NUMBER is a int, which can't be called with a run"),
    ],
)
def test_what_is_no_sink_is_refused_before_any_work(name, said, mine, tmp_path):
    with pytest.raises(ValueError, match=re.escape(said)):
        require_sinks([name])
    with pytest.raises(ValueError, match=re.escape(said)):
        sb.compare("gym/CartPole-v1", "max", 1, sinks=name, out=tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_sink_that_no_other_process_could_find_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"can't be found again by other processes: a lambda has no name"):
        sb.compare("gym/CartPole-v1", "max", 1, sinks=lambda run: None, out=tmp_path / "study")
