"""Choices and verdicts of results/temperature, on scores whose answers are known."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from softbellman.analysis.records import Records
from softbellman.analysis.scores import collect
from softbellman.analysis.statistics import simultaneous_differences
from softbellman.config import as_arm, preset
from softbellman.running.build import spelled_arm
from softbellman.study.store import Study

from .studies import paper_study, synthetic

FOLDER = Path(__file__).parents[1] / "results" / "temperature"


def script(name):
    """A script of the folder as a module."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables, judge, grid = script("tables"), script("judge"), script("grid")  # judge imports tables
NOISE = np.random.default_rng(0).normal(0, 0.1, 10)


def contents(folder):
    """The bytes of each file, by name."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def games_of(scores, names=judge.GAMES):
    """The same scores in each game, by arm."""
    return {name: judge.Game({arm: mean + NOISE for arm, mean in scores.items()}, 0.0) for name in names}


TAUS = games_of(dict(zip(judge.TAUS, (1.0, 2.0, 3.0, 4.0, 5.0, 4.5), strict=True)))
SCREEN = games_of(dict(zip(judge.RULES, (1.0, 2.0, 6.0, 3.0, 5.0, 4.0, 0.5), strict=True)), judge.SCREENED)


def test_the_last_three_phases_count_and_a_diverged_run_as_chance(tmp_path):
    ends = {("softmax(5)", 1): "diverged", ("softmax(5)", 0): "failed"}
    study = synthetic(tmp_path / "study", operators=("max", "softmax(5)"), seeds=(0, 1), ends=ends, random=0.25)
    (found,) = judge.read(study).values()
    table = study.metrics()
    own = table["test_return"][(table["operator"] == "max") & (table["seed"] == 1)]
    assert found.scores["max"][1] == pytest.approx(own[-3:].mean())
    assert np.isnan(found.scores["softmax(5)"][0]) and found.scores["softmax(5)"][1] == found.random == 0.25


def test_the_grid_is_copied_without_arms_that_explore(tmp_path):
    exploring = "max, exploration=policy(softmax(5))"
    study = paper_study(tmp_path / "laptop", grid.LAPTOP, operators=["max", "softmax(5)", exploring])
    assert grid.copy(study.path, tmp_path / "scale") == 30
    copied = Study(tmp_path / "scale")
    assert copied.operators == ["max", "softmax(5)"] and copied.environments == study.environments
    for before, after in zip((run for run in study.runs if run.operator != exploring), copied.runs, strict=True):
        assert contents(after.path) == contents(before.path)
    assert contents(copied.path / "random") == contents(study.path / "random") != {}
    with pytest.raises(ValueError, match=r"scale is there already, and goes on by the command of README.md"):
        grid.copy(study.path, tmp_path / "scale")
    with pytest.raises(ValueError, match="nothing holds no study"):
        grid.copy(tmp_path / "nothing", tmp_path / "other")
    (study.path / "random").rename(tmp_path / "scores")
    with pytest.raises(ValueError, match="no scores of the random policy"):
        grid.copy(study.path, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_arms_are_called_as_a_study_calls_them():
    asked, base = (*judge.TAUS, *judge.RULES), preset("sharp-minatar").config
    assert [spelled_arm(as_arm(text), base).name for text in asked] == [*asked]


def test_without_the_random_policys_score_nothing_is_chosen():
    unknown = TAUS | {"minatar/freeway": TAUS["minatar/freeway"]._replace(random=np.nan)}
    with pytest.raises(ValueError, match="minatar/freeway: the random policy was not played"):
        judge.choose(unknown, SCREEN)


def test_best_of_a_game_one_for_all_and_two_rules_are_chosen():
    taus = TAUS | {"minatar/freeway": judge.Game(dict.fromkeys(judge.TAUS, NOISE) | {"softmax(3)": 1e3 + NOISE}, 0.0)}
    choices = judge.choose(taus, SCREEN)
    assert choices.best == dict.fromkeys(judge.GAMES, "softmax(300)") | {"minatar/freeway": "softmax(3)"}
    assert choices.one == "softmax(300)"  # a game of large scores weighs as much as another
    assert choices.rules == ("keep(0.1)", "softmax(100), controller=noise")
    assert len(str(choices).splitlines()) == 3 + 2 * 5 and "--out results/temperature/final/freeway" in str(choices)


def test_a_run_that_is_missing_is_named():
    scores = SCREEN["minatar/asterix"].scores | {"keep(0.1)": np.array([1.0, np.nan])}
    with pytest.raises(ValueError, match=r"keep\(0.1\) in minatar/asterix: 1 runs have no final score"):
        judge.choose(TAUS, SCREEN | {"minatar/asterix": judge.Game(scores, 0.0)})
    more = SCREEN["minatar/asterix"].scores | {"max": np.array([1.0, np.nan])}
    with pytest.raises(ValueError, match="max in minatar/asterix: 1 runs"):  # it has a part in the game's scale
        judge.choose(TAUS, SCREEN | {"minatar/asterix": judge.Game(more, 0.0)})
    with pytest.raises(ValueError, match=r"there is no softmax\(3\) in minatar/freeway"):
        judge.choose({name: TAUS[name] for name in judge.SCREENED}, SCREEN)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (10.0, 20.0, [*["supported"] * 3, "yes"] * 2),
        (10.0, 9.2, [*["supported"] * 3, "yes", "not supported", "supported", "supported", "no"]),
        (5.0, 6.0, [*["not supported"] * 3, "no", "not supported", "undecided", "not supported", "no"]),
    ],
)
def test_verdicts_follow_from_the_intervals(first, second, expected):
    """The best tau has 10, the one tau 6: 5% less than the best is as good, and equal is not more."""
    choices = judge.Choices(dict.fromkeys(judge.GAMES, "softmax(30)"), "softmax(100)", ("keep(0.1)", "keep(0.2)"))
    scores = {"max": 1.0, "double(max)": 1.0, "softmax(30)": 10.0, "softmax(100)": 6.0}
    found = judge.judge(games_of(scores | {"keep(0.1)": first, "keep(0.2)": second}), choices)
    assert [verdict.claim for verdict in found] == ["rule-as-good", "rule-above-one-tau", "rule-near-best", "wins"] * 2
    assert [verdict.state for verdict in found] == expected
    shown = found[1].shown[0]
    assert shown.startswith(f"{(first - 6) / 10:+.3f} ("[:5])


def test_a_rule_as_good_is_often_near_and_seldom_as_good():
    wide = {name: game._replace(scores={a: 10 * s for a, s in game.scores.items()}) for name, game in TAUS.items()}
    rows = [line.strip("| ").split(" | ") for line in judge.power(wide, 100).splitlines()[4:]]
    assert [row[0] for row in rows] == ["-0.10", "-0.05", "+0.00", "+0.05", "+0.10", "+0.20", "+0.30"]
    near = [float(row[2]) for row in rows]
    assert near == sorted(near) and near[0] <= 0.1 and near[-1] == 1.0
    assert all(float(row[1]) <= float(row[2]) for row in rows)


def test_the_verdict_tells_of_games_in_which_spreads_differ():
    choices = judge.Choices(dict.fromkeys(judge.GAMES, "softmax(30)"), "softmax(100)", ("keep(0.1)", "keep(0.2)"))
    games = games_of(dict.fromkeys(choices.arms("minatar/freeway"), 10.0))
    games["minatar/seaquest"].scores["keep(0.2)"] = 10.0 + 100 * NOISE
    told = [line for line in judge.judge(games, choices)[0].shown if line.endswith(", of arms whose spreads differ")]
    assert [line.partition(":")[0] for line in told] == ["minatar/seaquest"]


def test_other_seeds_than_those_of_the_claims_are_refused():
    games = {name: game._replace(seeds=tuple(judge.JUDGED_ON)) for name, game in TAUS.items()}
    judge.require_seeds(games, judge.GAMES, judge.JUDGED_ON)
    games["minatar/asterix"] = TAUS["minatar/asterix"]._replace(seeds=(50, 51))
    with pytest.raises(ValueError, match=r"minatar/asterix has the seeds 50, 51; its seeds are 50 to 59"):
        judge.require_seeds(games, judge.GAMES, judge.JUDGED_ON)


def test_one_bad_game_spoils_a_rule():
    choices = judge.Choices(dict.fromkeys(judge.GAMES, "softmax(30)"), "softmax(100)", ("keep(0.1)", "keep(0.2)"))
    scores = {"max": 1.0, "double(max)": 1.0, "softmax(30)": 10.0, "softmax(100)": 6.0}
    games = games_of(scores | {"keep(0.1)": 12.0, "keep(0.2)": 12.0})
    games["minatar/freeway"].scores["keep(0.2)"] = 5.0 + NOISE
    assert [verdict.state for verdict in judge.judge(games, choices)] == [
        *("supported", "supported", "supported", "yes"),
        *("not supported", "supported", "supported", "no"),
    ]


def test_nothing_is_a_share_of_a_best_tau_that_plays_no_better_than_chance():
    choices = judge.Choices(dict.fromkeys(judge.GAMES, "softmax(30)"), "softmax(100)", ("keep(0.1)", "keep(0.2)"))
    arms = ("max", "double(max)", "softmax(30)", "softmax(100)", "keep(0.1)", "keep(0.2)")
    games = games_of(dict.fromkeys(arms, 0.9))
    above = games["minatar/freeway"]._replace(random=1.0)
    with pytest.raises(ValueError, match=r"minatar/freeway: softmax\(30\) scores no more than random actions"):
        judge.judge(games | {"minatar/freeway": above}, choices)


@pytest.mark.parametrize(
    ("gains", "chosen"),
    [((0.0, 0.0), "3e-4, as it was"), ((-1.0, 1.0), "1e-3"), ((1.0, 2.0), "1e-3"), ((1.0, 0.5), "1e-4")],
)
def test_another_rate_is_taken_only_where_it_is_better(gains, chosen):
    other = np.roll(NOISE, 1)
    games = {}
    for name in judge.SCREENED:
        scores = {"max": 10 + NOISE, "double(max)": 9 + NOISE}
        for rate, gain in zip(("1e-4", "1e-3"), gains, strict=True):
            scores |= {f"max {rate}": 10 + gain + other, f"double {rate}": 9 + gain + other}
        games[name] = judge.Game(scores, 0.0)
    assert judge.rate(games).splitlines()[-1] == f"chosen: {chosen}"


def test_values_are_told_in_the_unit_of_the_rewards(tmp_path):
    arms = ["max", "mean", "max tenth=max, learner.reward_scale=0.1", "mean tenth=mean, learner.reward_scale=0.1"]
    study = synthetic(tmp_path / "study", operators=arms, seeds=[0, 1, 2], values={"overestimation": 0.5})
    cells = [line.split(" | ") for line in tables.units(Records.read(study)).splitlines()[2:]]
    assert [row[:2] for row in cells] == [
        ["| 1", "`max`"],
        ["| 1", "`mean`"],
        ["| 0.1", "`max tenth`"],
        ["| 0.1", "`mean tenth`"],
    ]
    assert [row[4] for row in cells] == ["0.50 (0.50 to 0.50)"] * 2 + ["5.00 (5.00 to 5.00)"] * 2
    assert [row[3] == "" for row in cells] == [True, False] * 2


def test_distances_from_exact_values_are_told_arm_by_arm(tmp_path):
    values = {"value_error": 0.5, "value_bias": -1.25, "policy_loss": -1e-12}
    study = synthetic(tmp_path / "study", operators=["max", "mean"], seeds=[0, 1, 2], values=values)
    lines = tables.truth(Records.read(study)).splitlines()
    cells = {line.split(" | ")[0]: line.split(" | ")[2:] for line in lines if line.startswith("| `")}
    alone = ["0.50 (0.50 to 0.50)", "-1.25 (-1.25 to -1.25)"]
    none = "+0.000 (+0.000 to +0.000)"
    assert cells["| `max`"] == [*alone, "", "0.00 (0.00 to 0.00)", " |"]
    assert cells["| `mean`"] == [*alone, none, "0.00 (0.00 to 0.00)", f"{none} |"]


def test_scores_of_rules_are_compared_with_the_first_arm(tmp_path):
    operators = ["max", "keep(0.1)"]
    study = synthetic(tmp_path / "study", operators=operators, seeds=[0, 1, 2], values={"overestimation": 0.5})
    records = Records.read(study)
    game, _, head, _, first, rule, _ = tables.screen(records).split("\n")
    assert game == study.environments[0]
    assert head == "| arm | test_return | test_return minus max | overestimation | operator_gap |"
    scores = collect(records, "final")
    (compared,) = simultaneous_differences([scores.of(name) for name in operators])
    assert compared.mean is not None and first.split(" | ")[2] == ""
    assert rule.split(" | ")[2].startswith(f"{compared.mean:+.3f} (") and "| 0.50 (0.50 to 0.50) |" in rule


GAP = {"operator_gap": 0.1, "overestimation": 0.5}


def test_the_last_study_is_told_game_by_game(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "HERE", tmp_path)
    for game in tables.FINAL:
        synthetic(tmp_path / "final" / game, [f"minatar/{game}"], ["max", "keep(0.1)"], [0, 1], values=GAP)
    told = [line for line in tables.main(["final"]).splitlines() if line.startswith("minatar/")]
    assert told == list(judge.GAMES)


def test_what_a_parameter_does_is_told_family_by_family(tmp_path):
    operators = ["max", "softmax(1)", "softmax(30)", "softmax(300)", "mellowmax(1)", "mellowmax(10)", "mellowmax(30)"]
    values = {"overestimation": 0.5, "action_gap": 0.6714}
    study = synthetic(tmp_path / "study", operators=operators, seeds=[0, 1, 2], values=values)
    lines = tables.scale(Records.read(study)).splitlines()
    assert "overestimation 0.50, action gap 0.671" in lines[0] and lines[2].count("minus `max`") == 2
    cells = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines[4:]]
    assert [row[:2] for row in cells] == [["1", "0.67"], ["10", "6.7"], ["30", "20"], ["300", "200"]]
    assert [row[4:6] for row in cells] == [["0.50", "0.50"], ["", "0.50"], ["0.50", "0.50"], ["0.50", ""]]
    scores = collect(Records.read(study), "final")
    compared = simultaneous_differences([scores.of(name) for name in operators])
    assert compared[4].interval is not None
    low, high = compared[4].interval
    assert cells[1][3] == f"{compared[4].mean:+.3f} ({low:+.3f} to {high:+.3f})" and cells[1][2] == ""
