"""Training, testing and filming on the command line: what is printed, what is left on disk, how it ends."""

import json
import os
import re
import shutil
import signal
import sys
import textwrap
from pathlib import Path

import pandas as pd
import pytest

from softbellman.analysis.records import Records
from softbellman.cli import training
from softbellman.cli.results import print_scores
from softbellman.running.engines import DETERMINISTIC

from ..studies import synthetic
from .conftest import TINY, TRAIN, run_alone


def test_training_ends_with_a_table_a_picture_and_the_way_to_a_film(trained):
    study, out = trained
    assert "\r" not in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    plain = " ".join(out.split())
    assert re.search(r"operator +seed +state +games +final score +best score +overestimation", out)
    assert re.search(r"softmax\(5\) +3 +finished +\d+ +\d+\.\d\d +\d+\.\d\d +[+-]\d", out)
    assert "softmax(5), seed 3: test phase 2, mean score" in out
    assert "learning curves study/curves.png" in plain
    assert "film a game softbellman watch study" in plain
    assert (study / "curves.png").read_bytes().startswith(b"\x89PNG")
    frame = pd.read_csv(study / "runs" / "gym-CartPole-v1" / "softmax-5" / "seed-3" / "metrics.csv")
    assert list(frame["agent_steps"]) == [150, 300]
    record = json.loads((study / "study.json").read_text())
    assert record["command"][:3] == ["train", "gym/CartPole-v1", "--operator"]


def test_a_final_score_is_the_mean_of_the_last_phases_and_a_diverged_run_has_none(tmp_path, capsys):
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0, 1], ends={("max", 1): "diverged"})
    print_scores(Records.read(study))
    out = capsys.readouterr().out
    final = Records.read(study).runs[0].column("test_return")[-3:].mean()
    assert re.search(rf"max +0 +finished +1,200 +{final:.2f} +\d", out)
    assert re.search(r"max +1 +diverged +600 +- +- +- *\n", out) and "nan" not in out
    assert "final score      mean of the last 3 of 12 test phases\n" in out


def test_a_study_that_is_there_is_not_touched(trained, softbellman):
    study, _ = trained
    before = {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}
    code, _, errors = softbellman("train", "gym/CartPole-v1", *TINY, "--out", study)
    assert code == 2
    assert "holds another study already" in errors and "name another directory with --out" in errors
    for other in ("operators softmax(5) there, and not asked for", "seeds 3 there, and not asked for"):
        assert other in errors
    assert {path: path.read_bytes() for path in study.rglob("*") if path.is_file()} == before


def test_one_process_trains_one_group_at_a_time(trained, softbellman):
    code, _, errors = softbellman("resume", trained[0], "--workers", "2")
    assert code == 2 and "workers (2): one process trains one group at a time" in errors
    code, _, errors = softbellman(*TRAIN, "--engine", "elsewhere", "--out", "study")
    assert code == 2 and "unknown engine 'elsewhere'; there are local, here, ray, slurm, and module:function" in errors


def test_a_trained_network_is_tested_beside_the_random_policy(trained, softbellman, tmp_path):
    study, _ = trained
    code, out, errors = softbellman("evaluate", study, "--epsilon", "0", "--episodes", "5", "--out", "scores.json")
    assert (code, errors) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"softmax\(5\) +5 +\d+\.\d\d +-?\d+\.\d\d to -?\d+\.\d\d ", out), out
    assert re.search(r"random +5 ", out)
    tested = re.compile(
        r"tested gym/CartPole-v1: best network of seed 3, after (150|300) agent steps, epsilon 0, games from seed 1"
    )
    assert tested.search(" ".join(out.split()))
    record = json.loads((tmp_path / "scores.json").read_text())
    assert (record["epsilon"], record["network"], record["training_seed"]) == (0.0, "best", 3)
    assert len(record["policies"]["random"]["scores"]) == len(record["policies"]["trained"]["lengths"]) == 5
    assert record["provenance"]["versions"]["softbellman"]


def test_a_budget_too_small_for_the_games_is_said(trained, softbellman):
    study, _ = trained
    _, out, _ = softbellman("evaluate", study, "--episodes", "50", "--max-steps", "150")
    assert re.search(r"random: the budget of steps ended the test after \d+ games", " ".join(out.split()))
    _, out, _ = softbellman("evaluate", study, "--episodes", "1", "--max-steps", "2")
    text = " ".join(out.split())
    assert "random: no game ended within the budget; its score is that of the unfinished one" in text
    assert "random: one score shows no spread, so there is no interval" in text


def test_damaged_parameters_are_bad_input(trained, softbellman, tmp_path):
    study, _ = trained
    run = study / "runs" / "gym-CartPole-v1" / "softmax-5" / "seed-3"
    whole = (run / "final.safetensors").read_bytes()
    (run / "final.safetensors").write_bytes(whole[:-100])
    code, out, errors = softbellman("evaluate", study, "--network", "final")
    (run / "final.safetensors").write_bytes(whole)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"softbellman: \S+/final\.safetensors is damaged: .*\n", errors)


CRASH = """
    import gymnasium, numpy as np

    class Failing(gymnasium.Env):
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        fault = RuntimeError("the simulator\\nis gone")
        steps = 0

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.steps += 1
            if self.steps > 20:
                raise self.fault
            return np.zeros(1, np.float32), 0.0, False, False, {}

    class Wrong(Failing):
        fault = ValueError("the simulator\\nis gone")

    class Left(Failing):
        fault = SystemExit("the simulator\\nis gone")

    class Stopped(Failing):
        fault = KeyboardInterrupt()

    class Rich(Failing):
        def step(self, action):
            return np.zeros(1, np.float32), 1e30, False, False, {}

    gymnasium.register("Failing-v0", Failing)
    gymnasium.register("Wrong-v0", Wrong)
    gymnasium.register("Left-v0", Left)
    gymnasium.register("Stopped-v0", Stopped)
    gymnasium.register("Rich-v0", Rich)
"""


def test_a_run_that_fails_ends_with_code_1_and_one_that_is_stopped_with_code_130(softbellman, tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(textwrap.dedent(CRASH))
    monkeypatch.syspath_prepend(tmp_path)
    for name, error in (("Failing", "RuntimeError"), ("Wrong", "ValueError"), ("Left", "SystemExit")):
        code, _, errors = softbellman("train", f"gym/failing:{name}-v0", *TINY, "--out", name)
        assert code == 1, errors
        (line,) = errors.splitlines()
        said = (
            f"gym/failing:{name}-v0 fails in step: {error}: the simulator is gone ({tmp_path / 'failing.py'}, line 16)"
        )
        what = f"gym/failing:{name}-v0, max: 0 of 1 runs finished; seed 0 failed"
        assert line.startswith(f"softbellman: {what}: {said} ({name}/runs/")
        assert "Traceback" in Path(line.rpartition(" (")[2].rstrip(")")).read_text()
    code, _, errors = softbellman("train", "gym/failing:Stopped-v0", *TINY, "--out", "b")
    assert (code, errors) == (130, "softbellman: stopped; to go on: softbellman resume b\n")


def test_a_run_that_diverged_before_its_first_test_ends_with_code_1_then_and_when_it_is_resumed(
    softbellman, tmp_path, monkeypatch
):
    (tmp_path / "failing.py").write_text(textwrap.dedent(CRASH))
    monkeypatch.syspath_prepend(tmp_path)
    code, _, errors = softbellman(
        "train", "gym/failing:Rich-v0", *TINY, "--learner.huber-delta", "1e20", "--out", "study"
    )
    assert code == 1, errors
    said = "max: 0 of 1 runs finished; seed 0 diverged: the loss was not finite at agent step "
    assert said in errors.splitlines()[-1]
    assert "good state" not in errors  # there was none yet
    code, out, errors = softbellman("resume", "study")
    assert code == 1 and said in errors.splitlines()[-1] and "score" not in out


def test_how_checkpoints_are_saved_may_change_between_two_commands(softbellman, trained):
    shutil.copytree(trained[0], "study")
    code, out, _ = softbellman(*TRAIN, "--checkpoint.keep", "1", "--out", "study")
    assert code == 0 and "none of which is left to train" in " ".join(out.split())
    assert json.loads(Path("study/study.json").read_text())["config"]["checkpoint"]["keep"] == 1


def test_a_stopped_study_goes_on_by_resume_or_by_the_same_command(softbellman, trained):
    """Ctrl-C comes at the first row; then it goes on, and is stopped again, twice; then it ends."""
    from softbellman.training.loop import Loop

    test, restore, left, inexactly = Loop.test, Loop.restore, [3], []

    def restored(self, saved, *, inexact):
        inexactly.append(inexact)
        return restore(self, saved, inexact=inexact)

    def interrupted(self, on_step):
        if left[0]:
            left[0] -= 1
            os.kill(os.getpid(), signal.SIGINT)
        return test(self, on_step)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Loop, "test", interrupted)
        patched.setattr(Loop, "restore", restored)
        code, _, errors = softbellman(*TRAIN, "--out", "study")
        assert code == 130 and errors.splitlines()[-1] == "softbellman: stopped; to go on: softbellman resume study"
        for words in ([], ["--inexact"]):
            code, _, errors = softbellman("resume", "study", *words)
            assert code == 130 and "goes on from agent step 150, exactly as it was" in errors
        code, out, _ = softbellman(*TRAIN, "--out", "study")
    assert code == 0 and "final score" in out and inexactly == [False, True, False]
    frames = [pd.read_csv(next(study.rglob("metrics.csv"))) for study in (Path("study"), trained[0])]
    pd.testing.assert_frame_equal(*(frame.drop(columns="seconds") for frame in frames), check_exact=True)


@pytest.mark.parametrize("quiet", [False, True])
def test_one_stopped_while_the_random_policy_plays_says_that_all_runs_have_ended(
    softbellman, trained, monkeypatch, quiet
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    shutil.copytree(trained[0], "stop me")
    shutil.rmtree("stop me/random")
    monkeypatch.setattr("softbellman.running.play.evaluate_random", interrupted)
    code, out, errors = softbellman("resume", "stop me", *["--quiet"] * quiet)
    assert (code, errors) == (130, "softbellman: stopped; all runs have ended: softbellman report 'stop me'\n")
    assert ("\nthe random policy plays gym/CartPole-v1, " in out) != quiet


def test_a_stop_needs_no_memory_and_commands_to_copy_are_quoted(softbellman, monkeypatch):
    from softbellman.running import comparison
    from softbellman.training.loop import Loop

    def interrupted(self, on_step):
        monkeypatch.setattr(comparison, "available_memory", lambda: 1)
        os.kill(os.getpid(), signal.SIGINT)
        return test(self, on_step)

    test = Loop.test
    with monkeypatch.context() as patched:
        patched.setattr(Loop, "test", interrupted)
        code, _, errors = softbellman(*TRAIN, "--out", "stop me")
    assert code == 130 and errors.splitlines()[-1] == "softbellman: stopped; to go on: softbellman resume 'stop me'"
    monkeypatch.setattr(comparison, "available_memory", lambda: None)
    code, out, _ = softbellman("resume", "stop me")
    assert code == 0 and out.splitlines()[-1].endswith("softbellman watch 'stop me'")


def test_l48_a_study_json_alone_reruns_the_study(softbellman, trained):
    Path("again").mkdir()
    shutil.copy(trained[0] / "study.json", "again")
    code, out, errors = softbellman("resume", "again")
    assert (code, errors) == (0, "") and "final score" in out
    frames = [pd.read_csv(next(study.rglob("metrics.csv"))) for study in (Path("again"), trained[0])]
    pd.testing.assert_frame_equal(*(frame.drop(columns="seconds") for frame in frames), check_exact=True)


def test_l41_a_resumed_study_has_the_threads_and_flags_it_was_begun_with(softbellman, trained, monkeypatch):
    monkeypatch.setattr(training, "_train", lambda *_, **__: 0)
    Path("begun").mkdir()
    record = json.loads((trained[0] / "study.json").read_text())
    record["provenance"] |= {"threads": "3", "xla_flags": DETERMINISTIC}
    Path("begun/study.json").write_text(json.dumps(record))
    monkeypatch.setenv("XLA_FLAGS", "")
    assert softbellman("resume", "begun")[0] == 0
    assert (os.environ["NPROC"], os.environ["XLA_FLAGS"]) == ("3", DETERMINISTIC)
    assert softbellman("resume", "begun", "--threads", "1")[0] == 0
    assert os.environ["NPROC"] == "1"


def test_a_film_is_made_without_a_display(trained, softbellman, tmp_path):
    pytest.importorskip("pygame")
    study, _ = trained
    code, out, errors = softbellman("watch", study, "--max-steps", "20", "--out", "film.mp4")
    assert (code, errors) == (0, "")
    assert "played gym/CartPole-v1, softmax(5), best network, epsilon 0 score" in " ".join(out.split())
    assert re.search(r"video +film\.mp4 \(\d+ pictures: the first, and one for each agent step\)", out)
    assert (tmp_path / "film.mp4").stat().st_size > 1_000


def test_a_film_needs_what_draws_the_environment(trained, softbellman, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    study, _ = trained
    code, out, errors = softbellman("watch", study)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"softbellman: gym/CartPole-v1 cannot be filmed: pygame is not installed.*\n", errors)
    assert not list(study.rglob("videos"))


TOGETHER = """
import sys
from softbellman import cli
assert cli.run(sys.argv[1:]) == 0
print("trained")
assert cli.run(["evaluate", "runs/gym-CartPole-v1-softmax-5-seed-3", "--episodes", "2"]) == 0
assert cli.run(["watch", "runs/gym-CartPole-v1-softmax-5-seed-3", "--max-steps", "5", "--out", "film.gif"]) == 0
assert not {"wandb", "tensorboardX"} & set(sys.modules)
"""


def test_l5_l42_the_same_seed_gives_the_same_rows_in_any_process(trained, tmp_path):
    """And l47: with `--quiet` training says nothing. And l41: `--deterministic`, which concerns GPUs, is a flag that
    XLA knows: it would have ended the process otherwise."""
    out = run_alone(tmp_path, *TRAIN, "--quiet", "--deterministic", code=TOGETHER, hash_seed="2")
    assert out.startswith("trained\ntested ")
    studies = trained[0], tmp_path / "runs" / "gym-CartPole-v1-softmax-5-seed-3"
    assert json.loads((studies[1] / "study.json").read_text())["provenance"]["xla_flags"] == DETERMINISTIC
    frames = [pd.read_csv(next(study.rglob("metrics.csv")), dtype=str).drop(columns="seconds") for study in studies]
    pd.testing.assert_frame_equal(*frames)
    assert len({(study / "curves.png").read_bytes() for study in studies}) == 1
