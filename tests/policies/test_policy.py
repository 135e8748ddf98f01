"""Policies of saved networks: they do what test phases and films do, on observations as environments give them."""

import re
import sys
import textwrap
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import softbellman as sb
from softbellman import envs
from softbellman import operators as ops
from softbellman.running import play
from softbellman.running.build import make_network
from softbellman.study.files import load_params

from .studies import OWN, drawn

NONE = np.zeros(1, np.int64)


@pytest.fixture(scope="module")
def own_environments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modules")
    (folder / "pictures.py").write_text(textwrap.dedent(OWN))
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


@pytest.fixture
def balanced(cartpole):
    study, _ = cartpole
    return sb.load(study.runs[0].path)


def test_a_policy_plays_as_the_test_phases_do(cartpole, balanced):
    study, _ = cartpole
    env = gymnasium.make("CartPole-v1")
    host = envs.make("gym/CartPole-v1", seed=1, training=False)
    policy = play._saved_policy(study, study.runs[0], host, "best", 1, 0.0)
    obs, _ = env.reset(seed=5)
    for moment in range(60):
        action, values = policy(obs[None], moment, NONE, None)
        assert balanced.act(obs) == action[0]
        assert balanced.q(obs).max() == pytest.approx(values[0], rel=1e-6)
        obs, _, terminated, _, _ = env.step(balanced.act(obs))
        if terminated:
            obs, _ = env.reset()


def test_with_an_epsilon_its_draws_are_those_of_a_test_phase(cartpole):
    study, _ = cartpole
    host = envs.make("gym/CartPole-v1", seed=1, training=False)
    policy = play._saved_policy(study, study.runs[0], host, "best", 7, 0.5)
    loaded = sb.load(study.runs[0].path, exploration_seed=7)
    obs = host.reset()
    for moment in range(40):
        assert loaded.act(obs, epsilon=0.5).tolist() == policy(obs, moment, NONE, None)[0].tolist()


def test_one_observation_and_a_batch_give_the_same(balanced):
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32) * 0.1
    actions, values, weights = balanced.act(obs), balanced.q(obs), balanced.weights(obs)
    assert (actions.shape, values.shape, weights.shape) == ((5,), (5, 2), (5, 2))
    assert actions.dtype == np.int64
    for row in range(5):
        one = balanced.act(obs[row])
        assert type(one) is int
        assert one == actions[row]
        np.testing.assert_allclose(balanced.q(obs[row]), values[row], rtol=1e-5)
        np.testing.assert_allclose(balanced.weights(obs[row].tolist()), weights[row], rtol=1e-4)


def test_weights_are_those_of_the_operator_with_the_online_network_as_selector(balanced):
    obs = np.full((2, 4), 0.05, np.float32)
    assert balanced.operator == ops.double(ops.softmax(5.0))
    np.testing.assert_array_equal(balanced.weights(obs), ops.softmax(5.0).weights(balanced.q(obs)))
    masked = balanced.weights(obs, legal=[True, False])
    np.testing.assert_array_equal(masked, [[1, 0], [1, 0]])


def test_an_illegal_action_is_never_taken(balanced):
    obs = np.zeros((200, 4), np.float32)
    assert set(balanced.act(obs, legal=[0, 1])) == {1}
    assert set(balanced.act(obs, epsilon=1.0, legal=[1, 0])) == {0}
    assert set(balanced.act(obs, epsilon=1.0).tolist()) == {0, 1}
    each = np.eye(2, dtype=np.int8)[np.arange(200) % 2]
    np.testing.assert_array_equal(balanced.act(obs, legal=each), np.arange(200) % 2)


def test_values_are_the_networks_whatever_jax_is_told(cartpole):
    import jax

    study, _ = cartpole
    run, obs = study.runs[1], np.full((3, 4), 0.1, np.float32)
    params, facts = load_params(run.path / "final.safetensors")
    expected = make_network(study.config.network, 1.0, (4,), 2).apply(params, obs)
    with jax.enable_x64(True):
        policy = sb.load(str(run.path), network="final")
        np.testing.assert_allclose(policy.q(obs), expected, rtol=1e-6)
        assert policy.q(obs.astype(np.float64)).dtype == np.float32
    assert policy.agent_steps == facts["agent_steps"]
    assert "final network" in repr(policy)


def test_the_run_is_chosen_by_arm_and_seed(cartpole):
    study, _ = cartpole
    chosen = [
        sb.load(study.path, seed=3),
        sb.load(study.path, arm="double:softmax:5", seed=3, environment="gym/CartPole-v1"),
    ]
    chosen.append(sb.load(study.path, arm=ops.double(ops.softmax(5.0)), seed=np.int64(3)))
    assert {policy.run.path for policy in chosen} == {study.runs[1].path}
    both = "double.softmax.5.*, seed 0; .*seed 3"
    for wrong, message in (
        ({}, "holds 2 runs; name one of them, or choose by environment, arm and seed: .*seed-0, .*seed-3"),
        ({"seed": 9}, f"holds 0 runs with seed 9; there are .*{both}"),
        ({"arm": "max"}, f"holds 0 runs with arm max; there are .*{both}"),
        ({"environment": "gym/CartPole-v1"}, f"holds 2 runs with environment gym/CartPole-v1; there are .*{both}"),
    ):
        with pytest.raises(ValueError, match=message):
            sb.load(study.path, **wrong)


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (np.zeros(3), r"of shape \(3,\); one alone has \(4,\), and B of them, at least 1, have \[B, 4\]"),
        (np.zeros((2, 3, 4)), r"of shape \(2, 3, 4\)"),
        (np.zeros((0, 4)), r"of shape \(0, 4\)"),
        (0.5, r"of shape \(\)"),
        (["a"] * 4, "an observation of dtype <U1"),
        (np.full(4, np.nan), "not finite in float32"),
        (np.full(4, 1e300), "not finite in float32"),
        ([[0.0, 1.0], [2.0]], "is no array of numbers"),
        (np.ma.zeros(4), "masked array"),
        (None, "of shape"),
    ],
)
def test_observations_that_the_environment_could_not_give_are_refused(balanced, obs, message):
    for method in (balanced.act, balanced.q, balanced.weights):
        with pytest.raises(ValueError, match=message) as caught:
            method(obs)
        assert "gym/CartPole-v1 was given" in str(caught.value)
        assert "\n" not in str(caught.value)


def returned_by_an_environment():
    env, four = gymnasium.make("CartPole-v1"), gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync")
    masked = (np.zeros(4, np.float32), {"action_mask": np.ones(2, np.int8)})
    several = (four.reset(seed=0), four.step(np.zeros(4, int)))
    return [env.reset(seed=0), env.step(0), *several, masked, list(masked), (np.zeros(4), 1.0, False, {})]


@pytest.mark.parametrize(
    "given", returned_by_an_environment(), ids=lambda given: f"{type(given).__name__}-{len(given)}"
)
def test_all_that_an_environment_returns_is_no_observation(given, balanced):
    for method in (balanced.act, balanced.q, balanced.weights):
        with pytest.raises(
            ValueError, match=rf"^the policy of gym/CartPole-v1 was given {len(given)} things"
        ) as caught:
            method(given)
        assert "pass the first, the observation: obs, info = env.reset()" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert balanced.q(given[0]).shape[-1] == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 1.5}, r"epsilon \(1\.5\) must be in \[0, 1\]"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"legal": [True]}, r"legal has the shape \(1,\); it must be \(2,\) or \(3, 2\)"),
        ({"legal": [[True, True]]}, r"legal has the shape \(1, 2\)"),
        ({"legal": [False, False]}, "a row in which no action is"),
        ({"legal": [[1, 0], [0, 0], [1, 1]]}, "a row in which no action is"),
        ({"legal": [0.5, 1.0]}, "values other than True and False"),
    ],
)
def test_arguments_that_cannot_be_are_refused(balanced, wrong, message):
    with pytest.raises(ValueError, match=message):
        balanced.act(np.zeros((3, 4)), **wrong)


def test_a_directory_without_a_run_or_a_network_is_refused(tmp_path, cartpole):
    study, _ = cartpole
    with pytest.raises(ValueError, match="is no run and no study"):
        sb.load(tmp_path)
    with pytest.raises(ValueError, match=r"study.json is a file; give the directory of its run"):
        sb.load(study.path / "study.json")
    with pytest.raises(ValueError, match=r"network \('last'\) must be best or final"):
        sb.load(study.runs[0].path, network="last")
    empty = drawn(tmp_path, "mdp/forest")
    (empty.runs[0].path / "best.safetensors").unlink()
    with pytest.raises(ValueError, match="a run saves it with its first test phase"):
        sb.load(empty.path)


def test_pictures_with_channels_last_and_actions_from_minus_1_are_taken_as_they_are(own_environments, tmp_path):
    study = drawn(tmp_path, "pictures:Pictures", {"network.kind": "mlp"})
    policy, env = sb.load(study.path), _made("pictures", "Pictures")
    obs, _ = env.reset(seed=0)
    params, _ = load_params(study.runs[0].path / "best.safetensors")
    network = make_network(study.config.network, 255.0, (3, 5, 6), 3)
    expected = np.asarray(network.apply(params, np.moveaxis(obs, -1, 0)[None]))[0]
    np.testing.assert_allclose(policy.q(obs), expected, rtol=1e-5, atol=1e-6)
    assert policy.raw_shape == (5, 6, 3)
    assert policy.act(obs) == expected.argmax() - 1
    assert policy.act(obs, legal=[1, 0, 0]) == -1
    env.step(policy.act(obs))
    with pytest.raises(ValueError, match=r"was given an observation of dtype float64, its space says uint8"):
        policy.act(obs / 255)


def _made(module, name):
    import importlib

    return getattr(importlib.import_module(module), name)()


def test_integers_are_scaled_by_their_bounds_and_held_against_them(own_environments, tmp_path):
    study = drawn(tmp_path, "pictures:Uneven")
    policy = sb.load(study.path)
    params, _ = load_params(study.runs[0].path / "best.safetensors")
    network = make_network(study.config.network, 1.0, (2,), 2)
    expected = network.apply(params, np.float32([[1.0, -0.4], [0.0, 1.0]]))
    np.testing.assert_allclose(policy.q([[1, -4], [0, 10]]), expected, rtol=1e-5, atol=1e-6)
    assert policy.raw_dtype == np.int64 and "observations int64 [2]" in repr(policy)
    policy.act(np.zeros(policy.raw_shape, policy.raw_dtype))
    with pytest.raises(ValueError, match=r"was given an observation with 11 at \[1\], where its space says -4 to 10"):
        policy.q([1, 11])


@pytest.mark.parametrize("cast", [bool, np.uint8, np.int64])
def test_minatar_takes_planes(tmp_path, cast):
    policy = sb.load(drawn(tmp_path, "minatar/breakout", preset="demo-minatar").path)
    obs = envs.make("minatar/breakout", seed=0).reset()
    assert policy.q(obs.astype(cast)).shape == (1, 6)
    for wrong, message in (
        (obs * 2, "with 2, which is nothing that bool holds"),
        (obs * 1.0, "dtype float64; it takes raw"),
    ):
        with pytest.raises(ValueError, match=message):
            policy.q(wrong)


def test_where_actions_are_illegal_the_legal_ones_must_be_told(tmp_path):
    policy = sb.load(drawn(tmp_path, "mdp/doors").path)
    env = envs.make("mdp/doors", seed=0)
    obs = env.reset()
    for method in (policy.act, policy.weights):
        with pytest.raises(ValueError, match="mdp/doors has illegal actions; pass legal"):
            method(obs)
    for _ in range(30):
        obs = env.step(policy.act(obs, epsilon=0.5, legal=env.legal)).obs
    assert policy.q(obs).shape == (1, env.num_actions)


def test_a_controlled_parameter_is_that_of_the_networks_time(tmp_path):
    study = drawn(tmp_path, "mdp/forest", {"recipe.controller": "power(1, 2)"}, "softmax(3)")
    with pytest.raises(ValueError, match=r"metrics.csv"):
        sb.load(study.path)
    lines = "agent_steps,operator_parameter\n0,7.5\n200,9\n"
    (study.runs[0].path / "metrics.csv").write_text(lines)
    assert sb.load(study.path).operator == ops.softmax(7.5)
    (study.runs[0].path / "metrics.csv").write_text(lines.replace("0,7.5\n", ""))
    with pytest.raises(ValueError, match="no row after 0 agent steps"):
        sb.load(study.path)


def test_what_a_policy_of_quantiles_gives_is_means_and_acts_by_its_risk(tmp_path):
    recipe = {"recipe.estimate": "quantiles(5)", "recipe.risk": "cvar(0.2)", "recipe.head": "duelling"}
    study = drawn(tmp_path, "gym/CartPole-v1", recipe)
    policy = sb.load(study.path)
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    out = np.asarray(policy._recipe.network.apply(policy._params, obs))
    np.testing.assert_allclose(policy.q(obs), out.mean(axis=-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(policy.act(obs), out.min(axis=-1).argmax(axis=-1))


def test_atari_takes_stacks_and_makes_them_of_raw_screens(breakout):
    ale_py = pytest.importorskip("ale_py")
    policy = sb.load(breakout.path)
    protocol = breakout.config.protocol
    host = envs.make("atari/breakout", seed=0, training=False, protocol=protocol)
    with pytest.raises(ValueError, match="float64; it takes raw ones, of uint8"):
        policy.q(host.reset() / 255)
    import dataclasses

    still = dataclasses.replace(protocol, noop_max=0)
    host = envs.make("atari/breakout", seed=0, training=False, protocol=still)
    first = host.reset()
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", host.tape[0].seed)
    ale.loadROM(ale_py.roms.get_rom_path("breakout"))
    ale.reset_game()
    screens = policy.screens()
    np.testing.assert_array_equal(screens.begin(ale.getScreenGrayscale()), first[0])
    actions = ale.getMinimalActionSet()
    for chosen in [1, 3, 3, 2, 0, 3, 2, 2] * 3:
        seen = []
        for _ in range(protocol.frame_skip):
            ale.act(actions[chosen])
            seen.append(ale.getScreenGrayscale())
        obs = screens.after(*seen)
        np.testing.assert_array_equal(obs, host.step(np.array([chosen])).obs[0])
        assert policy.act(obs) == policy.act(obs[None])[0]
    for wrong, message in (
        ((), "at least"),
        ((np.zeros((84, 84), np.uint8),), "shape .84, 84."),
        ((np.zeros((210, 160)),), "float64"),
    ):
        with pytest.raises(ValueError, match=message):
            screens.after(*wrong)


def test_only_atari_has_screens(balanced):
    with pytest.raises(ValueError, match=r"gym/CartPole-v1 has no screens to stack"):
        balanced.screens()


def test_what_the_page_shows_runs(cartpole, breakout):
    page = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
    first, screens, _ = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    study, _ = cartpole
    names = {"obs": np.zeros(4, np.float32)}
    exec(first.replace("runs/first", str(study.runs[0].path)), names)
    assert names["weights"].sum() == pytest.approx(1)
    ale_py = pytest.importorskip("ale_py")
    ale = ale_py.ALEInterface()
    ale.loadROM(ale_py.roms.get_rom_path("breakout"))
    exec(screens.replace("1_000", "3"), names := {"ale": ale, "policy": sb.load(breakout.path)})
    assert names["obs"].shape == (4, 84, 84)
