"""Counts of a run: the same from steps, games and losses in NumPy and in JAX."""

import jax
import numpy as np
import pytest

from softbellman.envs.step import Step
from softbellman.training import counts

BOTH = pytest.mark.parametrize("xp", [np, jax.numpy], ids=["numpy", "jax"])


def step_of(reward, ended, xp):
    reward, ended = xp.asarray(np.array(reward, np.float32)), xp.asarray(np.array(ended))
    return Step(None, None, reward, ended, ended & False, ended, ended)


@BOTH
@pytest.mark.parametrize(("clip", "clipped"), [(1.0, 3.5), (None, 9.5), (0.25, 1.0)])
def test_scores_are_of_whole_games_raw_and_clipped(clip, clipped, xp):
    own = counts.zero(3, xp)
    for reward, ended in (([5.0, 1.0, -3.0], [False] * 3), ([0.5, 3.0, 0.0], [True, True, False])):
        step = step_of(reward, ended, xp)
        own = counts.with_games(counts.with_step(own, step, clip, xp), step.game_ended, xp)
    assert (int(own.episodes), int(own.finished), float(own.return_sum)) == (2, 2, 9.5)
    assert float(own.clipped_return_sum) == clipped
    assert own.score.tolist() == [0.0, 0.0, -3.0]
    after = counts.next_epoch(own, xp)
    assert (int(after.episodes), int(after.finished), float(after.return_sum)) == (2, 0, 0.0)
    assert after.score.tolist() == own.score.tolist()  # a game under way counts when it ends, whole


@BOTH
def test_no_game_ended_changes_nothing(xp):
    own = counts.with_step(counts.zero(2, xp), step_of([1.0, 2.0], [False, False], xp), None, xp)
    for one, other in zip(own, counts.with_games(own, xp.zeros(2, bool), xp), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("xp", [np, jax.numpy], ids=["numpy", "jax"])
def test_the_first_loss_that_is_not_finite_is_the_moment_a_run_is_lost(xp):
    own = counts.zero(1, xp)
    for moment, loss in ((4, 1.0), (8, np.inf), (12, np.nan), (16, 2.0)):
        own = counts.with_loss(own, np.float32(loss), moment, xp)
        assert int(own.diverged_at) == (8 if moment >= 8 else 0)
    own = counts.next_epoch(own, xp)
    assert (int(own.losses), float(own.loss_sum), int(own.diverged_at)) == (0, 0.0, 8)
    assert counts.mean(own.loss_sum, own.losses) is None
    assert counts.mean(3.0, 2) == 1.5
