"""Atari games on ale-py's vector environment, under a protocol.

The emulator is asked for raw 210 x 160 grey frames and for nothing else: the resize, the stack, the end at a lost
life, the time limit and the seeds are ours, because the emulator's own differ from the paper's
(`docs/deviations.md`). Rewards are raw; the learner clips them.
"""

import dataclasses
import functools
import zlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from softbellman.arguments import nearest, squeeze
from softbellman.envs.atari.protocol import PAPER_ATARI, AtariProtocol
from softbellman.envs.atari.screens import SCREEN_HEIGHT, SCREEN_WIDTH, resizer
from softbellman.envs.checks import (
    check_tape,
    checked_actions,
    checked_num_envs,
    checked_observation,
    checked_seed,
    episode_seed,
)
from softbellman.envs.step import Scale, Step, Tape
from softbellman.extras import MissingExtra

_NO_LIMIT = 2**31 - 1  # ale-py reads 0 as "cut after every step"


class AtariEnv:
    """`E` copies of one Atari game for one run, as a `HostEnv`.

    Every game is started by a seeded reset of that copy alone, its seed a function of the run's seed, the stream
    (training or test), the copy and the game's index; the emulator's own automatic reset, with its step that
    ignores the action, is never used. The course of a copy therefore depends on its seed and actions only, not on how
    many copies there are or how their games interleave. Deviations D7, D8.

    Arrays in a returned `Step` are fresh: they are never written again by the environment.
    """

    def __init__(
        self,
        game: str,
        *,
        seed: int,
        protocol: AtariProtocol = PAPER_ATARI,
        num_envs: int = 1,
        training: bool = True,
        record: bool = False,
        threads: int | None = None,
    ):
        """Makes the emulators; the first `reset` starts the games.

        Args:
            game: a name from `games()`; `MsPacman` and `ms-pacman` are taken as `ms_pacman`.
            seed: seed of the run, `>= 0`.
            protocol: what the agent sees and when episodes end.
            num_envs: number of copies `E`.
            training: False gives test games: another stream of seeds, and lives do not end episodes.
            record: keeps a second emulator in step that renders in colour, for `screen`. Halves the speed.
            threads: emulator threads, by default one. No result depends on it.

        Raises:
            ValueError: for an unknown game or an argument out of range.
            MissingExtra: if ale-py or OpenCV is not installed.
        """
        self.game = game_id(game)
        self.seed, self.num_envs = checked_seed(seed), checked_num_envs(num_envs)
        self.protocol, self.training = protocol, training
        colours = (False, True) if record else (False,)
        self._emulators = [
            _emulators(self.game, protocol, self.num_envs, threads or 1, colour=colour) for colour in colours
        ]
        self._next_game: _NextGame | None = None
        if self.num_envs == 1:
            self._next_game = _NextGame([_emulators(self.game, protocol, 1, 1, colour=colour) for colour in colours])
        self.action_meanings = tuple(action.name for action in self._emulators[0].ale.get_action_set())
        self.num_actions = len(self.action_meanings)
        self.stack: int | None = protocol.stack
        self.legal = None  # every action is legal at any time
        self.frames_per_step = protocol.frame_skip
        self.obs_shape = (protocol.stack, protocol.height, protocol.width)
        self.obs_dtype = np.dtype(np.uint8)
        self.obs_scale: Scale = 255.0
        self.raw_shape, self.raw_dtype, self.first_action = self.obs_shape, self.obs_dtype, 0
        self._resize = resizer(protocol)
        limit = protocol.max_frames_per_game
        self._max_steps = _NO_LIMIT if limit is None else -(-limit // protocol.frame_skip)
        self._games = np.full(self.num_envs, -1)  # index of the current game, per copy
        self._steps = np.zeros(self.num_envs, np.int64)  # agent steps since it started
        self._actions = [bytearray() for _ in range(self.num_envs)]
        self._lives = np.zeros(self.num_envs, np.int64)  # lives at the start of the learning episode
        self._stack = np.zeros((self.num_envs, *self.obs_shape), np.uint8)
        self._screens: np.ndarray | None = None

    def reset(self) -> np.ndarray:
        """Starts the first (or next) game of every copy and returns `obs` `[E, stack, height, width]` uint8."""
        self._games += 1
        self._start(np.ones(self.num_envs, bool))
        return self._stack.copy()

    def step(self, actions: np.ndarray) -> Step:
        """Takes `actions` `[E]` and returns the `Step`.

        A lost life that ends an episode clears the history in `obs`, while `next_obs` keeps it: it is the true
        successor. At the time limit `truncated` is set; a game that is over on the same step is `terminated` alone.
        The frame on which a game is over is not seen: Deviations D5, D6.

        Raises:
            ValueError: if `actions` is not `E` integers in `0 .. num_actions - 1`.
            RuntimeError: before the first `reset`.
        """
        actions = checked_actions(actions, self.num_envs, self.num_actions)
        if self._games[0] < 0:
            raise RuntimeError("step before the first reset; call reset() once")
        next_obs, reward, game_over, life_lost = self._advance(actions)
        training_end = game_over | life_lost
        truncated = (self._steps >= self._max_steps) & ~game_over
        game_ended = game_over | truncated
        if game_ended.any():
            self._games[game_ended] += 1
            last_screens = self._screens
            self._start(game_ended)
            self._screens = last_screens
        terminated = training_end if self.training else game_over
        return Step(self._stack.copy(), next_obs, reward, terminated, truncated, game_ended, training_end)

    def close(self) -> None:
        """Releases the emulators."""
        if self._next_game is not None:
            self._next_game.close()
        for emulators in self._emulators:
            emulators.close()

    @property
    def tape(self) -> tuple[Tape, ...]:
        """One `Tape` per copy: with the run's seed, all the state there is."""
        return tuple(
            Tape(
                int(self._games[env]),
                self._game_seed(env),
                np.frombuffer(bytes(self._actions[env]), np.uint8).astype(np.uint16),
                zlib.crc32(self._stack[env]),
            )
            for env in range(self.num_envs)
        )

    def restore(self, tape: Sequence[Tape]) -> np.ndarray:
        """Plays the games of `tape` again up to where they were, and returns the current `obs`.

        The environment then goes on bit for bit as the one the tape came from. Replaying runs at the emulator's
        speed: under half a second for a typical game.

        Raises:
            ValueError: if the tape is of another number of copies or another seed, or ends on another screen.
        """
        check_tape(tape, self.num_envs, self.seed, training=self.training)
        self._games[:] = [one.game for one in tape]
        lengths = np.array([len(one.actions) for one in tape])
        # Copies are stepped together, so a shorter game starts later; what its copy did before is thrown away.
        starts = lengths.max() - lengths
        self._start(np.ones(self.num_envs, bool))
        for moment in range(lengths.max() + 1):
            starting = starts == moment
            if moment and starting.any():
                self._start(starting)
            if moment < lengths.max():
                playing = zip(tape, starts.tolist(), strict=True)
                actions = [one.actions[moment - start] if moment >= start else 0 for one, start in playing]
                self._advance(np.array(actions, np.int32))
        for env, one in enumerate(tape):
            if zlib.crc32(self._stack[env]) != one.checksum:
                raise ValueError(
                    f"the tape of copy {env} does not end on the screen it was recorded on: "
                    "the game, the protocol, ale-py or OpenCV is not the same"
                )
        return self._stack.copy()

    def rehearse(self) -> list[str]:
        """Returns nothing: an environment of ours is known to be sound."""
        return []

    def screen(self, env: int = 0) -> np.ndarray:
        """Returns the true screen of copy `env`, `[210, 160, 3]` uint8 RGB: the last raw frame, not pooled.

        Where the last action ended a game it is that game's last screen, not the first of the next.

        Raises:
            RuntimeError: unless the environment was made with `record=True` and reset.
        """
        if self._screens is None:
            raise RuntimeError("no colour screen is kept; make the environment with record=True and reset it")
        return self._screens[env].copy()

    def taken(self, raw: Any) -> np.ndarray:
        """Returns an observation that someone else has, as `reset` and `step` give it; see `HostEnv.taken`."""
        return checked_observation(raw, self.obs_shape, self.obs_dtype, f"atari/{self.game}")

    def describe(self) -> dict[str, Any]:
        """Returns everything that makes scores of two runs comparable or not, for a log and for a run's record."""
        return {
            "environment": f"atari/{self.game}",
            "training": self.training,
            **dataclasses.asdict(self.protocol),
            "life_loss_terminates": self.training and self.protocol.life_loss_terminates,
            "num_actions": self.num_actions,
            "reward_clip": "none in the environment",
        }

    def _game_seed(self, env: int, later: int = 0) -> int:
        return episode_seed(self.seed, training=self.training, env=env, episode=int(self._games[env]) + later)

    def _start(self, which: np.ndarray) -> None:
        """Starts game number `_games[e]` of every copy `e` where `which`."""
        starting = np.flatnonzero(which).tolist()
        seeds = np.array([self._game_seed(env) for env in starting])
        if self._next_game is None:
            started = _reset(self._emulators, seeds, which)
        else:
            self._emulators, started = self._next_game.begin(self._emulators, seeds)
            self._next_game.prepare(np.array([self._game_seed(0, later=1)]))
        frames, info = started[0]
        for env in starting:
            self._actions[env].clear()
            self._stack[env, :-1] = 0
            self._resize(frames[env, -1], self._stack[env, -1])
        self._steps[which] = 0
        self._lives[which] = info["lives"][which]
        for screens, _ in started[1:]:
            self._screens = screens[:, -1].copy()

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Steps every copy and returns `next_obs`, `reward`, `game_over` and `life_lost`; starts no game."""
        frames, reward, game_over, _, info = self._emulators[0].step(actions)
        for colour in self._emulators[1:]:
            self._screens = colour.step(actions)[0][:, -1].copy()
        next_obs = np.empty_like(self._stack)
        next_obs[:, :-1] = self._stack[:, 1:]
        for env, action in enumerate(actions.tolist()):
            self._resize(frames[env, -1], next_obs[env, -1])
            self._actions[env].append(action)
        self._steps += 1
        self._stack[:] = next_obs
        life_lost = np.zeros(self.num_envs, bool)
        if self.protocol.life_loss_terminates:
            life_lost = info["lives"] < self._lives
            if life_lost.any():
                self._lives[life_lost] = info["lives"][life_lost]
                if self.training:
                    self._stack[life_lost, :-1] = 0
        return next_obs, reward.astype(np.float32), game_over.astype(bool), life_lost


class _NextGame:
    """Starts the next game of a single copy on spare emulators while the current one is played.

    A seeded start takes as long as a hundred steps, since ale-py loads the game anew. The spare emulators do what the
    others would have done: a game is a function of its seed and actions, whichever emulator plays it.
    """

    def __init__(self, spares: list[Any]):
        self._spares = spares
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="next-game")
        self._prepared: tuple[int, Future[list[Any]]] | None = None

    def prepare(self, seed: np.ndarray) -> None:
        """Begins to start the game of `seed` `[1]` in the background."""
        self._prepared = int(seed[0]), self._worker.submit(_reset, self._spares, seed, np.ones(1, bool))

    def begin(self, emulators: list[Any], seed: np.ndarray) -> tuple[list[Any], list[Any]]:
        """Returns the emulators on which the game of `seed` `[1]` has started, and what their resets returned."""
        if self._prepared is not None:
            prepared_seed, future = self._prepared
            started = future.result()
            if prepared_seed == seed[0]:
                emulators, self._spares = self._spares, emulators
                return emulators, started
        return emulators, _reset(emulators, seed, np.ones(1, bool))

    def close(self) -> None:
        """Waits for a start under way and releases the spare emulators."""
        self._worker.shutdown()
        for emulators in self._spares:
            emulators.close()


def _reset(emulators: list[Any], seeds: np.ndarray, which: np.ndarray) -> list[Any]:
    """Starts games by a lone seeded reset of each emulator, of the copies `which` only."""
    return [emulator.reset(seed=seeds, options={"reset_mask": which}) for emulator in emulators]


def games() -> list[str]:
    """Lists the games of ale-py by their names.

    Raises:
        MissingExtra: if ale-py is not installed.
    """
    return sorted(_ale_py().roms.get_all_rom_ids())


def game_id(name: str) -> str:
    """Returns the name of a game as ale-py spells it: `ms_pacman` for `MsPacman`, `ms-pacman` or `MS_PACMAN`.

    Raises:
        ValueError: for a name that is no game; the nearest are listed.
    """
    available = games()
    found = {squeeze(game): game for game in available}.get(squeeze(name))
    if found is None:
        raise ValueError(f"unknown Atari game {name!r}{nearest(name, available)}")
    return found


@functools.cache
def _ale_py() -> Any:
    """Imports ale-py with everything used here, and silences its banner."""
    try:
        import ale_py
        import ale_py.roms
        import ale_py.vector_env
    except ModuleNotFoundError as error:
        raise MissingExtra("ale-py", "atari") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py


def _emulators(game: str, protocol: AtariProtocol, num_envs: int, threads: int, *, colour: bool) -> Any:
    """Makes ale-py's vector environment with every default that would change the game set by hand."""
    return _ale_py().vector_env.AtariVectorEnv(
        game,
        num_envs,
        num_threads=min(threads, num_envs),
        max_num_frames_per_episode=_NO_LIMIT,
        repeat_action_probability=protocol.repeat_action_probability,
        full_action_space=protocol.action_set == "full",
        img_height=SCREEN_HEIGHT,
        img_width=SCREEN_WIDTH,
        grayscale=not colour,
        stack_num=1,
        frameskip=protocol.frame_skip,
        maxpool=protocol.frame_pool == 2 and not colour,
        noop_max=protocol.noop_max + 1,  # ale-py draws from 0 .. noop_max - 1
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        use_fire_reset=protocol.fire_reset,
    )
