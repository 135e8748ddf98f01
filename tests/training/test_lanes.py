"""Blocks of runs: parted, filled up, stacked along an axis of lanes, and taken apart again."""

import jax
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.training.lanes import Run, blocks_of, lane_of, over_lanes, stack

RUNS = [Run(ops.softmax(tau), seed) for seed, tau in enumerate((1.0, 2.0, 5.0))]


@pytest.mark.parametrize(("width", "sizes"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (8, [3])])
def test_runs_are_parted_in_order_and_none_is_added(width, sizes):
    blocks = blocks_of(RUNS, width)
    assert [len(block) for block in blocks] == sizes and [run for block in blocks for run in block] == RUNS


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_each_run_gets_its_own_back_and_the_last_fills_the_block_up(width):
    trees = [{"a": np.arange(2.0) + index, "b": np.float32(index)} for index in range(min(width, 3))]
    stacked = stack(trees, width)
    assert np.shape(stacked["b"]) == (() if width == 1 else (width,))
    for lane, tree in enumerate([*trees, *[trees[-1]] * (width - len(trees))]):
        for ours, given in zip(jax.tree.leaves(lane_of(stacked, lane, width)), jax.tree.leaves(tree), strict=True):
            np.testing.assert_array_equal(ours, given)


@pytest.mark.parametrize("width", [1, 4])
def test_a_function_of_one_run_works_on_a_block(width):
    stacked = stack([np.arange(3.0) * (1 + index) for index in range(width)], width)
    total = over_lanes(lambda array: array.sum(), width)(stacked)
    np.testing.assert_array_equal(total, [3.0 * (1 + index) for index in range(width)] if width > 1 else 3.0)
