"""Argument checks and game seeds that all adapters on the host share."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from softbellman.arguments import as_integer
from softbellman.envs.step import Tape


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


def checked_actions(
    actions: np.ndarray, num_envs: int, num_actions: int, legal: np.ndarray | None = None
) -> np.ndarray:
    """Returns `actions` as int32 `[E]`, or raises for a wrong shape, kind or range, or one not `legal` `[E, A]`."""
    actions = np.asarray(actions)
    if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
        raise ValueError(f"actions must be integers of shape ({num_envs},), got {actions.dtype} of {actions.shape}")
    if not all(0 <= action < num_actions for action in actions.tolist()):
        raise ValueError(f"actions must lie in 0 .. {num_actions - 1}, got {actions.tolist()}")
    if legal is not None and not legal[np.arange(num_envs), actions].all():
        raise ValueError(f"actions {actions.tolist()} must be legal, and the masks of legal ones are {legal.tolist()}")
    return actions.astype(np.int32)


def given_to(name: str) -> str:
    """Returns what a message begins with about an observation that a policy of an environment was given."""
    return f"the policy of {name} was given"


def checked_observation(raw: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> np.ndarray:
    """Returns an observation of an environment of ours, `[*shape]` of a dtype, that someone else has.

    Raises:
        ValueError: if it has another shape, or numbers that the dtype can't hold.
    """
    array = np.asarray(raw)
    if array.shape != shape:
        raise ValueError(f"{given_to(name)} an observation of shape {array.shape}; the right shape is {shape}")
    if array.dtype.kind not in ("biuf" if dtype.kind == "f" else "biu"):
        raise ValueError(f"{given_to(name)} an observation of dtype {array.dtype}; it takes raw ones, of {dtype}")
    with np.errstate(over="ignore"):
        held = array.astype(dtype)
    is_lost = ~np.isfinite(held) if dtype.kind == "f" else held != array
    if is_lost.any():
        raise ValueError(
            f"{given_to(name)} an observation with {array[is_lost][0]}, which is nothing that {dtype} holds"
        )
    return held
