"""Verdicts follow from intervals: three states, by hand, and what leaves a claim undecided."""

import math

import numpy as np
import pytest
from scipy import stats

from softbellman.paper.claims import CLAIMS, LEVEL
from softbellman.paper.grid import SCALES
from softbellman.paper.verdicts import decide, estimate, judge

from ..studies import RANDOM, paper_study, results_of

SMOKE, LAPTOP, _ = SCALES.values()
BY_NAME = {claim.name: claim for claim in CLAIMS}
PAIR = ("max", "double(softmax(1))")  # all that small-tau-underestimates needs


def test_a_stratified_interval_by_hand():
    """Means 2 and 6, variances 2 and 8 of two seeds each: error sqrt(2/2 + 8/2) / 2, two degrees of freedom."""
    found = estimate(np.array([[1.0, 3.0], [4.0, 8.0]]), 0.95)
    half = stats.t.ppf(0.975, 2) * math.sqrt(2 / 2 + 8 / 2) / 2
    assert found.mean == 4.0 and found.interval == pytest.approx((4.0 - half, 4.0 + half))
    assert (found.n, found.games) == (4, 2)


def test_one_game_is_students_interval():
    scores = np.array([1.0, 2.0, 4.0, 9.0, 3.0])
    expected = stats.t.interval(LEVEL, 4, loc=scores.mean(), scale=stats.sem(scores))
    assert estimate(scores[None]).interval == pytest.approx(expected)


def test_games_of_unlike_spread_weigh_alike():
    found = estimate(np.array([[0.0, 0.0, 0.0], [90.0, 100.0, 110.0]]), 0.9)
    half = stats.t.ppf(0.95, 4) * math.sqrt(100 / 3) / 2
    assert found.mean == 50.0 and found.interval == pytest.approx((50.0 - half, 50.0 + half))


@pytest.mark.parametrize(
    ("difference", "mean", "n"),
    [([[1.0, np.nan], [2.0, 4.0]], 2.0, 3), ([[np.nan] * 2] * 2, None, 0), ([[5.0]], 5.0, 1)],
)
def test_fewer_than_two_seeds_have_no_interval(difference, mean, n):
    found = estimate(np.array(difference))
    assert (found.mean, found.interval, found.n) == (mean, None, n)


@pytest.mark.parametrize(
    ("name", "intervals", "state"),
    [
        ("faster-dqn", [(0.1, 0.2)], "supported"),
        ("faster-dqn", [(-0.2, -0.1)], "not supported"),
        ("faster-dqn", [(-0.1, 0.2)], "undecided"),
        ("faster-dqn", [(0.0, 0.0)], "undecided"),
        ("faster-dqn", [None], "undecided"),
        ("not-below-mellowmax", [(-0.09, 0.2)], "supported"),
        ("not-below-mellowmax", [(-0.3, -0.11)], "not supported"),
        ("not-below-mellowmax", [(-0.11, 0.2)], "undecided"),
        ("small-tau-underestimates", [(-0.3, -0.1)], "supported"),
        ("small-tau-underestimates", [(0.1, 0.2)], "not supported"),
        ("smaller-values", [(0.1, 0.2), (0.1, 0.3)], "supported"),
        ("smaller-values", [(0.1, 0.2), (-0.1, 0.3)], "undecided"),
        ("smaller-values", [(0.1, 0.2), (-0.3, -0.1)], "not supported"),
        ("smaller-values", [None, (-0.3, -0.1)], "undecided"),
        ("cooling", [(-0.05, 0.05)], "supported"),
        ("cooling", [(0.11, 0.3)], "not supported"),
        ("cooling", [(0.05, 0.2)], "undecided"),
    ],
)
def test_a_verdict_follows_from_intervals(name, intervals, state):
    assert decide(BY_NAME[name], intervals)[0] == state


@pytest.fixture
def underestimating(tmp_path):
    """The verdict on `small-tau-underestimates` when seeds of tau 1 overestimate by so much."""

    def made(over, **more):
        def measured(game, spec, seed, done):
            return {"held_out_value": 10.0, "overestimation": over[(seed - 10) % len(over)]}

        study = paper_study(tmp_path / "study", LAPTOP, measured, operators=PAIR, **more)
        return judge(BY_NAME["small-tau-underestimates"], results_of(LAPTOP, study))

    return made


@pytest.mark.parametrize(
    ("over", "state", "reason"),
    [
        ((-1.0, -1.1, -1.2), "supported", "the whole interval lies on the claimed side"),
        ((1.0, 1.1, 1.2), "not supported", "a whole interval lies on the other side of the margin"),
        ((1.0, -1.1, 0.1), "undecided", "an interval holds the margin"),
    ],
)
def test_runs_give_verdicts(underestimating, over, state, reason):
    verdict = underestimating(over)
    assert (verdict.state, verdict.reason, verdict.so_far) == (state, reason, False)
    (shown,) = verdict.shown  # the paper's grid chooses nothing here
    assert shown.estimate.n == 15 and shown.estimate.mean == pytest.approx(
        np.mean([over[s % 3] for s in range(5)]) / 10
    )


def test_what_is_there_so_far_is_shown_and_decides_nothing(underestimating):
    verdict = underestimating((-1.0, -1.1), states={("asterix", "max", 12): "running"})
    assert verdict.state == "undecided" and verdict.so_far
    assert verdict.reason == "1 of 30 runs is missing"
    assert verdict.shown[0].estimate.interval[1] < 0


def test_a_claim_about_one_game_waits_for_no_run_of_another(tmp_path):
    states = {("seaquest", spec, seed): "running" for spec in LAPTOP.operators for seed in LAPTOP.seeds}
    study = paper_study(tmp_path / "study", LAPTOP, lambda *_: {"gradient_norm": 1.0}, states=states)
    verdict = judge(BY_NAME["out-of-bounds"], results_of(LAPTOP, study))
    assert (verdict.state, verdict.so_far) == ("not supported", False)


def test_a_run_without_values_leaves_a_claim_undecided(underestimating):
    verdict = underestimating((-1.0, -1.1), states={("breakout", "double(softmax(1))", 11): "diverged"})
    assert (verdict.state, verdict.so_far) == ("undecided", False)
    assert verdict.reason == "breakout has no difference: 1 run diverged, without values or gradients"


def test_values_that_are_all_alike_have_no_rank_correlation(tmp_path):
    specs = [spec for spec in LAPTOP.operators if spec.startswith("double")]
    study = paper_study(tmp_path / "study", LAPTOP, lambda *_: {"held_out_value": 1.0}, operators=specs)
    verdict = judge(BY_NAME["values-grow"], results_of(LAPTOP, study))
    assert verdict.state == "undecided" and verdict.reason.startswith("breakout has no difference: ")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Verdicts where softmax(30) scores 10, its own max 5 but for runs that diverged, and all others 1."""

    def measured(game, spec, seed, done):
        score = {"softmax(30)": 10.0, "max": 5.0}.get(spec, 1.0) + 0.1 * (seed % 2)
        return {"test_return": score}

    states = {(game, "max", seed): "diverged" for game in LAPTOP.games for seed in (11, 12)}
    results = results_of(LAPTOP, paper_study(tmp_path_factory.mktemp("w") / "study", LAPTOP, measured, states=states))
    return {claim.name: judge(claim, results) for claim in CLAIMS}


def test_a_run_that_diverged_counts_as_the_random_policy(whole):
    verdict = whole["softmax-above-max"]
    assert verdict.state == "supported"
    scale = 10.04 - RANDOM
    expected = (10.04 - (5.0 + 5.0 + 5.1 + RANDOM + RANDOM) / 5) / scale
    assert verdict.shown[0].estimate.mean == pytest.approx(expected)


def test_readings_stand_beside_each_other(whole):
    shown = whole["softmax-above-max"].shown
    assert [each.reading for each in shown] == ["the whole grid", "1, 5, 10"]
    assert shown[0].estimate.mean > 0 > shown[1].estimate.mean


def test_claims_about_exploration_wait_for_their_own_arms_and_no_other_claim_does(whole):
    missing = {name: verdict.reason for name, verdict in whole.items() if "missing" in verdict.reason}
    assert missing == {
        "cooling": "15 of 315 runs are missing",
        "not-exploration": "15 of 315 runs are missing",
        "mellowmax-exploration": "15 of 315 runs are missing",
    }


def test_where_no_operator_beats_random_actions_scores_decide_nothing(tmp_path):
    study = paper_study(tmp_path / "study", LAPTOP, lambda *_: {"test_return": RANDOM})
    verdict = judge(BY_NAME["faster-dqn"], results_of(LAPTOP, study))
    assert (
        verdict.state == "undecided" and "breakout has no difference: no operator plays better than" in verdict.reason
    )


def test_smoke_decides_nothing(tmp_path):
    def measured(game, spec, seed, done):
        return {"overestimation": -1.0 - 0.001 * seed}

    results = results_of(SMOKE, paper_study(tmp_path / "study", SMOKE, measured))
    verdict = judge(BY_NAME["small-tau-underestimates"], results)
    assert verdict.shown[0].estimate.interval[1] < 0
    assert (verdict.state, verdict.reason) == ("undecided", "scale smoke decides nothing")
    assert judge(BY_NAME["out-of-bounds"], results).reason == "scale smoke has no asterix"
