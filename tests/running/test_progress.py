"""Progress on a terminal, elsewhere, and when nobody wants to hear of it."""

import io
import re

import pytest
from rich.console import Console

from softbellman.running import progress as module
from softbellman.running.progress import reporter


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests move by hand."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def told(clock, *, terminal=False, quiet=False, width=80):
    out = io.StringIO()
    progress = reporter(
        10_000, 1, quiet=quiet, console=Console(file=out, force_terminal=terminal, width=width, color_system=None)
    )
    for done in range(1, 10_001):
        clock[0] += 1 / 32  # exact in floating point
        progress.steps(done)
        if done % 4_000 == 0:
            progress.score("softmax(5), seed 1", done // 4_000, 12.345, 3)
    progress.close()
    return out.getvalue()


def test_l47_elsewhere_it_is_one_plain_line_per_interval(clock):
    text = told(clock)
    assert "\r" not in text
    assert "\x1b" not in text
    lines = text.splitlines()
    assert len(lines) == 10 + 2
    assert lines[0] == "961 of 10,000 agent steps, 32 steps/s, 0:04:42 left, no test yet"
    assert "softmax(5), seed 1: test phase 1, mean score 12.35 over 3 games" in lines
    assert lines[-1].endswith("last score 12.35")


def test_l47_on_a_terminal_it_is_a_bar_with_pace_time_left_and_score(clock):
    text = told(clock, terminal=True)
    assert "\r" in text
    plain = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", text)
    last = [line for line in re.split(r"[\r\n]+", plain) if "agent steps" in line][-1]
    assert re.match(r"10,000 / 10,000 agent steps .* 32/s, 0:00:00 left, score 12\.3", last)
    assert max(map(len, re.split(r"[\r\n]+", plain))) <= 80
    assert "softmax(5), seed 1: test phase 2, mean score 12.35 over 3 games" in plain


def test_l47_quiet_says_nothing(clock):
    assert told(clock, quiet=True) == told(clock, quiet=True, terminal=True) == ""


def told_of_a_study(clock, *, terminal=False, quiet=False):
    """Four runs of 2,500 agent steps, told of now and then; the second begins anew once."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, color_system=None)
    progress = reporter(10_000, 4, quiet=quiet, console=console)
    for number in range(1, 201):
        clock[0] += 0.5
        progress.steps(50 * number if number != 100 else 3_000)
        if number % 50 == 0:
            progress.score("gym/X, max, seed 1", 2, 12.345, 3)
            progress.over(number // 50, f"gym/X, max, seed {number // 50}: finished", 0)
    progress.close()
    return out.getvalue()


def test_l47_a_comparison_is_one_line_per_interval_with_all_its_runs_together(clock):
    assert told_of_a_study(clock).splitlines() == [
        "gym/X, max, seed 1: finished",
        "1 of 4 runs, 3,050 of 10,000 agent steps, 100 steps/s, 0:01:09 left, last score 12.35",
        "gym/X, max, seed 2: finished",
        "2 of 4 runs, 6,050 of 10,000 agent steps, 100 steps/s, 0:00:39 left, last score 12.35",
        "gym/X, max, seed 3: finished",
        "3 of 4 runs, 9,050 of 10,000 agent steps, 100 steps/s, 0:00:09 left, last score 12.35",
        "gym/X, max, seed 4: finished",
    ]


def test_l47_a_comparison_on_a_terminal_is_one_bar(clock):
    text = told_of_a_study(clock, terminal=True)
    plain = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", text)
    shown = [line for line in re.split(r"[\r\n]+", plain) if "runs," in line]
    assert re.match(r"4 / 4 runs, 100% .* 100/s, 0:00:00 left, score 12\.3", shown[-1])
    assert max(map(len, re.split(r"[\r\n]+", plain))) <= 80
    assert "gym/X, max, seed 3: finished" in plain and "-" not in "".join(re.findall(r"(\S+)/s", plain))
    assert told_of_a_study(clock, quiet=True) == ""


@pytest.mark.parametrize(("terminal", "said"), [(False, "500 of 4,000 agent steps"), (True, "1 / 2 runs, 12%")])
def test_steps_that_a_failed_run_will_not_take_are_none_to_wait_for(clock, terminal, said):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, color_system=None)
    progress = reporter(6_000, 2, quiet=False, console=console)
    progress.steps(0)
    progress.over(1, "gym/X, max, seed 1: failed", 2_000)
    clock[0] += 50
    progress.steps(500)
    progress.close()
    assert said in out.getvalue() and "10/s, 0:05:50 left" in out.getvalue().replace(" steps/s", "/s")


def test_a_reader_who_has_gone_does_not_stop_training(clock):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    progress = reporter(100, 1, quiet=False, console=Console(file=Gone()))
    clock[0] += 60
    progress.steps(50)
    progress.score("max, seed 0", 1, 0.0, 1)
    progress.close()


@pytest.mark.parametrize(("terminal", "quiet"), [(True, False), (False, False), (False, True)])
def test_what_a_user_should_know_is_said_in_every_way_of_reporting(clock, terminal, quiet, capsys):
    out = io.StringIO()
    progress = reporter(10, 1, quiet=quiet, console=Console(file=out, force_terminal=terminal, color_system=None))
    progress.note("goes on from agent step 5")
    progress.close()
    told = out.getvalue() if terminal else capsys.readouterr().err
    assert "goes on from agent step 5" in told
