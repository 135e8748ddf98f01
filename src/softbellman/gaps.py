"""Gaps: the part of an action's gap that its reward loses, so that the gaps of the solution grow.

With `g(s, a) = op(Q'(s), Q(s)) - Q'(s, a)` the target of a transition `s, a, r, s'` is `r - penalty + gamma op(...)`.
The learner and the solver of finite MDPs share these values: arrays are of NumPy or of JAX.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from softbellman.operators.row import compat
from softbellman.part import Part, read_part, require


@dataclass(frozen=True)
class Gap(Part):
    """Base of gaps: a subclass defines `penalty`, and `sharpening` and `rate` if they are known of it.

    Attributes:
        looks_ahead: the penalty depends on the gap in the next state.
        where_illegal: what stands for `g(s', a)` where the action is illegal in the next state, and can't be repeated.
    """

    looks_ahead: ClassVar[bool] = False
    where_illegal: ClassVar[float] = math.inf

    def penalty(self, here: Any, after: Any, discount: Any) -> Any:
        """Compute the loss of rewards `[B]`, or give None where nothing is lost.

        Args:
            here: function that gives `g(s, a)`, `[B]`.
            after: function that gives `g(s', a)`, `[B]`: the gap of the same action in the next state.
            discount: `[B]`, `gamma * (1 - terminated)`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define penalty(here, after, discount)")

    @property
    def sharpening(self) -> float | None:
        """Factor k for which fixed points have the values of `k op(q / k)`, if `op` moves along with constants.

        None: there is no such factor, or it is not known.
        """
        return None

    def rate(self, discount: float, lipschitz: float) -> float:
        """Bound the Lipschitz constant of the Bellman operator in the maximum norm; below 1 it is a contraction.

        Args:
            discount: the largest `gamma * (probability of going on)`.
            lipschitz: that of the operator, infinite where unknown.

        Returns:
            The bound, infinite where none is known.
        """
        return math.inf


@dataclass(frozen=True)
class NoGap(Gap):
    """No gap: a reward loses nothing."""

    name = "none"

    def penalty(self, here: Any, after: Any, discount: Any) -> Any:
        """Give None."""
        return None

    @property
    def sharpening(self) -> float | None:
        """Give 1."""
        return 1.0

    def rate(self, discount: float, lipschitz: float) -> float:
        """Multiply: `discount * lipschitz`."""
        return discount * lipschitz


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
        return self.alpha * (gap if self.ceiling == math.inf else _least(gap, self.ceiling))

    @property
    def sharpening(self) -> float | None:
        """Give `1 - alpha`: `Q = (r + gamma E[W] - alpha W) / (1 - alpha)` where `W = op(Q)`."""
        return 1 - self.alpha if self.ceiling == math.inf else None

    def rate(self, discount: float, lipschitz: float) -> float:
        """Add what the gap may change by: `L + 1`."""
        return discount * lipschitz + self.alpha * (lipschitz + 1)


@dataclass(frozen=True)
class PersistentAdvantageGap(Gap):
    """Persistent advantage learning: a reward loses `min(alpha g(s, a), discount g(s', a))`.

    That is `max(advantage learning, r + gamma q'(a))` (Bellemare et al., 2016). Where the action is illegal in the next
    state, it is advantage learning. With an operator below the maximum a good action has a negative gap in the next
    state, and its target rises above the operator's, whatever alpha is.
    """

    name = "persistent"
    looks_ahead: ClassVar[bool] = True
    alpha: float

    def __post_init__(self) -> None:
        """Check the number."""
        require(0 <= self.alpha <= 1, f"alpha ({self.alpha}) must be in 0 .. 1")

    def penalty(self, here: Any, after: Any, discount: Any) -> Any:
        """Compute `min(alpha g(s, a), discount g(s', a))`."""
        return _least(self.alpha * here(), discounted(discount, after()))

    @property
    def sharpening(self) -> float | None:
        """Give None."""
        return None

    def rate(self, discount: float, lipschitz: float) -> float:
        """Take the larger branch, that of advantage learning or `r + gamma q'(a)`, and advantage learning at an end."""
        return discount * max(lipschitz, 1.0) + self.alpha * (lipschitz + 1)


@dataclass(frozen=True)
class UndiscountedPersistentGap(PersistentAdvantageGap):
    """Persistent advantage learning as PFRL and Coach have it: with `alpha g(s', a)`, neither discounted nor masked."""

    name = "persistent_pfrl"

    def penalty(self, here: Any, after: Any, discount: Any) -> Any:
        """Compute `alpha min(g(s, a), g(s', a))`."""
        return self.alpha * _least(here(), after())

    def rate(self, discount: float, lipschitz: float) -> float:
        """Add what the larger of both gaps may change by."""
        return discount * lipschitz + self.alpha * (lipschitz + 1)


@dataclass(frozen=True)
class PersistentGap(PersistentAdvantageGap):
    """Persistent Q-learning: the target is `r + gamma ((1 - alpha) op(q') + alpha q'(a))`.

    Where the action is illegal in the next state, nothing is lost.
    """

    name = "persistent_q"
    where_illegal: ClassVar[float] = 0.0

    def penalty(self, here: Any, after: Any, discount: Any) -> Any:
        """Compute `alpha discount g(s', a)`."""
        return self.alpha * discounted(discount, after())

    def rate(self, discount: float, lipschitz: float) -> float:
        """Average: it is a contraction wherever the plain Bellman operator is one, and at alpha 1 for any operator."""
        return discount * (self.alpha + ((1 - self.alpha) * lipschitz if self.alpha < 1 else 0.0))


GAPS: dict[str, Callable[..., Part]] = {
    cls.name: cls for cls in (NoGap, AdvantageGap, PersistentAdvantageGap, UndiscountedPersistentGap, PersistentGap)
}
"""The gaps by the names of their specs."""


def as_gap(given: Any) -> Gap:
    """Take a gap, or read its spec; None is none.

    Raises:
        TypeError: it is neither.
        ValueError: the spec names no gap, or its numbers are not what it takes.

    Example:
        >>> str(as_gap("gap(0.9, 1)")), as_gap("none") == as_gap(None) == NoGap()
        ('gap(0.9, 1)', True)
    """
    if isinstance(given, str):
        return read_part("gap", given, GAPS, Gap)
    if not isinstance(given, Gap | None):
        raise TypeError(f"{given!r} is no gap; pass one of softbellman.gaps, or a spec such as 'gap(0.9)'")
    return given or NoGap()


def discounted(discount: Any, value: Any) -> Any:
    """Multiply values `[B]` with their discount; where that is 0, what is behind it does no harm, NaN or not."""
    xp = compat.array_namespace(value)
    return xp.where(discount > 0, discount * xp.where(discount > 0, value, 0.0), 0.0)


def _least(one: Any, other: Any) -> Any:
    return compat.array_namespace(one).minimum(one, other)
