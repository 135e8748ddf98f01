"""The host replay against the faults reported of others, and against a slow list of everything that happened."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, combine_pvalues

from softbellman import memory
from softbellman.envs.step import Step
from softbellman.learning.replay import FrameReplay
from softbellman.learning.windows import Reach
from softbellman.memory import available_memory, require_memory

GAMMA = 0.9
GOES_ON, LIFE_LOST, TERMINATED, TRUNCATED, BOTH = "goes on", "life lost", "terminated", "truncated", "both"
EVENTS = (GOES_ON, LIFE_LOST, TERMINATED, TRUNCATED, BOTH)


def words(rng, size):
    """Random words, as a minibatch is drawn with."""
    return rng.integers(2**32, size=size, dtype=np.uint32)


class Recorder:
    """Plays scripted events into a `FrameReplay` and writes everything down: the oracle.

    Every frame is a new integer, so that each says which it is. A transition is a tuple of
    (obs, action, reward, discount, next_obs), stacks as tuples; `needs` are the frames without which it is gone.
    """

    def __init__(self, ring, *, stack, num_envs=1, first=1):
        shape = () if stack is None else (stack,)
        self.replay = FrameReplay(
            ring * num_envs, obs_shape=shape, obs_dtype=np.int32, stack=stack, num_envs=num_envs, gamma=GAMMA
        )
        self.stack, self.ring, self.num_envs, self.next_frame = stack, ring, num_envs, first
        self.frames_seen = [[] for _ in range(num_envs)]
        self.happened = [[] for _ in range(num_envs)]
        self.steps = self.episodes = 0
        self.start()

    def start(self):
        self.episode = [[self._new_frame(env)] for env in range(self.num_envs)]
        self.episodes += self.num_envs
        self.replay.start(self._array([self._stack(frames) for frames in self.episode]))

    def add(self, *events):
        obs, next_obs, actions, rewards = [], [], [], []
        for env, event in enumerate(events):
            episode, action, reward = self.episode[env], self.steps % 7, float(self.steps % 11) - 5
            now, needs = self._stack(episode), episode[-(self.stack or 1) :]
            episode.append(self._new_frame(env))
            then = self._stack(episode)
            discount = 0.0 if event in (LIFE_LOST, TERMINATED, BOTH) else float(np.float32(GAMMA))
            self.happened[env].append(((now, action, reward, discount, then), {*needs, episode[-1]}))
            if event == LIFE_LOST:
                self.episode[env] = [episode[-1]]
            elif event != GOES_ON:
                self.episode[env] = [self._new_frame(env)]
                self.episodes += 1
            self.steps += 1
            obs.append(self._stack(self.episode[env]))
            next_obs.append(then)
            actions.append(action)
            rewards.append(reward)
        terminated = np.array([event in (LIFE_LOST, TERMINATED, BOTH) for event in events])
        step = Step(
            obs=self._array(obs),
            next_obs=self._array(next_obs),
            reward=np.array(rewards, np.float32),
            terminated=terminated,
            truncated=np.array([event in (TRUNCATED, BOTH) for event in events]),
            game_ended=np.array([event not in (GOES_ON, LIFE_LOST) for event in events]),
            training_end=terminated,
        )
        self.replay.add(np.array(actions), step)

    def expected(self):
        """Transitions whose successor and history are among the last `ring` frames of their environment."""
        return Counter(
            transition
            for env in range(self.num_envs)
            for transition, needs in self.happened[env]
            if needs <= set(self.frames_seen[env][-self.ring :])
        )

    def stored(self):
        return as_counter(self.replay.gather(np.flatnonzero(self.replay.valid)))

    def _new_frame(self, env):
        self.next_frame += 1
        self.frames_seen[env].append(self.next_frame - 1)
        return self.next_frame - 1

    def _stack(self, frames):
        depth = self.stack or 1
        return tuple(([0] * depth + frames)[-depth:])

    def _array(self, stacks):
        array = np.array(stacks, np.int32)
        return array[:, 0] if self.stack is None else array


def as_counter(batch):
    def stacks(obs):
        return [tuple(np.atleast_1d(row).tolist()) for row in obs]

    columns = [batch.action.tolist(), batch.reward.tolist(), batch.discount.tolist()]
    return Counter(zip(stacks(batch.obs), *columns, stacks(batch.next_obs), strict=True))


def flags(*, terminated=False, truncated=False, game_ended=False, num_envs=1):
    return {
        "reward": np.zeros(num_envs, np.float32),
        "terminated": np.full(num_envs, terminated),
        "truncated": np.full(num_envs, truncated),
        "game_ended": np.full(num_envs, game_ended),
        "training_end": np.full(num_envs, terminated),
    }


def pixels(capacity, **options):
    return FrameReplay(capacity, obs_shape=(4, 84, 84), obs_dtype=np.uint8, stack=4, gamma=0.99, **options)


# ---------------------------------------------------------------------------------------------------- reports


@pytest.mark.parametrize("stack", [None, 1, 4])
@pytest.mark.parametrize("wraps", [0, 3])
def test_l1_next_obs_across_a_truncation_is_the_true_successor(stack, wraps):
    ring = 12
    replay = FrameReplay(ring, obs_shape=(stack,) if stack else (), obs_dtype=np.int32, stack=stack, gamma=GAMMA)
    depth = stack or 1

    def stacked(frames):
        padded = ([0] * depth + frames)[-depth:]
        return np.array([padded if stack else padded[-1]], np.int32)

    start = 0
    replay.start(stacked([start]))
    while True:
        episode = list(range(start, start + 4))
        for t in range(3):
            last = t == 2
            following = stacked([start + 100]) if last else stacked(episode[: t + 2])
            step = Step(following, stacked(episode[: t + 2]), **flags(truncated=last, game_ended=last))
            replay.add(np.array([t]), step)
        third = (replay.written[0] - 3) % ring  # written since: its successor and the next episode's first frame
        batch = replay.gather(np.array([third]))
        np.testing.assert_array_equal(batch.obs, stacked(episode[:3]))
        np.testing.assert_array_equal(batch.next_obs, stacked(episode))
        assert batch.discount[0] == np.float32(GAMMA)
        if start == 0:
            assert batch.obs.ravel()[-1] == 2 and batch.next_obs.ravel()[-1] == 3
        start += 100
        if replay.written[0] > wraps * ring:
            break


@pytest.mark.parametrize("stack", [None, 4])
def test_l1_stored_frames_are_transitions_plus_episodes(stack):
    recorder = Recorder(64, stack=stack)
    for t in range(30):
        recorder.add(TRUNCATED if t % 3 == 2 else GOES_ON)
    assert recorder.replay.num_frames == len(recorder.replay) + recorder.episodes == 30 + 11
    assert np.unique(recorder.replay.frames[:41]).size == 41


def test_l4_bytes_needed_is_exactly_what_is_allocated():
    assert FrameReplay.bytes_needed(1_000_000, (4, 84, 84), np.uint8, 4) == 7_056_000_000 + 21_000_000 <= 7.2e9
    for stack, shape in ((4, (4, 84, 84)), (None, (10, 10, 4))):
        replay = FrameReplay(60, obs_shape=shape, obs_dtype=np.uint8, stack=stack, gamma=1.0, num_envs=3)
        arrays = [value for name, value in vars(replay).items() if isinstance(value, np.ndarray) and name[0] != "_"]
        assert sum(array.nbytes for array in arrays) == FrameReplay.bytes_needed(60, shape, np.uint8, stack)
    for actions, size in ((1, 1), (8, 1), (9, 2), (18, 3)):
        replay = FrameReplay(60, obs_shape=(5,), obs_dtype=np.uint8, stack=None, gamma=1.0, masked_actions=actions)
        needed = FrameReplay.bytes_needed(60, (5,), np.uint8, None, actions)
        assert replay.legal.nbytes == 60 * size == needed - FrameReplay.bytes_needed(60, (5,), np.uint8, None)


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory from /proc")
def test_l4_memory_grows_by_one_copy_of_each_frame_then_stays_flat():
    capacity = 10_000
    rng = np.random.default_rng(0)
    obs = rng.integers(1, 255, (1, 4, 84, 84), dtype=np.uint8)
    steps = [Step(obs, obs, **flags()), Step(obs, obs, **flags(terminated=True, game_ended=True))]
    actions = np.array([3])
    before = resident_bytes()
    replay = pixels(capacity)
    replay.start(obs)
    for t in range(capacity):
        replay.add(actions, steps[t % 100 == 99])
    full = resident_bytes()
    assert 0.95 * capacity * 7_056 < full - before <= 1.15 * capacity * 7_056
    for t in range(10 * capacity):
        replay.add(actions, steps[t % 100 == 99])
        if t % 1000 == 0:
            assert replay.sample(words(rng, 32)).obs.dtype == np.uint8
    assert abs(resident_bytes() - full) < 0.02 * capacity * 7_056
    assert replay.num_frames == capacity


def test_l4_ten_terabytes_are_refused_with_both_numbers_and_the_field():
    capacity = 10 * 10**12 // 7_077
    with pytest.raises(MemoryError, match=r"bytes needed .* available .* lower capacity"):
        pixels(capacity)
    with pytest.raises(
        MemoryError, match=r"^10,000 bytes needed .*, 1,000 available .* lower replay\.capacity, to 10\.0%"
    ):
        require_memory(10_000, 1_000, "replay.capacity")
    require_memory(10_000, 10_000, "replay.capacity")
    require_memory(10**30, None, "replay.capacity")
    assert available_memory() is None or available_memory() > 0


@pytest.mark.parametrize("version", [1, 2])
def test_l4_a_control_group_above_the_process_limits_it(tmp_path, version):
    mount, limit, usage, cache, line = {
        1: (
            tmp_path / "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
            "4:cpu,memory:",
        ),
        2: (tmp_path, "memory.max", "memory.current", "inactive_file", "0::"),
    }[version]
    (mount / "job" / "task").mkdir(parents=True)
    for folder, most in (("job", "1000"), ("job/task", "max")):
        for name, text in ((limit, most), (usage, "700"), ("memory.stat", f"anon 5\n{cache} 300")):
            (mount / folder / name).write_text(text + "\n")
    (tmp_path / "groups").write_text(f"7:cpu:/job\n{line}/job/task\n")
    assert list(memory._left_by_control_groups(str(tmp_path / "groups"), str(tmp_path))) == [600]
    assert list(memory._left_by_control_groups(str(tmp_path / "none"), str(tmp_path))) == []


@pytest.mark.parametrize("end", EVENTS)
@pytest.mark.parametrize(("stack", "capacity"), [(None, 10), (1, 10), (2, 10), (3, 10), (4, 10), (4, 6), (4, 7)])
def test_l23_no_sample_spans_the_write_head_or_an_empty_slot(stack, capacity, end):
    rng = np.random.default_rng(stack or 0)
    recorder, p_values = Recorder(capacity, stack=stack), []
    with pytest.raises(RuntimeError, match="no transition"):
        recorder.replay.sample(words(rng, 1))
    for t in range(35):
        recorder.add(end if t % 9 == 8 else GOES_ON)
        expected = recorder.expected()
        assert len(recorder.replay) == sum(expected.values())
        if not expected:
            with pytest.raises(RuntimeError, match="no transition"):
                recorder.replay.sample(words(rng, 1))
            continue
        drawn = as_counter(recorder.replay.sample(words(rng, 2_000)))
        assert set(drawn) == set(expected)
        for obs, _, _, _, next_obs in drawn:
            history = [frame for frame in obs if frame]
            assert history == list(range(obs[-1] - len(history) + 1, obs[-1] + 1))
            assert next_obs[-1] == obs[-1] + 1 and next_obs[:-1] == obs[1:]
        if len(drawn) > 1:
            p_values.append(chisquare(list(drawn.values())).pvalue)
    assert min(p_values) > 0.001 / len(p_values) and combine_pvalues(p_values).pvalue > 0.001


@pytest.mark.parametrize("stack", [None, 4])
def test_l23_uniform_over_environments_of_unequal_length(stack):
    recorder = Recorder(40, stack=stack, num_envs=3)
    for t in range(30):
        recorder.add(GOES_ON, TERMINATED, TRUNCATED if t % 4 == 3 else LIFE_LOST)
    drawn = as_counter(recorder.replay.sample(words(np.random.default_rng(5), 60_000)))
    assert set(drawn) == set(recorder.expected())
    assert chisquare(list(drawn.values())).pvalue > 0.001


def test_l23_one_valid_transition_among_many_slots_is_found():
    recorder = Recorder(4_000, stack=4)
    recorder.add(GOES_ON)
    for _ in range(3_000):
        recorder.start()
    batch = recorder.replay.sample(words(np.random.default_rng(0), 8))
    assert set(as_counter(batch)) == set(recorder.expected()) and batch.obs.shape == (8, 4)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_transitions_are_numbered_as_they_come_and_the_newest_takes_the_number_of_the_oldest(num_envs):
    """As in a ring of transitions: number `k` holds the latest of those that came `k`-th in a round."""
    ring = 7
    recorder = Recorder(ring, stack=None, num_envs=num_envs)
    for t in range(40):
        recorder.add(*[LIFE_LOST if t % 5 == 4 else GOES_ON] * num_envs)
        held = min(t + 1, ring - 1) * num_envs  # one frame of each ring is the one acted on next
        assert len(recorder.replay) == held
        numbered = recorder.replay.sample(np.arange(2 * held, dtype=np.uint32)).obs
        latest = [max(m for m in range(t + 1) if m % (ring - 1) == turn) for turn in range(held // num_envs)]
        in_order = [recorder.happened[env][m][0][0][0] for m in latest for env in range(num_envs)]
        assert numbered.tolist() == in_order * 2


def test_the_numbers_of_transitions_are_saved_with_them():
    recorder, again = Recorder(12, stack=2, num_envs=2), Recorder(12, stack=2, num_envs=2)
    for t in range(25):
        recorder.add(TERMINATED if t % 4 == 3 else GOES_ON, TRUNCATED if t % 7 == 6 else GOES_ON)
    saved = {name: [part.copy() for part in parts] for name, parts in recorder.replay.filled().items()}

    def read(name, views):
        for view, part in zip(views, saved[name], strict=True):
            view[:] = part

    again.replay.refill(recorder.replay.written, read)
    drawn = np.arange(len(recorder.replay), dtype=np.uint32)
    np.testing.assert_array_equal(again.replay.sample_indices(drawn), recorder.replay.sample_indices(drawn))


def test_l24_one_array_mutated_by_the_environment_is_copied():
    replay = FrameReplay(16, obs_shape=(2, 3), obs_dtype=np.float32, stack=2, gamma=GAMMA)
    obs, actions, reward = np.zeros((1, 2, 3), np.float32), np.zeros(1, np.int64), np.zeros(1, np.float32)
    replay.start(obs)
    for t in range(1, 9):
        obs[:, 0] = obs[:, 1]
        obs[:, 1] = reward[:] = actions[:] = t
        replay.add(actions, Step(obs, obs, **{**flags(), "reward": reward}))
    batch = replay.gather(np.arange(1, 8))
    for t, (now, then) in enumerate(zip(batch.obs, batch.next_obs, strict=True), start=1):
        np.testing.assert_array_equal(now[:, 0], [t - 1, t])
        np.testing.assert_array_equal(then[:, 0], [t, t + 1])
    np.testing.assert_array_equal(batch.action, np.arange(2, 9))
    np.testing.assert_array_equal(batch.reward, np.arange(2, 9))


def test_l24_indices_and_storage_are_left_unchanged_by_gather():
    recorder = Recorder(10, stack=4)
    for t in range(25):
        recorder.add(TERMINATED if t % 5 == 4 else GOES_ON)
    indices = recorder.replay.sample_indices(words(np.random.default_rng(0), 50))
    given, frames = indices.copy(), recorder.replay.frames.copy()
    batch = recorder.replay.gather(indices)
    batch.obs[:] = batch.next_obs[:] = -1
    np.testing.assert_array_equal(indices, given)
    np.testing.assert_array_equal(recorder.replay.frames, frames)


def test_l25_a_wrong_shape_or_dtype_is_refused_and_nothing_is_stored():
    replay = FrameReplay(20, obs_shape=(4,), obs_dtype=np.uint8, stack=4, num_envs=2, gamma=GAMMA)
    obs, actions = np.ones((2, 4), np.uint8), np.zeros(2, np.int64)
    good = Step(obs, obs, **flags(num_envs=2))
    with pytest.raises(RuntimeError, match="start"):
        replay.add(actions, good)
    replay.start(obs)
    for change in (
        {"reward": np.zeros((2, 1), np.float32)},
        {"terminated": np.False_},
        {"truncated": np.zeros(1, bool)},
        {"game_ended": np.zeros(3, bool)},
        {"next_obs": obs[:1]},
        {"obs": obs[0]},
        {"next_obs": obs / np.float32(255)},
    ):
        with pytest.raises(ValueError, match=next(iter(change))):
            replay.add(actions, good._replace(**change))
    for wrong in (np.zeros(2), np.zeros((2, 1), int), np.zeros(1, int)):
        with pytest.raises(ValueError, match="actions"):
            replay.add(wrong, good)
    assert len(replay) == 0 and replay.num_frames == 2
    replay.add(actions, good)
    assert len(replay) == 2


def test_l13_scalar_loop_and_vectors_store_the_same_multiset():
    """Three episodes of four steps, one after the other, by explicit resets, and side by side."""

    def without_names(counter):  # frames count on over all episodes: keep what is known about an episode
        return Counter(
            (tuple(f and (f - 1) % 5 for f in obs), discount, tuple(f and (f - 1) % 5 for f in then))
            for obs, _, _, discount, then in counter.elements()
        )

    one = Recorder(40, stack=4)
    resets = Recorder(40, stack=4)
    for episode in range(3):
        for t in range(4):
            one.add(TERMINATED if t == 3 else GOES_ON)
            resets.add(LIFE_LOST if t == 3 else GOES_ON)
        if episode < 2:
            resets.start()
    side = FrameReplay(60, obs_shape=(4,), obs_dtype=np.int32, stack=4, num_envs=3, gamma=GAMMA)

    def stacked(frames):
        return np.array([([0] * 4 + [1 + 5 * env + t for t in range(frames)])[-4:] for env in range(3)], np.int32)

    side.start(stacked(1))
    for t in range(4):
        last = t == 3
        obs = np.full((3, 4), 99, np.int32) if last else stacked(t + 2)
        side.add(np.zeros(3, int), Step(obs, stacked(t + 2), **flags(terminated=last, game_ended=last, num_envs=3)))
    stored = [one.stored(), resets.stored(), as_counter(side.gather(np.flatnonzero(side.valid)))]
    assert [sum(counter.values()) for counter in stored] == [12, 12, 12]
    assert len({frozenset(without_names(counter).items()) for counter in stored}) == 1
    assert all(then[-1] == obs[-1] + 1 for counter in stored for obs, *_, then in counter)


def test_l29_a_lost_life_shares_the_frame_and_restarts_the_stack():
    recorder = Recorder(20, stack=3)
    for event in (GOES_ON, GOES_ON, LIFE_LOST, GOES_ON):
        recorder.add(event)
    replay = recorder.replay
    assert replay.num_frames == 5 and len(replay) == 4
    batch = replay.gather(np.arange(4))
    np.testing.assert_array_equal(batch.obs, [[0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 4]])
    np.testing.assert_array_equal(batch.next_obs, [[0, 1, 2], [1, 2, 3], [2, 3, 4], [0, 4, 5]])
    np.testing.assert_array_equal(batch.discount, np.float32([GAMMA, GAMMA, 0, GAMMA]))


# ---------------------------------------------------------------------------------------------------- the oracle


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_the_sampleable_set_is_exactly_what_is_still_stored(data):
    stack = data.draw(st.sampled_from([None, 1, 2, 3, 4, 6]), label="stack")
    num_envs = data.draw(st.integers(1, 3), label="num_envs")
    ring = (stack or 1) + data.draw(st.integers(2, 12), label="slots beyond the stack")
    often_ends = st.sampled_from(EVENTS)
    seldom_ends = st.sampled_from((GOES_ON,) * 8 + EVENTS)
    event = data.draw(st.sampled_from([often_ends, seldom_ends]))
    script = data.draw(st.lists(st.tuples(*[event] * num_envs), min_size=1, max_size=60), label="script")
    restart_at = data.draw(st.integers(0, 120), label="explicit reset at")
    recorder = Recorder(ring, stack=stack, num_envs=num_envs)
    for t, events in enumerate(script):
        if t == restart_at:
            recorder.start()
        recorder.add(*events)
        expected = recorder.expected()
        assert recorder.stored() == expected
        assert len(recorder.replay) == sum(expected.values())
        assert recorder.replay.num_frames == sum(min(len(seen), ring) for seen in recorder.frames_seen)
    if expected:
        assert set(as_counter(recorder.replay.sample(words(np.random.default_rng(0), 64)))) <= set(expected)


# ---------------------------------------------------------------------------------------------------- the edges


def test_a_batch_has_the_documented_shapes_and_dtypes_and_one_seed_gives_one_batch():
    replay = pixels(40, num_envs=2)
    obs = np.random.default_rng(0).integers(0, 255, (2, 4, 84, 84), dtype=np.uint8)
    replay.start(obs)
    for _ in range(10):
        replay.add(np.array([17, 2], np.uint8), Step(obs, obs, **flags(num_envs=2)))
    batch, again = (replay.sample(words(np.random.default_rng(3), 32)) for _ in range(2))
    assert batch.obs.shape == batch.next_obs.shape == (32, 4, 84, 84)
    assert batch.legal is batch.next_legal is None  # nothing was masked
    assert [part.dtype for part in batch[:5]] == [np.uint8, np.int32, np.float32, np.float32, np.uint8]
    assert np.shares_memory(batch.obs, batch.next_obs) and not np.shares_memory(batch.obs, replay.frames)
    for part, same in zip(batch, again, strict=True):
        np.testing.assert_array_equal(part, same)


def test_gather_refuses_slots_without_a_transition():
    recorder = Recorder(10, stack=2)
    recorder.add(GOES_ON)
    for slot in (1, 5, 10):
        with pytest.raises(IndexError):
            recorder.replay.gather(np.array([0, slot]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capacity": 0}, r"capacity \(0\) must be positive"),
        ({"capacity": 31, "num_envs": 2}, r"capacity \(31\) must be a multiple of num_envs \(2\); try 30"),
        ({"capacity": 10, "num_envs": 2}, r"needs at least 6: set capacity to 12 or more"),
        ({"num_envs": 0}, r"num_envs \(0\)"),
        ({"gamma": 1.5}, r"gamma \(1\.5\) must be in \[0, 1\]"),
        ({"stack": 3}, r"must begin with stack \(3\)"),
        ({"stack": 0}, r"stack \(0\) must be in"),
    ],
)
def test_a_buffer_that_cannot_work_is_refused_with_what_to_do(change, message):
    arguments = {"capacity": 30, "obs_shape": (4, 2), "obs_dtype": np.uint8, "stack": 4, "gamma": 0.99, **change}
    with pytest.raises(ValueError, match=message):
        FrameReplay(**arguments)


# ------------------------------------------------------------------------------------------- masks of legal actions


def masked_replay(ring=16, *, stack=None, num_envs=1, actions=11):
    shape = () if stack is None else (stack,)
    return FrameReplay(
        ring * num_envs,
        obs_shape=shape,
        obs_dtype=np.int32,
        stack=stack,
        num_envs=num_envs,
        gamma=GAMMA,
        masked_actions=actions,
    )


def mask_of(frame, actions=11):
    """A mask that tells the frame: its number in binary, and one action that is legal always."""
    return np.array([True] + [bool(frame >> bit & 1) for bit in range(actions - 1)])


class MaskedGames:
    """Plays events on one copy each; every frame is a new number, and its mask says which."""

    def __init__(self, replay, stack, num_envs):
        self.replay, self.stack, self.next, self.num_envs = replay, stack, 1, num_envs
        self.now = self._frames()
        self.history = [[frame] for frame in self.now]
        replay.start(self._obs(), self._masks(self.now))

    def _frames(self):
        first, self.next = self.next, self.next + self.num_envs
        return list(range(first, self.next))

    def _masks(self, frames):
        return np.array([mask_of(frame) for frame in frames])

    def _obs(self):
        if self.stack is None:
            return np.array([frames[-1] for frames in self.history], np.int32)
        padded = [[0] * self.stack + frames for frames in self.history]
        return np.array([frames[-self.stack :] for frames in padded], np.int32)

    def add(self, events):
        then = self._frames()
        for frames, frame in zip(self.history, then, strict=True):
            frames.append(frame)
        next_obs, masks = self._obs(), self._masks(then)
        terminated = np.array([event in (TERMINATED, LIFE_LOST) for event in events])
        ended = np.array([event in (TERMINATED, TRUNCATED) for event in events])
        after = [fresh if end else frame for fresh, frame, end in zip(self._frames(), then, ended, strict=True)]
        for env, frame in enumerate(after):
            if ended[env] or terminated[env]:
                self.history[env] = [frame]
        self.replay.add(
            np.zeros(self.num_envs, int),
            Step(
                self._obs(),
                next_obs,
                np.zeros(self.num_envs, np.float32),
                terminated,
                np.array([event == TRUNCATED for event in events]),
                ended,
                terminated,
                self._masks(after),
                np.where(terminated[:, None], True, masks),
            ),
        )


@pytest.mark.parametrize(("stack", "num_envs"), [(None, 1), (None, 3), (4, 2)])
def test_masks_are_those_of_the_frames_across_ends_and_the_write_head(stack, num_envs):
    rng, replay = np.random.default_rng(0), masked_replay(stack=stack, num_envs=num_envs)
    games, seen = MaskedGames(replay, stack, num_envs), 0
    for _ in range(300):
        games.add(rng.choice([GOES_ON, GOES_ON, LIFE_LOST, TERMINATED, TRUNCATED], size=num_envs))
        batch = replay.gather(np.flatnonzero(replay.valid))
        newest = (batch.obs, batch.next_obs) if stack is None else (batch.obs[:, -1], batch.next_obs[:, -1])
        for frame, legal in zip(newest[0].tolist(), batch.legal, strict=True):
            assert (legal == mask_of(frame)).all()
        going = batch.discount > 0
        for frame, legal in zip(newest[1][going].tolist(), batch.next_legal[going], strict=True):
            assert (legal == mask_of(frame)).all()
        assert batch.next_legal.any(axis=-1).all()
        seen += len(batch.action)
    assert seen > 1_000


def test_masks_go_with_the_last_successor_of_several_steps_and_with_windows():
    rng = np.random.default_rng(1)
    replay = FrameReplay(
        32, obs_shape=(), obs_dtype=np.int32, stack=None, gamma=GAMMA, masked_actions=11, reach=Reach(3, 2)
    )
    games, cut = MaskedGames(replay, None, 1), 0
    for _ in range(120):
        games.add(rng.choice([GOES_ON, GOES_ON, GOES_ON, TERMINATED, TRUNCATED], size=1))
        batch = replay.gather(np.flatnonzero(replay.valid))
        assert batch.reward.shape == (len(batch.action), 3) and batch.window.legal.shape[1:] == (2, 11)
        going = batch.discount.prod(axis=1) > 0
        for frame, legal in zip(batch.next_obs[going].tolist(), batch.next_legal[going], strict=True):
            assert (legal == mask_of(frame)).all()
        for frame, legal in zip(batch.obs.tolist(), batch.legal, strict=True):
            assert (legal == mask_of(frame)).all()
        seen = batch.window.there & (batch.window.discount > 0)
        for frame, legal in zip(batch.window.obs[seen].tolist(), batch.window.legal[seen], strict=True):
            assert (legal == mask_of(frame)).all()
        cut += (~going).sum()
    assert cut > 100


def test_masks_are_saved_with_the_rest():
    replay, again = masked_replay(), masked_replay()
    games = MaskedGames(replay, None, 1)
    for _ in range(20):
        games.add([GOES_ON])
    saved = {name: [view.copy() for view in views] for name, views in replay.filled().items()}

    def read(name, views):
        for view, stored in zip(views, saved[name], strict=True):
            view[...] = stored

    again.refill(replay.written, read)
    slots = np.flatnonzero(replay.valid)
    for one, other in zip(replay.gather(slots)[:7], again.gather(slots)[:7], strict=True):
        assert (one == other).all()
    without = FrameReplay(16, obs_shape=(), obs_dtype=np.int32, stack=None, gamma=GAMMA)
    assert "legal" in saved and "legal" not in without.filled() and without.legal is None


@pytest.mark.parametrize(
    ("actions", "legal", "message"),
    [
        (3, None, r"legal is missing; this replay stores masks bool \[1, 3\]"),
        (3, np.ones((1, 4), bool), r"legal is bool \[1, 4\]; this replay stores masks bool \[1, 3\]"),
        (3, np.ones((1, 3), np.int8), r"legal is int8 \[1, 3\]"),
        (None, np.ones((1, 3), bool), "legal is bool .*; this replay stores no masks"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused_and_nothing_is_stored(actions, legal, message):
    replay = masked_replay(actions=actions)
    with pytest.raises(ValueError, match=message):
        replay.start(np.zeros(1, np.int32), legal)
    assert replay.num_frames == 0


def test_a_step_that_lacks_its_masks_is_refused_and_nothing_is_stored():
    replay = masked_replay(actions=3)
    replay.start(np.zeros(1, np.int32), np.ones((1, 3), bool))
    nothing, off = np.zeros(1, np.int32), np.zeros(1, bool)
    step = Step(nothing, nothing, np.zeros(1, np.float32), off, off, off, off, legal=np.ones((1, 3), bool))
    with pytest.raises(ValueError, match="next_legal is missing"):
        replay.add(np.zeros(1, int), step)
    assert replay.num_frames == 1 and len(replay) == 0
