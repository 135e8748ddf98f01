"""Environments by name, and what every host adapter shares: seeds, tapes and checks.

`atari/<game>` is an emulator of ale-py, `gym/<id>` any Gymnasium environment. An adapter is imported only when one
of its environments is made, so that an environment of one kind never asks for the packages of another.
"""

import difflib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from softbellman.envs.step import HostEnv, Step, Tape

__all__ = ["HostEnv", "MissingExtra", "Step", "Tape", "known", "make"]

PREFIXES = ("atari", "gym")


class MissingExtra(ImportError):
    """A package that an optional part needs is not installed; the message is one line naming the extra."""

    def __init__(self, package: str, extra: str):
        super().__init__(f'{package} is not installed; run: pip install "softbellman[{extra}]"')


def make(
    name: str,
    *,
    seed: int,
    num_envs: int = 1,
    training: bool = True,
    protocol: Any = None,
    record: bool = False,
) -> HostEnv:
    """Makes `num_envs` copies of the environment called `name`.

    Args:
        name: `atari/<game>`, `gym/<id>` or `gym/<module>:<id>`.
        seed: seed of the run, `>= 0`. Every game of every copy has a seed of its own, derived from it.
        num_envs: number of copies `E`.
        training: False gives the games of the test phases: another stream of seeds, and no end at a lost life.
        protocol: an `AtariProtocol`, for `atari/` only; None is `PAPER_ATARI`.
        record: renders every step in colour, for `screen`.

    Raises:
        ValueError: for an unknown name (the nearest are listed), a protocol where none applies, or an environment
            that renders no pictures where they are asked for.
        MissingExtra: if the environment needs a package that is not installed.
    """
    prefix, _, rest = name.partition("/")
    if prefix == "ALE":
        from softbellman.envs.atari import game_id

        raise ValueError(f"{name} goes by atari/{game_id(rest.partition('-v')[0])} here, with an explicit protocol")
    if prefix not in PREFIXES or not rest:
        raise ValueError(
            f"unknown environment {name!r}; names look like "
            f"{', '.join(f'{known_prefix}/...' for known_prefix in PREFIXES)}{nearest(name, known())}"
        )
    if prefix == "atari":
        from softbellman.envs.atari import PAPER_ATARI, AtariEnv

        return AtariEnv(
            rest, seed=seed, protocol=protocol or PAPER_ATARI, num_envs=num_envs, training=training, record=record
        )
    if protocol is not None:
        raise ValueError(f"{name} takes no protocol; a protocol is for atari/<game> only")
    from softbellman.envs.gym import GymEnv

    return GymEnv(rest, seed=seed, num_envs=num_envs, training=training, record=record)


def known() -> list[str]:
    """Lists the names `make` takes, as far as the installed packages tell."""
    names = []
    try:
        from softbellman.envs import atari

        names += [f"atari/{game}" for game in atari.games()]
    except ImportError:
        pass
    try:
        from softbellman.envs import gym

        names += [f"gym/{environment}" for environment in gym.environments()]
    except ImportError:
        pass
    return names


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns `"; did you mean ...?"` with the names most like `name`, case and punctuation aside, or nothing."""
    squeezed = {squeeze(candidate): candidate for candidate in names}
    matches = difflib.get_close_matches(squeeze(name), squeezed, n=3, cutoff=0.6)
    return f"; did you mean {', '.join(squeezed[match] for match in matches)}?" if matches else ""


def squeeze(name: str) -> str:
    """Returns `name` in lower case with nothing but its letters and digits: `Ms-Pacman` and `ms_pacman` agree.

    >>> squeeze("Ms-Pacman")
    'mspacman'
    """
    return re.sub("[^a-z0-9]", "", name.lower())


def episode_seed(seed: int, *, training: bool, env: int, episode: int) -> int:
    """Returns the seed of one game: a hash of the run's seed, the stream, the copy and the game's index.

    Consecutive run seeds, copies and games share nothing, and training and test games never meet.

    Returns:
        An integer in `1 .. 2^31 - 1`, so that it fits where an int32 is expected and is never a special 0 or -1.
    """
    words = np.random.SeedSequence(seed, spawn_key=(0 if training else 1, env, episode)).generate_state(1, np.uint64)
    return 1 + int(words[0]) % (2**31 - 1)


def checked_seed(seed: int) -> int:
    """Returns `seed` as a Python integer, or raises for one that could not be repeated."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be an integer >= 0, got {seed!r}; a run without a seed cannot be repeated")
    return int(seed)


def checked_num_envs(num_envs: int) -> int:
    """Returns `num_envs`, or raises unless it is a positive integer."""
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    return int(num_envs)


def checked_actions(actions: np.ndarray, num_envs: int, num_actions: int) -> np.ndarray:
    """Returns `actions` as int32 `[E]`, or raises for a wrong shape, kind or range."""
    actions = np.asarray(actions)
    if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
        raise ValueError(f"actions must be integers of shape ({num_envs},), got {actions.dtype} of {actions.shape}")
    if not all(0 <= action < num_actions for action in actions.tolist()):
        raise ValueError(f"actions must lie in 0 .. {num_actions - 1}, got {actions.tolist()}")
    return actions.astype(np.int32)
