"""Test phases on the device: the first game of each copy counts, within the budget, whatever its company."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman.envs.hosted import HostedEnv
from softbellman.learning.recipe import Recipe
from softbellman.training import device_evaluation, evaluation
from softbellman.training.evaluation import greedy_policy

from .device_probes import LEARNER, LOOP, Corridor, linear_network

REWARDS = (1.0, 2.0, 3.0)


def played(q, *, env=None, seeds=(0,), **changes):
    """Plays with a network whose values are `q`, `[actions]` for every state."""
    env = env or Corridor(REWARDS)
    recipe = Recipe(linear_network(len(env.rewards)), LEARNER.update)
    params = {"q": {"w": jnp.zeros((len(seeds), len(env.rewards), 2)), "b": jnp.tile(jnp.asarray(q), (len(seeds), 1))}}
    loop = replace(LOOP, **{"test_epsilon": 0.0, **changes})
    return device_evaluation.play(env, recipe, params, list(seeds), loop)


def test_l8_a_score_is_that_of_one_whole_game():
    (phase,) = played([0.0, 1.0], test_steps=80, test_episodes=8)
    assert phase.scores.tolist() == [6.0] * 8
    assert phase.lengths.tolist() == [3] * 8
    assert phase.steps == 24 and not phase.unfinished
    assert phase.identical


def test_l18_a_policy_that_never_ends_stops_at_the_budget():
    (phase,) = played([1.0, 0.0], test_steps=80, test_episodes=8)
    assert phase.unfinished and phase.steps == 80
    assert phase.scores.tolist() == [10.0]  # ten steps of one copy, at 1 each
    assert np.isfinite(phase.scores).all() and not phase.identical
    assert phase.realised_return is None  # nothing is known of what would have followed


def test_the_realised_return_is_that_of_the_visited_states():
    (phase,) = played([0.0, 1.0], test_steps=80, test_episodes=4)
    gamma = LEARNER.gamma
    returns = [1 + gamma * (1 + gamma), 1 + gamma, 1.0]  # rewards clipped to 1, as the learner sees them
    assert phase.realised_return == pytest.approx(np.mean(returns))
    assert phase.overestimation == pytest.approx(np.mean([1.0 - value for value in returns]))


def test_a_time_limit_is_no_known_end():
    (phase,) = played([1.0, 0.0], env=Corridor(REWARDS, max_steps=5), test_steps=80, test_episodes=8)
    assert phase.scores.tolist() == [5.0] * 8 and not phase.unfinished
    assert phase.realised_return is None


def test_company_and_budget_change_no_finished_game():
    settings = {"test_episodes": 8, "test_epsilon": 0.5}
    (alone,) = played([0.0, 1.0], seeds=[5], test_steps=8_000, **settings)
    other, together = played([0.0, 1.0], seeds=[3, 5], test_steps=800, **settings)
    assert len(alone.scores) == 8 and not np.array_equal(alone.scores, other.scores)
    for name, value in alone._asdict().items():
        np.testing.assert_array_equal(value, getattr(together, name), err_msg=name)


def on_both(q, seed, *, epsilon, steps):
    """Plays one game with values `q`, `[actions]` for every state, on the device and on the host."""
    env, recipe = Corridor(REWARDS), Recipe(linear_network(3), LEARNER.update)
    params = {"q": {"w": jnp.zeros((3, 2)), "b": jnp.asarray(q)}}
    loop = replace(LOOP, test_epsilon=epsilon, test_steps=steps, test_episodes=1)
    (on_device,) = device_evaluation.play(env, recipe, jax.tree.map(lambda leaf: leaf[None], params), [seed], loop)
    policy, host = greedy_policy(recipe, params, seed, epsilon), HostedEnv(env, seed=seed, training=False)
    return on_device, evaluation.play(policy, host, max_steps=steps, max_episodes=1, update=LEARNER)


def test_games_are_those_that_the_host_plays():
    """The first game of a single copy, with exploration, is the host's first game of the same seed."""
    for seed in range(5):
        on_device, on_host = on_both([0.0, 1.0], seed, epsilon=0.5, steps=1_000)
        assert on_device.scores.tolist() == on_host.scores.tolist()
        assert on_device.lengths.tolist() == on_host.lengths.tolist()
        assert on_device.realised_return == pytest.approx(on_host.realised_return)


def test_long_games_are_those_that_the_host_plays():
    """Random numbers go on from one chunk of steps to the next."""
    phases = [on_both([1.0, 0.0], seed, epsilon=0.02, steps=5_000) for seed in range(5)]
    lengths = [on_host.lengths.tolist() for _, on_host in phases]
    assert [on_device.lengths.tolist() for on_device, _ in phases] == lengths
    assert max(lengths)[0] > device_evaluation.CHUNK


def test_each_copy_of_a_test_phase_has_an_environment_with_random_numbers_of_its_own():
    env, copies = Corridor(REWARDS, sticky_probability=0.8), 8
    (phase,) = played([0.0, 1.0], env=env, seeds=[5], test_steps=800, test_episodes=copies)
    host, lengths, moment = HostedEnv(env, seed=5, num_envs=copies, training=False), np.zeros(copies, int), 0
    host.reset()
    while not lengths.all():
        moment += 1
        ended = host.step(np.ones(copies, int)).game_ended
        lengths = np.where(ended & (lengths == 0), moment, lengths)
    assert phase.lengths.tolist() == lengths.tolist() and len(set(lengths.tolist())) > 2


def test_different_games_are_told_apart():
    env = Corridor(REWARDS)
    recipe = Recipe(linear_network(3), LEARNER.update)
    params = {"q": {"w": jnp.zeros((1, 3, 2)), "b": jnp.asarray([[0.0, 1.0]])}}
    loop = replace(LOOP, test_epsilon=0.5, test_steps=800, test_episodes=8)
    (phase,) = device_evaluation.play(env, recipe, params, [0], loop)
    assert len(set(phase.lengths.tolist())) > 1 and not phase.identical


def test_a_budget_without_a_step_is_refused():
    with pytest.raises(ValueError, match=r"leaves no step for each of loop.test_episodes \(8\) games"):
        played([0.0, 1.0], test_steps=7, test_episodes=8)
