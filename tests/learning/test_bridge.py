"""The bridge from deep to tabular: with a weight for each state and action, training is iteration with the operator."""

import jax
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman import tabular
from softbellman.gaps import as_gap
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


def learned(operator, batch, states, num_actions, gamma, **parts):
    """The values `[S, A]` that a network with a weight for each comes to, learning from all transitions at once."""
    settings = LearnerSettings(gamma=gamma, learning_rate=0.02, reward_clip=None)
    network, one_hot = mlp((states,), num_actions, hidden=()), np.eye(states, dtype=np.float32)
    recipe = Recipe(network, settings, **parts)

    @jax.jit
    def period(state):
        def update(state, _):
            return learner.learn_step(state, operator, batch, recipe)[0], None

        return jax.lax.scan(update, learner.copy_target(state, recipe), length=60)[0]

    state = jax.jit(learner.init, static_argnames="recipe")(recipe, jax.random.key(0))
    for _ in range(40):
        state = period(state)
    assert state.updates == 2400
    return np.asarray(network.apply(state.params, one_hot))


def all_transitions(reward, discount, successor, legal=None):
    """Every action in every state once, or every legal one."""
    one_hot = np.eye(len(reward), dtype=np.float32)
    state, action = (index.ravel() for index in np.indices(reward.shape))
    batch = Transition(
        one_hot[state],
        action.astype(np.int32),
        reward.ravel().astype(np.float32),
        discount.ravel().astype(np.float32),
        one_hot[successor.ravel()],
    )
    if legal is None:
        return batch
    batch = batch._replace(legal=legal[state], next_legal=legal[successor.ravel()])
    return jax.tree.map(lambda leaf: leaf[legal.ravel()], batch)


def deterministic(seed=5, states=6, num_actions=3, gamma=0.7):
    rng = np.random.default_rng(seed)
    reward = rng.uniform(-1, 1, (states, num_actions))
    discount = gamma * (rng.random((states, num_actions)) < 0.9)
    return reward, discount, rng.integers(states, size=(states, num_actions))


@pytest.mark.parametrize(("operator", "by_hand"), BRIDGE, ids=[str(operator) for operator, _ in BRIDGE])
def test_the_learner_reaches_the_fixed_point_of_its_operator(operator, by_hand):
    reward, discount, successor = deterministic()
    fixed = np.zeros(reward.shape)
    for _ in range(200):
        fixed = reward + discount * by_hand(fixed)[successor]
    assert np.abs(fixed - reward - discount * by_hand(fixed)[successor]).max() < 1e-12
    got = learned(operator, all_transitions(reward, discount, successor), *reward.shape, 0.7)
    np.testing.assert_allclose(got, fixed, atol=2e-4)


def as_mdp(reward, discount, successor, gamma, legal):
    """The same transitions as a finite MDP; its last state is the end."""
    states, num_actions = reward.shape
    kernel = np.zeros((states + 1, num_actions, states + 1))
    onward = np.where(discount > 0, successor, states)
    np.put_along_axis(kernel[:-1], onward[..., None], 1.0, axis=2)
    terminal, end = np.arange(states + 1) == states, np.ones((1, num_actions), bool)
    padded = np.vstack([reward, np.zeros((1, num_actions))])
    return tabular.FiniteMDP(kernel, padded, gamma, terminal=terminal, legal=np.vstack([legal, end]))


GAPPED = [ops.maximum(), ops.softmax(5.0), ops.mellowmax(5.0), ops.logsumexp(5.0)]


@pytest.mark.parametrize("masked", [False, True], ids=["all legal", "masked"])
@pytest.mark.parametrize("gap", ["none", "gap(0.5)", "persistent(0.5)", "persistent_q(0.5)"])
@pytest.mark.parametrize("operator", GAPPED, ids=str)
def test_the_learner_reaches_what_the_solver_finds(operator, gap, masked):
    """With a gap, with illegal actions, and with both: an illegal action is neither learned nor averaged over."""
    reward, discount, successor = deterministic(gamma=0.6)
    rng = np.random.default_rng(1)
    legal = rng.random(reward.shape) < (0.6 if masked else 1.0)
    legal[np.arange(len(reward)), rng.integers(reward.shape[1], size=len(reward))] = True
    batch = all_transitions(reward - 1, discount, successor, legal if masked else None)
    got = learned(operator, batch, *reward.shape, 0.6, gap=as_gap(gap))
    solution = tabular.solve(as_mdp(reward - 1, discount, successor, 0.6, legal), operator, gap=gap)
    assert solution.converged
    np.testing.assert_allclose(got[legal], solution.q[:-1][legal], atol=1e-3)


def test_the_operators_of_the_bridge_have_different_fixed_points():
    q = np.array([[0.0, 0.3, 0.5]])
    values = {round(float(operator(q, q)[0]), 6) for operator, _ in BRIDGE}
    assert len(values) == 4  # double(softmax) and softmax are one where there is one Q
