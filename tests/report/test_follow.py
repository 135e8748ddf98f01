"""The live view: pages as long as a study is trained, a last one without a reload, Ctrl-C at any time."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from softbellman.report import follow as live
from softbellman.report.follow import follow
from softbellman.study import locks
from softbellman.study.locks import Held, Silence, is_held
from softbellman.study.store import Study
from softbellman.study.writer import RunWriter, write_status
from softbellman.training.metrics import columns

from ..studies import row, synthetic

# Ctrl-C reaches it also where these tests run in the background, in which shells have it ignored.
HEEDS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
COMMAND = [sys.executable, "-c", f"{HEEDS}; from softbellman.cli import main; main()"]
UNDER_WAY = {(operator, seed): "running" for operator in ("max", "mean") for seed in (0, 1)}


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(live, "POLL", 0.05)
    monkeypatch.setattr(live, "SHARE", 0)


def begun(folder, phases=4):
    return synthetic(folder, operators=["max", "mean"], seeds=[0, 1], phases=phases, ends=UNDER_WAY)


@contextmanager
def trained(study):
    """Holds the lock of a study, as its training does, in a thread of its own, until it is told to let go."""
    ended, held = threading.Event(), threading.Event()

    def hold():
        with study.locked():
            held.set()
            ended.wait(600)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    try:
        yield ended.set
    finally:
        ended.set()
        thread.join()


def text(study):
    return (study.path / "report" / "index.html").read_text()


def write(study, number, phases):
    writer = RunWriter(study.runs[number], columns())
    for phase in range(1, phases + 1):
        writer.row(row(phase, 4, number // 2, number % 2, 1))
    return writer


def test_a_page_comes_after_each_test_phase_until_nobody_trains(tmp_path):
    study, said = begun(tmp_path / "study"), []
    with trained(study) as end:

        def on_page(page, ended):
            said.append(ended)
            assert 'data-reload="5"' in text(study) and ended in text(study)
            if len(said) == 1:
                write(study, 0, 3)
            elif len(said) == 2:
                write(study, 0, 4).status("finished")
            else:
                end()

        follow(study.path, on_page=on_page)
    assert said == ["0 of 4 runs have ended", "0 of 4 runs have ended", "1 of 4 runs have ended"]


def test_it_waits_for_the_first_test_phase(tmp_path):
    study, said = synthetic(tmp_path / "study", operators=["max"], seeds=[0], ends={("max", 0): "running"}), []
    RunWriter(study.runs[0], columns())  # it has begun, and has no row
    with trained(study) as end:
        timer = threading.Timer(0.5, lambda: write(study, 0, 1))
        timer.start()
        follow(study.path, on_page=lambda page, ended: (said.append(ended), end()))
        timer.join()
    assert said == ["0 of 1 runs have ended"]


def test_nothing_is_written_where_nothing_has_changed(tmp_path, monkeypatch):
    study, said, looks = begun(tmp_path / "study"), [], [True] * 6
    monkeypatch.setattr(live, "is_held", lambda *_: bool(looks) and looks.pop())
    follow(study.path, on_page=lambda page, ended: said.append(ended))
    assert len(said) == 1 and not looks


def test_a_study_that_grows_is_followed(tmp_path):
    study, said = begun(tmp_path / "study"), []

    def on_page(page, ended):
        said.append(ended)
        if len(said) == 1:
            Study(study.path).update(seeds=[0, 1, 2])
            writer = RunWriter(Study(study.path).runs[2], columns())
            writer.row(row(1, 4, 0, 2, 1))
        else:
            end()

    with trained(study) as end:
        follow(study.path, on_page=on_page)
    assert said == ["0 of 4 runs have ended", "0 of 6 runs have ended"]


def test_a_study_that_nobody_trains_is_not_followed(tmp_path):
    study = begun(tmp_path / "study")
    follow(study.path, on_page=lambda page, ended: pytest.fail("nothing is under way"))
    assert not (study.path / "report").exists()


def test_ctrl_c_leaves_a_page_that_does_not_reload_itself(tmp_path):
    study = begun(tmp_path / "study")

    def on_page(page, ended):
        raise KeyboardInterrupt

    with trained(study), pytest.raises(KeyboardInterrupt):
        follow(study.path, on_page=on_page)
    assert "data-reload" not in text(study) and "Under way" not in text(study)


def test_a_study_all_of_whose_runs_diverge_ends_with_a_page_that_says_so(tmp_path):
    study, said = begun(tmp_path / "study"), []
    with trained(study) as end:

        def on_page(page, ended):
            said.append(ended)
            for run in study.runs:
                write_status(run, "diverged", reason="loss nan at agent step 300")
            if len(said) == 2:
                end()

        follow(study.path, on_page=on_page)
    assert said == ["0 of 4 runs have ended", "4 of 4 runs have ended"]
    study.report()
    assert "data-reload" not in text(study) and "No run counts, and there is nothing to draw." in text(study)
    assert text(study).count("loss nan at agent step 300") == 4


def test_a_look_that_the_file_system_does_not_answer_is_taken_again(tmp_path, monkeypatch):
    study, said, faults = begun(tmp_path / "study"), [], [OSError(116, "Stale file handle")]
    counted = live.count_rows

    def count_rows(run):
        if faults:
            raise faults.pop()
        return counted(run)

    monkeypatch.setattr(live, "count_rows", count_rows)
    with trained(study) as end:
        follow(study.path, on_page=lambda page, ended: (said.append(ended), end()))
    assert said == ["0 of 4 runs have ended"] and not faults


def test_a_fault_leaves_a_page_that_does_not_reload_itself(tmp_path):
    study = begun(tmp_path / "study")

    def on_page(page, ended):
        raise OSError(28, "No space left on device")

    with trained(study), pytest.raises(OSError, match="No space left"):
        follow(study.path, on_page=on_page)
    assert "data-reload" not in text(study)


def test_the_command_ends_at_ctrl_c_in_one_line(tmp_path):
    study = begun(tmp_path / "study")
    with trained(study):
        process = subprocess.Popen(
            [*COMMAND, "report", "--follow", str(study.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        lines = [process.stdout.readline() for _ in range(1)]
        while "page" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "softbellman: stopped\n")
    assert "data-reload" not in text(study)


def test_the_command_follows_training_to_its_end(tmp_path):
    words = "gym/CartPole-v1 --operator softmax:5 --seeds 0 1 --steps 6000 --out study --quiet --loop.epoch-steps 200"
    tiny = "--loop.test-steps 100 --loop.held-out-states 32 --loop.gradient-batches 1 --learner.replay-start-steps 100"
    training = subprocess.Popen(
        [*COMMAND, "train", *words.split(), *tiny.split(), "--learner.target-period-updates", "20"], cwd=tmp_path
    )
    end = time.monotonic() + 120
    while not is_held(tmp_path / "study"):
        assert training.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    followed = subprocess.run(
        [*COMMAND, "report", "--follow", "study"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (training.wait(), followed.returncode, followed.stderr) == (0, 0, "")
    said = " ".join(followed.stdout.split())
    assert re.search(r"following study as long as it is trained; .* \d of 2 runs have ended", said)
    assert "nobody trains it any more" in said and "page study/report/index.html" in said
    page = (tmp_path / "study" / "report" / "index.html").read_text()
    assert "data-reload" not in page and "all 2 runs count" in page


def test_looking_at_a_lock_keeps_nobody_out(tmp_path):
    study, stop = begun(tmp_path / "study"), threading.Event()
    looked = []

    def look():
        while not stop.is_set():
            looked.append(is_held(study.path))

    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(20):
            with study.locked():
                pass
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()
    assert len(looked) > 20


def test_who_holds_a_lock_is_seen(tmp_path):
    assert not is_held(tmp_path / "study")
    study = begun(tmp_path / "study")
    assert not is_held(study.path)
    for lease in study.path.glob(f"{locks.PREFIX}*"):
        lease.unlink()
    assert not is_held(study.path) and not list(study.path.glob(f"{locks.PREFIX}*"))
    with study.locked():
        assert is_held(study.path)
        with pytest.raises(Held, match=f"process {os.getpid()}"), study.locked():
            pass
    assert not is_held(study.path)


def test_a_machine_that_is_gone_holds_nothing_for_long(tmp_path, monkeypatch):
    study, now = begun(tmp_path / "study"), [0.0]
    monkeypatch.setattr(locks, "_now", lambda: now[0])
    number = 1 + max(locks._numbered(study.path), default=0)
    facts = {"pid": 1, "host": "elsewhere", "space": "another", "began": "1"}
    (study.path / f"{locks.PREFIX}{number}").write_text(json.dumps(facts))
    silence = Silence()
    assert is_held(study.path) and is_held(study.path, silence)
    now[0] = locks.LEASE + 1
    assert is_held(study.path) and not is_held(study.path, silence)
