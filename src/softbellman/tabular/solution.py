"""Solution of a finite MDP under an operator: a fixed point, and what is known of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from softbellman.tabular.kernel import Values
from softbellman.tabular.mdp import FiniteMDP

SAME = 1e-9  # the part of the values up to which points count as one, whatever the radius
_PARTS = (0.29, 0.71)  # of the way between two points: not the middle, where symmetry may have put a third fixed point


@dataclass(frozen=True, eq=False)
class Solution:
    """A fixed point of a Bellman operator, and what else there is to know.

    Attributes:
        q: `[S, A]`, the action values; -inf where not legal.
        values: `[S]`, `operator(q)`; 0 in terminal states.
        policy: `[S, A]`, `operator.weights(q)`.
        lower, upper: `[S, A]`, between which every fixed point lies for certain, rounding included; -inf and inf
            where nothing is known. An action that is not legal has -inf in both.
        residual: the largest `|T q - q|`.
        iterations: how often the first start applied the Bellman operator; with Newton's method, its steps.
        converged: whether `q` is as near to a fixed point as was asked for, or as rounding lets it be.
        unique: "proved"; "unknown", if one fixed point was found and it need not be the only one; "no".
        fixed_points: the action values of every fixed point found, `q` first if it is one. Where several starts led to
            different points, they are those that stand still to within rounding.
        cycle: the period in which plain iteration goes round, if it was seen to.
        method: "newton" or "iteration".
        notes: what a user of these numbers must know.
    """

    q: Values
    values: Values
    policy: Values
    lower: Values
    upper: Values
    residual: float
    iterations: int
    converged: bool
    unique: Literal["proved", "unknown", "no"]
    fixed_points: tuple[Values, ...]
    cycle: int | None
    method: str
    notes: tuple[str, ...] = field(default=())


def radius(tolerance: float, error: float = 0.0) -> float:
    """Returns the distance up to which points that were found with a tolerance, and with such errors, count as one.

    A residual says little of the distance from a fixed point near which the operator hardly contracts, hence the
    factor of 1,000; a tolerance that is not small has one of 10, so that it hides no fixed points.
    """
    return max(10 * tolerance, min(1e3 * tolerance, 1e-6), 2 * error)


def distinct(
    found: Sequence[Values], mdp: FiniteMDP, radius: float, residual: Callable[[Values], float] | None = None
) -> list[Values]:
    """Leaves out what is the same fixed point as another.

    Args:
        found: `[S, A]` each.
        mdp: the MDP.
        radius: the distance, beside that of rounding, up to which two points count as one.
        residual: the largest `|T q - q|` of action values, or their rounding if that is more. If given, points
            between which it stays as small as it is at them count as one, too: nothing there tells them apart.
    """

    def same(x: Values, y: Values) -> bool:
        if np.abs(x[mdp.legal] - y[mdp.legal]).max() <= radius + SAME * float(np.abs(x[mdp.legal]).max()):
            return True
        if residual is None:
            return False
        between = (np.where(mdp.legal, x + part * (y - x), x) for part in _PARTS)
        return max(map(residual, between)) <= 4 * max(residual(x), residual(y))

    kept: list[Values] = []
    for q in found:
        if not any(same(q, other) for other in kept):
            kept.append(q)
    return kept
