"""Learning curves on common steps: nothing is extrapolated, and every point says how many runs it is of."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from softbellman.analysis.curves import align, collect_curves, mean_band
from softbellman.analysis.records import Records
from softbellman.analysis.statistics import mean_interval
from softbellman.config import Arm
from softbellman.study.runs import RunPath

NAN = np.nan


def curve(steps, values):
    return np.array(steps, float), np.array(values, float)


THREE_POINTS, TWO_POINTS = curve([0, 10, 20], [0, 1, 4]), curve([0, 15], [0, 3])


def test_l43_curves_of_unlike_steps_meet_on_a_common_grid_that_ends_with_the_shortest():
    x, values, n = align([THREE_POINTS, TWO_POINTS])
    assert x.tolist() == [0, 10, 15]
    np.testing.assert_allclose(values, [[0, 1, 2.5], [0, 2, 3]])
    assert n.tolist() == [2, 2, 2]


def test_l43_nothing_is_made_up_before_a_start_either():
    assert align([curve([5, 20], [1, 1]), TWO_POINTS]).x.tolist() == [5, 15]


def test_l43_one_run_is_a_line_without_a_band():
    band = mean_band(align([THREE_POINTS]))
    assert band.mean.tolist() == [0, 1, 4]
    assert band.n.tolist() == [1, 1, 1]
    assert band.low is None and band.high is None


def test_l43_the_band_is_students_interval_at_each_point_of_two_runs_or_more():
    band = mean_band(align([curve([0, 10, 15, 20], [0, 1, 2.5, 4]), curve([0, 15, 20], [0, 3, NAN])]), level=0.9)
    assert band.mean.tolist() == pytest.approx([0, 1.5, 2.75, 4]) and band.n.tolist() == [2, 2, 2, 1]
    ends = [mean_interval(np.array(pair, float), 0.9) for pair in ([0, 0], [1, 2], [2.5, 3])]
    np.testing.assert_allclose(band.low, [*(low for low, _ in ends), NAN])
    np.testing.assert_allclose(band.high, [*(high for _, high in ends), NAN])


def test_a_missing_value_is_not_bridged():
    holed = curve([0, 10, 20, 30], [0, NAN, 2, 3])
    x, values, n = align([holed, curve([0, 5, 10, 20, 25, 30], [1, 1, 1, 1, 1, 1])])
    np.testing.assert_array_equal(values[0], [0, NAN, NAN, 2, 2.5, 3])
    assert n.tolist() == [2, 1, 1, 2, 2, 2]
    assert x.tolist() == [0, 5, 10, 20, 25, 30]
    assert align([curve([0, 10], [NAN, 1])]).x.tolist() == [10]  # a step without any value is no point


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ([], "there is no curve"),
        ([THREE_POINTS, curve([0, 10, 10], [1, 2, 3])], "curve 1 must have steps that increase"),
        ([curve([], [])], "curve 0 must have steps"),
        ([curve([0, 1], [1])], "curve 0 must have steps"),
        ([curve([0, 1], [1, 2]), curve([5, 6], [1, 2])], "no step is left"),
        ([curve([0, 1], [NAN, NAN])], "no step is left"),
    ],
)
def test_what_cannot_be_aligned_is_a_clear_error(curves, message):
    with pytest.raises(ValueError, match=message):
        align(curves)


def test_a_studys_curves_are_those_of_its_finished_runs(tmp_path):
    runs = []
    for seed, state in enumerate(["finished", "diverged", "running", "finished", "stopped"]):
        for game, operator in (("g/a", "max"), ("g/b", "max"), ("g/a", "softmax(5)")):
            path = tmp_path / f"{game}-{operator}-{seed}".replace("/", "-")
            path.mkdir()
            (path / "status.json").write_text(json.dumps({"state": state}))
            values = ("", "") if seed == 3 else (seed, len(game + operator))
            rows = [f"{10 * n},{value}" for n, value in enumerate(values, start=1)]
            (path / "metrics.csv").write_text("\n".join(["agent_steps,gradient_norm", *rows]) + "\n")
            runs.append(RunPath(path, game, Arm(operator), seed))
    runs.append(RunPath(tmp_path / "not-begun", "g/a", Arm("max"), 9))
    records = Records.read(SimpleNamespace(path=tmp_path, runs=runs, environments=[]))
    found = collect_curves(records, "gradient_norm", "max", "g/b")
    assert list(found) == [0]  # seed 3 finished, but has no value
    np.testing.assert_array_equal(found[0], [[10, 20], [0, 6]])
    assert list(collect_curves(records, "gradient_norm", "max", "g/b", partial=True)) == [0, 2, 4]
    with pytest.raises(ValueError, match="curves of different games are not pooled; name one of g/a, g/b"):
        collect_curves(records, "gradient_norm", "max")
    alone = replace(records, runs=tuple(each for each in records.runs if each.run.environment == "g/b"))
    assert list(collect_curves(alone, "gradient_norm", "max")) == [0]
    with pytest.raises(ValueError, match="has no column 'loss'"):
        collect_curves(alone, "loss", "max")
