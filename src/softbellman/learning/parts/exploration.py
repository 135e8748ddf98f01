"""Exploration: the policy of training, by the values of a network and two random numbers."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from softbellman.operators.core import Operator, softmax
from softbellman.part import Part, require


def greedy(q: jax.Array, legal: Any = None) -> jax.Array:
    """Returns the best legal actions `[...]` int32 by values `[..., A]`; ties go to the lowest index."""
    return jnp.argmax(q if legal is None else jnp.where(legal, q, -jnp.inf), axis=-1).astype(jnp.int32)


@dataclass(frozen=True)
class Greedy(Part):
    """The best action, but for a share of random ones: epsilon-greedy."""

    name = "epsilon"

    def actions(self, q: Any, chance: Any, legal: Any = None) -> Any:
        """Choose actions `[E]` int32 where none is to be random.

        Args:
            q: `[E, A]`, values.
            chance: `[E]`, uniform in 0 .. 1, for the choice.
            legal: `[E, A]` bool; None: all.
        """
        return greedy(q, legal)


@dataclass(frozen=True)
class Policy(Greedy):
    """An action drawn from the weights of an operator, but for the share of random ones.

    The weights of softmax are Boltzmann exploration, those of mellowmax its maximum-entropy policy (Asadi and Littman,
    2017), which the paper's footnote 5 explores by.
    """

    name = "policy"
    operator: Operator

    def __post_init__(self) -> None:
        """Check the argument."""
        require(isinstance(self.operator, Operator), f"{self.operator!r} is no operator; write policy(softmax(5))")
        require(
            self.operator.laws.weights_are_policy,
            f"no action can be drawn with the weights of {self.operator}, which are no policy: it does not claim "
            "weights_are_policy; take an operator that does, such as softmax(5)",
        )

    def actions(self, q: Any, chance: Any, legal: Any = None) -> Any:
        """Draw from the operator's weights."""
        weights = self.operator.weights(q, legal)
        reached = jnp.cumsum(weights, axis=-1) > chance[..., None]
        last = jnp.where(weights > 0, jnp.arange(q.shape[-1]), -1).max(axis=-1)  # sums may end a little below 1
        last = jnp.where(last >= 0, last, greedy(q, legal))  # values of a run that diverged have no weights
        return jnp.where(reached.any(axis=-1), jnp.argmax(reached, axis=-1), last).astype(jnp.int32)


def boltzmann(tau: float) -> Policy:
    """Build the exploration that draws from `softmax(tau)`."""
    return Policy(softmax(tau))
