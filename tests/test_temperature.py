"""Temperatures of one state: the noise that is seen, and the taus that have no bias or are chosen."""

import csv
import math

import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.temperature import KAPPA, VALUES, noise_variance, temperatures, write_temperatures


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_the_noise_is_that_of_differences_between_legal_actions(xp):
    """Differences less their means: (-1, -1, 2), nothing, and (1, -1) where two are legal; 6 + 2 over 2 (2 + 1)."""
    q = xp.asarray(np.array([[1.0, 2.0, 3.0], [0.0, 5.0, math.nan], [1.0, math.inf, 2.0]], np.float32))
    other = xp.asarray(np.array([[1.0, 2.0, 0.0], [9.0, 9.0, 9.0], [1.0, 0.0, 4.0]], np.float32))
    legal = xp.asarray(np.array([[True] * 3, [True] * 3, [True, False, True]]))
    variance, there = noise_variance(q, other, legal, xp.asarray(np.array([True, False, True])))
    assert bool(there) and float(variance) == pytest.approx(8 / 6)
    variance, there = noise_variance(q, other, legal, xp.zeros(3, dtype=bool))
    assert not bool(there) and float(variance) == 0
    variance, there = noise_variance(q[:1], other[:1] + 7.0)
    assert float(variance) == pytest.approx(6 / 4)


def test_independent_noise_is_seen_as_large_as_it_is():
    rng = np.random.default_rng(0)
    q, other = 3 * rng.standard_normal((2, 50_000, 5)) + rng.standard_normal((50_000, 1))
    assert float(noise_variance(q, other)[0]) == pytest.approx(9, rel=0.02)


@pytest.fixture(scope="module")
def found():
    return {(each.correlation, each.sigma): each for each in temperatures(trials=10_000)}


def test_tau_without_bias_is_near_kappa_over_the_noise_over_a_range_of_thirty(found):
    """Independent noise: tau times sigma falls from 1 to .45; max has the larger bias throughout."""
    scaled = [found[0.0, sigma].unbiased.tau * sigma for sigma in (0.1, 0.5, 1.0, 3.0)]
    assert scaled == pytest.approx([1.01, 0.81, 0.75, 0.45], abs=0.05)
    for sigma in (0.1, 0.5, 1.0, 3.0):
        each = found[0.0, sigma]
        assert abs(each.unbiased.bias) < 1e-5 < each.max.bias
        assert each.seen == pytest.approx(sigma, rel=0.02) and each.noise.tau == KAPPA / each.seen
        assert abs(each.noise.bias) < 0.6 * each.max.bias
        assert each.match.bias == pytest.approx(each.double, abs=1e-5)


def test_with_shared_noise_both_rules_fall_back_to_max(found):
    for sigma in (0.1, 0.5, 1.0, 3.0):
        each = found[0.9, sigma]
        assert each.seen == pytest.approx(sigma * math.sqrt(0.1), rel=0.02)
        assert each.unbiased == found[0.0, sigma].unbiased  # the same draws
        assert min(each.noise.bias, each.match.bias) > 0.7 * each.max.bias


def test_the_choices_are_those_of_the_operators():
    values, trials = np.array([1.0, 0.5, -2.0]), 500
    (each,) = temperatures(values, 0.7, 0.5, trials=trials, seed=5)
    rng = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(3,)))
    one, other = rng.standard_normal((2, trials, 3))
    q, online = values + 0.7 * one, values + 0.7 * (0.5 * one + math.sqrt(0.75) * other)
    assert each.double == pytest.approx(float(ops.double(ops.maximum())(q, online).mean()) - 1)
    assert each.max.bias == pytest.approx(float(ops.maximum()(q).mean()) - 1)
    for choice in (each.unbiased, each.noise, each.match):
        assert choice.bias == pytest.approx(float(ops.softmax(choice.tau)(q).mean()) - 1)


def test_where_no_tau_will_do_it_is_said(tmp_path):
    """One action: the bias is that of the noise. Equal true values: at any tau above 0 it is above 0."""
    alone, equal, agreed = (
        temperatures([2.0], 1.0, 0.0, trials=50)[0],
        temperatures([0.0, 0.0], 1.0, 0.0, trials=50_000)[0],
        temperatures(VALUES, 1.0, 1.0, trials=50)[0],
    )
    assert alone.unbiased is None and alone.noise.tau == math.inf
    assert equal.unbiased is None or equal.unbiased.tau < 0.05
    assert (agreed.noise.tau, agreed.match.tau, agreed.seen) == (math.inf, math.inf, 0)
    assert agreed.match.bias == agreed.max.bias == agreed.double
    with write_temperatures([alone, agreed], tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["unbiased_tau"] == "" for row in rows] == [True, False]
    assert float(rows[1]["match_bias"]) == agreed.match.bias and rows[1]["noise_tau"] == "inf"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"true_values": []}, "true values"),
        ({"true_values": [1.0, math.inf]}, "must be finite"),
        ({"sigmas": [1.0, -1.0]}, r"sigma \(-1.0\) must be above 0"),
        ({"sigmas": []}, "name at least one sigma"),
        ({"correlations": ()}, "name at least one correlation"),
        ({"correlations": 1.01}, r"correlation \(1.01\) must be in 0 .. 1"),
        ({"correlations": math.nan}, r"correlation \(nan\)"),
        ({"kappa": math.nan}, r"kappa \(nan\) must be above 0"),
        ({"trials": 1}, r"trials \(1\) must be at least 2"),
        ({"seed": -1}, r"seed \(-1\) must be at least 0"),
    ],
)
def test_what_is_out_of_range_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        temperatures(**wrong)
