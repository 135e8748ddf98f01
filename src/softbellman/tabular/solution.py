"""Solution of a finite MDP under an operator: a fixed point, and what is known of it."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from softbellman.tabular.kernel import Values
from softbellman.tabular.mdp import FiniteMDP


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
        fixed_points: the action values of every fixed point found, `q` first if it is one.
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


def distinct(found: list[Values], mdp: FiniteMDP, radius: float) -> list[Values]:
    """Leaves out what is the same fixed point: points within a radius, and within rounding, of another."""
    kept: list[Values] = []
    for q in found:
        near = radius + 1e-9 * float(np.abs(q[mdp.legal]).max())
        if all(np.abs(q[mdp.legal] - other[mdp.legal]).max() > near for other in kept):
            kept.append(q)
    return kept
