"""Environments by name, and what every host adapter shares: seeds, tapes and checks.

`atari/<game>` is an emulator of ale-py, `gym/<id>` any Gymnasium environment; `minatar/<game>` and `mdp/<example>` are
device environments, pure functions that `make` puts behind the interface of the others. An adapter is imported only
when one of its environments is made, so that an environment of one kind never asks for the packages of another.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from softbellman.arguments import as_integer
from softbellman.envs.minatar import GAMES, MinAtarProtocol
from softbellman.envs.step import DeviceEnv, HostEnv, Step, Tape

__all__ = ["DeviceEnv", "HostEnv", "MissingExtra", "Step", "Tape", "is_device", "known", "make", "make_device"]

DEVICE_PREFIXES = ("minatar", "mdp")
PREFIXES = ("atari", "gym", *DEVICE_PREFIXES)


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
        name: `atari/<game>`, `minatar/<game>`, `mdp/<example>`, `gym/<id>` or `gym/<module>:<id>`.
        seed: seed of the run, `>= 0`. Every game of every copy has a seed of its own, derived from it.
        num_envs: number of copies `E`.
        training: False gives the games of the test phases: another stream of seeds, and no end at a lost life.
        protocol: an `AtariProtocol` for `atari/`, a `MinAtarProtocol` for `minatar/`; None is `PAPER_ATARI`, or that
            of the reference package.
        record: renders every step in colour, for `screen`.

    Raises:
        ValueError: for an unknown name (the nearest are listed), a protocol where none applies, or an environment
            that renders no pictures where they are asked for.
        MissingExtra: if the environment needs a package that is not installed.
    """
    prefix, rest = _parts(name)
    seed, num_envs = checked_seed(seed), checked_num_envs(num_envs)
    if prefix in DEVICE_PREFIXES:
        env = make_device(name, protocol)
        from softbellman.envs.hosted import HostedEnv

        return HostedEnv(env, seed=seed, num_envs=num_envs, training=training)
    if prefix == "atari":
        from softbellman.envs.atari import PAPER_ATARI, AtariEnv

        return AtariEnv(
            rest, seed=seed, protocol=protocol or PAPER_ATARI, num_envs=num_envs, training=training, record=record
        )
    if protocol is not None:
        raise ValueError(f"{name} takes no protocol; one is for atari/<game> and minatar/<game> only")
    from softbellman.envs.gym import GymEnv

    return GymEnv(rest, seed=seed, num_envs=num_envs, training=training, record=record)


def make_device(name: str, protocol: MinAtarProtocol | None = None) -> DeviceEnv:
    """Makes the device environment called `name`: one copy, as pure functions.

    Args:
        name: `minatar/<game>` or `mdp/<example>`.
        protocol: for `minatar/` only; None is that of the reference package.

    Raises:
        ValueError: for an unknown name (the nearest are listed), or a protocol where none applies.
        MissingExtra: if JAX is not installed.
    """
    prefix, rest = _parts(name)
    if prefix not in DEVICE_PREFIXES:
        raise ValueError(
            f"{name} is played on the host; {' and '.join(f'{one}/...' for one in DEVICE_PREFIXES)} are not"
        )
    try:
        import jax  # noqa: F401
    except ImportError as error:
        raise MissingExtra("jax", "train") from error
    if prefix == "minatar":
        from softbellman.envs.minatar.env import MinAtarEnv

        return MinAtarEnv(_named(prefix, rest, GAMES), protocol or MinAtarProtocol())
    if protocol is not None:
        raise ValueError(f"{name} takes no protocol; one is for atari/<game> and minatar/<game> only")
    from softbellman.envs.mdp import MDPEnv, examples

    return MDPEnv(_named(prefix, rest, examples()))


def is_device(name: str) -> bool:
    """Whether `name` is of a device environment, which a loop can compile together with its learner."""
    prefix, _, rest = name.partition("/")
    return prefix in DEVICE_PREFIXES and bool(rest)


def _parts(name: str) -> tuple[str, str]:
    """Splits a name into its kind and what comes after, or raises for one that could not be meant."""
    prefix, _, rest = name.partition("/")
    if prefix == "ALE":
        from softbellman.envs.atari import game_id

        raise ValueError(f"{name} goes by atari/{game_id(rest.partition('-v')[0])} here, with an explicit protocol")
    if prefix not in PREFIXES or not rest:
        raise ValueError(
            f"unknown environment {name!r}; names look like "
            f"{', '.join(f'{known_prefix}/...' for known_prefix in PREFIXES)}{nearest(name, known())}"
        )
    return prefix, rest


def _named(prefix: str, rest: str, names: Sequence[str]) -> str:
    """Returns the one of `names` that is meant, case and punctuation aside, or raises with the nearest."""
    found = {squeeze(name): name for name in names}.get(squeeze(rest))
    if found is None:
        full = [f"{prefix}/{name}" for name in names]
        hint = nearest(f"{prefix}/{rest}", full) if nearest(rest, names) else f"; there are {', '.join(full)}"
        raise ValueError(f"unknown environment {f'{prefix}/{rest}'!r}{hint}")
    return found


def known() -> list[str]:
    """Lists the names `make` takes, as far as the installed packages tell."""
    names = [f"minatar/{game}" for game in GAMES]
    try:
        from softbellman.envs import atari

        names += [f"atari/{game}" for game in atari.games()]
    except ImportError:
        pass
    try:
        from softbellman.envs import mdp

        names += [f"mdp/{example}" for example in mdp.examples()]
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
    try:
        number = as_integer(seed, "seed")
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"seed must be an integer >= 0, got {seed!r}; a run without a seed cannot be repeated")
    return number


def checked_num_envs(num_envs: int) -> int:
    """Returns `num_envs`, or raises unless it is a positive integer."""
    number = as_integer(num_envs, "num_envs")
    if number < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    return number


def check_tape(tape: Sequence[Tape], num_envs: int, seed: int, *, training: bool) -> None:
    """Refuses a tape of another number of copies, another run seed, or of the other stream.

    Raises:
        ValueError: with what differs.
    """
    if len(tape) != num_envs:
        raise ValueError(f"the tape has {len(tape)} copies, this environment {num_envs}")
    for env, one in enumerate(tape):
        if one.seed != episode_seed(seed, training=training, env=env, episode=one.game):
            raise ValueError(f"the tape of copy {env} is of another run seed or stream than seed {seed}")


def checked_actions(actions: np.ndarray, num_envs: int, num_actions: int) -> np.ndarray:
    """Returns `actions` as int32 `[E]`, or raises for a wrong shape, kind or range."""
    actions = np.asarray(actions)
    if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
        raise ValueError(f"actions must be integers of shape ({num_envs},), got {actions.dtype} of {actions.shape}")
    if not all(0 <= action < num_actions for action in actions.tolist()):
        raise ValueError(f"actions must lie in 0 .. {num_actions - 1}, got {actions.tolist()}")
    return actions.astype(np.int32)
