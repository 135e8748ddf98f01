"""The local engine passes on what its processes say, outlives them however they end, and stops them when asked to."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest

from softbellman.running import worker
from softbellman.running.engines import DETERMINISTIC, Task, contract, local, share, xla_flags
from softbellman.running.engines.local import Local

# A worker that does what its group is named after; `say` tells an event.
WORKER = """
    import json, os, signal, sys, time
    from pathlib import Path

    folder, name = Path(sys.argv[1]), sys.argv[2]

    def say(kind, **facts):
        os.write(1, (json.dumps({"kind": kind, **facts}) + "\\n").encode())

    (folder / f"{name}.began").write_text(str(time.monotonic()))
"""
ENDS = {
    "well": "say('row', run=0, epoch=1, score=2.5, games=3); say('note', text='all is well')",
    "told": "say('died', reason='RuntimeError: no', report='Traceback'); sys.exit(1)",
    "killed": "print('words', file=sys.stderr, flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "aborted": "os.kill(os.getpid(), signal.SIGABRT)",
    "exited": "sys.exit(7)",
    "stopped": "sys.exit(130)",
    "long": "time.sleep(0.3); (folder / f'{name}.ended').write_text(str(time.monotonic()))",
    "pair": """for _ in range(3000):
        if (folder / f"pair-{3 - int(name[-1])}.began").exists():
            break
        time.sleep(0.01)
    else:
        sys.exit(7)""",
    "half": 'os.write(1, b\'{"kind": "no\'); time.sleep(0.1); os.write(1, b\'te", "text": "x"}\\n\')',
    "noisy": """os.write(1, b'patched\\n\\n\\xff\\n3\\n[1]\\n{"kind": 4}\\n{"level": "info"}\\n' + b"[" * 5000)
    os.write(1, b"\\n")
    say('note', text='all is well')
    if name == 'noisy-killed':
        os.kill(os.getpid(), signal.SIGKILL)""",
    "inexact": "say('note', text=sys.argv[3])",
    "environment": "say('note', text=json.dumps([dict(os.environ), sys.path]))",
    "obedient": "os.read(0, 1); time.sleep(0.2); (folder / 'saved').touch(); say('note', text='nobody listens')",
}


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Trains groups by such workers; returns what was heard."""
    (tmp_path / "worker.py").write_text(
        textwrap.dedent(WORKER) + "".join(f"if name.startswith({name!r}):\n    {act}\n" for name, act in ENDS.items())
    )
    monkeypatch.setattr(local, "COMMAND", (sys.executable, "-S", str(tmp_path / "worker.py")))

    def train(*names, workers=2, check=lambda: None, **variables):
        heard = []
        tasks = [Task(tmp_path, name, False, variables) for name in names]
        Local(workers).train(tasks, lambda task, event: heard.append((task.group, *event)), check)
        return heard

    return train


def test_what_a_process_says_is_passed_on_and_its_end_comes_last(trained):
    assert trained("well") == [
        ("well", "row", {"run": 0, "epoch": 1, "score": 2.5, "games": 3}),
        ("well", "note", {"text": "all is well"}),
        ("well", "ended", {}),
    ]
    assert trained("half") == [("half", "note", {"text": "x"}), ("half", "ended", {})]
    assert trained() == []


def test_what_is_no_event_ends_nothing_and_is_kept_for_the_report(trained):
    """A `.pth` file or a `sitecustomize` prints before the worker has its output for itself."""
    well = [("note", {"text": "all is well"}), ("ended", {})]
    assert [(kind, facts) for _, kind, facts in trained("noisy")] == well
    note, died, ended = trained("noisy-killed")
    assert (note[1], ended[1]) == ("note", "ended") and died[2]["reason"] == "its process was killed by SIGKILL"
    assert "patched" in died[2]["report"] and '{"level": "info"}' in died[2]["report"]


def test_a_process_is_told_whether_it_may_go_on_inexactly(trained, tmp_path, monkeypatch):
    """By a text, of which `worker.main` makes the same."""
    told, asked = [], []
    monkeypatch.setattr(worker, "work", lambda *_, inexact, **__: asked.append(inexact))
    for name in ("keep_freed_memory", "_take_output", "_watch_input"):
        monkeypatch.setattr(worker, name, lambda: None)
    for inexact in (True, False):
        task = Task(tmp_path, "inexact", inexact, {})
        Local(1).train([task], lambda _, event: told.append(event.facts.get("text")), lambda: None)
        worker.main("study", "group", told[-2], "")
    assert asked == [True, False]


@pytest.mark.parametrize("end", ["", "\\n"], ids=["within a line", "with a line"])
def test_a_worker_is_heard_whatever_python_prints_when_it_starts(tmp_path, monkeypatch, end):
    (tmp_path / "sitecustomize.py").write_text(f"import os\nos.write(1, b'hello{end}')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    heard = []
    Local(1).train([Task(tmp_path, "absent", False, {})], lambda _, event: heard.append(event), lambda: None)
    died, ended = heard
    assert (died.kind, ended.kind) == ("died", "ended") and str(tmp_path) in died.facts["reason"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("told", "RuntimeError: no"),
        ("killed", "its process was killed by SIGKILL"),
        ("aborted", "its process was killed by SIGABRT"),
        ("exited", "its process ended with exit code 7"),
        ("stopped", "stopped by a signal from elsewhere"),
    ],
)
def test_l17_a_process_that_dies_is_told_of_once_and_ends_no_other(trained, name, reason):
    heard = trained(name, "well", workers=1)
    assert [(group, kind) for group, kind, _ in heard[:2]] == [(name, "died"), (name, "ended")]
    assert heard[0][2]["reason"] == reason
    assert heard[0][2]["report"].startswith("Traceback" if name == "told" else f"{reason}\n")
    assert ("words" in heard[0][2]["report"]) == (name == "killed")
    assert heard[-1] == ("well", "ended", {})


def test_so_many_train_at_once_and_no_more(trained, tmp_path):
    heard = trained("pair-1", "pair-2", workers=2)  # each waits for the other to begin
    assert [kind for _, kind, _ in heard] == ["ended", "ended"]
    names = ["long-1", "long-2", "long-3", "long-4"]
    trained(*names, workers=2)
    times = [[float((tmp_path / f"{name}.{what}").read_text()) for what in ("began", "ended")] for name in names]
    assert max(sum(began <= moment < ended for began, ended in times) for moment, _ in times) <= 2


def test_l27_threads_and_the_way_to_modules_reach_the_workers(trained, monkeypatch):
    monkeypatch.setattr(sys, "path", ["", "/somewhere", *sys.path])
    monkeypatch.setenv("NPROC", "64")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/mine")
    (_, _, facts), _ = trained("environment", NPROC="1", XLA_FLAGS=DETERMINISTIC)
    variables, path = json.loads(facts["text"])
    assert (variables["NPROC"], variables["XLA_FLAGS"]) == ("1", DETERMINISTIC)
    assert variables["JAX_COMPILATION_CACHE_DIR"] == "/mine"
    assert variables["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert path[1:3] == [os.getcwd(), "/somewhere"]


def test_l27_cores_are_shared_out(monkeypatch):
    monkeypatch.setattr(contract, "available_cores", lambda: 8)
    assert share(15, None, None) == (8, 1)
    assert share(15, 4, None) == (4, 2)
    assert share(15, 3, None) == (3, 2)
    assert share(15, 16, None) == (16, 1)
    assert share(2, None, None) == (2, 4)
    assert share(15, None, "2") == (4, 2)
    assert share(15, None, 16) == (1, 16)
    assert share(15, 2, 8) == (2, 8)
    for workers, threads, message in ((0, None, r"workers \(0\)"), (None, -1, r"threads \(-1\)")):
        with pytest.raises(ValueError, match=f"{message} must be at least 1"):
            share(15, workers, threads)


def test_l41_flags_of_xla_are_those_of_the_environment_or_those_recorded(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert xla_flags({}) == "" and xla_flags({"xla_flags": None}) == ""
    assert xla_flags({"xla_flags": "--a"}, deterministic=True) == f"--a {DETERMINISTIC}"
    assert xla_flags({"xla_flags": DETERMINISTIC}, deterministic=True) == DETERMINISTIC
    monkeypatch.setenv("XLA_FLAGS", "--b")
    assert xla_flags({"xla_flags": "--a"}) == "--b"


class Enough(Exception):
    pass


def test_when_it_is_enough_those_under_way_save_their_state_first_and_no_other_begins(trained, tmp_path):
    def check():
        if (tmp_path / "obedient.began").exists():
            raise Enough

    with pytest.raises(Enough):
        trained("obedient", "well", workers=1, check=check)
    assert (tmp_path / "saved").exists() and not (tmp_path / "well.began").exists()


def test_a_listener_that_fails_stops_the_workers_too(trained, tmp_path, monkeypatch):
    def fail(*_):
        raise Enough

    tasks = [Task(tmp_path, name, False, {}) for name in ("obedient", "well")]
    with pytest.raises(Enough):
        Local(2).train(tasks, fail, lambda: None)
    assert (tmp_path / "saved").exists()


def test_where_the_system_has_no_place_for_temporary_files_the_study_has(trained, tmp_path, monkeypatch):
    def nowhere(directory):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    def within(*arguments, dir=None, **options):
        return made(*arguments, dir=dir or nowhere(dir), **options)

    made = tempfile.TemporaryDirectory
    monkeypatch.setattr(tempfile, "TemporaryDirectory", within)
    events = []
    task = Task(tmp_path, "well", False, {})
    Local(1).train([task], lambda _, event: events.append(event.kind), lambda: None)
    assert events[-1] == "ended" and "died" not in events
    assert not list(tmp_path.glob(".softbellman-*"))


def test_a_directory_that_was_cleaned_away_is_made_again(trained, tmp_path):
    """Programs that clean up temporary files by their age know of no study that takes months."""
    made = []

    def clean():
        for each in made[-1:]:
            shutil.rmtree(each, ignore_errors=True)

    class Known(tempfile.TemporaryDirectory):
        def __init__(self, **options):
            super().__init__(**options)
            made.append(self.name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "TemporaryDirectory", Known)
        heard = trained("well-1", "well-2", "well-3", workers=1, check=clean)
    assert [name for name, kind, _ in heard if kind == "ended"] == ["well-1", "well-2", "well-3"]
    assert made and not os.path.exists(made[-1])


def test_a_process_that_cant_be_had_now_is_tried_again_when_another_has_ended(trained, monkeypatch):
    begun, popen = [], subprocess.Popen

    def scarce(*arguments, **options):
        if sum(each.poll() is None for each in begun):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        begun.append(popen(*arguments, **options))
        return begun[-1]

    monkeypatch.setattr(local.subprocess, "Popen", scarce)
    heard = trained("long-1", "long-2", "well", workers=3)
    assert [name for name, kind, _ in heard if kind == "ended"] == ["long-1", "long-2", "well"]
    monkeypatch.setattr(local.subprocess, "Popen", lambda *_, **__: popen(["/no/such/program"]))
    with pytest.raises(FileNotFoundError):
        trained("well")


# ----------------------------------------------------------------------------------------------- the worker's own side

PROCESS = """
    import signal, sys, threading, time
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup, which has it ignored

    from softbellman.running import worker
    from softbellman.running.stopping import Stopped, StopRequests

    worker.LONGEST_STOP = float(sys.argv[2])
    threading.Thread(target=worker._watch_input, daemon=True).start()
    with StopRequests(lambda text: print("heard", flush=True)) as stop:
        print("ready", flush=True)
        try:
            while True:
                stop.check()
                time.sleep(0.01)
        except Stopped:
            print("saving", flush=True)
            time.sleep(float(sys.argv[1]))
            print("saved", flush=True)
            sys.exit(130)
"""


@pytest.fixture
def process():
    begun = []

    def begin(seconds, longest=1800):
        begun.append(
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(PROCESS), str(seconds), str(longest)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        assert begun[-1].stdout.readline() == b"ready\n"
        return begun[-1]

    yield begin
    for each in begun:
        each.kill()
        each.stdin.close()
        each.stdout.close()
        each.wait()


def test_a_worker_that_is_asked_to_stop_saves_its_state(process):
    begun = process(0.2)
    begun.stdin.write(b"stop\n")
    begun.stdin.flush()
    assert begun.stdout.read() == b"saving\nsaved\n"
    assert begun.wait() == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_all_processes_and_the_parents_word_are_one_request(process, number):
    """A queue may signal every process of a job: the worker hears of it twice, and saves its state all the same."""
    begun = process(0.2)
    begun.send_signal(number)
    assert begun.stdout.readline() == b"heard\n"
    begun.stdin.write(b"stop\n")
    begun.stdin.flush()
    assert begun.stdout.read() == b"saving\nsaved\n"
    assert begun.wait() == 130


def test_a_worker_whose_parent_is_gone_saves_its_state(process):
    begun = process(0.2)
    begun.stdin.close()
    assert begun.stdout.read() == b"saving\nsaved\n"
    assert begun.wait() == 130


def test_a_worker_that_hangs_leaves_when_nobody_is_left_who_waits_for_it(process):
    begun = process(30, longest=0.3)
    before = time.monotonic()
    begun.stdin.close()
    assert begun.wait() == 130 and 0.3 <= time.monotonic() - before < 10


def test_a_worker_whose_parent_does_not_wait_leaves_at_once(process):
    begun = process(30)
    begun.stdin.write(b"stop\n")
    begun.stdin.flush()
    assert begun.stdout.readline() == b"saving\n"
    before = time.monotonic()
    begun.stdin.close()
    assert begun.wait() == 130
    assert time.monotonic() - before < 10 and begun.stdout.read() == b""


PARENT = """
    import sys
    from pathlib import Path
    from softbellman.running.engines import local
    from softbellman.running.engines import Task

    def say(task, event):
        print(event.facts["text"], flush=True)

    local.COMMAND = (sys.executable, "-c", sys.argv[1])
    local.Local(1).train([Task(Path("."), "a", False, {})], say, lambda: None)
"""
CHILD = """
    import json, os
    print(json.dumps({"kind": "note", "text": str(os.getpid())}), flush=True)
    assert not os.read(0, 1)
    open("saved", "w").close()
"""


def test_a_worker_outlives_a_killed_parent_no_longer_than_it_takes_to_save(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), textwrap.dedent(CHILD)],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    )
    worker = int(parent.stdout.readline())
    assert os.getpgid(worker) != os.getpgid(parent.pid)  # Ctrl-C in a terminal is not for it
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    for _ in range(100):
        if (tmp_path / "saved").exists():
            break
        time.sleep(0.1)
    assert (tmp_path / "saved").exists()
    for _ in range(100):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("the worker still runs")
