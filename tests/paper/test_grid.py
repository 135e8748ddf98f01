"""The scales are those of docs/claims.md, one study serves all views of a scale, and no other study is taken for it."""

import re
from pathlib import Path

import pytest

from softbellman.paper.grid import SCALES, find_scale, open_study, operators, plan_runs
from softbellman.study.compare import prepare
from softbellman.study.store import Study, require_new

from .synthetic import paper_study

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


def test_every_scale_has_the_games_the_tables_have_numbers_of():
    assert len(FULL.operators) * len(FULL.games) * len(FULL.seeds) == 330
    assert len(LAPTOP.operators) * len(LAPTOP.games) * len(LAPTOP.seeds) == 300
    assert operators([1, 30]) == SMOKE.operators and "double(softmax(30))" in SMOKE.operators


def test_a_view_trains_its_operators_beside_those_that_are_there(tmp_path):
    assert plan_runs(SMOKE, ["softmax(1)", "max"], None).specs == ["max", "softmax(1)"]
    study = paper_study(tmp_path / "study", SMOKE, operators=["double(max)"])
    grown = plan_runs(SMOKE, ["softmax(1)"], study)
    assert grown.specs == ["double(max)", "softmax(1)"] and grown.seeds == [0, 1]


def test_a_part_of_a_scale_that_compare_began_is_of_that_scale(tmp_path):
    part = prepare(LAPTOP.environments[:1], plan_runs(LAPTOP, ["max"], None).operators, LAPTOP.seeds[:3], LAPTOP.config)
    Study.create(tmp_path / "study", part.environments, part.operators, part.seeds, part.config, part.facts, [])
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
