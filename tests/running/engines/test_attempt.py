"""An attempt passes on what its process says, stops it when asked to, and trains nothing with other versions."""

import sys
import textwrap
import time

import pytest

from softbellman.running.engines import Task, local
from softbellman.running.engines.attempt import Attempt, carried_variables, version_mismatch
from softbellman.study.provenance import provenance

WORKER = """
    import json, os, sys

    def say(kind, **facts):
        os.write(1, (json.dumps({"kind": kind, **facts}) + "\\n").encode())

    name = sys.argv[2]
    if name == "waits":
        say("note", text="waits")
        os.read(0, 1)
        say("note", text="not heard any more")
    elif name == "killed":
        os.kill(os.getpid(), 9)
    else:
        for steps in range(5):
            say("progress", agent_steps=steps)
        say("row", run=0)
        say("progress", agent_steps=7)
"""
VERSIONS = provenance()["versions"]


@pytest.fixture(autouse=True)
def worker(monkeypatch):
    monkeypatch.setattr(local, "COMMAND", (sys.executable, "-c", textwrap.dedent(WORKER)))


def heard(attempt):
    events = []
    for _ in range(200):
        more, over = attempt.news(0.1)
        events += more
        if over:
            return events
    raise AssertionError("it does not end")


def test_of_progress_the_last_is_told_and_all_else_in_its_order(tmp_path):
    attempt = Attempt(Task(tmp_path, "well", False, {}), VERSIONS)
    attempt.wait()
    events, over = attempt.news(60)
    told = [(event.kind, event.facts.get("agent_steps")) for event in events]
    assert over and told == [("progress", 4), ("row", None), ("progress", 7), ("ended", None)]
    assert attempt.news(60) == ([], True)


def test_it_waits_for_news_no_longer_than_asked_and_stops_when_asked(tmp_path):
    attempt = Attempt(Task(tmp_path, "waits", False, {}), VERSIONS)
    began, events, over = time.monotonic(), [], False
    while not events and time.monotonic() < began + 60:
        events, over = attempt.news(0.05)
    assert not over and [event.facts["text"] for event in events] == ["waits"]
    asked = time.monotonic()
    assert attempt.news(0.05) == ([], False)
    assert 0.05 <= time.monotonic() - asked < 10  # it is silent until it is stopped
    attempt.stop()
    assert [event.kind for event in heard(attempt)] == []


def test_a_process_that_is_killed_is_told_of(tmp_path):
    events = heard(Attempt(Task(tmp_path, "killed", False, {}), VERSIONS))
    assert [event.kind for event in events] == ["died", "ended"] and "SIGKILL" in events[0].facts["reason"]


def test_with_other_versions_nothing_is_trained_and_each_is_named(tmp_path):
    other = VERSIONS | {"jax": "0.1.2", "softbellman": "9.0"}
    refused, ended = heard(Attempt(Task(tmp_path, "well", False, {}), other))
    assert (refused.kind, ended.kind) == ("refused", "ended")  # "died" would be the group's own fault
    assert f"jax {VERSIONS['jax']} instead of 0.1.2" in refused.facts["reason"]
    assert f"softbellman {VERSIONS['softbellman']} instead of 9.0" in refused.facts["reason"]


def test_what_cant_even_begin_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "COMMAND", ("/nowhere/python",))
    died, ended = heard(Attempt(Task(tmp_path, "well", False, {}), VERSIONS))
    assert "/nowhere/python" in died.facts["reason"] and ended.kind == "ended"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"jax": "1.0", "numpy": "2.0"}, None),
        ({"jax": "1.0", "numpy": "2.0", "more": "3"}, None),  # what the driver has not is not asked for
        ({"jax": "1.1", "numpy": "2.0"}, "has jax 1.1 instead of 1.0: install the same versions there"),
        ({"numpy": "2.1"}, "has jax missing instead of 1.0, numpy 2.1 instead of 2.0: install the same versions there"),
    ],
)
def test_versions_are_compared_by_name(found, said):
    assert version_mismatch({"jax": "1.0", "numpy": "2.0"}, found) == said


def test_variables_that_results_depend_on_are_carried_and_places_are_not(monkeypatch):
    monkeypatch.setenv("JAX_OPTIMIZATION_LEVEL", "O1")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/here")
    carried = carried_variables()
    assert carried["JAX_OPTIMIZATION_LEVEL"] == "O1" and "JAX_COMPILATION_CACHE_DIR" not in carried
    assert all(name.startswith(("JAX_", "XLA_")) for name in carried)
