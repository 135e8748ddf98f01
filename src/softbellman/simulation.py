"""Simulation of operators on noisy action values; equal parameters of softmax and mellowmax.

One state, `m` actions with true values `Q*`, and estimates `Q = Q* + noise`. An operator is asked for `op(Q, Q')` as
a learner asks for it, `Q'` being an independent second estimate: single operators ignore it, double ones take their
weights from it. All operators see the same noise, and the noise is a function of the seed and of the number of
actions alone: no cell of a table depends on which others were asked for, and the first trials of a long study are
those of a short one.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softbellman.arguments import as_integer, as_list, as_number, as_path
from softbellman.faults import faults_placed
from softbellman.memory import available_memory, require_memory
from softbellman.operators import Mellowmax, Operator, Softmax, as_operators, centre, require_contract
from softbellman.operators.arrays import floats
from softbellman.operators.row import Row, scaled

__all__ = [
    "Cell",
    "Curve",
    "Equivalence",
    "Summary",
    "compare",
    "equivalent_omega",
    "laplace",
    "measure",
    "normal",
    "one_better",
    "parameter",
    "uniform",
    "write_csv",
]

Values = NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, int]], Values]

_VALUES_AT_ONCE = 2**16  # so that the arrays of a part of the trials stay in the cache


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> Values:
    """Draw standard normal noise, the paper's."""
    return rng.standard_normal(shape)


def uniform(rng: np.random.Generator, shape: tuple[int, int]) -> Values:
    """Draw noise uniform on [-1, 1], for which `E[max] = (m - 1) / (m + 1)` (van Hasselt et al., 2016)."""
    return rng.uniform(-1.0, 1.0, shape)


def laplace(rng: np.random.Generator, shape: tuple[int, int]) -> Values:
    """Draw noise of Laplace's distribution, with variance 1 and heavier tails than the normal."""
    return rng.laplace(scale=0.5**0.5, size=shape)


class Summary(NamedTuple):
    """Findings about one quantity over independent trials, in the units of the values.

    Attributes:
        mean: over the trials.
        std: standard deviation of one trial.
        standard_error: that of the mean.
    """

    mean: float
    std: float
    standard_error: float

    @classmethod
    def of(cls, samples: Values) -> Summary:
        """Summarise `[T]` samples."""
        std = float(np.std(samples, ddof=1))
        return cls(float(np.mean(samples)), std, std / math.sqrt(len(samples)))


@dataclass(frozen=True)
class Cell:
    """Cell of a simulation: one operator on noisy values.

    Attributes:
        operator: the operator.
        actions: number of actions.
        trials: number of independent trials.
        overestimation: `op(Q, Q') - max(Q*)`, the error of Figure 2 and of Figure 7 (right).
        approximation_error: `max(Q) - op(Q, Q')` within each trial, Figure 7 (left).
    """

    operator: Operator
    actions: int
    trials: int
    overestimation: Summary
    approximation_error: Summary


@dataclass(frozen=True)
class Curve:
    """A family of operators over its parameter, at one number of actions; `cells` has one for each of `parameters`."""

    family: str
    actions: int
    parameters: tuple[float, ...]
    cells: tuple[Cell, ...]


@faults_placed()
def measure(
    operators: Operator | str | Sequence[Operator | str],
    true_values: ArrayLike,
    *,
    noise: Noise = normal,
    scale: float = 1.0,
    trials: int = 100,
    seed: int = 0,
) -> list[Cell]:
    """Measure what operators make of noisy estimates of the same true values (Section 5.1, Figure 2).

    It takes `operators x trials x 8` bytes, and a few MB besides.

    Args:
        operators: one or several, or their specs; all see the same noise.
        true_values: `[m]`, the true action values; all equal under the paper's assumption A1.
        noise: `noise(rng, (trials, m))`, an independent draw for each trial and action, of mean 0.
        scale: what the noise is multiplied by, at least 0.
        trials: independent trials, at least 2.
        seed: of the noise, at least 0.

    Returns:
        A cell for each operator, in their order.

    Raises:
        TypeError: what is no operator.
        MemoryError: there is less memory than the trials take.
        ValueError: a number is out of range, a true value not finite, noise not what it must be, or an operator breaks
            its contract or fails.

    Example:
        >>> from softbellman import operators as ops
        >>> single, double = measure([ops.maximum(), ops.double(ops.maximum())], [0.0, 0.0], trials=100_000)
        >>> abs(single.overestimation.mean - 0.5642) < 4 * single.overestimation.standard_error
        True
        >>> abs(double.overestimation.mean) < 4 * double.overestimation.standard_error
        True
    """
    true_values = as_true_values(true_values)
    trials, seed, scale = as_integer(trials, "trials"), as_integer(seed, "seed"), as_number(scale, "scale")
    if not trials >= 2:
        raise ValueError(f"trials ({trials}) must be at least 2: one shows no spread")
    if not 0 <= scale < math.inf:
        raise ValueError(f"scale ({scale}) must be finite and at least 0")
    if seed < 0:
        raise ValueError(f"seed ({seed}) must be at least 0")
    actions, operators = len(true_values), as_operators(operators)
    for op in operators:
        require_contract(op, actions)
    require_memory(8 * trials * (len(operators) + 1), available_memory(), "trials")
    streams = [np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(actions, copy))) for copy in (0, 1)]
    values, largest = np.empty((len(operators), trials)), np.empty(trials)
    at_once = max(1, _VALUES_AT_ONCE // actions)
    for start in range(0, trials, at_once):
        part = slice(start, min(start + at_once, trials))
        shape = (part.stop - part.start, actions)
        q, selector = (true_values + scale * _drawn(noise, stream, shape) for stream in streams)
        largest[part] = np.max(q, axis=-1)
        for row, op in zip(values, operators, strict=True):
            row[part] = op(q, selector)
            if not np.isfinite(row[part]).all():
                at = int(np.argmin(np.isfinite(row[part])))
                raise ValueError(f"operator {op} gives {row[part][at]} for the action values {q[at]}")
    best = np.max(true_values)
    return [
        Cell(op, actions, trials, Summary.of(row - best), Summary.of(largest - row))
        for op, row in zip(operators, values, strict=True)
    ]


@faults_placed()
def compare(
    families: Mapping[str, Callable[[float], Operator]],
    parameters: float | Iterable[float],
    actions: int,
    *,
    noise: Noise = normal,
    trials: int = 100,
    seed: int = 0,
) -> list[Curve]:
    """Compare families of operators over their parameter, true values all 0 (Section 6, Figure 7).

    Args:
        families: by the names of the curves, functions from a parameter to an operator.
        parameters: a value of `tau` or `omega`, or several.
        actions: number of actions.
        noise: as for `measure`, the same for all families and parameters.
        trials: as for `measure`.
        seed: as for `measure`.

    Returns:
        A curve for each family, in their order.

    Example:
        >>> from softbellman import operators as ops
        >>> soft, mellow = compare({"sm": ops.softmax, "mm": ops.mellowmax}, [1.0, 10.0], actions=4)
        >>> all(s.overestimation.mean > m.overestimation.mean for s, m in zip(soft.cells, mellow.cells))
        True
    """
    parameters, actions = tuple(as_list(parameters)), as_integer(actions, "actions")
    operators = [family(parameter) for family in families.values() for parameter in parameters]
    cells = measure(operators, np.zeros(actions), noise=noise, trials=trials, seed=seed)
    length = len(parameters)
    return [
        Curve(name, actions, parameters, tuple(cells[number * length : (number + 1) * length]))
        for number, name in enumerate(families)
    ]


def one_better(actions: int, distance: float) -> Values:
    """Give true values `[m]` of 0 for one action and `-distance` for all others.

    Raises:
        ValueError: the distance is below 0, or not finite.

    Example:
        >>> one_better(3, 0.5).tolist()
        [0.0, -0.5, -0.5]
    """
    if not 0 <= (distance := as_number(distance, "distance")) < math.inf:
        raise ValueError(f"distance ({distance}) must be finite and at least 0")
    return np.where(np.arange(as_integer(actions, "actions")) == 0, 0.0, -distance)


def parameter(operator: Operator) -> tuple[str, float] | None:
    """Find the first number among an operator's fields, with its name; None if it has none.

    Example:
        >>> from softbellman import operators as ops
        >>> parameter(ops.double(ops.softmax(5))), parameter(ops.double(ops.maximum()))
        (('tau', 5.0), None)
    """
    if not dataclasses.is_dataclass(operator):
        return None
    for field in dataclasses.fields(operator):
        value = getattr(operator, field.name)
        if isinstance(value, int | float):
            return field.name, float(value)
        if inner := parameter(value):
            return inner
    return None


def write_csv(cells: Iterable[Cell], path: str | Path) -> Path:
    """Write cells as CSV, one a line, every number in full; returns the path."""
    path = as_path(path)
    quantities = ("overestimation", "approximation_error")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        statistics = [f"{quantity}_{statistic}" for quantity in quantities for statistic in Summary._fields]
        writer.writerow(["operator", "parameter", "actions", "trials", *statistics])
        for cell in cells:
            found = (number for quantity in quantities for number in getattr(cell, quantity))
            _, number = parameter(cell.operator) or (None, None)
            writer.writerow([str(cell.operator), number, cell.actions, cell.trials, *found])
    return path


class Equivalence(NamedTuple):
    """The mellowmax that equals a softmax at given values.

    Attributes:
        omega: `[...]`, with `mm_omega(q) = sm_tau(q)`; infinite, for the maximum, where no float is large enough.
        saturated: `[...]` bool, `sm_tau(q)` rounds to `max(q)` or lies too close for any omega, so that every larger
            omega serves as well.
    """

    omega: Values
    saturated: NDArray[np.bool_]


def equivalent_omega(q: ArrayLike, tau: ArrayLike) -> Equivalence:
    """Find the mellowmax that gives what a softmax gives: `mm_omega(q) = sm_tau(q)` (Section 6).

    There is exactly one unless all values are equal, and it belongs to this `q` alone. It lies between `tau`, since
    `sm_tau - mm_tau` is a divergence, and `log(m) / (max - sm_tau)`, since `max - mm_omega <= log(m) / omega`; the
    interval of its logarithm is halved. Both sides are measured from the best value, so that `omega` is right, to 9
    digits and mostly to 11 or more, long after softmax has become the maximum in floating point. Where tau times the
    spread is small, both are near the mean, and the series of `omega` in tau is taken.

    Args:
        q: `[..., A]` action values; -inf is not legal. Where all are equal, `omega` is the limit `2 tau`.
        tau: `[...]`, finite and at least 0; 0 gives 0, the mean.

    Raises:
        ValueError: `tau` is out of range, or a value NaN or infinite.

    Example:
        >>> omega, saturated = equivalent_omega([0.0, 1.0], [1.0, 10.0, 40.0, 1000.0])
        >>> omega.round(4).tolist()[:2], saturated.tolist()
        ([2.1786, 15268.2758], [False, False, True, True])
    """
    q, tau = floats(q, "q"), floats(tau, "tau")
    if not np.all((tau >= 0) & (tau < np.inf)):
        raise ValueError(f"tau ({tau}) must be finite and at least 0; for its limit, the max, no omega is finite")
    if not np.all(q < np.inf):
        raise ValueError("q must be finite, or -inf for an action that is not legal; there is a NaN or an inf")
    row, tau = centre(q), tau[..., None]
    finfo = np.finfo(np.float64)
    offset = Softmax(tau).offset(row)
    steepness = scaled(tau, row.spread)
    nearly_mean = steepness < 1e-4  # where the series is right to 10 digits
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        highest = np.log(row.sum(row.legal)) / np.abs(offset)
    infinite = ~nearly_mean & (highest > finfo.max * 1e-6)
    low, high = (np.log(np.where(nearly_mean | infinite, 1.0, bound)) for bound in (tau, highest))
    for _ in range(64):
        middle = (low + high) / 2
        is_above = Mellowmax(np.exp(middle)).offset(row) > offset
        low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
    omega = np.where(infinite, np.inf, np.exp((low + high) / 2))
    omega = np.where(nearly_mean, _near_the_mean(row, np.where(nearly_mean, steepness, 0.0)) * tau, omega)
    return Equivalence(omega[..., 0], ((row.best + offset == row.best) | infinite)[..., 0])


def _near_the_mean(row: Row, steepness: Values) -> Values:
    """Give `omega / tau` by the cumulants of the values under the uniform policy, for a small `tau * spread`.

    `mm_omega = K(omega) / omega` and `sm_tau = K'(tau)`, with K their generating function; powers of tau are equated.
    """
    height = np.where(row.legal, row.z / np.where(row.spread > 0, row.spread, 1.0), 0.0)
    second, third, fourth = (row.mean((height - row.mean(height)) ** power) for power in (2, 3, 4))
    second = np.where(second > 0, second, 1.0)
    skew, tail = third / second, fourth / second - 3 * second
    return 2 - skew / 3 * steepness + (4 / 9 * skew**2 - tail / 3) * steepness**2


def _drawn(noise: Noise, stream: np.random.Generator, shape: tuple[int, int]) -> Values:
    drawn = floats(noise(stream, shape), "noise")
    if drawn.shape != shape or not np.isfinite(drawn).all():
        found = f"of shape {drawn.shape}" if drawn.shape != shape else "that is not finite"
        raise ValueError(f"noise(rng, {shape}) gave an array {found}; it must give finite numbers of that shape")
    return drawn


def as_true_values(values: ArrayLike) -> Values:
    values = floats(values, "true values")
    if values.ndim != 1 or not len(values) or not np.all(np.isfinite(values)):
        raise ValueError(f"true values ({values}) must be finite numbers, one for each action")
    return values
