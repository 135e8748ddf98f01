"""The bridge from deep to tabular: with a weight for each state and action, training is iteration with the operator."""

import jax
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.learning import learner
from softbellman.learning.networks import mlp
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings


def softmax_of(q, tau):
    weights = np.exp(tau * (q - q.max(-1, keepdims=True)))
    return (weights * q).sum(-1) / weights.sum(-1)


def mellowmax_of(q, omega):
    return q.max(-1) + np.log(np.exp(omega * (q - q.max(-1, keepdims=True))).mean(-1)) / omega


BRIDGE = [
    (ops.maximum(), lambda q: q.max(-1)),
    (ops.mean(), lambda q: q.mean(-1)),
    (ops.softmax(5.0), lambda q: softmax_of(q, 5.0)),
    (ops.mellowmax(5.0), lambda q: mellowmax_of(q, 5.0)),
    (ops.double(ops.softmax(5.0)), lambda q: softmax_of(q, 5.0)),
]


@pytest.mark.parametrize(("operator", "by_hand"), BRIDGE, ids=[str(operator) for operator, _ in BRIDGE])
def test_the_learner_reaches_the_fixed_point_of_its_operator(operator, by_hand):
    states, num_actions, gamma = 6, 3, 0.7
    rng = np.random.default_rng(5)
    reward = rng.uniform(-1, 1, (states, num_actions))
    discount = gamma * (rng.random((states, num_actions)) < 0.9)
    successor = rng.integers(states, size=(states, num_actions))
    fixed = np.zeros((states, num_actions))
    for _ in range(200):
        fixed = reward + discount * by_hand(fixed)[successor]
    assert np.abs(fixed - reward - discount * by_hand(fixed)[successor]).max() < 1e-12

    settings = LearnerSettings(gamma=gamma, learning_rate=0.02, reward_clip=1.0)
    network, one_hot = mlp((states,), num_actions, hidden=()), np.eye(states, dtype=np.float32)
    recipe = Recipe(network, settings)
    state_index, action = (index.ravel() for index in np.indices((states, num_actions)))
    batch = Transition(
        one_hot[state_index],
        action.astype(np.int32),
        reward.ravel().astype(np.float32),
        discount.ravel().astype(np.float32),
        one_hot[successor.ravel()],
    )

    @jax.jit
    def period(state):
        def update(state, _):
            return learner.learn_step(state, operator, batch, recipe)[0], None

        return jax.lax.scan(update, learner.copy_target(state, recipe), length=60)[0]

    state = jax.jit(learner.init, static_argnames="recipe")(recipe, jax.random.key(0))
    for _ in range(40):
        state = period(state)
    np.testing.assert_allclose(network.apply(state.params, one_hot), fixed, atol=2e-4)
    assert state.updates == 2400


def test_the_operators_of_the_bridge_have_different_fixed_points():
    q = np.array([[0.0, 0.3, 0.5]])
    values = {round(float(operator(q, q)[0]), 6) for operator, _ in BRIDGE}
    assert len(values) == 4  # double(softmax) and softmax are one where there is one Q
