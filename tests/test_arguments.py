"""A path or a number as a Python user may write it becomes the plain one, or is refused with its name."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from softbellman.arguments import as_integer, as_list, as_number, as_path


@pytest.mark.parametrize(
    "given", [1000, 1e3, np.int64(1000), np.uint8(100) * np.int64(10), np.float32(1000), np.array(1000), Fraction(1000)]
)
def test_whole_numbers_are_integers(given):
    number = as_integer(given, "steps")
    assert number == 1000 and type(number) is int
    assert json.dumps(number) == "1000"


@pytest.mark.parametrize(
    "given", [10.5, math.inf, math.nan, np.float32(0.5), True, np.bool_(True), "10", None, [1], np.array([1]), 1 + 0j]
)
def test_what_is_no_whole_number_is_refused_with_its_name(given):
    with pytest.raises(ValueError, match=r"steps \(.*\) must be a whole number"):
        as_integer(given, "steps")


@pytest.mark.parametrize(("given", "example"), [(2.6, 3), ("1.5", 2), (np.float32(0.5), 0), ("x", 1000), (None, 1000)])
def test_the_example_is_near_to_what_was_given(given, example):
    with pytest.raises(ValueError, match=f"such as {example}$"):
        as_integer(given, "returns")


@pytest.mark.parametrize(
    ("given", "number"),
    [
        (np.float32(0.9), 0.9),
        (np.float16(0.1), 0.1),
        (np.float64(0.1), 0.1),
        (np.array(0.5, np.float32), 0.5),
        (np.int64(2), 2.0),
        (1, 1.0),
        (math.inf, math.inf),
    ],
)
def test_numbers_mean_their_shortest_decimal(given, number):
    made = as_number(given, "gamma")
    assert made == number and type(made) is float


@pytest.mark.parametrize("given", [True, "0.9", None, [0.9], 10**400, 1j])
def test_what_is_no_number_is_refused_with_its_name(given):
    with pytest.raises(ValueError, match=r"gamma \(.*\) must be a number"):
        as_number(given, "gamma")


def test_a_number_of_jax_is_one_too():
    jnp = pytest.importorskip("jax.numpy")
    assert as_number(jnp.float32(0.9), "gamma") == 0.9
    assert as_integer(jnp.asarray(3), "seed") == 3


def test_one_is_a_list_of_one():
    assert as_list("max") == ["max"] and as_list(5) == [5]
    assert as_list(("a", "b")) == ["a", "b"] and as_list(range(2)) == [0, 1]
    assert as_list(np.array([3, 4])) == [3, 4] and as_list(np.array(3)) == [3]
    assert as_list({1: "a"}.values()) == ["a"] and as_list(iter("ab")) == ["a", "b"]


def test_paths_and_words_are_alike_and_the_home_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert as_path("~/x") == as_path(Path("~/x")) == tmp_path / "x"
    assert as_path("runs/~/x") == Path("runs/~/x")
    with pytest.raises(ValueError, match="~no_such_user_of_this_machine/x"):
        as_path("~no_such_user_of_this_machine/x")
