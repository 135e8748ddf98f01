"""Observations enter the network by the bounds that were declared when a study began: said, recorded, kept to."""

import json

import gymnasium
import numpy as np
import pytest

from softbellman import config as configs
from softbellman import operators as ops
from softbellman.learning.networks import mlp
from softbellman.running import play
from softbellman.running.build import make_network, obs_scale
from softbellman.running.comparison import Resources, prepare
from softbellman.running.plan import plan
from softbellman.study.files import load_params
from softbellman.study.store import Study

from ..studies import train as train_study

SMALL = {
    "loop.steps": 300,
    "loop.epoch_steps": 150,
    "loop.test_steps": 60,
    "loop.held_out_states": 64,
    "loop.gradient_batches": 2,
    "learner.replay_start_steps": 100,
    "learner.target_period_updates": 20,
    "network.hidden": (8,),
}
VARIANTS = {"Float": (np.float32, 1), "Bits": (np.uint8, 1), "Pixels": (np.uint8, 255), "Wide": (np.int32, 9)}


class OneHot(gymnasium.Env):
    """Shows one of eight states, drawn anew at each step, as `high` in its place."""

    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, dtype=np.uint8, high=1):
        self.observation_space = gymnasium.spaces.Box(0, high, (8,), dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def observe(self):
        self.state = int(self.np_random.integers(8))
        return (np.arange(8) == self.state).astype(self.observation_space.dtype) * self.observation_space.high

    def step(self, action):
        reward, self.time = float(action == self.state % 3), self.time + 1
        return self.observe(), reward, False, self.time == 10, {}


@pytest.fixture(scope="module", autouse=True)
def registered():
    for name, (dtype, high) in VARIANTS.items():
        gymnasium.register(f"{name}-v0", entry_point=OneHot, kwargs={"dtype": dtype, "high": high})
    yield
    for name in VARIANTS:
        del gymnasium.registry[f"{name}-v0"]


def planned(name, **more):
    config = configs.preset("classic-control").config
    for field, value in (SMALL | more).items():
        config = configs.replaced(config, field, value)
    return plan(name, ops.maximum(), 0, config)


def created(folder, its_plan):
    facts = {its_plan.environment: its_plan.facts}
    return Study.create(folder, its_plan.environment, [ops.maximum()], [0], its_plan.config, facts, [])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A study of each variant."""
    studies = {}
    for name in VARIANTS:
        studies[name] = created(tmp_path_factory.mktemp("scaling") / name, planned(f"gym/{name}-v0"))
        train_study(studies[name])
    return studies


def forget_scale(study, **instead):
    """Puts a study back to what was recorded before scales were."""
    record = json.loads((study.path / "study.json").read_text())
    for facts in record["environment_facts"].values():
        for name in ("obs_shape", "obs_dtype", "obs_scale"):
            facts.pop(name)
        facts |= instead
    (study.path / "study.json").write_text(json.dumps(record))
    return Study(study.path)


def test_one_task_in_several_dtypes_is_learned_alike_bit_for_bit(trained):
    float_params, _ = load_params(trained["Float"].runs[0].path / "final.safetensors")
    for study in trained.values():
        params, _ = load_params(study.runs[0].path / "final.safetensors")
        for layer, arrays in float_params.items():
            for name, array in arrays.items():
                np.testing.assert_array_equal(params[layer][name], array)


def test_how_observations_enter_is_said_in_the_plan_and_recorded(trained):
    for name, text, scale in (
        ("Float", "float32 [8], as they are", 1.0),
        ("Bits", "uint8 [8], as they are", 1.0),
        ("Pixels", "uint8 [8], divided by 255", 255.0),
        ("Wide", "float32 [8], divided by 9", 9.0),
    ):
        assert dict(planned(f"gym/{name}-v0").environment_lines({}))["observations"] == text
        assert trained[name].record["environment_facts"][f"gym/{name}-v0"]["obs_scale"] == scale
    high = np.array([1, 7, 200])
    gymnasium.register("Own-v0", entry_point=OneHot, kwargs={"dtype": np.int16, "high": 1})
    gymnasium.registry["Own-v0"].kwargs["high"] = np.broadcast_to(np.resize(high, 8), (8,))
    try:
        own = planned("gym/Own-v0")
    finally:
        del gymnasium.registry["Own-v0"]
    assert dict(own.environment_lines({}))["observations"] == "int16 [8], each entry divided by its own bound, 1 to 200"
    assert json.loads(json.dumps(own.facts["obs_scale"])) == [1.0, 7.0, 200.0] * 2 + [1.0, 7.0]


def test_our_own_environments_say_how_they_are_seen():
    config = configs.preset("demo-minatar").config
    facts = plan("minatar/breakout", ops.maximum(), 0, config).facts
    assert (facts["obs_shape"], facts["obs_dtype"], facts["obs_scale"]) == ([10, 10, 4], "bool", 1.0)
    pytest.importorskip("ale_py")
    atari = configs.replaced(configs.preset("demo-atari").config, "learner.replay_capacity", 20_000)
    shown = dict(plan("atari/breakout", ops.maximum(), 0, atari).environment_lines({}))["observations"]
    assert shown == "uint8 [4, 84, 84], divided by 255"


def values_at_state_0(study, monkeypatch):
    """The highest value that `evaluate` sees in states, as its overestimation without rewards."""
    seen = []
    monkeypatch.setattr(play, "greedy_policy", lambda recipe, params, *_: seen.append((recipe, params)))
    monkeypatch.setattr(play, "_play", lambda *_: None)
    play.evaluate(study, study.runs[0], network="final")
    recipe, params = seen[0]
    obs = np.zeros((1, 8), np.uint8)
    obs[0, 0] = 1
    return np.asarray(recipe.network.apply(params, obs))[0]


def by_hand(study, obs):
    params, _ = load_params(study.runs[0].path / "final.safetensors")
    hidden = np.maximum(obs @ params["dense_1"]["w"] + params["dense_1"]["b"], 0)
    return hidden @ params["q"]["w"] + params["q"]["b"]


def test_a_study_is_tested_with_the_scale_that_it_recorded(trained, monkeypatch):
    study, one = trained["Bits"], np.float32([1, 0, 0, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(values_at_state_0(study, monkeypatch), by_hand(study, one), rtol=1e-5)
    other = Study(study.path)
    other.record["environment_facts"]["gym/Bits-v0"]["obs_scale"] = 4.0
    np.testing.assert_allclose(values_at_state_0(other, monkeypatch), by_hand(study, one / 4), rtol=1e-5)
    said = dict(planned("gym/Bits-v0").environment_lines(other.record["environment_facts"]))
    assert said["observations"] == "uint8 [8], divided by 4"


def test_a_study_from_before_scales_were_recorded_divides_uint8_by_255(tmp_path, monkeypatch):
    """In tests, in training that goes on, and in what the plan says."""
    old = forget_scale(created(tmp_path / "old", planned("gym/Bits-v0")))
    networks = []
    monkeypatch.setattr(
        "softbellman.running.build.mlp", lambda *_, scale, **_more: networks.append(scale) or mlp((8,), 3)
    )
    make_network.cache_clear()
    facts = old.record["environment_facts"]["gym/Bits-v0"]
    assert obs_scale("gym/Bits-v0", facts, old.config) == 255.0
    for name in ("Float", "Wide"):
        assert obs_scale(f"gym/{name}-v0", facts, old.config) == 1.0
    make_network(old.config.network, obs_scale("gym/Bits-v0", facts, old.config), (8,), 3)
    make_network.cache_clear()
    assert networks == [255.0]
    text = dict(planned("gym/Bits-v0").environment_lines(old.record["environment_facts"]))["observations"]
    assert text == "uint8 [8], divided by 255"


def test_an_old_study_trains_and_is_tested_as_it_began(tmp_path, monkeypatch):
    old = forget_scale(created(tmp_path / "old", planned("gym/Bits-v0")))
    train_study(old)
    one = np.float32([1, 0, 0, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(values_at_state_0(old, monkeypatch), by_hand(old, one / 255), rtol=1e-5)


def test_an_old_comparison_grows_and_a_changed_scale_is_another_study(tmp_path, monkeypatch):
    monkeypatch.setattr("softbellman.running.comparison.require_elsewhere", lambda environments, config: None)
    config = planned("gym/Bits-v0").config
    comparison = prepare(["gym/Bits-v0"], [ops.maximum()], [0], config)

    def study(folder, **facts):
        asked = (comparison.environments, comparison.arms, [0], config, comparison.facts, [])
        return forget_scale(Study.create(tmp_path / folder, *asked), **facts)

    old = study("old")
    work = comparison.work(old.path, Resources(1, 1))
    assert [len(runs) for runs in work.groups] == [1]
    shown = comparison.summary(work, Resources(1, 1), old)
    assert dict(shown)["observations"] == "uint8 [8], divided by 255"
    other = study("other", obs_scale=9.0)
    with pytest.raises(ValueError, match=r"gym/Bits-v0: obs_scale 9\.0 there, 1\.0 now"):
        comparison.work(other.path, Resources(1, 1))


@pytest.mark.parametrize("scale", ["255", None, 0.0, -1.0, float("nan"), float("inf"), [], [1.0, "x"], True, {}])
def test_what_is_recorded_and_is_no_scale_is_refused(scale):
    with pytest.raises(ValueError, match=r"obs_scale .* in study\.json must be a number above 0, or one for each"):
        obs_scale("gym/Bits-v0", {"obs_scale": scale}, planned("gym/Bits-v0").config)
