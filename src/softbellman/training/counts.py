"""Counters of a group and of its runs, in NumPy and in JAX."""

from typing import Any, NamedTuple

from softbellman.envs.step import Step
from softbellman.learning.settings import UpdateSettings


class Clock(NamedTuple):
    """The clock of a group; each run has taken and made as many."""

    agent_steps: int = 0
    updates: int = 0
    epoch: int = 0  # test phases
    replay_from: int = 0  # the agent step at which the replay was empty: 0, unless a replay was not saved


class Counts(NamedTuple):
    """Counts of a run with `E` environments; those of a block's runs have an axis of lanes in front."""

    episodes: Any  # games finished so far
    finished: Any  # games finished in this epoch
    return_sum: Any  # their raw scores together
    clipped_return_sum: Any  # the same of rewards as the learner sees them
    score: Any  # [E], raw scores of the games under way
    clipped_score: Any  # [E], the same of rewards as the learner sees them
    losses: Any  # updates in this epoch
    loss_sum: Any  # their losses together, float32
    diverged_at: Any  # the agent step at which the loss was no longer finite; 0 if there is none
    returns: Any = None  # `Returns`, if a controller needs them


class Returns(NamedTuple):
    """Discounted returns from all steps of recent learning episodes, for each of `E` environments.

    The sum of them over an episode is that of `(1 + gamma + ... + gamma^k) r_k` over its steps k. A product is added
    one step after it is made, so that no compiler fuses the two, and both stages have the same bits.
    """

    total: Any  # [E], of the steps before the last in the episode under way
    last: Any  # [E], the last step's part, still to be added
    weight: Any  # [E], 1 + gamma + ... of the last step
    power: Any  # [E], what the next step adds to it
    length: Any  # [E], steps of the episode
    over: Any  # [E] bool, the last step was its end
    whole: Any  # [E] bool, and no time limit was that
    sum: Any  # [E], over recent episodes
    steps: Any  # [E], their steps, which count half too


_RECENT = 10_000  # steps; beyond, what is remembered counts half


_OF_AN_EPOCH = ("finished", "return_sum", "clipped_return_sum", "losses", "loss_sum")


def zero(num_envs: int, xp: Any, returns: bool = False) -> Counts:
    """Returns the counts of a run before its first step, as arrays of `xp`: `numpy` or `jax.numpy`; with `Returns`?"""
    return Counts(
        **{name: xp.zeros((), xp.int32) for name in ("episodes", "finished", "losses", "diverged_at")},
        **{name: xp.zeros(()) for name in ("return_sum", "clipped_return_sum")},
        **{name: xp.zeros(num_envs) for name in ("score", "clipped_score")},
        loss_sum=xp.zeros((), xp.float32),
        returns=no_returns(num_envs, xp) if returns else None,
    )


def no_returns(num_envs: int, xp: Any) -> Returns:
    """Returns what there is before the first step."""
    floats, flags = xp.zeros(num_envs, xp.float32), xp.zeros(num_envs, bool)
    return Returns(floats, floats, floats, floats + 1, floats, flags, flags, floats, floats)


def with_step(counts: Counts, step: Step, update: UpdateSettings, xp: Any) -> Counts:
    """Adds the rewards `[E]` of a step to the scores of the games under way."""
    seen = update.seen(step.reward, xp)
    return counts._replace(score=counts.score + step.reward, clipped_score=counts.clipped_score + seen)


def with_returns(counts: Counts, step: Step, update: UpdateSettings, xp: Any) -> Counts:
    """Adds a step to the returns, if they are counted; an episode that a time limit cut is left out."""
    own = counts.returns
    if own is None:
        return counts
    total, is_full = own.total + own.last, own.steps > _RECENT // len(own.steps)
    weight = xp.where(own.over, 0.0, own.weight) + xp.where(own.over, 1.0, own.power)
    moved = Returns(
        total=xp.where(own.over, 0.0, total),
        last=weight * update.seen(step.reward, xp),
        weight=weight,
        power=xp.where(own.over, 1.0, own.power) * xp.float32(update.gamma),
        length=xp.where(own.over, 0, own.length) + 1,
        over=step.terminated | step.truncated,
        whole=step.terminated,
        sum=xp.where(own.whole, xp.where(is_full, own.sum / 2, own.sum) + total, own.sum),
        steps=xp.where(own.whole, xp.where(is_full, own.steps / 2, own.steps) + own.length, own.steps),
    )
    moved = [xp.asarray(new, dtype=old.dtype) for new, old in zip(moved, own, strict=True)]
    return counts._replace(returns=Returns(*moved))


def summed_returns(counts: Counts) -> tuple[Any, Any] | None:
    """Returns the sums and numbers of steps `[E]` that an update looks at, or None."""
    return None if counts.returns is None else (counts.returns.sum, counts.returns.steps)


def with_games(counts: Counts, ended: Any, xp: Any) -> Counts:
    """Adds the games that a step has ended, `[E]` bool; elsewhere it changes nothing."""
    games = ended.sum(dtype=xp.int32)
    return counts._replace(
        episodes=counts.episodes + games,
        finished=counts.finished + games,
        return_sum=counts.return_sum + xp.where(ended, counts.score, 0.0).sum(),
        clipped_return_sum=counts.clipped_return_sum + xp.where(ended, counts.clipped_score, 0.0).sum(),
        score=xp.where(ended, 0.0, counts.score),
        clipped_score=xp.where(ended, 0.0, counts.clipped_score),
    )


def with_loss(counts: Counts, loss: Any, agent_steps: Any, xp: Any) -> Counts:
    """Adds the loss of an update, and notes the agent step if it is the first that is not finite."""
    first_lost = (counts.diverged_at == 0) & ~xp.isfinite(loss)
    return counts._replace(
        losses=counts.losses + 1,
        loss_sum=counts.loss_sum + loss,
        diverged_at=xp.where(first_lost, agent_steps, counts.diverged_at),
    )


def next_epoch(counts: Counts, xp: Any) -> Counts:
    """Returns the counts with those of an epoch at zero."""
    return counts._replace(**{name: xp.zeros_like(getattr(counts, name)) for name in _OF_AN_EPOCH})


def mean(total: Any, count: Any) -> float | None:
    """Returns the mean of `count` numbers from their sum, or None of none."""
    return float(total) / int(count) if count else None
