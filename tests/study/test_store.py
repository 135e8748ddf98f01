"""Files of a study can be read, is never half written and never overwritten."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from softbellman import operators as ops
from softbellman.config import Arm, Config
from softbellman.operators.spec import plain
from softbellman.study import locks
from softbellman.study.files import load_params, read_metrics, save_params, write_atomically
from softbellman.study.locks import Lost
from softbellman.study.provenance import changes, provenance
from softbellman.study.runs import RunPath, read_status
from softbellman.study.store import Study, find_run
from softbellman.study.writer import RunWriter, count_rows
from softbellman.training import checkpoint

RESULTS = Path(__file__).parents[2] / "results"
PARAMS = {"q": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float32)}}


def created(folder, seeds=(0, 1)):
    return Study.create(
        folder, "gym/X-v0", [ops.softmax(5.0)], list(seeds), Config(), {"gym/X-v0": {"num_actions": 2}}, ["train"]
    )


def test_a_study_is_read_as_it_was_made(tmp_path):
    made = created(tmp_path / "a" / "b")
    study = Study(tmp_path / "a" / "b")
    assert study.config == made.config == Config()
    assert [(run.operator, run.seed) for run in study.runs] == [("softmax(5)", 0), ("softmax(5)", 1)]
    assert study.runs[1].path == tmp_path / "a" / "b" / "runs" / "gym-X-v0" / "softmax-5" / "seed-1"
    assert study.record["environment_facts"] == {"gym/X-v0": {"num_actions": 2}}
    assert study.record["command"] == ["train"]


def test_a_study_says_what_it_is_of_and_how_far_it_is(tmp_path):
    several = Study.create(tmp_path, ["gym/X-v0", "gym/Y-v0"], [Arm("max", label="a"), "mean"], [0], Config(), {}, [])
    for run, status in zip(several.runs, ('{"state": "finished"}', '{"state": "failed"}', "spoiled"), strict=False):
        run.path.mkdir(parents=True)
        (run.path / "status.json").write_text(status)
    assert repr(several) == f"<Study {tmp_path}: 2 environments, 2 arms, 1 seed; 1 of 4 runs finished>"
    one = created(tmp_path / "one", seeds=[7])
    assert repr(one) == f"<Study {one.path}: 1 environment, 1 operator, 1 seed; 0 of 1 run finished>"


def test_a_study_of_several_environments_has_the_runs_of_all_seeds_innermost(tmp_path):
    names = ["gym/X-v0", "gym/Y-v0"]
    study = Study.create(tmp_path, names, [ops.maximum(), ops.softmax(5.0)], [3, 1], Config(), {}, [])
    assert (study.environments, study.operators, study.seeds) == (names, ["max", "softmax(5)"], [3, 1])
    cells = [(run.environment, run.operator, run.seed) for run in study.runs]
    assert cells == [(name, spec, seed) for name in names for spec in study.operators for seed in (3, 1)]
    assert str(study.runs[-1]) == "gym/Y-v0, softmax(5), seed 1"
    with pytest.raises(ValueError, match=r"gym/X v0, max, seed 0 and gym/X-v0, max, seed 0 would share a directory"):
        Study.create(tmp_path / "a", ["gym/X v0", "gym/X-v0"], [ops.maximum()], [0], Config(), {}, [])
    arms = [Arm("max", label="hard-a"), Arm("mean", label="a")]  # their groups' names would be gym-X-hard-a-seed-0
    with pytest.raises(ValueError, match=r"gym/X, hard-a, seed 0 and gym/X-hard, a, seed 0 would share a directory"):
        Study.create(tmp_path / "d", ["gym/X", "gym/X-hard"], arms, [0], Config(), {}, [])
    long = ops.owa(*[1 / 18] * 18)
    with pytest.raises(
        ValueError, match=r"name of a directory longer than 255 letters; give it a label, as in 'mine=owa"
    ):
        Study.create(tmp_path / "c", "gym/X-v0", [long], [0], Config(), {}, [])
    assert not (tmp_path / "c").exists()
    with pytest.raises(ValueError, match=r"gym/X-v0, max, seed 0 is there twice"):
        Study.create(tmp_path / "b", "gym/X-v0", [ops.maximum()], [0, 0], Config(), {}, [])


def test_studies_of_the_older_format_are_read(tmp_path):
    """Format 1 had one environment, and its facts without its name: as in this repository's results."""
    studies = [Study(file.parent) for file in sorted(RESULTS.rglob("study.json"))]
    assert studies
    for study in studies:
        assert study.environments == list(study.record["environment_facts"])
        assert {run.environment for run in study.runs} == set(study.environments)
    made = created(tmp_path)
    new = json.loads((tmp_path / "study.json").read_text())
    old = {name: value for name, value in new.items() if name != "environments"}
    old |= {"format": 1, "environment": "gym/X-v0", "environment_facts": {"num_actions": 2}}
    (tmp_path / "study.json").write_text(json.dumps(old))
    assert (Study(tmp_path).record, Study(tmp_path).runs) == (made.record, made.runs)


def test_all_rows_load_by_one_call_into_columns_of_one_length(tmp_path):
    study = created(tmp_path, seeds=(0, 1, 2))
    for run, header, rows in (
        (study.runs[0], "epoch,loss", ["1,", "2,0.5"]),
        (study.runs[2], "epoch,loss,new", ["1,2.5,7"]),
    ):
        run.path.mkdir(parents=True)
        (run.path / "metrics.csv").write_text("\n".join([header, *rows]) + "\n")
    frame = pd.DataFrame(study.metrics())
    assert frame.columns.tolist() == ["environment", "operator", "seed", "epoch", "loss", "new"]
    assert frame["seed"].tolist() == [0, 0, 2] and set(frame["operator"]) == {"softmax(5)"}
    assert [frame[name].dtype for name in ("seed", "epoch", "loss")] == [np.int64, np.int64, np.float64]
    np.testing.assert_array_equal(frame["loss"], [np.nan, 0.5, 2.5])
    np.testing.assert_array_equal(frame["new"], [np.nan, np.nan, 7.0])
    (study.runs[2].path / "metrics.csv").unlink()
    (study.runs[0].path / "metrics.csv").unlink()
    assert {name: len(column) for name, column in study.metrics().items()} == {
        "environment": 0,
        "operator": 0,
        "seed": 0,
    }


def test_nothing_is_overwritten(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    created(folder)  # an empty directory will do
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"is there already and nothing is overwritten.*--out"):
        created(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is there already"):
        created(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("leftover", [".lock.1", ".lock.12.free", ".study.json.123"])
def test_what_a_try_left_that_could_not_be_completed_is_in_nobodys_way(leftover, tmp_path, monkeypatch):
    monkeypatch.setattr("softbellman.study.locks.LEASE", 0.3)
    (tmp_path / leftover).touch()
    created(tmp_path)


@pytest.mark.parametrize("failing", ["mkdir", "fsync", "replace", "_claim", "write"])
def test_a_study_that_cant_be_made_says_why_and_what_to_do_and_leaves_nothing_in_the_way(failing, tmp_path):
    """A disk that is full or broken, at each step there is: the next try is as the first."""

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    owner = {"mkdir": Path, "fsync": os, "replace": Path, "_claim": locks, "write": checkpoint}[failing]
    folder = tmp_path / "study"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, "replacing" if failing == "write" else failing, fail)
        with pytest.raises(
            ValueError, match=r"study can't be written \(No space left on device.*\); name another .*--out"
        ):
            created(folder)
    created(folder)


def test_without_hard_links_a_study_is_made(tmp_path, monkeypatch):
    def link(*_, **__):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    assert created(tmp_path).config == Config()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "study.json cannot be read: "),
        (lambda text: text.replace('"format": 2', '"format": 3'), "has the format 3, and this version reads 1 and 2"),
        (lambda text: text.replace('"seeds"', '"seed"'), "it has no field 'seeds'"),
        (lambda text: text.replace('"gamma"', '"gamm"'), "unknown field 'learner.gamm'; did you mean learner.gamma"),
        (lambda text: text.replace('"gamma": 0.99', '"gamma": 1.5'), r"learner\.gamma \(1\.5\)"),
        (lambda text: "[]", "cannot be read"),
    ],
)
def test_a_damaged_study_is_a_clear_error(tmp_path, damage, message):
    created(tmp_path)
    file = tmp_path / "study.json"
    file.write_text(damage(file.read_text()))
    with pytest.raises(ValueError, match=message):
        Study(tmp_path)


def test_what_is_no_study_is_a_clear_error(tmp_path):
    with pytest.raises(ValueError, match="no study that can be read: No such file"):
        Study(tmp_path)
    with pytest.raises(ValueError, match="no run and no study"):
        find_run(tmp_path / "nowhere")


def test_a_run_is_found_by_its_directory_or_by_a_study_that_has_no_other(tmp_path):
    several, single = created(tmp_path / "several"), created(tmp_path / "single", seeds=[7])
    assert find_run(single.path)[1].seed == 7
    assert find_run(single.runs[0].path)[1].seed == 7
    assert find_run(several.runs[1].path)[1].seed == 1
    with pytest.raises(ValueError, match=r"holds 2 runs; name one of them: .*seed-0, .*seed-1"):
        find_run(several.path)
    with pytest.raises(ValueError, match=r"holds 0 runs; name one of them: .*seed-7"):
        find_run(single.path / "elsewhere")
    for given, name in ((single, "Study"), (single.runs[0], "RunPath")):
        with pytest.raises(TypeError, match=rf"a {name} is no path; give that of a run, such as study.runs\[0\].path"):
            find_run(given)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "status.json"
    write_atomically(file, "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_rows_are_readable_one_by_one_as_they_come(tmp_path):
    run = RunPath(tmp_path / "run", "gym/X-v0", Arm("max"), 0)
    writer = RunWriter(run, ("epoch", "score", "loss"))
    assert json.loads((run.path / "status.json").read_text()) == {"state": "running"}
    assert read_metrics(run.path / "metrics.csv")["epoch"].shape == (0,)
    for epoch, (score, loss) in enumerate(((1.5, None), (2.0, 0.25)), start=1):
        writer.row({"epoch": epoch, "score": score, "loss": loss})
        frame = pd.read_csv(run.path / "metrics.csv")
        assert list(frame["epoch"]) == list(range(1, epoch + 1))
    assert pd.isna(frame["loss"][0])
    columns = read_metrics(run.path / "metrics.csv")
    np.testing.assert_array_equal(columns["loss"], [np.nan, 0.25])
    np.testing.assert_array_equal(columns["score"], [1.5, 2.0])


def test_a_resumption_that_could_not_be_recorded_at_once_is_one(tmp_path, monkeypatch):
    study = created(tmp_path)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            study.record_resumption({"a": 100}, [], {})
    study.record_resumption({"a": 100}, [], {})
    assert Study(tmp_path).record["resumptions"] == [{"agent_steps": {"a": 100}, "notes": [], "provenance": {}}]


def test_rows_that_cant_be_read_are_not_none(tmp_path):
    run = RunPath(tmp_path / "run", "gym/X-v0", Arm("max"), 0)
    assert count_rows(run) == 0
    (run.path / "metrics.csv").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        count_rows(run)


def test_the_best_parameters_are_those_of_the_highest_score_and_the_final_ones_the_last(tmp_path):
    writer = RunWriter(RunPath(tmp_path / "run", "gym/X-v0", Arm("max"), 0), ("epoch",))
    for step, score in ((100, 1.0), (200, 3.0), (300, 3.0), (400, 2.0)):
        writer.params({"q": {"w": np.full(2, step)}}, step, step // 4, score)
    for which, step in (("best", 200), ("final", 400)):
        params, facts = load_params(tmp_path / "run" / f"{which}.safetensors")
        assert params["q"]["w"].tolist() == [step, step]
        assert facts["agent_steps"] == step


def test_a_network_without_any_update_is_the_best_only_until_there_is_another(tmp_path):
    run, columns = RunPath(tmp_path / "run", "gym/X-v0", Arm("max"), 0), ("agent_steps", "updates", "test_return")

    def best(writer, step, updates, score):
        writer.row({"agent_steps": step, "updates": updates, "test_return": score})
        writer.params({"q": {"w": np.zeros(2)}}, step, updates, score)
        return load_params(run.path / "best.safetensors")[1]["agent_steps"]

    writer = RunWriter(run, columns)
    assert [best(writer, 50, 0, 9.0), best(writer, 100, 0, 10.0), best(writer, 150, 12, 1.0)] == [50, 100, 150]
    resumed = RunWriter(run, columns, [dict(zip(columns, row, strict=True)) for row in writer.rows])
    assert [best(resumed, 200, 25, 0.5), best(resumed, 250, 37, 2.0)] == [150, 250]


def test_the_best_network_of_a_row_that_is_no_more_gives_way_to_the_next(tmp_path):
    run, columns = RunPath(tmp_path / "run", "gym/X-v0", Arm("max"), 0), ("agent_steps", "updates", "test_return")

    def phase(writer, step, score):
        writer.row({"agent_steps": step, "updates": step, "test_return": score})
        writer.params({"q": {"w": np.zeros(2)}}, step, step, score)
        return load_params(run.path / "best.safetensors")[1]["agent_steps"]

    writer = RunWriter(run, columns)
    assert phase(writer, 100, 6.0) == 100
    rows, best = [dict(zip(columns, row, strict=True)) for row in writer.rows], writer.best
    assert phase(writer, 200, 9.0) == 200
    assert phase(RunWriter(run, columns, rows), 300, 5.0) == 300
    assert phase(RunWriter(run, columns, rows, best=best), 300, 5.0) == 100


def test_what_a_killed_process_has_left_is_removed_and_nothing_else(tmp_path):
    run = RunPath(tmp_path / "run", "gym/X-v0", Arm("max"), 0)
    run.path.mkdir()
    left = [".metrics.csv.123", ".status.json.7", ".best.safetensors.123", ".final.safetensors.4", ".error.txt.5"]
    others = [".metrics.csv.mine", "metrics.csv.123", ".notes.123"]
    for name in (*left, *others):
        (run.path / name).touch()

    def lost():
        raise Lost("another process has taken over")

    with pytest.raises(Lost):
        RunWriter(run, ("epoch",), confirm=lost)
    assert {path.name for path in run.path.iterdir()} == {*left, *others}
    RunWriter(run, ("epoch",))
    assert {path.name for path in run.path.iterdir()} == {*others, "metrics.csv", "status.json"}


def test_what_cannot_be_written_is_written_with_the_next(tmp_path, monkeypatch):
    run_writer = RunWriter(RunPath(tmp_path / "run", "gym/X-v0", Arm("max"), 0), ("epoch", "test_return"))

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: .*final\.safetensors"):
            run_writer.params({"q": {"w": np.full(2, 100)}}, 100, 25, 3.0)
        assert not run_writer.is_complete and not (tmp_path / "run" / "best.safetensors").exists()
    run_writer.params({"q": {"w": np.full(2, 200)}}, 200, 50, 1.0)
    assert run_writer.is_complete
    for which, step in (("best", 100), ("final", 200)):
        assert load_params(tmp_path / "run" / f"{which}.safetensors")[1]["agent_steps"] == step


def test_what_was_not_confirmed_is_written_with_the_next(tmp_path):
    silent = []

    def confirm():
        if silent:
            raise OSError(5, "Input/output error", ".lock.1")

    run = RunPath(tmp_path / "run", "gym/X-v0", Arm("max"), 0)
    writer = RunWriter(run, ("epoch",), confirm=confirm)
    silent.append(True)
    for write in (lambda: writer.row({"epoch": 1}), lambda: writer.status("diverged")):
        with pytest.raises(OSError, match=r"Input/output error: .*metrics\.csv"):
            write()
    assert read_metrics(run.path / "metrics.csv")["epoch"].size == 0 and read_status(run) == "running"
    silent.clear()
    writer.flush()
    assert read_metrics(run.path / "metrics.csv")["epoch"].tolist() == [1] and read_status(run) == "diverged"


def test_parameters_come_back_bit_for_bit(tmp_path):
    save_params(tmp_path / "p.safetensors", PARAMS, 12, 0.1)
    params, facts = load_params(tmp_path / "p.safetensors")
    assert facts == {"agent_steps": 12, "test_return": 0.1}
    for name, array in PARAMS["q"].items():
        assert params["q"][name].dtype == array.dtype
        np.testing.assert_array_equal(params["q"][name], array)


@pytest.mark.parametrize("damage", [lambda data: data[:-5], lambda data: b"", lambda data: b"\xff" * len(data)])
def test_damaged_parameters_are_a_clear_error(tmp_path, damage):
    file = tmp_path / "p.safetensors"
    save_params(file, PARAMS, 12, 0.1)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"p\.safetensors is damaged"):
        load_params(file)
    file.unlink()
    with pytest.raises(ValueError, match="a run saves it with its first test phase"):
        load_params(file)


def test_names_of_environments_are_paths_too():
    assert plain("gym/ale_py:ALE/Breakout-v5") == "gym-ale_py-ALE-Breakout-v5"


def test_provenance_says_what_a_result_depends_on(monkeypatch):
    monkeypatch.setenv("NPROC", "2")
    facts = provenance()
    assert facts["threads"] == "2"
    assert {"softbellman", "jax", "numpy"} <= set(facts["versions"])
    assert facts["cores"] >= 1
    assert facts["python"].count(".") == 2
    assert facts["jax_variables"] is None
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    note = "jax_variables None then, {'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'} now"
    older = {name: value for name, value in facts.items() if name != "jax_variables"}
    assert changes(facts, provenance()) == changes(older, provenance()) == [note]
    monkeypatch.setenv("PATH", "")  # without git, the rest is still known
    assert provenance()["revision"] is None


def test_the_revision_of_a_project_that_has_it_installed_is_not_its_own(tmp_path, monkeypatch):
    module = sys.modules[provenance.__module__]
    (tmp_path / "provenance.py").touch()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=me", "-c", "user.email=me@x"]
    subprocess.run([*git[:3], "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "theirs"], check=True)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "provenance.py"))
    assert provenance()["revision"] is None
    subprocess.run([*git, "add", "provenance.py"], check=True)
    assert len(provenance()["revision"]) == 13  # the revision, and that it was changed since
