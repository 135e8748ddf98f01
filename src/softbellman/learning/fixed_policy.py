"""Policy of a network whose parameters stay as they are: values and best actions, for one observation or many."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.learning.networks import Params
from softbellman.learning.parts.exploration import greedy
from softbellman.learning.recipe import Recipe


class FixedPolicy:
    """Values and best actions of a network."""

    def __init__(self, recipe: Recipe, params: Params, obs_shape: tuple[int, ...]) -> None:
        """Take a network.

        Args:
            recipe: the recipe that it was trained by.
            params: its parameters.
            obs_shape: shape of one observation as it was laid out for the network, which scales it itself.
        """
        self._recipe, self._params, self._shape = recipe, params, tuple(obs_shape)

    def q(self, obs: Any) -> np.ndarray:
        """Compute action values, `[A]` of one observation `[*obs_shape]`, `[B, A]` of many `[B, *obs_shape]`."""
        return self._of_each(_values, obs)

    def act(self, obs: Any, legal: Any = None) -> np.ndarray:
        """Choose the best actions among the legal ones, `[]` or `[B]` int32; None: all are legal."""
        return self._of_each(_best, obs, *(() if legal is None else (legal,)))

    def _of_each(self, compute: Any, obs: Any, *more: Any) -> np.ndarray:
        obs, is_one = np.asarray(obs), np.ndim(obs) == len(self._shape)
        if obs.shape[not is_one :] != self._shape:
            raise ValueError(f"an observation has the shape {list(self._shape)}, and obs has {list(obs.shape)}")
        given = [np.asarray(each)[None] if is_one else np.asarray(each) for each in (obs, *more)]
        computed = np.asarray(compute(self._recipe, self._params, *given))
        return computed[0] if is_one else computed


@partial(jax.jit, static_argnames=("recipe",))
def _values(recipe: Recipe, params: Params, obs: jax.Array) -> jax.Array:
    return recipe.q(params, obs)


@partial(jax.jit, static_argnames=("recipe",))
def _best(recipe: Recipe, params: Params, obs: jax.Array, legal: Any = None) -> jax.Array:
    return greedy(recipe.acting_q(params, jnp.asarray(obs)), legal)
