"""Results of a study: which runs count, their final scores, maxima and means, and what is missing."""

import numpy as np
import pytest

from softbellman.analysis.statistics import known_mean
from softbellman.paper.arms import needed
from softbellman.paper.grid import SCALES
from softbellman.paper.results import deviation, read

from ..studies import RANDOM, paper_study, results_of

LAPTOP = SCALES["laptop"]
OPERATORS = ("max", "double(max)")
MAX, DOUBLE = 0, 1


def by_phase(game, spec, seed, done):
    """Scores 1 to 12, a peak of 40 in the fifth phase of seed 11."""
    phase = round(done * 12)
    return {"test_return": 40.0 if (seed, phase) == (11, 5) else float(phase), "held_out_value": -2.0 * phase}


@pytest.fixture
def results(tmp_path):
    states = {("breakout", "max", 12): "diverged", ("asterix", "max", 10): "running", ("asterix", "max", 13): "failed"}
    states |= {("asterix", "double(max)", seed): "not begun" for seed in LAPTOP.seeds}
    return results_of(LAPTOP, paper_study(tmp_path / "study", LAPTOP, by_phase, operators=OPERATORS, states=states))


def test_scores_of_a_run(results):
    assert results.final[0, MAX, :2].tolist() == [11.0, 11.0]  # phases 10, 11 and 12
    assert results.maximum[0, MAX, :2].tolist() == [12.0, 40.0]
    assert results.learning[0, MAX, :2].tolist() == [6.5, 6.5 + 35 / 12]
    assert results.late(results.columns["held_out_value"])[0, MAX, 0] == -22.0
    assert results.early(results.columns["held_out_value"])[0, MAX, 0] == -4.0  # phases 1, 2 and 3
    assert results.agent_steps.tolist() == list(range(50_000, 600_001, 50_000))


def test_a_row_that_is_missing_shifts_no_other(tmp_path):
    study = paper_study(tmp_path / "study", LAPTOP, by_phase, operators=["max"])
    file = study.runs[0].path / "metrics.csv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:3] + lines[4:]))
    scores = results_of(LAPTOP, study).columns["test_return"][0, MAX, 0]
    assert np.isnan(scores[2]) and np.delete(scores, 2).tolist() == [1.0, 2.0, *range(4, 13)]


def test_a_run_that_diverged_has_the_random_policys_score_and_no_values(results):
    assert results.counted[0, MAX, 2]
    assert {results.final[0, MAX, 2], results.maximum[0, MAX, 2], results.learning[0, MAX, 2]} == {RANDOM}
    assert np.isnan(results.columns["held_out_value"][0, MAX, 2]).all()


def test_runs_that_did_not_end_do_not_count(results):
    assert results.states[1, MAX].tolist() == ["running", "finished", "finished", "failed", "finished"]
    assert np.isnan(results.final[1, MAX]).tolist() == [True, False, False, True, False]
    assert not results.counted[:, LAPTOP.operators.index("softmax(1)")].any()


def test_scales_of_games(results):
    assert results.score_scale.tolist() == [11.0 - RANDOM] * 3
    assert results.value_scale.tolist() == [22.0] * 3


def test_a_copy_with_other_scores_keeps_the_rest(results):
    doubled = results._replace(final=2 * results.final)
    assert np.array_equal(doubled.final, 2 * results.final, equal_nan=True) and doubled.scale is results.scale


def test_where_nothing_beats_random_actions_there_is_no_scale(tmp_path):
    study = paper_study(tmp_path / "study", LAPTOP, lambda *_: {"test_return": RANDOM}, operators=["max"])
    assert np.isnan(results_of(LAPTOP, study).score_scale).all()


def test_without_a_study_nothing_is_there():
    nothing = read(LAPTOP, None)
    assert not nothing.counted.any() and np.isnan(nothing.random).all() and np.isnan(nothing.score_scale).all()
    assert nothing.missing(needed(nothing, LAPTOP.operators))[:2] == (300, 300)
    assert nothing.missing(needed(nothing, ["max"])).hours is None
    assert "is unknown, for no run has ended" in str(nothing.missing(needed(nothing, ["max"])))
    assert read(SCALES["full"], None).random.tolist() == [163.9, 307.3, 10780.5, 1.7, 210.0, 68.4]


def test_what_is_missing_is_named_and_timed(results):
    missing = results.missing(needed(results, ["max", "double(max)", "softmax(1)", "softmax(5)"]))
    assert (missing.runs, missing.asked) == (2 + 5 + 30, 60)
    assert missing.text == "2 of 15 of max; 5 of 15 of double(max); 15 of 15 of softmax(1, 5)"
    of_max = needed(results, ["max"])
    breakout, asterix = (np.where(np.arange(3)[:, None, None] == game, of_max, False) for game in (0, 1))
    assert results.missing(breakout)[:3] == (0, 5, "")
    # Those of asterix that ended took 120 s and 10 s more for each run before them in the study.
    took = np.mean([120.0 + 10 * number for number in (11, 12, 14)])
    assert results.missing(asterix).hours == pytest.approx(2 * took / 3600)


def test_runs_that_share_a_clock_share_its_time(tmp_path):
    """A group of runs that train together tells one time, moments apart."""
    seconds = {"max": 600.0, "double(max)": 900.0}

    def clock(game, spec, seed, done):
        return {"seconds": seconds[spec] * done + 0.3 * (seed - 10)}

    states = {("seaquest", "max", 14): "running"}
    study = paper_study(tmp_path / "study", LAPTOP, clock, operators=OPERATORS, states=states)
    missing = (found := results_of(LAPTOP, study)).missing(needed(found, ["max"]))
    assert missing.runs == 1 and missing.hours == pytest.approx((600 + 900) / 9 / 3600, rel=1e-3)


def test_groups_of_one_family_that_took_about_as_long_are_two(tmp_path):
    """Groups of equal size have clocks that lie close: 1.5% apart at laptop, or a second."""

    def clock(game, spec, seed, done):
        return {"seconds": (770.0 if seed < 12 else 782.0 if seed < 14 else 783.2) * done + 0.3 * (seed - 10)}

    study = paper_study(tmp_path / "study", LAPTOP, clock, operators=["max"])
    found = results_of(LAPTOP, study)
    assert found.hours(needed(found, ["max"])) == pytest.approx(3 * (770 + 782 + 783.2) / 3600, rel=1e-2)


def test_means_and_deviations_leave_out_what_is_unknown():
    values = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])
    assert known_mean(values)[0] == 2.0 and np.isnan(known_mean(values)[1])
    assert deviation(values) == pytest.approx(2**0.5) and np.isnan(deviation(values[:, 0]))
