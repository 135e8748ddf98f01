"""Environment options: keyword arguments as plain, recordable values."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from softbellman.arguments import as_number


@dataclass(frozen=True, kw_only=True)
class EnvOptions:
    """How an environment of one's own, or of Gymnasium, is made.

    Attributes:
        options: keyword arguments for what makes the environment: `size=5 slippery=true`. Values are read as JSON, else
            as words.
    """

    options: dict[str, Any] = field(default_factory=dict, hash=False)  # a dict has no hash; equal ones have one

    def __post_init__(self) -> None:
        """Refuses what can't be recorded; the order of options has no meaning, and is that of their names."""
        for name in self.options:
            if not (isinstance(name, str) and name.isidentifier()):
                raise ValueError(f"env.options: {name!r} is no name of an argument; write name=value, as in size=5")
            if name == "render_mode":
                raise ValueError("env.options: render_mode is chosen where a film is made; leave it out")
        object.__setattr__(self, "options", _plain(self.options, "env.options"))


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """Reads options from words `name=value`; a value that is no JSON is a word.

    Raises:
        ValueError: for a word of another form, or a name that is given twice.

    >>> read_options(["size=5", "slippery=true", "map=4x4", 'rows=["SF", "FG"]'])
    {'size': 5, 'slippery': True, 'map': '4x4', 'rows': ['SF', 'FG']}
    """
    options: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{word!r} is no option of an environment; write name=value, as in size=5")
        if name in options:
            raise ValueError(f"{name} is given twice, as {options[name]!r} and as {text!r}")
        options[name] = _read(text)
    return options


def written_options(options: Mapping[str, Any]) -> list[str]:
    """Writes options as words that `read_options` reads back to the same.

    >>> written_options({"size": 5, "map": "4x4", "name": "7"})
    ['size=5', 'map=4x4', 'name="7"']
    """
    return [f"{name}={_written(value)}" for name, value in options.items()]


def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _written(value: Any) -> str:
    return value if isinstance(value, str) and _read(value) == value else json.dumps(value)


def _plain(value: Any, path: str) -> Any:
    """Returns a value as JSON holds it, the names of mappings in their order.

    Raises:
        ValueError: with the place, for what JSON can't hold.
    """
    if isinstance(value, np.ndarray):
        value = list(value) if value.ndim else value[()]
    if isinstance(value, np.generic):
        value = as_number(value, path) if isinstance(value, np.floating) else value.item()
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _plain(value[name], f"{path} {name}") for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(each, path) for each in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(
        f"{path} ({value!r}) must be a finite number, a word, True, False, None, or a list or dict of such: it is "
        "recorded in study.json"
    )
