"""Counts of a run: the same from steps, games and losses in NumPy and in JAX."""

import jax
import numpy as np
import pytest

from softbellman.envs.step import Step
from softbellman.learning.settings import UpdateSettings
from softbellman.training import counts
from softbellman.training.evaluation import RAW

BOTH = pytest.mark.parametrize("xp", [np, jax.numpy], ids=["numpy", "jax"])


def step_of(reward, ended, xp):
    reward, ended = xp.asarray(np.array(reward, np.float32)), xp.asarray(np.array(ended))
    return Step(None, None, reward, ended, ended & False, ended, ended)


@BOTH
@pytest.mark.parametrize(
    ("scale", "clip", "clipped"), [(1, 1.0, 3.5), (1, None, 9.5), (1, 0.25, 1.0), (0.5, 1.0, 2.75)]
)
def test_scores_are_of_whole_games_raw_and_as_the_learner_sees_them(scale, clip, clipped, xp):
    own = counts.zero(3, xp)
    for reward, ended in (([5.0, 1.0, -3.0], [False] * 3), ([0.5, 3.0, 0.0], [True, True, False])):
        step = step_of(reward, ended, xp)
        own = counts.with_games(
            counts.with_step(own, step, UpdateSettings(reward_scale=scale, reward_clip=clip), xp), step.game_ended, xp
        )
    assert (int(own.episodes), int(own.finished), float(own.return_sum)) == (2, 2, 9.5)
    assert float(own.clipped_return_sum) == clipped
    assert own.score.tolist() == [0.0, 0.0, -3.0]
    after = counts.next_epoch(own, xp)
    assert (int(after.episodes), int(after.finished), float(after.return_sum)) == (2, 0, 0.0)
    assert after.score.tolist() == own.score.tolist()  # a game under way counts when it ends, whole


@BOTH
def test_no_game_ended_changes_nothing(xp):
    own = counts.with_step(counts.zero(2, xp), step_of([1.0, 2.0], [False, False], xp), RAW, xp)
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


GAMMA = 0.75  # whose powers float32 holds


def with_steps(own, steps, xp, clip=1.0):
    """Add steps, each of rewards, ends and cuts by a time limit, one for each environment."""
    for rewards, ended, cut in steps:
        step = step_of(rewards, ended, xp)._replace(truncated=xp.asarray(np.array(cut)))
        own = counts.with_returns(own, step, UpdateSettings(gamma=GAMMA, reward_clip=clip), xp)
    return own


@BOTH
def test_returns_are_those_from_every_step_of_the_episodes_that_ended(xp):
    """One environment ends after rewards 1, 5 (clipped to 1), 0, -1; the other after a cut that is left out."""
    no, first, second = [False, False], [True, False], [False, True]
    steps = [
        ([1.0, 1.0], no, no),
        ([5.0, 1.0], no, second),
        ([0.0, 0.5], no, no),
        ([-1.0, 1.0], first, no),
        ([1.0, 0.0], no, second),
        ([1.0, 0.0], second, no),
        ([1.0, 0.0], no, no),
    ]
    own = with_steps(counts.zero(2, xp, returns=True), steps[:4], xp)
    assert own.returns.steps.tolist() == [0, 0]  # an end is counted with the step after it
    own = with_steps(own, steps[4:], xp)
    expected = [0.0, 0.0]
    for lane, rewards in ((0, [1.0, 1.0, 0.0, -1.0]), (1, [0.0])):
        for start in range(len(rewards)):
            expected[lane] += sum(GAMMA**k * reward for k, reward in enumerate(rewards[start:]))
    assert own.returns.sum.tolist() == expected and own.returns.steps.tolist() == [4, 1]
    assert own.returns.sum.dtype == own.returns.steps.dtype == np.float32
    assert [each.tolist() for each in counts.summed_returns(own)] == [expected, [4, 1]]
    assert counts.next_epoch(own, xp).returns is own.returns


@BOTH
def test_older_episodes_count_half_once_there_are_enough(xp, monkeypatch):
    monkeypatch.setattr(counts, "_RECENT", 8)  # 4 for each of two environments
    long = [([1.0, 1.0], [k == 4, True], [False, False]) for k in range(5)]
    own = with_steps(counts.zero(2, xp, returns=True), [*long, *long, ([0.0, 0.0], [False] * 2, [False] * 2)], xp)
    once = sum((1 - GAMMA**k) / (1 - GAMMA) for k in range(1, 6))
    assert own.returns.steps.tolist() == [7.5, 3.125]
    assert own.returns.sum.tolist() == pytest.approx([1.5 * once, 3.125], rel=1e-6)


@BOTH
def test_returns_that_nobody_needs_are_not_counted(xp):
    own = counts.zero(2, xp)
    assert own.returns is None and counts.summed_returns(own) is None
    assert with_steps(own, [([1.0, 1.0], [True] * 2, [False] * 2)], xp) is own


def test_both_kinds_of_arrays_have_the_same_bits_compiled_or_not():
    rng = np.random.default_rng(0)
    own, theirs = counts.zero(3, np, returns=True), counts.zero(3, jax.numpy, returns=True)
    step = jax.jit(lambda own, step: counts.with_returns(own, step, RAW, jax.numpy))
    for _ in range(500):
        drawn = step_of(rng.normal(size=3), rng.random(3) < 0.05, np)._replace(truncated=rng.random(3) < 0.01)
        own = counts.with_returns(own, drawn, RAW, np)
        theirs = step(theirs, jax.tree.map(jax.numpy.asarray, drawn))
    assert (own.returns.steps > 0).all()
    for one, other in zip(own.returns, theirs.returns, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
