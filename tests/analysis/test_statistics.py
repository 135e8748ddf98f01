"""Statistics of scores by hand, by plain loops, and by what they promise of repeated experiments."""

import itertools
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from softbellman.analysis.normalised import human_normalised
from softbellman.analysis.scores import summarise
from softbellman.analysis.statistics import (
    bootstrap_interval,
    improvement_interval,
    interquartile_mean,
    known_mean,
    mean_interval,
    paired_difference,
    performance_profile,
    permutation_test,
    probability_of_improvement,
    simultaneous_differences,
    spreads_differ,
    too_narrow,
)

NAN = np.nan
TWO_GAMES = np.array([[3.0, -1.0, 4.0, 1.0, 5.0], [9.0, 2.0, 6.0, 5.0, 3.5]])


def middle_half(scores):
    """The interquartile mean in its plainest form."""
    ranked = sorted(scores)
    cut = len(ranked) // 4
    kept = ranked[cut : len(ranked) - cut]
    return sum(kept) / len(kept)


def test_l12_five_scores_take_students_factor_of_four_degrees_of_freedom():
    low, high = mean_interval(np.array([0.0, 0.0, 0.0, 0.0, 100.0]))
    assert (low + high) / 2 == pytest.approx(20.0)
    assert (high - low) / 2 == pytest.approx(20.0 * 2.776, abs=0.01)
    assert (high - low) / 2 == pytest.approx(55.5, abs=0.05)


def test_l12_one_score_has_no_interval_and_equal_ones_an_interval_of_no_width():
    assert mean_interval(np.array([3.0])) is None
    assert mean_interval(np.array([])) is None
    assert mean_interval(np.array([NAN, 3.0, NAN])) is None
    assert mean_interval(np.full(4, 3.0)) == (3.0, 3.0)
    low, high = mean_interval(np.full(3, 0.1))  # whose standard deviation is rounded to more than 0
    assert low == high
    assert bootstrap_interval(np.array([3.0])) is None
    assert bootstrap_interval(np.array([])) is None
    assert bootstrap_interval(np.array([[1.0, 2.0], [1.0, NAN]])) is None
    assert bootstrap_interval(np.full(4, 3.0), resamples=100) == (3.0, 3.0)


def test_l12_the_same_data_and_seed_give_the_same_interval():
    first, second = (bootstrap_interval(TWO_GAMES, resamples=3_000, seed=seed) for seed in (0, 1))
    assert first == bootstrap_interval(TWO_GAMES.copy(), resamples=3_000, seed=0)
    assert first != second
    assert improvement_interval(TWO_GAMES, TWO_GAMES[::-1], resamples=500) == improvement_interval(
        TWO_GAMES, TWO_GAMES[::-1], resamples=500
    )


def test_missing_scores_are_left_out_not_averaged():
    holed = np.array([NAN, 1.0, 3.0, NAN, 8.0])
    assert mean_interval(holed) == mean_interval(np.array([1.0, 3.0, 8.0]))
    assert interquartile_mean(holed) == pytest.approx(4.0)
    assert bootstrap_interval(holed, resamples=100) == bootstrap_interval(np.array([1.0, 3.0, 8.0]), resamples=100)
    assert probability_of_improvement(holed, np.array([2.0, NAN])) == pytest.approx(2 / 3)
    assert performance_profile(np.array([holed, np.full(5, 2.0)]), [2.0])[0] == pytest.approx((2 / 3 + 0) / 2)


def test_the_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = [low <= 0.0 <= high for low, high in map(mean_interval, rng.normal(size=(4_000, 5)))]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)
    narrow, wide = (mean_interval(rng.normal(size=10), level) for level in (0.5, 0.99))
    assert narrow[1] - narrow[0] < wide[1] - wide[0]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 10, 57 * 5])
def test_the_interquartile_mean_is_the_mean_of_the_middle_half(count):
    scores = np.random.default_rng(count).lognormal(sigma=2.0, size=count)
    assert interquartile_mean(scores) == pytest.approx(middle_half(scores))
    rows = np.random.default_rng(1).normal(size=(3, count))
    np.testing.assert_allclose(interquartile_mean(rows, axis=-1), [middle_half(row) for row in rows])


def test_the_interquartile_mean_on_fixed_numbers():
    # Of 5 one is cut at either end, of 8 two; the numbers of two games are ranked together.
    assert interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 100.0])) == 2.0
    assert interquartile_mean(np.array([1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 2.0, 1.0])) == 1.5
    assert interquartile_mean(np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])) == 2.0
    assert interquartile_mean(TWO_GAMES) == pytest.approx((2 + 3 + 3.5 + 4 + 5 + 5) / 6)
    with pytest.raises(ValueError, match="no score"):
        interquartile_mean(np.array([NAN]))


def test_the_bootstrap_draws_runs_within_each_game():
    """All 3^3 x 2^2 resamples of two games, one of which lacks a score, and their exact quantiles."""
    values = np.array([[1.0, 4.0, 9.0], [20.0, NAN, 70.0]])
    every = [
        middle_half([*first, *second])
        for first in itertools.product([1.0, 4.0, 9.0], repeat=3)
        for second in itertools.product([20.0, 70.0], repeat=2)
    ]
    for level in (0.5, 0.8, 0.95):
        expected = np.quantile(every, (0.5 - level / 2, 0.5 + level / 2), method="inverted_cdf")
        assert bootstrap_interval(values, resamples=40_000, level=level) == pytest.approx(expected)


def test_the_bootstrap_agrees_with_a_plain_loop_on_many_games():
    values = np.random.default_rng(3).normal(np.arange(12)[:, None] / 4, 1.0, size=(12, 5))
    rng = np.random.default_rng(4)
    plain = [middle_half(np.concatenate([rng.choice(game, 5) for game in values])) for _ in range(4_000)]
    got = bootstrap_interval(values, resamples=20_000)
    np.testing.assert_allclose(got, np.quantile(plain, (0.025, 0.975)), atol=0.03)
    pooled = [middle_half(rng.choice(values.ravel(), values.size)) for _ in range(2_000)]  # games mixed: far wider
    assert got[1] - got[0] < 0.75 * np.ptp(np.quantile(pooled, (0.025, 0.975)))


def test_the_bootstrap_takes_any_statistic():
    low, high = bootstrap_interval(TWO_GAMES, np.mean, resamples=20_000)
    spread = np.sqrt(sum(np.var(game) / 5 for game in TWO_GAMES)) / 2
    assert (low + high) / 2 == pytest.approx(TWO_GAMES.mean(), abs=0.05)
    assert (high - low) / 2 == pytest.approx(1.96 * spread, rel=0.03)
    assert bootstrap_interval(TWO_GAMES, np.max, resamples=2_000)[1] == 9.0


def test_the_bootstrap_is_as_narrow_with_few_runs_as_its_docstring_says():
    rng = np.random.default_rng(0)

    def coverage(scores, truth):
        intervals = [bootstrap_interval(row, resamples=1_000) for row in scores]
        return np.mean([low <= truth <= high for low, high in intervals])

    assert coverage(rng.normal(size=(800, 5)), 0.0) == pytest.approx(0.90, abs=0.035)
    assert coverage(rng.normal(size=(800, 3)), 0.0) == pytest.approx(0.75, abs=0.045)
    skewed = rng.lognormal(sigma=1.5, size=(200_000, 5))  # the truth is what the estimate is on average
    assert coverage(skewed[:800], interquartile_mean(skewed, axis=-1).mean()) < 0.87


def test_fifty_thousand_resamples_of_57_games_take_seconds():
    """Under 1 s alone on one core; the bound leaves room for a machine that is busy."""
    values = np.random.default_rng(0).normal(size=(57, 5))
    start = time.process_time()
    low, high = bootstrap_interval(values, resamples=50_000)
    assert time.process_time() - start < 5.0
    assert low < interquartile_mean(values) < high


def test_a_performance_profile_is_the_share_strictly_above():
    values = np.array([[0.0, 1.0, 2.0, 2.0], [1.0, 1.0, 3.0, 5.0]])
    thresholds = [-1.0, 0.0, 1.0, 2.0, 4.9, 5.0]
    expected = [np.mean(values > threshold) for threshold in thresholds]
    np.testing.assert_allclose(performance_profile(values, thresholds), expected)
    np.testing.assert_allclose(performance_profile(values[0], np.array([1.0])), [0.5])
    with pytest.raises(ValueError, match="without any score"):
        performance_profile(np.array([[1.0, 2.0], [NAN, NAN]]), thresholds)


def test_the_probability_of_improvement_counts_pairs_and_halves_ties():
    first, second = np.array([[1.0, 2.0, 1.0, 2.0], [2.0, 2.0, 1.0, 1.0]]), np.array([[1.0, 2.0, 3.0]] * 2)
    assert probability_of_improvement(first, second) == pytest.approx(1 / 3)
    assert probability_of_improvement(second, first) == pytest.approx(2 / 3)
    assert probability_of_improvement(first, first) == pytest.approx(0.5)
    # Games weigh alike, however many runs they have.
    few = np.array([[1.0, NAN, NAN], [0.0, 0.0, 0.0]])
    assert probability_of_improvement(few, np.array([[0.0], [1.0]])) == pytest.approx(0.5)
    assert probability_of_improvement(np.full((2, 3), NAN), np.ones((2, 3))) is None
    with pytest.raises(ValueError, match="scores of 2 games can't be compared with those of 1"):
        probability_of_improvement(first, second[0])


def test_the_interval_of_the_probability_of_improvement_agrees_with_a_plain_loop():
    rng = np.random.default_rng(5)
    first, second = rng.normal(0.5, 1.0, size=(3, 5)), rng.normal(0.0, 1.0, size=(3, 4))
    plain = []
    for _ in range(3_000):
        drawn = [[rng.choice(game, game.size) for game in side] for side in (first, second)]
        plain.append(np.mean([np.mean(a[:, None] > b) for a, b in zip(*drawn, strict=True)]))
    got = improvement_interval(first, second, resamples=20_000)
    np.testing.assert_allclose(got, np.quantile(plain, (0.025, 0.975)), atol=0.03)
    assert got[0] < probability_of_improvement(first, second) < got[1]
    assert improvement_interval(np.array([5.0, 6.0]), np.array([1.0, 2.0]), resamples=100) == (1.0, 1.0)
    assert improvement_interval(np.array([5.0]), np.array([1.0, 2.0])) is None


def test_operators_are_compared_on_the_seeds_that_both_have():
    first, second = np.array([1.0, 5.0, NAN, 4.0]), np.array([0.0, 2.0, 100.0, NAN])
    mean, interval, n = paired_difference(first, second)
    assert (mean, n) == (2.0, 2)
    assert interval == mean_interval(np.array([1.0, 3.0]))
    assert paired_difference(first[:1], second[:1]) == (1.0, None, 1)
    assert paired_difference(first[2:], second[2:]) == (None, None, 0)
    with pytest.raises(ValueError, match="are not paired"):
        paired_difference(first, second[:1])


def test_pairing_removes_what_seeds_have_in_common():
    rng = np.random.default_rng(0)
    common = rng.normal(0.0, 10.0, size=5)
    first, second = common + 1.0 + rng.normal(0.0, 0.1, size=5), common
    low, high = paired_difference(first, second).interval
    assert low > 0.5
    assert high < 1.5
    assert mean_interval(first)[0] < mean_interval(second)[1]  # apart, their intervals overlap


@pytest.mark.parametrize(("others", "n", "value"), [(1, 9, 2.12), (3, 5, 2.59), (4, 5, 2.65), (2, 11, 2.32)])
def test_several_operators_are_compared_by_dunnetts_tables(others, n, value):
    """The critical values of Dunnett's table of 1964, two-sided at 5%."""
    scores = [np.random.default_rng(number).normal(number, 1.0, size=n) for number in range(others + 1)]
    pooled = np.mean([np.var(each, ddof=1) for each in scores]) ** 0.5
    for own, (mean, (low, high), count) in zip(scores[1:], simultaneous_differences(scores), strict=True):
        assert count == n and mean == pytest.approx(np.mean(own) - np.mean(scores[0])) == pytest.approx(
            (low + high) / 2
        )
        assert (high - low) / 2 == pytest.approx(value * pooled * (2 / n) ** 0.5, rel=2.5e-3)


@pytest.mark.parametrize("counts", [(3, 2, 5), (2, 2, 2, 2), (10, 4, 4, 7, 3)])
def test_dunnetts_intervals_are_those_of_scipy(counts):
    scores = [np.random.default_rng(number).normal(0.5 * number, 1.0, size=n) for number, n in enumerate(counts)]
    with warnings.catch_warnings(action="ignore"):  # theirs may not converge wholly
        expected = stats.dunnett(*scores[1:], control=scores[0], rng=1).confidence_interval(0.95)
    got = [each.interval for each in simultaneous_differences(scores)]
    np.testing.assert_allclose(np.transpose(got), [expected.low, expected.high], rtol=0.02, atol=0.02)


def test_forty_operators_are_compared_in_no_time():
    scores = [np.random.default_rng(number).normal(size=10) for number in range(40)]
    start = time.process_time()
    simultaneous_differences(scores)
    assert time.process_time() - start < 2.0


def test_comparisons_with_few_or_equal_scores():
    first = np.array([1.0, 2.0, NAN])
    got = simultaneous_differences([first, np.array([5.0, NAN, NAN]), np.array([NAN] * 3), np.array([3.0, 4.5, 3.0])])
    assert got[0] == (3.5, None, 1) and got[1] == (None, None, 0)
    assert got[2].mean == 2.0 and got[2].n == 2 and got[2].interval is not None
    assert [each.interval for each in simultaneous_differences([first[:1], first, first])] == [None, None]
    assert simultaneous_differences([np.ones(3), np.zeros(3), np.ones(3)]) == [(-1, (-1, -1), 3), (0, (0, 0), 3)]
    again = [np.arange(5.0), np.arange(5.0) ** 2, np.arange(5.0) + 1]
    assert simultaneous_differences(again) == simultaneous_differences(again)


def test_the_permutation_test_agrees_with_all_exchanges():
    rng = np.random.default_rng(3)
    first, second = rng.normal(0.8, 1.0, size=7), rng.normal(size=7)
    signs = np.array(list(itertools.product((1, -1), repeat=7)))
    means = np.abs((signs * (first - second)).mean(axis=1))
    expected = np.mean(means >= abs(np.mean(first - second)) - 1e-12)
    assert permutation_test(first, second) == pytest.approx(expected)
    assert permutation_test(np.append(first, NAN), np.append(second, 1.0)) == pytest.approx(expected)
    assert permutation_test(first[:1], second[:1]) is None
    assert permutation_test(first, first) == 1.0
    many = rng.normal(size=(2, 30))
    assert permutation_test(*many) == permutation_test(*many) and 0 < permutation_test(many[0] + 3, many[1]) < 0.001
    with pytest.raises(ValueError, match="are not paired"):
        permutation_test(first, second[:1])


def test_unlike_spreads_are_told_as_bartletts_test_tells_them():
    rng = np.random.default_rng(0)
    told = []
    for _ in range(300):
        groups = [rng.normal(0, spread, size) for spread, size in zip(rng.uniform(1, 3, 4), (3, 5, 5, 8), strict=True)]
        counts, spreads = [len(each) for each in groups], [float(np.std(each, ddof=1)) for each in groups]
        told.append(spreads_differ(counts, spreads, 0.9))
        assert told[-1] == (stats.bartlett(*groups).pvalue < 0.1)
    assert 0.1 < np.mean(told) < 0.9


@pytest.mark.parametrize(("spreads", "differ"), [((0.0, 1.0), True), ((1e-17, 1.0), True), ((0.0, 0.0), False)])
def test_a_group_without_spread_is_unlike_others(spreads, differ):
    assert spreads_differ([5, 5], spreads) is differ


def test_a_first_group_far_smaller_than_others_has_bounds_too():
    rng = np.random.default_rng(1)
    first, others = rng.normal(size=2), rng.normal(size=(10, 1000))
    (alone,), together = (simultaneous_differences([first, *others[:k]], 0.99) for k in (1, 10))
    (low, high), (wider_low, wider_high) = alone.interval, together[0].interval
    assert high - low < 1.05 * (wider_high - wider_low) < 2 * (high - low)


def several(*scores, **options):
    return simultaneous_differences(scores, **options)


OF_ONE_GAME = {
    mean_interval: 1,
    summarise: 1,
    paired_difference: 2,
    permutation_test: 2,
    several: 2,
}
OF_GAMES = {
    bootstrap_interval: 1,
    improvement_interval: 2,
    probability_of_improvement: 2,
    interquartile_mean: 1,
    known_mean: 1,
}


@pytest.mark.parametrize(("function", "count"), (OF_ONE_GAME | OF_GAMES).items())
def test_scores_come_as_lists_as_columns_and_masked(function, count):
    scores = np.array([[211.0, 187.5, NAN, 199.0], [205.0, 190.1, 221.3, 160.9]])[:count]
    expected = function(*scores)
    assert expected is not None
    asked = [
        [each.tolist() for each in scores],
        [[None if np.isnan(score) else score for score in each] for each in scores],
        [np.ma.masked_array(np.nan_to_num(each, nan=1e6), np.isnan(each)) for each in scores],
        [pd.Series(each, index=range(10 * number, 10 * number + 4)) for number, each in enumerate(scores)],
    ]
    for given in asked:
        assert function(*given) == expected


def test_columns_with_the_same_labels_are_paired_by_label():
    by_seed = pd.Series([211.0, 187.5, 199.0, 204.0], index=[0, 1, 2, 3])
    other = pd.Series([160.9, 205.0, 190.1, 221.3], index=[3, 0, 1, 2])
    expected = paired_difference(by_seed.to_numpy(), np.array([205.0, 190.1, 221.3, 160.9]))
    assert paired_difference(by_seed, other) == expected
    assert permutation_test(by_seed, other) == permutation_test(by_seed, other.sort_index())


def test_scores_of_several_games_come_as_lists_and_masked():
    masked = np.ma.masked_array(TWO_GAMES, TWO_GAMES > 6)
    lacking = masked.filled(NAN)
    for given in (masked, list(masked), lacking.tolist()):
        assert bootstrap_interval(given, resamples=50) == bootstrap_interval(lacking, resamples=50)
        assert probability_of_improvement(given, given) == 0.5
        np.testing.assert_array_equal(performance_profile(given, [2.0]), performance_profile(lacking, [2.0]))
    np.testing.assert_array_equal(known_mean(masked), known_mean(lacking))
    np.testing.assert_array_equal(
        human_normalised("breakout", [1.0, 2.0]), human_normalised("breakout", np.array([1.0, 2.0]))
    )


@pytest.mark.parametrize(("function", "count"), OF_ONE_GAME.items())
def test_scores_of_several_games_are_not_pooled(function, count):
    with pytest.raises(ValueError, match=r"scores have shape \(2, 5\); give those of one game, `\[seed\]`"):
        function(*[TWO_GAMES] * count)


def test_what_are_no_scores_is_refused():
    with pytest.raises(ValueError, match=r"shape \(1, 2, 5\); give `\[game, seed\]`, or `\[seed\]` of one game"):
        bootstrap_interval(TWO_GAMES[None])
    with pytest.raises(ValueError, match=r"shape \(\); give those of one game"):
        simultaneous_differences([1.0, 2.0])
    for given in (["a", "b"], [[1.0, 2.0], [3.0]], {"max": 1.0}):
        with pytest.raises(ValueError, match="scores must be numbers, of each game as many"):
            bootstrap_interval(given)


@pytest.mark.parametrize("level", [95, 0, 1, -0.5, NAN])
def test_a_level_lies_between_0_and_1(level):
    one = TWO_GAMES[0]
    calls = {
        **{function: [one] * count for function, count in OF_ONE_GAME.items() if function is not permutation_test},
        bootstrap_interval: [one],
        improvement_interval: [one, one],
        spreads_differ: [[2, 2], [1.0, 2.0]],
    }
    for function, given in calls.items():
        with pytest.raises(ValueError, match=rf"level \({level}\) must be between 0 and 1, such as 0.95"):
            function(*given, level=level)


@pytest.mark.parametrize(
    ("function", "count"), {bootstrap_interval: 1, improvement_interval: 2, permutation_test: 2}.items()
)
def test_there_is_at_least_one_resample(function, count):
    with pytest.raises(ValueError, match=r"resamples \(0\) must be at least 1"):
        function(*[TWO_GAMES[0]] * count, resamples=0)


def test_too_narrow_is_what_the_spreads_of_its_own_two_arms_say():
    """Pooled variances are weighted by runs less one, and each arm's variance is over its own runs."""
    assert too_narrow([3, 10, 5], [2.0, 0.1, 3.0]) == [True, True]
    assert too_narrow([3, 10, 5], [2.0, 3.0, 0.1]) == [False, False]
