"""Test phases on scripted games, and the realised return against a slow oracle."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softbellman.learning.settings import UpdateSettings
from softbellman.training.evaluation import RAW, play, realised_return

from .probes import ScriptedEnv, TableEnv, corridor

NOTHING_ENDS = [(1.0, "")]
LIVES = [(0.0, ""), (7.0, "life"), (0.0, ""), (-3.0, "life"), (0.0, ""), (100.0, "over")]


def zeros(obs, moment, age, legal):
    return np.zeros(len(obs), int), np.zeros(len(obs))


# ----------------------------------------------------------------------------------------- which games are counted


def test_l18_a_game_that_never_ends_stops_at_the_budget_and_is_flagged():
    phase = play(zeros, ScriptedEnv(NOTHING_ENDS, training=False), max_steps=50)
    assert phase.unfinished and phase.steps == 50
    assert phase.scores.tolist() == [50.0] and phase.lengths.tolist() == [50] and phase.mean == 50.0
    assert not phase.identical
    # The same where games are counted: the budget still ends it.
    assert play(zeros, ScriptedEnv(NOTHING_ENDS, training=False), max_steps=50, max_episodes=3).scores.tolist() == [
        50.0
    ]


def test_l18_an_unfinished_last_game_is_dropped_where_others_ended():
    game = [(1.0, ""), (1.0, ""), (1.0, "over")]
    phase = play(zeros, ScriptedEnv(game, training=False), max_steps=8)
    assert phase.scores.tolist() == [3.0, 3.0] and phase.lengths.tolist() == [3, 3]
    assert not phase.unfinished and phase.steps == 8


@pytest.mark.parametrize("event", ["over", "cut"])
def test_a_phase_of_a_number_of_games_ends_with_the_last(event):
    phase = play(zeros, ScriptedEnv([(1.0, ""), (2.0, event)], training=False), max_steps=100, max_episodes=3)
    assert phase.scores.tolist() == [3.0] * 3 and phase.steps == 6 and not phase.unfinished


def test_l18_identical_games_are_noticed():
    game = [(1.0, ""), (1.0, "over")]
    assert play(zeros, ScriptedEnv(game, training=False), max_steps=20).identical
    assert not play(zeros, ScriptedEnv(game, training=False), max_steps=3).identical  # one game is no repetition
    # Alike in score but not in what was seen.
    different = [(1.0, ""), (1.0, "over"), (2.0, "over")]
    phase = play(zeros, ScriptedEnv(different, training=False), max_steps=6)
    assert phase.scores.tolist() == [2.0] * 4 and not phase.identical


def test_l18_games_that_start_alike_and_go_on_differently_are_not_identical():
    env = TableEnv([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]], [[1, 2], [0, 0], [0, 0]], [[0, 0], [1, 1], [1, 1]])
    env.terminal = env.terminal.astype(bool)

    def alternate(obs, moment, age, legal):
        return np.array([(moment // 2) % 2]), np.zeros(1)

    assert play(zeros, env, max_steps=8).identical
    phase = play(alternate, env, max_steps=8)
    assert len(set(phase.scores.tolist())) == len(set(phase.lengths.tolist())) == 1 and not phase.identical


def test_l8_the_score_of_a_test_is_that_of_the_whole_game_and_raw():
    phase = play(
        zeros, ScriptedEnv(LIVES, training=False), max_steps=100, max_episodes=1, update=UpdateSettings(reward_clip=1.0)
    )
    assert phase.scores.tolist() == [104.0] and phase.lengths.tolist() == [6]


def test_several_copies_share_the_budget():
    env = TableEnv([[1.0], [1.0], [1.0]], [[1], [2], [0]], [[False], [False], [True]], num_envs=3, starts=(0, 1, 2))
    phase = play(zeros, env, max_steps=11)
    assert phase.steps == 9  # a fourth step of three copies would pass the budget
    assert phase.scores.tolist() == [1.0, 2.0, 3.0, 1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_steps": 3}, "3 agent steps.*4 env"), ({"max_episodes": 0}, r"max_episodes \(0\) must be at least 1")],
)
def test_a_phase_without_room_for_a_step_or_a_game_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        play(zeros, corridor(num_envs=4), **{"max_steps": 100, **options})


def test_the_policy_hears_the_step_of_the_phase_and_the_age_of_the_game():
    heard = []

    def listen(obs, moment, age, legal):
        heard.append((moment, *age.tolist()))
        return np.zeros(1, int), np.zeros(1)

    shown = []
    game = [(0.0, ""), (0.0, "life"), (0.0, "over")]
    play(listen, ScriptedEnv(game, training=False), max_steps=5, on_step=lambda: shown.append(len(heard)))
    assert heard == [(0, 0), (1, 1), (2, 2), (3, 0), (4, 1)]  # a lost life is no new game
    assert shown == [0, 1, 2, 3, 4, 5]


# ------------------------------------------------------------------------------------------------- realised return


def slow_returns(rewards, known_ends, cuts, gamma):
    """For each state of one copy its return, or None where too much of the future was not seen."""
    returns = []
    for start in range(len(rewards)):
        total, weight, known = 0.0, 1.0, False
        for t in range(start, len(rewards)):
            total += weight * rewards[t]
            weight *= gamma
            if known_ends[t]:
                known = True
                break
            if cuts[t]:
                break
        returns.append(total if known or weight <= 0.01 * (1 + 1e-9) else None)
    return returns


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.3, 0.8]),
    st.sampled_from([0.0, 0.1, 0.4]),
    st.sampled_from([0.0, 0.15]),
)
def test_realised_return_equals_a_slow_oracle(seed, gamma, ends, cuts):
    rng = np.random.default_rng(seed)
    shape = (rng.integers(1, 60), 2)
    values, rewards = rng.normal(size=shape), rng.normal(0, 3, shape)
    known_ends = rng.random(shape) < ends
    cut = (rng.random(shape) < cuts) & ~known_ends
    found = [
        (values[t, copy], value)
        for copy in range(2)
        for t, value in enumerate(slow_returns(rewards[:, copy], known_ends[:, copy], cut[:, copy], gamma))
        if value is not None
    ]
    got = realised_return(values, rewards, known_ends, cut, gamma)
    if not found:
        assert got == (None, None)
    else:
        value, following = np.array(found).T
        assert got == pytest.approx((following.mean(), (value - following).mean()))


def test_realised_return_leaves_out_states_too_near_the_end_of_the_budget():
    gamma = 0.99
    horizon = math.ceil(math.log(0.01) / math.log(gamma))
    assert horizon == 459
    ones, never = np.ones((horizon, 1)), np.zeros((horizon, 1), bool)
    assert realised_return(ones[1:], ones[1:], never[1:], never[1:], gamma) == (None, None)
    seen, above = realised_return(7 * ones, ones, never, never, gamma)
    assert seen == pytest.approx((1 - gamma**horizon) / (1 - gamma)) and above == pytest.approx(7 - seen)
    # Known ends need no horizon, and a state next to one counts.
    assert realised_return(ones[:1], ones[:1], ~never[:1], never[:1], gamma) == (1.0, 0.0)
    # A cut is no end: what would have followed is not known.
    assert realised_return(ones[:1], ones[:1], never[:1], ~never[:1], gamma) == (None, None)


def test_overestimation_is_value_minus_what_was_obtained():
    """Two lives: 0, 7 clipped to 1, then -3 clipped to -1, each from its life's start on."""

    def tens(obs, moment, age, legal):
        return np.zeros(1, int), np.full(1, 10.0)

    phase = play(
        tens, ScriptedEnv(LIVES, training=False), max_steps=6, update=UpdateSettings(gamma=0.5, reward_clip=1.0)
    )
    returns = [0.5, 1.0, -0.5, -1.0, 0.5, 1.0]
    assert phase.realised_return == pytest.approx(np.mean(returns))
    assert phase.overestimation == pytest.approx(10 - np.mean(returns))
    raw = play(tens, ScriptedEnv(LIVES, training=False), max_steps=6, update=replace(RAW, gamma=0.5))
    assert raw.realised_return == pytest.approx(np.mean([3.5, 7.0, -1.5, -3.0, 50.0, 100.0]))


def test_a_short_phase_without_an_end_has_no_realised_return():
    phase = play(zeros, ScriptedEnv(NOTHING_ENDS, training=False), max_steps=20)
    assert phase.realised_return is None and phase.overestimation is None and phase.scores.tolist() == [20.0]
