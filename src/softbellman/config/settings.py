"""Configuration dataclasses of a run: read from JSON, changed by dotted name, checked.

Nothing here imports JAX or a game, so that a command line can read, check and print a configuration at once.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from softbellman.arguments import as_integer, as_list, as_number, nearest
from softbellman.envs.atari.protocol import PAPER_ATARI, AtariProtocol
from softbellman.envs.families import find_family, section_forms
from softbellman.envs.minatar.protocol import MinAtarProtocol
from softbellman.envs.options import EnvOptions, written_options
from softbellman.learning.settings import LearnerSettings, RecipeSettings
from softbellman.part import Part
from softbellman.references import is_reference, reference_to
from softbellman.training.settings import LoopSettings, check

NETWORKS = ("auto", "nature_cnn", "minatar_cnn", "mlp")


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The Q-network.

    Attributes:
        kind: `nature_cnn` (Mnih et al. 2015, for 84 x 84 x 4 pixels), `minatar_cnn` (Young and Tian 2019, for planes),
            `mlp`, `auto`, which chooses between them, or `package.module:function` for one of your own.
        hidden: widths of the hidden layers of `mlp`; none makes it linear.
    """

    kind: str = "auto"
    hidden: tuple[int, ...] = (128, 128)


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """How a run survives being stopped. None of it changes a result.

    Attributes:
        minutes: time between checkpoints; a run that is stopped by Ctrl-C saves one more.
        keep: checkpoints kept; with 1, nothing is left to go back to if the disk spoils that one.
        replay: saves the replay too. Without it, a run that is resumed fills a new one, and is not the same run.
    """

    minutes: float = 10.0
    keep: int = 2
    replay: bool = True


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything about a run but its environment, operator and seed.

    Attributes:
        learner: how the learner learns.
        recipe: its parts beside the operator.
        loop: how long it trains, and how it is tested.
        network: the Q-network.
        protocol: what the agent sees of an Atari game; no effect elsewhere.
        minatar: how a MinAtar game is played; no effect elsewhere.
        env: how an environment of Gymnasium or of one's own is made; no effect elsewhere.
        checkpoint: how often its state is saved; no effect on results.
    """

    learner: LearnerSettings = field(default_factory=LearnerSettings)
    recipe: RecipeSettings = field(default_factory=RecipeSettings)
    loop: LoopSettings = field(default_factory=LoopSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    protocol: AtariProtocol = PAPER_ATARI
    minatar: MinAtarProtocol = field(default_factory=MinAtarProtocol)
    env: EnvOptions = field(default_factory=EnvOptions)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)


def fields(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted name and the value of every field."""
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            yield from fields(value, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", value


def effective(config: "Config", environments: Sequence[str], network: str | None = None) -> list[tuple[str, Any]]:
    """Lists the dotted names and values of all fields that have an effect on runs in these environments.

    Parts of the recipe that are the plain ones have none.

    Args:
        config: the configuration.
        environments: their names.
        network: the kind of network, where it is known; else what `network.kind` says.
    """
    families = [family for name in environments if (family := find_family(name))]
    idle = [f"{name}." for name in section_forms() if all(family.section != name for family in families)]
    kind = network or config.network.kind
    if kind not in ("auto", "mlp") or (kind == "auto" and all(family.own_network for family in families)):
        idle.append("network.hidden")
    if config.learner.optimizer == "adam":
        idle.append("learner.rmsprop_decay")
    idle += [f"recipe.{name}" for name, value in fields(RecipeSettings()) if getattr(config.recipe, name) == value]
    return [(name, value) for name, value in fields(config) if not name.startswith(tuple(idle))]


def in_words(value: Any) -> str:
    """Writes a setting's value, or a fact that an environment says of itself, as a reader would.

    >>> in_words(50_000_000), in_words((128, 128)), in_words(None), in_words(1e-08), in_words({"size": 5, "map": "4x4"})
    ('50,000,000', '128 128', 'none', '1e-08', 'size=5 map=4x4')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return " ".join(written_options(value)) or "none"
    if isinstance(value, list | tuple):
        return " ".join(map(in_words, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def replaced(config: Any, path: str, value: Any) -> Any:
    """Returns `config` with the field of a dotted name replaced."""
    name, _, rest = path.partition(".")
    return dataclasses.replace(config, **{name: replaced(getattr(config, name), rest, value) if rest else value})


def with_settings(config: Config, values: Mapping[str, Any]) -> Config:
    """Returns a configuration with the fields of dotted names replaced, unchecked but for their kinds.

    Raises:
        ValueError: for an unknown field (the nearest are listed), or a value of the wrong kind.

    >>> with_settings(Config(), {"learner.gamma": 0.9}).learner.gamma
    0.9
    """
    known = dict(fields(Config()))
    for path, value in values.items():
        if path not in known:
            raise ValueError(f"unknown field {path!r}{nearest(path, known)}; it may be of another version")
        config = replaced(config, path, _of_kind(kind_of(path), value, path))
    return config


def kind_of(path: str) -> Any:
    """Returns the kind of a field, such as `float | None`, by its dotted name."""
    section, _, name = path.partition(".")
    return get_type_hints(type(getattr(Config(), section)))[name]


def config_from(record: Mapping[str, Any]) -> Config:
    """Rebuilds a configuration from `study.json`.

    Raises:
        ValueError: for an unknown field (the nearest are listed), a value of the wrong kind, or values that could
            not run.
    """
    values = {f"{section}.{name}": value for section, part in record.items() for name, value in part.items()}
    return checked(with_settings(Config(), values))


def _of_kind(kind: Any, value: Any, path: str) -> Any:
    """Returns a value as a field of this kind holds it: plain, so that JSON can hold it too."""
    if type(None) in get_args(kind):
        if value is None:
            return None
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    if kind is int:
        return as_integer(value, path)
    if kind is float:
        return as_number(value, path)
    if get_origin(kind) is dict:
        if not isinstance(value, Mapping):
            raise ValueError(f"{path} ({value!r}) must be a dict of names and values, such as {{'size': 5}}")
        return dict(value)
    if get_origin(kind) is tuple:
        return tuple(_of_kind(get_args(kind)[0], one, path) for one in as_list(value))
    if kind is str and isinstance(value, Part):
        value = str(value)
    if kind is str and callable(value):
        value = reference_to(value, path)
    kind, value = bool if kind is bool else str, value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, kind):
        raise ValueError(f"{path} ({value!r}) must be {'True or False' if kind is bool else 'a word'}")
    return value


def checked(config: Config) -> Config:
    """Returns `config` after refusing what could not run; see `training.settings.check`."""
    check(config.learner, config.loop)
    if config.network.kind not in NETWORKS and not is_reference(config.network.kind):
        hint = nearest(config.network.kind, NETWORKS)
        raise ValueError(
            f"network.kind ({config.network.kind!r}) must be one of {', '.join(NETWORKS)}, or package.module:function "
            f"for one of your own{hint}"
        )
    if any(width < 1 for width in config.network.hidden):
        raise ValueError(f"network.hidden {config.network.hidden}: a hidden layer must have at least 1 unit")
    if not config.checkpoint.minutes >= 0:
        raise ValueError(f"checkpoint.minutes ({config.checkpoint.minutes}) must be at least 0")
    if config.checkpoint.keep < 1:
        raise ValueError(f"checkpoint.keep ({config.checkpoint.keep}) must be at least 1")
    return config


def decisive(config: Config) -> dict[str, Any]:
    """Returns the fields by dotted name on which a run's next step depends, their values as JSON holds them.

    How checkpoints are saved and for how many steps training goes on are none of them.
    """
    names = {
        name: value for name, value in fields(config) if name != "loop.steps" and not name.startswith("checkpoint.")
    }
    return json.loads(json.dumps(names))
