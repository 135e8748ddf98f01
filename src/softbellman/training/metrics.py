"""The row that every run writes after every test phase: the columns of `metrics.csv`, defined once."""

from typing import NamedTuple, get_type_hints


class MetricsRow(NamedTuple):
    """One test phase of one run. None is an empty cell: the quantity could not be had, which is not 0.

    Attributes:
        epoch: test phases so far, from 1.
        agent_steps: decisions of the agent in training so far, the random ones included.
        env_frames: emulator frames in training, `agent_steps` times the frames of a step.
        updates: updates of the online network so far.
        episodes: whole games finished in training so far.
        test_return: mean raw score of the test phase's games.
        test_episodes: games behind it.
        test_unfinished: 1 if no game ended within the test budget, and the score is of the unfinished one; else 0.
        train_return: mean raw score of the training games that ended in this epoch.
        train_clipped_return: the same with each reward clipped as the learner clips it.
        held_out_value: see `ValueStatistics`, on the run's own held-out states.
        held_out_value_common: the same on states that all runs of a game share.
        held_out_operator_value: see `ValueStatistics`.
        realised_return: discounted clipped return that the test policy obtained from the states it visited.
        overestimation: `max_a Q_online` at those states, minus that return.
        gradient_norm: see `GradientStatistics`.
        gradient_variance: see `GradientStatistics`.
        gradient_mean: see `GradientStatistics`.
        gradient_norm_of_mean: see `GradientStatistics`.
        action_gap: see `ValueStatistics`.
        policy_entropy: see `ValueStatistics`, in nats.
        operator_gap: see `ValueStatistics`.
        operator_slope: see `ValueStatistics`.
        q_std: see `ValueStatistics`.
        loss: mean loss of this epoch's updates, summed or averaged over the minibatch as the learner does.
        epsilon: exploration rate at the end of the epoch.
        operator_parameter: tau or omega, where the operator has one.
        test_epsilon: exploration rate of the test phase.
        test_seed: seed of the test phase's games.
        seconds: wall-clock time of the run so far, tests included.
    """

    epoch: int
    agent_steps: int
    env_frames: int
    updates: int
    episodes: int
    test_return: float | None
    test_episodes: int
    test_unfinished: int
    train_return: float | None
    train_clipped_return: float | None
    held_out_value: float | None
    held_out_value_common: float | None
    held_out_operator_value: float | None
    realised_return: float | None
    overestimation: float | None
    gradient_norm: float | None
    gradient_variance: float | None
    gradient_mean: float | None
    gradient_norm_of_mean: float | None
    action_gap: float | None
    policy_entropy: float | None
    operator_gap: float | None
    operator_slope: float | None
    q_std: float | None
    loss: float | None
    epsilon: float
    operator_parameter: float | None
    test_epsilon: float
    test_seed: int
    seconds: float


COUNTS = frozenset(name for name, kind in get_type_hints(MetricsRow).items() if kind is int)
