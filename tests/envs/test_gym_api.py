"""Environments that break the API of Gymnasium, each in one way: at once, or in the middle of training."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from softbellman.envs.gym import GymEnv
from softbellman.envs.gym_api import EnvironmentFault, checked_throughout


class Env(gymnasium.Env):
    """Ends after five steps; from step `wrong_from` on it does what a test makes of `give`."""

    observation_space = Box(0, 1, (3,), np.float32)
    action_space = Discrete(2)
    wrong_from = 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.time += 1
        right = (np.zeros(3, np.float32), 1.0, self.time >= 5, False, {})
        return right if self.time < self.wrong_from else self.give(*right)

    def give(self, *right):
        return right


def made(**members):
    return type("Mine", (Env,), members)


def limited(limit, **members):
    """The environment under Gymnasium's own time limit, if there is one."""
    make = made(**members)
    return GymEnv(lambda: gymnasium.wrappers.TimeLimit(make(), limit) if limit else make(), seed=0, name="Mine")


def gives(give):
    return {"give": lambda self, *right: give(*right)}


WRONG_STEPS = {
    "of the old Gym": (lambda o, r, t, c, i: (o, r, t, i), "step must return 5 values.*returned 4 values: ndarray of"),
    "nothing": (lambda *_: None, "step must return 5 values.*returned None"),
    "an array": (lambda o, *_: np.zeros(5), r"step must return 5 values.*returned ndarray of shape \(5,\)"),
    "no reward": (lambda o, r, t, c, i: (o, None, t, c, i), "a reward must be a real number, and is None"),
    "a text": (lambda o, r, t, c, i: (o, "1", t, c, i), "a reward must be a real number, and is str"),
    "a list": (lambda o, r, t, c, i: (o, [1.0], t, c, i), "a reward must be a real number, and is list"),
    "a complex": (lambda o, r, t, c, i: (o, 1j, t, c, i), "a reward must be a real number, and is complex"),
    "one element": (lambda o, r, t, c, i: (o, np.ones(1), t, c, i), r"ndarray of shape \(1,\); give reward.item\(\)"),
    "two rewards": (lambda o, r, t, c, i: (o, np.ones(2), t, c, i), r"real number, and is ndarray of shape \(2,\)$"),
    "too large": (lambda o, r, t, c, i: (o, 10**400, t, c, i), "a reward must be a real number, and is int"),
    "nan": (lambda o, r, t, c, i: (o, np.nan, t, c, i), "gave the reward nan, which is not finite in float32"),
    "overflow": (lambda o, r, t, c, i: (o, 1e300, t, c, i), "gave the reward 1e[+]300, which is not finite in float32"),
    "no end": (lambda o, r, t, c, i: (o, r, None, c, i), "terminated must be True or False, and is None"),
    "end in words": (lambda o, r, t, c, i: (o, r, t, "no", i), "truncated must be True or False, and is str"),
    "an end of 2": (lambda o, r, t, c, i: (o, r, 2, c, i), "terminated must be True or False, and is int"),
    "ends in arrays": (lambda o, r, t, c, i: (o, r, np.array([t]), c, i), r"give terminated.item\(\)"),
    "no info": (lambda o, r, t, c, i: (o, r, t, c, None), "the info that step returns must be a dict, and is None"),
    "no observation": (lambda o, r, t, c, i: (None, r, t, c, i), "an observation of dtype object"),
    "another shape": (lambda o, r, t, c, i: (o[:2], r, t, c, i), r"shape \(2,\), its space says \(3,\)"),
    "a fault": (lambda *_: [][0], r"fails in step: IndexError: list index out .* \(.*test_gym_api.py, line \d+\)$"),
}  # fmt: skip


@pytest.mark.parametrize("limit", [None, 7])
@pytest.mark.parametrize("wrong", WRONG_STEPS)
def test_a_step_is_held_against_the_api_in_a_rehearsal_and_later(wrong, limit):
    """The same words with Gymnasium's own time limit, which takes a step apart, around the environment."""
    give, message = WRONG_STEPS[wrong]
    with pytest.raises(ValueError, match=message) as at_once:
        limited(limit, **gives(give)).rehearse()
    later = limited(limit, **gives(give), wrong_from=3)
    assert later.rehearse() == []
    later.reset()
    for _ in range(2):
        later.step(np.zeros(1, int))
    with pytest.raises(ValueError, match=message) as in_training:
        later.step(np.zeros(1, int))
    assert str(at_once.value) == str(in_training.value) and "\n" not in str(at_once.value)
    assert str(at_once.value).startswith("Mine ")


def old_reset(self):
    self.time = 0
    return np.zeros(3, np.float32)


def without_info(self, *, seed=None, options=None):
    return old_reset(self)


def without_options(self, *, seed=None):
    return old_reset(self), {}


def raising(self, *, seed=None, options=None):
    raise RuntimeError("no\ndisplay")


@pytest.mark.parametrize(
    ("reset", "message"),
    [
        (old_reset, r"breaks the API of Gymnasium: reset must take seed and options by name, and is reset\(\)"),
        (without_options, r"reset must take seed and options by name, and is reset\(\*, seed=None\)"),
        (without_info, r"reset must return 2 values, observation, info, and returned ndarray of shape \(3,\)"),
        (lambda self, seed=None, options=None: [0.0, 0.0], "the info that reset returns must be a dict, and is float"),
        (raising, r"fails in reset: RuntimeError: no display \(.*test_gym_api.py, line \d+\)"),
    ],
    ids=["old", "without options", "without info", "two numbers", "raising"],
)
def test_a_reset_is_held_against_the_api(reset, message):
    for limit in (None, 7):
        with pytest.raises(EnvironmentFault, match=message):
            limited(limit, reset=reset).rehearse()


def test_a_reset_may_take_its_arguments_in_any_way_that_has_their_names():
    def by_position(self, seed=None, options=None):
        return Env.reset(self, seed=seed, options=options)

    def any_names(self, **arguments):
        return Env.reset(self, **arguments)

    for reset in (by_position, any_names):
        assert GymEnv(made(reset=reset), seed=0).rehearse() == []


@pytest.mark.parametrize("reward", [1, True, np.float32(1), np.int64(1), np.bool_(True), np.array(1.0), np.float16(1)])
@pytest.mark.parametrize("end", [True, np.bool_(True), 1, np.array(True), np.int8(1)])
def test_numbers_and_truths_of_any_type_are_taken(reward, end):
    env = GymEnv(made(**gives(lambda o, r, t, c, i: (o, reward, end, c, i))), seed=0)
    assert env.rehearse() == []
    env.reset()
    step = env.step(np.zeros(1, int))
    assert (step.reward.tolist(), step.terminated.tolist(), step.reward.dtype) == ([1.0], [True], np.float32)


def test_floats_out_of_their_bounds_are_told():
    env = made(**gives(lambda o, r, t, c, i: (o + 7, r, t, c, i)))
    assert GymEnv(env, seed=0).rehearse() == [
        "Mine gave 7 at [0], where its space says 0 to 1; floats enter as they are"
    ]


def test_an_environment_that_fails_to_start_names_the_place():
    def fail(self):
        raise KeyError("asset")

    for environment in (made(__init__=fail), lambda: made(__init__=fail)()):
        with pytest.raises(
            EnvironmentFault, match=r"cannot be made: KeyError: 'asset' \(.*test_gym_api.py, line \d+\)"
        ):
            GymEnv(environment, seed=0)


@pytest.mark.parametrize("missing", ["observation_space", "action_space"])
def test_a_space_that_is_missing_is_refused(missing):
    methods = {name: vars(Env)[name] for name in ("reset", "step", "give")}
    spaces = {"observation_space": Env.observation_space, "action_space": Env.action_space}
    del spaces[missing]
    with pytest.raises(ValueError, match=f"the {missing.replace('_', ' ')} None"):
        GymEnv(type("Spaceless", (gymnasium.Env,), methods | spaces), seed=0)


def test_a_picture_that_cannot_be_drawn_names_the_place():
    def render(self):
        return self.no_such_thing

    env = GymEnv(made(render=render, render_mode="rgb_array"), seed=0, record=True)
    with pytest.raises(EnvironmentFault, match=r"cannot be filmed: AttributeError: .*no_such_thing.*test_gym_api.py"):
        env.reset()


def test_wrappers_of_ones_own_are_checked_too_and_what_is_right_is_passed_on_unchanged():
    class Sloppy(gymnasium.RewardWrapper):
        def reward(self, reward):
            return None

    with pytest.raises(EnvironmentFault, match="a reward must be a real number, and is None"):
        GymEnv(lambda: gymnasium.wrappers.TimeLimit(Sloppy(Env()), 9), seed=0).rehearse()
    with pytest.raises(EnvironmentFault, match="a reward must be a real number, and is None"):
        GymEnv(lambda: Sloppy(gymnasium.wrappers.TimeLimit(Env(), 9)), seed=0).rehearse()
    given = (np.zeros(3), np.float32(1), np.bool_(False), False, {"a": 1})
    env = checked_throughout(made(**gives(lambda *_: given))(), "it")
    env.reset(seed=0)
    assert env.step(0) is given


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import sys\nsys.exit(3)\n", r"cannot be made: SystemExit: 3 \(.*leaves\.py, line 2\)$"),
        ("x = 1\nx = (\n", r"cannot be made: SyntaxError: '\(' was never closed \(.*leaves\.py, line 2\)$"),
    ],
)
def test_a_module_that_does_not_load_is_named_with_its_line(source, message, tmp_path, monkeypatch):
    (tmp_path / "leaves.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvironmentFault, match=message):
        GymEnv("leaves:Leaves-v0", seed=0)
