"""Fixed-point iteration and Newton's method, from one start."""

import math
from typing import NamedTuple

import numpy as np

from softbellman.operators import Operator
from softbellman.tabular.cycles import PATIENCE, Cycles
from softbellman.tabular.enclosure import Enclosure
from softbellman.tabular.kernel import Values
from softbellman.tabular.linear import LinearSolver
from softbellman.tabular.mdp import FiniteMDP

MOST_STEPS = 200  # of Newton's method
SETBACKS = 25  # how often a step may make things worse before plain iteration takes over
SWEEPS = 5  # plain iterations that follow a step which did not halve the error
ROUGH, FINE = 1e-4, 1e-7  # accuracies of linear systems: of all, and of one that may be the last
SETTLED = 0.01  # the part of the policy that changes in a step below which it is worth solving for in full


class Problem(NamedTuple):
    """Problem to solve, and how well: `tolerance` in units of value; its values are measured from `center`."""

    operator: Operator
    enclosure: Enclosure
    tolerance: float
    center: float = 0.0

    @property
    def mdp(self) -> FiniteMDP:
        """The MDP whose fixed point is sought, `center` below that of the one asked about."""
        return self.enclosure.mdp


class Point(NamedTuple):
    """Values V `[S]`, their `q = backup(V)` `[S, A]`, `after = op(q)` `[S]`, and bounds from these.

    Rounding hides an error below `floor`.
    """

    values: Values
    q: Values
    after: Values
    residual: Values
    low: float
    high: float
    error: float
    floor: float


class Run(NamedTuple):
    """Where a start led.

    Attributes:
        problem: the one that the point is of.
        point: the last one, or the best.
        iterations: how often the Bellman operator was applied.
        converged: the error is within the tolerance, or as small as rounding lets it be.
        cycle: the period after which the values came back; None if they did not.
    """

    problem: Problem
    point: Point
    iterations: int
    converged: bool
    cycle: int | None


def evaluate(problem: Problem, values: Values) -> Point:
    """Applies the Bellman operator once.

    Raises:
        ValueError: the operator gave what is not finite.
    """
    q = problem.mdp.backup(values)
    after = problem.mdp.value(problem.operator, q)
    residual = after - values
    enclosure = problem.enclosure
    low, high = enclosure.shifts(residual)
    if not math.isfinite(high - low):
        state = int(np.argmax(~np.isfinite(residual)))
        raise ValueError(f"{problem.operator} gives {after[state]} for the values {q[state]} of state {state}.")
    return Point(values, q, after, residual, low, high, enclosure.error(low, high), enclosure.floor(values, q))


def is_solved(problem: Problem, point: Point, blur: float = 1.0) -> bool:
    """Says whether the error is within the tolerance for certain, or within `blur` times what rounding hides."""
    return point.error <= max(problem.tolerance - 2 * point.floor, blur * point.floor)


def sharpened(problem: Problem, point: Point) -> tuple[Problem, Values] | None:
    """Measures values from the middle of the solution, if rounding is in the way and less so there; None otherwise.

    Near `gamma = 1` almost all digits of the values tell what they have in common, and few are left for the rest.
    """
    enclosure, going = problem.enclosure, ~problem.mdp.terminal
    if problem.center or not enclosure.by_shifts or not going.any() or point.floor < problem.tolerance / 4:
        return None
    values = point.values + (point.low + point.high) / 2
    center = float(values[going].min() + values[going].max()) / 2
    rest = np.where(going, values - center, 0.0)
    if point.error > np.abs(rest).max() or np.abs(rest).max() > np.abs(values).max() / 2:  # too early, or no use
        return None
    nearer = enclosure.measured_from(center)
    if nearer.floor(rest, point.q) >= point.floor:
        return None
    return problem._replace(enclosure=nearer, center=center), rest


def iterate(problem: Problem, values: Values, max_iterations: int | None = None) -> Run:
    """Replaces V by `op(backup(V))` until it stands still, or comes back to where it was."""
    cycles, rate = Cycles(values), problem.enclosure.rate
    k = 0
    while True:
        point = evaluate(problem, values)
        k += 1
        if is_solved(problem, point):
            if (nearer := sharpened(problem, point)) is None:
                return Run(problem, point, k, True, None)
            problem, values = nearer
            continue
        if max_iterations is None:
            max_iterations = PATIENCE if rate is None else _enough(point.error, problem, rate)
        if k >= max_iterations:
            return Run(problem, point, k, False, None)
        if rate is None and (period := cycles.period(k, values, float(np.abs(point.residual).max()))):
            standing = is_solved(problem, point, blur=1e4)  # going round in the last bits is standing still
            return Run(problem, point, k, standing, None if standing else period)
        values = point.after


def _enough(error: float, problem: Problem, rate: float) -> int:
    """Counts the iterations after which a contraction by `rate` has reached the tolerance, or what rounding allows."""
    wanted = max(problem.tolerance / 3, 1e-16 * error)
    return 10 + math.ceil(math.log(max(error / wanted, 1.0)) / -math.log(rate)) if rate > 0 else 10


def newton(problem: Problem, values: Values, linear: LinearSolver, max_iterations: int | None = None) -> Run:
    """Solves `V = op(backup(V))` by Newton's method; for the maximum this is policy iteration.

    One step solves the equation with the operator replaced by its tangent, `(I - gamma G P) x = op(backup(V)) - V`,
    G being the gradient. For a monotone and convex operator exact steps cannot fail (Howard, 1960, for the maximum).
    Where steps do fail, plain iteration takes over.
    """
    best, k = evaluate(problem, values), 1
    point, last, setbacks = best, None, 0
    accuracy, stalls = ROUGH, True
    limit = max_iterations or MOST_STEPS
    while True:
        if k < limit and (nearer := sharpened(problem, point)):
            problem, values = nearer
            best = point = evaluate(problem, values)
            k += 1
        if is_solved(problem, point):
            return Run(problem, point, k, True, None)
        if k >= limit or setbacks > SETBACKS:
            return _give_up(problem, best, k, max_iterations)
        start = _sweep(problem, point) if stalls else point
        values, last = _step(problem, start, linear, accuracy, last)
        previous, point = point, evaluate(problem, values)
        k += 1
        best = min(best, point, key=lambda p: p.error)
        gain = point.error / previous.error
        stalls, setbacks = gain > 0.5, setbacks + (gain >= 1)
        enough = 0.1 * problem.tolerance / max(point.error, problem.tolerance)
        accuracy = enough if FINE <= enough <= ROUGH else ROUGH


def _sweep(problem: Problem, point: Point) -> Point:
    """Applies the Bellman operator some times: it repairs the policy near where the last step changed it."""
    values = point.after
    for _ in range(SWEEPS - 1):
        values = problem.mdp.value(problem.operator, problem.mdp.backup(values))
    return evaluate(problem, values)


def _step(
    problem: Problem, point: Point, linear: LinearSolver, accuracy: float, last: Values | None
) -> tuple[Values, Values]:
    """Takes one step of Newton's method; gives the new values, and the weights that it was made with.

    The constant in the middle of the bounds is added first, which leaves the linear system the rest.
    """
    weights = np.asarray(problem.operator.gradient(point.q, point.q, where=problem.mdp.legal), np.float64)
    shift = (point.low + point.high) / 2
    rest = point.residual - shift * (1 - np.sum(weights * problem.enclosure.discount, axis=1))
    settled = last is not None and np.abs(weights - last).sum() < 2 * SETTLED * len(weights)
    solve = linear.solve if settled else linear.look_ahead
    return point.values + shift + solve(weights, rest, accuracy), weights


def _give_up(problem: Problem, best: Point, k: int, max_iterations: int | None) -> Run:
    """Goes on from the best point by plain iteration, if there are iterations left and a need."""
    if is_solved(problem, best, blur=100):
        return Run(problem, best, k, True, None)
    if max_iterations is not None and k >= max_iterations:
        return Run(problem, best, k, False, None)
    rest = iterate(problem, best.values, max_iterations and max_iterations - k)
    return rest._replace(iterations=rest.iterations + k)
