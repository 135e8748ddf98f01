"""Gymnasium environments through the adapter, most of them made here to misbehave in one way each."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.wrappers import TimeLimit

from softbellman.envs.gym import GymEnv


class Line(gymnasium.Env):
    """A walk along 0, 1, 2, ...: the observation is the position, 100 times the episode added; reward the action.

    Never ends unless `length` is given. Writes into one and the same array at every step.
    """

    def __init__(self, length=None, *, actions=None, observations=None, emit=None, **attributes):
        self.length = length
        self.action_space = actions or Discrete(3)
        self.observation_space = observations or Box(-np.inf, np.inf, (2,), np.float64)
        self.emit = emit
        self.array = np.zeros(self.observation_space.shape or (), self.observation_space.dtype)
        self.episode, self.position, self.taken = -1, 0, []
        vars(self).update(attributes)

    def observe(self):
        if self.emit is not None:
            return self.emit(self)
        self.array[...] = 100 * self.episode + self.position
        return self.array

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.position = 0
        return self.observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.position += 1
        self.taken.append(action)
        return self.observe(), float(action), self.length is not None and self.position >= self.length, False, {}


class Noise(Line):
    """Draws its observations from the generator that `reset(seed=...)` sets."""

    def observe(self):
        return self.np_random.normal(size=2)


def zeros(env):
    return np.zeros(env.num_envs, int)


def steps_of(env, count):
    env.reset()
    return [env.step(zeros(env)) for _ in range(count)]


def test_it_is_a_host_env_of_the_shape_it_says():
    env = GymEnv("CartPole-v1", seed=0, num_envs=3)
    obs = env.reset()
    assert obs.shape == (3, 4)
    assert obs.dtype == env.obs_dtype == np.float32
    assert (env.num_actions, env.stack, env.frames_per_step) == (2, None, 1)
    step = env.step(np.array([0, 1, 0]))
    assert step.reward.tolist() == [1.0, 1.0, 1.0]
    assert step.reward.dtype == np.float32
    assert step.terminated.dtype == step.truncated.dtype == step.game_ended.dtype == bool
    env.close()


def test_l1_the_successor_of_a_truncated_step_is_not_the_next_episodes_first_observation():
    steps = steps_of(GymEnv(lambda: TimeLimit(Line(), 3), seed=0), 4)
    cut = steps[2]
    assert (cut.next_obs[0, 0], cut.obs[0, 0]) == (3.0, 100.0)
    assert (cut.terminated[0], cut.truncated[0], cut.game_ended[0]) == (False, True, True)
    assert steps[3].next_obs[0, 0] == 101.0


def test_l2_an_end_of_the_task_is_not_a_time_limit():
    end = steps_of(GymEnv(lambda: Line(3), seed=0), 3)[-1]
    assert (end.terminated[0], end.truncated[0], end.game_ended[0]) == (True, False, True)
    both = steps_of(GymEnv(lambda: TimeLimit(Line(3), 3), seed=0), 3)[-1]
    assert (both.terminated[0], both.truncated[0]) == (True, True)


def test_of_two_time_limits_the_one_that_cuts_is_told():
    env = GymEnv(lambda: TimeLimit(gymnasium.make("CartPole-v1", max_episode_steps=5), 1000), seed=0)
    assert env.describe()["max_episode_steps"] == 5
    assert [bool(step.truncated[0]) for step in steps_of(env, 5)] == [False] * 4 + [True]


def test_the_time_limit_given_replaces_the_registered_one():
    assert GymEnv("CartPole-v1", seed=0).describe()["max_episode_steps"] == 500
    env = GymEnv("CartPole-v1", seed=0, options={"max_episode_steps": 5})
    assert env.describe()["max_episode_steps"] == 5
    assert [bool(step.truncated[0]) for step in steps_of(env, 5)] == [False] * 4 + [True]


@pytest.mark.parametrize("num_envs", [1, 3])
def test_l13_three_episodes_of_four_steps_are_twelve_transitions_and_none_crosses_a_border(num_envs):
    env = GymEnv(lambda: Line(4), seed=0, num_envs=num_envs)
    obs, transitions = env.reset(), []
    for _ in range(12):
        step = env.step(zeros(env))
        transitions.append((obs[:, 0].copy(), step.next_obs[:, 0].copy(), step.terminated.copy()))
        obs = step.obs
    expected = [(100 * episode + t, 100 * episode + t + 1, t == 3) for episode in range(3) for t in range(4)]
    for copy in range(num_envs):
        assert [(before[copy], after[copy], ended[copy]) for before, after, ended in transitions] == expected
    assert all(len(one.unwrapped.taken) == 12 for one in env._envs)


def test_l13_the_next_step_autoreset_of_a_vector_environment_is_what_is_avoided():
    """The same line in Gymnasium's own vector: of twelve steps, two ignore their action."""
    vector = gymnasium.vector.SyncVectorEnv([lambda: Line(4)])
    vector.reset(seed=0)
    for _ in range(12):
        vector.step(np.zeros(1, int))
    assert len(vector.envs[0].taken) == 10
    with pytest.raises(ValueError, match="not a vector"):
        GymEnv(lambda: vector, seed=0)


def test_l24_an_environment_that_writes_into_one_array_does_no_harm():
    env = GymEnv(Line, seed=0)
    first = env.reset()
    steps = [env.step(zeros(env)) for _ in range(3)]
    assert [first[0, 0], *(step.next_obs[0, 0] for step in steps)] == [0.0, 1.0, 2.0, 3.0]
    steps[-1].obs[:] = steps[-1].next_obs[:] = -1
    assert env.step(zeros(env)).next_obs[0, 0] == 4.0
    actions = np.array([2])
    env.step(actions)
    assert actions.tolist() == [2]


def test_l5_the_same_seed_repeats_and_every_other_seed_copy_stream_and_episode_differs():
    def firsts(seed, **options):
        env = GymEnv(lambda: Noise(2), seed=seed, num_envs=2, **options)
        return np.concatenate([env.reset()] + [env.step(zeros(env)).obs for _ in range(4)])[:, 0].tolist()

    assert firsts(0) == firsts(0)
    everything = firsts(0) + firsts(1) + firsts(2) + firsts(0, training=False)
    assert len(set(everything)) == len(everything) == 40
    alone = GymEnv(lambda: Noise(2), seed=0)
    assert alone.reset()[0, 0] == firsts(0)[0]


def test_l5_the_wrapped_environment_starts_where_the_bare_one_does():
    env = GymEnv("CartPole-v1", seed=42)
    obs = env.reset()
    bare, _ = gymnasium.make("CartPole-v1").reset(seed=env.tape[0].seed)
    np.testing.assert_array_equal(obs[0], bare.astype(np.float32))


@pytest.mark.parametrize("attribute", ["_frameskip", "frameskip", "frame_skip"])
def test_l6_the_frames_that_an_environment_skips_by_itself_are_counted(attribute):
    def make(own):
        return GymEnv(lambda: Line(**{attribute: own}), seed=0)

    assert make(1).frames_per_step == 1
    assert make(4).frames_per_step == make(4).describe()["frames_per_step"] == 4
    with pytest.raises(ValueError, match=r"random number of frames, \(2, 5\).*frameskip=1"):
        make((2, 5))


def test_l6_an_ale_environment_by_its_gymnasium_id():
    pytest.importorskip("ale_py")
    name = "ale_py:ALE/Breakout-v5"
    assert GymEnv(name, seed=0, options={"frameskip": 1}).frames_per_step == 1
    assert GymEnv(name, seed=0).frames_per_step == 4
    with pytest.raises(ValueError, match="use atari/<game>"):
        GymEnv("ALE/Breakout-v5", seed=0)


@pytest.mark.parametrize("space", [Discrete(2, start=1), Discrete(3, start=-1)], ids=str)
def test_l45_actions_reach_the_environment_in_its_own_numbering(space):
    env = GymEnv(lambda: Line(actions=space), seed=0)
    env.reset()
    assert env.num_actions == space.n
    for action in range(env.num_actions):
        env.step(np.array([action]))
    assert env._envs[0].unwrapped.taken == list(range(int(space.start), int(space.start + space.n)))
    for wrong in (-1, env.num_actions):
        with pytest.raises(ValueError, match=rf"must lie in 0 \.\. {env.num_actions - 1}"):
            env.step(np.array([wrong]))


@pytest.mark.parametrize(
    "space", [Box(-1, 1, (2,)), MultiDiscrete([2, 3]), Tuple([Discrete(2)])], ids=lambda space: type(space).__name__
)
def test_l45_other_action_spaces_are_refused_with_the_space(space):
    with pytest.raises(ValueError, match="TransformAction") as error:
        GymEnv(lambda: Line(actions=space), seed=0)
    assert str(space) in str(error.value)


@pytest.mark.parametrize("space", [Dict(a=Box(0, 1)), Tuple([Box(0, 1)]), Discrete(4)], ids=lambda s: type(s).__name__)
def test_other_observation_spaces_are_refused_with_the_space(space):
    with pytest.raises(ValueError, match="FlattenObservation") as error:
        GymEnv(lambda: Line(observations=space, array=None), seed=0)
    assert str(space) in str(error.value)


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda env: np.array([np.nan, 0.0]), "not finite"),
        (lambda env: np.array([1e300, 0.0]), "not finite in float32"),
        (lambda env: np.zeros(3), r"shape \(3,\), its space says \(2,\)"),
    ],
    ids=["nan", "overflow", "shape"],
)
def test_an_observation_that_is_not_what_was_declared_is_refused(emit, message):
    with pytest.raises(ValueError, match=message):
        GymEnv(lambda: Line(emit=emit), seed=0).reset()


def test_a_reward_that_is_not_finite_is_refused():
    class Broken(Line):
        def step(self, action):
            return self.observe(), np.nan, False, False, {}

    env = GymEnv(Broken, seed=0)
    env.reset()
    with pytest.raises(ValueError, match="reward nan"):
        env.step(zeros(env))


def test_l39_pixels_stay_uint8_and_come_channels_first_whatever_the_environments_layout():
    image = np.random.default_rng(0).integers(256, size=(12, 10, 3)).astype(np.uint8)

    def first(emitted):
        space = Box(0, 255, emitted.shape, np.uint8)
        env = GymEnv(lambda: Line(observations=space, emit=lambda _: emitted), seed=0)
        obs = env.reset()
        assert obs.shape[1:] == env.obs_shape
        return obs[0]

    last, channels_first = first(image), first(np.moveaxis(image, -1, 0))
    assert last.shape == (3, 12, 10)
    assert last.dtype == np.uint8
    np.testing.assert_array_equal(last, channels_first)
    assert first(np.moveaxis(np.stack([image[..., 0]] * 4), 0, 0)).shape == (4, 12, 10)  # a stack stays a stack
    scaled = GymEnv(lambda: Line(observations=Box(0, 1, (12, 10, 3)), emit=lambda _: image / 255.0), seed=0).reset()
    assert scaled.shape == (1, 12, 10, 3)
    assert scaled.max() <= 1.0


def test_replay_by_tape_goes_on_bit_for_bit():
    rng = np.random.default_rng(0)
    env, restored = (GymEnv("CartPole-v1", seed=3, num_envs=3) for _ in range(2))
    env.reset()
    for _ in range(70):
        step = env.step(rng.integers(2, size=3))
    np.testing.assert_array_equal(restored.restore(env.tape), step.obs)
    for _ in range(100):
        actions = rng.integers(2, size=3)
        for one, two in zip(env.step(actions), restored.step(actions), strict=True):
            np.testing.assert_array_equal(one, two)


def test_a_tape_that_cannot_be_played_again_is_refused():
    env = GymEnv(lambda: Noise(5), seed=0)
    env.reset()
    env.step(zeros(env))
    with pytest.raises(ValueError, match="another run seed"):
        GymEnv(lambda: Noise(5), seed=1).restore(env.tape)
    unseeded = GymEnv(lambda: Line(emit=lambda _: np.random.default_rng().normal(size=2)), seed=0)
    unseeded.reset()
    with pytest.raises(ValueError, match="does not fix"):
        GymEnv(lambda: Line(emit=lambda _: np.random.default_rng().normal(size=2)), seed=0).restore(unseeded.tape)


def test_after_a_tape_that_fails_no_game_is_played_twice():
    env, other = (
        GymEnv(lambda: Line(emit=lambda _: np.random.default_rng().normal(size=2)), seed=0, num_envs=3) for _ in "ab"
    )
    for _ in range(4):
        env.reset()
    with pytest.raises(ValueError, match="does not fix"):
        other.restore(env.tape)
    other.reset()
    assert [one.game for one in other.tape] == [one.game + 1 for one in env.tape]


def test_an_unknown_id_lists_the_nearest():
    with pytest.raises(ValueError, match=r"unknown Gymnasium environment 'cartpole-1'; did you mean CartPole-v1"):
        GymEnv("cartpole-1", seed=0)
    with pytest.raises(ValueError, match=r"; one that your module registers is gym/my_module:Grid-v0"):
        GymEnv("Grid-v0", seed=0)
    with pytest.raises(ValueError, match="No module named 'no_such_module'"):
        GymEnv("no_such_module:Game-v0", seed=0)


def test_options_are_described_in_what_json_can_hold():
    class Map:
        pass

    kwargs = {
        "sides": (3, np.int64(4)),
        "holes": np.eye(2),
        "kind": np.uint8,
        "draw": np.zeros,
        "map": Map(),
        "at": {1: None},
    }
    gymnasium.register("Options-v0", entry_point=lambda **_: Line(), kwargs=kwargs)
    try:
        options = GymEnv("Options-v0", seed=0).describe()["options"]
    finally:
        del gymnasium.registry["Options-v0"]
    assert json.loads(json.dumps(options)) == options
    assert (options["sides"], options["holes"], options["at"]) == ([3, 4], [[1, 0], [0, 1]], {"1": None})
    assert (options["kind"], options["draw"]) == ("numpy.uint8", "numpy.zeros")
    assert options["map"].endswith("<locals>.Map")


def test_module_colon_id_imports_the_module(tmp_path, monkeypatch):
    (tmp_path / "registers_a_line.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('OneStep-v0', lambda **options: gymnasium.make('CartPole-v1', **options).unwrapped)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    env = GymEnv("registers_a_line:OneStep-v0", seed=0)
    assert env.reset().shape == (1, 4)
    gymnasium.registry.pop("OneStep-v0")
