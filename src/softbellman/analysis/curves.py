"""Learning curves: aligned on common steps, and averaged with a band.

Nothing is extrapolated or smoothed. Where a curve has no value, it does not count, and every point says how many do.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from softbellman.analysis.records import Records
from softbellman.analysis.scores import counts
from softbellman.analysis.statistics import mean_interval

Curve = tuple[np.ndarray, np.ndarray]
"""Agent steps `[points]`, increasing, and values `[points]`; NaN: no value."""


def collect_curves(
    records: Records, column: str, operator: str, game: str | None = None, *, partial: bool = False
) -> dict[int, Curve]:
    """Collects a curve for each run of an operator in a game, over agent steps, by seed; one without a value has none.

    Args:
        records: what the runs of a study left.
        column: the column of `metrics.csv`.
        operator: name of the operator or arm.
        game: name of the environment; it may be left out if there is but one.
        partial: runs that are under way or were stopped are there as far as they have come. Those that failed or
            diverged never are.

    Raises:
        ValueError: if the study has several games and none is named, for a column that there is not, or metrics that
            can't be read.
    """
    games = list(dict.fromkeys(record.run.environment for record in records.runs))
    if game is None and len(games) > 1:
        raise ValueError(f"curves of different games are not pooled; name one of {', '.join(games)}")
    found = {}
    for record in records.runs:
        wanted = record.run.operator == operator and record.run.environment == (game or games[0])
        if wanted and counts(record.state, partial=partial) and record.rows:
            values = record.column(column)
            if np.isfinite(values).any():
                found[record.run.seed] = record.column("agent_steps"), values
    return found


class Aligned(NamedTuple):
    """Curves at common steps.

    Attributes:
        x: `[points]` agent steps.
        values: `[curve, points]`; NaN: that curve has no value there.
        n: `[points]` how many curves have one, at least 1.
    """

    x: np.ndarray
    values: np.ndarray
    n: np.ndarray


def align(curves: Sequence[Curve]) -> Aligned:
    """Brings curves to all steps at which any has a point, by linear interpolation, and up to the shortest one's end.

    Beyond that a mean would be one of other runs.

    Args:
        curves: at least one; an interval between two points of which one has no value has none either.

    Raises:
        ValueError: without a curve, for steps that do not increase, or if no step is left.

    >>> align([(np.array([0, 10, 20]), np.array([0, 1, 2])), (np.array([0, 15]), np.array([0, 3]))]).x
    array([ 0., 10., 15.])
    """
    if not curves:
        raise ValueError("there is no curve to align")
    for number, (x, y) in enumerate(curves):
        if len(x) == 0 or len(x) != len(y) or (np.diff(x) <= 0).any():
            raise ValueError(f"curve {number} must have steps that increase, at least one, and a value for each")
    x = np.unique(np.concatenate([x for x, _ in curves])).astype(float)
    x = x[(x >= max(x[0] for x, _ in curves)) & (x <= min(x[-1] for x, _ in curves))]
    values = np.array([np.interp(x, *curve, left=np.nan, right=np.nan) for curve in curves])
    n = np.isfinite(values).sum(axis=0)
    if not n.any():
        raise ValueError("no step is left at which the curves have values")
    return Aligned(x[n > 0], values[:, n > 0], n[n > 0])


class Band(NamedTuple):
    """An average curve and its interval, point by point.

    Attributes:
        x: `[points]` agent steps.
        mean: `[points]` the average.
        low: `[points]` the interval's lower ends, NaN where there is none; None if there is none anywhere: a line
            without a band.
        high: the upper ends, likewise.
        n: `[points]` how many runs have a value.
    """

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    n: np.ndarray


def mean_band(aligned: Aligned, level: float = 0.95) -> Band:
    """Averages curves, with Student's t interval at each point; it holds point by point, not for the curve as a whole.

    >>> mean_band(align([(np.array([0, 10]), np.array([1, 2]))])).low is None  # one run has no band
    True
    """
    intervals = [mean_interval(values, level) for values in aligned.values.T]
    low, high = np.array([(np.nan, np.nan) if ends is None else ends for ends in intervals]).reshape(-1, 2).T
    mean = np.nanmean(aligned.values, axis=0)
    return Band(aligned.x, mean, *((None, None) if not any(intervals) else (low, high)), aligned.n)
