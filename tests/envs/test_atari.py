"""Atari on the real emulator: pixels, seeds, frames, tapes."""

import dataclasses
import hashlib
import sys

import numpy as np
import pytest

from softbellman.envs import MissingExtra
from softbellman.envs.atari import MACHADO_ATARI, PAPER_ATARI, AtariProtocol
from softbellman.envs.atari import env as atari
from softbellman.envs.atari.env import AtariEnv

ale_py = pytest.importorskip("ale_py")
cv2 = pytest.importorskip("cv2")


def actions_of(env, steps, seed=0):
    return np.random.default_rng(seed).integers(env.num_actions, size=(steps, env.num_envs))


def assert_same(step, other):
    """Asserts that two steps agree in every field, on as many copies as the narrower has."""
    assert step.legal is step.next_legal is other.legal is other.next_legal is None
    for name, one, two in zip(step._fields, step, other, strict=True):
        if one is None:
            continue
        width = min(len(one), len(two))
        np.testing.assert_array_equal(one[:width], two[:width], err_msg=name)


def raw_emulator(game, seed, repeat=0.0):
    """The emulator of ale-py by itself, one raw frame per action."""
    emulator = ale_py.ALEInterface()
    emulator.setInt("random_seed", seed)
    emulator.setFloat("repeat_action_probability", repeat)
    emulator.loadROM(ale_py.roms.get_rom_path(game))
    emulator.reset_game()
    return emulator


def paper_frame(raw_frames):
    """The paper's preprocessing, written out: maximum of the last two raw frames, OpenCV's bilinear resize."""
    return cv2.resize(np.max(raw_frames[-2:], axis=0), (84, 84), interpolation=cv2.INTER_LINEAR)


def test_it_is_a_host_env_of_the_shape_it_says():
    env = AtariEnv("breakout", seed=0, num_envs=2)
    obs = env.reset()
    assert obs.shape == (2, 4, 84, 84)
    assert obs.dtype == env.obs_dtype == np.uint8
    assert (env.num_actions, env.stack, env.frames_per_step) == (4, 4, 4)
    assert env.action_meanings == ("NOOP", "FIRE", "RIGHT", "LEFT")
    step = env.step(np.array([1, 0]))
    assert step.obs.shape == step.next_obs.shape == obs.shape
    assert step.reward.dtype == np.float32
    assert step.terminated.dtype == step.truncated.dtype == step.game_ended.dtype == bool


@pytest.mark.parametrize("game", ["breakout", "qbert", "seaquest"])
def test_l30_frames_and_rewards_are_those_of_the_emulator_stepped_by_hand(game):
    env = AtariEnv(game, seed=3)
    env.reset()
    (tape,) = env.tape
    # The number of no-ops is the emulator's own draw; it shows as the frame number of the first frame.
    reset = env._emulators[0].reset(seed=np.array([tape.seed]), options={"reset_mask": np.array([True])})
    emulator = raw_emulator(game, tape.seed)
    for _ in range(int(reset[1]["episode_frame_number"][0])):
        emulator.act(0)
    buttons = emulator.getMinimalActionSet()
    for action in actions_of(env, 250)[:, 0]:
        reward, raw_frames = 0, []
        for _ in range(4):
            reward += emulator.act(buttons[action])
            if emulator.game_over():
                break  # the frame on which the game is over is not seen: Deviation D6
            raw_frames.append(emulator.getScreenGrayscale())
        step = env.step(np.array([action]))
        assert step.reward[0] == reward
        assert step.game_ended[0] == emulator.game_over()
        if step.game_ended[0]:
            break
        np.testing.assert_array_equal(step.next_obs[0, -1], paper_frame(raw_frames))


def test_l30_a_skip_of_one_shows_the_raw_frame():
    protocol = dataclasses.replace(PAPER_ATARI, frame_skip=1, noop_max=0)
    env = AtariEnv("breakout", seed=0, protocol=protocol)
    env.reset()
    emulator = raw_emulator("breakout", env.tape[0].seed)
    for action in [1, *[0] * 30]:
        emulator.act(emulator.getMinimalActionSet()[action])
        step = env.step(np.array([action]))
        np.testing.assert_array_equal(step.next_obs[0, -1], paper_frame([emulator.getScreenGrayscale()]))


def test_golden_frame():
    # Emulator, no-ops, pooling and resize at once. The resize is the likeliest to move: INTER_AREA, or another
    # INTER_LINEAR, gives another hash, and agents another world. OpenCV 4.10 and 5.0 agree on this one.
    env = AtariEnv("breakout", seed=0)
    env.reset()
    for action in actions_of(env, 20):
        step = env.step(action)
    golden = "297ad792e9186b8978803a2acb718ba2e38ec312db786600b630db8099e4a861"
    assert hashlib.sha256(step.obs[0, -1].tobytes()).hexdigest() == golden


def test_l30_the_first_stack_is_zeros_and_one_frame_and_holds_nothing_of_the_last_game():
    env = AtariEnv("breakout", seed=0, training=False)
    obs = env.reset()
    assert not obs[0, :3].any()
    assert obs[0, 3].any()
    for action in actions_of(env, 1000):
        step = env.step(action)
        if step.game_ended[0]:
            break
    assert step.terminated[0]
    assert not step.obs[0, :3].any()
    assert step.obs[0, 3].any()
    assert step.next_obs[0].any(axis=(1, 2)).all()


def test_a_lost_life_is_an_end_for_the_learner_in_training_only():
    training, test = AtariEnv("breakout", seed=0), AtariEnv("breakout", seed=0, training=False)
    ends = {}
    for env in (training, test):
        env.reset()
        steps = [env.step(action) for action in actions_of(env, 400)]
        ends[env] = (sum(step.terminated[0] for step in steps), sum(step.game_ended[0] for step in steps))
        assert all(step.terminated[0] for step in steps if step.game_ended[0])
    terminated, games = ends[training]
    assert games >= 1
    assert 5 * games <= terminated < 5 * (games + 1)  # Breakout has five lives
    assert ends[test][0] == ends[test][1] >= 1


def test_after_a_lost_life_history_restarts_in_obs_and_goes_on_in_next_obs():
    env = AtariEnv("breakout", seed=0)
    env.reset()
    previous = None
    for action in actions_of(env, 400):
        step = env.step(action)
        if step.terminated[0] and not step.game_ended[0]:
            break
        previous = step
    np.testing.assert_array_equal(step.next_obs[0, :3], previous.obs[0, 1:])
    assert not step.obs[0, :3].any()
    np.testing.assert_array_equal(step.obs[0, 3], step.next_obs[0, 3])
    after = env.step(np.array([0]))
    assert not after.obs[0, :2].any()
    np.testing.assert_array_equal(after.obs[0, 2], step.obs[0, 3])


def test_l26_an_agent_step_is_four_frames_of_the_emulator():
    env = AtariEnv("seaquest", seed=0)
    env.reset()
    frame_number = []
    for action in actions_of(env, 101):
        assert not env.step(action).game_ended[0]
        _, info = env._emulators[0].reset(seed=np.array([], int), options={"reset_mask": np.array([False])})
        frame_number.append(int(info["episode_frame_number"][0]))
    assert frame_number[-1] - frame_number[0] == 100 * env.frames_per_step == 400


def test_l7_no_ops_are_zero_to_thirty_both_included():
    env = AtariEnv("breakout", seed=0)
    env.reset()
    counts = {int(env._emulators[0].reset()[1]["episode_frame_number"][0]) for _ in range(300)}
    assert counts == set(range(31))


def test_l7_sticky_actions_happen_only_where_the_protocol_says_so():
    def screens(protocol, seed):
        env = AtariEnv("breakout", seed=seed, protocol=protocol)
        env.reset()
        return [env.step(action).next_obs for action in actions_of(env, 60)]

    without_noops = dataclasses.replace(PAPER_ATARI, noop_max=0)
    sticky = dataclasses.replace(without_noops, repeat_action_probability=0.25)
    assert np.array_equal(screens(without_noops, 0), screens(without_noops, 1))
    assert not np.array_equal(screens(sticky, 0), screens(sticky, 1))
    assert np.array_equal(screens(sticky, 0), screens(sticky, 0))


def test_l5_seeds_copies_and_streams_all_differ_and_repeat():
    def first_steps(seed, **options):
        env = AtariEnv("breakout", seed=seed, num_envs=2, **options)
        env.reset()
        return env.tape, [env.step(action).next_obs for action in actions_of(env, 30)]

    tape, steps = first_steps(0)
    same_tape, same_steps = first_steps(0)
    assert [one.seed for one in tape] == [one.seed for one in same_tape]
    assert np.array_equal(steps, same_steps)
    others = [first_steps(seed)[0] for seed in (1, 2)] + [first_steps(0, training=False)[0]]
    seeds = [one.seed for tapes in (tape, *others) for one in tapes]
    assert len(set(seeds)) == 8
    assert all(0 < seed < 2**31 for seed in seeds)
    assert not np.array_equal(steps[-1], first_steps(1)[1][-1])
    assert not np.array_equal(steps[-1][0], steps[-1][1])


def test_more_copies_or_threads_change_nothing():
    alone, pair, trio = (
        AtariEnv("breakout", seed=5, num_envs=num_envs, threads=threads)
        for num_envs, threads in ((1, 1), (2, 1), (3, 2))
    )
    ended = np.zeros(3, bool)
    obs = trio.reset()
    np.testing.assert_array_equal(obs[:2], pair.reset())
    np.testing.assert_array_equal(obs[:1], alone.reset())
    for action in actions_of(trio, 250):
        step = trio.step(action)
        ended |= step.game_ended
        assert_same(step, pair.step(action[:2]))
        assert_same(step, alone.step(action[:1]))
    assert ended.any()


@pytest.mark.parametrize("protocol", [PAPER_ATARI, MACHADO_ATARI], ids=lambda protocol: protocol.name)
def test_replay_by_tape_goes_on_bit_for_bit(protocol):
    env = AtariEnv("breakout", seed=2, protocol=protocol, num_envs=2)
    env.reset()
    for action in actions_of(env, 220):
        env.step(action)
    tape = env.tape
    assert len({len(one.actions) for one in tape}) > 1
    restored = AtariEnv("breakout", seed=2, protocol=protocol, num_envs=2)
    np.testing.assert_array_equal(restored.restore(tape), env._stack)
    games = 0
    for action in actions_of(env, 200, seed=1):
        step = env.step(action)
        games += step.game_ended.sum()
        assert_same(step, restored.step(action))
    assert games > 0
    assert all(
        one.seed == two.seed and one.checksum == two.checksum for one, two in zip(env.tape, restored.tape, strict=True)
    )


def test_a_tape_of_something_else_is_refused():
    env = AtariEnv("breakout", seed=0)
    env.reset()
    for action in actions_of(env, 20):
        env.step(action)
    tape = env.tape
    with pytest.raises(ValueError, match="another run seed"):
        AtariEnv("breakout", seed=1).restore(tape)
    with pytest.raises(ValueError, match="does not end on the screen"):
        AtariEnv("pong", seed=0).restore(tape)
    with pytest.raises(ValueError, match="1 copies, this environment 2"):
        AtariEnv("breakout", seed=0, num_envs=2).restore(tape)


def test_the_colour_screen_is_the_true_one_and_recording_changes_nothing():
    plain, recorded = AtariEnv("breakout", seed=0), AtariEnv("breakout", seed=0, record=True)
    np.testing.assert_array_equal(plain.reset(), recorded.reset())
    for action in actions_of(plain, 40):
        assert_same(plain.step(action), recorded.step(action))
    screen = recorded.screen()
    assert screen.shape == (210, 160, 3)
    assert screen.dtype == np.uint8
    assert (screen[..., 0] != screen[..., 1]).any()
    (tape,) = recorded.tape
    emulator = raw_emulator("breakout", tape.seed)
    reset = plain._emulators[0].reset(seed=np.array([tape.seed]), options={"reset_mask": np.array([True])})
    for _ in range(int(reset[1]["episode_frame_number"][0])):
        emulator.act(0)
    for action in tape.actions:
        for _ in range(4):
            emulator.act(emulator.getMinimalActionSet()[action])
    np.testing.assert_array_equal(screen, emulator.getScreenRGB())
    with pytest.raises(RuntimeError, match="record=True"):
        plain.screen()


@pytest.mark.parametrize("name", ["ms_pacman", "MsPacman", "ms-pacman", "MS_PACMAN"])
def test_a_game_may_be_spelled_in_several_ways(name):
    assert atari.game_id(name) == "ms_pacman"


def test_an_unknown_game_lists_the_nearest():
    with pytest.raises(ValueError, match=r"unknown Atari game 'brekout'; did you mean breakout\?"):
        AtariEnv("brekout", seed=0)
    assert {"qbert", "crazy_climber", "asterix"} <= set(atari.games())


def test_l31_without_ale_py_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    atari._ale_py.cache_clear()
    with pytest.raises(MissingExtra) as error:
        AtariEnv("breakout", seed=0)
    assert str(error.value) == 'ale-py is not installed; run: pip install "softbellman[atari]"'
    atari._ale_py.cache_clear()


def test_no_banner_is_printed(capfd):
    AtariEnv("breakout", seed=0).reset()
    assert capfd.readouterr() == ("", "")


def test_the_full_action_set_has_eighteen_actions():
    assert AtariEnv("breakout", seed=0, protocol=AtariProtocol(action_set="full")).num_actions == 18
