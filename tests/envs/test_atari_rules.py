"""The rules around the emulator, on scripted games: lives, scores, time limits, arrays, arguments."""

import dataclasses
import itertools
import types

import numpy as np
import pytest

from softbellman.envs.atari import MACHADO_ATARI, PAPER_ATARI, AtariProtocol
from softbellman.envs.atari import env as atari
from softbellman.envs.atari.env import AtariEnv

ale_py = pytest.importorskip("ale_py")
pytest.importorskip("cv2")


class ScriptedEmulators:
    """Stands in for ale-py's vector environment: every game runs through one script of (reward, lives, over).

    A frame is constant, its grey level the step of its game. The frames are one array, written again at every step.
    """

    def __init__(self, script, lives, num_envs):
        self.script, self.first_lives = script, lives
        self.steps = np.zeros(num_envs, int)
        self.over = np.zeros(num_envs, bool)
        self.games = np.zeros(num_envs, int)
        self.frames = np.zeros((num_envs, 1, 210, 160), np.uint8)
        self.seeds = []
        self.ale = types.SimpleNamespace(get_action_set=lambda: [ale_py.Action.NOOP, ale_py.Action.FIRE])

    def _answer(self, lives):
        self.frames[:] = (1 + self.steps)[:, None, None, None]
        return {"lives": lives}

    def reset(self, *, seed, options):
        which = options["reset_mask"]
        self.seeds.append((which.copy(), seed.copy()))
        self.steps[which], self.over[which] = 0, False
        self.games[which] += 1
        return self.frames, self._answer(np.full(len(which), self.first_lives))

    def step(self, actions):
        assert not self.over.any(), "a step of a game that is over would be an automatic reset"
        reward, lives, over = (np.array(column) for column in zip(*(self.script(t) for t in self.steps), strict=True))
        self.steps += 1
        self.over = over.astype(bool)
        info = self._answer(lives)
        return self.frames, reward.astype(np.int32), self.over, np.zeros_like(self.over), info

    def close(self):
        pass


@pytest.fixture
def play(monkeypatch):
    """Returns a function that makes an `AtariEnv` over a scripted game."""

    def make(script, *, lives=3, num_envs=1, **options):
        rule = script if callable(script) else script.__getitem__
        monkeypatch.setattr(
            atari, "_emulators", lambda game, protocol, width, threads, *, colour: ScriptedEmulators(rule, lives, width)
        )
        return AtariEnv("breakout", seed=0, num_envs=num_envs, **options)

    return make


def run(env, steps):
    env.reset()
    return [env.step(np.zeros(env.num_envs, int)) for _ in range(steps)]


def flags(steps, name):
    return [bool(getattr(step, name)[0]) for step in steps]


THREE_LIVES = [(7, 2, False), (-3, 1, False), (100, 0, True)]


def test_l8_a_score_is_the_raw_sum_of_a_whole_game_and_a_life_is_only_the_learners_end(play):
    steps = run(play(THREE_LIVES), 3)
    assert [float(step.reward[0]) for step in steps] == [7.0, -3.0, 100.0]  # raw: the learner clips to 1, -1, 1
    assert flags(steps, "terminated") == [True, True, True]
    assert flags(steps, "game_ended") == [False, False, True]
    assert sum(float(step.reward[0]) for step in steps) == 104.0


@pytest.mark.parametrize("options", [{"training": False}, {"protocol": MACHADO_ATARI}], ids=["test", "machado"])
def test_l8_l29_lives_end_nothing_in_a_test_or_where_the_protocol_says_so(play, options):
    steps = run(play(THREE_LIVES, **options), 3)
    assert flags(steps, "terminated") == flags(steps, "game_ended") == [False, False, True]
    assert not any(flags(steps, "truncated"))
    assert (steps[1].obs[0, 1:, 0, 0] == [1, 2, 3]).all()  # history goes on over a lost life


def test_a_test_says_where_training_would_have_seen_an_end(play):
    """So that a return measured in a test stops where the learner's does."""
    assert flags(run(play(THREE_LIVES, training=False), 3), "training_end") == [True, True, True]
    assert flags(run(play(THREE_LIVES, protocol=MACHADO_ATARI), 3), "training_end") == [False, False, True]


def test_l29_a_game_that_ends_right_after_a_lost_life_is_counted_once(play):
    env = play([(0, 2, False), (0, 0, True)])
    steps = run(env, 4)
    assert flags(steps, "game_ended") == [False, True, False, True]
    assert env.tape[0].game == 2  # two games are over, the third is under way


def test_a_life_won_and_lost_again_is_no_end(play):
    """As in the authors' code, which compares with the lives at the start of the learning episode."""
    lives = [4, 3, 3, 2, 3, 2, 1]
    steps = run(play(lambda t: (0, lives[t], False)), 7)
    assert flags(steps, "terminated") == [False, False, False, True, False, False, True]


def test_copies_count_their_lives_apart(play):
    """The first copy wins a life on the very step on which the second loses one, and loses it again."""
    lives = [4, 3, 2, 2, 2]
    env = play(lambda t: (0, lives[t], False), num_envs=2)
    env.reset()
    env._emulators[0].steps[1] = 2
    ends = [env.step(np.zeros(2, int)).terminated.tolist() for _ in range(3)]
    assert ends == [[False, True], [False, False], [True, False]]


def test_a_game_without_lives_ends_when_the_emulator_says_so(play):
    steps = run(play(lambda t: (0, 0, t == 4), lives=0), 5)
    assert flags(steps, "terminated") == [False] * 4 + [True]


def test_l29_explicit_reset_starts_a_new_game_with_all_lives(play):
    env = play(THREE_LIVES)
    run(env, 2)
    obs = env.reset()
    assert env.tape[0].game == 1
    assert not obs[0, :3].any()
    assert flags([env.step(np.array([0]))], "terminated") == [True]  # three lives again, and one of them lost


@pytest.mark.parametrize(("limit", "skip", "steps"), [(400, 4, 100), (400, 2, 200), (401, 4, 101)])
def test_l29_the_time_limit_counts_frames_and_truncates(play, limit, skip, steps):
    protocol = dataclasses.replace(PAPER_ATARI, max_frames_per_game=limit, frame_skip=skip)
    env = play(lambda t: (1, 3, False), protocol=protocol)
    played = run(env, steps + 1)
    assert flags(played, "truncated") == flags(played, "game_ended") == [False] * (steps - 1) + [True, False]
    assert not any(flags(played, "terminated"))
    cut = played[steps - 1]
    assert cut.next_obs[0, -1, 0, 0] == steps + 1  # the true successor
    assert cut.obs[0, -1, 0, 0] == 1  # the next game
    assert not cut.obs[0, :3].any()


def test_l29_machado_cuts_after_half_an_hour_of_play(play):
    assert play(THREE_LIVES, protocol=MACHADO_ATARI)._max_steps == 27_000
    assert play(THREE_LIVES, protocol=dataclasses.replace(MACHADO_ATARI, frame_skip=2))._max_steps == 54_000


def test_l2_an_end_on_the_very_step_of_the_time_limit_is_an_end(play):
    limit = dataclasses.replace(PAPER_ATARI, max_frames_per_game=12)
    over = run(play(THREE_LIVES, protocol=limit), 3)[-1]
    assert (over.terminated[0], over.truncated[0], over.game_ended[0]) == (True, False, True)
    life = run(play(lambda t: (0, 3 - (t == 2), False), protocol=limit), 3)[-1]
    assert (life.terminated[0], life.truncated[0], life.game_ended[0]) == (True, True, True)


def test_l13_every_game_starts_by_a_seeded_reset_of_its_copy_alone(play):
    env = play(lambda t: (0, 0, t == 5), num_envs=2)
    steps = run(env, 3)
    env._emulators[0].steps[1] = 0  # the second game now runs late
    steps += [env.step(np.zeros(2, int)) for _ in range(6)]
    masks = [mask.tolist() for mask, _ in env._emulators[0].seeds]
    assert masks == [[True, True], [True, False], [False, True]]
    seeds = [seed for _, given in env._emulators[0].seeds for seed in given.tolist()]
    assert len(set(seeds)) == len(seeds) == 4
    for step, following in itertools.pairwise(steps):
        np.testing.assert_array_equal(following.next_obs[:, :-1], step.obs[:, 1:])


def test_l24_steps_keep_their_values_and_nobody_writes_into_anothers_array(play):
    env = play(lambda t: (0, 3, False))
    obs = env.reset()
    actions = np.array([1])
    first = env.step(actions)
    arrays = [obs, *(array for array in first if array is not None)]
    kept = [array.copy() for array in arrays]
    second = env.step(actions)
    for array, copy in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert first.next_obs[0, -1, 0, 0] == 2
    assert second.next_obs[0, -1, 0, 0] == 3
    second.obs[:] = second.next_obs[:] = 99
    assert env.step(actions).next_obs.max() == 4
    assert actions.tolist() == [1]


def test_l7_the_presets_say_what_they_are(play):
    paper, machado = play(THREE_LIVES).describe(), play(THREE_LIVES, protocol=MACHADO_ATARI).describe()
    expected = {
        "environment": "atari/breakout",
        "name": "paper-atari",
        "repeat_action_probability": 0.0,
        "noop_max": 30,
        "frame_skip": 4,
        "frame_pool": 2,
        "action_set": "minimal",
        "life_loss_terminates": True,
        "max_frames_per_game": None,
        "resize": "bilinear",
        "fire_reset": False,
        "num_actions": 2,
        "reward_clip": "none in the environment",
    }
    assert {key: paper[key] for key in expected} == expected
    assert machado["repeat_action_probability"] == 0.25
    assert machado["life_loss_terminates"] is False
    assert machado["max_frames_per_game"] == 108_000
    assert machado["action_set"] == "full"
    assert play(THREE_LIVES, training=False).describe()["life_loss_terminates"] is False


def test_l7_every_default_of_the_emulator_that_would_change_the_game_is_set(monkeypatch):
    given = {}
    monkeypatch.setattr(ale_py.vector_env, "AtariVectorEnv", lambda game, num_envs, **options: given.update(options))
    atari._emulators("breakout", PAPER_ATARI, 2, 2, colour=False)
    assert given["noop_max"] == 31  # ale-py draws below it
    assert given["repeat_action_probability"] == 0.0
    assert given["reward_clipping"] is given["use_fire_reset"] is given["episodic_life"] is False
    assert given["frameskip"] == 4
    assert given["maxpool"] is True
    assert (given["img_height"], given["img_width"], given["stack_num"]) == (210, 160, 1)
    assert given["max_num_frames_per_episode"] > 10**9


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("frame_skip", 0),
        ("frame_pool", 3),
        ("repeat_action_probability", 1.0),
        ("noop_max", -1),
        ("action_set", "tiny"),
        ("resize", "nearest"),
        ("max_frames_per_game", 0),
        ("stack", 0),
        ("random_first_actions", -1),
    ],
)
def test_l6_a_protocol_that_cannot_be_is_refused_by_the_name_of_its_field(field, value):
    with pytest.raises(ValueError, match=field):
        AtariProtocol(**{field: value})


@pytest.mark.parametrize(
    ("actions", "message"),
    [([2], "0 .. 1"), ([-1], "0 .. 1"), ([0, 0], r"shape \(1,\)"), ([0.0], "integers"), (0, "shape")],
)
def test_actions_out_of_range_are_refused(play, actions, message):
    env = play(THREE_LIVES)
    env.reset()
    with pytest.raises(ValueError, match=message):
        env.step(np.array(actions))


def test_l5_a_seed_is_an_integer_or_an_error():
    for seed in (None, -1, 0.5, True):
        with pytest.raises(ValueError, match="seed must be an integer"):
            AtariEnv("breakout", seed=seed)


def test_step_before_reset_says_so(play):
    with pytest.raises(RuntimeError, match="before the first reset"):
        play(THREE_LIVES).step(np.array([0]))
