"""A family of environments is one adapter and one record; nothing else is to be changed to add one."""

import gymnasium
import numpy as np
import pytest

from softbellman import envs
from softbellman.config import PRESETS, default_preset, effective, preset
from softbellman.envs.families import FACTORIES, FAMILIES, every_family, section_forms

from ..studies import TINY, planned_study, trained


class Switches:
    """The adapter of a family of lamps, `lamp/<colour>`."""

    @staticmethod
    def names():
        return ["green", "red"]

    @staticmethod
    def make(name, protocol, **how):
        from softbellman.envs.gym import GymEnv

        class Lamp(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
            action_space = gymnasium.spaces.Discrete(3)

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                return np.zeros(2, np.float32), {}

            def step(self, action):
                return np.ones(2, np.float32), float(action == 1), bool(self.np_random.random() < 0.1), False, {}

        return GymEnv(Lamp, name=f"lamp/{name}", **how)

    @staticmethod
    def rules(facts):
        return f"a lamp with {facts['num_actions']} switches"


def test_a_family_of_ones_own_is_trained_on(tmp_path, monkeypatch):
    monkeypatch.setitem(FAMILIES, "lamp", envs.Family(form="lamp/<colour>", title="lamps", load=lambda: Switches))
    study, rows = trained(tmp_path / "study", "lamp/red", "classic-control", "softmax(5)", [0], TINY)
    assert [row["agent_steps"] for _, row, _ in rows] == [200, 400] and rows[-1][1]["updates"] > 0
    assert study.record["environment_facts"]["lamp/red"]["num_actions"] == 3
    assert (study.runs[0].path.parents[1].name, default_preset("lamp/red")) == ("lamp-red", "classic-control")
    with pytest.raises(ValueError, match="did you mean lamp/green"):
        envs.make("lomp/green", seed=0)


def test_the_plan_says_the_words_of_a_family(monkeypatch):
    lamps = envs.Family(form="lamp/<colour>", title="lamps", load=lambda: Switches, too_few_steps=500, longer=())
    monkeypatch.setitem(FAMILIES, "lamp", lamps)
    planned = planned_study("lamp/red", "classic-control", "max", [0], TINY)
    assert dict(planned.environment_lines({}))["environment"].startswith("lamp/red: a lamp with 3 switches; rewards")
    assert planned.warnings()[-1].startswith("400 agent steps cannot teach an environment")
    with pytest.raises(ValueError, match="does not heed the fields of minatar; they are for minatar/<game> only"):
        planned_study("lamp/red", "classic-control", "max", [0], TINY | {"minatar.ramping": False})


def test_a_family_is_that_of_its_prefix_and_a_reference_is_of_none():
    assert envs.family_of("atari/pong") is FAMILIES["atari"]
    assert envs.family_of("gym/grids:Grid-v0") is FAMILIES["gym"]
    assert envs.family_of("grids.envs:make") is envs.family_of("grids:Grid.small") is FACTORIES
    for name in ("atari/", "pong", "grids:", ":make", "grids:make()", "a/b:c", ""):
        with pytest.raises(ValueError, match="unknown environment"):
            envs.family_of(name)


def test_every_section_of_the_configuration_names_the_families_that_heed_it():
    assert section_forms() == {
        "protocol": "atari/<game>",
        "minatar": "minatar/<game>",
        "env": "gym/<id> and package.module:function",
    }
    listed = {name.partition(".")[0] for name, _ in effective(preset("minatar").config, ["minatar/breakout"])}
    assert "minatar" in listed and not listed & {"protocol", "env"}


@pytest.mark.parametrize("family", every_family(), ids=lambda family: family.form)
def test_an_adapter_has_what_a_family_needs(family):
    if family.extra == "atari":
        pytest.importorskip("ale_py")
    adapter = family.load()
    assert callable(adapter.names) and callable(adapter.rules)
    assert hasattr(adapter, "make_device") == family.on_device and hasattr(adapter, "make") != family.on_device
    assert set(family.longer) <= set(PRESETS)
