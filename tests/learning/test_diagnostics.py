"""Measured quantities against NumPy: values on a table of Q, gradients of a linear network."""

import jax
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.learning.diagnostics import gradient_statistics, value_statistics
from softbellman.learning.learner import LearnerState, td_loss
from softbellman.learning.networks import mlp
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings
from softbellman.training.metrics import columns

GAMMA = 0.9
STATES, ACTIONS = 700, 4  # more than two chunks, and a remainder
SETTINGS = LearnerSettings(gamma=GAMMA)
TABLE = mlp((STATES,), ACTIONS, hidden=())  # fed with the states one-hot, its weights are its values
FEATURES = mlp((3,), ACTIONS, hidden=())


def state_of(online, target):
    def params(weights):
        return {"q": {"w": np.float32(weights), "b": np.zeros(np.shape(weights)[1], np.float32)}}

    return LearnerState(params(online), params(target), (), np.int32(0))


@pytest.fixture(scope="module")
def table():
    """Values of the online and of the target network, `[S, A]` each, and the state that holds them."""
    rng = np.random.default_rng(0)
    online, target = rng.normal(size=(2, STATES, ACTIONS))
    return online, target, state_of(online, target)


def boltzmann(q, tau):
    weights = np.exp(tau * (q - q.max(-1, keepdims=True)))
    return weights / weights.sum(-1, keepdims=True)


def by_hand(online, target, value, slope, policy):
    """All statistics from the operator's value, the l1 norm of its gradient, and its policy on the online values."""
    ordered = np.sort(online, axis=-1)
    return {
        "held_out_value": online.max(-1).mean(),
        "held_out_operator_value": value.mean(),
        "action_gap": (ordered[:, -1] - ordered[:, -2]).mean(),
        "policy_entropy": -np.sum(policy * np.log(np.where(policy > 0, policy, 1)), -1).mean(),
        "operator_gap": (target.max(-1) - value).mean(),
        "operator_slope": GAMMA * slope.mean(),
        "q_std": online.std(-1).mean(),
    }


def expectation(name, online, target):
    tau, ones = 2.0, np.ones(STATES)
    weights, of_target = boltzmann(online, tau), boltzmann(target, tau)
    if name == "max":
        return by_hand(online, target, target.max(-1), ones, np.eye(ACTIONS)[online.argmax(-1)])
    if name == "mean":
        return by_hand(online, target, target.mean(-1), ones, np.full((STATES, ACTIONS), 1 / ACTIONS))
    if name == "softmax(2)":
        value = (of_target * target).sum(-1)
        slope = np.abs(of_target * (1 + tau * (target - value[:, None]))).sum(-1)
        return by_hand(online, target, value, slope, weights)
    assert name == "double(softmax(2))"
    return by_hand(online, target, (weights * target).sum(-1), ones, weights)


@pytest.mark.parametrize(
    "operator", [ops.maximum(), ops.mean(), ops.softmax(2.0), ops.double(ops.softmax(2.0))], ids=str
)
def test_value_statistics_equal_numpy(operator, table):
    online, target, state = table
    got = value_statistics(state, operator, np.eye(STATES, dtype=np.float32), Recipe(TABLE, SETTINGS))
    assert got == pytest.approx(expectation(str(operator), online, target), rel=1e-4)
    assert set(got) <= set(columns()) and all(type(value) is float for value in got.values())


def test_value_statistics_of_mellowmax(table):
    online, target, state = table
    omega = 2.0
    value = target.max(-1) + np.log(np.exp(omega * (target - target.max(-1, keepdims=True))).mean(-1)) / omega
    got = value_statistics(state, ops.mellowmax(omega), np.eye(STATES, dtype=np.float32), Recipe(TABLE, SETTINGS))
    assert got["held_out_operator_value"] == pytest.approx(value.mean(), rel=1e-4)
    assert got["operator_gap"] == pytest.approx((target.max(-1) - value).mean(), rel=1e-4)
    assert got["operator_slope"] == pytest.approx(GAMMA, rel=1e-5)  # a non-expansion, whatever omega
    # Its policy averages the online values to their mellowmax, and of all that do it has the largest entropy.
    assert np.log(ACTIONS) > got["policy_entropy"] > expectation("softmax(2)", online, target)["policy_entropy"]


def test_a_slope_above_one_marks_an_expansive_operator():
    """q = (0, 3) at tau 1 has the gradient (-0.0881, 1.0881), of norm 1.1763."""
    q = np.tile([[0.0, 3.0]], (2, 1))
    network = mlp((2,), 2, hidden=())
    got = value_statistics(
        state_of(q, q), ops.softmax(1.0), np.eye(2, dtype=np.float32), Recipe(network, LearnerSettings(gamma=0.99))
    )
    assert got["operator_slope"] == pytest.approx(0.99 * 1.1763, rel=1e-4)
    assert got["operator_slope"] > 1


def test_one_action_has_no_gap_and_no_entropy():
    network = mlp((2,), 1, hidden=())
    state = state_of([[1.0], [-2.0]], [[0.5], [3.0]])
    got = value_statistics(state, ops.mellowmax(5.0), np.eye(2, dtype=np.float32), Recipe(network, SETTINGS))
    assert got["action_gap"] == got["policy_entropy"] == got["q_std"] == 0
    assert got["operator_gap"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    "operator", [ops.maximum(), ops.mean(), ops.softmax(2.0), ops.mellowmax(2.0), ops.double(ops.softmax(2.0))], ids=str
)
def test_illegal_actions_count_nowhere(operator, table):
    """With masks the statistics are those of the legal actions alone, however good the others look."""
    online, target, _ = table
    rng = np.random.default_rng(3)
    legal = rng.random((STATES, ACTIONS)) < 0.6
    legal[np.arange(STATES), rng.integers(ACTIONS, size=STATES)] = True
    state = state_of(np.where(legal, online, 50.0), np.where(legal, target, 90.0))
    got = value_statistics(state, operator, np.eye(STATES, dtype=np.float32), Recipe(TABLE, SETTINGS), legal)
    expected = dict.fromkeys(got, 0.0)
    for here, q, q_target in zip(legal, online, target, strict=True):
        q, q_target = q[here], q_target[here]
        ordered, policy = np.sort(q), operator.weights(q)
        value = float(operator(q_target, q))
        one = {
            "held_out_value": q.max(),
            "held_out_operator_value": value,
            "action_gap": ordered[-1] - ordered[-2] if len(q) > 1 else 0.0,
            "policy_entropy": -np.sum(policy * np.log(np.where(policy > 0, policy, 1))),
            "operator_gap": q_target.max() - value,
            "operator_slope": GAMMA * np.abs(operator.gradient(q_target, q)).sum(),
            "q_std": q.std(),
        }
        expected = {name: expected[name] + one[name] / STATES for name in expected}
    assert got == pytest.approx(expected, rel=1e-4, abs=1e-6)
    everything = np.ones((STATES, ACTIONS), bool)
    plain, masked = (
        value_statistics(table[2], operator, np.eye(STATES, dtype=np.float32), Recipe(TABLE, SETTINGS), mask)
        for mask in (None, everything)
    )
    assert plain == pytest.approx(masked, rel=1e-5, abs=1e-6)


def batches_of(num, size=16):
    rng = np.random.default_rng(1)
    return [
        Transition(
            rng.normal(size=(size, 3)).astype(np.float32),
            rng.integers(ACTIONS, size=size).astype(np.int32),
            rng.normal(0, 3, size).astype(np.float32),
            np.where(rng.random(size) < 0.8, GAMMA, 0).astype(np.float32),
            rng.normal(size=(size, 3)).astype(np.float32),
        )
        for _ in range(num)
    ]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_gradient_statistics_equal_numpy(reduction):
    rng = np.random.default_rng(2)
    online, target = rng.normal(size=(2, 3, ACTIONS))
    batches, settings = batches_of(6), LearnerSettings(gamma=GAMMA, loss_reduction=reduction)
    gradients = []
    for batch in batches:
        q, q_next, selector = batch.obs @ online, batch.next_obs @ target, batch.next_obs @ online
        aim = np.clip(batch.reward, -1, 1) + batch.discount * (boltzmann(selector, 2.0) * q_next).sum(-1)
        error = aim - q[np.arange(16), batch.action]
        gradient = np.zeros((3, ACTIONS))
        for x, action, d in zip(batch.obs, batch.action, error, strict=True):
            gradient[:, action] -= np.clip(d, -1, 1) * x
        gradients.append(gradient if reduction == "sum" else gradient / 16)
    flat = np.array(gradients).reshape(6, -1)
    expected = {
        "gradient_norm": np.linalg.norm(flat, axis=1).mean(),
        "gradient_norm_of_mean": np.linalg.norm(flat.mean(0)),
        "gradient_variance": ((flat - flat.mean(0)) ** 2).mean(),
        "gradient_mean": flat.mean(),
    }
    state = state_of(online, target)
    got = gradient_statistics(state, ops.double(ops.softmax(2.0)), batches, Recipe(FEATURES, settings))
    assert got == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert set(got) <= set(columns()) and all(type(value) is float for value in got.values())
    assert got["gradient_norm_of_mean"] < got["gradient_norm"]


def test_gradient_statistics_look_at_the_last_layer_alone():
    """Of a deeper network: the gradient of the last weights, not of biases and not of other layers."""
    network, rng = mlp((3,), ACTIONS, hidden=(5,)), np.random.default_rng(3)
    shapes, batches = jax.eval_shape(network.init, jax.random.key(0)), batches_of(1)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    gradient = jax.jit(jax.grad(td_loss, has_aux=True), static_argnames="recipe")
    full, _ = gradient(params, params, ops.maximum(), batches[0], Recipe(network, SETTINGS))
    got = gradient_statistics(LearnerState(params, params, (), 0), ops.maximum(), batches, Recipe(network, SETTINGS))
    assert got["gradient_norm"] == pytest.approx(float(np.linalg.norm(full["q"]["w"])), rel=1e-5)
    assert got["gradient_norm"] == got["gradient_norm_of_mean"] and got["gradient_variance"] == 0
