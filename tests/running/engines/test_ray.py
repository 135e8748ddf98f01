"""Groups whose machines go, and machines that will not do; with a real cluster too."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from softbellman.running.engines import Event, Task
from softbellman.running.engines.ray import LOSSES, Ray, _look
from softbellman.running.stopping import Stopped
from softbellman.study.provenance import provenance

ROOT = Path(__file__).parents[3]


class RayError(Exception):
    pass


class RayActorError(RayError):
    pass


class ActorUnavailableError(RayActorError):
    pass


class NodeDiedError(RayError):
    pass


class OutOfMemoryError(RayError):
    pass


class RayTaskError(RayError):
    pass


ERRORS = (RayError, RayActorError, ActorUnavailableError, NodeDiedError, OutOfMemoryError, RayTaskError)


class Fake:
    """A package in place of Ray: an actor gives what `script` says, one entry for each time that it is asked."""

    __version__ = "2.60.0"
    exceptions = SimpleNamespace(**{error.__name__: error for error in ERRORS})
    is_initialized = staticmethod(lambda: True)

    def __init__(self, script):
        self.script, self.begun, self.stopped, self.killed = script, [], [], []
        self.looks, self.seen_by = [], []

    def nodes(self):
        return [
            {"NodeID": name, "Alive": True, "Resources": {"CPU": 2.0}, "NodeManagerHostname": name}
            | {"NodeManagerAddress": f"10.0.0.{number}"}
            for number, name in enumerate(("node1", "node2"))
        ]

    def remote(self, **_):
        def wrap(wrapped):
            make = self.actor if isinstance(wrapped, type) else lambda token: self.looked(wrapped, token)
            return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=make))

        return wrap

    def looked(self, look, token):
        self.looks.append(token)
        self.seen_by.append(look(token))
        return ("look", len(self.looks) - 1)

    def actor(self, task, versions):
        self.begun.append(task.group)
        steps = iter(self.script(task.group, self.begun.count(task.group)))
        return SimpleNamespace(
            news=SimpleNamespace(remote=lambda wait: ("news", object(), steps)),
            stop=SimpleNamespace(remote=lambda: self.stopped.append(task.group)),
            group=task.group,
        )

    def wait(self, refs, num_returns=1, timeout=None):
        return list(refs), []

    def get(self, ref):
        answer = next(ref[2]) if ref[0] == "news" else self.seen(ref[1], self.seen_by[ref[1]])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def seen(self, number, what):
        return what

    def kill(self, actor):
        self.killed.append(actor.group)


NOTE, ENDED = Event("note", {"text": "hello"}), Event("ended", {})


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Trains groups by a script, and returns what was told and the package."""
    strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)

    def train(script, groups=("a",), check=lambda: None, capacity=2, fake=Fake):
        package, told = fake(script), []
        monkeypatch.setitem(sys.modules, "ray", package)
        monkeypatch.setitem(sys.modules, "ray.util", SimpleNamespace(scheduling_strategies=strategies))
        for group in groups:
            (tmp_path / "groups" / group / "checkpoint").mkdir(parents=True, exist_ok=True)
        engine = Ray("ray", capacity, 1)
        tasks = [Task(tmp_path, group, False, {}) for group in groups]
        try:
            engine.train(tasks, lambda task, event: told.append((task.group, event)), check)
        except Stopped:
            told.append(("", Event("stopped", {})))
        return told, package

    return train


def kinds(told):
    return [event.kind for _, event in told]


@pytest.mark.parametrize("error", [RayActorError, NodeDiedError])
def test_a_group_that_lost_its_machine_is_trained_again_elsewhere(error, trained):
    def script(group, time):
        return [([NOTE], False), error("gone")] if time == 1 else [([NOTE, ENDED], True)]

    told, package = trained(script, ("a", "b"))
    assert sorted(package.begun) == ["a", "a", "b", "b"]
    for group in "ab":
        texts = [event.facts.get("text") for name, event in told if name == group]
        assert texts[0] == "hello" and texts[1].startswith("its machine or process is gone; it is trained again")
        assert [event.kind for name, event in told if name == group][2:] == ["note", "ended"]


def test_one_that_loses_them_again_and_again_at_one_checkpoint_is_given_up_and_not_one_that_comes_further(
    trained, tmp_path
):
    told, package = trained(lambda group, time: [RayActorError("gone\nfor reasons")])
    assert len(package.begun) == LOSSES + 1 and kinds(told)[-2:] == ["died", "ended"]
    assert f"lost {LOSSES + 1} times at agent step 0 (RayActorError: " in told[-2][1].facts["reason"]

    def further(group, time):
        (tmp_path / "groups" / "b" / "checkpoint" / f"step-{time:012}.safetensors").touch()
        return [RayActorError("gone")] if time < 3 * LOSSES else [([ENDED], True)]

    told, package = trained(further, ("b",))
    assert len(package.begun) == 3 * LOSSES and "died" not in kinds(told)


def test_a_machine_without_memory_is_the_groups_own_fault_and_what_to_do_is_said(trained):
    told, package = trained(lambda group, time: [OutOfMemoryError("Task was killed due to the node running low")])
    assert package.begun == ["a"] and kinds(told) == ["died", "ended"]
    assert "ran out of memory: lower --workers, or learner.replay_capacity" in told[0][1].facts["reason"]


def test_a_process_that_cant_begin_is_told_of(trained):
    told, package = trained(lambda group, time: [RayTaskError("ModuleNotFoundError: no module named mine")])
    assert package.begun == ["a"] and kinds(told) == ["died", "ended"]
    assert "no module named mine" in told[0][1].facts["reason"]


def test_a_connection_that_fails_for_a_moment_ends_nothing(trained):
    told, package = trained(lambda group, time: [ActorUnavailableError("a moment"), ([NOTE], False), ([ENDED], True)])
    assert package.begun == ["a"] and kinds(told) == ["note", "ended"]


def test_no_more_groups_than_asked_for_are_begun_at_once(trained):
    under_way, most = set[str](), []

    def script(group, time):
        under_way.add(group)
        most.append(len(under_way))
        yield [], False
        under_way.remove(group)
        yield [ENDED], True

    _, package = trained(script, "abcde", capacity=2)
    assert package.begun == list("abcde") and max(most) == 2


def test_a_stop_asks_those_at_work_waits_for_them_and_tells_nothing_more(trained):
    asked = []

    def check():
        asked.append(1)
        if len(asked) > 2:
            raise Stopped("stopped")

    told, package = trained(lambda group, time: [([NOTE], False)] * 4 + [([NOTE], True)], ("a", "b", "c"), check)
    assert package.stopped == ["a", "b"] and package.begun == ["a", "b"] and package.killed == []
    assert kinds(told) == ["note"] * 4 + ["stopped"]


def test_a_stop_takes_back_what_has_not_begun(trained):
    class Slow(Fake):
        def wait(self, refs, num_returns=1, timeout=None):
            return ([], refs) if refs and refs[0][0] == "news" else (refs, [])

    asked = []

    def check():
        asked.append(1)
        if len(asked) > 2:
            raise Stopped("stopped")

    _, package = trained(lambda group, time: [], ("a", "b", "c"), check, fake=Slow)
    assert package.killed == ["a", "b"] and package.stopped == []


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (
            lambda found, token, answer: (found | {"jax": "0.1"}, token, answer),
            r"has jax 0\.1 instead of .*: install the",
        ),
        (
            lambda found, token, answer: ("ImportError: no", token, answer),
            r"can't import softbellman \(ImportError: no\)",
        ),
        (lambda found, token, answer: (found, "", answer), r"does not see .* as it is here: name a directory .*--out"),
        (lambda found, token, answer: (found, token, "/nowhere/else"), "does not see .* as it is here"),
        (lambda found, token, answer: RayError("it broke"), "can't be asked: RayError: it broke"),
    ],
    ids=["versions", "import", "unseen", "another", "broken"],
)
def test_a_machine_that_will_not_do_is_named_before_any_training(seen, said, trained, tmp_path):
    class Odd(Fake):
        def seen(self, number, what):
            return seen(*what) if number == 1 else what

    began = []
    with pytest.raises(ValueError, match=rf"^engine ray: machine node2 \(10\.0\.0\.1\) {said}[^;]*$"):
        trained(lambda group, time: began.append(group) or [], fake=Odd)
    assert began == [] and not list(tmp_path.glob(".seen*"))


def test_a_machine_that_went_while_it_was_asked_is_in_nobodys_way(trained):
    class Gone(Fake):
        def seen(self, number, what):
            return NodeDiedError("gone") if number == 1 else what

        def nodes(self):
            return super().nodes()[: 1 if self.looks else 2]

    told, _ = trained(lambda group, time: [([ENDED], True)], fake=Gone)
    assert kinds(told) == ["ended"]


def test_a_look_at_the_study_finds_versions_and_leaves_an_answer(tmp_path):
    (tmp_path / ".seen-1").write_text(".seen-1")
    versions, seen, answer = _look()(str(tmp_path / ".seen-1"))
    assert versions == provenance()["versions"] and seen == ".seen-1" and Path(answer).exists()
    assert _look()(str(tmp_path / "elsewhere" / ".seen-1"))[1] == ""


# ----------------------------------------------------------------------------------------------------- a real cluster


@pytest.mark.engines
def test_kills_of_nodes_workers_and_driver_leave_rows_complete_and_equal():
    """The trial that benchmarks/ray_kills.py makes with 30 kills."""
    words = ["--kills", "3", "--seed", "5", "--steps", "1500"]
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "ray_kills.py", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kills" in done.stdout and "and 0 differences" in done.stdout


WORDS = [
    "compare",
    "gym/CartPole-v1",
    "--operators",
    "max",
    "--seeds",
    "1",
    "--workers",
    "1",
    "--threads",
    "1",
    "--quiet",
]
ENDLESS = ["--steps", "1000000", "--loop.epoch-steps", "1000000", "--loop.test-steps", "100"]


def command(*words):
    return [sys.executable, "-m", "softbellman", *WORDS, *words]


@pytest.mark.engines
def test_ctrl_c_stops_all_and_saves_and_the_same_command_goes_on(tmp_path):
    words = [*ENDLESS, "--engine", "ray", "--out", str(tmp_path / "study")]
    driver = subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True)
    status = tmp_path / "study" / "runs" / "gym-CartPole-v1" / "max" / "seed-0" / "status.json"
    until = time.monotonic() + 300
    while not status.exists() and driver.poll() is None and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(5)
    os.kill(driver.pid, signal.SIGINT)
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 130 and "to go on: softbellman resume" in errors
    assert json.loads(status.read_text())["state"] == "stopped"
    assert list((tmp_path / "study").glob("groups/*/checkpoint/step-*.safetensors"))
    shorter = ["--steps", "2000", "--loop.epoch-steps", "1000000", "--loop.test-steps", "100", "--engine", "ray"]
    done = subprocess.run(command(*shorter, "--out", str(tmp_path / "other")), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.engines
def test_a_machine_without_memory_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.01")  # more is in use, whatever else runs
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "250")
    words = [*ENDLESS, "--engine", "ray", "--out", str(tmp_path / "study")]
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    assert "can't be asked: OutOfMemoryError" in done.stderr  # at once, or once its group has died of it


@pytest.mark.engines
def test_a_worker_that_takes_too_much_memory_ends_by_the_error_that_is_known_here():
    """Ray's own word for it, with a limit of 0.9 GB over what is in use."""
    code = """
        import os, time
        read = dict(line.split(":") for line in open("/proc/meminfo"))
        free, total = (int(read[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
        os.environ["RAY_memory_usage_threshold"] = f"{1 - free / total + 0.9e6 / total:.3f}"
        os.environ["RAY_memory_monitor_refresh_ms"] = "250"
        import ray
        ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)

        @ray.remote(max_restarts=0)
        class Greedy:
            def take(self):
                taken = []
                for _ in range(18):
                    taken.append(b"x" * (100 << 20))
                    time.sleep(0.2)
                time.sleep(60)

        try:
            ray.get(Greedy.remote().take.remote(), timeout=120)
        except ray.exceptions.OutOfMemoryError:
            print("out of memory")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert "out of memory" in done.stdout, done.stderr
