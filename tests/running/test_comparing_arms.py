"""Arms of a study: checked beforehand, trained apart, resumed, grown, played and reported by their own settings."""

import json
from functools import partial

import jax
import numpy as np
import pandas as pd
import pytest

import softbellman as sb
from softbellman import config as configs
from softbellman import operators as ops
from softbellman.analysis.findings import find_all
from softbellman.analysis.records import Records
from softbellman.running import comparison as comparison_module
from softbellman.running import play
from softbellman.running.compare import train_comparison
from softbellman.running.comparison import Resources, prepare
from softbellman.running.launch import find_work
from softbellman.study.files import load_params
from softbellman.study.groups import Group, open_group
from softbellman.study.runs import read_status
from softbellman.study.store import Study

from ..studies import report_of
from .test_compare import CARTPOLE, SMALL, TWO, Dying, InThisProcess, Killed, configured, files, rows
from .test_compare import trained as train_planned

DEEP = "deep=softmax(5), gap=gap(0.9), estimate=quantiles(5), head=duelling, learner.learning_rate=0.002"
ARMS = ["max", "max, gap=gap(0.9)", DEEP]
NAMES = ["max", "max, gap=gap(0.9)", "deep"]


def comparison(arms=ARMS, seeds=(0, 3), values=SMALL, environments=(CARTPOLE,)):
    return prepare(environments, arms, seeds, configured(values))


trained = partial(train_planned, planned=comparison)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Three arms, two seeds each, undisturbed."""
    return trained(tmp_path_factory.mktemp("studies") / "compared")


# ---------------------------------------------------------------------------------------------------- what is trained


def test_every_arm_is_trained_with_its_own_settings(compared):
    assert all(read_status(run) == "finished" for run in compared.runs)
    assert compared.operators == list(compared.arms) == NAMES and compared.record["operators"] == ARMS
    assert [run.path.parent.name for run in compared.runs[::2]] == ["max", "max-gap-gap-0.9", "deep"]
    params = {run.operator: load_params(run.path / "final.safetensors")[0] for run in compared.runs}
    shapes = {name: jax.tree.map(np.shape, each) for name, each in params.items()}
    assert shapes["max"] == shapes["max, gap=gap(0.9)"] and shapes["deep"] != shapes["max"]
    assert shapes["deep"]["q"]["b"] == (10,) and "value_q" in shapes["deep"]
    frame = rows(compared)
    assert frame["operator"].unique().tolist() == NAMES and frame["loss"].nunique() == 12
    assert frame.groupby("operator")["operator_parameter"].apply(lambda own: own.isna().all()).to_dict() == {
        "max": True,
        "max, gap=gap(0.9)": True,
        "deep": False,
    }


def test_an_arm_is_the_study_that_has_its_settings_for_all(compared, tmp_path):
    """The loop of an arm is that of a study with these settings, to the last bit."""
    own = dict(configs.parse_arm(DEEP).changes)
    alone = trained(tmp_path, ["softmax(5)"], values=SMALL | own)
    ours = rows(compared).query("operator == 'deep'").drop(columns="operator").reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, rows(alone).drop(columns="operator"), check_exact=True)


def test_an_operator_beside_arms_is_the_one_of_a_study_without_any(compared, tmp_path):
    alone = trained(tmp_path, [ops.maximum()])
    assert alone.record["operators"] == ["max"]
    pd.testing.assert_frame_equal(rows(compared).query("operator == 'max'"), rows(alone), check_exact=True)


def test_arms_of_one_structure_and_the_same_settings_train_together_and_no_others(tmp_path):
    texts = ["softmax(1), gap=gap(0.9)", "softmax(5)", "a=softmax(5), gap=gap(0.9)", "softmax(2)", "max, gap=gap(0.9)"]
    study = Study.create(tmp_path, [CARTPOLE], texts, [0], configured(), {}, [])
    together = [[str(run.arm) for run in group] for group in find_work(study.runs, [], 8, 1).fresh]
    assert together == [texts[0:3:2], texts[1:4:2], texts[4:]]
    group = Group.create(study, study.runs[:3:2])
    assert group.cells == [[CARTPOLE, texts[0], 0], [CARTPOLE, texts[2], 0]]
    assert open_group(study, group.path.name).runs == group.runs
    study.update(operators=[texts[0], "a=softmax(6), gap=gap(0.9)"])
    with pytest.raises(ValueError, match=r"no group of runs of this study .*put study\.json back as it was"):
        open_group(study, group.path.name)


# ---------------------------------------------------------------------------------------- stopped, grown, asked again


def test_a_study_of_arms_goes_on_after_stops_as_if_there_had_been_none(compared, tmp_path):
    """Each of its groups dies at a step, and then one thrice as it goes on, whatever their order."""
    deaths = ["row"] * 3 + ["resumed"] * 3
    while deaths:
        with pytest.raises(Killed):
            trained(tmp_path, values=SMALL | {"checkpoint.minutes": 0.0}, engine=Dying(deaths))
    study = trained(tmp_path)
    pd.testing.assert_frame_equal(rows(study), rows(compared), check_exact=True)
    assert len(study.record["resumptions"]) >= 3 and not (study.path / "groups").exists()


def test_a_study_grows_by_an_arm_and_nothing_is_done_twice(compared, tmp_path):
    study = trained(tmp_path, ARMS[:1])
    before, engine = files(study), InThisProcess()
    study = trained(tmp_path, [*ARMS[:1], *ARMS[2:]], engine=engine)
    assert engine.trained == [("deep", 0), ("deep", 3)] and files(study).items() >= before.items()
    engine = InThisProcess()
    study = trained(tmp_path, ["max", "max, recipe.gap = gap(0.90)", DEEP], engine=engine)
    assert engine.trained == [(NAMES[1], 0), (NAMES[1], 3)] and study.operators == NAMES
    pd.testing.assert_frame_equal(rows(study), rows(compared), check_exact=True)
    engine = InThisProcess()
    trained(tmp_path, list(study.arms.values()), engine=engine)
    assert engine.trained == []


@pytest.mark.parametrize(
    ("arms", "missing"),
    [
        (["max", ARMS[1]], DEEP),
        (["max", ARMS[1], DEEP.replace("0.002", "0.003")], DEEP),
        (["max", ARMS[1], DEEP.replace("deep", "other")], DEEP),
        (["max", "max, gap=gap(0.8)", DEEP], ARMS[1]),
    ],
)
def test_a_study_of_other_arms_is_refused_and_nothing_touched(compared, arms, missing):
    before = files(compared)
    with pytest.raises(ValueError, match="holds another study already") as caught:
        trained(compared.path, arms)
    assert f"operators {missing} there, and not asked for: a study can grow, not shrink" in str(caught.value)
    assert files(compared) == before


def test_a_study_json_alone_reruns_the_arms(compared, tmp_path):
    (tmp_path / "study.json").write_bytes((compared.path / "study.json").read_bytes())
    study = Study(tmp_path)
    again = train_comparison(
        prepare(study.environments, list(study.arms.values()), study.seeds, study.config),
        tmp_path,
        TWO._replace(engine=InThisProcess()),
        quiet=True,
    )
    pd.testing.assert_frame_equal(rows(again), rows(compared), check_exact=True)


# ------------------------------------------------------------------------------------------- refused before any work


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ["max", "max, gap=none"]}, "arm max, gap=none: gap changes nothing, for the study has it already"),
        ({"arms": ["x=max, learner.gamma=0.99"]}, "arm x=max, learner.gamma=0.99: learner.gamma changes nothing"),
        ({"arms": ["max, returns=3, head=linear"]}, "head changes nothing, for the study has it already; leave it out"),
        ({"arms": ["max", "a=max"]}, "arms max and a=max differ in their labels at most"),
        ({"arms": ["max, gap=gap(0.9)", "a=max, gap=gap(.90)"]}, "differ in their labels at most; leave one out"),
        ({"arms": ["a=max", "a=softmax(5)"]}, "arms a=max and a=softmax(5) have one label"),
        ({"arms": ["a b=max", "a-b=softmax(5)"]}, "would share a directory"),
        ({"arms": ["max", "max, gap=gap(2)"]}, "arm max, gap=gap(2): recipe.gap 'gap(2)': alpha (2) must be in 0 .. 1"),
        ({"arms": ["max, gap=gab(1)"]}, "arm max, gap=gab(1): recipe.gap 'gab(1)': there is no 'gab'"),
        (
            {"arms": ["max, risk=cvar(0.5)"]},
            "arm max, risk=cvar(0.5): recipe.risk cvar(0.5) does not go with recipe.estimate value",
        ),
        (
            {"arms": ["max, estimate=quantiles(5), scale=popart(0.1)"]},
            "does not go with recipe.estimate quantiles(5): it needs values",
        ),
        (
            {"arms": ["max", "max, learner.batch_size=0"]},
            "learner.batch_size=0: learner.batch_size (0) must be at least",
        ),
        ({"arms": ["max, learner.replay_start_steps=400"]}, "is not below the budget of 400 agent steps"),
        ({"arms": ["max, network.kind=nature_cnn"]}, "arm max, network.kind=nature_cnn: network.kind nature_cnn takes"),
        ({"arms": ["max, network.kind=nowhere:f"]}, "arm max, network.kind=nowhere:f: "),
        ({"arms": ["max, learner.rmsprop_decay=0.5"]}, "learner.rmsprop_decay has no effect here; leave it out"),
    ],
)
def test_what_is_wrong_with_an_arm_is_said_before_any_work(changes, message):
    with pytest.raises(ValueError, match=r".") as caught:
        comparison(**changes)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arms", "part", "message"),
    [
        (
            ["max", "deviation(2)"],
            {"recipe.estimate": "quantiles(5)"},
            "arm deviation(2): recipe.estimate quantiles(5)",
        ),
        (["max", "deviation(2), estimate=quantiles(5)"], {}, "estimate=quantiles(5): recipe.estimate quantiles(5)"),
        (["softmax(5)", "max"], {"recipe.controller": "noise"}, "arm max: recipe.controller noise sets the one"),
        (
            ["max", "max, exploration=policy(deviation(2))"],
            {},
            "arm max, exploration=policy(deviation(2)): recipe.expl",
        ),
    ],
)
def test_every_arm_is_held_against_the_parts_that_it_trains_with(arms, part, message):
    with pytest.raises(ValueError, match=r".") as caught:
        comparison(arms, values=SMALL | part)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("others", [[], ["softmax(5)"]])
@pytest.mark.parametrize(
    ("arm", "part"),
    [
        ("deviation(2), estimate=value", {"recipe.estimate": "quantiles(5)"}),
        ("mean, controller=fixed", {"recipe.controller": "noise"}),
    ],
)
def test_an_arm_is_not_held_against_parts_that_it_replaces(arm, part, others):
    assert comparison([arm, *others], values=SMALL | part).specs == [arm, *others]


def test_an_arm_may_go_back_to_a_plain_part_of_a_study_that_has_another():
    planned = comparison(["max, gap=none", "max"], values=SMALL | {"recipe.gap": "gap(0.9)"})
    assert planned.specs == ["max, gap=none", "max"]
    assert planned.arms[0].config(planned.config).recipe.gap == "none"


def test_arms_are_checked_in_every_environment():
    planned = comparison(environments=(CARTPOLE, "gym/Acrobot-v1"))
    assert set(planned.replays) == {(name, arm) for name in planned.environments for arm in NAMES}
    with pytest.raises(ValueError, match=r"arm max, network\.kind=minatar_cnn: .* takes planes of"):
        comparison(["max", "max, network.kind=minatar_cnn"], environments=("minatar/breakout", CARTPOLE))


def test_the_memory_of_the_largest_arms_is_what_is_needed(monkeypatch, tmp_path):
    planned = comparison(["max", "max, learner.replay_capacity=100000", "softmax(5)"])
    small, large = (planned.replays[CARTPOLE, name] for name in ("max", planned.arms[1].name))
    assert large == 2 * small
    work = planned.work(tmp_path, Resources(1, 1))
    assert [planned.replay_bytes(work, workers) for workers in (1, 2, 9)] == [
        2 * large,
        2 * large + 2 * small,
        8 * small,
    ]
    monkeypatch.setattr("softbellman.running.plan.available_memory", lambda: small)
    with pytest.raises(MemoryError, match=r"^arm max, learner\.replay_capacity=100000: .* bytes needed"):
        comparison(["max", "max, learner.replay_capacity=100000"])


def test_the_summary_and_the_directory_tell_arms_apart(tmp_path):
    planned = comparison()
    told = dict(planned.summary(planned.work(tmp_path, TWO), TWO))
    assert told["arms"] == "; ".join(ARMS)
    others = [comparison([*ARMS[:2], DEEP.replace(*change)]) for change in (("0.002", "0.003"), ("deep", "deeper"))]
    assert len({each.default_out for each in (planned, *others)}) == 3
    assert comparison(["max"]).default_out == comparison([ops.maximum()]).default_out


# ---------------------------------------------------------------------------------------------------- after training


def test_a_network_is_played_with_the_settings_of_its_arm(compared, tmp_path):
    run = compared.runs[4]
    assert (run.operator, compared.config_of(run).recipe.head) == ("deep", "duelling")
    phase = play.evaluate(compared, run, episodes=2)
    assert len(phase.scores) == 2 and compared.config.recipe.head == "linear"
    pytest.importorskip("pygame")
    path, _, _ = play.watch(compared, run, tmp_path / "film.gif", max_steps=3)
    assert path.exists()


def test_a_study_of_arms_is_reported_by_their_names(compared, tmp_path):
    records = Records.read(compared)
    found = find_all(records)
    assert [row.operator for row in found[0].rows] == NAMES and found[0].noun == "arm"
    assert pd.DataFrame(compared.table())["operator"].tolist() == NAMES
    page = report_of(compared, out=tmp_path, films=False)
    text = page.read_text()
    assert "recipe.gap of deep" in text and "deep=softmax(5), gap=gap(0.9), estimate=quantiles(5)" in text
    assert pd.read_csv(tmp_path / "tables" / "operators.csv")["operator"].tolist() == NAMES
    assert set(pd.read_csv(tmp_path / "tables" / "curves.csv")["operator"]) == set(NAMES)


# -------------------------------------------------------------------------------------------------------- from Python


def test_arms_are_compared_and_trained_in_python(compared, tmp_path, monkeypatch):
    engine = InThisProcess()
    settings = {name: value for name, value in SMALL.items() if name != "loop.steps"}
    options = {"settings": settings, "engine": engine, "quiet": True, "steps": 400}
    ours = sb.arm(ops.softmax(5.0), gap="gap(0.9)", estimate="quantiles(5)", head="duelling", label="deep")
    ours = sb.arm(ours, settings={"learner.learning_rate": 0.002})
    study = sb.compare(
        CARTPOLE, arms=["max", sb.arm("max", gap="gap(0.9)"), ours], seeds=[0, 3], out=tmp_path / "a", **options
    )
    assert study.record["operators"] == ARMS
    pd.testing.assert_frame_equal(rows(study), rows(compared), check_exact=True)
    again = sb.compare(CARTPOLE, ARMS, [0, 3], out=tmp_path / "a", **options)
    assert again.operators == NAMES and len(engine.trained) == 6
    alone = sb.train(CARTPOLE, ours, [3], out=tmp_path / "b", **options)
    assert alone.operators == ["deep"] and json.loads((alone.path / "study.json").read_text())["operators"] == [DEEP]
    both = rows(compared).query("operator == 'deep' and seed == 3").reset_index(drop=True)
    pd.testing.assert_frame_equal(rows(alone), both, check_exact=True)
    for wrong, why in (({}, "neither"), ({"operators": "max", "arms": "max"}, "both")):
        with pytest.raises(ValueError, match=f"give operators or arms, and not {why}"):
            sb.compare(CARTPOLE, **wrong)


def test_what_a_users_code_raised_stays_the_cause_under_an_arm(tmp_path, monkeypatch):
    (tmp_path / "broken_nets.py").write_text("def net(*given):\n    raise KeyError('lost')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ValueError, match=r"^arm max, network\.kind=broken_nets:net: .*KeyError: 'lost' .*line 2"
    ) as caught:
        sb.compare(CARTPOLE, ["max", "max, network.kind=broken_nets:net"], settings=SMALL)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_arm_needs_no_plan_of_its_own_unless_it_changes_something(monkeypatch):
    planned, plan = [], comparison_module.plan
    monkeypatch.setattr(
        comparison_module, "plan", lambda *given, **more: planned.append(given[0]) or plan(*given, **more)
    )
    comparison(["max", "x=softmax(5)", "mean"])
    assert planned == [CARTPOLE]
