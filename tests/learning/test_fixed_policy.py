"""The policy of parameters that stay as they are: one observation and many, masks, laws of returns."""

import jax
import numpy as np
import pytest

from softbellman.learning.fixed_policy import FixedPolicy
from softbellman.learning.learner import act_greedily
from softbellman.learning.networks import mlp
from softbellman.learning.parts.estimates import Value
from softbellman.learning.parts.table import part
from softbellman.learning.recipe import Recipe
from softbellman.learning.settings import LearnerSettings

OBS = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)


def made(estimate="value"):
    chosen = part("estimate", estimate)
    network = mlp((2, 3), 4, (8,), outputs=chosen.outputs)
    return Recipe(network, LearnerSettings().update, estimate=chosen), network.init(jax.random.key(1))


@pytest.mark.parametrize("estimate", ["value", "quantiles(11)"])
def test_it_acts_as_a_test_phase_without_exploration_does(estimate):
    recipe, params = made(estimate)
    policy = FixedPolicy(recipe, params, (2, 3))
    actions, best = act_greedily(recipe, params, OBS, jax.random.key(0), np.zeros(5, np.float32))
    assert policy.act(OBS).tolist() == np.asarray(actions).tolist()
    np.testing.assert_allclose(policy.q(OBS).max(axis=-1), best, rtol=1e-6)


def test_one_observation_is_one_of_many():
    policy = FixedPolicy(*made(), (2, 3))
    assert policy.q(OBS[3]).shape == (4,) and policy.act(OBS[3]).shape == ()
    np.testing.assert_allclose(policy.q(OBS[3]), policy.q(OBS)[3], rtol=1e-5)
    assert policy.act(OBS[3].tolist()) == policy.act(OBS)[3]


def test_an_illegal_action_is_not_chosen():
    policy = FixedPolicy(*made(), (2, 3))
    best = policy.act(OBS)
    legal = np.ones((5, 4), bool)
    legal[np.arange(5), best] = False
    assert (policy.act(OBS, legal) != best).all()
    assert policy.act(OBS[0], legal[0]) == policy.act(OBS, legal)[0]


@pytest.mark.parametrize("shape", [(3,), (5, 3, 2), (2, 2, 5, 3)])
def test_an_observation_of_another_shape_is_refused(shape):
    policy = FixedPolicy(*made(), (2, 3))
    with pytest.raises(ValueError, match=r"an observation has the shape \[2, 3\], and obs has \["):
        policy.q(np.zeros(shape, np.float32))


def test_values_of_a_plain_estimate_are_the_outputs():
    recipe, params = made()
    assert recipe.estimate == Value()
    values = FixedPolicy(recipe, params, (2, 3)).q(OBS)
    np.testing.assert_allclose(values, recipe.network.apply(params, OBS), rtol=1e-6)
