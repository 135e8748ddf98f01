"""Replay buffer on the host: every frame is stored once, stacks are rebuilt when sampled.

A transition needs `stack + 1` consecutive frames; stored whole, as `obs` and `next_obs`, it would take `2 * stack`.
Here one ring of slots per environment holds the frames in the order in which they were seen:

    slot      0    1    2    3*   4    5    6         3* successor of the last action of a game: no transition
    frame     a    b    c    d    A    B    C         4  first frame of the next game
    history   0    1    2    3    0    1    2         earlier frames of the same episode that a stack reaches
    valid     yes  yes  yes  no   yes  yes  no        6  the open slot: acted on next

The true successor of a game's last action has its own slot (`d`), so `next_obs` is right at a time limit too. A lost
life ends an episode but not the game: the successor is also the next episode's first frame, and both share a slot.
A valid slot has a place among the transitions, which are numbered without gaps; sampling looks at nothing else. It
loses its place when a slot that the transition needs is written anew, so that no window ever spans the write head, and
the transition with the highest number moves there. So transitions are numbered as they come, and the newest takes the
number of the one that was dropped for it: as in the replay on the device, wherever both hold the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from softbellman.learning.masks import packed, unpacked
from softbellman.learning.windows import ONE_STEP, Reach, returns, window
from softbellman.memory import available_memory, require_memory

if TYPE_CHECKING:
    from softbellman.envs.step import Step


class Transition(NamedTuple):
    """A batch of `B` transitions.

    Attributes:
        obs: `[B, *obs_shape]`, the observation acted on.
        action: `[B]` int32.
        reward: `[B]` float32, raw.
        discount: `[B]` float32, `gamma * (1 - terminated)`: what multiplies the value of `next_obs`.
        next_obs: `[B, *obs_shape]`, the true successor.
        legal: `[B, A]` bool, the legal actions at `obs`; None: all.
        next_legal: `[B, A]` bool, the same at `next_obs`.
        density: `[B]`, the probability of each to be drawn, as a multiple of a uniform one's; None: 1.
        window: steps around each transition, for a tightening; None without one.

    Of windows of `n` steps, `reward` and `discount` are `[B, n]`, and `next_obs` is the last of their successors. A
    window ends with its episode, or with the newest transition; it is filled up with rewards of 0, discounts of 1.
    """

    obs: Any
    action: Any
    reward: Any
    discount: Any
    next_obs: Any
    legal: Any = None
    next_legal: Any = None
    density: Any = None
    window: Any = None


class FrameReplay:
    """A replay buffer over `num_envs` environments, one ring of frames each.

    An episode here is the learner's: it ends where `Step.terminated` or `Step.truncated` says so, and a stack holds
    zeros where it would reach back before the episode's first frame. A frame without a transition: Deviation D12.

    Attributes:
        frames: `[capacity, *frame_shape]`, environment `e` owns slots `e * ring .. (e + 1) * ring - 1`.
        action, reward, discount: `[capacity]`, the transition that starts at the slot's frame.
        history: `[capacity]`, earlier frames of the episode that a stack ending here reaches, at most `stack - 1`.
        place: `[capacity]` int32, the number of the transition that starts at the slot's frame; -1 if there is none all
            of whose frames are stored.
        slots: `[capacity]` int32, the slot of each transition, by its number.
        legal: `[capacity, ceil(A / 8)]` uint8, the legal actions at the slot's frame, eight to a byte; None where all
            always are.
        written: frames written so far, one count per environment; the newest is in slot `(written - 1) % ring`.
        moves: notes for a sampling with a memory, which empties them: -1 for a transition that came, with the next
            number, and the number of one that went, which the last one took. None: nothing is noted.
    """

    def __init__(
        self,
        capacity: int,
        *,
        obs_shape: tuple[int, ...],
        obs_dtype: Any,
        stack: int | None,
        num_envs: int = 1,
        gamma: float,
        reach: Reach = ONE_STEP,
        masked_actions: int | None = None,
    ) -> None:
        """Allocates an empty buffer; the operating system commits its pages as they are first written.

        Args:
            capacity: frame slots over all environments; a multiple of `num_envs`.
            obs_shape: shape of one observation, the stack axis (if any) first.
            obs_dtype: dtype of the observations, stored as it is.
            stack: frames along the first axis of an observation, or None when an observation is one frame.
            num_envs: environments stepped side by side, `E`.
            gamma: discount factor, in `[0, 1]`.
            reach: steps gathered with a transition.
            masked_actions: number of actions, if some are illegal now and then; None: all are legal always.

        Raises:
            ValueError: an argument is out of range, or they do not fit each other.
            MemoryError: the buffer would not fit into the memory there is.
        """
        needed = self.bytes_needed(capacity, obs_shape, obs_dtype, stack, masked_actions)
        depth = 1 if stack is None else stack
        if num_envs < 1:
            raise ValueError(f"num_envs ({num_envs}) must be at least 1.")
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma ({gamma}) must be in [0, 1].")
        if capacity % num_envs:
            fit = max(capacity // num_envs, depth + 2) * num_envs
            raise ValueError(f"capacity ({capacity}) must be a multiple of num_envs ({num_envs}); try {fit}.")
        if capacity // num_envs < depth + 2:
            raise ValueError(
                f"capacity ({capacity}) gives {capacity // num_envs} frame slots to each of {num_envs} environments; "
                f"a stack of {depth} needs at least {depth + 2}: set capacity to {num_envs * (depth + 2)} or more."
            )
        require_memory(needed, available_memory(), "capacity")
        self.capacity, self.num_envs, self.gamma, self.reach = capacity, num_envs, float(gamma), reach
        self.obs_shape, self.obs_dtype, self.stack = tuple(obs_shape), np.dtype(obs_dtype), stack
        self.frames = np.zeros((capacity, *_frame_shape(obs_shape, stack)), self.obs_dtype)
        self.action = np.zeros(capacity, np.int32)
        self.reward = np.zeros(capacity, np.float32)
        self.discount = np.zeros(capacity, np.float32)
        self.history = np.zeros(capacity, np.uint8)
        self.place = np.full(capacity, -1, np.int32)
        self.written = [0] * num_envs
        self.moves: list[int] | None = None
        self._ring, self._depth, self._num_valid = capacity // num_envs, depth, 0
        self.slots = np.zeros(capacity, np.int32)  # of the transitions, by number
        self._masked_actions = masked_actions
        self.legal = None if masked_actions is None else np.zeros((capacity, -(-masked_actions // 8)), np.uint8)
        self._offsets = np.arange(1 - depth, 2)  # of a window's frames, from the frame acted on

    @staticmethod
    def bytes_needed(
        capacity: int,
        obs_shape: tuple[int, ...],
        obs_dtype: Any,
        stack: int | None,
        masked_actions: int | None = None,
    ) -> int:
        """Returns the bytes that a buffer's arrays take once it is full: a frame, 21 bytes and a mask for each slot.

        >>> FrameReplay.bytes_needed(1_000_000, (4, 84, 84), "uint8", stack=4)
        7077000000

        Raises:
            ValueError: `capacity` is not positive, or `stack` and `obs_shape` do not fit each other.
        """
        if capacity < 1:
            raise ValueError(f"capacity ({capacity}) must be positive.")
        frame_bytes = math.prod(_frame_shape(obs_shape, stack)) * np.dtype(obs_dtype).itemsize
        return int(capacity) * (frame_bytes + 4 + 4 + 4 + 1 + 4 + 4 + -(-(masked_actions or 0) // 8))

    def __len__(self) -> int:
        """Returns the number of transitions that can be sampled now."""
        return self._num_valid

    @property
    def valid(self) -> np.ndarray:
        """`[capacity]` bool, the slot starts a transition all of whose frames are stored."""
        return self.place >= 0

    @property
    def num_frames(self) -> int:
        """The number of slots that hold a frame."""
        return sum(min(written, self._ring) for written in self.written)

    def start(self, obs: np.ndarray, legal: np.ndarray | None = None) -> None:
        """Begins an episode in every environment, with `obs` `[E, *obs_shape]` as just returned by a reset.

        Args:
            obs: the observations.
            legal: `[E, A]` bool, the legal actions there; None in a buffer without masks.

        Raises:
            ValueError: an array has another shape or dtype than the buffer.
        """
        masks = self._packed_masks("legal", legal)
        for env, frame in enumerate(self._newest_frames("obs", obs)):
            self._open_slot(env, frame, 0, masks)

    def add(self, actions: np.ndarray, step: Step) -> None:
        """Stores the transitions of one step of every environment. Everything is copied.

        Args:
            actions: `[E]` integers, the actions that led to `step`.
            step: what the environments returned.

        Raises:
            RuntimeError: `start` was not called.
            ValueError: an array has another shape or dtype than the buffer; nothing was stored.
        """
        if not self.written[0]:
            raise RuntimeError("start(obs) must be called with the first observations before add().")
        successors = self._newest_frames("next_obs", step.next_obs)
        first_frames = self._newest_frames("obs", step.obs)
        successor_masks = self._packed_masks("next_legal", step.next_legal)
        first_masks = self._packed_masks("legal", step.legal)
        actions = self._per_env("actions", actions)
        if actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be integers, not {actions.dtype}.")
        transitions = zip(
            actions.tolist(),
            self._per_env("reward", step.reward).tolist(),
            self._per_env("terminated", step.terminated).tolist(),
            self._per_env("truncated", step.truncated).tolist(),
            self._per_env("game_ended", step.game_ended).tolist(),
            strict=True,
        )
        for env, (action, reward, terminated, truncated, game_ended) in enumerate(transitions):
            slot = env * self._ring + (self.written[env] - 1) % self._ring
            history = min(int(self.history[slot]) + 1, self._depth - 1)
            self.action[slot] = action
            self.reward[slot] = reward
            self.discount[slot] = 0.0 if terminated else self.gamma
            self.place[slot], self.slots[self._num_valid] = self._num_valid, slot
            self._num_valid += 1
            if self.moves is not None:
                self.moves.append(-1)
            if game_ended:
                self._open_slot(env, successors[env], history, successor_masks)
                self._open_slot(env, first_frames[env], 0, first_masks)
            else:
                self._open_slot(env, successors[env], 0 if terminated or truncated else history, first_masks)

    def sample(self, words: np.ndarray) -> Transition:
        """Returns a transition for each random word `[B]` uint32, uniformly and with replacement (Deviation D19).

        Raises:
            RuntimeError: there is no transition to sample.
        """
        return self.gather(self.sample_indices(words))

    def sample_indices(self, words: np.ndarray) -> np.ndarray:
        """Returns the slots `[B]` int64 of transitions drawn as in `sample`; they hold until the next `add`.

        Raises:
            RuntimeError: there is no transition to sample.
        """
        if not self._num_valid:
            raise RuntimeError(f"no transition to sample: the replay holds {self.num_frames} frames and no transition.")
        numbers = words % np.uint32(self._num_valid)  # uniform to within `len(self) / 2^32`
        return self.slots[numbers].astype(np.int64)

    def gather(self, indices: np.ndarray) -> Transition:
        """Returns the transitions at `indices` `[B]`, as given by `sample_indices`; `indices` is left unchanged.

        `obs` and `next_obs` of single steps are two views of one fresh array: they share `stack - 1` frames.

        Raises:
            IndexError: a slot holds no transition that is complete.
        """
        if (self.place[indices] < 0).any():
            raise IndexError("indices must be slots of stored transitions: take them from sample_indices().")
        if self.reach.returns == 1:
            frames = self._frames_around(indices, self._offsets)  # [B, depth + 1, *frame_shape]
            obs, next_obs = self._stacked(frames[:, :-1]), self._stacked(frames[:, 1:])
            reward, discount, last = self.reward[indices], self.discount[indices], indices
        else:
            reward, discount, last = returns(indices, self.reach.returns, self._after, self._read, np)
            obs, next_obs = self._read("obs", indices), self._read("next_obs", last)
        legal = next_legal = around = None
        if self.legal is not None:
            legal, next_legal = self._read("legal", indices), self._read("next_legal", last)
        if self.reach.around:
            masked = self.legal is not None
            around = window(indices, self.reach.around, self._after, self._before, self._read, np, masked)
        return Transition(obs, self.action[indices], reward, discount, next_obs, legal, next_legal, window=around)

    def filled(self) -> dict[str, list[np.ndarray]]:
        """Returns the slots that hold a frame, as views by array, one for each environment: all there is to save."""
        parts = [slice(env * self._ring, env * self._ring + min(n, self._ring)) for env, n in enumerate(self.written)]
        names = ("frames", "action", "reward", "discount", "history", "place", "legal")
        arrays = {name: getattr(self, name) for name in names}
        return {name: [array[part] for part in parts] for name, array in arrays.items() if array is not None}

    def refill(self, written: list[int], read: Callable[[str, list[np.ndarray]], None]) -> None:
        """Takes over what another buffer of the same size held.

        Args:
            written: its `written`.
            read: writes one of its arrays, named as in `filled`, into the views that it is given.

        Raises:
            ValueError: `written` is of another number of environments, or no count of frames.
        """
        counts = all(isinstance(count, int) and count >= 1 for count in written)
        if len(written) != self.num_envs or not counts:
            raise ValueError(f"written ({written}) must count the frames of each of {self.num_envs} environments.")
        self.place[:] = -1
        self.written = list(written)
        for name, views in self.filled().items():
            read(name, views)
        slots = np.flatnonzero(self.valid)
        self.slots[self.place[slots]], self._num_valid = slots, slots.size

    def _open_slot(self, env: int, frame: np.ndarray, history: int, masks: np.ndarray | None) -> None:
        """Writes `frame` over the oldest slot of `env`, after dropping the transitions that need what it held."""
        oldest, first = self.written[env] % self._ring, env * self._ring
        for later in range(self._depth):
            slot = first + (oldest + later) % self._ring
            if self.history[slot] < later:
                break  # an episode began in between: no stack from here on reaches back to the oldest frame
            if self.place[slot] >= 0:
                self._drop(slot)
        self.frames[first + oldest] = frame
        self.history[first + oldest] = history
        if self.legal is not None and masks is not None:
            self.legal[first + oldest] = masks[env]
        self.written[env] += 1

    def _drop(self, slot: int) -> None:
        """Takes a transition's number away, and gives it to the one with the highest."""
        self._num_valid -= 1
        number, last = self.place[slot], self.slots[self._num_valid]
        self.slots[number], self.place[last] = last, number
        self.place[slot] = -1
        if self.moves is not None:
            self.moves.append(int(number))

    def _frames_around(self, indices: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Returns frames `[B, len(offsets), *frame_shape]` near those at slots, zeros before an episode's first one."""
        env, slot = np.divmod(indices, self._ring)
        slots = (slot[:, None] + offsets) % self._ring + (env * self._ring)[:, None]
        frames = self.frames.take(slots, axis=0)
        before_start = self.history[indices][:, None] < -offsets
        if before_start.any():
            frames[before_start] = 0
        return frames

    def _stacked(self, frames: np.ndarray) -> np.ndarray:
        """Returns the observations that stacks of frames `[B, depth, *frame_shape]` are."""
        return frames[:, 0] if self.stack is None else frames

    def _read(self, name: str, indices: np.ndarray) -> np.ndarray:
        """Returns a column of the transitions at slots: `obs` and `next_obs` of slots `[N]`, others of any."""
        if name in ("obs", "next_obs"):
            offsets = self._offsets[:-1] if name == "obs" else self._offsets[1:]
            return self._stacked(self._frames_around(indices, offsets))
        if self.legal is not None and name in ("legal", "next_legal"):
            masks = self.legal[indices if name == "legal" else self._after(indices)[0]]
            return unpacked(masks, self._masked_actions)
        return getattr(self, name)[indices]

    def _after(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the slots behind some transitions, and where the next transition of the same episode starts there."""
        env, slot = np.divmod(indices, self._ring)
        following = (slot + 1) % self._ring + env * self._ring
        return following, (self.place[following] >= 0) & (self.discount[indices] > 0)

    def _before(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the slots before some transitions, and where the one before in the same episode starts there."""
        env, slot = np.divmod(indices, self._ring)
        previous = (slot - 1) % self._ring + env * self._ring
        return previous, (self.place[previous] >= 0) & (self.discount[previous] > 0)

    def _newest_frames(self, name: str, obs: np.ndarray) -> np.ndarray:
        """Returns the newest frame of each observation, `[E, *frame_shape]`, after checking shape and dtype."""
        obs = np.asarray(obs)
        if obs.shape != (self.num_envs, *self.obs_shape) or obs.dtype != self.obs_dtype:
            raise ValueError(
                f"{name} is {obs.dtype} {list(obs.shape)}; this replay stores "
                f"{self.obs_dtype} {[self.num_envs, *self.obs_shape]}."
            )
        return obs if self.stack is None else obs[:, -1]

    def _packed_masks(self, name: str, legal: np.ndarray | None) -> np.ndarray | None:
        return packed(name, legal, self.num_envs, self._masked_actions)

    def _per_env(self, name: str, values: np.ndarray) -> np.ndarray:
        values = np.asarray(values)
        if values.shape != (self.num_envs,):
            raise ValueError(f"{name} has shape {list(values.shape)}; it must be [{self.num_envs}].")
        return values


def _frame_shape(obs_shape: tuple[int, ...], stack: int | None) -> tuple[int, ...]:
    """Returns the shape of the part of an observation that is new at each step."""
    if stack is None:
        return tuple(obs_shape)
    if not 1 <= stack <= 256:
        raise ValueError(f"stack ({stack}) must be in 1 .. 256, or None when an observation is one frame.")
    if not obs_shape or obs_shape[0] != stack:
        raise ValueError(f"obs_shape {tuple(obs_shape)} must begin with stack ({stack}), the stack axis first.")
    return tuple(obs_shape[1:])
