"""The paper on the command line: all of it at the smallest scale, verdicts, the page, and what is refused."""

import errno
import os
import shutil

import pytest

from softbellman.paper import budget
from softbellman.paper.arms import candidates, take
from softbellman.paper.grid import SCALES
from softbellman.paper.views import VIEWS
from softbellman.running.engines.local import Local
from softbellman.study.runs import read_status
from softbellman.study.store import Study
from softbellman.study.writer import write_error

from ..studies import paper_study, results_of
from .conftest import run_alone


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Everything at scale smoke, and what was printed."""
    folder = tmp_path_factory.mktemp("paper")
    return folder, run_alone(folder, "paper", "run", "all", "--scale", "smoke", "--workers", "2")


def plain(text):
    return " ".join(text.split())


def test_everything_runs_at_scale_smoke(smoke):
    folder, out = smoke
    study = Study(folder / "runs" / "paper-smoke")
    assert len([run for run in study.runs if read_status(run) == "finished"]) == 22
    for view in VIEWS.values():
        assert view.title in plain(out)
        assert (study.path / "paper" / f"{view.name}.csv").stat().st_size > 80
        assert (study.path / "paper" / f"{view.name}.png").exists() == bool(view.panels)
    assert "scale smoke decides nothing" in plain(out) and "runs are missing" not in plain(out)


def test_arms_that_explore_are_trained_last_with_the_parameters_that_were_chosen(smoke):
    folder, out = smoke
    assert "then 4 runs on exploration, with parameters chosen by the scores of these" in plain(out)
    assert "runs 18, of which 18 are left" in plain(out) and "runs 22, of which 4 are left" in plain(out)
    scale, study = SCALES["smoke"], Study(folder / "runs" / "paper-smoke")
    found = results_of(scale, study)
    for name in ("exploring max", "exploring mellowmax"):
        trained = {(run.seed, run.operator) for run in study.runs if read_status(run)}
        for seed, spec in zip(scale.seeds, take(found, name).operators[0], strict=True):
            assert [arm for at, arm in trained if at == seed and arm in candidates(scale, name)] == [spec]


def test_nothing_is_run_twice(smoke, softbellman, monkeypatch):
    folder, _ = smoke
    monkeypatch.setattr(Local, "train", lambda *_: pytest.fail("there is nothing to train"))
    study = folder / "runs" / "paper-smoke"
    before = {file: file.stat().st_mtime_ns for file in study.glob("runs/**/*") if file.is_file()}
    code, out, _ = softbellman("paper", "run", "figure-3", "--out", study)
    assert code == 0 and "none of which is left to train" in plain(out)
    assert max(len(line) for line in out.splitlines() if str(study) not in line) <= 80
    code, out, _ = softbellman("paper", "run", "table-2", "--out", study, "--dry-run")
    assert code == 0 and "none of which is left to train" in plain(out) and "Table 2" not in out
    assert before == {file: file.stat().st_mtime_ns for file in study.glob("runs/**/*") if file.is_file()}


def test_a_study_of_the_paper_is_not_resumed_but_asked_for_again(smoke, softbellman):
    study = smoke[0] / "runs" / "paper-smoke"
    code, _, errors = softbellman("resume", study)
    assert code == 2 and len(errors.splitlines()) == 1
    assert f"with --out {study}: softbellman paper run all --scale smoke --workers 2" in errors


@pytest.fixture
def one_failed(smoke, tmp_path):
    """A copy of it all in which one run of double(max) has failed."""
    study = Study(shutil.copytree(smoke[0] / "runs" / "paper-smoke", tmp_path / "one_failed"))
    run = next(run for run in study.runs if run.operator == "double(max)")
    write_error(run, "failed", "RuntimeError: the emulator is gone", "")
    return study, run


def test_a_run_that_failed_is_told_of_and_what_is_there_is_drawn_and_marked(one_failed, softbellman, monkeypatch):
    monkeypatch.setattr(Local, "train", lambda *_: pytest.fail("there is nothing to train"))
    study, _ = one_failed
    code, out, errors = softbellman("paper", "run", "table-1", "--out", study.path)
    assert code == 1 and "1 of 6 runs is missing (1 of 2 of double(max)); the time they take is about" in plain(out)
    assert "double(max): 1 of 2 runs finished; seed 0 failed: RuntimeError: the emulator is gone" in errors
    assert errors.splitlines()[-1] == "softbellman: the same command with --retry-failed tries again what failed"
    assert (study.path / "paper" / "table-1.png").exists()
    assert "so far: 5 of 6 runs" in VIEWS["table-1"].heading(results_of(SCALES["smoke"], study))
    code, _, errors = softbellman("paper", "run", "table-2", "--out", study.path)
    assert (code, errors) == (0, "")  # the run that failed is none of its own


def test_a_run_that_failed_is_tried_again_if_asked_for_and_what_it_wrote_is_kept(one_failed, softbellman, monkeypatch):
    study, run = one_failed
    code, out, _ = softbellman("paper", "run", "table-1", "--out", study.path, "--retry-failed", "--workers", "1")
    assert code == 0 and "6, of which 1 are left to train, in 1 group" in plain(out)
    assert "is missing" not in plain(out.partition("undecided")[0]) and read_status(run) == "finished"
    rows, before = (path.read_text().splitlines() for path in run.path.parent.glob("seed-0*/metrics.csv"))
    assert len(rows) == len(before) == 5


def test_runs_whose_parameter_is_not_chosen_yet_are_told_of_and_nothing_is_tried_for_ever(
    smoke, tmp_path, softbellman, monkeypatch
):
    study = Study(shutil.copytree(smoke[0] / "runs" / "paper-smoke", tmp_path / "study"))
    for run in study.runs:
        if run.operator.startswith("max, exploration"):
            shutil.rmtree(run.path, ignore_errors=True)
    write_error(next(run for run in study.runs if run.operator == "softmax(1)"), "failed", "RuntimeError: gone", "")
    rounds = []
    monkeypatch.setattr(Local, "train", lambda self, tasks, *_: rounds.append([task.group for task in tasks]))
    code, out, _ = softbellman("paper", "run", "exploration", "--out", study.path)
    assert (code, rounds) == (1, []) and "not yet 2 runs on exploration, with parameters to be chosen by" in plain(out)
    code, out, errors = softbellman("paper", "run", "exploration", "--out", study.path, "--retry-failed")
    assert code == 1 and "then 2 runs on exploration, with parameters chosen by the scores of these" in plain(out)
    assert rounds == [["minatar-breakout-softmax-1-seed-0"]] * 2 and "softmax(1): 1 of 2 runs finished" in errors


def test_what_is_trained_by_another_process_can_be_drawn_all_the_same(smoke, softbellman):
    study = Study(smoke[0] / "runs" / "paper-smoke")
    with study.locked():
        assert softbellman("paper", "run", "table-1", "--out", study.path)[0] == 0


def test_the_random_policy_is_played_where_the_study_can_be_claimed_and_else_left_out(
    softbellman, tmp_path, monkeypatch
):
    study = paper_study(tmp_path / "study", SCALES["smoke"])
    shutil.rmtree(study.path / "random")
    with study.locked():
        code, out, errors = softbellman("paper", "check", "table-1", "--study", study.path)
    assert (code, errors) == (0, "") and "note the random policy is not played: " in plain(out)
    assert "is being trained by another process" in plain(out) and not (study.path / "random").exists()

    def read_only(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(study.path))

    with monkeypatch.context() as patched:
        patched.setattr("softbellman.study.store.locked", read_only)
        code, out, errors = softbellman("paper", "check", "table-1", "--study", study.path)
    assert (code, errors) == (0, "") and "can't be written (Read-only file system); copy the study" in plain(out)
    code, out, errors = softbellman("paper", "check", "table-1", "--study", study.path)
    assert (code, errors) == (0, "") and "note" not in out
    assert len(list((study.path / "random").iterdir())) == len(study.environments)


def test_a_place_that_cannot_be_written_is_refused_before_any_work(softbellman, tmp_path):
    (tmp_path / "file").write_text("")
    for words in (("run", "table-3", "--out"), ("run", "figure-3", "--out"), ("page", "--study")):
        code, out, errors = softbellman("paper", *words, tmp_path / "file")
        assert (code, out) == (2, "") and f"file/paper can't be written (Not a directory: {tmp_path}/file)" in errors
        assert ("copy the study" if words[0] == "page" else "name another directory with --out") in errors


def test_verdicts_alone_and_the_page(smoke, softbellman):
    study = smoke[0] / "runs" / "paper-smoke"
    code, out, _ = softbellman("paper", "check", "all", "--study", study)
    assert code == 0 and "written" not in out
    assert out.count("most-taus:") == 1 and "scale smoke decides nothing" in plain(out)
    code, out, _ = softbellman("paper", "page", "--study", study)
    said = (
        "Of the paper's 20 claims about training, 0 are supported, 0 are not supported and 20 are undecided at scale "
        "smoke (1 game of MinAtar, 2 seeds, 4,000 agent steps a run)."
    )
    assert code == 0 and said in plain(out)
    assert said.replace("'", "&#39;") in (study / "paper" / "index.html").read_text()


def test_another_scales_directory_is_refused(smoke, softbellman):
    study = smoke[0] / "runs" / "paper-smoke"
    for words in (("run", "figure-3", "--out"), ("check", "figure-3", "--study"), ("page", "--study")):
        code, out, errors = softbellman("paper", *words, study, "--scale", "laptop")
        assert (code, out) == (2, "") and "holds a study of scale smoke, not of laptop" in errors


def test_what_needs_no_run_needs_no_study(softbellman):
    code, out, _ = softbellman("paper", "run", "table-3", "--dry-run")
    assert code == 0 and "measured anew each time" in plain(out)
    code, out, _ = softbellman("paper", "run", "table-3", "--out", "new")
    assert code == 0 and "not supported answers-mellowmax" in plain(out) and "new/paper/table-3.csv" in out
    assert softbellman("paper", "check", "table-3", "--study", "new")[0] == 0
    code, out, errors = softbellman("paper", "check", "figure-3", "--study", "new")
    assert code == 2 and "new holds no study yet; train one with softbellman paper run figure-3 --scale smoke" in errors


def test_a_plan_says_what_it_takes_and_trains_nothing(softbellman, monkeypatch, tmp_path):
    monkeypatch.setattr(budget, "calibrate", lambda *_: budget.Calibration(2_000.0, 1_000, "by hand"))
    code, out, _ = softbellman("paper", "run", "table-1", "--scale", "laptop", "--dry-run", "--workers", "1")
    assert code == 0
    for told in (
        "105, of which 105 are left",
        "63,000,000 in all, 105 runs",
        "about 8.8 hours",
        "bytes that stay",
        "by hand",
    ):
        assert told in plain(out)
    assert not list(tmp_path.iterdir())


def test_a_calibration_has_no_more_workers_than_there_are_groups(softbellman, monkeypatch):
    asked = []

    def calibrate(comparison, resources):
        asked.append(resources.workers)
        return budget.Calibration(2_000.0, 1_000, "by hand")

    monkeypatch.setattr(budget, "calibrate", calibrate)
    code, out, _ = softbellman("paper", "run", "table-1", "--dry-run", "--workers", "9")
    assert (code, asked) == (0, [6]) and "6 groups at once" in plain(out)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "figur-3"], "unknown figure or table 'figur-3'; did you mean figure-3"),
        (["check", "table-4"], "unknown figure or table 'table-4'; did you mean table-"),
        (["page", "--scale", "labtop"], "unknown scale 'labtop'; did you mean laptop?"),
        (["run", "table-3", "--scale", "fuli"], "unknown scale 'fuli'; did you mean full?"),
        (["lst"], "unknown command 'paper lst'; did you mean paper list"),
        (["run"], "NAME"),
        (["run", "all", "--workers", "0"], "workers"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(softbellman, words, told):
    code, out, errors = softbellman("paper", *words)
    assert (code, out) == (2, "") and told in errors and errors.count("\n") == 1


def test_the_list_has_everything(softbellman):
    code, out, _ = softbellman("paper", "list")
    assert code == 0 and all(name in out for name in (*VIEWS, "smoke", "laptop", "full"))
