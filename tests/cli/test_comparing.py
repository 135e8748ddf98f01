"""Comparisons on the command line: what is printed, what is left on disk, how they end, and that they go on."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pandas as pd
import pytest

from softbellman.running import compare as module
from softbellman.running.engines.here import Here
from softbellman.running.engines.local import Local
from softbellman.study.runs import read_status
from softbellman.study.store import Study

from ..processes import running
from .conftest import COMPARE, MAIN, TINY, run_alone

RUN = "runs/gym-CartPole-v1/softmax-5/seed-7"


def in_this_process(engine, tasks, on_event, check):
    Here().train(tasks, on_event, check)


def none_at_all(engine, tasks, on_event, check):
    raise AssertionError("there is nothing to train")


def rows(folder):
    return pd.DataFrame(Study(Path(folder)).metrics()).drop(columns="seconds")


def test_a_comparison_ends_with_a_table_and_a_page(compared):
    study, out = compared
    assert "\r" not in out and "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    plain = " ".join(out.split())
    for told in (
        "operators max, softmax(5) seeds 3, 7 runs 4, of which 4 are left to train, in 2 groups",
        "at once 2 of these, 1 thread each",
        "memory 7,400,000 bytes for the replays of the groups that train at once, and about 0.4 GB for each of their",
        "gym/CartPole-v1, max, seed 7: finished",
        "page study/report/index.html",
    ):
        assert told in plain
    assert re.search(r"operator +runs +score +95% interval +best +minus max", out)
    assert re.search(r"softmax\(5\) +2 of 2 +\d+\.\d\d +-?\d+\.\d\d to \d+\.\d\d +\d+\.\d\d +[+-]\d", out)
    assert "<html" in (study / "report" / "index.html").read_text()
    record = json.loads((study / "study.json").read_text())
    assert record["command"][:3] == ["compare", "gym/CartPole-v1", "--operators"]
    assert (record["launches"][0]["workers"], record["provenance"]["threads"]) == (2, "1")
    frame = pd.read_csv(study / RUN / "metrics.csv")
    assert list(frame["agent_steps"]) == list(frame["env_frames"]) == [150, 300]


def test_the_same_command_again_does_nothing_and_says_so(compared, softbellman, monkeypatch):
    monkeypatch.setattr(Local, "train", none_at_all)
    study, _ = compared
    before = {path: path.read_bytes() for path in study.glob("runs/**/*") if path.is_file()}
    code, out, errors = softbellman(*COMPARE, "--out", study)
    assert (code, errors) == (0, "")
    assert "runs 4, none of which is left to train" in " ".join(out.split())
    assert softbellman("resume", study, "--quiet") == (0, "", "")
    assert {path: path.read_bytes() for path in study.glob("runs/**/*") if path.is_file()} == before


def test_another_comparison_there_is_bad_input(compared, softbellman):
    study, _ = compared
    code, out, errors = softbellman(*COMPARE, "--learner.gamma", "0.5", "--out", study)
    assert code == 2 and "holds another study already (learner.gamma 0.99 there, 0.5 asked for)" in errors
    code, out, errors = softbellman("train", "gym/CartPole-v1", *TINY, "--out", study)
    assert (code, out) == (2, "") and "operators softmax(5) there, and not asked for" in errors


def test_l17_a_study_is_compared_by_one_process_at_a_time(compared, softbellman):
    study, _ = compared
    with Study(study).locked():
        code, _, errors = softbellman(*COMPARE, "--out", study)
    assert code == 2 and f"is being trained by another process (process {os.getpid()} on " in errors


def test_a_report_is_written_anew(compared, softbellman):
    study, _ = compared
    page = study / "report" / "index.html"
    page.unlink()
    code, out, errors = softbellman("report", study)
    assert (code, errors) == (0, "") and page.exists()
    assert "2 of 2" in out and f"page {page}" in " ".join(out.split())


def test_l38_l40_a_run_of_a_comparison_is_tested_the_same_each_time(compared, softbellman):
    study, _ = compared
    words = ["evaluate", study / RUN, "--epsilon", "0", "--episodes", "3"]
    first, second = (softbellman(*words, "--out", f"{number}.json") for number in (1, 2))
    assert first[0] == 0 and first[1].replace("1.json", "2.json") == second[1]
    records = [json.loads(Path(f"{number}.json").read_text()) for number in (1, 2)]
    assert records[0] == records[1]
    facts = {"operator": "softmax(5)", "training_seed": 7, "epsilon": 0.0, "seed": 1}
    assert {name: records[0][name] for name in facts} == facts
    code, _, errors = softbellman("evaluate", study)
    assert code == 2 and "holds 4 runs; name one of them" in errors


def test_a_run_of_a_comparison_is_filmed(compared, softbellman):
    pytest.importorskip("pygame")
    code, out, _ = softbellman("watch", compared[0] / RUN, "--max-steps", "5", "--out", "film.gif")
    assert code == 0 and "softmax(5), best network" in " ".join(out.split()) and Path("film.gif").exists()


def test_l48_a_study_json_alone_reruns_the_comparison_as_it_was_made(compared, softbellman, monkeypatch):
    heard = []

    def noted(engine, tasks, on_event, check):
        heard.append((len(tasks), engine.capacity, tasks[0].variables["NPROC"]))
        in_this_process(engine, tasks, on_event, check)

    monkeypatch.setattr(Local, "train", noted)
    monkeypatch.setattr("softbellman.running.engines.contract.available_cores", lambda: 2)
    Path("again").mkdir()
    shutil.copy(compared[0] / "study.json", "again")
    code, _, errors = softbellman("resume", "again")
    assert (code, errors) == (0, "") and heard == [(2, 2, "1")]
    columns = ["environment", "operator", "seed", "agent_steps", "episodes", "test_seed", "updates"]
    pd.testing.assert_frame_equal(rows("again")[columns], rows(compared[0])[columns])


def test_a_dry_run_says_what_would_be_done_and_leaves_nothing(softbellman, tmp_path):
    words = ["gym/CartPole-v1", "gym/Acrobot-v1", "--operators", "max", "softmax:1", "softmax:5", "--seeds", "4"]
    code, out, errors = softbellman("compare", *words, "--workers", "3", "--loop.block-width", "4", "--dry-run")
    assert (code, errors) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    text = " ".join(out.split())
    for told in (
        "preset classic-control:",
        "environment gym/CartPole-v1: 2 actions",
        "environment gym/Acrobot-v1: 3 actions",
        "operators max, softmax(1), softmax(5)",
        "seeds 0, 1, 2, 3",
        "runs 24, of which 24 are left to train, in 6 groups",
        "at once 3 of these, 1 thread each",
        "epsilon 1 at 0",
    ):
        assert told in text
    assert re.search(r"directory runs/compare-gym-CartPole-v1-and-1-more-[0-9a-f]{8}", text)
    assert re.search(r" loop\.block_width +4 +command line", out)
    assert not any(tmp_path.iterdir())


FAILING = """
    import gymnasium, numpy as np

    class Broken(gymnasium.Env):
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        steps = 0

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.steps += 1
            if self.steps > 20:
                raise RuntimeError("the simulator\\nis gone")
            return np.zeros(1, np.float32), 0.0, False, False, {}

    gymnasium.register("Broken-v0", Broken)
"""


def test_l17_where_every_run_failed_it_is_said_with_exit_code_1(softbellman, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text(textwrap.dedent(FAILING))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Local, "train", in_this_process)
    words = ["compare", "gym/broken:Broken-v0", "--operators", "max", "--seeds", "1", *TINY, "--out", "study"]
    code, out, errors = softbellman(*words)
    assert code == 1 and "0 of 1" in out
    *_, page, last = errors.splitlines()
    assert "the page could not be written: no run of study has finished a test phase yet" in page
    file = "study/runs/gym-broken-Broken-v0/max/seed-0/error.txt"
    reason = "gym/broken:Broken-v0 fails in step: RuntimeError: the simulator is gone"
    told = f"max: 0 of 1 runs finished; seed 0 failed: {reason} ({tmp_path / 'broken.py'}, line 15) ({file})"
    assert last == f"softbellman: gym/broken:Broken-v0, {told}" and "Traceback" in Path(file).read_text()
    monkeypatch.setattr(Local, "train", none_at_all)
    assert softbellman(*words, "--quiet")[0] == 1
    with pytest.raises(AssertionError, match="nothing to train"):
        module.train_comparison(*_asked(words), retry_failed=True, quiet=True)


def _asked(words):
    """The reading of its words by `compare`, whose faults are not ours."""
    from softbellman.cli.arguments import parse
    from softbellman.operators import parse as operator
    from softbellman.running.comparison import prepare, resources_for

    command = parse("compare", words[1:])
    planned = prepare(
        command.environments,
        [operator(spec) for spec in command.operators],
        range(command.seeds[0]),
        command.config,
        steps=command.steps,
    )
    return planned, command.out, resources_for(planned.num_runs)


# ---------------------------------------------------------------------------------------------------- real processes

LONGER = {"300": "6000", "150": "500"}  # agent steps of a run and of an epoch
WORDS = [*(LONGER.get(word, word) for word in COMPARE), "--checkpoint.minutes", "0.001", "--out", "study"]


def begin(folder, *words):
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *words, "--quiet"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def saved_steps(folder):
    """The agent step of the newest checkpoint of each group."""
    files = sorted(folder.glob("study/groups/*/checkpoint/step-*"))
    return {file.parent: int(file.stem.removeprefix("step-")) for file in files}


def once_further(folder, process):
    """Waits until both groups have come 700 agent steps further."""
    before = saved_steps(folder)
    while process.poll() is None:
        now = saved_steps(folder)
        if len(now) == 2 and all(now[group] >= before.get(group, 0) + 700 for group in now):
            return
        time.sleep(0.02)


def workers_of(folder):
    """The processes that train groups of the study in a directory."""
    place = folder.resolve()
    return [number for number, words, at in running() if at == place and "softbellman.running.worker" in words]


@pytest.mark.slow
def test_l3_l21_a_comparison_comes_to_the_same_end_however_it_is_stopped(tmp_path):
    """By signals of all kinds, by the death of the process that others work for, and of all of them."""
    (tmp_path / "undisturbed").mkdir()
    folder = tmp_path / "disturbed"
    folder.mkdir()
    run_alone(tmp_path / "undisturbed", *WORDS)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        process = begin(folder, *WORDS)
        once_further(folder, process)
        assert process.poll() is None
        process.send_signal(number)
        _, errors = process.communicate()
        assert process.returncode == 130 and not workers_of(folder)
        assert errors.splitlines()[-1] == "softbellman: stopped; to go on: softbellman resume study"
        states = {read_status(run) for run in Study(folder / "study").runs}
        assert states == {"stopped"}
    process = begin(folder, *WORDS)
    once_further(folder, process)
    process.kill()
    process.communicate()
    process = begin(folder, *WORDS)  # at once, while workers of the one before may save still
    once_further(folder, process)
    for each in [process.pid, *workers_of(folder)]:
        os.kill(each, signal.SIGKILL)
    process.communicate()
    process = begin(folder, "resume", "study")
    assert (process.communicate()[0], process.returncode) == ("", 0)
    assert not workers_of(folder) and not (folder / "study" / "groups").exists()
    disturbed, undisturbed = (rows(each / "study") for each in (folder, tmp_path / "undisturbed"))
    pd.testing.assert_frame_equal(disturbed, undisturbed, check_exact=True)
    assert disturbed.groupby(["operator", "seed"])["epoch"].apply(list).tolist() == [list(range(1, 13))] * 4
    record = json.loads((folder / "study" / "study.json").read_text())
    assert len(record["resumptions"]) == 6 and len(record["launches"]) == 7


def test_one_seed_can_be_chosen(softbellman):
    code, out, errors = softbellman("compare", "gym/CartPole-v1", "--seed", "7", "--dry-run")
    assert (code, errors) == (0, "")
    assert re.search(r"^seed +7$", out, re.MULTILINE)


def test_arms_are_compared_like_operators(softbellman, monkeypatch):
    monkeypatch.setattr(Local, "train", in_this_process)
    arms = ["max", "max, recipe.gap = gap(.9)", "x=softmax:5, head=duelling"]
    words = ["--seeds", "3", "7", *TINY, "--threads", "1", "--out", "study"]
    code, out, errors = softbellman("compare", "--arms", *arms[:2], "gym/CartPole-v1", *words)
    assert (code, errors) == (0, "") and "arms max; max, gap=gap(0.9) seeds 3, 7" in " ".join(out.split())
    code, out, errors = softbellman("compare", "gym/CartPole-v1", "--operators", *arms, *words)
    plain = " ".join(out.split())
    assert (code, errors) == (0, "") and "runs 6, of which 2 are left to train, in 2 groups" in plain
    assert "gym/CartPole-v1, x, seed 7: finished" in plain and re.search(r"arm +runs +score", out)
    assert max(map(len, out.splitlines())) <= 120
    record = json.loads(Path("study/study.json").read_text())
    assert record["operators"] == ["max", "max, gap=gap(0.9)", "x=softmax(5), head=duelling"]
    assert softbellman("resume", "study", "--quiet") == (0, "", "")
    code, out, errors = softbellman(
        "evaluate", "study/runs/gym-CartPole-v1/x/seed-7", "--episodes", "2", "--out", "x.json"
    )
    assert (code, errors) == (0, "") and json.loads(Path("x.json").read_text())["operator"] == record["operators"][2]


def test_one_arm_is_trained_as_an_operator_is(softbellman):
    words = ["train", "gym/CartPole-v1", "--operator", "my own=max, gap=gap(0.9)", "--seed", "3", *TINY]
    _, out, _ = softbellman(*words, "--dry-run")
    assert re.search(r"recipe\.gap +gap\(0\.9\) +command line", out)
    code, out, errors = softbellman(*words)
    assert (code, errors) == (0, "") and "arm my own=max, gap=gap(0.9)" in " ".join(out.split())
    assert [path.name for path in Path("runs").iterdir()] == ["gym-CartPole-v1-my-own-seed-3"]
    code, out, errors = softbellman(*words)
    assert (code, errors) == (0, "") and "none of which is left to train" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ("max, gama=1", "arm 'max, gama=1': unknown setting 'gama'; did you mean gamma?"),
        ("max, loop.steps=3", "no arm can change loop.steps"),
        ("max, gap=gap(7)", "arm max, gap=gap(7): recipe.gap 'gap(7)': alpha (7) must be in 0 .. 1"),
        ("max, gap=none", "arm max, gap=none: gap changes nothing, for the study has it already; leave it out"),
    ],
)
def test_what_is_wrong_with_an_arm_is_bad_input(softbellman, arm, message):
    for words in (
        ["compare", "gym/CartPole-v1", "--arms", "max", arm],
        ["train", "gym/CartPole-v1", "--operator", arm],
    ):
        code, out, errors = softbellman(*words)
        assert (code, out) == (2, "") and message in errors and errors.count("\n") == 1
    assert not Path("runs").exists()
