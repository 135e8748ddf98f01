"""Masks of legal actions of Gymnasium environments: understood, held against the rules, never broken."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from softbellman.envs.gym import GymEnv, rules
from softbellman.envs.gym_api import EnvironmentFault


class Turns(gymnasium.Env):
    """Of three actions the one whose number is that of the step is illegal, and raises; ends after five steps."""

    observation_space = Box(0, 1, (3,), np.float32)
    action_space = Discrete(3)

    def mask(self):
        return np.int8([self.time % 3 != action for action in range(3)])

    def info(self, end):
        return {"action_mask": np.zeros(3, np.int8) if end else self.mask()}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = int(self.np_random.integers(3))
        self.start = self.time
        return np.zeros(3, np.float32), self.info(False)

    def step(self, action):
        if action - self.action_space.start == self.time % 3:
            raise ValueError(f"illegal action {action}")
        self.time += 1
        end = self.time == self.start + 5
        return np.zeros(3, np.float32), 1.0, end, False, self.info(end)


def made(**members):
    return type("Mine", (Turns,), members)


def random_play(env, steps, seed=0):
    rng, env_steps = np.random.default_rng(seed), []
    for _ in range(steps):
        actions = np.array([rng.choice(np.flatnonzero(one)) for one in env.legal])
        env_steps.append(env.step(actions))
    return env_steps


def wrapped(env):
    return gymnasium.wrappers.TimeLimit(gymnasium.wrappers.RecordEpisodeStatistics(env), 3)


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("make", [lambda env: env, wrapped, lambda env: gymnasium.wrappers.OrderEnforcing(env)])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_masks_are_of_what_is_acted_on_and_of_the_true_successor(make, start, num_envs):
    cls = made(action_space=Discrete(3, start=start))
    env = GymEnv(lambda: make(cls()), seed=0, num_envs=num_envs)
    assert env.legal is None  # before the first reset
    env.reset()
    assert env.rehearse() == []
    env.reset()
    for step in random_play(env, 60):
        assert step.legal.shape == step.next_legal.shape == (num_envs, 3) and step.legal.dtype == bool
        assert (step.legal.sum(axis=1) == 2).all()
        assert step.next_legal[step.terminated].all() and (step.next_legal[~step.terminated].sum(axis=1) == 2).all()
        going = ~step.game_ended
        assert (step.legal == step.next_legal)[going].all()
    assert (step.legal == env.legal).all()
    before = env.legal
    env.step(env.legal.argmax(axis=1))
    assert (before == step.legal).all() and before is not env.legal  # a mask that was given stays as it was


def test_a_cut_keeps_the_mask_of_the_true_successor_apart():
    env = GymEnv(lambda: gymnasium.wrappers.TimeLimit(made()(), 2), seed=0)
    env.reset()
    cut = [step for step in random_play(env, 40) if step.truncated.any()]
    assert len(cut) == 20 and any((step.legal != step.next_legal).any() for step in cut)
    assert all(step.next_legal.sum() == 2 for step in cut)


def test_an_illegal_action_is_not_handed_on():
    env = GymEnv(made(), seed=0, num_envs=2)
    env.reset()
    with pytest.raises(ValueError, match=r"actions \[.*\] must be legal, and the masks of legal ones are \[\["):
        env.step(env.legal.argmin(axis=1))


def test_a_game_played_again_has_its_mask_again():
    env, again = (GymEnv(made(), seed=4, num_envs=2) for _ in range(2))
    env.reset()
    random_play(env, 13)
    again.restore(env.tape)
    assert (again.legal == env.legal).all()


def with_mask(mask, later=None):
    """An environment that gives a mask at its reset and another one with its steps."""

    def info(self, end):
        given = mask if later is None or self.time == self.start else later
        return {} if isinstance(given, str) and given == "none" else {"action_mask": given}

    return made(info=info, step=lambda self, action: _any_step(self))


def _any_step(env):
    env.time += 1
    return np.zeros(3, np.float32), 1.0, False, False, env.info(False)


WRONG = {
    "too long": (np.ones(4, bool), r"must be an array of 3 bools.*and is bool of shape \(4,\)"),
    "a batch of one": (np.ones((1, 3), bool), r"and is bool of shape \(1, 3\)"),
    "a number": (1, r"and is int64 of shape \(\)"),
    "floats": (np.ones(3), r"and is float64 of shape \(3,\)"),
    "a word": ("all", r"one for each action, and is "),
    "an object": ([None, 1, 1], "and is list"),
    "other numbers": (np.int8([0, 1, 2]), r"and is \[0, 1, 2\]"),
    "negative": (np.int8([0, 1, -1]), r"and is \[0, 1, -1\]"),
    "nothing legal": (np.zeros(3, np.int8), "allows no action in an episode that goes on; set terminated"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_mask_that_is_none_is_refused_by_the_rehearsal_and_later(wrong):
    mask, message = WRONG[wrong]
    with pytest.raises(EnvironmentFault, match=message) as at_once:
        GymEnv(with_mask(mask), seed=0).rehearse()
    assert str(at_once.value).startswith('Mine: info["action_mask"] ') and "\n" not in str(at_once.value)
    env = GymEnv(with_mask(np.ones(3, bool), mask), seed=0)
    env.reset()
    with pytest.raises(EnvironmentFault, match=message):
        env.step(np.zeros(1, int))


@pytest.mark.parametrize("mask", [[1, 0, 1], (True, False, True), np.uint8([1, 0, 1]), np.int64([1, 0, 1])])
def test_bools_and_integers_of_any_kind_are_taken(mask):
    env = GymEnv(with_mask(mask), seed=0)
    assert env.rehearse() == []
    env.reset()
    assert env.legal.tolist() == [[True, False, True]]


@pytest.mark.parametrize(
    ("first", "later", "message"),
    [
        (np.ones(3, bool), "none", 'Mine lacks info."action_mask". now and gave it before; give it with every reset'),
        ("none", np.ones(3, bool), 'Mine gives info."action_mask". now and gave none before; give it with every'),
    ],
)
def test_a_mask_that_is_there_only_sometimes_is_refused(first, later, message):
    with pytest.raises(EnvironmentFault, match=message):
        GymEnv(with_mask(first, later), seed=0).rehearse()


def test_copies_are_alike_in_having_masks():
    classes = iter([made(), with_mask("none"), made(), made()])
    env = GymEnv(lambda: next(classes)(), seed=0, num_envs=2)
    with pytest.raises(EnvironmentFault, match="lacks"):
        env.reset()


def test_a_mask_may_lack_where_an_episode_has_terminated():
    def info(self, end):
        return {} if end else {"action_mask": self.mask()}

    env = GymEnv(made(info=info), seed=0)
    env.reset()
    assert any(step.terminated.any() for step in random_play(env, 20))


def test_a_wrapper_that_changes_the_actions_must_change_the_mask():
    class TwoOfThree(gymnasium.ActionWrapper):
        def __init__(self, env):
            super().__init__(env)
            self.action_space = Discrete(2)

        def action(self, action):
            return action

    with pytest.raises(EnvironmentFault, match=r"an array of 2 bools, .* and is int8 of shape \(3,\)"):
        GymEnv(lambda: TwoOfThree(Turns()), seed=0, name="Mine").rehearse()


def test_the_plan_says_that_masks_are_heeded():
    env, plain = GymEnv(made(), seed=0), GymEnv(with_mask("none"), seed=0)
    for one in (env, plain):
        one.rehearse()
    assert 'the legal ones by info["action_mask"]' in rules(env.describe())
    assert "action_mask" not in plain.describe() and "legal" not in rules(plain.describe())
