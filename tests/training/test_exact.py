"""Exact answers: distances from optimal values, against values computed by hand and by iteration."""

from dataclasses import replace

import numpy as np
import pytest

from softbellman import envs
from softbellman import operators as ops
from softbellman.analysis.records import Records
from softbellman.envs.hosted import HostedEnv
from softbellman.learning.settings import UpdateSettings
from softbellman.tabular import solve
from softbellman.tabular.examples import EXAMPLES
from softbellman.training.evaluation import RAW
from softbellman.training.exact import exact_of

from ..studies import TINY, trained
from . import probes


def exact(name, update=RAW):
    return exact_of(HostedEnv(envs.make_device(f"mdp/{name}"), seed=0), update)


def distances(error, bias, loss):
    return {"value_error": error, "value_bias": bias, "policy_loss": loss}


def optimal(name, **settings):
    mdp = EXAMPLES[name](**settings)
    return mdp, solve(mdp, ops.maximum()).q


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_optimal_values_have_no_distance_and_shifted_ones_theirs(name):
    mdp, q = optimal(name, gamma=0.9)
    answer = exact(name, UpdateSettings(gamma=0.9, reward_clip=None))
    q = q[~mdp.terminal]
    assert len(answer.obs) == len(q)
    scale = max(1.0, np.abs(q[np.isfinite(q)]).max())
    assert answer.statistics(q) == pytest.approx(distances(0, 0, 0), abs=1e-6 * scale)
    assert answer.statistics(q + 3) == pytest.approx(distances(3, 3, 0), abs=1e-6 * scale)


def test_what_the_worst_policy_loses_is_known():
    """Two actions that pay 1 and 0 for ever: 10 against 0 at a discount factor of 0.9."""
    answer = exact("one-state", UpdateSettings(gamma=0.9, reward_clip=None))
    expected = distances(np.sqrt((10**2 + 5**2) / 2), 4 - 10, 10)
    assert answer.statistics([[0.0, 4.0]]) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["doors", "forest", "small"])
def test_the_value_of_a_policy_is_that_of_its_iteration(name):
    mdp, best = optimal(name, gamma=0.95)
    rng = np.random.default_rng(0)
    answer = exact(name, UpdateSettings(gamma=0.95, reward_clip=None))
    q = rng.normal(size=mdp.reward.shape)
    actions = np.where(mdp.legal, q, -np.inf).argmax(axis=-1)
    values = np.zeros(mdp.num_states)
    for _ in range(2_000):
        values = np.where(mdp.terminal, 0.0, mdp.backup(values)[np.arange(mdp.num_states), actions])
    lost = (best.max(axis=-1) - values)[~mdp.terminal].mean()
    assert answer.statistics(q[~mdp.terminal])["policy_loss"] == pytest.approx(lost)


@pytest.mark.parametrize(("settings", "factor"), [({"reward_scale": 10.0}, 10), ({"reward_scale": 1e-3}, 1e-3)])
def test_rewards_are_those_that_are_learned_from(settings, factor):
    mdp, q = optimal("small", gamma=0.99)
    answer = exact("small", UpdateSettings(reward_clip=None, **settings))
    assert answer.statistics(factor * q) == pytest.approx(distances(0, 0, 0), abs=1e-5 * factor)
    clipped = exact("small", UpdateSettings(reward_clip=1.0, **settings))
    bias = clipped.statistics(factor * q)["value_bias"]
    if factor > 1:
        bounded = solve(EXAMPLES["small"](gamma=0.99).with_reward(np.clip(factor * mdp.reward, -1, 1)), ops.maximum()).q
        assert bias == pytest.approx((factor * q.max(axis=-1) - bounded.max(axis=-1)).mean())
    else:
        assert bias == pytest.approx(0, abs=1e-6)


def test_an_environment_that_is_no_finite_mdp_has_none():
    assert exact_of(HostedEnv(envs.make_device("minatar/breakout"), seed=0), RAW) is None


def test_a_run_writes_them_and_they_are_small_in_the_end(tmp_path):
    values = TINY | {
        "loop.steps": 2_000,
        "loop.epoch_steps": 500,
        "learner.gamma": 0.5,
        "learner.learning_rate": 0.01,
    }
    study, _ = trained(tmp_path / "study", "mdp/small", "classic-control", "max", [0], values)
    (run,) = Records.read(study).runs
    errors, losses = run.column("value_error"), run.column("policy_loss")
    untrained = exact("small", study.config.learner).statistics(np.zeros((2, 2)))
    assert len(errors) == 4 and errors[-1] < untrained["value_error"] / 10 and run.column("value_bias")[-1] < 1
    assert (losses >= -1e-9).all() and losses[-1] == pytest.approx(0, abs=1e-9)
    page = study.report(tmp_path / "page").read_text()
    assert "exact optimal ones" in page and "How much the greedy policy loses" in page


def test_distances_are_those_of_the_online_network():
    settings = replace(probes.LEARNER, target_period_updates=1_000)
    loop = probes.make_loop(ops.maximum(), lambda: HostedEnv(envs.make_device("mdp/small"), seed=0), learner=settings)
    loop.advance(100)
    row, _ = loop.test()[0]
    answer = exact("small", settings)
    expected = answer.statistics(loop.recipe.q(loop.params(0), answer.obs))
    assert {name: row[name] for name in expected} == pytest.approx(expected)
