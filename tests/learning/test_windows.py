"""Windows of steps, of both replays: against trajectories that are kept whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softbellman.envs.step import Step
from softbellman.learning import device_replay
from softbellman.learning.replay import FrameReplay
from softbellman.learning.windows import Reach

GAMMA = 0.9
GOES_ON, LIFE_LOST, TERMINATED, TRUNCATED = range(4)


class Story:
    """Steps of `E` environments, written down whole: the oracle. An action is the number of its step, and so unique."""

    def __init__(self, num_envs, stack=None):
        self.num_envs, self.stack, self.frame, self.moment = num_envs, stack, 0, 0
        self.lived = {}  # by action: environment, observation, reward, event, successor
        self.order = [[] for _ in range(num_envs)]  # actions of each environment
        self.episodes = [[self._new()] for _ in range(num_envs)]

    def _new(self):
        self.frame += 1
        return self.frame

    def _stacked(self, frames):
        depth = self.stack or 1
        stacked = np.array(([0] * depth + frames)[-depth:], np.int32)
        return stacked if self.stack else stacked[0]

    def obs(self):
        return np.stack([self._stacked(frames) for frames in self.episodes])

    def step(self, events):
        """One step of every environment: actions and the `Step`."""
        before, actions, rewards, successors = self.obs(), [], [], []
        for env, event in enumerate(events):
            self.moment += 1
            action, reward = self.moment, float((self.moment * 7) % 11) - 5
            self.episodes[env] = [*self.episodes[env], self._new()]
            successor = self._stacked(self.episodes[env])
            self.lived[action] = (env, before[env], reward, event, successor)
            self.order[env].append(action)
            if event == LIFE_LOST:
                self.episodes[env] = self.episodes[env][-1:]
            elif event != GOES_ON:
                self.episodes[env] = [self._new()]
            actions.append(action)
            rewards.append(reward)
            successors.append(successor)
        kinds = np.array(events)
        terminated = (kinds == LIFE_LOST) | (kinds == TERMINATED)
        ended = (kinds == TERMINATED) | (kinds == TRUNCATED)
        rewards = np.array(rewards, np.float32)
        step = Step(self.obs(), np.stack(successors), rewards, terminated, kinds == TRUNCATED, ended, terminated)
        return np.array(actions, np.int32), step

    def neighbour(self, action, by, stored):
        """The step so many behind an action of the same episode, if all between are stored."""
        order = self.order[self.lived[action][0]]
        place = order.index(action)
        path = range(place, place + by) if by > 0 else range(place + by, place)
        if place + by not in range(len(order)) or any(self.lived[order[at]][3] != GOES_ON for at in path):
            return None
        return order[place + by] if order[place + by] in stored else None

    def assert_right(self, batch, reach, stored):
        """Holds every row of a batch against what happened."""
        for row, action in enumerate(batch.action.tolist()):
            _, obs, _, _, _ = self.lived[action]
            np.testing.assert_array_equal(batch.obs[row], obs)
            self._assert_chain(action, 1, reach.returns, stored, batch.reward[row], batch.discount[row])
            chain = self._chain(action, 1, reach.returns, stored)
            np.testing.assert_array_equal(batch.next_obs[row], self.lived[chain[-1]][4])
            if not reach.around:
                continue
            window = jax.tree.map(lambda array, row=row: np.asarray(array)[row], batch.window)
            after = self._chain(action, 1, reach.around, stored)
            before = self._chain(action, -1, reach.around + 1, stored)[1:]
            assert window.there.tolist() == [k < len(after) for k in range(reach.around)]
            assert window.past_there.tolist() == [k < len(before) for k in range(reach.around)]
            self._assert_chain(action, 1, reach.around, stored, window.reward, window.discount)
            for k, other in enumerate(after):
                np.testing.assert_array_equal(window.obs[k], self.lived[other][4])
            for k, other in enumerate(before):
                assert window.past_action[k] == other and window.past_reward[k] == self.lived[other][2]
                assert window.past_discount[k] == np.float32(GAMMA)
                np.testing.assert_array_equal(window.past_obs[k], self.lived[other][1])

    def _chain(self, action, direction, size, stored):
        chain = [action]
        while len(chain) < size and (other := self.neighbour(chain[-1], direction, stored)) is not None:
            chain.append(other)
        return chain

    def _assert_chain(self, action, direction, size, stored, reward, discount):
        chain = self._chain(action, direction, size, stored)
        ends = [self.lived[other][3] in (LIFE_LOST, TERMINATED) for other in chain]
        missing = size - len(chain)
        rewards = [self.lived[other][2] for other in chain] + [0.0] * missing
        discounts = [0.0 if end else np.float32(GAMMA) for end in ends] + [1.0] * missing
        assert np.atleast_1d(reward).tolist() == rewards
        assert np.atleast_1d(discount).tolist() == [float(d) for d in discounts]


def host_replay(story, ring, reach):
    shape = (story.stack,) if story.stack else ()
    capacity = ring * story.num_envs
    options = {"stack": story.stack, "num_envs": story.num_envs, "gamma": GAMMA, "reach": reach}
    return FrameReplay(capacity, obs_shape=shape, obs_dtype=np.int32, **options)


def gathered_on_host(story, script, ring, reach):
    replay = host_replay(story, ring, reach)
    replay.start(story.obs())
    for events in script:
        replay.add(*story.step(events))
    return replay.gather(np.flatnonzero(replay.valid))


write = jax.jit(device_replay.write)
gather = jax.jit(device_replay.gather, static_argnums=(2, 3), static_argnames=("reach", "num_envs"))


def gathered_on_device(story, script, ring, reach):
    capacity = ring * story.num_envs
    replay = device_replay.empty(capacity, (), np.int32, reach)
    for moment, events in enumerate(script):
        obs = story.obs()
        actions, step = story.step(events)
        slot = jnp.int32(moment * story.num_envs % capacity)
        replay = write(replay, slot, obs, actions, step, GAMMA)
    written = len(script) * story.num_envs
    slots = jnp.arange(min(written, capacity))
    more = {"reach": reach, "num_envs": story.num_envs, "written": jnp.int32(written)}
    batch = gather(replay, slots, (), np.int32, **more)
    return jax.tree.map(np.asarray, batch)


def scripts(num_envs):
    event = st.sampled_from([GOES_ON] * 5 + [LIFE_LOST, TERMINATED, TRUNCATED])
    return st.lists(st.tuples(*[event] * num_envs), min_size=1, max_size=40)


reaches = st.builds(Reach, st.integers(1, 5), st.sampled_from([0, 0, 1, 3]))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([1, 2]), st.sampled_from([None, 1, 3]), st.integers(0, 9), reaches)
def test_windows_on_the_host_are_those_of_whole_trajectories(data, num_envs, stack, more, reach):
    story = Story(num_envs, stack)
    batch = gathered_on_host(story, data.draw(scripts(num_envs)), (stack or 1) + 2 + more, reach)
    story.assert_right(batch, reach, set(batch.action.tolist()))


@settings(max_examples=20, deadline=None)
@given(st.data(), st.sampled_from([1, 2]), st.sampled_from([1, 2, 7]), reaches)
def test_windows_on_the_device_are_those_of_whole_trajectories(data, num_envs, ring, reach):
    story = Story(num_envs)
    batch = gathered_on_device(story, data.draw(scripts(num_envs)), ring, reach)
    story.assert_right(batch, reach, set(batch.action.tolist()))


@pytest.mark.parametrize("gathered", [gathered_on_host, gathered_on_device])
@pytest.mark.parametrize(
    "events",
    [
        [GOES_ON] * 30,  # the ring's seam inside of windows, and the write head behind the newest
        [GOES_ON, TERMINATED] * 15,  # episodes shorter than a window
        [TERMINATED] * 30,  # of one step
        [GOES_ON, GOES_ON, LIFE_LOST] * 10,
        [GOES_ON, GOES_ON, TRUNCATED] * 10,
    ],
    ids=["no end", "short", "single steps", "lives", "time limits"],
)
def test_windows_end_where_their_episode_does(gathered, events):
    story, reach = Story(1), Reach(4, 3)
    batch = gathered(story, [(event,) for event in events], 8, reach)
    assert batch.reward.shape == batch.discount.shape == (len(batch.action), 4)
    story.assert_right(batch, reach, set(batch.action.tolist()))


def test_a_window_does_not_pass_from_one_environment_to_the_next():
    story, reach = Story(2), Reach(9)
    batch = gathered_on_device(story, [(GOES_ON, GOES_ON)] * 4, 4, reach)
    assert (batch.discount != 1).sum(axis=1).tolist() == [4, 4, 3, 3, 2, 2, 1, 1]


def test_without_a_discount_every_window_is_one_step():
    replay = FrameReplay(9, obs_shape=(), obs_dtype=np.int32, stack=None, gamma=0.0, reach=Reach(3))
    story = Story(1)
    replay.start(story.obs())
    for _ in range(5):
        replay.add(*story.step([GOES_ON]))
    batch = replay.gather(np.flatnonzero(replay.valid))
    assert (batch.reward[:, 1:] == 0).all() and (batch.discount[:, 0] == 0).all()


def test_a_new_start_is_no_successor():
    """As after a game that could not be played again up to where it was."""
    story, replay = Story(1), FrameReplay(20, obs_shape=(), obs_dtype=np.int32, stack=None, gamma=GAMMA, reach=Reach(3))
    replay.start(story.obs())
    replay.add(*story.step([GOES_ON]))
    replay.start(story.obs() + 1_000)
    replay.add(*story.step([GOES_ON]))
    batch = replay.gather(np.flatnonzero(replay.valid))
    assert (batch.discount[:, 1:] == 1).all()


def test_single_steps_are_stored_and_gathered_as_ever():
    one, several = (device_replay.empty(6, (3,), bool, reach) for reach in (Reach(), Reach(2)))
    assert one.last is None and several.last.nbytes == 6
    sizes = [device_replay.bytes_needed(6, (3,), bool, reach) for reach in (Reach(), Reach(2), Reach(1, 4))]
    assert sizes[0] == sum(array.nbytes for array in jax.tree.leaves(one))
    assert sizes[1] == sizes[2] == sum(array.nbytes for array in jax.tree.leaves(several))
    story = Story(1, 3)
    batch = gathered_on_host(story, [(GOES_ON,)] * 3, 6, Reach())
    assert batch.reward.shape == (3,) and batch.window is None and np.shares_memory(batch.obs, batch.next_obs)
