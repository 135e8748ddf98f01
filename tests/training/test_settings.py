"""Settings that could not run or never learn are refused before any work, with the numbers in the message."""

import re
from dataclasses import replace

import pytest

from softbellman.learning.settings import LearnerSettings
from softbellman.training.settings import LoopSettings, check

LEARNER = LearnerSettings(replay_start_steps=100, replay_capacity=1_000, target_period_updates=10)
LOOP = LoopSettings(steps=1_000, epoch_steps=500)

NAN, INF = float("nan"), float("inf")


def test_the_defaults_and_the_smallest_settings_pass():
    check(LearnerSettings(), LoopSettings())
    check(LEARNER, LOOP)
    tiny = LearnerSettings(
        batch_size=1, replay_start_steps=0, replay_capacity=1, update_period_steps=1, target_period_updates=1
    )
    check(tiny, LoopSettings(steps=2, epoch_steps=1, test_steps=1, held_out_states=1, gradient_batches=0))
    check(replace(LEARNER, gamma=0.0, epsilon_decay_steps=0, reward_clip=None), replace(LOOP, test_episodes=1))


def test_when_tests_are_is_said():
    assert replace(LOOP, steps=100, epoch_steps=30).tested == "every 30 agent steps"
    assert replace(LOOP, steps=30, epoch_steps=30).tested == replace(LOOP, steps=9).tested == "once, at the end"


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        *(("gamma", value, "in [0, 1)") for value in (-0.1, 1.0, 1.5, NAN)),
        *(("rmsprop_decay", value, "in [0, 1)") for value in (-0.1, 1.0, NAN)),
        *(
            (name, value, "positive and finite in float32: from 1e-37 to 1e+38")
            for name in ("learning_rate", "huber_delta", "optimizer_epsilon", "reward_scale")
            for value in (0, -1, NAN, INF, 1e-300, 1e300)
        ),
        ("optimizer", "sgd", "one of rmsprop, rmsprop-torch, adam"),
        ("loss_reduction", "none", "one of sum, mean"),
        *(("reward_clip", value, "positive, or none") for value in (0.0, -1.0, NAN, 1e-300)),
        *(
            (name, 0, "at least 1")
            for name in ("batch_size", "update_period_steps", "target_period_updates", "replay_capacity")
        ),
        ("replay_start_steps", -1, "not be negative"),
        ("epsilon_decay_steps", -5, "not be negative"),
        *((name, value, "in [0, 1]") for name in ("epsilon_start", "epsilon_end") for value in (-0.1, 1.1, NAN)),
    ],
)
def test_a_learners_number_out_of_range_is_refused(field, value, allowed):
    with pytest.raises(ValueError, match=re.escape(f"learner.{field} ({value!r}) must")) as error:
        check(replace(LEARNER, **{field: value}), LOOP)
    assert allowed in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        *(
            (name, 0, "at least 1")
            for name in ("steps", "epoch_steps", "test_steps", "held_out_states", "num_envs", "block_width")
        ),
        ("test_episodes", 0, "at least 1, or none"),
        ("gradient_batches", -1, "not be negative"),
        *(("test_epsilon", value, "in [0, 1]") for value in (-0.05, 1.05, NAN)),
    ],
)
def test_a_loops_number_out_of_range_is_refused(field, value, allowed):
    with pytest.raises(ValueError, match=re.escape(f"loop.{field} ({value}) must")) as error:
        check(LEARNER, replace(LOOP, **{field: value}))
    assert allowed in str(error.value)


@pytest.mark.parametrize(
    ("learner", "loop", "said"),
    [
        ({"batch_size": 64, "replay_capacity": 32, "replay_start_steps": 16}, {}, ["batch_size (64)", "capacity (32)"]),
        ({"replay_start_steps": 16}, {}, ["replay_start_steps (16)", "batch_size (32)", "to 32 or more"]),
        ({"replay_start_steps": 1_000}, {}, ["replay_start_steps (1,000)", "budget of 1,000", "--steps"]),
        ({"replay_start_steps": 2_000}, {}, ["replay_start_steps (2,000)", "budget of 1,000"]),
        ({"replay_start_steps": 500, "replay_capacity": 500}, {}, ["start_steps (500)", "replay_capacity (500)"]),
        ({"update_period_steps": 2_000}, {}, ["update_period_steps (2000)", "900 agent steps"]),
        ({"target_period_updates": 225}, {}, ["target_period_updates (225)", "225 updates", "below 225"]),
        ({"update_period_steps": 6}, {"num_envs": 4}, ["update_period_steps (6)", "num_envs (4)", "try 8"]),
        ({"update_period_steps": 2}, {"num_envs": 8}, ["update_period_steps (2)", "num_envs (8)", "try 8"]),
        ({"update_period_steps": 3}, {"num_envs": 3}, ["loop.steps (1000)", "num_envs (3)"]),
        ({"update_period_steps": 4}, {"num_envs": 4, "epoch_steps": 250}, ["loop.epoch_steps (250)", "num_envs (4)"]),
        ({"replay_capacity": 999}, {"num_envs": 4}, ["replay_capacity (999)", "num_envs (4)"]),
    ],
)
def test_l32_settings_that_do_not_fit_each_other_are_refused(learner, loop, said):
    with pytest.raises(ValueError, match=re.escape(said[0])) as error:
        check(replace(LEARNER, **learner), replace(LOOP, **loop))
    assert [part for part in said if part not in str(error.value)] == []


def test_l32_what_the_message_suggests_is_accepted():
    check(replace(LEARNER, target_period_updates=224), LOOP)
    check(replace(LEARNER, update_period_steps=8), replace(LOOP, num_envs=4))
    check(replace(LEARNER, replay_start_steps=32), LOOP)


def test_the_updates_are_counted_as_the_loop_makes_them():
    """Updates come at multiples of 4 after step 3, so at 4 and 8: two, though 9 - 3 is less than 2 x 4."""
    learner = replace(LEARNER, batch_size=1, replay_start_steps=3, target_period_updates=1)
    check(learner, replace(LOOP, steps=9))
    with pytest.raises(ValueError, match="makes 2 updates"):
        check(replace(learner, target_period_updates=2), replace(LOOP, steps=9))
