"""Statistics of scores: intervals, performance profiles, paired comparisons.

The unit of analysis is the run. A score that is missing is NaN, or masked, and left out; a quantity that can't be had
is None. Scores are arrays, lists or columns of pandas, paired by place; columns with the same labels by these.

Interquartile mean, stratified bootstrap, performance profile and probability of improvement are defined as by Agarwal
et al., *Deep reinforcement learning at the edge of the statistical precipice*, NeurIPS 2021, and in their package
rliable.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from softbellman.arguments import as_integer, as_number

Interval = tuple[float, float]

_CHUNK = 1 << 19  # numbers held at once while resampling


def as_scores(given: ArrayLike, most_axes: int | None = None) -> np.ndarray:
    """Takes scores as a float array in which those that are masked are NaN.

    Args:
        given: the scores.
        most_axes: 1 for `[seed]`, 2 for that or `[game, seed]`; None: any shape.

    Raises:
        ValueError: if they are no numbers, or have another shape.
    """
    try:
        scores = np.ma.array(given, dtype=float).filled(np.nan)
    except (TypeError, ValueError):
        raise ValueError("scores must be numbers, of each game as many; NaN stands for a missing one") from None
    if most_axes is not None and not 1 <= scores.ndim <= most_axes:
        form = "those of one game, `[seed]`" if most_axes == 1 else "`[game, seed]`, or `[seed]` of one game"
        raise ValueError(f"scores have shape {scores.shape}; give {form}")
    return scores


def mean_interval(scores: ArrayLike, level: float = 0.95) -> Interval | None:
    """Computes Student's t interval of a mean; None from fewer than two scores, since one shows no spread.

    Args:
        scores: `[n]` independent scores; NaN: no score.
        level: confidence level, in `(0, 1)`.

    >>> low, high = mean_interval(np.array([0.0, 0.0, 0.0, 0.0, 100.0]))
    >>> round(low, 1), round(high, 1)
    (-35.5, 75.5)
    """
    _require_level(level)
    scores = _known(scores)
    n = len(scores)
    if n < 2:
        return None
    spread = float(np.std(scores, ddof=1)) if np.ptp(scores) else 0.0  # equal scores have none, rounding aside
    half = _student(0.5 + level / 2, n - 1) * spread / n**0.5
    return float(np.mean(scores)) - half, float(np.mean(scores)) + half


@functools.cache
def _student(share: float, freedom: int) -> float:
    """Computes a quantile of Student's distribution, once: a band asks for the same one at every point."""
    return float(stats.t.ppf(share, freedom))


def known_mean(values: ArrayLike, axis: int | tuple[int, ...] = -1) -> np.ndarray:
    """Averages along axes all that is not NaN; NaN where nothing is left.

    >>> known_mean(np.array([[1.0, np.nan, 3.0], [np.nan] * 3]))
    array([ 2., nan])
    """
    values = as_scores(values)
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    return np.where(count > 0, np.where(known, values, 0.0).sum(axis=axis) / np.maximum(count, 1), np.nan)


def interquartile_mean(values: ArrayLike, axis: int | None = None) -> np.ndarray | float:
    """Computes the mean of the middle half: a quarter of the values, rounded down, is cut off at either end.

    Args:
        values: scores; without an axis NaN is left out, with one there must be none.
        axis: the axis along which; None: over all values.

    Raises:
        ValueError: if there is no value.

    >>> float(interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 100.0])))
    2.0
    """
    values = as_scores(values)
    if axis is None:
        values, axis = values[~np.isnan(values)], -1
    if values.size == 0:
        raise ValueError("there is no score to take the interquartile mean of")
    return stats.trim_mean(values, 0.25, axis=axis)


def bootstrap_interval(
    values: ArrayLike,
    statistic: Callable[..., np.ndarray | float] = interquartile_mean,
    *,
    resamples: int = 50_000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval | None:
    """Computes the percentile interval of a statistic by a stratified bootstrap: runs are drawn anew within each game.

    With few runs of one game it is too narrow: at level 0.95, the interval from 5 normal scores holds the true value in
    90% of cases, from 3 in 75%, of a skewed distribution in fewer. Student's interval, `mean_interval`, is the safer.

    Args:
        values: `[game, seed]`, or `[seed]` of one game; NaN: no score.
        statistic: a function like `np.mean`: called with resampled scores `[resamples, scores]`, those of all games in
            a row, and `axis=-1`.
        resamples: how often scores are drawn anew.
        seed: of the drawing; the same data and seed give the same interval.
        level: confidence level, in `(0, 1)`.

    Returns:
        The interval, or None if a game has fewer than two scores, since one shows no spread.
    """
    _require_level(level)
    _require_resamples(resamples)
    values = np.atleast_2d(as_scores(values, 2))
    known = ~np.isnan(values)
    counted = known.sum(axis=1)
    if counted.min() < 2:
        return None
    scores = values[known]
    first, choices = (np.repeat(of_game, counted) for of_game in (np.cumsum(counted) - counted, counted))
    rng, found = np.random.default_rng(seed), np.empty(resamples)
    rows = max(1, _CHUNK // scores.size)
    for start in range(0, resamples, rows):
        uniform = rng.random((min(rows, resamples - start), scores.size))
        found[start : start + rows] = statistic(scores[first + (uniform * choices).astype(np.intp)], axis=-1)
    return _percentiles(found, level)


def performance_profile(values: ArrayLike, thresholds: Sequence[float] | np.ndarray) -> np.ndarray:
    """Computes the share of runs that score more than each threshold, games weighing alike.

    Args:
        values: `[game, seed]`, or `[seed]` of one game; NaN: no score.
        thresholds: `[thresholds]`.

    Returns:
        `[thresholds]` shares in `[0, 1]`.

    Raises:
        ValueError: if a game has no score.

    >>> performance_profile(np.array([[1.0, 2.0], [2.0, 4.0]]), [0.0, 1.0, 2.0])
    array([1.  , 0.75, 0.25])
    """
    games = [game[~np.isnan(game)] for game in np.atleast_2d(as_scores(values, 2))]
    if not all(map(len, games)):
        raise ValueError("a game without any score has no performance profile; leave it out for every operator")
    return np.mean([(game[:, None] > np.asarray(thresholds)).mean(axis=0) for game in games], axis=0)


def probability_of_improvement(first: ArrayLike, second: ArrayLike) -> float | None:
    """Computes how probable it is that a run of `first` scores more than one of `second`; a tie counts half.

    Args:
        first: `[game, seed]`, or `[seed]` of one game; NaN: no score. Games weigh alike.
        second: likewise, of the same games; it may have other seeds.

    Returns:
        A probability, or None if a game has no score of either.

    >>> probability_of_improvement(np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    0.875
    """
    games = _compared(first, second)
    return float(np.mean([game.mean() for game in games])) if all(game.size for game in games) else None


def improvement_interval(
    first: ArrayLike, second: ArrayLike, *, resamples: int = 50_000, seed: int = 0, level: float = 0.95
) -> Interval | None:
    """Computes the percentile interval of `probability_of_improvement`, runs of both drawn anew within each game.

    Like `bootstrap_interval` it is too narrow for few runs: `(1, 1)` where all runs of `first` beat all of `second`.

    Returns:
        The interval, or None if a game has fewer than two scores of either.
    """
    _require_level(level)
    _require_resamples(resamples)
    games = _compared(first, second)
    if min(min(game.shape) for game in games) < 2:
        return None
    rng, found = np.random.default_rng(seed), np.zeros(resamples)
    for game in games:
        of_first, of_second = (rng.multinomial(n, np.full(n, 1 / n), size=resamples) / n for n in game.shape)
        found += (of_first @ game * of_second).sum(axis=1)  # each run weighs as often as it was drawn
    return _percentiles(found / len(games), level)


class Difference(NamedTuple):
    """The mean difference of two operators, its interval, and from how many seeds of either it is told."""

    mean: float | None
    interval: Interval | None
    n: int


def paired_difference(first: ArrayLike, second: ArrayLike, level: float = 0.95) -> Difference:
    """Compares scores `[seed]` of two operators in one game, `first` minus `second`, on the seeds that both have.

    Its interval is Student's.

    Raises:
        ValueError: if they are not of as many seeds; NaN holds the place of a score that is missing.
    """
    difference = _differences(first, second)
    mean = float(np.mean(difference)) if len(difference) else None
    return Difference(mean, mean_interval(difference, level), len(difference))


def permutation_test(first: ArrayLike, second: ArrayLike, *, resamples: int = 9_999, seed: int = 0) -> float | None:
    """Computes the two-sided p of the mean difference over common seeds, by exchanging the scores of a seed.

    It needs no assumption on how scores are distributed. With `n` seeds it is exact up to 13 of them, and at least
    `2 / 2^n`: 0.25 with 3 seeds, 0.0625 with 5.

    Args:
        first: `[seed]`; NaN: no score.
        second: `[seed]`, of the same seeds.
        resamples: exchanges drawn where there are too many to try all.
        seed: of the drawing.

    Returns:
        The p-value, or None from fewer than two common seeds.

    Raises:
        ValueError: as `paired_difference`.

    >>> permutation_test(np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.0, 0.0]))
    0.25
    """
    _require_resamples(resamples)
    difference = _differences(first, second)
    if len(difference) < 2:
        return None
    test = stats.permutation_test(
        (difference,), np.mean, permutation_type="samples", n_resamples=resamples, vectorized=True, rng=seed
    )
    return float(test.pvalue)


def simultaneous_differences(scores: Iterable[ArrayLike], level: float = 0.95) -> list[Difference]:
    """Compares several operators with the first by Dunnett's intervals, which hold all together at the level.

    All are taken to have one spread, and runs to be independent: seeds are not paired.

    Args:
        scores: `[n]` scores of each operator, the first one's first; NaN: no score.
        level: confidence level, in `(0, 1)`.

    Returns:
        A difference for each operator but the first: of the means of all scores; `n` is the smaller number of runs.
        There is no interval where either has fewer than two scores.
    """
    _require_level(level)
    first, *others = map(_known, scores)
    counts = [min(len(first), len(other)) for other in others]
    means = [float(np.mean(other) - np.mean(first)) if n else None for other, n in zip(others, counts, strict=True)]
    several = [other for other, n in zip(others, counts, strict=True) if n >= 2]
    intervals = iter(_dunnett(first, several, level) if several else [])
    return [Difference(mean, next(intervals) if n >= 2 else None, n) for mean, n in zip(means, counts, strict=True)]


def spreads_differ(counts: Sequence[int], spreads: Sequence[float], level: float = 0.99) -> bool:
    """Tells that groups have not one spread: by Bartlett's test, or some have none and others do.

    Args:
        counts: scores of each group, two or more.
        spreads: their standard deviations.
        level: confidence level, in `(0, 1)`.

    >>> spreads_differ([5, 5, 5], [1.0, 1.2, 0.9]), spreads_differ([5, 5, 5], [1.0, 0.1, 6.0])
    (False, True)

    Source: Bartlett (1937).
    """
    _require_level(level)
    if min(spreads) <= 1e-12 * max(spreads):  # rounding is no spread
        return max(spreads) > 0
    free, variances = np.array(counts) - 1, np.array(spreads) ** 2
    pooled = np.average(variances, weights=free)
    excess = np.sum(free) * np.log(pooled) - np.sum(free * np.log(variances))
    correction = 1 + (np.sum(1 / free) - 1 / np.sum(free)) / (3 * (len(free) - 1))
    return bool(stats.chi2.sf(excess / correction, len(free) - 1) < 1 - level)


def too_narrow(counts: Sequence[int], spreads: Sequence[float]) -> list[bool]:
    """Tells of each group but the first if the interval of its difference to that, by a pooled spread, is too narrow.

    >>> too_narrow([5, 5, 5], [2.0, 0.1, 0.1]), too_narrow([5, 5, 5], [0.1, 0.1, 2.0])
    ([True, True], [False, True])
    """
    n, variances = np.array(counts), np.array(spreads) ** 2
    pooled = np.average(variances, weights=n - 1)
    return (variances[0] / n[0] + variances[1:] / n[1:] > pooled * (1 / n[0] + 1 / n[1:])).tolist()


def _dunnett(first: np.ndarray, others: Sequence[np.ndarray], level: float) -> list[Interval]:
    """Computes intervals of `mean(other) - mean(first)`, each of two scores or more."""
    groups = (first, *others)
    freedom = sum(len(each) - 1 for each in groups)
    variance = sum(float(np.sum((each - np.mean(each)) ** 2)) for each in groups if np.ptp(each)) / freedom
    critical = _critical_value(len(first), tuple(len(other) for other in others), freedom, level)
    found = []
    for other in others:
        mean = float(np.mean(other) - np.mean(first))
        half = critical * (variance * (1 / len(first) + 1 / len(other))) ** 0.5
        found.append((mean - half, mean + half))
    return found


@functools.cache
def _critical_value(first: int, others: tuple[int, ...], freedom: int, level: float) -> float:
    """Computes the bound within which all studentised differences to the first group lie with a probability.

    Given the first group's mean and the pooled spread they are independent (Dunnett, 1955), so two integrals are left.
    `scipy.stats.dunnett` samples the joint distribution instead: that takes 24 s for 39 comparisons, and may not
    converge.
    """
    share = np.array([n / (first + n) for n in others])[:, None, None]
    z, weight_z = np.polynomial.hermite_e.hermegauss(81)
    u, weight_u = np.polynomial.legendre.leggauss(81)
    spread = np.sqrt(stats.chi2.ppf((u + 1) / 2, freedom) / freedom)[:, None]
    weights = np.outer(weight_u / 2, weight_z / weight_z.sum())

    def excess(bound: float) -> float:
        high, low = ((side * bound * spread + share**0.5 * z) / (1 - share) ** 0.5 for side in (1, -1))
        inside = np.prod(special.ndtr(high) - special.ndtr(low), axis=0)
        return float(np.sum(weights * inside)) - level

    alone, apart = (_student(1 - (1 - level) / (2 * n), freedom) for n in (1, len(others)))  # Bonferroni's, at most
    if len(others) == 1:
        return alone
    found = optimize.root_scalar(excess, bracket=(0.9 * alone, 1.1 * apart)).root
    return float(np.clip(found, alone, apart))  # the integral is not exact where the first group is far the smallest


def _known(scores: ArrayLike) -> np.ndarray:
    """Returns the scores `[seed]` of one game that are there."""
    scores = as_scores(scores, 1)
    return scores[~np.isnan(scores)]


def _differences(first: Any, second: Any) -> np.ndarray:
    """Returns the differences on the seeds that both have.

    Raises:
        ValueError: if they are not of as many seeds.
    """
    if all(hasattr(each, "reindex") for each in (first, second)) and set(first.index) == set(second.index):
        second = second.reindex(first.index)
    first, second = as_scores(first, 1), as_scores(second, 1)
    if first.shape != second.shape:
        raise ValueError(
            f"scores of {first.shape} and {second.shape} seeds are not paired; NaN stands for a missing one"
        )
    difference = first - second
    return difference[~np.isnan(difference)]


def _compared(first: ArrayLike, second: ArrayLike) -> list[np.ndarray]:
    """Compares every run of one with every run of the other: for each game `[first, second]` of 1, 1/2 and 0."""
    first, second = (np.atleast_2d(as_scores(each, 2)) for each in (first, second))
    if len(first) != len(second):
        raise ValueError(f"scores of {len(first)} games can't be compared with those of {len(second)}")
    pairs = ((a[~np.isnan(a), None], b[None, ~np.isnan(b)]) for a, b in zip(first, second, strict=True))
    return [(np.sign(a - b) + 1) / 2 for a, b in pairs]


def _percentiles(found: np.ndarray, level: float) -> Interval:
    low, high = np.quantile(found, (0.5 - level / 2, 0.5 + level / 2))
    return float(low), float(high)


def _require_level(level: float) -> None:
    if not 0 < as_number(level, "level") < 1:
        raise ValueError(f"level ({level}) must be between 0 and 1, such as 0.95")


def _require_resamples(resamples: int) -> None:
    if as_integer(resamples, "resamples") < 1:
        raise ValueError(f"resamples ({resamples}) must be at least 1")
