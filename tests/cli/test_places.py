"""Places that can't be written are refused before any work; what can't be written afterwards loses nothing."""

import shutil
import tempfile
from pathlib import Path

import pytest

from softbellman import cli

from .conftest import TRAIN, ours


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ([*TRAIN, "--out", "file/study"], "file/study"),
        ([*TRAIN, "--dry-run"], "runs/gym-CartPole-v1-softmax-5-seed-3"),
        (["compare", "gym/CartPole-v1", "--out", "file/study"], "file/study"),
        (["compare", "gym/CartPole-v1", "--dry-run"], "runs/compare-gym-CartPole-v1-.*"),
        (["simulate", "bias", "--operators", "max"], "runs/simulations"),
        (["simulate", "comparison", "--out", "file"], "file"),
        (["simulate", "temperature", "--out", "file"], "file"),
        (["solve", "forest", "--out", "file/values.csv"], "file/values.csv"),
        (["solve", "forest", "--out", "."], "."),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_a_place_that_cant_be_written_is_refused_before_any_work(words, place, softbellman):
    for name in ("file", "runs"):
        Path(name).write_text("mine")
    code, out, errors = softbellman(*words)
    assert (code, out, len(errors.splitlines())) == (2, "", 1)
    assert errors.startswith("softbellman: ") and errors.endswith("with --out\n") and "can't be written (" in errors
    assert place.partition("*")[0].rstrip(".") in errors
    assert [Path(name).read_text() for name in ("file", "runs")] == ["mine", "mine"] and len(
        list(Path().iterdir())
    ) == 2


def test_what_a_study_shows_goes_elsewhere_where_its_own_place_cant_be_written(softbellman, trained):
    study = Path(shutil.copytree(trained[0], "study"))
    run = next(study.glob("runs/*/*/*"))
    for path in (study / "report", run / "videos"):
        path.write_text("in the way")
    code, out, errors = softbellman("report", study)
    assert (code, out) == (2, "") and errors.startswith("softbellman: study/report can't be written (Not a directory")
    code, out, errors = softbellman("report", study, "--out", "page")
    assert (code, errors) == (0, "") and "page/index.html" in out
    assert "<svg" in Path("page/index.html").read_text() and Path("page/tables").is_dir()
    for words in (["watch", run], ["evaluate", run, "--out", run / "videos" / "scores.json"]):
        code, out, errors = softbellman(*words)
        assert (code, out) == (2, "") and errors.endswith("name another file with --out\n")


def test_curves_that_cant_be_written_make_no_run_worse(softbellman, trained):
    study = Path(shutil.copytree(trained[0], "study"))
    (study / "curves.png").unlink()
    (study / "curves.png").mkdir()
    code, out, errors = softbellman("resume", study)
    assert code == 0 and "final score" in out and "metrics.csv" in out
    assert "the learning curves could not be written: " in errors and "Is a directory" in errors


def test_a_fault_of_our_own_is_told_where_no_file_can_be_written(softbellman, monkeypatch):
    def nowhere(*_, **__):
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setitem(cli._HANDLERS, "doctor", ours("raise KeyError('no such thing')"))
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", nowhere)
    code, _, errors = softbellman("doctor")
    assert code == 1 and errors.startswith(
        "softbellman: a fault of softbellman's own, KeyError: 'no such thing' (all of"
    )
    assert "Traceback" in errors and "in command" in errors


def test_an_error_of_the_system_names_the_file_and_no_number(softbellman, monkeypatch):
    monkeypatch.setitem(cli._HANDLERS, "doctor", ours("Path('gone/away').read_text()"))
    assert softbellman("doctor") == (2, "", "softbellman: gone/away: No such file or directory\n")
