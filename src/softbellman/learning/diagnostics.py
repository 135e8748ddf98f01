"""Diagnostics of a learner: values, statistics of the operator on them, gradients.

Names are the columns of `metrics.csv`; `training.metrics.MEASURES` says what each is.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from softbellman.learning.learner import LearnerState, td_loss
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition

_CHUNK = 320


@partial(jax.jit, static_argnames=("recipe",))
def _value_sums(
    state: LearnerState, operator: Any, obs: jax.Array, recipe: Recipe, legal: jax.Array | None
) -> dict[str, jax.Array]:
    q, q_target = recipe.q(state.params, obs), recipe.target_q(state.target_params, obs)
    if legal is None:
        legally = {}
        highest, highest_target = q, q_target
    else:
        legally = {"where": legal}
        highest, highest_target = (jnp.where(legal, values, -jnp.inf) for values in (q, q_target))
    best_first = -jnp.sort(-highest, axis=-1)
    weights = operator.weights(q, **legally)
    entropy = -jnp.sum(jnp.where(weights > 0, weights * jnp.log(jnp.where(weights > 0, weights, 1.0)), 0.0), axis=-1)
    value = operator(q_target, q, **legally)
    slope = recipe.update.gamma * jnp.sum(jnp.abs(operator.gradient(q_target, q, **legally)), axis=-1)
    gap = best_first[:, 0] - best_first[:, min(1, q.shape[1] - 1)]
    if legal is not None:
        gap = jnp.where(legal.sum(axis=-1) > 1, gap, 0.0)
    per_state = {
        "held_out_value": highest.max(axis=-1),
        "held_out_operator_value": value,
        "action_gap": gap,
        "policy_entropy": entropy,
        "operator_gap": highest_target.max(axis=-1) - value,
        "operator_slope": slope,
        "q_std": q.std(axis=-1, where=legal),
    }
    return {name: values.sum() for name, values in per_state.items()}


def value_statistics(
    state: LearnerState, operator: Any, obs: Any, recipe: Recipe, legal: Any = None
) -> dict[str, float]:
    """Computes statistics of values, means over held-out observations `[N, *obs_shape]`, illegal actions left out.

    `held_out_value` is the paper's "estimated Q-values" (Figs. 3 and 4), the same for every operator: Deviation D34.

    Args:
        state: the learner's state, with the online network's and the target network's parameters.
        operator: the operator.
        obs: the observations; they are taken in chunks.
        recipe: the recipe.
        legal: `[N, A]` bool, which actions are legal there; None: all.
    """
    sums = [
        _value_sums(state, operator, obs[chunk], recipe, None if legal is None else legal[chunk])
        for chunk in (slice(start, start + _CHUNK) for start in range(0, len(obs), _CHUNK))
    ]
    return {name: sum(float(part[name]) for part in sums) / len(obs) for name in sums[0]}


@partial(jax.jit, static_argnames=("recipe",))
def _last_layer_gradient(state: LearnerState, operator: Any, batch: Transition, recipe: Recipe) -> jax.Array:
    name = recipe.network.last_layer

    def loss(last_weights: jax.Array) -> jax.Array:
        params = {**state.params, name: {**state.params[name], "w": last_weights}}
        return td_loss(params, state.target_params, operator, batch, recipe)[0]

    return jax.grad(loss)(state.params[name]["w"])


def gradient_statistics(
    state: LearnerState, operator: Any, batches: list[Transition], recipe: Recipe
) -> dict[str, float]:
    """Computes statistics of the loss's gradient in the last layer's weights, over independent minibatches.

    The loss is the one that training uses. Minibatches are uniform, and there are no random numbers in it: no noise in
    the network, the mean of an ensemble, no weights of sampling. `gradient_norm`, the mean of the norms, is the
    quantity of the paper's Figs. 5 and 6 (Deviation D15).
    """
    gradients = jnp.stack([_last_layer_gradient(state, operator, batch, recipe) for batch in batches])
    flat = gradients.reshape(len(batches), -1)
    statistics = {
        "gradient_norm": jnp.linalg.norm(flat, axis=1).mean(),
        "gradient_norm_of_mean": jnp.linalg.norm(flat.mean(0)),
        "gradient_variance": flat.var(0).mean(),
        "gradient_mean": flat.mean(),
    }
    return {name: float(value) for name, value in statistics.items()}
