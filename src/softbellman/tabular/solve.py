"""Solver of finite MDPs under any operator: fixed points, with what is known for certain about them.

Where the Bellman operator is a contraction there is one fixed point, and two-sided bounds enclose it. Softmax need not
contract: it can have several fixed points, and iteration can go round in a cycle. Then several starts are followed,
and Newton's method from the middle between any two fixed points found, too; whatever they lead to is reported.
"""

import itertools
import math
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from softbellman import operators as ops
from softbellman.arguments import as_integer, as_number
from softbellman.faults import faults_placed
from softbellman.gaps import Gap, NoGap, as_gap
from softbellman.operators.contract import precision
from softbellman.tabular.cycles import cycle_note
from softbellman.tabular.enclosure import Enclosure
from softbellman.tabular.gapped import GappedEquation, solve_gapped
from softbellman.tabular.iteration import Problem, Run, iterate, newton
from softbellman.tabular.kernel import Values
from softbellman.tabular.linear import LinearSolver, transitions
from softbellman.tabular.mdp import FiniteMDP
from softbellman.tabular.solution import SAME, Solution, distinct, radius

METHODS = ("newton", "iteration")
SMALL = 200  # states up to which the spectral radius at a fixed point is worth its time
TO_ROUNDING = float(np.finfo(np.float64).tiny)  # a tolerance that nothing but rounding meets


@faults_placed()
def solve(
    mdp: FiniteMDP,
    operator: ops.Operator | str,
    *,
    method: Literal["newton", "iteration"] = "newton",
    tolerance: float = 1e-10,
    start: ArrayLike | None = None,
    starts: Any = (),
    max_iterations: int | None = None,
    gap: Gap | str | None = None,
) -> Solution:
    """Solves `Q = reward + gamma E[operator(Q(s', .))]`, less what a gap takes of the reward.

    Args:
        mdp: the MDP.
        operator: any Bellman operator, or its spec. A doubled one is given the same values twice, and so equals what
            it doubles.
        method: "newton", which for the maximum is policy iteration; or "iteration", that is value iteration.
        tolerance: the largest error of `q` to put up with. Where the operator is a contraction on this MDP, the bounds
            show that it is met; else it stands for a residual of `tolerance * (1 - gamma) / gamma`, with a gap for
            one of at most `tolerance`. Where rounding in float64 prevents it, `q` is as good as that allows, and a
            note says how good.
        start: `[S, A]` action values, or `[S]` values, to start from; 0 by default.
        starts: more of these. Looked at where the fixed point is not known to be the only one.
        max_iterations: for each start; by default enough for a contraction, and a patient number else.
        gap: the part of the action gap that rewards lose, or its spec, such as `gap(0.9)`; see `softbellman.gaps`. Such
            an equation is solved by iteration, and known for certain is less of it: see `tabular.gapped`.

    Raises:
        TypeError: `operator` is no operator, or `gap` no gap.
        ValueError: the operator breaks its contract, fails, or answers in less than float64; an argument is out of
            range, or `gamma` too near to 1 for float64.

    Example:
        >>> from softbellman import operators as ops, tabular
        >>> mdp = tabular.FiniteMDP([[[0.5, 0.5], [0, 1]], [[0.8, 0.2], [0.1, 0.9]]], [[5, 10], [-1, 2]], 0.9)
        >>> solution = tabular.solve(mdp, ops.maximum())
        >>> solution.values.round(6).tolist(), solution.unique
        ([42.44186, 36.046512], 'proved')
    """
    if method not in METHODS:
        raise ValueError(f"method ({method!r}) must be one of {', '.join(METHODS)}.")
    tolerance = as_number(tolerance, "tolerance")
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise ValueError(f"tolerance ({tolerance}) must be above 0 and finite; it is in units of value, such as 1e-10.")
    max_iterations = None if max_iterations is None else as_integer(max_iterations, "max_iterations")
    if max_iterations is not None and max_iterations < 1:
        raise ValueError(f"max_iterations ({max_iterations}) must be at least 1; leave it out for the default.")
    operator = ops.as_operator(operator)
    ops.require_contract(operator, mdp.num_actions)
    _require_float64(operator, mdp.num_actions)
    gap = as_gap(gap)
    operator, laws, notes = _in_one_argument(operator)
    actions = int(mdp.legal[~mdp.terminal].sum(axis=1).max(initial=1))
    by_shifts = laws.monotone and laws.translation_equivariant
    lipschitz = math.inf if operator.on_one_set is None else operator.lipschitz(actions)
    enclosure = Enclosure.of(mdp, operator, lipschitz=lipschitz, by_shifts=by_shifts)
    if gap != NoGap():
        best = solve(mdp, ops.maximum(), tolerance=min(tolerance, 1e-10))
        equation = GappedEquation.of(operator, enclosure, gap, lipschitz, laws.translation_equivariant)
        return solve_gapped(equation, best, tolerance, start, starts, max_iterations, notes)
    lower, upper = _band(mdp, operator, laws, enclosure, actions, tolerance)
    points = [mdp.values_of(operator, np.zeros(mdp.num_states) if start is None else start)]
    if not enclosure.sound:
        ends = [x for x in (lower, upper) if np.isfinite(x[mdp.legal]).all()]
        points += [mdp.values_of(operator, x) for x in (*starts, *ends)]
        if laws.translation_equivariant:
            points = _apart(points, enclosure)

    if operator.on_one_set is None and method == "newton":
        method = "iteration"
        notes.append(
            f"Newton's method would need the derivative of {operator} in both sets of values; it was iterated."
        )
    search = _Search(Problem(operator, enclosure, tolerance), method, max_iterations, lower, upper)
    runs = [search.follow(x) for x in points]
    first, sure, starts_tried = runs[0], runs, len(points)
    if len(search.different(runs)) > 1:  # a small residual alone makes no fixed point
        search = search.to_rounding()
        sure = [search.go_on(run) for run in runs if run.converged]
        if method == "newton":  # between two to which iteration leads there is often one that it leaves
            between = [(x + y) / 2 for x, y in itertools.combinations(search.different(sure), 2)]
            sure += [search.follow(mdp.values_of(operator, x)) for x in between]
            starts_tried += len(between)
        if first.converged and sure[0].converged:
            first = sure[0]
    q = search.reached(first)
    found = search.different(sure) or [q] * first.converged
    values = mdp.value(operator, q)
    residual = _residual(mdp, q, values)
    if enclosure.sound:
        low, high = first.problem.enclosure.bounds(first.point.values, first.point.q, first.point.residual)
        if (away := search.center(first)).any():  # a sum is off by half a unit in the last place at most
            low = np.where(away, np.nextafter(low + away, -np.inf), low)
            high = np.where(away, np.nextafter(high + away, np.inf), high)
        lower, upper = np.maximum(low, lower), np.minimum(high, upper)
    unique = "proved" if enclosure.sound else "unknown" if len(found) < 2 else "no"
    near = search.radius(sure) + SAME * float(np.abs(q[mdp.legal]).max())
    notes += _notes(Problem(operator, enclosure, tolerance), first, starts_tried, found, near, lower, upper, residual)
    return Solution(
        q=q,
        values=values,
        policy=operator.weights(q, where=mdp.legal),
        lower=lower,
        upper=upper,
        residual=residual,
        iterations=first.iterations,
        converged=first.converged,
        unique=unique,
        fixed_points=tuple(found),
        cycle=next((run.cycle for run in (*runs, *sure) if run.cycle), None),
        method=method,
        notes=tuple(notes),
    )


class _Search(NamedTuple):
    """The search for fixed points: from a start along a way, to what lies within bounds.

    Attributes:
        problem: the MDP's Bellman equation.
        method: the way.
        max_iterations: budget from each start.
        lower: `[S, A]`, a lower bound of every fixed point.
        upper: `[S, A]`, an upper bound.
    """

    problem: Problem
    method: str
    max_iterations: int | None
    lower: Values
    upper: Values

    def follow(self, start: Values) -> Run:
        """Go on from a start as far as it leads."""
        if self.method == "iteration":
            return iterate(self.problem, start, self.max_iterations)
        return newton(self.problem, start, LinearSolver(self.problem.mdp), self.max_iterations)

    def to_rounding(self) -> Self:
        """Search as far as rounding lets a point stand still."""
        method = "iteration" if self.problem.operator.on_one_set is None else "newton"
        return self._replace(problem=self.problem._replace(tolerance=TO_ROUNDING), method=method)

    def go_on(self, run: Run) -> Run:
        """Go on from where a run has come to."""
        rest = self.follow(run.point.values)
        return rest._replace(iterations=run.iterations + rest.iterations)

    def reached(self, run: Run) -> Values:
        """Return the action values that a run has come to."""
        middle = run.point.q + self.problem.enclosure.discount * ((run.point.low + run.point.high) / 2)
        return np.clip(middle + self.center(run), self.lower, self.upper)

    def center(self, run: Run) -> Values:
        """Return what a run's values were measured from, 0 at ends."""
        return np.where(self.problem.mdp.terminal, 0.0, run.problem.center)[:, None]

    def different(self, runs: list[Run]) -> list[Values]:
        """Return the different fixed points that runs have come to."""
        found = [self.reached(run) for run in runs if run.converged]
        residual = self.blurred if self.problem.tolerance == TO_ROUNDING else None
        return distinct(found, self.problem.mdp, self.radius(runs), residual)

    def blurred(self, q: Values) -> float:
        """Return the residual of action values, or its rounding if that is more."""
        values = self.problem.mdp.value(self.problem.operator, q)
        return max(_residual(self.problem.mdp, q, values), self.problem.enclosure.rounding(values, q))

    def radius(self, runs: list[Run]) -> float:
        """Return the distance up to which two points that runs have come to are taken for one."""
        return radius(self.problem.tolerance, max((run.point.error for run in runs if run.converged), default=0.0))


def _residual(mdp: FiniteMDP, q: Values, values: Values) -> float:
    """Returns the largest `|T q - q|`, `values` being what `q` is worth."""
    return float(np.abs(mdp.backup(values)[mdp.legal] - q[mdp.legal]).max())


def _require_float64(operator: ops.Operator, actions: int) -> None:
    """Refuses an operator of a coarser precision: the bounds allow for the rounding of float64 alone."""
    values = np.ones((1, actions))
    answer = np.asarray(operator(values, values))
    if precision(answer) > np.finfo(np.float64).eps:
        raise ValueError(
            f"{operator} answers in {answer.dtype} to values in float64, in which MDPs are solved; let it compute in "
            "the dtype of what it is given, by the functions of row.xp."
        )


def _in_one_argument(operator: ops.Operator) -> tuple[ops.Operator, ops.Laws, list[str]]:
    """Gives an operator and its laws as a function of one set of values."""
    single = operator.on_one_set
    if single is operator:
        return operator, operator.laws, []
    if single is not None:
        note = f"{operator} equals {single} here, since both sets of values are the same."
        return single, single.laws, [note]
    # Its other laws hold the selector fixed.
    return operator, ops.Laws(at_most_max=operator.laws.at_most_max and operator.laws.weights_are_policy), []


def _band(
    mdp: FiniteMDP, operator: ops.Operator, laws: ops.Laws, enclosure: Enclosure, actions: int, tolerance: float
) -> tuple[Values, Values]:
    """Encloses the fixed points of an operator that is not monotone by those of the maximum and mean: `[S, A]` each.

    Only these need be monotone: `operator <= max` gives `Q <= Q*`, and a largest gap g between the two
    `Q* - Q <= gamma / (1 - gamma) g` (Theorem 3 (I), with the sharp gap).
    """
    lower, upper = np.full_like(mdp.reward, -np.inf), np.where(mdp.legal, np.inf, -np.inf)
    if enclosure.by_shifts:
        return lower, upper
    gap = operator.largest_gap(actions) if laws.within_largest_gap else math.inf
    width = gap / (1 - enclosure.largest) if math.isfinite(gap) else 0.0
    widest = float(np.ptp(mdp.reward)) / (1 - enclosure.largest)  # from the mean, whatever the gap
    best = solve(mdp, ops.maximum(), tolerance=max(tolerance, 1e-6 * min(width, widest)))
    if laws.at_most_max:
        upper = best.upper
    if math.isfinite(gap):
        lower = best.lower - enclosure.discount * width
    if laws.at_least_mean and gap > widest:
        lower = solve(mdp, ops.mean(), tolerance=tolerance).lower
    return lower, upper


def _apart(points: list[Values], enclosure: Enclosure) -> list[Values]:
    """Leaves out starts that differ from another by a constant: they lead to the same fixed point."""
    if enclosure.largest - enclosure.smallest > 1e-12:
        return points
    kept: list[Values] = []
    for point in points:
        if all(np.ptp(point - other) > 1e-9 * np.abs(point).max(initial=1.0) for other in kept):
            kept.append(point)
    return kept


def _notes(
    problem: Problem,
    first: Run,
    starts: int,
    found: list[Values],
    near: float,
    lower: Values,
    upper: Values,
    residual: float,
) -> list[str]:
    """Says what the numbers alone do not."""
    mdp, operator, enclosure, tolerance = problem.mdp, problem.operator, problem.enclosure, problem.tolerance
    notes = []
    if first.cycle:
        notes.append(cycle_note(first.cycle))
    elif not first.converged:
        notes.append(
            f"Not converged: the residual is {residual:.3g} after {first.iterations} iterations, and the tolerance "
            f"{tolerance:g} asks for less; raise max_iterations or leave it out."
        )
    if enclosure.sound:
        reached = float(np.max(upper[mdp.legal] - lower[mdp.legal])) / 2
        if first.converged and reached > tolerance:
            notes.append(
                f"Rounding in float64 limits what can be proved: q is within {reached:.2g} of the fixed point, and the "
                f"tolerance {tolerance:g} was asked for."
            )
        return notes
    notes.append(
        f"The Bellman operator of {operator} is not known to be a contraction here: {starts} starts were followed, "
        f"and {len(found)} different fixed points found, those less than {near:.2g} apart taken for one. There may be "
        "more."
    )
    if first.converged and first.point.error > tolerance:
        notes.append(
            f"Rounding in float64 limits how near q can come to a fixed point, to about {first.point.error:.2g}; the "
            f"tolerance {tolerance:g} was asked for."
        )
    if not np.isfinite(lower[mdp.legal]).all() or not np.isfinite(upper[mdp.legal]).all():
        notes.append(f"{operator} does not claim the laws from which bounds on both sides would follow.")
    if mdp.num_states <= SMALL and operator.on_one_set is not None:
        for i, q in enumerate(found):
            radius = _spectral_radius(mdp, operator, q)
            if radius > 1:
                notes.append(
                    f"Plain iteration moves away from fixed point {i + 1}: its spectral radius is {radius:.7g}."
                )
    return notes


def _spectral_radius(mdp: FiniteMDP, operator: ops.Operator, q: Values) -> float:
    onward: Any = transitions(mdp, np.asarray(operator.gradient(q, q, where=mdp.legal), np.float64))
    onward = onward if isinstance(onward, np.ndarray) else onward.toarray()
    return mdp.gamma * float(np.abs(np.linalg.eigvals(onward)).max())
