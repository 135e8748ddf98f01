"""The words of a Box on observations: what they are divided by, how they are stored, and what is refused."""

import numpy as np
import pytest
from gymnasium.spaces import Box

from softbellman.envs.observations import Observations

INT32 = np.iinfo(np.int32)


def box(low, high, dtype, shape=(3,)):
    """A Box whose bounds are numbers, or one for each entry."""
    return Box(np.array(low), np.array(high), dtype=dtype) if np.ndim(high) else Box(low, high, shape, dtype)


@pytest.mark.parametrize(
    ("low", "high", "dtype", "scale"),
    [
        (0, 255, np.uint8, 255.0),
        (0, 1, np.uint8, 1.0),
        (0, 1, bool, 1.0),
        (-1, 1, np.int8, 1.0),
        (-128, 127, np.int8, 128.0),
        (0, 65_535, np.uint16, 65_535.0),
        (-3, 12, np.int32, 12.0),
        (-20, 5, np.int64, 20.0),
        (0, 0, np.uint8, 1.0),
        ([0, -3, 0], [1, 2, 7], np.int64, (1.0, 3.0, 7.0)),
        ([0, 0, 0], [255, 255, 255], np.uint8, 255.0),
        ([0, 0, -5], [5, INT32.max, 5], np.int32, (5.0, 1.0, 5.0)),
        (-np.inf, np.inf, np.int8, 1.0),
        (-np.inf, np.inf, np.int64, 1.0),
        (0, np.inf, np.int16, 1.0),
        (-np.inf, 4, np.int32, 1.0),
        (INT32.min, INT32.max, np.int32, 1.0),
        (0, 2**32 - 1, np.uint32, 1.0),
        (0, 1000, np.float32, 1.0),
        (-np.inf, np.inf, np.float64, 1.0),
    ],
)
def test_integers_are_divided_by_the_largest_magnitude_that_their_space_declares(low, high, dtype, scale):
    assert Observations(box(low, high, dtype), "it").scale == scale


def test_the_same_task_enters_alike_in_every_dtype():
    for dtype, high in ((np.float32, 1), (bool, 1), (np.uint8, 1), (np.uint8, 255), (np.int8, 127), (np.int32, 9)):
        observations = Observations(box(0, high, dtype), "it")
        entering = observations.taken(np.array([0, high, 0], dtype)).astype(np.float32) / observations.scale
        np.testing.assert_array_equal(entering, np.float32([0, 1, 0]))


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.uint16, np.int16])
def test_small_integers_are_stored_as_they_are(dtype):
    assert Observations(box(0, 1, dtype), "it").dtype == dtype


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.float16, np.float32, np.float64])
def test_all_else_is_stored_as_float32(dtype):
    observations = Observations(box(0, 1, dtype), "it")
    assert observations.dtype == observations.taken(np.ones(3, dtype)).dtype == np.float32


def test_a_scale_is_laid_out_as_the_observations_are():
    high = np.broadcast_to(np.uint8([255, 1, 16]), (5, 7, 3))
    observations = Observations(Box(np.zeros_like(high), high, dtype=np.uint8), "it")
    assert observations.shape == (3, 5, 7)
    assert observations.scale == (255.0,) * 35 + (1.0,) * 35 + (16.0,) * 35
    np.testing.assert_array_equal(observations.taken(high).reshape(-1) / np.array(observations.scale), np.ones(105))


def test_a_scalar_is_a_vector_of_one_entry():
    observations = Observations(Box(-4, 4, (), np.int32), "it")
    assert (observations.shape, observations.scale) == ((1,), 4.0)
    assert observations.taken(3).tolist() == [3.0]
    with pytest.raises(ValueError, match="it gave an observation with 5, where its space says -4 to 4"):
        observations.taken(5)


@pytest.mark.parametrize(
    ("space", "given", "message"),
    [
        (box(0, 1, np.uint8), np.uint8([0, 255, 0]), r"with 255 at \[1\], where its space says 0 to 1.*declare true"),
        (box(0, 255, np.uint8), np.array([0, 256, 0]), r"with 256 at \[1\], where its space says 0 to 255"),
        (box(-np.inf, np.inf, np.int8), np.array([0, 0, 300]), r"with 300 at \[2\], where its space says -128 to 127"),
        (box(0, 9, np.int64), np.array([0, -1, 0]), r"with -1 at \[1\], where its space says 0 to 9"),
        (box(0, 1, bool), np.array([0, 2, 0]), r"with 2 at \[1\]"),
        (box([0, 0, 0], [1, 2, 3], np.int32), np.array([1, 2, 4]), r"with 4 at \[2\], where its space says 0 to 3"),
        (box(0, 255, np.uint8), np.float32([0.0, 0.5, 1.0]), "dtype float32, its space says uint8"),
        (box(0, 9, np.int64), np.zeros(3), "dtype float64, its space says int64"),
        (box(0, 1, np.float32), np.zeros(3, complex), "dtype complex128"),
        (box(0, 1, np.float32), None, r"dtype object \(NoneType\)"),
        (box(0, 1, np.float32), {"a": 1}, r"dtype object \(dict\)"),
        (box(0, 1, np.float32), [[1], [1, 2]], r"dtype object \(list\)"),
        (box(0, 1, np.float32), np.zeros((3, 1)), r"shape \(3, 1\), its space says \(3,\)"),
        (box(0, 1, np.float32), np.float32([0, np.inf, 0]), "not finite in float32"),
    ],
)
def test_what_is_not_as_declared_is_refused(space, given, message):
    with pytest.raises(ValueError, match=message) as refused:
        Observations(space, "it").taken(given)
    assert "\n" not in str(refused.value)


def test_integers_of_another_width_are_taken_where_they_fit():
    observations = Observations(box(0, 255, np.uint8), "it")
    for given in (np.array([0, 255, 1]), [0, 255, 1], np.float32([0, 255, 1]).astype(np.int16)):
        taken = observations.taken(given)
        assert taken.dtype == np.uint8 and taken.tolist() == [0, 255, 1]
    assert Observations(box(0, 1, np.float32), "it").taken(np.uint8([0, 1, 0])).dtype == np.float32


def test_floats_out_of_bounds_are_taken_and_told():
    observations = Observations(box([0, 0.1, -1], [1, 0.1, 1], np.float64), "it")
    assert observations.outside(observations.taken(np.array([0.5, 0.1, 1.0]))) is None
    assert (
        observations.outside(observations.taken(np.array([0.5, 0.1, -2]))) == "-2 at [2], where its space says -1 to 1"
    )


def test_bounds_at_the_ends_of_float64_are_none():
    largest = np.finfo(np.float64).max
    observations = Observations(box(-largest, largest, np.float64), "it")
    assert observations.outside(observations.taken(np.array([1e30, 0.0, -1e30]))) is None


def test_an_observation_without_an_entry_is_refused():
    with pytest.raises(ValueError, match="no entry"):
        Observations(Box(0, 1, (0,)), "it")
