"""A parameter that was chosen on the data is reported with and without the advantage of that choice."""

import numpy as np
import pytest
from scipy import stats

from softbellman.analysis.choice import FIXED, Pick, choose_parameter, families
from softbellman.analysis.scores import Scores
from softbellman.operators import family

from ..choices import chosen_by_the_other_seeds

NAN = np.nan
SOFTMAX = ("softmax(1)", "softmax(5)", "softmax(10)")


def scores_of(values, operators=SOFTMAX, games=("minatar/breakout",)):
    values = np.asarray(values, float).reshape(len(games), len(operators), -1)
    states = np.full(values.shape, "finished", dtype=object)
    return Scores(values, tuple(games), tuple(operators), tuple(range(values.shape[2])), states, "test score")


def test_the_three_ways_of_reporting_on_fixed_numbers():
    chosen = choose_parameter(scores_of([[9, 0, 3], [4, 4, 4.5], [0, 0, 0]]), SOFTMAX)
    # Means are 4, 4.17 and 0. Without seed 0: 1.5, 4.25; without seed 1: 6, 4.25; without seed 2: 4.5, 4.
    assert chosen.best.operators == ("softmax(5)",) * 3
    assert chosen.best.scores.tolist() == [4, 4, 4.5]
    assert chosen.left_out.operators == ("softmax(5)", "softmax(1)", "softmax(1)")
    assert chosen.left_out.scores.tolist() == [4, 0, 3]
    assert chosen.left_out.described == "softmax(1) for 2 of 3, softmax(5) for 1 of 3 seeds"
    assert chosen.fixed.operators == ("softmax(5)",) * 3
    assert chosen.best.described == "softmax(5)"


def test_the_best_of_three_flatters_and_the_choice_on_other_seeds_does_not():
    """Three operators that are the same: the truth is 0 for whatever is chosen."""
    rng = np.random.default_rng(0)
    found = [choose_parameter(scores_of(rng.normal(size=(3, 5))), SOFTMAX) for _ in range(1_500)]
    best, left_out, fixed = (np.mean([pick.scores.mean() for pick in way]) for way in zip(*found, strict=True))
    assert best == pytest.approx(0.846 / 5**0.5, abs=0.04)  # the mean of the largest of three normal numbers
    assert left_out == pytest.approx(0.0, abs=0.04)
    assert fixed == pytest.approx(0.0, abs=0.04)


@pytest.mark.parametrize(("parameters", "of_score", "of_difference"), [(3, 12, 8), (6, 15, 9)])
def test_intervals_of_choices_on_other_seeds_are_too_narrow(parameters, of_score, of_difference):
    """As docs/report.md tells: all operators are the same, five seeds, in percent of 20,000 studies."""
    rng = np.random.default_rng(0)
    scores, baseline = rng.normal(size=(20_000, parameters, 5)), rng.normal(size=(20_000, 5))
    names = tuple(f"softmax({number})" for number in range(parameters))
    chosen = chosen_by_the_other_seeds(scores)
    for study in range(20):
        own = choose_parameter(scores_of(scores[study], names), names).left_out
        np.testing.assert_array_equal(own.scores, chosen[study])
    for values, percent in ((chosen, of_score), (chosen - baseline, of_difference)):
        half = stats.t.ppf(0.975, 4) * values.std(axis=1, ddof=1) / 5**0.5
        assert (abs(values.mean(axis=1)) > half).mean() * 100 == pytest.approx(percent, abs=0.8)


def test_the_fixed_parameter_is_that_of_the_family_or_the_one_named():
    values = [[1, 1], [2, 2], [3, 3]]
    assert choose_parameter(scores_of(values), SOFTMAX, fixed="softmax(1)").fixed.scores.tolist() == [1, 1]
    assert choose_parameter(scores_of(values[:2], SOFTMAX[::2]), SOFTMAX[::2]).fixed is None  # softmax(5) was not run
    for name, operator in FIXED.items():
        other = operator.replace("5", "1")
        assert family(operator) == family(other) == name
        assert choose_parameter(scores_of(values[:2], [other, operator]), [other, operator]).fixed.scores.tolist() == [
            2,
            2,
        ]
    mine = ("mine:sharp(1)", "mine:sharp(2)")
    assert choose_parameter(scores_of(values[:2], mine), mine).fixed is None


def test_the_choice_is_made_for_each_game_and_among_the_candidates_alone():
    scores = scores_of([[[1, 1], [2, 2], [9, 9]], [[5, 5], [2, 2], [9, 9]]], ("softmax(1)", "softmax(5)", "max"), "ab")
    best = [choose_parameter(scores, SOFTMAX[:2], game=game).best.described for game in "ab"]
    assert best == ["softmax(5)", "softmax(1)"]
    with pytest.raises(ValueError, match="scores of different games are not pooled"):
        choose_parameter(scores, SOFTMAX[:2])
    with pytest.raises(ValueError, match=r"there is no operator 'softmax\(10\)'"):
        choose_parameter(scores, SOFTMAX, game="a")
    with pytest.raises(ValueError, match="no operator to choose from"):
        choose_parameter(scores, (), game="a")


def test_missing_scores_decide_nothing_and_stay_missing():
    chosen = choose_parameter(scores_of([[NAN, 8, NAN], [5, 5, 5], [NAN, NAN, NAN]]), SOFTMAX)
    assert chosen.best.operators[0] == "softmax(1)"
    np.testing.assert_array_equal(chosen.best.scores, [NAN, 8, NAN])
    # Without seed 1, softmax(1) has no score to be chosen by.
    assert chosen.left_out.operators == ("softmax(1)", "softmax(5)", "softmax(1)")
    np.testing.assert_array_equal(chosen.left_out.scores, [NAN, 5, NAN])
    negative = choose_parameter(scores_of([[NAN, NAN], [-9, -8], [-5, NAN]]), SOFTMAX)  # no score is not a score of 0
    assert negative.best.described == "softmax(10)"


def test_one_seed_leaves_nothing_to_choose_on():
    chosen = choose_parameter(scores_of([[1], [3], [2]]), SOFTMAX)
    assert chosen.best.described == "softmax(5)"
    assert chosen.left_out.operators == (None,)
    assert chosen.left_out.described == "none"
    assert np.isnan(chosen.left_out.scores).all()
    empty = choose_parameter(scores_of(np.full((3, 2), NAN)), SOFTMAX)
    assert empty.best.operators == empty.left_out.operators == (None, None)


def test_ties_go_to_the_first_candidate():
    assert choose_parameter(scores_of([[-1, -1], [-1, -1], [-2, -2]]), SOFTMAX).best.described == "softmax(1)"


def test_operators_of_one_structure_are_a_family():
    study = [
        "max",
        "softmax(1)",
        "softmax(0.5)",
        "mellowmax(5)",
        "double(max)",
        "double(softmax(1))",
        "double(softmax(1e+20))",
    ]
    assert families({spec: family(spec) for spec in study}) == {
        "softmax": ("softmax(1)", "softmax(0.5)"),
        "double(softmax)": ("double(softmax(1))", "double(softmax(1e+20))"),
    }
    assert family("package.module:name(-3, 2.5)") == "package.module:name"
    assert Pick(("max",), np.zeros(1)).described == "max"
