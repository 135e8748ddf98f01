"""Gaps against the published recursions, written out in NumPy, and rlax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.gaps import (
    AdvantageGap,
    PersistentAdvantageGap,
    PersistentGap,
    UndiscountedPersistentGap,
)
from softbellman.learning.learner import td_loss
from softbellman.learning.networks import mlp
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings

B, S, A, ALPHA = 40, 6, 4, 0.7
NETWORK = mlp((S,), A, hidden=())
SQUARED = LearnerSettings(reward_clip=None, huber_delta=1e30, loss_reduction="sum")


@pytest.fixture(scope="module")
def problem():
    """Tables of the online and target network, and transitions between one-hot states."""
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(2, S, A)).astype(np.float32)
    state, after = rng.integers(S, size=(2, B))
    reward = rng.normal(size=B).astype(np.float32)
    discount = (0.9 * (rng.random(B) < 0.7)).astype(np.float32)
    return tables, state, rng.integers(A, size=B), reward, discount, after


def target_of(problem, operator, gap, **parts):
    """The targets that an update sees: the gradient of the squared loss at each taken value gives the error."""
    (online, target), state, action, reward, discount, after = problem
    recipe = Recipe(NETWORK, SQUARED, gap=gap, **parts)
    params = [{"q": {"w": jnp.asarray(q), "b": jnp.zeros(A)}} for q in (online, target)]
    eye, targets = np.eye(S, dtype=np.float32), []
    loss = jax.jit(jax.grad(td_loss, has_aux=True), static_argnames="recipe")
    for i in range(B):
        batch = Transition(
            eye[state[i : i + 1]], action[i : i + 1], reward[i : i + 1], discount[i : i + 1], eye[after[i : i + 1]]
        )
        gradient, _ = loss(*params, operator, batch, recipe=recipe)
        targets.append(online[state[i], action[i]] - gradient["q"]["w"][state[i], action[i]])
    return np.array(targets)


def by_hand(problem):
    (online, target), state, action, reward, discount, after = problem
    return online, target, np.float64(target[state]), action, reward, discount, np.float64(target[after])


def taken(q, action):
    return q[np.arange(B), action]


def logsumexp(q, tau):
    return np.log(np.exp(tau * q).sum(-1)) / tau


def test_advantage_learning(problem):
    *_, here, action, reward, discount, after = by_hand(problem)
    expected = reward + discount * after.max(-1) - ALPHA * (here.max(-1) - taken(here, action))
    np.testing.assert_allclose(target_of(problem, ops.maximum(), AdvantageGap(ALPHA)), expected, rtol=1e-5, atol=1e-5)


def test_persistent_advantage_learning_is_the_larger_of_two_targets(problem):
    *_, here, action, reward, discount, after = by_hand(problem)
    advantage = reward + discount * after.max(-1) - ALPHA * (here.max(-1) - taken(here, action))
    stays = reward + discount * taken(after, action)
    got = target_of(problem, ops.maximum(), PersistentAdvantageGap(ALPHA))
    np.testing.assert_allclose(got, np.maximum(advantage, stays), rtol=1e-5, atol=1e-5)
    assert (advantage > stays).any() and (advantage < stays).any()
    other = target_of(problem, ops.maximum(), UndiscountedPersistentGap(ALPHA))
    plain = reward + discount * after.max(-1)
    larger = np.maximum(taken(here, action) - here.max(-1), taken(after, action) - after.max(-1))
    np.testing.assert_allclose(other, plain + ALPHA * larger, rtol=1e-5, atol=1e-5)
    assert not np.allclose(got, other)


def test_persistent_q_learning_agrees_with_rlax(problem):
    rlax = pytest.importorskip("rlax")
    (online, target), state, action, reward, discount, after = problem
    error = jax.vmap(rlax.persistent_q_learning, in_axes=(0, 0, 0, 0, 0, None))(
        jnp.asarray(online[state]), action, reward, discount, jnp.asarray(target[after]), ALPHA
    )
    got = target_of(problem, ops.maximum(), PersistentGap(ALPHA))
    np.testing.assert_allclose(got, online[state, action] + error, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("floor", [-0.5, -np.inf])
def test_munchausen_dqn(problem, floor):
    """Vieillard et al. (2020), eq. 1 and its clipping, with the policy softmax(q / temperature)."""
    *_, here, action, reward, discount, after = by_hand(problem)
    temperature, tau = 0.3, 1 / 0.3
    scaled_log = [q - logsumexp(q, tau)[:, None] for q in (here, after)]  # temperature * log pi
    policy = np.exp(scaled_log[1] / temperature)
    bonus = np.clip(taken(scaled_log[0], action), floor, 0)
    expected = reward + ALPHA * bonus + discount * (policy * (after - scaled_log[1])).sum(-1)
    got = target_of(problem, ops.logsumexp(tau), AdvantageGap(ALPHA, -floor))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_conservative_value_iteration_and_dynamic_policy_programming(problem):
    """Kozuno et al. (2019): `psi <- r + gamma m(psi') + alpha (psi - m(psi))`, m mellowmax; alpha 1 is DPP."""
    *_, here, action, reward, discount, after = by_hand(problem)
    omega = 2.0
    soft_here, soft_after = (logsumexp(q, omega) - np.log(A) / omega for q in (here, after))
    for alpha in (0.4, 1.0):
        expected = reward + discount * soft_after + alpha * (taken(here, action) - soft_here)
        got = target_of(problem, ops.mellowmax(omega), AdvantageGap(alpha))
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    q = jnp.asarray(here, jnp.float32)
    np.testing.assert_allclose(ops.logsumexp(omega)(q), ops.mellowmax(omega)(q) + np.log(A) / omega, rtol=1e-6)


def test_a_double_operator_has_the_gap_of_both_networks(problem):
    online, _, here, action, reward, discount, after = by_hand(problem)
    _, state, *_, successor = problem
    best_here, best_after = online[state].argmax(-1), online[successor].argmax(-1)
    gap = taken(here, best_here) - taken(here, action)
    expected = reward + discount * taken(after, best_after) - ALPHA * gap
    got = target_of(problem, ops.double(ops.maximum()), AdvantageGap(ALPHA))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [AdvantageGap, PersistentAdvantageGap, PersistentGap])
@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_an_alpha_out_of_range_is_refused(make, alpha):
    with pytest.raises(ValueError, match=r"alpha .* must be in 0 .. 1"):
        make(alpha)
    with pytest.raises(ValueError, match="ceiling"):
        AdvantageGap(0.5, -1.0)
