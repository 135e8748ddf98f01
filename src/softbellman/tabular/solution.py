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


def distinct(found: list[Values], mdp: FiniteMDP, tolerance: float) -> list[Values]:
    """Leaves out what is the same fixed point within the accuracy of the solver."""
    kept: list[Values] = []
    for q in found:
        near = 1e3 * tolerance + 1e-9 * float(np.abs(q[mdp.legal]).max())
        if all(np.abs(q[mdp.legal] - other[mdp.legal]).max() > near for other in kept):
            kept.append(q)
    return kept
