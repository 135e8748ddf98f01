"""Gaps: the part of an action's gap that its reward loses, so that the gaps of the solution grow.

With `g(s, a) = op(Q'(s), Q(s)) - Q'(s, a)` the target of a transition `s, a, r, s'` is `r - penalty + gamma op(...)`.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from softbellman.learning.parts.part import Part, require


@dataclass(frozen=True)
class Gap(Part):
    """No gap: a reward loses nothing; the base of the others.

    Subclasses say which gaps they need and what a reward loses.
    """

    name = "none"

    def penalty(self, here: Any, after: Any, discount: Any) -> Any:
        """Compute the loss of rewards `[B]`, or give None where nothing is lost.

        Args:
            here: function that gives `g(s, a)`, `[B]`.
            after: function that gives `g(s', a)`, `[B]`: the gap of the same action in the next state.
            discount: `[B]`, `gamma * (1 - terminated)`.
        """
        return None


@dataclass(frozen=True)
class AdvantageGap(Gap):
    """Advantage learning: a reward loses `alpha min(g(s, a), ceiling)`.

    With `max` it is the operator of Bellemare et al. (2016); with `logsumexp(tau)` it is Munchausen-DQN (Vieillard et
    al., 2020), since `log pi(a|s) / tau = -g(s, a)`, and its clipping at `l0` is a ceiling of `-l0`; with
    `mellowmax` it is conservative value iteration, and dynamic policy programming at alpha 1, up to a constant.
    """

    name = "gap"
    alpha: float
    ceiling: float = math.inf

    def __post_init__(self) -> None:
        """Check the numbers."""
        require(0 <= self.alpha <= 1, f"alpha ({self.alpha}) must be in 0 .. 1")
        require(self.ceiling > 0, f"ceiling ({self.ceiling}) must be above 0")

    def penalty(self, here: Any, after: Any, discount: Any) -> Any:
        """Compute `alpha min(g(s, a), ceiling)`."""
        gap = here()
        return self.alpha * (gap if self.ceiling == math.inf else jnp.minimum(gap, self.ceiling))


@dataclass(frozen=True)
class PersistentAdvantageGap(Gap):
    """Persistent advantage learning: a reward loses `alpha min(g(s, a), discount g(s', a))`.

    That is `max(advantage learning, r + gamma ((1 - alpha) op(q') + alpha q'(a)))` (Bellemare et al., 2016).
    """

    name = "persistent"
    alpha: float

    def __post_init__(self) -> None:
        """Check the number."""
        require(0 <= self.alpha <= 1, f"alpha ({self.alpha}) must be in 0 .. 1")

    def penalty(self, here: Any, after: Any, discount: Any) -> Any:
        """Compute `alpha min(g(s, a), discount g(s', a))`."""
        return self.alpha * jnp.minimum(here(), discounted(discount, after()))


@dataclass(frozen=True)
class UndiscountedPersistentGap(PersistentAdvantageGap):
    """Persistent advantage learning as PFRL has it: the gap of the next state is neither discounted nor masked."""

    name = "persistent_pfrl"

    def penalty(self, here: Any, after: Any, discount: Any) -> Any:
        """Compute `alpha min(g(s, a), g(s', a))`."""
        return self.alpha * jnp.minimum(here(), after())


@dataclass(frozen=True)
class PersistentGap(PersistentAdvantageGap):
    """Persistent Q-learning: the target is `r + gamma ((1 - alpha) op(q') + alpha q'(a))`."""

    name = "persistent_q"

    def penalty(self, here: Any, after: Any, discount: Any) -> Any:
        """Compute `alpha discount g(s', a)`."""
        return self.alpha * discounted(discount, after())


def discounted(discount: Any, value: Any) -> Any:
    """Multiply values `[B]` with their discount; where that is 0, what is behind it does no harm, NaN or not."""
    return jnp.where(discount > 0, discount * jnp.where(discount > 0, value, 0.0), 0.0)
