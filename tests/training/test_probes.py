"""The whole loop learns environments so small that the right values are known (after Andy Jones).

Each asks one more thing of it than the one before; the first that fails says which part is at fault.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from softbellman import operators as ops

from .probes import GAMMA, LEARNER, LOOP, TableEnv, counts, envs, make_loop

SOFTMAX_OF_0_AND_1 = 1 / (1 + np.exp(-5.0))
MELLOWMAX_OF_0_AND_1 = np.log((1 + np.exp(5.0)) / 2) / 5
VALUE_OF_0_AND_1 = {
    ops.maximum(): 1.0,
    ops.mean(): 0.5,
    ops.softmax(5.0): SOFTMAX_OF_0_AND_1,
    ops.mellowmax(5.0): MELLOWMAX_OF_0_AND_1,
    ops.double(ops.maximum()): 1.0,
    ops.double(ops.softmax(5.0)): SOFTMAX_OF_0_AND_1,
    ops.double(ops.mellowmax(5.0)): MELLOWMAX_OF_0_AND_1,
}
NOTHING, PLUS, MINUS = [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]  # what is seen of a state

RANDOM = replace(LEARNER, epsilon_end=1.0, update_period_steps=8, target_period_updates=25)
EIGHT = replace(LOOP, num_envs=8, steps=8_000, epoch_steps=8_000)


class ProbeOf(NamedTuple):
    """One question: the tables of an environment, and the values to learn, given the operator's of 0 and 1."""

    tables: dict
    values: object


TWO_STEPS = {"successor": [[1, 1], [0, 0]], "terminal": [[False, False], [True, True]], "features": [PLUS, MINUS]}
PROBES = {
    "is a value learned": ProbeOf({"reward": [[1, 1]], "features": [NOTHING]}, lambda v: [[1, 1]]),
    "is the observation seen": ProbeOf(
        {"reward": [[1, 1], [-1, -1]], "features": [PLUS, MINUS], "starts": (0, 1)}, lambda v: [[1, 1], [-1, -1]]
    ),
    "is the future discounted once": ProbeOf(
        {"reward": [[0, 0], [1, 1]], **TWO_STEPS}, lambda v: [[GAMMA, GAMMA], [1, 1]]
    ),
    "is the value the action's": ProbeOf({"reward": [[-1, 1]], "features": [NOTHING]}, lambda v: [[-1, 1]]),
    "are action and observation seen together": ProbeOf(
        {"reward": [[1, -1], [-1, 1]], "features": [PLUS, MINUS], "starts": (0, 1)}, lambda v: [[1, -1], [-1, 1]]
    ),
    "is the choice ahead the operator's": ProbeOf(
        {"reward": [[0, 0], [0, 1]], **TWO_STEPS}, lambda v: [[GAMMA * v, GAMMA * v], [0, 1]]
    ),
}


@pytest.mark.parametrize("operator", VALUE_OF_0_AND_1, ids=str)
@pytest.mark.parametrize("question", PROBES)
def test_probe(question, operator):
    tables, values = PROBES[question]
    loop = make_loop(operator, lambda: TableEnv(**tables, num_envs=8), learner=RANDOM, loop=EIGHT)
    loop.advance(2_400)
    q = loop.recipe.network.apply(loop.params(0), envs(loop)[0].features)
    np.testing.assert_allclose(q, values(VALUE_OF_0_AND_1[operator]), atol=0.003)  # softmax(5) and max differ by 0.005


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
    loop = make_loop(operator, lambda: TableEnv(**tables, num_envs=8), learner=settings, loop=EIGHT, hidden=())
    loop.advance(8_000)
    q = loop.recipe.network.apply(loop.params(0), np.eye(states, dtype=np.float32))
    np.testing.assert_allclose(q, fixed, atol=0.01)


@pytest.mark.parametrize("operator", [ops.maximum(), ops.softmax(5.0)], ids=str)
def test_l2_a_state_cut_every_few_steps_reaches_the_value_without_cuts(operator):
    """Reward 1 for ever: the value is 1 / (1 - gamma), however short the games are cut."""
    never = [[False, False]]

    def cut_every_three_steps():
        return TableEnv([[1, 1]], [[0, 0]], never, features=[PLUS], time_limit=3, num_envs=8)

    settings = replace(RANDOM, learning_rate=0.03, target_period_updates=10)
    loop = make_loop(operator, cut_every_three_steps, learner=settings, loop=EIGHT)
    loop.advance(4_000)
    np.testing.assert_allclose(loop.recipe.network.apply(loop.params(0), np.array([PLUS], np.float32)), 5.0, rtol=0.02)
    assert counts(loop).episodes > 1_000
