"""A study's scores: read by name, never pooled, and what is missing is counted."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from softbellman.analysis.records import Records
from softbellman.analysis.scores import Scores, aggregate, best_score, collect, summarise
from softbellman.analysis.statistics import bootstrap_interval, interquartile_mean, mean_interval
from softbellman.config import Arm
from softbellman.study.runs import RunPath

NAN = np.nan
LONG = [*range(100, 150)]  # fifty test phases


def records_of(folder, runs):
    """The records of runs `{(game, operator, seed): (state, test scores)}`; a state of None: it has not begun."""
    paths = []
    for (game, operator, seed), (state, returns) in runs.items():
        path = folder / f"{game}-{operator}-{seed}".replace("/", "-")
        paths.append(RunPath(path, game, Arm(operator), seed))
        if state is not None:
            path.mkdir(parents=True)
            (path / "status.json").write_text(json.dumps({"state": state}))
            rows = [f"{4 * n},{n},{'' if score is None else score}" for n, score in enumerate(returns, start=1)]
            (path / "metrics.csv").write_text("\n".join(["agent_steps,updates,test_return", *rows]) + "\n")
    return Records.read(SimpleNamespace(path=folder, runs=paths, environments=[]))


def scores_of(values, **fields):
    """Scores from an array `[game, operator, seed]`."""
    values = np.asarray(values, float)
    games, operators, seeds = (range(length) for length in values.shape)
    states = np.where(np.isnan(values), "failed", "finished").astype(object)
    names = tuple(f"game-{game}" for game in games), tuple(f"op-{operator}" for operator in operators), tuple(seeds)
    return Scores(values, *names, states, "test score, last test phase")._replace(**fields)


@pytest.mark.parametrize(
    ("summary", "score", "label"),
    [
        ("final", np.mean(LONG[-10:]), "test score, mean of the last 10 of 50 test phases"),
        ("last_phase", 149, "test score, last test phase"),
        ("best", 500, "test score, best test phase"),
    ],
)
def test_l18_a_score_says_of_which_test_phases_it_is(tmp_path, summary, score, label):
    records = records_of(tmp_path, {("g/a", "max", 0): ("finished", [500, *LONG[1:]])})
    scores = collect(records, summary)
    assert scores.of("max") == pytest.approx([score])
    assert scores.label == label


@pytest.mark.parametrize(
    ("tests", "score", "label"),
    [
        ([6], 6, "the only test phase"),
        ([1, 2, 6], 6, "the last of 3 test phases"),
        ([9, 9, 9, 2, 6], 4, "mean of the last 2 of 5 test phases"),
        ([*[9] * 9, 1, 2, 6], 3, "mean of the last 3 of 12 test phases"),
    ],
)
def test_l18_of_a_short_run_the_last_quarter_counts_and_the_score_says_so(tmp_path, tests, score, label):
    runs = {("g/a", "max", seed): ("finished", tests) for seed in (0, 1)}
    scores = collect(records_of(tmp_path, runs))
    assert scores.of("max").tolist() == [score, score]
    assert scores.label == f"test score, {label}"


def test_of_runs_of_several_lengths_each_has_its_own_last_quarter(tmp_path):
    runs = {("g/a", "max", 0): ("finished", [1, 2, 6]), ("g/a", "max", 1): ("running", [9, 9, 9, 2, 6])}
    scores = collect(records_of(tmp_path, runs), partial=True)
    assert scores.of("max").tolist() == [6.0, 4.0]
    assert scores.label == "test score, mean of the last quarter of test phases, at most 10"
    abreast = collect(records_of(tmp_path / "b", runs), partial=True, abreast=True)
    assert abreast.of("max").tolist() == [6.0, 9.0] and abreast.label == "test score, the last of 3 test phases"


def test_the_runs_of_a_game_are_cut_by_no_run_of_another(tmp_path):
    runs = {("g/a", "max", 0): ("running", [*range(1, 9)]), ("g/b", "max", 0): ("running", [5])}
    scores = collect(records_of(tmp_path, runs), partial=True, abreast=True)
    assert scores.across("max").tolist() == [[7.5], [5.0]]


def test_a_test_phase_without_a_score_is_left_out_and_a_run_without_any_has_none(tmp_path):
    runs = {("g/a", "max", 0): ("finished", [7, 7, 7, 4, None]), ("g/a", "max", 1): ("finished", [None, None])}
    scores = collect(records_of(tmp_path, runs))
    np.testing.assert_array_equal(scores.of("max"), [4.0, NAN])
    assert scores.missing("max") == {"without a score": 1}
    assert np.isnan(
        collect(records_of(tmp_path / "b", {("g/a", "max", 0): ("finished", [2, None])}), "last_phase").of("max")[0]
    )


def test_axes_are_found_by_name(tmp_path):
    cells = list(itertools.product(("g/a", "g/b"), ("max", "softmax(5)"), (3, 0, 7)))
    runs = {cell: ("finished", [number]) for number, cell in enumerate(cells)}
    scores = collect(records_of(tmp_path, dict(sorted(runs.items(), key=lambda item: item[1][1][0] % 5))), "last_phase")
    for (game, operator, seed), (_, [value]) in runs.items():
        assert scores.of(operator, game)[scores.seeds.index(seed)] == value
        assert scores.across(operator)[scores.games.index(game), scores.seeds.index(seed)] == value
    assert scores.values.shape == (2, 2, 3)


def test_games_are_never_pooled_by_accident():
    two = scores_of([[[1.0, 2.0]], [[100.0, 200.0]]])
    with pytest.raises(ValueError, match="scores of different games are not pooled; name one of game-0, game-1"):
        two.of("op-0")
    with pytest.raises(ValueError, match="raw scores of different games have different scales; normalise them"):
        aggregate(two, "op-0")
    with pytest.raises(ValueError, match="there is no operator 'softmax' among the scores; there are op-0"):
        two.across("softmax")
    with pytest.raises(ValueError, match="there is no game 'breakout'"):
        two.of("op-0", "breakout")


def test_l17_runs_that_failed_or_diverged_have_no_score_and_are_counted(tmp_path):
    states = ["finished", "finished", "failed", "failed", "diverged", "running", "stopped", None]
    runs = {("g/a", "max", seed): (state, [10.0 + seed]) for seed, state in enumerate(states)}
    records = records_of(tmp_path, runs)
    scores = collect(records, "last_phase")
    np.testing.assert_array_equal(scores.of("max"), [10.0, 11.0, *[NAN] * 6])
    assert scores.missing("max") == {"failed": 2, "diverged": 1, "running": 1, "stopped": 1, "not begun": 1}
    row = summarise(scores.of("max"))
    assert (row.counted, row.asked, row.mean) == (2, 8, 10.5)

    partial = collect(records, "last_phase", partial=True)  # what is under way may count, what went wrong never does
    np.testing.assert_array_equal(partial.of("max"), [10.0, 11.0, NAN, NAN, NAN, 15.0, 16.0, NAN])
    assert partial.missing("max") == {"failed": 2, "diverged": 1, "not begun": 1}


def test_a_run_that_has_just_begun_has_no_score_yet(tmp_path):
    scores = collect(records_of(tmp_path, {("g/a", "max", 0): ("running", [])}), "best", partial=True)
    assert scores.missing("max") == {"running": 1}


def test_the_best_score_is_that_of_the_best_trained_network():
    """As `best.safetensors`: what scores well by chance before any update counts only where nothing else does."""
    assert best_score(np.array([9.0, 2.0, 3.0, NAN]), np.array([0, 100, 200, 300])) == 3.0
    assert best_score(np.array([9.0, 2.0, NAN]), np.array([0, 0, 100])) == 9.0
    assert np.isnan(best_score(np.array([NAN]), np.array([100])))


def test_other_columns_can_be_read_and_unknown_names_are_errors(tmp_path):
    records = records_of(tmp_path, {("g/a", "max", 0): ("finished", [5, 6])})
    scores = collect(records, "last_phase", "agent_steps")
    assert scores.of("max").tolist() == [8.0]
    assert scores.label == "agent_steps, last test phase"
    with pytest.raises(ValueError, match=r"has no column 'overestimation'; it has agent_steps, updates, test_return"):
        collect(records, "last_phase", "overestimation")
    with pytest.raises(ValueError, match="unknown summary 'first'; allowed are final, last_phase, best"):
        collect(records, "first")


def test_l12_a_summary_has_no_nan_and_no_interval_of_one_run():
    scores = np.array([1.0, 2.0, NAN, 6.0])
    row = summarise(scores, resamples=500, seed=1)
    assert (row.asked, row.counted, row.mean, row.interquartile_mean) == (4, 3, 3.0, 3.0)
    assert row.std == pytest.approx(np.sqrt(7.0))
    assert row.interval == mean_interval(scores)
    assert row.interquartile_interval == bootstrap_interval(scores, resamples=500, seed=1)
    assert summarise(np.array([NAN, 7.0])) == (2, 1, 7.0, None, None, 7.0, None)
    assert summarise(np.array([NAN, NAN])) == (2, 0, None, None, None, None, None)
    assert summarise(np.full(3, 2.0), resamples=100) == (3, 3, 2.0, 0.0, (2.0, 2.0), 2.0, (2.0, 2.0))


def test_an_aggregate_over_games_is_not_silently_one_of_fewer_games():
    values = np.random.default_rng(0).normal(size=(3, 1, 5))
    whole = aggregate(scores_of(values, scale="a source"), "op-0", resamples=300)
    assert whole == (15, 15, interquartile_mean(values), bootstrap_interval(values[:, 0], resamples=300))
    values[0, 0, 1:] = NAN
    assert aggregate(scores_of(values, scale="a source"), "op-0") == (15, 11, None, None)
    one_seed = aggregate(scores_of(values[..., :1], scale="a source"), "op-0")
    assert one_seed == (3, 3, interquartile_mean(values[..., 0]), None)
    values[0] = NAN
    assert aggregate(scores_of(values, scale="a source"), "op-0") == (15, 10, None, None)
    assert aggregate(scores_of(values[1:2]), "op-0", resamples=50).counted == 5  # one game needs no common scale
