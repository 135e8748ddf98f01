"""Intervals by hand."""

import numpy as np
import pytest

from softbellman.study.statistics import mean_interval


def test_l12_five_scores_take_students_factor_of_four_degrees_of_freedom():
    low, high = mean_interval(np.array([0.0, 0.0, 0.0, 0.0, 100.0]))
    assert (low + high) / 2 == pytest.approx(20.0)
    assert (high - low) / 2 == pytest.approx(20.0 * 2.776, abs=0.01)


def test_l12_one_score_has_no_interval_and_equal_ones_an_interval_of_no_width():
    assert mean_interval(np.array([3.0])) is None
    assert mean_interval(np.array([])) is None
    assert mean_interval(np.full(4, 3.0)) == (3.0, 3.0)


def test_the_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = [low <= 0.0 <= high for low, high in map(mean_interval, rng.normal(size=(4_000, 5)))]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)
    narrow, wide = (mean_interval(rng.normal(size=10), level) for level in (0.5, 0.99))
    assert narrow[1] - narrow[0] < wide[1] - wide[0]
