"""Exploration by an operator's weights, in frequencies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.learning import learner
from softbellman.learning.networks import mlp
from softbellman.learning.parts.exploration import Greedy, Policy, boltzmann
from softbellman.learning.recipe import Recipe
from softbellman.learning.settings import LearnerSettings

Q = np.float32([0.3, 1.0, -0.4, 0.9])
PARAMS = {"q": {"w": np.zeros((1, 4), np.float32), "b": Q}}
COPIES = 40_000


def frequencies(exploration, epsilon, legal=None):
    recipe = Recipe(mlp((1,), 4, ()), LearnerSettings(), exploration=exploration)
    mask = None if legal is None else jnp.tile(jnp.asarray(legal), (COPIES, 1))
    act = jax.jit(learner.act, static_argnames="recipe")
    actions = act(recipe, PARAMS, jnp.zeros((COPIES, 1)), jax.random.key(0), np.float32(epsilon), mask)
    return np.bincount(actions, minlength=4) / COPIES


@pytest.mark.parametrize("operator", [ops.softmax(2.0), ops.mellowmax(4.0), ops.maximum(), ops.sparsemax(1.0)], ids=str)
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_actions_have_the_operators_weights(operator, epsilon):
    expected = epsilon / 4 + (1 - epsilon) * operator.weights(Q)
    np.testing.assert_allclose(frequencies(Policy(operator), epsilon), expected, atol=0.012)


def test_illegal_actions_are_never_taken():
    legal = np.array([True, False, True, True])
    for exploration, weights in (
        (Policy(ops.softmax(2.0)), ops.softmax(2.0).weights(Q, legal)),
        (Greedy(), np.eye(4)[3]),
    ):
        got = frequencies(exploration, 0.3, legal)
        np.testing.assert_allclose(got, 0.3 * legal / 3 + 0.7 * weights, atol=0.012)
        assert got[1] == 0


def test_a_chance_at_the_end_of_its_range_takes_an_action_that_has_weight():
    q = jnp.asarray([[0.0, 0.0, -jnp.inf]])
    legal = jnp.asarray([[True, True, False]])
    assert int(Policy(ops.softmax(1.0)).actions(q, jnp.asarray([1.0]), legal)[0]) == 1


def test_values_that_are_no_numbers_lead_to_a_legal_action():
    """A run that diverged goes on with others until that is noticed, and an environment refuses an illegal action."""
    q, legal = jnp.full((1, 3), jnp.nan), jnp.asarray([[False, True, True]])
    assert int(Policy(ops.softmax(2.0)).actions(q, jnp.asarray([0.5]), legal)[0]) in (1, 2)


def test_boltzmann_is_the_policy_of_softmax():
    assert boltzmann(5.0) == Policy(ops.softmax(5.0)) and str(boltzmann(5.0)) == "policy(softmax(5))"
    with pytest.raises(ValueError, match="is no operator"):
        Policy(3.0)


class Unclaimed(ops.Maximum):
    """A maximum that claims nothing."""

    laws = ops.Laws()


@pytest.mark.parametrize(
    "operator",
    [ops.deviation(2.0), ops.double(ops.deviation(0.5)), ops.clipped_double(ops.deviation(1.0)), Unclaimed()],
)
def test_weights_that_are_no_policy_explore_nothing(operator):
    with pytest.raises(ValueError, match="which are no policy: it does not claim weights_are_policy; take"):
        Policy(operator)
