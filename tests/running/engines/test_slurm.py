"""Jobs that meet their driver in the study's directory: news, stops, time limits, ends of all kinds."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import softbellman as sb
from softbellman.running.engines import Event, Task, local, slurm
from softbellman.running.engines.slurm import Job, Slurm
from softbellman.running.stopping import Stopped
from softbellman.study.provenance import provenance

from ...processes import running

VERSIONS = provenance()["versions"]
WORKER = """
    import json, os, sys
    from pathlib import Path

    def say(kind, **facts):
        os.write(1, (json.dumps({"kind": kind, **facts}) + "\\n").encode())

    folder, name = Path(sys.argv[1]), sys.argv[2]
    say("note", text=name)
    if name == "waits":
        os.read(0, 1)
        (folder / "saved").touch()
        sys.exit(130)
    say("row", run=0, epoch=1, score=2.5, games=3)
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Makes a job whose training is a small script."""
    monkeypatch.setattr(local, "COMMAND", (sys.executable, "-c", textwrap.dedent(WORKER)))
    monkeypatch.setattr(slurm, "PACE", 0.05)
    (tmp_path / "driver").touch()
    return lambda group: Job(Task(tmp_path, group, False, {}), tmp_path / "driver", VERSIONS)


def told(job):
    return [json.loads(line) for line in job.events.read_text().splitlines() if line]


def test_a_job_tells_all_that_happens_and_then_that_it_is_over(job):
    made = job("well")
    made()
    assert [each["kind"] for each in told(made)] == ["note", "note", "row", "ended", "over"]
    assert told(made)[2] == {"kind": "row", "run": 0, "epoch": 1, "score": 2.5, "games": 3}


@pytest.mark.parametrize("silent", [False, True], ids=["gone", "silent"])
def test_a_job_whose_driver_is_gone_saves_its_state_and_ends(silent, job, tmp_path, monkeypatch):
    made = job("waits")

    def goes(*_):
        if any(each["kind"] == "note" and each["text"] == "waits" for each in told(made)):
            (tmp_path / "driver").unlink(missing_ok=True)
        return 0.0

    if silent:
        monkeypatch.setattr(slurm, "LEASE", 3.0)
    else:
        monkeypatch.setattr(slurm.Silence, "seconds", goes)
    made()
    assert (tmp_path / "saved").exists() and told(made)[-1]["kind"] == "over"


def test_a_job_without_its_driver_or_its_directory_trains_nothing(job, tmp_path):
    made = job("well")
    (tmp_path / "driver").unlink()
    with pytest.raises(ValueError, match=r"driver is not seen by .*, or its driver is gone"):
        made()
    assert not made.events.exists()


def test_at_its_time_limit_a_job_saves_its_state_and_another_is_queued(job, tmp_path, monkeypatch):
    submission = SimpleNamespace(helpers=SimpleNamespace(DelayedSubmission=lambda again: again))
    monkeypatch.setitem(sys.modules, "submitit", submission)
    made, handled = job("waits"), []

    def limit(*_):  # as submitit's handler of the signal, in the middle of the job
        handled.append(made.checkpoint())

    before = signal.signal(signal.SIGUSR2, limit)
    later = threading.Timer(3, os.kill, (os.getpid(), signal.SIGUSR2))
    try:
        later.start()
        made()
    finally:
        later.join()
        signal.signal(signal.SIGUSR2, before)
    assert (tmp_path / "saved").exists() and handled[0].task == made.task and handled[0].events == made.events


class Cluster:
    """Submitit, as if it were there: a job runs when it is first asked about, or never."""

    __version__ = "1.5.4"

    def __init__(self, act):
        self.act, self.jobs, self.parameters, self.cancelled = act, [], {}, []

    def AutoExecutor(self, **options):
        self.options = options
        return self

    def update_parameters(self, **parameters):
        self.parameters = parameters

    def batch(self):
        self.jobs.append([])
        import contextlib

        return contextlib.nullcontext()

    def submit(self, job):
        self.jobs[-1].append(job.task.group)
        handle = SimpleNamespace(job_id=f"7_{len(self.jobs[-1])}", state="OUT_OF_MEMORY")
        handle.paths = SimpleNamespace(stderr="log.err")
        handle.done = lambda: self.act(job)
        handle.cancel = lambda check: self.cancelled.append(job.task.group)
        return handle


@pytest.fixture
def trained(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "POLL", 0.01)

    def train(act, groups, spec="slurm:slurm_partition=cpu", check=lambda: None, workers=2):
        cluster, heard = Cluster(act), []
        monkeypatch.setitem(sys.modules, "submitit", cluster)
        try:
            engine = Slurm(spec, workers, 3)
            tasks = [Task(tmp_path, group, False, {}) for group in groups]
            engine.train(tasks, lambda task, event: heard.append((task.group, event)), check)
        except Stopped:
            heard.append(("", Event("stopped", {})))
        return heard, cluster

    return train


def says(job, *kinds):
    job._tell([Event(kind, {"text": kind} if kind == "note" else {}) for kind in kinds])


def test_jobs_are_one_array_with_what_was_asked_for(trained):
    def act(job):
        says(job, "note", "ended", "over")
        return True

    heard, cluster = trained(act, "abc")
    assert cluster.jobs == [["a", "b", "c"]] and cluster.options["slurm_max_num_timeout"] > 1000
    wanted = {"cpus_per_task": 3, "slurm_array_parallelism": 2, "slurm_partition": "cpu"}
    assert cluster.parameters.items() >= wanted.items()
    assert [event.kind for name, event in heard if name == "b"] == ["note", "ended"]


def test_without_slurm_no_more_jobs_are_submitted_at_once_than_asked_for(trained):
    def act(job):
        says(job, "ended", "over")
        return True

    _, cluster = trained(act, "abcde", "slurm:cluster=local")
    assert [len(jobs) for jobs in cluster.jobs] == [2, 2, 1]


def test_a_job_that_ends_without_a_word_is_told_of_with_its_state_and_its_log(trained):
    def act(job):
        says(job, "note")
        return True

    heard, _ = trained(act, "a")
    kinds = [event.kind for _, event in heard]
    assert kinds == ["note", "died", "ended"]
    assert heard[1][1].facts["reason"] == "its job 7_1 ended (OUT_OF_MEMORY); see log.err"


def test_a_job_that_ends_before_it_begins_is_no_fault_of_its_groups(trained):
    heard, _ = trained(lambda job: True, "a")
    assert [event.kind for _, event in heard] == ["refused", "ended"]
    assert heard[0][1].facts["reason"] == "its job 7_1 ended (OUT_OF_MEMORY); see log.err"


def test_half_a_line_is_read_when_it_is_whole(trained, tmp_path):
    asked = []

    def act(job):
        asked.append(1)
        rest = 'xt": "x"}\n{"kind": "ended"}\n{"kind": "over"}\n'
        with job.events.open("a") as file:
            file.write('{"kind": "note", "te' if len(asked) == 1 else rest)
        return False

    heard, _ = trained(act, "a")
    assert [(event.kind, event.facts) for _, event in heard] == [("note", {"text": "x"}), ("ended", {})]


@pytest.mark.parametrize("cut", ["half", "none of it", "two bytes of a letter"])
def test_a_line_that_a_full_disk_cut_short_is_left_out(trained, cut):
    def act(job):
        says(job, "note")
        with job.events.open("ab") as file:
            file.write(
                {"half": b'{"kind": "row", "ep', "none of it": b"", "two bytes of a letter": b'{"k\xf0\x9f'}[cut]
            )
        says(job, "note", "ended", "over")
        return False

    heard, cluster = trained(act, "ab")
    assert [event.kind for name, event in heard if name == "b"] == ["note", "note", "ended"] and not cluster.cancelled


@pytest.mark.parametrize("method", ["touch", "unlink"])
def test_a_file_system_that_does_not_answer_stops_no_job(method, trained, tmp_path, monkeypatch):
    called, own = [], getattr(Path, method)

    def fails(path, *given, **more):
        if path.name != "driver" or (method == "touch" and not path.exists()):
            return own(path, *given, **more)
        called.append(path)
        raise OSError(116, "Stale file handle", str(path))

    def act(job):
        if len(called) >= (3 if method == "touch" else 0):
            says(job, "ended", "over")
        return False

    monkeypatch.setattr(slurm, "BEAT", 0.0)
    monkeypatch.setattr(Path, method, fails)
    heard, _ = trained(act, "a")
    assert [event.kind for _, event in heard] == ["ended"] and called


def test_a_stop_cancels_what_waits_in_the_queue_and_waits_for_what_runs(trained, tmp_path):
    asked, drivers = [], lambda: list(tmp_path.glob("slurm/*/driver"))

    def check():
        asked.append(1)
        if len(asked) > 3:
            raise Stopped("stopped")

    def act(job):
        if job.task.group == "a":
            says(job, "note")
            if not drivers():
                says(job, "over")
        return False

    heard, cluster = trained(act, "ab", check=check)
    assert cluster.cancelled == ["b"] and heard[-1][1].kind == "stopped" and not drivers()


# ---------------------------------------------------------------------------------------------- submitit's own, locally

FEW = {"loop.epoch_steps": 200, "loop.test_steps": 100, "learner.replay_start_steps": 100, "checkpoint.minutes": 0.01}


def rows(study):
    names = [name for name in study.metrics() if name != "seconds"]
    return {name: study.metrics()[name].tolist() for name in names}


@pytest.mark.engines
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # submitit does not wait for its process
def test_jobs_train_as_processes_do(tmp_path):
    options = {"steps": 600, "settings": FEW, "workers": 2, "threads": 1, "quiet": True}
    asked = ("gym/CartPole-v1", ["max", "mean"], 1)
    jobs = sb.compare(*asked, engine="slurm:cluster=local", out=tmp_path / "a", **options)
    processes = sb.compare(*asked, out=tmp_path / "b", **options)
    assert str(rows(jobs)) == str(rows(processes)) and len(rows(jobs)["epoch"]) == 6
    for run in jobs.runs:
        other = tmp_path / "b" / run.path.relative_to(tmp_path / "a") / "final.safetensors"
        assert (run.path / "final.safetensors").read_bytes() == other.read_bytes()


@pytest.mark.engines
def test_a_job_at_its_time_limit_is_queued_again_and_goes_on_exactly(tmp_path):
    """The time limit is sent as submitit sends it: by the signal that Slurm sends before."""
    options = {"steps": 12000, "settings": FEW | {"loop.epoch_steps": 3000}, "workers": 1, "threads": 1, "quiet": True}
    code = f"""
        import softbellman as sb
        options = {options!r} | {{"engine": "slurm:cluster=local", "out": {str(tmp_path / "a")!r}}}
        sb.compare("gym/CartPole-v1", "max", 1, **options)
    """
    driver = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while not list((tmp_path / "a").glob("groups/*/checkpoint/step-*")) and time.monotonic() < until:
        time.sleep(0.1)
    for number, words, _ in running():
        if "submitit.core._submit" in words and str(tmp_path) in words[-2]:
            os.kill(number, signal.SIGUSR2)
    _, errors = driver.communicate(timeout=400)
    assert driver.returncode == 0, errors
    assert "goes on from agent step" in errors and errors.count("begins on") == 2
    alone = sb.compare("gym/CartPole-v1", "max", 1, out=tmp_path / "b", **options)
    assert str(rows(sb.Study(tmp_path / "a"))) == str(rows(alone))
