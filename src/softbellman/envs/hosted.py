"""Wrapper of a device environment: the interface of those on the host."""

import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from softbellman.envs.checks import (
    check_tape,
    checked_actions,
    checked_num_envs,
    checked_observation,
    checked_seed,
    episode_seed,
)
from softbellman.envs.device import copy_keys
from softbellman.envs.step import DeviceEnv, Step, Tape

_TAPE_STRIDE = 1024  # tapes are padded to multiples of this before they are played, so that few lengths are compiled


class HostedEnv:
    """`E` copies of a device environment for one run, as a `HostEnv`. They run on the CPU, whatever else there is.

    A copy's key is that of `copy_keys`, so that its games are those of any loop that takes its keys from there.
    """

    def __init__(self, env: DeviceEnv, *, seed: int, num_envs: int = 1, training: bool = True):
        """Takes the environment; the first `reset` starts the games.

        Args:
            env: one copy, as pure functions.
            seed: seed of the run, `>= 0`.
            num_envs: number of copies `E`.
            training: False gives the games of the test phases: another stream of keys.

        Raises:
            ValueError: for a number out of range, or if JAX was told to leave out the CPU.
        """
        self.env, self.training = env, training
        self.seed, self.num_envs = checked_seed(seed), checked_num_envs(num_envs)
        self.num_actions, self.obs_shape = env.num_actions, env.obs_shape
        self.obs_dtype, self.obs_scale, self.frames_per_step = env.obs_dtype, env.obs_scale, env.frames_per_step
        self.stack: int | None = None
        self.raw_shape, self.raw_dtype, self.first_action = self.obs_shape, self.obs_dtype, 0
        self.as_mdp = getattr(env, "as_mdp", None)
        keys = copy_keys(self.seed, training=training, num_envs=self.num_envs)
        self._keys = jax.device_put(keys, _cpu())
        self._state: Any = None
        self._games = np.full(self.num_envs, -1, np.int32)
        self._kept = np.zeros(self.num_envs, np.int32)  # the action that the game before carried out last
        self._actions: list[list[int]] = [[] for _ in range(self.num_envs)]
        self._obs = self._seen = np.zeros((self.num_envs, *self.obs_shape), self.obs_dtype)
        self.legal = np.ones((self.num_envs, self.num_actions), bool) if env.is_masked else None

    def reset(self) -> np.ndarray:
        """Starts the first (or next) game of every copy and returns `obs` `[E, *obs_shape]`."""
        if self._state is not None:
            self._kept = np.array(_last_action(self.env, self._state))
        self._games += 1
        self._actions = [[] for _ in range(self.num_envs)]
        self._state, obs = _begin(self.env, self._keys, self._games, self._kept)
        self._obs = self._seen = np.asarray(obs)
        self._look()
        return self._obs

    def step(self, actions: np.ndarray) -> Step:
        """Takes `actions` `[E]` and returns the `Step`; a copy whose game ended is in its next game.

        Raises:
            ValueError: if `actions` is not `E` integers in `0 .. num_actions - 1`, or one is illegal.
            RuntimeError: before the first `reset`.
        """
        actions = checked_actions(actions, self.num_envs, self.num_actions, self.legal)
        if self._state is None:
            raise RuntimeError("step before the first reset; call reset() once")
        self._state, taken = _step(self.env, self._state, actions, self._keys)
        step = jax.tree.map(np.asarray, taken)
        for played, action in zip(self._actions, actions.tolist(), strict=True):
            played.append(action)
        if step.game_ended.any():
            self._games = self._games + step.game_ended
            self._kept = np.where(step.game_ended, _last_action(self.env, self._state), self._kept)
            for copy in np.flatnonzero(step.game_ended).tolist():
                self._actions[copy].clear()
        self._obs, self._seen, self.legal = step.obs, step.next_obs, step.legal
        return step

    @property
    def tape(self) -> tuple[Tape, ...]:
        """One `Tape` per copy; its actions begin with the one that the game before carried out last."""
        return tuple(
            Tape(
                game,
                self._game_seed(copy, game),
                np.array([self._kept[copy], *self._actions[copy]], np.uint16),
                zlib.crc32(np.ascontiguousarray(self._obs[copy])),
            )
            for copy, game in enumerate(self._games.tolist())
        )

    def restore(self, tape: Sequence[Tape]) -> np.ndarray:
        """Plays the games of `tape` again up to where they were, and returns the current `obs`.

        Raises:
            ValueError: if the tape is of another number of copies or another seed, or ends elsewhere than when it was
                recorded.
        """
        check_tape(tape, self.num_envs, self.seed, training=self.training)
        self._games = np.array([one.game for one in tape], np.int32)
        self._kept = np.array([one.actions[0] for one in tape], np.int32)
        self._actions = [one.actions[1:].tolist() for one in tape]
        lengths = np.array([len(played) for played in self._actions], np.int32)
        padded = np.zeros((self.num_envs, (1 + lengths.max() // _TAPE_STRIDE) * _TAPE_STRIDE), np.int32)
        for row, played in zip(padded, self._actions, strict=True):
            row[: len(played)] = played
        self._state, obs = _replay(self.env, self._keys, self._games, self._kept, padded, lengths)
        self._obs = self._seen = np.asarray(obs)
        for copy, one in enumerate(tape):
            if zlib.crc32(np.ascontiguousarray(self._obs[copy])) != one.checksum:
                raise ValueError(
                    f"the tape of copy {copy} does not end on the observation that it was recorded on: "
                    "the environment, its protocol or JAX's random numbers are not the same"
                )
        self._look()
        return self._obs

    def rehearse(self) -> list[str]:
        """Returns nothing: an environment of ours is known to be sound."""
        return []

    def screen(self, env: int = 0) -> np.ndarray:
        """Returns the picture of copy `env` after the last action, `[height, width, 3]` uint8.

        Where that action ended a game it is the last picture of it, not the first of the next.

        Raises:
            RuntimeError: before the first `reset`.
        """
        if self._state is None:
            raise RuntimeError("no picture before the first reset; call reset() once")
        return self.env.screen(self._seen[env])

    def taken(self, raw: Any) -> np.ndarray:
        """Returns an observation that someone else has, as `reset` and `step` give it; see `HostEnv.taken`."""
        return checked_observation(raw, self.obs_shape, self.obs_dtype, self.env.describe()["environment"])

    def describe(self) -> dict[str, Any]:
        """Returns everything that makes scores of two runs comparable or not, for a log and for a run's record."""
        return {**self.env.describe(), "training": self.training}

    def close(self) -> None:
        """There is nothing to release."""

    def _look(self) -> None:
        """Sees which actions are legal now."""
        if self.legal is not None:
            self.legal = np.asarray(_legal(self.env, self._state))

    def _game_seed(self, copy: int, game: int) -> int:
        return episode_seed(self.seed, training=self.training, env=copy, episode=game)


def _cpu() -> Any:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        there = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError(
            f"JAX_PLATFORMS ({there}) leaves out the CPU, on which games of this environment are played; set "
            f"JAX_PLATFORMS={there},cpu, or unset it"
        ) from None


@partial(jax.jit, static_argnums=0)
def _begin(env: DeviceEnv, keys: Any, games: Any, kept: Any) -> Any:
    return jax.vmap(env.begin)(keys, games, kept)


@partial(jax.jit, static_argnums=0)
def _step(env: DeviceEnv, state: Any, actions: Any, keys: Any) -> Any:
    return jax.vmap(env.step)(state, actions, keys)


@partial(jax.jit, static_argnums=0)
def _legal(env: DeviceEnv, state: Any) -> Any:
    return jax.vmap(env.legal)(state)


@partial(jax.jit, static_argnums=0)
def _last_action(env: DeviceEnv, state: Any) -> jax.Array:
    return jax.vmap(env.last_action)(state)


@partial(jax.jit, static_argnums=0)
def _replay(env: DeviceEnv, keys: Any, games: Any, kept: Any, actions: Any, lengths: Any) -> Any:
    """Plays `actions` `[E, T]`, of each copy as many as its length says, and returns the states and observations."""

    def one(key: jax.Array, game: jax.Array, kept: jax.Array, actions: jax.Array, length: jax.Array) -> Any:
        def play(moment: jax.Array, now: Any) -> Any:
            state, taken = env.step(now[0], actions[moment], key)
            return state, taken.obs

        return jax.lax.fori_loop(0, length, play, env.begin(key, game, kept))

    return jax.vmap(one)(keys, games, kept, actions, lengths)
