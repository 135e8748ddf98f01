"""Tightening: penalties for values outside of bounds that the steps around a transition set."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp

from softbellman.gaps import discounted
from softbellman.learning.windows import Window
from softbellman.part import Part, require, require_positive


@dataclass(frozen=True)
class Loose(Part):
    """No bounds."""

    name = "none"
    around = 0  # steps looked at from a transition on, and as many before it

    def tightened(self, losses: Any, taken: Any, window: Any, values: Callable[[Any], Any], unit: Any = None) -> Any:
        """Compute the losses `[B]` with their penalties.

        Args:
            losses: `[B]`, the losses without.
            taken: `[B]`, the values of the actions taken.
            window: steps around the transitions, rewards clipped.
            values: function that gives the target network's values `[B, k, A]` of observations `[B, k, *obs_shape]`.
            unit: what errors are divided by; None: nothing.
        """
        return losses


@dataclass(frozen=True)
class Tightening(Loose):
    """Optimality tightening (He et al., 2017): squared penalties for values outside of bounds of optimal ones.

    With `Q'` the target network's values, and `k` from 1 to `steps`, a value `Q(s_j, a_j)` is to be
    at least `r_j + ... + gamma^k r_{j+k} + gamma^{k+1} max Q'(s_{j+k+1})`, and at most
    `(Q'(s_{j-k-1}, a_{j-k-1}) - r_{j-k-1} - ... - gamma^k r_{j-1}) / gamma^{k+1}`,
    as far as these steps are of its own episode and stored. Deviation D23.
    """

    name = "tightening"
    steps: int = 4
    penalty: float = 4.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        known = isinstance(self.steps, Integral) and 1 <= self.steps <= 100
        require(known, f"steps ({self.steps}) must be an integer in 1 .. 100")
        require_positive("penalty", self.penalty)

    @property
    def around(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The bounds of the nearest step are left out: the lower one is the target."""
        return self.steps + 1

    def tightened(self, losses: Any, taken: Any, window: Window, values: Callable[[Any], Any], unit: Any = None) -> Any:
        """Compute the losses with half the squared penalties, divided by the sum of the weights that count."""
        lower, upper = jax.lax.stop_gradient(self.bounds(window, values))
        errors = [jnp.maximum(lower - taken, 0.0), jnp.maximum(taken - upper, 0.0)]
        total, weights = losses, 1.0
        for error in errors:
            total = total + 0.5 * self.penalty * jnp.square(error if unit is None else error / unit)
            weights = weights + jnp.where(error > 0, self.penalty, 0.0)
        return total / weights

    def bounds(self, window: Window, values: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Compute the highest lower and the lowest upper bound, `[B]` each; infinite where there is none."""
        best = values(window.obs[:, 1:])
        if window.legal is not None:
            best = jnp.where(window.legal[:, 1:], best, -jnp.inf)
        best = best.max(axis=-1)
        past = jnp.take_along_axis(values(window.past_obs[:, 1:]), window.past_action[:, 1:, None], axis=-1)[..., 0]
        total, product = window.reward[:, 0], window.discount[:, 0]
        past_total, past_product = window.past_reward[:, 0], window.past_discount[:, 0]
        lower, upper = jnp.full_like(total, -jnp.inf), jnp.full_like(total, jnp.inf)
        for step in range(1, self.around):
            total, product = total + product * window.reward[:, step], product * window.discount[:, step]
            past_total = window.past_reward[:, step] + window.past_discount[:, step] * past_total
            past_product = past_product * window.past_discount[:, step]
            below = total + discounted(product, best[:, step - 1])
            above = (past[:, step - 1] - past_total) / past_product
            lower = jnp.where(window.there[:, step], jnp.maximum(lower, below), lower)
            upper = jnp.where(window.past_there[:, step], jnp.minimum(upper, above), upper)
        return lower, upper
