"""Groups are composed evenly, and what becomes of those that die depends on how far they came."""

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest

from softbellman import operators as ops
from softbellman.config import Arm, Config, replaced
from softbellman.running import group_training as groups
from softbellman.running.engines import Event
from softbellman.running.launch import compose, find_work, launch, outcome
from softbellman.running.progress import Reporter, reporter
from softbellman.running.stopping import Stopped
from softbellman.study.groups import Group, open_group, open_groups
from softbellman.study.locks import Lost
from softbellman.study.provenance import provenance
from softbellman.study.runs import RunPath, read_status
from softbellman.study.store import Study
from softbellman.study.writer import write_status

# ------------------------------------------------------------------------------------------------------ composition


def runs(operators, seeds):
    cells = itertools.product(operators, range(seeds))
    return [RunPath(Path(f"{operator}/{seed}"), "gym/X-v0", Arm(operator), seed) for operator, seed in cells]


@pytest.mark.parametrize(
    ("operators", "seeds", "width", "workers", "sizes"),
    [
        ("a", 5, 4, 1, [3, 2]),
        ("a", 5, 4, 2, [3, 2]),
        ("a", 5, 4, 4, [2, 1, 1, 1]),
        ("a", 5, 4, 64, [1, 1, 1, 1, 1]),
        ("a", 9, 4, 2, [3, 3, 3]),
        ("a", 4, 4, 1, [4]),
        ("a", 3, 1, 2, [1, 1, 1]),
        ("ab", 5, 4, 2, [3, 2, 3, 2]),
        ("ab", 5, 4, 5, [2, 2, 1, 3, 2]),
        ("abc", 1, 4, 2, [1, 1, 1]),
        ("", 0, 4, 2, []),
    ],
)
def test_groups_are_balanced_and_no_worker_is_idle_that_could_work(operators, seeds, width, workers, sizes):
    given = runs(operators, seeds)
    composed = compose(given, [run.operator for run in given], width, workers)
    assert [len(group) for group in composed] == sizes
    assert [run for group in composed for run in group] == given
    assert all(len({run.operator for run in group}) == 1 for group in composed)


def test_operators_of_one_structure_train_together_and_no_others(tmp_path):
    specs = ["softmax(1)", "max", "softmax(5)", "double(softmax(5))", "double(softmax(1))", "mellowmax(5)"]
    study = Study.create(tmp_path, ["gym/X-v0", "gym/Y-v0"], [ops.parse(spec) for spec in specs], [0], Config(), {}, [])
    found = find_work(study.runs, [], 8, 1).fresh
    together = [{run.operator for run in group} for group in found]
    assert (
        together
        == [
            {"softmax(1)", "softmax(5)"},
            {"max"},
            {"double(softmax(5))", "double(softmax(1))"},
            {"mellowmax(5)"},
        ]
        * 2
    )
    assert all(len({run.environment for run in group}) == 1 for group in found)


# ------------------------------------------------------------------------------- what becomes of groups and their runs


@pytest.fixture
def study(tmp_path):
    """Four seeds, two to a group; nothing is trained."""
    config = replaced(Config(), "loop.block_width", 2)
    return Study.create(tmp_path, "gym/X-v0", [ops.maximum()], [1, 2, 3, 4], config, {}, [])


class Engine:
    """Does with each group what `act(group)` says: finishes it, or dies with its words, its checkpoint at a step."""

    def __init__(self, study, act):
        self.study, self.act, self.rounds = study, act, []

    capacity, spec = 2, "local"

    def train(self, tasks, on_event, check):
        self.rounds.append([[run.seed for run in open_group(self.study, task.group).runs] for task in tasks])
        for task in tasks:
            check()
            group = open_group(self.study, task.group)
            died, saved = self.act([run.seed for run in group.runs])
            if saved:
                (group.path / "checkpoint").mkdir(exist_ok=True)
                (group.path / "checkpoint" / f"step-{saved:012}.safetensors").touch()
            if died:
                on_event(task, Event("died", {"reason": died, "report": f"much about {died}"}))
            else:
                for run in group.runs:
                    write_status(run, "finished")
                group.remove()
            on_event(task, Event("ended", {}))


class Acting:
    """An engine that does what a function says."""

    capacity, spec = 2, "local"

    def __init__(self, train):
        self.train = train


def launched(study, act, **options):
    engine = Engine(study, act)
    work = find_work(study.runs, open_groups(study), 2, 2, **options)
    launch(study, work, engine=engine, variables={"NPROC": "1"}, progress=reporter(1, 1, quiet=True))
    return engine.rounds


def states(study):
    return [read_status(run) for run in study.runs]


def test_l17_a_group_that_dies_twice_at_one_place_is_broken_up_and_a_run_alone_that_does_has_failed(study, capsys):
    def act(seeds):
        return ("RuntimeError: seed 3 is broken" if 3 in seeds else None), 0

    assert launched(study, act) == [[[1, 2], [3, 4]], [[3, 4]], [[3], [4]], [[3]]]
    assert states(study) == ["finished", "finished", "failed", "finished"]
    run = study.runs[2]
    status = json.loads((run.path / "status.json").read_text())
    assert status == {"state": "failed", "reason": "RuntimeError: seed 3 is broken"}
    assert (run.path / "error.txt").read_text() == "much about RuntimeError: seed 3 is broken"
    (line,) = outcome(study)
    assert line == (
        f"gym/X-v0, max: 3 of 4 runs finished; seed 3 failed: RuntimeError: seed 3 is broken ({run.path / 'error.txt'})"
    )
    notes = capsys.readouterr().err
    assert "gym-X-v0-max-seed-3: RuntimeError: seed 3 is broken; it is tried again from agent step 0" in notes
    assert "once more at the same place; its runs go on alone, each from its start" in notes


def test_a_group_that_is_broken_up_says_what_work_is_lost(study, capsys):
    launched(study, lambda seeds: ("killed" if len(seeds) == 2 and 3 in seeds else None, 7_000))
    assert (
        "gym-X-v0-max-seed-3: killed once more at the same place; its runs go on alone, each from its start, "
        "and the checkpoint of agent step 7,000, which holds them together, is put aside: "
        f"{study.path / 'groups' / 'gym-X-v0-max-seed-3.before-1'}"
    ) in capsys.readouterr().err


def test_a_group_that_gets_further_each_time_is_tried_again_each_time(study):
    deaths = Counter()

    def act(seeds):
        deaths[tuple(seeds)] += 1
        number = deaths[tuple(seeds)]
        return ("killed" if 3 in seeds and number < 6 else None), 100 * number

    assert launched(study, act) == [[[1, 2], [3, 4]], *[[[3, 4]]] * 5]
    assert states(study) == ["finished"] * 4


def test_runs_that_failed_are_tried_again_only_when_that_is_asked_for(study):
    def break_three(seeds):
        return ("broken" if 3 in seeds else None), 0

    launched(study, break_three)
    assert launched(study, break_three) == []
    assert states(study)[2] == "failed"
    assert launched(study, lambda seeds: (None, 0), retry_failed=True) == [[[3]]]
    assert states(study) == ["finished"] * 4
    assert not (study.path / "groups").exists()


def test_a_launch_that_is_cut_short_leaves_groups_that_go_on_as_they_were_composed(study):
    def cut(seeds):
        if 3 in seeds:
            raise KeyboardInterrupt
        return None, 0

    with pytest.raises(KeyboardInterrupt):
        launched(study, cut)
    study.update(seeds=[1, 2, 3, 4, 5, 6, 7])
    composed = [[3, 4], [5, 6], [7]]
    assert launched(study, lambda seeds: (None, 0)) == [composed]
    assert [len(each["provenance"]) > 0 for each in study.record["launches"]] == [True, True]
    assert study.record["launches"][0]["provenance"]["threads"] == "1"


def test_a_study_that_goes_on_with_another_version_says_so(study, capsys):
    launched(study, lambda seeds: (None, 0))
    study.update(seeds=[*range(1, 7)])
    assert "trained otherwise" not in capsys.readouterr().err
    (first,) = study.record["launches"]
    versions = first["provenance"]["versions"] | {"softbellman": "0.0.1"}
    study.update(launches=[first | {"provenance": first["provenance"] | {"versions": versions}}])
    launched(study, lambda seeds: (None, 0))
    now = provenance()["versions"]["softbellman"]
    said = f"what the study has so far was trained otherwise: softbellman 0.0.1 then, {now} now\n"
    assert said in capsys.readouterr().err


def test_a_group_that_is_not_what_it_was_is_refused_and_the_others_are_trained(study):
    class Refusing(Engine):
        def train(self, tasks, on_event, check):
            on_event(tasks[1], Event("refused", {"reason": "other settings", "report": ""}))
            super().train([tasks[0]], on_event, check)

    engine = Refusing(study, lambda seeds: (None, 0))
    work = find_work(study.runs, [], 2, 2)
    with pytest.raises(ValueError, match="other settings"):
        launch(study, work, engine=engine, variables={}, progress=reporter(1, 1, quiet=True))
    assert engine.rounds == [[[1, 2]]]
    assert states(study) == ["finished", "finished", None, None]
    assert [group.path.name for group in open_groups(study)] == ["gym-X-v0-max-seed-3"]


def test_what_a_group_told_of_its_resumption_is_one_entry_in_study_json(study):
    facts = {"agent_steps": 5, "notes": ["not exact"], "provenance": {"threads": "1"}}

    def trains(tasks, on_event, check):
        for task in tasks:
            on_event(task, Event("resumed", facts))
            for run in open_group(study, task.group).runs:
                write_status(run, "finished")

    work = find_work(study.runs, [], 2, 2)
    launch(study, work, engine=Acting(trains), variables={}, progress=reporter(1, 1, quiet=True))
    names = ["gym-X-v0-max-seed-1", "gym-X-v0-max-seed-3"]
    assert Study(study.path).record["resumptions"] == [
        {
            "agent_steps": dict.fromkeys(names, 5),
            "notes": [f"{name}: not exact" for name in names],
            "provenance": {"threads": "1"},
        }
    ]


def test_many_groups_that_go_on_at_about_one_time_are_recorded_together(study, monkeypatch):
    records = []
    monkeypatch.setattr(Study, "record_resumption", lambda *asked, again: records.append((list(asked[1]), again)))

    def trains(tasks, on_event, check):
        for task in tasks:
            on_event(task, Event("resumed", {"agent_steps": 5, "notes": [], "provenance": {}}))
        raise Stopped("stopped")

    work = find_work(study.runs, [], 1, 4)
    with pytest.raises(Stopped):
        launch(study, work, engine=Acting(trains), variables={}, progress=reporter(1, 1, quiet=True))
    first, last = records
    assert [len(first[0]), len(last[0])] == [1, 4] and (first[1], last[1]) == (False, True)


def test_what_a_check_raises_ends_training(study):
    def trains(tasks, on_event, check):
        check()

    def lost():
        raise Lost("another process has taken over")

    work = find_work(study.runs, [], 2, 2)
    with pytest.raises(Lost, match="taken over"):
        launch(study, work, engine=Acting(trains), variables={}, progress=reporter(1, 1, quiet=True), check=lost)


@pytest.mark.parametrize("kind", ["resumed", "died", "nothing"])
def test_a_driver_whose_place_was_taken_writes_nothing(study, kind):
    """Its lease goes while an engine trains, and no thread has noticed: the study stays as its new holder has it."""
    events = {
        "resumed": {"agent_steps": 5, "notes": ["not exact"], "provenance": {}},
        "died": {"reason": "killed", "report": "much"},
    }
    files = {}

    def written():
        return {path: path.read_bytes() for path in study.path.rglob("*") if path.is_file()}

    def trains(tasks, on_event, check):
        for lease in study.path.glob(".lock.*"):
            lease.rename(lease.with_name(".lock.9"))
        files.update(written())
        if kind in events:
            on_event(tasks[0], Event(kind, events[kind]))

    work = find_work(study.runs, [], 1, 4)
    with study.locked() as lease, pytest.raises(Lost, match="another process has taken over"):
        launch(
            study,
            work,
            engine=Acting(trains),
            variables={},
            progress=reporter(1, 1, quiet=True),
            check=lease.check,
            confirm=lease.confirm,
        )
    assert written() == files


def test_a_driver_whose_place_was_taken_before_it_began_writes_nothing(study):
    before = sorted(study.path.rglob("*"))

    def lost():
        raise Lost("another process has taken over")

    work = find_work(study.runs, [], 2, 2)
    with pytest.raises(Lost):
        launch(study, work, engine=Acting(None), variables={}, progress=reporter(1, 1, quiet=True), confirm=lost)
    assert sorted(study.path.rglob("*")) == before and "launches" not in Study(study.path).record


def test_a_lease_that_does_not_answer_is_told_of_and_tried_again(study, capsys):
    answers = iter([True, True, False])

    def confirm():
        if not next(answers, True):
            raise OSError(5, "Input/output error", ".lock.1")

    def trains(tasks, on_event, check):
        for task in tasks:
            on_event(task, Event("resumed", {"agent_steps": 5, "notes": [], "provenance": {}}))
            for run in open_group(study, task.group).runs:
                write_status(run, "finished")

    work = find_work(study.runs, [], 2, 2)
    launch(study, work, engine=Acting(trains), variables={}, progress=reporter(1, 1, quiet=True), confirm=confirm)
    assert ".lock.1 could not be read or written: Input/output error; training goes on" in capsys.readouterr().err
    assert len(Study(study.path).record["resumptions"]) == 1


def test_the_whole_study_is_told_as_one(study):
    lines = []

    class Told:
        def steps(self, done):
            lines.append(("steps", done))

        def score(self, label, epoch, mean, games):
            lines.append(("score", label, epoch, mean, games))

        def over(self, count, text, spared):
            lines.append(("over", count, text, spared))

        def note(self, text):
            lines.append(("note", text))

    study.update(config=study.record["config"] | {"loop": study.record["config"]["loop"] | {"steps": 100_000}})
    study = Study(study.path)
    write_status(study.runs[0], "diverged", reason="the loss was not finite at agent step 7")
    groups_there = [Group.create(study, study.runs[2:])]
    (groups_there[0].path / "checkpoint").mkdir()
    (groups_there[0].path / "checkpoint" / "step-000000000300.safetensors").touch()

    def trains(tasks, on_event, check):
        for task in tasks:
            group = open_group(study, task.group)
            on_event(task, Event("progress", {"agent_steps": 400}))
            on_event(task, Event("row", {"run": 0, "epoch": 2, "score": 1.5, "games": 3}))
            on_event(task, Event("note", {"text": "the disk is full"}))
            for run in group.runs:
                write_status(run, "finished")
            on_event(task, Event("ended", {}))

    work = find_work(study.runs, groups_there, 2, 2)
    launch(study, work, engine=Acting(trains), variables={}, progress=Told())
    assert lines == [
        ("over", 1, "", 0),
        ("steps", 100_000 + 600),
        ("steps", 100_000 + 800),
        ("score", "gym/X-v0, max, seed 3", 2, 1.5, 3),
        ("note", "gym-X-v0-max-seed-3: the disk is full"),
        ("over", 2, "gym/X-v0, max, seed 3: finished", 0),
        ("steps", 200_000 + 400),
        ("over", 3, "gym/X-v0, max, seed 4: finished", 0),
        ("steps", 300_000),
        ("steps", 300_000 + 400),
        ("score", "gym/X-v0, max, seed 2", 2, 1.5, 3),
        ("note", "gym-X-v0-max-seed-2: the disk is full"),
        ("over", 4, "gym/X-v0, max, seed 2: finished", 0),
        ("steps", 400_000),
    ]
    assert outcome(study) == [
        "gym/X-v0, max: 3 of 4 runs finished; seed 1 diverged: the loss was not finite at agent step 7"
    ]


@pytest.mark.parametrize("end", ["failed", "diverged"])
def test_steps_that_a_run_did_not_take_are_not_counted(study, end):
    lines = []

    class Told(Reporter):
        def steps(self, done):
            lines.append(done)

        def over(self, count, text, spared):
            lines.append((count, spared))

    def trains(tasks, on_event, check):
        on_event(tasks[0], Event("progress", {"agent_steps": 1_000}))
        if end == "failed":
            on_event(tasks[0], Event("died", {"reason": "broken", "report": "", "raised": True}))
        else:
            write_status(study.runs[0], end)
        on_event(tasks[0], Event("ended", {}))

    work = find_work(study.runs[:1], [], 1, 1)
    launch(study, work, engine=Acting(trains), variables={}, progress=Told())
    assert lines == [0, 1_000, (1, study.config.loop.steps - 1_000), 1_000]


def test_a_disk_that_is_full_ends_no_comparison(study, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device", "status.json")

    def act(seeds):
        """One of them is broken, and a group that is due for another try when that is to be written is not."""
        deaths[tuple(seeds)] += 1
        if 1 in seeds:
            return "killed", 0
        return ("killed" if 3 in seeds and deaths[tuple(seeds)] < 6 else None), 100 * deaths[tuple(seeds)]

    deaths = Counter()
    monkeypatch.setattr("softbellman.running.launch.write_error", full)
    assert launched(study, act)[3:] == [[[3, 4], [1]], [[3, 4]], [[3, 4]]]
    assert states(study) == [None, *["finished"] * 3]
    assert (
        "status.json could not be read or written: No space left on device; training goes on" in capsys.readouterr().err
    )


def test_a_run_whose_state_cant_be_read_does_not_count_as_not_begun(study, monkeypatch, capsys):
    """It would be trained again, and what it has be put aside."""
    file = study.runs[0].path / "status.json"
    for text in ("", "{", "[]", "3", "null", "{}"):
        write_status(study.runs[0], "finished")
        file.write_text(text)
        with pytest.raises(ValueError, match=f"{file} does not say how its run stands; remove it"):
            find_work(study.runs, [], 2, 1)
    write_status(study.runs[0], "finished")
    read = Path.read_text
    faults = [file]

    def unanswered(path, *arguments, **options):
        if path in faults:
            raise OSError(5, "Input/output error", str(path))
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", unanswered)
    with pytest.raises(OSError, match="Input/output error"):
        find_work(study.runs, [], 2, 1)
    faults.clear()

    def act(seeds):
        faults[:] = [study.runs[2].path / "status.json"] if 3 in seeds else []
        return None, 0

    launched(study, act)  # the driver cannot read it once, and goes on
    assert "status.json could not be read or written: Input/output error; training goes on" in capsys.readouterr().err
    faults.clear()
    assert states(study) == ["finished"] * 4


def test_a_group_whose_cells_are_not_the_studys_is_refused(study):
    group = Group.create(study, study.runs[:2])
    with pytest.raises(ValueError, match="groups/absent is no group of runs: No such file"):
        open_group(study, "absent")
    for text in ("{", "[]", '{"cells": [["gym/X-v0", "max", 9]]}', '{"cells": [["gym/X-v0"]]}'):
        (group.path / "cells.json").write_text(text)
        with pytest.raises(ValueError, match=r"groups/gym-X-v0-max-seed-1 is no group of runs of this study"):
            open_groups(study)


def test_a_group_that_is_trained_still_is_waited_for_but_not_for_ever(study, monkeypatch):
    group, notes = Group.create(study, study.runs[:2]), []
    monkeypatch.setattr(groups, "LONGEST_WAIT", 0.15)
    with (
        groups.locked(group.path),
        pytest.raises(groups.Refused, match=r"process \d+ on .* trains this group still; end it, and try again"),
    ):
        groups.train_group(study, group, on_note=notes.append)
    assert len(notes) == 1 and "waits for process" in notes[0]
