"""The trackers themselves, each on this machine alone: a run killed behind its checkpoint has its rows there once."""

import importlib
import importlib.util
import json
import sqlite3
import struct
import subprocess
import sys
import textwrap

import pytest

from softbellman.study.store import Study

from ..offline import blocked

pytestmark = pytest.mark.trackers

TRAIN = """
    import softbellman as sb

    settings = {
        "loop.epoch_steps": 100, "loop.test_steps": 100, "loop.held_out_states": 32, "loop.gradient_batches": 1,
        "learner.replay_start_steps": 64, "learner.learning_rate": RATE, "loop.block_width": 2,
    }
    sb.train("gym/CartPole-v1", "softmax(5)", [0, 7], 300, settings=settings, sinks=SINKS, out="study", quiet=True)
"""
KILLER = """
    import os, pathlib, signal, time

    class Killer:
        def __init__(self, run):
            self.run, self.told = run, pathlib.Path("killed")

        def row(self, row):
            if row["agent_steps"] == 200 and self.run.seed == 7 and not self.told.exists():
                self.told.touch()
                time.sleep(WAIT)
                os.kill(os.getpid(), signal.SIGKILL)

        def status(self, state, **facts):
            pass

        def close(self):
            pass
"""
LOCAL = {
    "WANDB_MODE": "offline",
    "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db",
    "TRACKIO_DIR": "trackio",
    "HF_HOME": "hugging",
    "WANDB_CONFIG_DIR": "config",
    "WANDB_CACHE_DIR": "cache",
}


def train(folder, sinks, rate="0.001"):
    """Trains two runs of three test phases in a process of its own, which can reach no other machine."""
    code = textwrap.dedent(TRAIN).replace("SINKS", repr(sinks)).replace("RATE", rate)
    (folder / "mysinks.py").write_text(textwrap.dedent(KILLER).replace("WAIT", "3" if "wandb" in sinks else "0"))
    variables = blocked(folder)
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={name: value for name, value in variables.items() if not name.startswith(("WANDB", "MLFLOW", "TRACKIO"))}
        | LOCAL,
        capture_output=True,
        text=True,
        check=False,
    )


def wandb_rows(folder):
    """Rows by the name of the run in the files that `wandb sync` would send; one file for each time it was begun."""
    from wandb.proto.wandb_internal_pb2 import Record

    found, ids = {}, {}
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for record in records(file.read_bytes()):
            message = Record.FromString(record)
            if message.HasField("run"):
                name, id = message.run.display_name, message.run.run_id
                assert ids.setdefault(name, id) == id
            elif message.HasField("history"):
                items = {item.key or item.nested_key[0]: item.value_json for item in message.history.item}
                found.setdefault(name, []).append({key: json.loads(value) for key, value in items.items()})
    return found


def records(data):
    """Records of a log in the format of LevelDB, after the seven bytes that name it."""
    place, parts = 7, []
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        size, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        parts.append(data[place + 7 : place + 7 + size])
        place += 7 + size
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


def mlflow_rows(folder):
    with sqlite3.connect(folder / "mlflow.db") as base:
        names = dict(base.execute("select run_uuid, name from runs"))
        cells = base.execute("select run_uuid, step, key, value from metrics order by step").fetchall()
    found = {}
    for run, step, key, value in cells:
        row = found.setdefault(names[run], {}).setdefault(step, {})
        assert key not in row  # at one step once
        row[key] = value
    return {name: list(rows.values()) for name, rows in found.items()}


def trackio_rows(folder):
    (file,) = folder.glob("trackio/*.db")
    with sqlite3.connect(file) as base:
        cells = base.execute("select run_name, step, metrics from metrics order by id").fetchall()
    found = {}
    for name, _, metrics in cells:
        found.setdefault(name.rpartition(" (")[0], []).append(json.loads(metrics))
    return found


READERS = {"wandb": wandb_rows, "mlflow": mlflow_rows, "trackio": trackio_rows}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A study whose process was killed with a row behind the checkpoint in every tracker, and that went on."""
    folder = tmp_path_factory.mktemp("tracked")
    names = [name for name in READERS if importlib.util.find_spec(name)]
    if not names:
        pytest.skip("no tracker is installed: make test-trackers")
    sinks = [*names, "mysinks:Killer"]
    first = train(folder, sinks)
    assert (first.returncode, first.stdout, first.stderr) == (-9, "", "")
    before = {file: file.read_bytes() for file in folder.glob("study/runs/*/*/*/trackers/*.json")}
    second = train(folder, sinks)
    assert (second.returncode, second.stdout) == (0, ""), second.stderr
    return folder, before


@pytest.mark.parametrize("name", READERS)
def test_a_run_killed_behind_its_checkpoint_has_each_row_once(killed, name):
    pytest.importorskip(name)
    folder, before = killed
    study = Study(folder / "study")
    assert len(study.record["resumptions"]) == 1
    shown, table = READERS[name](folder), study.metrics()
    assert set(shown) == {str(run) for run in study.runs}
    for run in study.runs:
        own = table["seed"] == run.seed
        assert [row["agent_steps"] for row in shown[str(run)]] == table["agent_steps"][own].tolist() == [100, 200, 300]
        assert [row["test_return"] for row in shown[str(run)]] == table["test_return"][own].tolist()
        memo = run.path / "trackers" / f"{name}.json"
        assert json.loads(memo.read_text())["id"] == json.loads(before[memo])["id"]  # in the same run of the tracker


@pytest.mark.parametrize("name", READERS)
def test_it_reaches_no_other_machine_unasked(killed, name):
    pytest.importorskip(name)
    assert not (killed[0] / "reached").exists()


def test_settings_and_the_end_are_in_mlflow(killed):
    pytest.importorskip("mlflow")
    with sqlite3.connect(killed[0] / "mlflow.db") as base:
        ends = base.execute("select status, count(*) from runs group by status").fetchall()
        said = dict(base.execute("select key, value from params where run_uuid = (select run_uuid from runs limit 1)"))
    assert ends == [("FINISHED", 2)]
    assert said["operator"] == "softmax(5)" and said["learner.learning_rate"] == "0.001" and said["loop.steps"] == "300"


def test_wandb_gets_nothing_of_the_machine(killed):
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    kinds = set()
    for file in killed[0].glob("wandb/offline-run-*/*.wandb"):
        messages = [Record.FromString(record) for record in records(file.read_bytes())]
        kinds |= {message.WhichOneof("record_type") for message in messages}
        assert all(not message.run.host for message in messages if message.HasField("run"))
    assert not kinds & {"stats", "output", "output_raw", "artifact"}


def test_one_that_fails_ends_no_training(tmp_path):
    pytest.importorskip("mlflow")
    (tmp_path / "mlflow.db").write_text("this is no data base, and was here before")
    done = train(tmp_path, ["mlflow"])
    assert done.returncode == 0
    told = [line for line in done.stderr.splitlines() if line.startswith("softbellman: ")]
    assert len(told) == 2 and all("sink mlflow failed: " in line for line in told)
    assert Study(tmp_path / "study").metrics()["agent_steps"].tolist() == [100, 200, 300] * 2


def test_one_that_diverges_is_marked_so(tmp_path):
    pytest.importorskip("mlflow")
    done = train(tmp_path, ["mlflow"], rate="1e30")
    assert "diverged" in done.stderr
    with sqlite3.connect(tmp_path / "mlflow.db") as base:
        assert base.execute("select value from tags where key = 'status'").fetchall() == [("diverged",)] * 2
        assert base.execute("select distinct status from runs").fetchall() == [("FAILED",)]
