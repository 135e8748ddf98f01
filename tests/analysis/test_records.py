"""Records of a study's runs are read once, whoever asks for it, and cannot be changed."""

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from softbellman import cli
from softbellman.analysis.records import Records
from softbellman.study.store import Study

from ..studies import synthetic

ENDS = {("mean", 1): "diverged", ("softmax(5)", 0): "failed"}


@pytest.fixture
def study(tmp_path):
    operators = ["max", "mean", "softmax(5)"]
    return synthetic(tmp_path / "study", ["g/a", "g/b"], operators, [0, 1], ends=ENDS, phases=2, random=0.5)


@pytest.fixture
def opened(monkeypatch):
    """How often files were opened, by path."""
    counts, opens = Counter(), io.open

    def counting(file, *options, **more):
        counts[file] += 1
        return opens(file, *options, **more)

    monkeypatch.setattr(io, "open", counting)
    return counts


def of_the_command_line(study):
    assert cli.run(["report", str(study.path)]) == 0


@pytest.mark.parametrize(
    ("show", "shows_all"),
    [(Study.report, True), (of_the_command_line, True), (Study.table, False), (Study.plot, False)],
    ids=["report", "command", "table", "plot"],
)
def test_whatever_shows_a_study_reads_each_file_once(study, opened, show, shows_all):
    """A table and a plot leave out the measurements of runs that do not count."""
    show(study)
    read = {path: n for path, n in opened.items() if study.path in Path(path).parents and "report" not in str(path)}
    measured = [run for run in study.runs if shows_all or (run.operator, run.seed) not in ENDS]
    files = [*(run.path / "metrics.csv" for run in measured), *(run.path / "status.json" for run in study.runs)]
    files += [study.path / "random" / f"g-{name}.json" for name in "ab"]
    read.pop(study.path / "study.json", None)
    assert {path: n for path, n in read.items() if path.suffix in (".csv", ".json")} == dict.fromkeys(files, 1)


def test_records_say_how_each_run_stands_and_what_it_measured(study):
    records = Records.read(study)
    assert [record.run for record in records.runs] == study.runs
    stands = {(each.run.operator, each.run.seed): (each.state, each.reason, each.rows) for each in records.runs}
    assert stands["max", 0] == ("finished", "", 2)
    assert stands["mean", 1] == ("diverged", "the loss was not finite", 1)
    assert stands["softmax(5)", 0] == ("failed", "RuntimeError: the emulator is gone", 1)
    assert {name: scores.tolist() for name, scores in records.random.items()} == {"g/a": [0.5, 0.5], "g/b": [0.5, 0.5]}
    assert records.runs[0].column("agent_steps").tolist() == [50_000, 100_000]


def test_a_run_that_has_not_begun_has_no_rows_and_no_table(study):
    (study.runs[0].path / "metrics.csv").unlink()
    (study.runs[0].path / "status.json").unlink()
    record = Records.read(study).runs[0]
    assert (record.state, record.reason, record.rows) == ("not begun", "", 0)
    with pytest.raises(ValueError, match=r"metrics\.csv can't be read as a table of numbers: .*No such file"):
        record.column("test_return")


def test_records_are_of_one_time_and_cannot_be_changed(study):
    records = Records.read(study)
    before = records.runs[0].column("test_return")
    (study.runs[0].path / "metrics.csv").write_text("agent_steps,test_return\n1,2\n")
    (study.runs[0].path / "status.json").write_text('{"state": "failed"}')
    assert records.runs[0].column("test_return") is before and records.runs[0].state == "finished"
    with pytest.raises(ValueError, match="read-only"):
        before[0] = np.nan
    assert Records.read(study).runs[0].column("test_return").tolist() == [2.0]


def test_a_damaged_table_harms_only_what_needs_it(study):
    diverged = next(run for run in study.runs if (run.operator, run.seed) == ("mean", 1))
    (diverged.path / "metrics.csv").write_text("agent_steps\nnone\n")
    assert len(study.table()) == 6
    with pytest.raises(ValueError, match=r"metrics\.csv can't be read as a table of numbers"):
        study.report()


def test_a_rare_measure_that_an_older_table_lacks_was_not_measured(study):
    run = Records.read(study).runs[0]
    file = run.run.path / "metrics.csv"
    header, *rows = [line.split(",") for line in file.read_text().splitlines()]
    place = header.index("value_error")
    file.write_text("".join(",".join(line[:place] + line[place + 1 :]) + "\n" for line in (header, *rows)))
    (older, *_) = Records.read(study).runs
    assert np.isnan(older.column("value_error")).tolist() == [True, True]
    assert study.report().exists()
