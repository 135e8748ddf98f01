"""Certified bounds of a fixed point, from one application of the Bellman operator.

For values V let `r = op(backup(V)) - V`. If `op` is monotone and translation-equivariant, constants `low <= high`
follow from the smallest and the largest `r` so that `V + low <= V* <= V + high` (MacQueen, 1966; Porteus, 1971, for
the maximum; the proof asks for these two laws and no more). An ending counts as a discount of its own: what multiplies
a constant in state s and action a is `gamma * (probability of going on)`.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy import sparse

from softbellman.operators import Operator
from softbellman.tabular.kernel import Values, shortfall
from softbellman.tabular.mdp import FiniteMDP

UNIT = 2.0**-53  # the largest relative error of one operation in float64


@dataclass(frozen=True)
class Enclosure:
    """Rule that turns a residual into bounds, for one MDP and one operator.

    Attributes:
        mdp: the MDP.
        discount: `[S, A]`, `gamma` times the probability of going on.
        smallest, largest: its extremes over legal actions of states that are not terminal, widened by rounding.
        rate: a factor below 1 by which the Bellman operator contracts in the maximum norm; None if none is known.
        by_shifts: the operator is monotone and translation-equivariant.
        successors: the most next states that any action has.
        operator: bounds the rounding of its values.
        blur: how far the rewards may be from those meant.
    """

    mdp: FiniteMDP
    discount: Values
    smallest: float
    largest: float
    rate: float | None
    by_shifts: bool
    successors: int
    operator: Operator
    blur: float = 0.0

    @classmethod
    def of(cls, mdp: FiniteMDP, operator: Operator, *, lipschitz: float, by_shifts: bool) -> Self:
        """Measures an MDP, for an operator of Lipschitz constant `lipschitz`, infinite if unknown.

        Raises:
            ValueError: `gamma` is so near to 1 that rounding hides the difference.
        """
        kernel = mdp.kernel
        discount = np.asfortranarray(mdp.gamma * np.asarray(kernel.sum(axis=1)).reshape(mdp.reward.shape))
        active = discount[mdp.legal & ~mdp.terminal[:, None]]
        counts = np.diff(kernel.indptr) if sparse.issparse(kernel) else np.count_nonzero(kernel, axis=1)
        successors = int(counts.max(initial=0))
        slack = (successors + 2) * UNIT
        largest = float(active.max(initial=0.0)) * (1 + slack)
        if largest >= 1:
            raise ValueError(f"gamma ({mdp.gamma}) is too near to 1: rounding hides the difference.")
        rate = largest * lipschitz if largest else 0.0
        smallest = float(active.min(initial=mdp.gamma)) * (1 - slack)
        return cls(mdp, discount, smallest, largest, rate if rate < 1 else None, by_shifts, successors, operator)

    @property
    def sound(self) -> bool:
        """True if `shifts` are proved bounds."""
        return self.by_shifts or self.rate is not None

    def shifts(self, residual: Values, rounding: float = 0.0) -> tuple[float, float]:
        """Gives `low` and `high` with `V + low <= V* <= V + high`, for residuals `[S]` of V known up to `rounding`.

        Where nothing is proved, they are what a contraction by `gamma` would allow.
        """
        going = residual[~self.mdp.terminal] if self.mdp.terminal.any() else residual
        if not going.size:
            return 0.0, 0.0
        least, most = float(going.min()) - rounding, float(going.max()) + rounding
        if not self.by_shifts:
            size = max(-least, most) / (1 - (self.largest if self.rate is None else self.rate))
            return -size, size
        low = least / (1 - (self.largest if least < 0 else self.smallest))
        high = most / (1 - (self.largest if most > 0 else self.smallest))
        return low, high

    def error(self, low: float, high: float) -> float:
        """Bounds the distance of Q in the middle of the bounds from its fixed point, rounding aside."""
        return self.largest * (high - low) / 2

    def rounding(self, values: Values, q: Values) -> float:
        """Bounds the rounding error of `op(q) - V` with `q = backup(V)`, in units of value.

        That of `n` products, their sum, a discount and a reward is below `n + 4` units of their size; that of the
        operator is its own to know.
        """
        worst = np.where(self.mdp.legal, q, np.inf).min(axis=1)
        spread = float(np.max(q.max(axis=1) - worst))
        return self._rounding_of_backup(values) + self.operator.rounding(q.shape[1], spread)

    def _rounding_of_backup(self, values: Values) -> float:
        size = float(np.abs(self.mdp.reward).max() + np.abs(values).max())
        return UNIT * (self.successors + 4) * size + self.blur

    def floor(self, values: Values, q: Values) -> float:
        """Gives the error of Q below which rounding hides all progress."""
        return self.largest * self.rounding(values, q) / (1 - self.largest)

    def measured_from(self, center: float) -> Self:
        """Gives the same for values that are measured from `center`, if the operator is translation-equivariant.

        `center + V` is a fixed point if V is one with the rewards `reward - (1 - discount) * center`. The small number
        `1 - discount` is found without the rounding that its definition suggests.
        """
        mdp, legal = self.mdp, self.mdp.legal & ~self.mdp.terminal[:, None]
        leak = (1 - mdp.gamma) + mdp.gamma * shortfall(mdp.kernel).reshape(legal.shape)
        change = np.where(legal, leak * center, 0.0)
        nearer = mdp.with_reward(mdp.reward - change)
        rounding = UNIT * float(5 * np.abs(change).max() + np.abs(nearer.reward).max())
        lost = self.successors**2 * UNIT * 2.0**-27 * abs(center)  # in the sum of the small parts of probabilities
        return replace(self, mdp=nearer, blur=self.blur + rounding + lost)

    def bounds(self, values: Values, q: Values, residual: Values) -> tuple[Values, Values]:
        """Encloses the fixed point: `lower <= Q* <= upper`, `[S, A]` each, rounding included.

        Args:
            values: `[S]`, V.
            q: `[S, A]`, `backup(V)`.
            residual: `[S]`, `op(q) - V`.
        """
        low, high = self.shifts(residual, self.rounding(values, q))
        slack = self._rounding_of_backup(np.append(values, [low, high])) * ~self.mdp.terminal[:, None]
        return q + self.discount * low - slack, q + self.discount * high + slack
