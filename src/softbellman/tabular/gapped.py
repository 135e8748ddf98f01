"""Bellman equations in which rewards lose a part of the action gap, `T Q = reward + gamma E[op(Q(s', .))] - penalty`.

The penalty depends on the very action value, so that these are equations in Q and not in V, and the operators are no
contractions in general. They are solved by iteration. Proved is:

- by the gap's `rate`, where that is below 1: a contraction. Persistent Q-learning is one wherever the plain one is.
- for advantage learning without a ceiling, if the operator moves along with constants. With `k = 1 - alpha` and
  `W = op(Q)` the equation is `Q = (reward + gamma E[W] - alpha W) / k`, and so `W = k op((reward + gamma E[W]) / k)`.
  That is the plain equation of the sharper operator `k op(q / k)`: softmax(tau / k) for softmax(tau), max for max.
  If it is monotone, its fixed point is enclosed as ever.

The penalty of a transition is averaged over the next states, as the learner's target is: with random transitions
`E[min(alpha g(s, a), gamma g(s', a))]` of persistent advantage learning, where Bellemare et al. (2016) have
`min(alpha g(s, a), gamma E[g(s', a)])`. Both lie between 0 and `alpha g(s, a)`, which is all that their proof of
optimality asks for.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from softbellman.gaps import Gap, NoGap
from softbellman.operators import Operator
from softbellman.operators.arrays import floats
from softbellman.tabular.cycles import PATIENCE, Cycles, cycle_note
from softbellman.tabular.enclosure import UNIT, Enclosure
from softbellman.tabular.kernel import Values
from softbellman.tabular.mdp import FiniteMDP
from softbellman.tabular.solution import Solution, distinct, radius

LARGEST = 1e100  # values beyond which iteration is given up


class Ways(NamedTuple):
    """Transitions of an MDP as a list.

    Attributes:
        row: `[N]`, `s * A + a`.
        onward: `[N]`, the next state.
        probability: `[N]`.
        ending: `[S * A]`, the probability of an end.
    """

    row: NDArray[np.integer]
    onward: NDArray[np.integer]
    probability: Values
    ending: Values

    @classmethod
    def of(cls, mdp: FiniteMDP) -> Self:
        """List the transitions."""
        kernel: Any = sparse.coo_array(mdp.kernel)
        ending = 1 - np.asarray(np.bincount(kernel.row, kernel.data, minlength=mdp.reward.size), np.float64)
        ending[ending < 1e-12] = 0.0  # rounding of a sum that is 1
        return cls(kernel.row, kernel.col, kernel.data, ending)

    def expected(self, mdp: FiniteMDP, gap: Gap, here: Values) -> Values:
        """Average the penalty over what may follow: `[S, A]`. Behind an end there are no values, NaN."""
        state, action = np.divmod(self.row, mdp.num_actions)
        after: Values = np.where(mdp.legal, here, gap.where_illegal)[self.onward, action]
        going = gap.penalty(lambda: here[state, action], lambda: after, np.full(after.shape, mdp.gamma))
        total = np.asarray(np.bincount(self.row, self.probability * going, minlength=here.size), np.float64)
        if self.ending.any():
            behind = gap.penalty(here.ravel, lambda: np.full(here.size, np.nan), np.zeros(here.size))
            total += np.where(self.ending > 0, self.ending * behind, 0.0)
        return total.reshape(here.shape)


def apply_gapped(mdp: FiniteMDP, operator: Operator, gap: Gap, q: ArrayLike, ways: Ways | None = None) -> Values:
    """Apply the operator `T Q = reward + gamma E[op(Q(s', .))] - penalty`: `[S, A]`, -inf where not legal.

    `q` is both averaged and selector; what it has for illegal actions does not matter. `ways` are those of the MDP, if
    they have been listed.

    Raises:
        ValueError: the penalty depends on values from behind an end.
    """
    values = mdp.value(operator, q)
    backup = mdp.backup(values)
    active = mdp.legal & ~mdp.terminal[:, None]
    here = np.where(active, np.subtract(values[:, None], q, where=active, out=np.zeros(active.shape)), 0.0)
    if gap.looks_ahead:
        penalty = (ways or Ways.of(mdp)).expected(mdp, gap, here)
    else:
        penalty = gap.penalty(lambda: here, lambda: here, mdp.gamma)
    if penalty is None:
        return backup
    if not np.isfinite(penalty[active]).all() and np.isfinite(here).all():
        raise ValueError(f"{gap} takes values from behind an end, and this MDP has ends; try persistent(alpha).")
    return np.where(active, backup - penalty, backup)


class GappedEquation(NamedTuple):
    """Equation to solve.

    Attributes:
        operator: the Bellman operator, as a function of one set of values.
        enclosure: of the plain equation.
        gap: part of the action gap that rewards lose.
        lipschitz: the operator's Lipschitz constant, infinite if unknown.
        moves_along: the operator is translation-equivariant.
        ways: the transitions, where the gap looks ahead.
    """

    operator: Operator
    enclosure: Enclosure
    gap: Gap
    lipschitz: float
    moves_along: bool
    ways: Ways | None

    @classmethod
    def of(cls, operator: Operator, enclosure: Enclosure, gap: Gap, lipschitz: float, moves_along: bool) -> Self:
        """Make the equation, and list the transitions if need be."""
        ways = Ways.of(enclosure.mdp) if gap.looks_ahead else None
        return cls(operator, enclosure, gap, lipschitz, moves_along, ways)

    @property
    def mdp(self) -> FiniteMDP:
        """The MDP."""
        return self.enclosure.mdp

    @property
    def rate(self) -> float:
        """A Lipschitz constant of `T`: below 1 it is a contraction."""
        plain = NoGap().rate(self.enclosure.largest, self.lipschitz)
        rate = self.gap.rate(self.enclosure.largest, self.lipschitz)
        return rate if self.mdp.legal.all() or not self.gap.looks_ahead else max(rate, plain)

    @property
    def sharpening(self) -> float | None:
        """The factor k where the fixed points are known to be those of a sharper operator; None elsewhere."""
        return self.gap.sharpening if self.moves_along else None

    @property
    def is_sound(self) -> bool:
        """Bounds are proved, and there is one fixed point."""
        return self.rate < 1 or (self.sharpening is not None and self.enclosure.by_shifts)

    def apply(self, q: Values) -> Values:
        """Apply `T`."""
        return apply_gapped(self.mdp, self.operator, self.gap, q, self.ways)

    def rounding(self, q: Values) -> float:
        """Bound the rounding error of `T Q`: of sums over next states, of the operator, and of a few differences."""
        legal = q[self.mdp.legal]
        size = float(np.abs(self.mdp.reward).max() + 3 * np.abs(legal).max())
        spread = 2 * float(np.abs(legal).max())
        return UNIT * (2 * self.enclosure.successors + 16) * size + 3 * self.operator.rounding(q.shape[1], spread)

    def residual(self, q: Values) -> float:
        """Give the largest `|T q - q|`."""
        legal = self.mdp.legal
        return float(np.abs(self.apply(q)[legal] - q[legal]).max())

    def blurred(self, q: Values) -> float:
        """Give that, or its rounding if that is more."""
        return max(self.residual(q), self.rounding(q))

    def bounds(self, q: Values, onward: Values) -> tuple[Values, Values]:
        """Enclose the fixed point by `Q` and `T Q`, `[S, A]` each; -inf and inf where nothing is proved."""
        mdp, k = self.mdp, self.sharpening
        residual = float(np.abs(onward[mdp.legal] - q[mdp.legal]).max()) + self.rounding(q)
        lower, upper = np.full_like(q, -np.inf), np.where(mdp.legal, np.inf, -np.inf)
        if self.rate < 1:
            error = (self.rate * residual + self.rounding(q)) / (1 - self.rate)
            lower, upper = onward - error, onward + error
        if k is not None and self.enclosure.by_shifts:
            values = mdp.value(self.operator, q)
            backup, alpha = mdp.backup(values), 1 - k
            after = k * mdp.value(self.operator, backup / k)
            slack = self.rounding(backup) * 2 + UNIT * float(np.abs(values).max())
            low, high = self.enclosure.shifts(after - values, slack)
            discount, own = self.enclosure.discount, values[:, None]
            slack = 4 * self.rounding(q) / k * ~mdp.terminal[:, None]
            lower = np.maximum(lower, (backup + discount * low - alpha * (own + high)) / k - slack)
            upper = np.minimum(upper, (backup + discount * high - alpha * (own + low)) / k + slack)
        ends = mdp.terminal[:, None]
        return np.where(ends, 0.0, lower), np.where(ends, 0.0, upper)


class _Run(NamedTuple):
    """End of an iteration: values, one more application, the residual, and how it ended; see `Solution`."""

    q: Values
    onward: Values
    residual: float
    iterations: int
    converged: bool
    cycle: int | None


def _iterate(equation: GappedEquation, q: Values, tolerance: float, most: int) -> _Run:
    """Replace Q by `T Q` until it stands still, comes back to where it was, or leaves all bounds."""
    gamma, rate, legal = equation.mdp.gamma, equation.rate, equation.mdp.legal
    # Where no rate is proved, T may depend on Q undiscounted: a small gamma says nothing of how near the end is.
    rate = rate if rate < 1 else max(gamma, 0.5)
    wanted = tolerance * (equation.sharpening or 1.0) * (1 - rate) / max(rate, 1e-300)
    cycles = Cycles(q[legal])
    for k in range(1, most + 1):
        onward = equation.apply(q)
        change = float(np.abs(onward[legal] - q[legal]).max())
        if change <= max(wanted, 2 * equation.rounding(q)):
            return _Run(q, onward, change, k, True, None)
        if not change < LARGEST:
            return _Run(q, onward, change, k, False, None)
        if period := cycles.period(k, q[legal], change):
            return _Run(q, onward, change, k, False, period)
        q = onward
    return _Run(q, onward, change, most, False, None)


def solve_gapped(
    equation: GappedEquation,
    best: Solution,
    tolerance: float,
    start: ArrayLike | None,
    starts: Sequence[ArrayLike],
    max_iterations: int | None,
    notes: Sequence[str] = (),
) -> Solution:
    """Solve the equation by iteration; see `tabular.solve` for the arguments.

    Args:
        equation: the equation.
        best: the solution for the maximum, which tells if the greedy policy is optimal.
        tolerance: the largest error, or what stands for a residual where none is proved.
        start: action values or values to start from.
        starts: more of these.
        max_iterations: for each start.
        notes: what is known already.

    Raises:
        ValueError: there is no fixed point, or a start is none.
    """
    mdp, operator, gap = equation.mdp, equation.operator, equation.gap
    if gap.sharpening == 0:
        raise ValueError(
            f"{gap} has no fixed point where actions differ, since gaps grow at every step; take an alpha below 1, or "
            "a ceiling."
        )
    first = np.zeros_like(mdp.reward) if start is None else start
    points = [first] if equation.is_sound else [first, *starts, best.q]
    runs = [
        _iterate(equation, _action_values(mdp, operator, point), tolerance, max_iterations or PATIENCE)
        for point in points
    ]
    run = runs[0]
    found = distinct([each.onward for each in runs if each.converged], mdp, radius(tolerance))
    if len(found) > 1:  # a small residual alone makes no fixed point
        on = [_iterate(equation, x, 0.0, max_iterations or PATIENCE) for x in found]
        sure = [each.onward for each in on if each.converged]
        found = distinct(sure, mdp, 0.0, equation.blurred) or found[:1]
        if run.converged and on[0].converged:
            run = on[0]._replace(iterations=run.iterations + on[0].iterations)
    q = run.onward if run.converged else run.q
    lower, upper = equation.bounds(q, equation.apply(q))
    q = np.clip(q, lower, upper)
    return Solution(
        q=q,
        values=mdp.value(operator, q),
        policy=operator.weights(q, where=mdp.legal),
        lower=lower,
        upper=upper,
        residual=equation.residual(q),
        iterations=run.iterations,
        converged=run.converged,
        unique="proved" if equation.is_sound else "unknown" if len(found) < 2 else "no",
        fixed_points=tuple(found),
        cycle=next((each.cycle for each in runs if each.cycle), None),
        method="iteration",
        notes=(*notes, *_notes(equation, run, len(runs), found, best, q, tolerance, lower, upper)),
    )


def _action_values(mdp: FiniteMDP, operator: Operator, start: ArrayLike) -> Values:
    """Give a start as action values, those of values being their backup; 0 in terminal states."""
    values = mdp.values_of(operator, start)
    q = mdp.backup(values) if np.ndim(start) == 1 else np.where(mdp.legal, floats(start, "a start"), -np.inf)
    return np.where(mdp.terminal[:, None], 0.0, q)


def _notes(
    equation: GappedEquation,
    run: _Run,
    starts: int,
    found: Sequence[Values],
    best: Solution,
    q: Values,
    tolerance: float,
    lower: Values,
    upper: Values,
) -> list[str]:
    """Say what the numbers alone do not."""
    mdp, name = equation.mdp, f"{equation.operator} with {equation.gap}"
    notes = []
    if run.cycle:
        notes.append(cycle_note(run.cycle))
    elif not run.residual < LARGEST:
        notes.append(f"Values grow without bound: beyond {LARGEST:g} after {run.iterations} iterations.")
    elif not run.converged:
        notes.append(
            f"Not converged: the residual is {run.residual:.3g} after {run.iterations} iterations; raise "
            "max_iterations or leave it out."
        )
    if not equation.is_sound:
        notes.append(
            f"The Bellman operator of {name} is not known to be a contraction, and no bounds are known: "
            f"{starts} starts were followed, and {len(found)} different fixed points found. There may be more."
        )
    elif run.converged and (reached := float(np.max(upper[mdp.legal] - lower[mdp.legal])) / 2) > tolerance:
        notes.append(
            f"q is proved to be within {reached:.2g} of the fixed point; the tolerance {tolerance:g} was asked for."
        )
    greedy = q.argmax(axis=1)[:, None]
    loss = np.take_along_axis(best.q.max(axis=1, keepdims=True) - best.q, greedy, axis=1)[:, 0]
    known = float(np.max(best.upper[mdp.legal] - best.lower[mdp.legal]))  # to what the maximum's solution is proved
    worse = loss > known + 1e-9 * np.abs(best.values).max()
    if worse.any():
        notes.append(
            f"The greedy policy is not optimal: in {worse.sum()} of {mdp.num_states} states it takes an action that is "
            f"worse than the best, by up to {loss.max():.4g}."
        )
    else:
        notes.append("The greedy policy is optimal.")
    return notes
