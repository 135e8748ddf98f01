"""Temperature of one state with noisy values: the tau without bias, and those that two networks' values lead to.

One state has `m` actions with true values `Q*`; the target network has `Q' = Q* + noise`, the online network
`Q = Q* + noise`, with noise of one size and a correlation. Softmax of `Q'` has a bias that rises with tau, from below 0
to that of the maximum; at one tau there is none. Controllers of the learner choose a tau by what can be seen of both.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from softbellman.arguments import as_integer, as_list, as_number, as_path
from softbellman.memory import available_memory, require_memory
from softbellman.operators import double, maximum, softmax
from softbellman.operators.row import compat
from softbellman.simulation import as_true_values

KAPPA = 0.75
"""Tau without bias times the noise, by and large; the default of the controller `noise`."""

VALUES = tuple(0.0 - action**2 / 16 for action in range(9))
"""True values of nine actions, from 0 down to -4, whose gaps grow: some actions are near the best, and some far."""

_LOG_RANGE = (math.log(1e-6), math.log(1e6))  # of tau times sigma
_ARRAYS = 8  # of the size of the noise, at once


class Choice(NamedTuple):
    """A tau, and what softmax makes of it.

    Attributes:
        tau: infinite for the max.
        bias: mean of `softmax(tau)(Q')` minus the largest true value.
    """

    tau: float
    bias: float


class Temperature(NamedTuple):
    """Temperatures for noise of a size and a correlation.

    Attributes:
        sigma: standard deviation of the noise of either network.
        correlation: between the noise of both, action by action.
        seen: the noise that their disagreement shows, `sigma sqrt(1 - correlation)`.
        unbiased: the tau without bias, None where softmax has none: even the mean is too large, or the max too small.
        noise: the choice of `noise(kappa)`.
        match: the choice of `match`.
        max: that of the maximum.
        double: the bias of `double(max)`.
    """

    sigma: float
    correlation: float
    seen: float
    unbiased: Choice | None
    noise: Choice
    match: Choice
    max: Choice
    double: float


def noise_variance(q: Any, other: Any, legal: Any = None, chosen: Any = None) -> tuple[Any, Any]:
    """Compute the variance of the noise of one of two networks, from how much they disagree, in NumPy or JAX.

    With `d = q - other`, and `d` less its mean over the `m` legal actions of a row, it is the sum of squares over all
    rows, divided by the sum of `m - 1` and by 2: the noise of differences between actions, a shift of all left out. It
    is right where the noise of both is independent and of one size.

    Args:
        q: `[B, A]`, one network's values.
        other: `[B, A]`, the other's.
        legal: `[B, A]` bool; None: all.
        chosen: `[B]` bool, rows that count; None: all.

    Returns:
        The variance, and a bool: there are differences to see. If not, it is 0.

    Example:
        >>> variance, _ = noise_variance(np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 2.0, 0.0]]))
        >>> float(variance)
        1.5
    """
    xp = compat.array_namespace(q)
    counts = xp.ones_like(q, dtype=bool) if legal is None else legal
    if chosen is not None:
        counts = counts & chosen[:, None]
    size = xp.sum(counts, axis=-1, keepdims=True)
    difference = xp.where(counts, q - other, 0.0)
    centred = xp.where(counts, difference - xp.sum(difference, axis=-1, keepdims=True) / xp.where(size > 0, size, 1), 0)
    freedom = xp.sum(xp.where(size > 1, size - 1, 0))
    there = freedom > 0
    return xp.sum(xp.square(centred)) / xp.where(there, 2 * freedom, 1), there


def temperatures(
    true_values: ArrayLike = VALUES,
    sigmas: float | Iterable[float] = (0.1, 0.5, 1.0, 3.0),
    correlations: float | Iterable[float] = (0.0, 0.9),
    *,
    kappa: float = KAPPA,
    trials: int = 20_000,
    seed: int = 0,
) -> list[Temperature]:
    """Find the tau without bias and the choices of the controllers, for normal noise.

    All sizes and correlations have the same draws behind them.

    Args:
        true_values: `[m]`, the true action values.
        sigmas: sizes of the noise, above 0.
        correlations: between the noise of both networks, from 0 to 1.
        kappa: that of `noise`, above 0.
        trials: independent trials, at least 2.
        seed: of the noise, at least 0.

    Returns:
        One for each correlation and size, the sizes varying first.

    Raises:
        MemoryError: there is less memory than the trials take.
        ValueError: a number is out of range.

    Example:
        >>> (found,) = temperatures(VALUES, 1.0, 0.0)
        >>> round(found.unbiased.tau, 1), abs(found.noise.bias) < 0.1
        (0.7, True)
    """
    values = as_true_values(true_values)
    sigmas, correlations = tuple(as_list(sigmas)), tuple(as_list(correlations))
    trials, seed, kappa = as_integer(trials, "trials"), as_integer(seed, "seed"), as_number(kappa, "kappa")
    if not trials >= 2:
        raise ValueError(f"trials ({trials}) must be at least 2")
    if seed < 0:
        raise ValueError(f"seed ({seed}) must be at least 0")
    for name, numbers, low, high in (
        ("kappa", (kappa,), 0.0, math.inf),
        ("sigma", sigmas, 0.0, math.inf),
        ("correlation", correlations, -1e-300, 1.0 + 1e-15),
    ):
        if not numbers:
            raise ValueError(f"name at least one {name}, such as {0.9 if name == 'correlation' else 0.5}")
        for number in numbers:
            if not low < as_number(number, name) < high:
                allowed = "in 0 .. 1" if name == "correlation" else "above 0, and finite"
                raise ValueError(f"{name} ({number}) must be {allowed}")
    require_memory(8 * _ARRAYS * trials * len(values), available_memory(), "trials")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(len(values),)))
    one, other = rng.standard_normal((2, trials, len(values)))
    return [
        _temperature(values, sigma, rho, one, rho * one + math.sqrt(max(0.0, 1 - rho**2)) * other, kappa)
        for rho in map(float, correlations)
        for sigma in map(float, sigmas)
    ]


def _temperature(values: Any, sigma: float, rho: float, noise: Any, online_noise: Any, kappa: float) -> Temperature:
    q, online = values + sigma * noise, values + sigma * online_noise
    best = float(np.max(values))

    def bias(tau: float) -> float:
        return float(np.mean(softmax(tau)(q) if tau < math.inf else maximum()(q))) - best

    def choice(tau: float) -> Choice:
        return Choice(tau, bias(tau))

    doubled = float(np.mean(double(maximum())(q, online))) - best
    seen = math.sqrt(float(noise_variance(q, online)[0]))
    unbiased = _root(bias, 0.0, sigma)
    return Temperature(
        sigma,
        rho,
        seen,
        choice(unbiased) if 0 < unbiased < math.inf else None,
        choice(kappa / seen if seen > 0 else math.inf),
        choice(_root(bias, doubled, sigma)),
        choice(math.inf),
        doubled,
    )


def _root(bias: Any, aim: float, sigma: float) -> float:
    """Solve for the tau with a bias, which rises with tau; 0 or infinity where none has it. Halves its logarithm."""
    if bias(math.inf) <= aim:
        return math.inf
    if bias(0.0) >= aim:
        return 0.0
    low, high = (end - math.log(sigma) for end in _LOG_RANGE)
    for _ in range(28):
        middle = (low + high) / 2
        low, high = (low, middle) if bias(math.exp(middle)) > aim else (middle, high)
    return math.exp((low + high) / 2)


def write_temperatures(found: Sequence[Temperature], path: str | Path) -> Path:
    """Write temperatures as CSV, one a line, every number in full; returns the path."""
    path = as_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    choices = ("unbiased", "noise", "match", "max")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        columns = [f"{name}_{part}" for name in choices for part in Choice._fields]
        writer.writerow(["sigma", "correlation", "seen", *columns, "double_bias"])
        for each in found:
            cells = [number for name in choices for number in getattr(each, name) or (None, None)]
            writer.writerow([each.sigma, each.correlation, each.seen, *cells, each.double])
    return path
