"""Step, and the interfaces of environments on the host and on a device.

Two observations, because they differ exactly when an episode ends: `next_obs` is the true successor of the
action, which the target may bootstrap from; `obs` is what to act on next, already reset. Two ends, because a
time limit is not an end of the task: only `terminated` stops bootstrapping.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

Array = Any  # a NumPy array on the host, a JAX array on a device
Scale = float | tuple[float, ...]  # of observations: see `HostEnv.obs_scale`


class Step(NamedTuple):
    """One step of `E` environments side by side.

    Attributes:
        obs: `[E, *obs_shape]`, what to act on next; the first observation of the next episode where one ended.
        next_obs: `[E, *obs_shape]`, the true successor of the action taken.
        reward: `[E]` float32, raw: never clipped, never scaled.
        terminated: `[E]` bool, an end for the learner: no bootstrapping. A lost life where the protocol says so.
        truncated: `[E]` bool, cut by a time limit: the target bootstraps from `next_obs`.
        game_ended: `[E]` bool, the whole game is over and was started anew: the unit in which scores are counted.
            True wherever `truncated` is; False on a step that only lost a life.
        training_end: `[E]` bool, what `terminated` would be in training. In a training environment the two are one;
            in a test game, which goes on after a lost life, this says where the learner would see an end.
        legal: `[E, A]` bool, the legal actions at `obs`; None: all of them always are.
        next_legal: `[E, A]` bool, the legal actions at `next_obs`, all where `terminated`; None where `legal` is.
    """

    obs: Array
    next_obs: Array
    reward: Array
    terminated: Array
    truncated: Array
    game_ended: Array
    training_end: Array
    legal: Array | None = None
    next_legal: Array | None = None


class Tape(NamedTuple):
    """All that is needed to play a game again up to now: an emulator's state without the emulator.

    Attributes:
        game: index of the game within its copy of the environment, from 0.
        seed: seed the game was started with, as `episode_seed` gives it.
        actions: `[t]` uint16, the actions taken since; before them, in a hosted device environment, the action that
            the game before carried out last.
        checksum: CRC-32 of the bytes of the current observation: a replay that went astray is noticed.
    """

    game: int
    seed: int
    actions: np.ndarray
    checksum: int


class HostEnv(Protocol):
    """`E` copies of one environment, stepped on the host, for one run.

    An implementation is made with its seed. The same seed and the same actions give the same steps.

    Attributes:
        num_envs: `E`.
        num_actions: number of actions: the learner's are `0 .. num_actions - 1`, whatever the environment's own.
        obs_shape: shape of one observation, the stack axis (if any) first: `(4, 84, 84)` for Atari.
        obs_dtype: dtype of the observations, `uint8` for pixels.
        obs_scale: what observations are divided by as they enter a network: 255 for pixels, 1 for what enters as it is,
            or a number for each entry of one observation, flattened.
        stack: number of frames along the first axis of an observation, or None when an observation is one frame.
        frames_per_step: emulator frames that one agent step advances (4 for Atari, 1 elsewhere).
        legal: `[E, A]` bool, the actions that are legal now, a new array after each `reset`, `step` and `restore`; None
            where all of them always are. An illegal one must never be taken.
        raw_shape: shape of an observation as the environment itself gives it, before it is laid out as `obs_shape`.
        raw_dtype: its dtype then, which may have more bits than `obs_dtype`.
        first_action: number by which the environment itself calls the learner's action 0.

    One that is a finite MDP may offer `as_mdp(gamma)`, which gives a `FiniteMDP` and the observation `[S, *obs_shape]`
    of each state; learned values are then held against its exact ones.
    """

    num_envs: int
    num_actions: int
    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype[Any]
    obs_scale: Scale
    stack: int | None
    frames_per_step: int
    raw_shape: tuple[int, ...]
    raw_dtype: np.dtype[Any]
    first_action: int

    @property
    def legal(self) -> np.ndarray | None:
        """See above."""
        ...

    def taken(self, raw: Any) -> np.ndarray:
        """Returns a raw observation that someone else has, as `reset` and `step` give it: `[*obs_shape]`.

        Raises:
            ValueError: if this environment could not have given it.
        """
        ...

    def reset(self) -> np.ndarray:
        """Starts the first (or next) game of every copy and returns `obs` `[E, *obs_shape]`."""
        ...

    def step(self, actions: np.ndarray) -> Step:
        """Takes `actions` `[E]` (integers in `0 .. num_actions - 1`) and returns the `Step`."""
        ...

    @property
    def tape(self) -> tuple[Tape, ...]:
        """One `Tape` per copy: with the run's seed, all the state there is."""
        ...

    def restore(self, tape: Sequence[Tape]) -> np.ndarray:
        """Plays the games of `tape` again up to where they were, and returns the current `obs`.

        Raises:
            ValueError: if the tape is of other games, or ends elsewhere than when it was recorded.
        """
        ...

    def rehearse(self) -> list[str]:
        """Tries a step, where the environment is not ours, to be closed then, and returns what a user should know.

        Raises:
            ValueError: if it can't be trained with.
        """
        ...

    def screen(self, env: int = 0) -> np.ndarray:
        """Returns what a viewer of copy `env` sees, `[height, width, 3]` uint8, if it was made with `record=True`.

        It is the screen after the last action, also where that action ended the game and a new one has begun.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Returns everything that makes scores of two runs comparable or not."""
        ...

    def close(self) -> None:
        """Releases the emulators."""
        ...


class DeviceEnv(Protocol):
    """ONE copy of an environment as pure functions, to be compiled: loops map them over copies and runs.

    It is hashable, and a static argument of what is compiled. It holds no state: a state goes in and comes out.

    `key` is the copy's own (`device.copy_keys`) and the same at every call: what happens in a game is a function of the
    key, the game's index, the number of steps since it began, the action kept from the game before, and the actions.
    """

    @property
    def num_actions(self) -> int:
        """The learner's actions are `0 .. num_actions - 1`."""
        ...

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Shape of one observation, its channels last where it has planes: `(10, 10, 4)`."""
        ...

    @property
    def obs_dtype(self) -> np.dtype[Any]:
        """Dtype of the observations: bool for binary planes, float32 otherwise."""
        ...

    @property
    def obs_scale(self) -> Scale:
        """Divisor of observations as they enter a network: see `HostEnv.obs_scale`."""
        ...

    @property
    def frames_per_step(self) -> int:
        """Frames that one agent step advances."""
        ...

    @property
    def is_masked(self) -> bool:
        """Some actions are illegal in some states. Such an environment is trained on by the loop on the host."""
        ...

    def begin(self, key: Array, game: Array, last_action: Array) -> tuple[Any, Array]:
        """Begins game number `game`, given the action that the game before carried out last.

        Returns:
            The state, a pytree of arrays, and the first `obs` `[*obs_shape]`.
        """
        ...

    def reset(self, key: Array) -> tuple[Any, Array]:
        """Begins the first game of a copy: `begin(key, 0, 0)`."""
        ...

    def step(self, state: Any, action: Array, key: Array) -> tuple[Any, Step]:
        """Takes an action and returns the next state and the `Step`, without its `E` axis.

        Where the game ended, the state and `obs` are the next game's; `next_obs` is the true successor all the same.
        """
        ...

    def legal(self, state: Any) -> Array | None:
        """Returns the legal actions `[A]` bool of a state; None where `is_masked` is False."""
        ...

    def last_action(self, state: Any) -> Array:
        """Returns the action that was carried out last, which `begin` takes for the next game."""
        ...

    def screen(self, obs: np.ndarray) -> np.ndarray:
        """Draws an observation, on the host: `[height, width, 3]` uint8."""
        ...

    def describe(self) -> dict[str, Any]:
        """Returns everything that makes scores of two runs comparable or not."""
        ...
