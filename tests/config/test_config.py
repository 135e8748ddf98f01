"""Presets hold what they say, and every value says where it comes from."""

import dataclasses
import json

import numpy as np
import pytest

from softbellman.config import (
    PRESETS,
    Config,
    checked,
    config_from,
    default_preset,
    fields,
    preset,
    replaced,
    sources,
    with_settings,
)
from softbellman.envs.atari import MACHADO_ATARI

# The authors' released code on its working path, value by value; what is not theirs says so.
AUTHORS = {
    "learner.gamma": 0.99,
    "learner.learning_rate": 0.00025,
    "learner.optimizer": "rmsprop",
    "learner.rmsprop_decay": 0.95,
    "learner.optimizer_epsilon": 0.01,
    "learner.huber_delta": 1.0,
    "learner.loss_reduction": "sum",
    "learner.reward_scale": 1.0,
    "learner.reward_clip": 1.0,
    "learner.batch_size": 32,
    "learner.update_period_steps": 4,
    "learner.target_period_updates": 2_500,
    "learner.replay_capacity": 1_000_000,
    "learner.replay_start_steps": 50_000,
    "learner.epsilon_start": 1.0,
    "learner.epsilon_end": 0.1,
    "learner.epsilon_decay_steps": 1_000_000,
    "recipe.returns": 1,
    "recipe.gap": "none",
    "recipe.target": "latest",
    "recipe.estimate": "value",
    "recipe.head": "linear",
    "recipe.noise": "none",
    "recipe.scale": "raw",
    "recipe.sampling": "uniform",
    "recipe.tightening": "none",
    "recipe.exploration": "epsilon",
    "recipe.risk": "neutral",
    "recipe.controller": "fixed",
    "loop.steps": 50_000_000,
    "loop.epoch_steps": 250_000,
    "loop.test_steps": 125_000,
    "loop.test_episodes": None,
    "loop.test_epsilon": 0.05,
    "loop.held_out_states": 3_200,
    "loop.gradient_batches": 50,
    "loop.num_envs": 1,
    "network.kind": "nature_cnn",
    "protocol.frame_skip": 4,
    "protocol.frame_pool": 2,
    "protocol.repeat_action_probability": 0.0,
    "protocol.noop_max": 30,
    "protocol.fire_reset": False,
    "protocol.action_set": "minimal",
    "protocol.life_loss_terminates": True,
    "protocol.max_frames_per_game": None,
    "protocol.stack": 4,
    "protocol.height": 84,
    "protocol.width": 84,
    "protocol.resize": "bilinear",
}
OURS = {
    **{f"minatar.{name}": "MinAtar" for name in ("sticky_probability", "ramping", "minimal_actions", "max_steps")},
    "checkpoint.keep": "preset",
    "checkpoint.minutes": "preset",
    "checkpoint.replay": "preset",
    "env.options": "preset",
    "loop.block_width": "preset",
    "network.hidden": "preset",
    "protocol.name": "preset",
    "protocol.random_first_actions": "deviation D2",
    "protocol.budget_cut_terminates": "deviation D4",
}


def test_paper_atari_is_the_authors_code_value_by_value():
    paper = preset("paper-atari")
    values, where = dict(fields(paper.config)), sources(paper.config, paper)
    assert {name: value for name, value in values.items() if where[name] == "authors' code"} == AUTHORS
    assert {name: source for name, source in where.items() if source != "authors' code"} == OURS
    assert values["loop.epoch_steps"] * 200 == values["loop.steps"]


def test_machado_atari_is_their_protocol_with_the_papers_learner():
    machado, paper = preset("machado-atari"), preset("paper-atari")
    assert machado.config.protocol == MACHADO_ATARI
    assert machado.config.learner == paper.config.learner
    where = sources(machado.config, machado)
    for name in ("repeat_action_probability", "noop_max", "action_set", "life_loss_terminates"):
        assert where[f"protocol.{name}"] == "Machado et al."
    assert where["protocol.name"] == "preset" and where["protocol.max_frames_per_game"] == "deviation D9"
    assert machado.config.protocol.repeat_action_probability == 0.25


def test_quick_atari_is_the_papers_but_for_the_decay_of_exploration_and_the_lengths():
    quick, paper = dict(fields(preset("quick-atari").config)), dict(fields(preset("paper-atari").config))
    assert {name: value for name, value in quick.items() if value != paper[name]} == {
        "learner.epsilon_decay_steps": 100_000,
        "loop.steps": 800_000,
        "loop.epoch_steps": 50_000,
        "loop.test_steps": 10_000,
    }


def test_sharp_atari_is_quick_atari_but_for_the_optimiser_and_the_length():
    sharp, quick = dict(fields(preset("sharp-atari").config)), dict(fields(preset("quick-atari").config))
    assert {name: value for name, value in sharp.items() if value != quick[name]} == {
        "learner.optimizer": "adam",
        "learner.learning_rate": 1e-4,
        "learner.optimizer_epsilon": 1e-8,
        "learner.loss_reduction": "mean",
        "loop.steps": 1_000_000,
    }


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_could_run_and_every_value_has_a_short_source(name):
    chosen = preset(name)
    assert checked(chosen.config) is chosen.config
    where = sources(chosen.config, chosen)
    assert set(where) == set(dict(fields(chosen.config)))
    assert all(0 < len(source) <= 14 and source != "command line" for source in where.values())
    assert set(chosen.overrides) <= set(where)


def test_a_value_of_ones_own_comes_from_the_command_line():
    quick = preset("quick-atari")
    where = sources(replaced(quick.config, "learner.gamma", 0.9), quick)
    assert where["learner.gamma"] == "command line"
    assert where["loop.steps"] == "preset"
    assert where["learner.batch_size"] == "authors' code"


@pytest.mark.parametrize("name", PRESETS)
def test_a_configuration_survives_its_way_through_json(name):
    config = preset(name).config
    assert config_from(json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_l48_an_unknown_field_is_refused_with_the_nearest():
    record = dataclasses.asdict(Config())
    record["learner"]["gama"] = 0.9
    with pytest.raises(ValueError, match=r"unknown field 'learner\.gama'; did you mean learner\.gamma"):
        config_from(record)


def test_an_unknown_kind_of_network_is_refused():
    record = dataclasses.asdict(Config())
    record["network"]["kind"] = "cnn"
    with pytest.raises(ValueError, match=r"network.kind \('cnn'\) must be one of auto, nature_cnn, minatar_cnn, mlp"):
        config_from(record)


def test_a_field_of_the_wrong_kind_is_refused():
    record = dataclasses.asdict(Config())
    record["learner"]["gamma"] = "0.9"
    with pytest.raises(ValueError, match=r"learner\.gamma \('0\.9'\) must be a number"):
        config_from(record)


def test_settings_take_numbers_of_numpy_and_hold_plain_ones():
    values = {
        "learner.gamma": np.float32(0.9),
        "learner.reward_clip": 1,
        "learner.batch_size": 1e1,
        "learner.optimizer": np.str_("adam"),
        "loop.steps": np.int64(5_000),
        "loop.test_episodes": np.float64(3),
        "network.hidden": np.array([64, 32]),
        "minatar.ramping": np.bool_(False),
        "minatar.max_steps": None,
    }
    config = with_settings(preset("classic-control").config, values)
    assert config.learner.gamma == 0.9 and config.learner.batch_size == 10 and config.network.hidden == (64, 32)
    assert (type(config.learner.reward_clip), type(config.loop.test_episodes)) == (float, int)
    assert config.minatar.ramping is False
    assert with_settings(Config(), json.loads(json.dumps(dict(fields(config))))) == config
    assert with_settings(config, {"network.hidden": 64}).network.hidden == (64,)
    assert with_settings(config, {"network.hidden": []}).network.hidden == ()
    assert with_settings(config, {"learner.reward_clip": None}).learner.reward_clip is None


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("loop.steps", 10.5, r"loop\.steps \(10\.5\) must be a whole number"),
        ("loop.steps", True, r"loop\.steps \(True\) must be a whole number"),
        ("loop.steps", None, r"loop\.steps \(None\) must be a whole number"),
        ("loop.test_episodes", "3", r"loop\.test_episodes \('3'\) must be a whole number"),
        ("loop.test_episodes", np.float32(2.5), r"loop\.test_episodes .* must be a whole number"),
        ("learner.gamma", np.bool_(True), r"learner\.gamma .* must be a number"),
        ("learner.optimizer", 3, r"learner\.optimizer \(3\) must be a word"),
        ("minatar.ramping", 1, r"minatar\.ramping \(1\) must be True or False"),
        ("network.hidden", [64, 0.5], r"network\.hidden \(0\.5\) must be a whole number"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_refused(path, value, message):
    with pytest.raises(ValueError, match=message):
        with_settings(Config(), {path: value})


def test_a_hidden_layer_has_units():
    with pytest.raises(ValueError, match="at least 1 unit"):
        checked(replaced(preset("classic-control").config, "network.hidden", (64, 0)))


def test_an_unknown_preset_lists_the_nearest_and_all():
    with pytest.raises(ValueError, match=r"did you mean .*paper-atari.*there are paper-atari, quick-atari"):
        preset("paper_atri")


def test_default_presets():
    assert default_preset("atari/pong") == "paper-atari"
    assert default_preset("gym/CartPole-v1") == "classic-control"
    assert default_preset("minatar/breakout") == "sharp-minatar"


def test_sharp_minatar_differs_from_the_example_agent_in_what_it_names():
    sharp, example = (dict(fields(preset(name).config)) for name in ("sharp-minatar", "minatar"))
    assert {name: value for name, value in sharp.items() if value != example[name]} == {
        "learner.optimizer": "adam",
        "learner.learning_rate": 3e-4,
        "learner.optimizer_epsilon": 3.125e-4,
        "learner.update_period_steps": 4,
        "loop.steps": 600_000,
    }


def test_minatar_is_the_example_agents_value_by_value():
    """Young and Tian 2019, as the example in their package is written."""
    chosen = preset("minatar")
    values, where = dict(fields(chosen.config)), sources(chosen.config, chosen)
    example = {
        "learner.gamma": 0.99,
        "learner.learning_rate": 0.00025,
        "learner.optimizer": "rmsprop-torch",
        "learner.rmsprop_decay": 0.95,
        "learner.optimizer_epsilon": 0.01,
        "learner.huber_delta": 1.0,
        "learner.loss_reduction": "mean",
        "learner.reward_clip": None,
        "learner.batch_size": 32,
        "learner.update_period_steps": 1,
        "learner.target_period_updates": 1_000,
        "learner.replay_capacity": 100_000,
        "learner.replay_start_steps": 5_000,
        "learner.epsilon_start": 1.0,
        "learner.epsilon_end": 0.1,
        "learner.epsilon_decay_steps": 100_000,
        "network.kind": "minatar_cnn",
        "loop.steps": 5_000_000,
        "minatar.sticky_probability": 0.1,
        "minatar.ramping": True,
        "minatar.minimal_actions": False,
        "minatar.max_steps": None,
    }
    assert {name: values[name] for name in example} == example
    assert where["learner.update_period_steps"] == where["minatar.ramping"] == "MinAtar"
    assert where["loop.epoch_steps"] == where["loop.test_episodes"] == "preset"


def test_equal_configurations_have_one_hash():
    asked = {"env.options": {"size": 5}, "network.hidden": [3]}
    assert len({Config(), Config(), with_settings(Config(), asked), with_settings(Config(), asked)}) == 2
