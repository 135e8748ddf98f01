"""Parts of a recipe in the learner: what an update, an action and the measured gradients make of them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.learning import learner
from softbellman.learning.diagnostics import gradient_statistics
from softbellman.learning.learner import LearnerState, td_loss
from softbellman.learning.networks import mlp
from softbellman.learning.parts.estimates import Ensemble, Quantiles, Value
from softbellman.learning.parts.heads import Noisy, NoNoise
from softbellman.learning.parts.risks import CVaR
from softbellman.learning.parts.sampling import Prioritised
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import UpdateSettings

ACTIONS, OBS = 3, np.ones((1, 1), np.float32)
SETTINGS = UpdateSettings(reward_clip=None)
NETWORK = mlp((1,), ACTIONS, ())
NOISY = Recipe(Noisy(0.5).added(NETWORK), SETTINGS)
KEYS = jax.random.split(jax.random.key(7), 50)


def batch_of(actions, **changes):
    """One observation, before and after each action."""
    obs, zeros = np.tile(OBS, (len(actions), 1)), np.zeros(len(actions), np.float32)
    return Transition(obs, jnp.asarray(actions, jnp.int32), zeros, zeros + 1, obs)._replace(**changes)


def with_outputs(recipe, outputs):
    """Parameters of a linear network that gives these outputs, whatever it sees."""
    params = jax.tree.map(jnp.zeros_like, recipe.network.init(jax.random.key(0)))
    params["q"]["b"] = jnp.asarray(outputs, jnp.float32).ravel()
    return params


# ------------------------------------------------------------------------------------------------------------ noise


def test_noise_is_one_draw_of_an_update_for_both_observations_and_another_for_the_target():
    params = NOISY.network.init(jax.random.key(0))

    @jax.jit
    def seen(key, action):
        """The online values of the action at `obs`, and the target's and the online values at `next_obs`."""
        values = []

        def operator(q, q_online):
            values.extend([q[0], q_online[0]])
            return q.max(axis=-1)

        _, metrics = td_loss(params, params, operator, batch_of(action[None]), NOISY, key)
        return metrics.q_taken, *values

    here, target, after = (np.asarray(each) for each in jax.vmap(seen, (None, 0))(KEYS[1], jnp.arange(ACTIONS)))
    np.testing.assert_allclose(here, after[0], rtol=1e-6)
    quiet = np.asarray(NOISY.q(params, OBS))[0]
    *_, other = seen(KEYS[2], jnp.int32(0))
    for one, unlike in ((after[0], target[0]), (after[0], quiet), (target[0], quiet), (after[0], other)):
        assert np.abs(one - unlike).min() > 1e-3


def test_training_acts_under_noise_drawn_for_each_step_and_tests_act_without():
    params = with_outputs(NOISY, [0.0, 0.1, 0.0])
    params["q"]["b_noise"] += 1.0
    obs = np.tile(OBS, (4, 1))
    act, greedily = (
        jax.jit(jax.vmap(lambda key, of=of: of(NOISY, params, obs, key, jnp.zeros(4))))(KEYS)
        for of in (learner.act, learner.act_greedily)
    )
    steps = np.asarray(act)
    assert set(steps.ravel().tolist()) == {0, 1, 2} and (steps == steps[:, :1]).all()
    np.testing.assert_array_equal(greedily[0], 1)
    np.testing.assert_allclose(greedily[1], 0.1)


# ------------------------------------------------------------------------------------------------------------- risk


def test_training_and_tests_act_by_the_risk_and_values_are_means():
    """The first action returns 1 for sure; the second one -5 or 5, in the mean 2.5."""
    estimate = Quantiles(4)
    network = mlp((1,), ACTIONS, (), outputs=4)
    for risk, action in ({}, 1), ({"risk": CVaR(0.25)}, 0):
        recipe = Recipe(network, SETTINGS, estimate=estimate, **risk)
        params = with_outputs(recipe, [[1, 1, 1, 1], [5, -5, 5, 5], [-9, -9, -9, -9]])
        assert learner.act(recipe, params, OBS, KEYS[0], jnp.zeros(1)).tolist() == [action]
        assert learner.choose(recipe, params, OBS, KEYS[0], jnp.ones(1), jnp.zeros(1)).tolist() == [action]
        tested, value = learner.act_greedily(recipe, params, OBS, KEYS[0], jnp.zeros(1))
        assert (tested.tolist(), value.tolist()) == ([action], [2.5])


# --------------------------------------------------------------------------------------------------------- sampling


@pytest.mark.parametrize(("updates", "beta"), [(0, 0.5), (50, 0.75), (1_000, 1.0)])
def test_losses_are_multiplied_by_the_weights_of_sampling(updates, beta):
    recipe = Recipe(NETWORK, SETTINGS, sampling=Prioritised(0.6, 0.5, 1.0, 100))
    reward, density = np.float32([0.2, 0.6, -0.8]), np.float32([0.5, 2.0, 4.0])
    batch = batch_of([0, 1, 2], reward=reward, discount=np.zeros(3, np.float32), density=density)
    zeros = with_outputs(recipe, np.zeros(ACTIONS))
    loss = jax.jit(jax.value_and_grad(td_loss, has_aux=True), static_argnames="recipe")
    (total, metrics), gradient = loss(zeros, zeros, ops.maximum(), batch, recipe, updates=updates)
    weights = (density / 0.5) ** -beta
    np.testing.assert_allclose(total, np.sum(weights * reward**2) / 2, rtol=1e-5)
    np.testing.assert_allclose(gradient["q"]["b"], -weights * reward, rtol=1e-5)
    np.testing.assert_allclose(metrics.priority, np.abs(reward) ** 0.6, rtol=1e-4)


# --------------------------------------------------------------------------------------------------------- ensemble


def test_a_mix_is_drawn_anew_for_each_update_and_is_the_same_for_values_and_target():
    recipe = Recipe(mlp((1,), 1, (), outputs=3), SETTINGS, estimate=Ensemble(3, "mix"))
    params = with_outputs(recipe, [0.0, 1.0, 5.0])
    state = learner.init(recipe, jax.random.key(0))._replace(params=params, target_params=params)
    update = jax.jit(partial(learner.learn_step, recipe=recipe))
    seen = [update(state._replace(updates=number), ops.maximum(), batch_of([0]))[1] for number in range(10)]
    assert len({float(metrics.q_taken) for metrics in seen}) == 10
    np.testing.assert_allclose([metrics.loss for metrics in seen], 0, atol=1e-9)  # nothing is paid or discounted


# -------------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize(
    ("noise", "estimate", "plain"),
    [(Noisy(0.5), Value(), Value()), (NoNoise(), Ensemble(3, "mix"), Ensemble(3, "mean"))],
    ids=["noise", "mix"],
)
def test_measured_gradients_are_without_noise_and_by_the_mean_of_heads(noise, estimate, plain):
    network = mlp((1,), ACTIONS, (), outputs=estimate.outputs)
    noisy = noise.added(network)
    ours, theirs = Recipe(noisy, SETTINGS, estimate=estimate), Recipe(network, SETTINGS, estimate=plain)
    online, target = (noisy.init(key) for key in KEYS[:2])
    key = jax.random.key_data(KEYS[2])
    state, batches = LearnerState(online, target, (), jnp.int32(3), key), [batch_of([0, 1, 2]), batch_of([2, 2, 1])]
    measured, expected = (gradient_statistics(state, ops.softmax(1.0), batches, each) for each in (ours, theirs))
    assert measured == pytest.approx(expected, rel=1e-6) and measured["gradient_norm"] > 1e-3
