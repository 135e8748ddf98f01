"""Finite MDPs as environments: they play by their own numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import envs
from softbellman.envs.device import copy_keys
from softbellman.envs.mdp import MDPEnv, names
from softbellman.tabular.examples import EXAMPLES


def transitions(env, steps=20_000):
    """State, action, reward, next state (S: the end) and truncation of random play, as arrays."""
    keys = copy_keys(0, training=True, num_envs=1)[0]

    @jax.jit
    def play(actions):
        state, obs = env.reset(keys)

        def one(now, action):
            state, obs = now
            after, step = env.step(state, action, keys)
            return (after, step.obs), (obs, step)

        return jax.lax.scan(one, (state, obs), actions)[1]

    actions = np.random.default_rng(0).integers(env.num_actions, size=steps).astype(np.int32)
    obs, step = jax.tree.map(np.asarray, play(actions))
    return obs, actions, step


@pytest.mark.parametrize("example", ["two-fixed-points", "small", "forest", "asadi-littman"])
def test_transitions_and_rewards_are_those_of_the_mdp(example):
    env, mdp = envs.make_device(f"mdp/{example}"), EXAMPLES[example]()
    obs, actions, step = transitions(env)
    assert (obs.sum(axis=1) == 1).all() and obs.dtype == np.float32
    states = obs.argmax(axis=1)
    assert np.allclose(step.reward, mdp.reward[states, actions])
    assert (step.next_obs.sum(axis=1) == ~step.terminated).all()  # nothing is seen behind an end
    assert (step.terminated.sum() > 1_000) == mdp.terminal.any()
    assert (step.obs[:-1] == obs[1:]).all()
    kernel = mdp.kernel if isinstance(mdp.kernel, np.ndarray) else mdp.kernel.toarray()
    kernel = kernel.reshape(mdp.num_states, mdp.num_actions, mdp.num_states)
    seen = 0
    for state in range(mdp.num_states):
        for action in range(mdp.num_actions):
            here = (states == state) & (actions == action)
            if here.sum() > 300:
                error = np.abs(step.next_obs[here].mean(axis=0) - kernel[state, action]).max()
                assert error < 5 * 0.5 / np.sqrt(here.sum())
                seen += 1
    assert seen >= 2


def test_games_start_in_any_state_that_is_no_end():
    env = MDPEnv("forest", limit=1)
    obs, _, step = transitions(env, 3_000)
    assert step.truncated.all() and not step.terminated.any() and step.game_ended.all()
    assert np.abs(obs.mean(axis=0) - 1 / 3).max() < 0.04


def test_a_continuing_mdp_is_cut_at_its_limit_and_at_none_without():
    _, _, step = transitions(envs.make_device("mdp/one-state"), 1_000)
    assert np.flatnonzero(step.truncated).tolist() == list(range(99, 1_000, 100))
    assert not step.terminated.any()
    _, _, step = transitions(MDPEnv("one-state", limit=None), 1_000)
    assert not step.game_ended.any()


def test_the_mdp_behind_it_has_the_learners_discount_and_the_observations_of_its_states():
    env = envs.make_device("mdp/small")
    mdp, obs = env.as_mdp(0.95)
    assert repr(mdp) == repr(EXAMPLES["small"](gamma=0.95))
    states = [np.asarray(env.rules.observe(jnp.asarray(state))) for state in range(mdp.num_states)]
    np.testing.assert_array_equal(obs, states)


def test_every_example_is_an_environment():
    assert names() == list(EXAMPLES)
    for name in names():
        env = envs.make_device(f"mdp/{name}")
        _, obs = jax.eval_shape(env.reset, copy_keys(0, training=True, num_envs=1)[0])
        assert obs.shape == env.obs_shape == (EXAMPLES[name]().num_states,)
        assert env.num_actions == EXAMPLES[name]().num_actions


def test_what_cannot_be_played_is_refused():
    with pytest.raises(ValueError, match="limit must be at least 1"):
        MDPEnv("small", limit=0)


def test_illegal_actions_are_those_of_the_mdp():
    env, key = MDPEnv("doors"), copy_keys(0, training=True, num_envs=1)[0]
    assert env.is_masked and not MDPEnv("small").is_masked
    state, obs = env.reset(key)
    assert (env.legal(state) == EXAMPLES["doors"]().legal[np.argmax(obs)]).all()
    state, _ = MDPEnv("small").reset(key)
    assert MDPEnv("small").legal(state) is None


def test_its_picture_marks_the_state():
    env = envs.make_device("mdp/forest")
    picture = env.screen(np.asarray(jnp.eye(3)[1]))
    assert picture.shape == (134, 402, 3) and picture.dtype == np.uint8
    marked = (picture != picture[0, 0]).any(axis=-1)
    assert marked[:, 134:268].all() and not marked[:, :134].any() and not marked[:, 268:].any()


def test_the_picture_of_many_states_has_rows_of_ten():
    picture = envs.make_device("mdp/garnet").screen(np.eye(50)[13])
    assert picture.shape == (200, 400, 3)
    rows, columns = np.nonzero((picture != picture[0, 0]).any(axis=-1))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (40, 79, 120, 159)


def test_what_is_no_state_is_told_from_states():
    picture = MDPEnv("forest").screen(np.eye(12)[0])
    assert picture.shape == (80, 400, 3)
    colours = [tuple(picture[row, column]) for row, column in ((20, 20), (60, 60), (60, 100))]
    assert len(set(colours)) == 3  # the current one, another, none
