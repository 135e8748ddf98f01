"""Finite MDPs from files: JSON for people, NumPy's .npz for programs. Nothing in a file is ever run.

JSON, for example this one of two states, in which action 1 ends the episode:

    {"states": ["here", "there"], "actions": 2, "gamma": 0.9,
     "transitions": [["here", 0, "there", 1.0, -1.0],
                     ["there", 0, "here", 0.5, -1.0], ["there", 0, "there", 0.5, -1.0],
                     ["there", 1, null, 1.0, 10.0, true]]}

- `states`, `actions`: how many there are, and then they are called 0, 1, 2, ...; or a list of their names.
- `gamma`: at least 0 and below 1; may be left out where it is given in another way.
- `transitions`: state, action, next state, probability, reward; and `true` where the episode ends, whatever the next
  state. Those of the same state and action must have probabilities that sum to 1. An action without transitions is not
  legal in that state; a state without any is terminal.

An .npz file has arrays named after the arguments of `FiniteMDP` (`transition` as `[S, A, S]`, `reward`, `gamma`,
`terminal`, `legal`), or after those of `FiniteMDP.from_transitions` (`state`, `action`, `next_state`, `probability`,
`reward`, `terminated`, `num_states`, `num_actions`, `gamma`), as `numpy.savez` writes them.
"""

import json
import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from softbellman.arguments import as_integer, as_path
from softbellman.memory import available_memory
from softbellman.tabular.mdp import FiniteMDP

_DENSE = ("transition", "reward", "terminal", "legal")
_LISTS = ("state", "action", "next_state", "probability", "reward", "terminated")
_COUNTS = ("num_states", "num_actions")
_JSON_GROWTH = 20  # bytes in memory for a byte of JSON, at most
_COPIES = 6  # of each array, while an MDP is built from it


def read_mdp(path: str | Path, *, gamma: float | None = None) -> FiniteMDP:
    """Reads an MDP from a .json or .npz file, in the format that this module describes.

    Args:
        path: the file.
        gamma: a discount factor to use instead of the file's.

    Raises:
        ValueError: the file is no MDP; the message names the file, and the line or the entry at fault.
        MemoryError: there is not enough memory for it; said before any is taken.
        OSError: it cannot be read.
    """
    path = as_path(path)
    readers: dict[str, Callable[[Path, float | None], FiniteMDP]] = {".json": _read_json, ".npz": _read_npz}
    if path.suffix not in readers:
        raise ValueError(
            f"{path}: an MDP is read from .json or .npz, not from {path.suffix or 'a file without ending'}."
        )
    try:
        return readers[path.suffix](path, gamma)
    except (ValueError, MemoryError) as error:
        raise type(error)(f"{path}: {error}") from None


def _read_json(path: Path, gamma: float | None) -> FiniteMDP:
    _check_memory(path.stat().st_size * _JSON_GROWTH)
    try:
        document = json.loads(path.read_bytes(), object_pairs_hook=_object, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: no JSON: {error.msg}.") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start}: no text in UTF-8.") from None
    except RecursionError:
        raise ValueError("lists within lists without end.") from None
    if not isinstance(document, dict):
        raise ValueError("it must hold one object: {...}.")
    _check_names(document, needed=("states", "actions", "transitions"), allowed=("gamma",))
    entries = document["transitions"]
    if not isinstance(entries, list) or not entries:
        raise ValueError("transitions must be a list with at least one transition in it.")
    # Each state, and each action, is in some transition: no small file asks for a large MDP.
    states = _index(document["states"], "states", most=2 * len(entries))
    actions = _index(document["actions"], "actions", most=len(entries))
    _check_memory(len(states) * len(actions) * 8 * _COPIES)
    lists = zip(*(_transition(i, entry, states, actions) for i, entry in enumerate(entries)), strict=True)
    return FiniteMDP.from_transitions(
        *map(np.array, lists),
        num_states=len(states),
        num_actions=len(actions),
        gamma=_gamma(document.get("gamma"), gamma),
    )


def _transition(i: int, entry: Any, states: dict[Any, int], actions: dict[Any, int]) -> tuple:
    """Reads one entry: `(state, action, next_state, probability, reward, terminated)`, with indices."""
    form = "[state, action, next state, probability, reward], and true if the episode ends"
    if not isinstance(entry, list) or len(entry) not in (5, 6):
        raise ValueError(f"transition {i}, {json.dumps(entry)}: it must be {form}.")
    *names, probability, reward = entry[:5]
    terminated = len(entry) == 6 and entry[5]
    if not isinstance(terminated, bool) or not all(map(_is_number, (probability, reward))):
        raise ValueError(f"transition {i}, {json.dumps(entry)}: it must be {form}.")
    found = []
    for what, name, index in zip(("state", "action", "next state"), names, (states, actions, states), strict=True):
        if what == "next state" and terminated:
            found.append(-1)
        elif isinstance(name, str | int) and not isinstance(name, bool) and name in index:
            found.append(index[name])
        else:
            raise ValueError(f"transition {i}: {what} {json.dumps(name)} is not among the {len(index)}.")
    numbers = (_float(probability, f"transition {i}: probability"), _float(reward, f"transition {i}: reward"))
    return *found, *numbers, terminated


def _index(names: Any, what: str, most: int) -> dict[Any, int]:
    """Numbers states or actions, given as a count or as a list of names."""
    if _is_number(names) and isinstance(names, int):
        if not 1 <= names <= most:
            raise ValueError(f"{what} ({names}) must be from 1 to {most}: no more than the transitions can mention.")
        return {i: i for i in range(names)}
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} must be a number, or a list of names.")
    index = {name: i for i, name in enumerate(names)}
    if len(index) < len(names):
        raise ValueError(f"{what}: a name occurs twice.")
    return index


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f'"{name}" is there twice.')
    return dict(pairs)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number that an MDP can have.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _float(number: float, name: str) -> float:
    """Gives a number as a float; a whole one of JSON may be too large."""
    try:
        return float(number)
    except OverflowError:
        raise ValueError(f"{name} has {len(str(abs(number)))} digits; it must be below 1.8e308 in size.") from None


# Raised by NumPy and the modules under it for a file that is not whole, beside ValueError.
_DAMAGE = (zipfile.BadZipFile, zlib.error, tokenize.TokenError, SyntaxError, EOFError, KeyError, RuntimeError)


def _read_npz(path: Path, gamma: float | None) -> FiniteMDP:
    try:
        shapes = _npz_shapes(path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in shapes}
    except _DAMAGE as error:
        raise ValueError(f"no .npz file: {error}.") from None
    own = arrays.pop("gamma", None)
    discount = _gamma(None if own is None else _scalar(own, "gamma"), gamma)
    if "transition" in arrays:
        _check_names(arrays, needed=_DENSE[:2], allowed=_DENSE)
        return FiniteMDP(**arrays, gamma=discount)
    _check_names(arrays, needed=(*_LISTS[:5], *_COUNTS), allowed=_LISTS)
    states, actions = (as_integer(_scalar(arrays.pop(name), name), name) for name in _COUNTS)
    entries = arrays["state"].size
    if not (1 <= states <= 2 * entries and 1 <= actions <= entries):
        raise ValueError(
            f"num_states ({states}) and num_actions ({actions}) must be at least 1, and no more than its {entries} "
            "transitions can mention."
        )
    _check_memory(states * actions * 8 * _COPIES)
    return FiniteMDP.from_transitions(**arrays, num_states=states, num_actions=actions, gamma=discount)


def _npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Reads the headers of the arrays, and checks the sizes they announce against what is there."""
    shapes, total = {}, 0
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
                if dtype.hasobject:
                    raise ValueError(f"{name} holds Python objects, which are not loaded; it must be numbers.")
                announced, there = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
            if announced != there:
                raise ValueError(f"{name} announces {announced} bytes, and there are {there}.")
            shapes[name], total = shape, total + announced
    _check_memory(total * _COPIES)
    return shapes


def _scalar(array: Any, name: str) -> float:
    if array.shape != () or array.dtype.kind not in "iuf":
        raise ValueError(f"{name} has dtype {array.dtype} and shape {list(array.shape)}; it must be one number.")
    return array.item()


def _gamma(own: Any, given: float | None) -> float:
    gamma = own if given is None else given
    if gamma is None:
        raise ValueError("it has no gamma, and none was given.")
    if not _is_number(gamma):
        raise ValueError(f"gamma ({gamma!r}) must be a number.")
    return _float(gamma, "gamma")


def _check_names(given: dict[str, Any], needed: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    missing = [name for name in needed if name not in given]
    if missing:
        raise ValueError(f"it has no {', '.join(missing)}; what it must have: {', '.join(needed)}.")
    known = tuple(dict.fromkeys((*needed, *allowed)))
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(f"unknown: {', '.join(unknown)}; allowed are {', '.join(known)}.")


def _check_memory(needed: int) -> None:
    """Refuses what would not fit, where the system says how much memory there is."""
    available = available_memory()
    if available is not None and needed > available:
        raise MemoryError(
            f"it would take up to {needed / 2**30:.1f} GiB of memory, and {available / 2**30:.1f} are free."
        )
