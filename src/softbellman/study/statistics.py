"""Intervals of measured scores."""

import numpy as np
from scipy import stats


def mean_interval(scores: np.ndarray, level: float = 0.95) -> tuple[float, float] | None:
    """Computes Student's t interval of a mean; None from fewer than two scores, since one shows no spread.

    Args:
        scores: `[n]` independent scores.
        level: confidence level, in `(0, 1)`.

    >>> low, high = mean_interval(np.array([0.0, 0.0, 0.0, 0.0, 100.0]))
    >>> round(low, 1), round(high, 1)
    (-35.5, 75.5)
    """
    n = len(scores)
    if n < 2:
        return None
    half = float(stats.t.ppf(0.5 + level / 2, n - 1)) * float(np.std(scores, ddof=1)) / n**0.5
    return float(np.mean(scores)) - half, float(np.mean(scores)) + half
