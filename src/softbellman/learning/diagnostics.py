"""Diagnostics of a learner: values, statistics of the operator on them, gradients.

Every quantity is defined here once; names are the columns of `metrics.csv`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from softbellman.learning.learner import LearnerState, td_loss
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition

_CHUNK = 320


class ValueStatistics(NamedTuple):
    """Means over held-out states `s`, illegal actions left out. `Q` is the online network, `Q'` the target network.

    Attributes:
        held_out_value: `max_a Q(s, a)`, the paper's "estimated Q-values" (Figs. 3 and 4), for every operator.
        held_out_operator_value: `op(Q'(s), Q(s))`, what the operator would hand to a target.
        action_gap: best minus second-best of `Q(s)`; 0 where there is but one action.
        policy_entropy: entropy, in nats, of the operator's policy `op.weights(Q(s))`.
        operator_gap: `max_a Q'(s, a) - op(Q'(s), Q(s))`.
        operator_slope: `gamma` times the l1 norm of the operator's gradient at `Q'(s)`; above 1 the operator is
            locally expansive.
        q_std: standard deviation of `Q(s)` over the actions: the scale that gives tau its meaning.
    """

    held_out_value: jax.Array
    held_out_operator_value: jax.Array
    action_gap: jax.Array
    policy_entropy: jax.Array
    operator_gap: jax.Array
    operator_slope: jax.Array
    q_std: jax.Array


class GradientStatistics(NamedTuple):
    """Statistics of the loss gradient in the last layer's weights, over independent minibatches.

    Attributes:
        gradient_norm: mean of the l2 norms (the quantity of the paper's Figs. 5 and 6; Deviation D15).
        gradient_norm_of_mean: l2 norm of the mean gradient.
        gradient_variance: population variance over the minibatches, a mean over coordinates, as the authors' code logs.
        gradient_mean: mean over minibatches and coordinates, as the authors' code logs.
    """

    gradient_norm: jax.Array
    gradient_norm_of_mean: jax.Array
    gradient_variance: jax.Array
    gradient_mean: jax.Array


@partial(jax.jit, static_argnames=("recipe",))
def _value_sums(
    state: LearnerState, operator: Any, obs: jax.Array, recipe: Recipe, legal: jax.Array | None
) -> ValueStatistics:
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
    std = q.std(axis=-1, where=legal)
    per_state = (highest.max(axis=-1), value, gap, entropy, highest_target.max(axis=-1) - value, slope, std)
    return ValueStatistics(*(x.sum() for x in per_state))


def value_statistics(
    state: LearnerState, operator: Any, obs: Any, recipe: Recipe, legal: Any = None
) -> dict[str, float]:
    """Computes the means of `ValueStatistics` over held-out observations `[N, *obs_shape]`, in chunks.

    `legal` `[N, A]` bool says which actions are legal there; None: all.
    """
    sums = [
        _value_sums(state, operator, obs[chunk], recipe, None if legal is None else legal[chunk])
        for chunk in (slice(start, start + _CHUNK) for start in range(0, len(obs), _CHUNK))
    ]
    return {
        name: float(sum(float(getattr(part, name)) for part in sums) / len(obs)) for name in ValueStatistics._fields
    }


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
    """Computes `GradientStatistics` over independent minibatches, each with the loss that training uses.

    Minibatches are uniform, and there are no random numbers in it: no noise in the network, the mean of an ensemble,
    no weights of sampling.
    """
    gradients = jnp.stack([_last_layer_gradient(state, operator, batch, recipe) for batch in batches])
    flat = gradients.reshape(len(batches), -1)
    statistics = GradientStatistics(
        jnp.linalg.norm(flat, axis=1).mean(), jnp.linalg.norm(flat.mean(0)), flat.var(0).mean(), flat.mean()
    )
    return {name: float(value) for name, value in statistics._asdict().items()}
