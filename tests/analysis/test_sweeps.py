"""Sweeps: families are found by their numbers, and a quantity is summarised as everywhere else."""

import numpy as np
import pytest

from softbellman.analysis.records import Records
from softbellman.analysis.scores import collect, summarise
from softbellman.analysis.sweeps import points, sweeps

from ..studies import synthetic

OPERATORS = (
    "max",
    "softmax(30)",
    "softmax(1)",
    "softmax(5)",
    "keep(0.1)",
    "keep(0.2)",
    "entmax(1.5, 1)",
    "mellowmax(3)",
)


@pytest.fixture
def study(tmp_path):
    more = ("entmax(1.5, 5)", "entmax(1.5, 9)", *(f"loud {tau}=softmax({tau}), returns=3" for tau in (8, 2, 0)))
    return synthetic(tmp_path / "study", operators=(*OPERATORS, *more), seeds=(0, 1, 2), phases=4)


def test_a_sweep_is_a_family_with_three_values_of_one_number(study):
    """Two of `keep`, one of `mellowmax`, and `entmax`, which has two numbers, make none."""
    found = {sweep.family: sweep for sweep in sweeps(study)}
    assert list(found) == ["softmax", "softmax, returns=3"]
    assert found["softmax"].operators == ("softmax(1)", "softmax(5)", "softmax(30)")
    assert found["softmax"].parameters.tolist() == [1, 5, 30]
    assert found["softmax, returns=3"].operators == ("loud 0", "loud 2", "loud 8")


@pytest.mark.parametrize("column", ["test_return", "overestimation"])
def test_points_are_the_means_of_the_runs_last_phases(study, column):
    records = Records.read(study)
    found, scores = points(records, "minatar/breakout", column, partial=False), collect(records, column=column)
    for operator in study.operators:
        summary = summarise(scores.of(operator))
        assert (found[operator].mean, found[operator].interval) == (summary.mean, summary.interval)


def test_an_operator_without_a_run_that_counts_has_no_point(tmp_path):
    operators = ("max", "softmax(1)", "softmax(5)", "softmax(9)")
    ends = {("softmax(5)", seed): "failed" for seed in (0, 1)}
    study = synthetic(tmp_path / "study", operators=operators, seeds=(0, 1), phases=4, ends=ends)
    point = points(Records.read(study), "minatar/breakout", "test_return", partial=False)["softmax(5)"]
    assert np.isnan(point.mean) and point.interval is None
    assert study.report().exists()
