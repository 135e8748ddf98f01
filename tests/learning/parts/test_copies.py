"""Several target networks: which are kept, and what they say together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman.learning import learner
from softbellman.learning.networks import mlp
from softbellman.learning.parts.copies import Latest, Past
from softbellman.learning.recipe import Recipe
from softbellman.learning.settings import LearnerSettings

NETWORK = mlp((2,), 3, ())


def biased(value):
    return {"q": {"w": jnp.zeros((2, 3)), "b": jnp.asarray(value, jnp.float32)}}


def test_the_last_copies_are_kept_and_the_oldest_goes():
    recipe = Recipe(NETWORK, LearnerSettings(), target=Past(3, "mean"))
    state = learner.init(recipe, jax.random.key(0))
    obs = jnp.ones((1, 2))
    np.testing.assert_allclose(recipe.target_q(state.target_params, obs), recipe.q(state.params, obs), rtol=1e-6)
    for number in range(5):
        state = learner.copy_target(state._replace(params=biased([number, 0, -number])), recipe)
    np.testing.assert_array_equal(state.target_params["q"]["b"][:, 0], [4, 3, 2])
    np.testing.assert_allclose(recipe.target_q(state.target_params, obs), [[3, 0, -3]])
    lowest = Recipe(NETWORK, LearnerSettings(), target=Past(3, "min"))
    np.testing.assert_allclose(lowest.target_q(state.target_params, obs), [[2, 0, -4]])


def test_one_copy_is_the_latest():
    params, obs = NETWORK.init(jax.random.key(1)), jnp.ones((4, 2))
    for part in (Past(1, "mean"), Past(1, "min")):
        recipe, plain = (Recipe(NETWORK, LearnerSettings(), target=target) for target in (part, Latest()))
        got = recipe.target_q(part.first(params), obs)
        np.testing.assert_array_equal(got, plain.target_q(Latest().first(params), obs))


@pytest.mark.parametrize("arguments", [(0, "mean"), (2.5, "mean"), (3, "median")])
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"copies"):
        Past(*arguments)
