"""The scales are those of docs/claims.md, one study serves all views of a scale, and no other study is taken for it."""

import re
from pathlib import Path

import pytest

from softbellman.paper.grid import SCALES, find_scale, open_study, operators
from softbellman.running.compare import train_comparison
from softbellman.running.comparison import Resources, prepare
from softbellman.running.launch import outcome
from softbellman.study.groups import Group, open_group
from softbellman.study.store import Study, require_new
from softbellman.study.writer import write_status

from ..studies import paper_study, planned_of

CLAIMS = (Path(__file__).parents[2] / "docs" / "claims.md").read_text()
SMOKE, LAPTOP, FULL = SCALES.values()


def test_the_scales_are_those_of_the_page():
    rows = re.findall(r"^\| `(\w+)` \| (\w+): (.*?) \| (.*?) \| (\d), from (\d+) \| (.*?) \|$", CLAIMS, re.MULTILINE)
    assert [row[0] for row in rows] == list(SCALES)
    for name, kind, games, grid, count, first, run in rows:
        scale = SCALES[name]
        assert scale.environments == tuple(f"{kind.lower()}/{game}" for game in games.split(", "))
        assert scale.parameters == tuple(map(int, grid.split(", ")))
        assert scale.seeds == tuple(range(int(first), int(first) + int(count)))
        if "preset" in run:
            assert f"{scale.config.loop.steps:,} agent steps, preset `{scale.preset}`" == run
    finals = re.search(r"last (\d+) test phases at `full`.*?last (\d+) at `laptop`, a quarter", CLAIMS, re.DOTALL)
    assert finals and (FULL.final_phases, LAPTOP.final_phases) == (int(finals[1]), int(finals[2]))
    assert LAPTOP.final_phases * 4 == LAPTOP.phases == 12 and FULL.phases == 200


def test_the_scales_have_as_many_runs_as_are_said():
    assert len(FULL.operators) * len(FULL.games) * len(FULL.seeds) == 330
    assert len(LAPTOP.operators) * len(LAPTOP.games) * len(LAPTOP.seeds) == 300
    assert operators([1, 30]) == SMOKE.operators and "double(softmax(30))" in SMOKE.operators


def test_a_view_trains_its_operators_beside_those_that_are_there(tmp_path):
    assert planned_of(SMOKE, ["softmax(1)", "max"]).specs == ["max", "softmax(1)"]
    study = paper_study(tmp_path / "study", SMOKE, operators=["double(max)"])
    grown = planned_of(SMOKE, ["softmax(1)"], study)
    assert grown.specs == ["double(max)", "softmax(1)"] and grown.seeds == [0, 1]
    assert [arm.name for arm in grown.trained] == ["softmax(1)"] and grown.num_runs == 2


def test_what_another_view_began_is_left_as_it_is(tmp_path):
    """A group of another view goes on when that view is run, unless it holds a run of this one, too."""
    whole = planned_of(SMOKE, ["max", "softmax(1)", "softmax(30)"])
    study = Study.create(tmp_path / "study", whole.environments, whole.arms, whole.seeds, whole.config, whole.facts, [])
    of = {spec: [run for run in study.runs if run.operator == spec] for spec in whole.specs}
    Group.create(study, of["max"])
    Group.create(study, [of["softmax(1)"][0], of["softmax(30)"][0]])

    def work(*specs):
        found = planned_of(SMOKE, specs, study).work(study.path, Resources(1, 1))
        begun = [[run.operator for run in group.runs] for group in found.begun]
        return begun, [str(run) for runs in found.fresh for run in runs]

    assert work("softmax(1)") == ([["softmax(1)", "softmax(30)"]], ["minatar/breakout, softmax(1), seed 1"])
    assert work("max") == ([["max", "max"]], [])
    begun, fresh = work("double(max)")
    assert begun == [] and fresh == [f"minatar/breakout, double(max), seed {seed}" for seed in (0, 1)]


def test_only_what_a_view_needs_is_trained(tmp_path):
    study = Study.create(
        tmp_path / "study",
        SMOKE.environments,
        *(planned_of(SMOKE, ["max"]).arms, SMOKE.seeds, SMOKE.config),
        planned_of(SMOKE, ["max"]).facts,
        [],
    )
    trained = []

    class Finishes:
        capacity, process_bytes, spec = 1, 0, "local"

        def train(self, tasks, on_event, check):
            for task in tasks:
                for run in open_group(Study(task.study), task.group).runs:
                    trained.append((run.operator, run.seed))
                    write_status(run, "finished")

    resources = Resources(1, 1, engine=Finishes())

    grown = train_comparison(planned_of(SMOKE, ["double(max)"], study), study.path, resources, quiet=True)
    assert sorted(trained) == [("double(max)", 0), ("double(max)", 1)]
    assert grown.operators == ["max", "double(max)"]
    assert outcome(grown, lambda run: run.operator == "double(max)") == [] and len(outcome(grown)) == 1


def test_a_part_of_a_scale_that_compare_began_is_of_that_scale(tmp_path):
    part = prepare(LAPTOP.environments[:1], planned_of(LAPTOP, ["max"]).arms, LAPTOP.seeds[:3], LAPTOP.config)
    Study.create(tmp_path / "study", part.environments, part.arms, part.seeds, part.config, part.facts, [])
    study = open_study(LAPTOP, tmp_path / "study")
    assert study is not None and study.seeds == [10, 11, 12]


@pytest.mark.parametrize(("asked", "there"), [(LAPTOP, SMOKE), (FULL, SMOKE), (SMOKE, LAPTOP)])
def test_a_study_of_another_scale_is_refused(tmp_path, asked, there):
    folder = tmp_path / "study"
    paper_study(folder, there, operators=["max"])
    with pytest.raises(
        ValueError, match=rf"holds a study of scale {there.name}, not of {asked.name} \((environments|seeds) "
    ):
        open_study(asked, folder)


def test_a_study_with_other_settings_is_of_no_scale(tmp_path):
    changed = SMOKE._replace(settings={**SMOKE.settings, "learner.gamma": 0.5})
    paper_study(tmp_path / "study", changed, operators=["max"])
    with pytest.raises(
        ValueError, match=r"a study of no scale, not of smoke \(learner.gamma 0.5 there, 0.99 asked for"
    ):
        open_study(SMOKE, tmp_path / "study")


def test_an_unknown_scale_lists_the_nearest():
    with pytest.raises(
        ValueError, match=r"unknown scale 'labtop'; did you mean laptop\? \(there are smoke, laptop, full"
    ):
        find_scale("labtop")
    with pytest.raises(ValueError, match="unknown scale ''"):
        find_scale("")


def test_figures_that_need_no_run_may_be_there_before_the_study(tmp_path):
    (tmp_path / "paper").mkdir()
    require_new(tmp_path)
    assert open_study(SMOKE, tmp_path) is None
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match="nothing is overwritten"):
        require_new(tmp_path)


def test_arms_are_called_as_a_study_calls_them():
    assert [arm.name for arm in planned_of(SMOKE, SMOKE.arms).arms] == list(SMOKE.arms)
