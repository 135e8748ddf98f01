"""What the whole loop must learn on environments so small that the right values are known (after Andy Jones).

Each fault in it shows in another of them: the loss, the observations, the discount, the actions, both together.
"""

from dataclasses import replace

import numpy as np
import pytest

from softbellman import operators as ops

from .probes import GAMMA, LEARNER, LOOP, TableEnv, make_loop, network

OPERATORS = [
    ops.maximum(),
    ops.mean(),
    ops.softmax(5.0),
    ops.mellowmax(5.0),
    ops.double(ops.maximum()),
    ops.double(ops.softmax(5.0)),
    ops.double(ops.mellowmax(5.0)),
]
OTHERS = 1.0 / (1.0 + np.exp(5.0))  # softmax's weight of 0 beside 1
OF_ZERO_AND_ONE = {
    "max": 1.0,
    "mean": 0.5,
    "softmax(5)": 1 - OTHERS,
    "mellowmax(5)": np.log((1 + np.exp(5.0)) / 2) / 5,
    "double(max)": 1.0,
    "double(softmax(5))": 1 - OTHERS,
    "double(mellowmax(5))": np.log((1 + np.exp(5.0)) / 2) / 5,
}
ZERO, PLUS, MINUS = [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]

RANDOM = replace(LEARNER, epsilon_end=1.0, update_period_steps=8, target_period_updates=25)
ENVS = replace(LOOP, num_envs=8, steps=4_000, epoch_steps=4_000)


def constant():
    """One step, always a reward of 1: is a value learned at all?"""
    return TableEnv([[1, 1]], features=[ZERO], num_envs=8), [[1, 1]]


def observed():
    """One step, the reward is seen: does the network see its observation?"""
    return TableEnv([[1, 1], [-1, -1]], features=[PLUS, MINUS], starts=(0, 1), num_envs=8), [[1, 1], [-1, -1]]


def delayed():
    """Two steps, a reward at the end: is it discounted, once?"""
    env = TableEnv([[0, 0], [1, 1]], [[1, 1], [0, 0]], np.eye(2, dtype=bool)[[1, 1]].T, features=[PLUS, MINUS])
    return with_copies(env), [[GAMMA, GAMMA], [1, 1]]


def chosen():
    """One step, the reward is the action's: is the value taken that of the action?"""
    return TableEnv([[-1, 1]], features=[ZERO], num_envs=8), [[-1, 1]]


def chosen_and_observed():
    """One step, the right action depends on what is seen."""
    return TableEnv([[1, -1], [-1, 1]], features=[PLUS, MINUS], starts=(0, 1), num_envs=8), [[1, -1], [-1, 1]]


def choice_ahead():
    """Two steps, a choice between 0 and 1 at the second: the operator's own value, discounted, is the first's."""
    env = TableEnv([[0, 0], [0, 1]], [[1, 1], [0, 0]], np.eye(2, dtype=bool)[[1, 1]].T, features=[PLUS, MINUS])
    return with_copies(env), None


def with_copies(env):
    return TableEnv(env.reward, env.successor, env.terminal, features=env.features, num_envs=8)


PROBES = [constant, observed, delayed, chosen, chosen_and_observed, choice_ahead]


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.__name__)
def test_probe(probe, operator):
    env, expected = probe()
    if expected is None:
        ahead = GAMMA * OF_ZERO_AND_ONE[str(operator)]
        expected = [[ahead, ahead], [0, 1]]
    loop = make_loop(operator, lambda: probe()[0], learner=RANDOM, loop=ENVS)
    loop.advance(3_200)
    q = network((2,), 2).apply(loop.params(0), env.features)
    np.testing.assert_allclose(q, expected, atol=0.05)


def test_the_probe_of_a_choice_tells_operators_apart():
    values = sorted(OF_ZERO_AND_ONE.values())
    assert len({round(value, 3) for value in values}) == 4
    gaps = np.diff(sorted({round(GAMMA * value, 9) for value in values}))
    assert gaps.min() > 0.004 and values[0] == 0.5


BRIDGE = [
    (ops.maximum(), lambda q: q.max(-1)),
    (ops.double(ops.softmax(5.0)), lambda q: (np.exp(5 * q) * q).sum(-1) / np.exp(5 * q).sum(-1)),
]


@pytest.mark.parametrize(("operator", "by_hand"), BRIDGE, ids=[str(operator) for operator, _ in BRIDGE])
def test_the_loop_reaches_the_fixed_point_of_its_operator(operator, by_hand):
    """Emulator, replay, minibatches and the paper's optimiser together, against iteration on the tables."""
    rng = np.random.default_rng(1)
    states, num_actions, gamma = 5, 3, 0.7
    tables = {
        "reward": rng.uniform(-1, 1, (states, num_actions)).astype(np.float32),
        "successor": rng.integers(states, size=(states, num_actions)),
        "terminal": rng.random((states, num_actions)) < 0.2,
        "starts": tuple(range(states)),
    }
    fixed = np.zeros((states, num_actions))
    for _ in range(200):
        bootstrap = np.where(tables["terminal"], 0, by_hand(fixed)[tables["successor"]])
        fixed = tables["reward"] + gamma * bootstrap
    settings = replace(RANDOM, gamma=gamma, optimizer="rmsprop", optimizer_epsilon=0.01, learning_rate=0.02)
    settings = replace(settings, loss_reduction="sum", target_period_updates=40)
    loop = make_loop(operator, lambda: TableEnv(**tables, num_envs=8), learner=settings, loop=ENVS, hidden=())
    loop.advance(8_000)
    q = loop.network.apply(loop.params(0), np.eye(states, dtype=np.float32))
    np.testing.assert_allclose(q, fixed, atol=0.01)


@pytest.mark.parametrize("operator", [ops.maximum(), ops.softmax(5.0)], ids=str)
def test_l2_a_state_cut_every_few_steps_reaches_the_value_without_cuts(operator):
    """Reward 1 for ever: the value is 1 / (1 - gamma), however short the games are cut."""
    never = [[False, False]]

    def cut_every_three_steps():
        return TableEnv([[1, 1]], [[0, 0]], never, features=[PLUS], time_limit=3, num_envs=8)

    settings = replace(RANDOM, learning_rate=0.03, target_period_updates=10)
    loop = make_loop(operator, cut_every_three_steps, learner=settings, loop=ENVS)
    loop.advance(4_000)
    np.testing.assert_allclose(network((2,), 2).apply(loop.params(0), np.array([PLUS], np.float32)), 5.0, rtol=0.02)
    assert loop.counters[0].episodes > 1_000
