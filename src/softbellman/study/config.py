"""What a run is told: frozen dataclasses, presets, and where each value of a preset comes from.

Nothing here imports JAX or a game, so that a command line can read, check and print a configuration at once.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from softbellman.arguments import as_integer, as_list, as_number
from softbellman.envs import nearest
from softbellman.envs.atari import MACHADO_ATARI, PAPER_ATARI, AtariProtocol
from softbellman.envs.minatar import MinAtarProtocol
from softbellman.learning.settings import LearnerSettings
from softbellman.training.settings import LoopSettings, check


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The Q-network.

    Attributes:
        kind: `nature_cnn` (Mnih et al. 2015, for 84 x 84 x 4 pixels), `minatar_cnn` (Young and Tian 2019, for planes),
            `mlp`, or `auto`, which chooses between them.
        hidden: widths of the hidden layers of `mlp`; none makes it linear.
    """

    kind: Literal["auto", "nature_cnn", "minatar_cnn", "mlp"] = "auto"
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
        loop: how long it trains, and how it is tested.
        network: the Q-network.
        protocol: what the agent sees of an Atari game; no effect elsewhere.
        minatar: how a MinAtar game is played; no effect elsewhere.
        checkpoint: how often its state is saved; no effect on results.
    """

    learner: LearnerSettings = field(default_factory=LearnerSettings)
    loop: LoopSettings = field(default_factory=LoopSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    protocol: AtariProtocol = PAPER_ATARI
    minatar: MinAtarProtocol = field(default_factory=MinAtarProtocol)
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

    Args:
        config: the configuration.
        environments: their names.
        network: the kind of network, where it is known; else what `network.kind` says.
    """
    games = {environment.partition("/")[0] for environment in environments}
    idle = [f"{section}." for section, kind in (("protocol", "atari"), ("minatar", "minatar")) if kind not in games]
    kind = network or config.network.kind
    if kind in ("nature_cnn", "minatar_cnn") or (kind == "auto" and games <= {"atari", "minatar"}):
        idle.append("network.hidden")
    if config.learner.optimizer == "adam":
        idle.append("learner.rmsprop_decay")
    return [(name, value) for name, value in fields(config) if not name.startswith(tuple(idle))]


def replaced(config: Any, path: str, value: Any) -> Any:
    """Returns `config` with the field of a dotted name replaced."""
    name, _, rest = path.partition(".")
    return dataclasses.replace(config, **{name: replaced(getattr(config, name), rest, value) if rest else value})


class Preset(NamedTuple):
    """A named configuration.

    Attributes:
        name: what `--preset` takes.
        summary: one line.
        config: the configuration.
        source: where values come from that `overrides` does not name.
        overrides: dotted field names, with where each value comes from.
    """

    name: str
    summary: str
    config: Config
    source: str
    overrides: dict[str, str]


_AUTHORS = "authors' code"
_HERE = "preset"
_MINATAR_PACKAGE = "MinAtar"  # the reference package, and the example agent in it


def _derived(base: Preset, name: str, summary: str, values: dict[str, tuple[Any, str]]) -> Preset:
    """Makes a preset that differs from `base` in the dotted fields of `values`, each with its source."""
    config = base.config
    for path, (value, _) in values.items():
        config = replaced(config, path, value)
    return Preset(name, summary, config, base.source, base.overrides | {path: why for path, (_, why) in values.items()})


_PAPER = Preset(
    "paper-atari",
    "Song et al. 2019 as their code ran it: 50 million agent steps, no sticky actions, lost lives end episodes.",
    Config(network=NetworkSettings(kind="nature_cnn")),
    _AUTHORS,
    {
        "loop.block_width": _HERE,
        "network.hidden": _HERE,
        "checkpoint.minutes": _HERE,
        "checkpoint.keep": _HERE,
        "checkpoint.replay": _HERE,
        "protocol.name": _HERE,
        "protocol.random_first_actions": "deviation D2",
        "protocol.budget_cut_terminates": "deviation D4",
        **{f"minatar.{item.name}": _MINATAR_PACKAGE for item in dataclasses.fields(MinAtarProtocol)},
    },
)
_QUICK = _derived(
    _PAPER,
    "quick-atari",
    "The paper's agent and game with faster decay of exploration, shorter epochs and tests: three hours, not a month.",
    {
        "learner.epsilon_decay_steps": (100_000, _HERE),
        "loop.steps": (800_000, _HERE),
        "loop.epoch_steps": (50_000, _HERE),
        "loop.test_steps": (10_000, _HERE),
    },
)
_SHARP_ATARI = _derived(
    _QUICK,
    "sharp-atari",
    "Adam in place of RMSProp: 1 million steps, enough for a game's first points to be learned.",
    {
        "learner.optimizer": ("adam", "CleanRL"),
        "learner.learning_rate": (1e-4, "CleanRL"),
        "learner.optimizer_epsilon": (1e-8, "CleanRL"),
        "learner.loss_reduction": ("mean", "CleanRL"),
        "loop.steps": (1_000_000, _HERE),
    },
)
_MACHADO = _derived(
    _PAPER,
    "machado-atari",
    "Sticky actions, all 18 actions, no signal at a lost life; the learner is the paper's.",
    {
        f"protocol.{name}": (value, "Machado et al.")
        for name, value in dataclasses.asdict(MACHADO_ATARI).items()
        if value != getattr(PAPER_ATARI, name)
    },
)
_DEMO = _derived(
    _QUICK,
    "demo-atari",
    "A few minutes of a real game: every part at work, far too short to learn it.",
    {
        "loop.steps": (10_000, _HERE),
        "loop.epoch_steps": (2_500, _HERE),
        "loop.test_steps": (1_500, _HERE),
        "loop.held_out_states": (640, _HERE),
        "loop.gradient_batches": (10, _HERE),
        "learner.replay_capacity": (20_000, _HERE),
        "learner.replay_start_steps": (1_000, _HERE),
        "learner.epsilon_decay_steps": (4_000, _HERE),
        "learner.target_period_updates": (250, _HERE),
    },
)
_CLASSIC = _derived(
    _PAPER,
    "classic-control",
    "A small network for low-dimensional observations such as CartPole's.",
    {
        "network.kind": ("auto", _HERE),
        "learner.learning_rate": (0.001, _HERE),
        "learner.optimizer": ("adam", _HERE),
        "learner.optimizer_epsilon": (1e-8, _HERE),
        "learner.huber_delta": (100.0, _HERE),  # values reach 100, and a rare fall must weigh what it costs
        "learner.loss_reduction": ("mean", _HERE),
        "learner.reward_clip": (None, _HERE),
        "learner.batch_size": (64, _HERE),
        "learner.update_period_steps": (2, _HERE),
        "learner.target_period_updates": (50, _HERE),
        "learner.replay_capacity": (50_000, _HERE),
        "learner.replay_start_steps": (1_000, _HERE),
        "learner.epsilon_end": (0.05, _HERE),
        "learner.epsilon_decay_steps": (10_000, _HERE),
        "loop.steps": (60_000, _HERE),
        "loop.epoch_steps": (5_000, _HERE),
        "loop.test_steps": (5_000, _HERE),
        "loop.test_episodes": (10, _HERE),
        "loop.test_epsilon": (0.0, _HERE),
        "loop.held_out_states": (1_000, _HERE),
    },
)

_MINATAR = _derived(
    _PAPER,
    "minatar",
    "MinAtar as its authors' example agent learns it (Young and Tian 2019): 5 million steps, an update after each.",
    {
        "network.kind": ("minatar_cnn", _MINATAR_PACKAGE),
        "learner.optimizer": ("rmsprop-torch", _MINATAR_PACKAGE),
        "learner.loss_reduction": ("mean", _MINATAR_PACKAGE),
        "learner.reward_clip": (None, _MINATAR_PACKAGE),
        "learner.update_period_steps": (1, _MINATAR_PACKAGE),
        "learner.target_period_updates": (1_000, _MINATAR_PACKAGE),
        "learner.replay_capacity": (100_000, _MINATAR_PACKAGE),
        "learner.replay_start_steps": (5_000, _MINATAR_PACKAGE),
        "learner.epsilon_decay_steps": (100_000, _MINATAR_PACKAGE),
        "loop.steps": (5_000_000, _MINATAR_PACKAGE),
        "loop.epoch_steps": (50_000, _HERE),
        "loop.test_steps": (100_000, _HERE),
        "loop.test_episodes": (20, _HERE),
        "loop.held_out_states": (1_600, _HERE),
    },
)
_QUICK_MINATAR = _derived(
    _MINATAR,
    "quick-minatar",
    "The same with an update every 4 steps, as on Atari: 1 million steps, for comparisons of many runs.",
    {
        "learner.update_period_steps": (4, _HERE),
        "loop.steps": (1_000_000, _HERE),
    },
)
_SHARP_MINATAR = _derived(
    _QUICK_MINATAR,
    "sharp-minatar",
    "Adam in place of RMSProp, an update every 4 steps: 600,000 steps, enough for values to be learned and to grow.",
    {
        "learner.optimizer": ("adam", _HERE),
        "learner.learning_rate": (3e-4, _HERE),
        "learner.optimizer_epsilon": (3.125e-4, _HERE),
        "loop.steps": (600_000, _HERE),
    },
)
_DEMO_MINATAR = _derived(
    _SHARP_MINATAR,
    "demo-minatar",
    "A few minutes for a comparison of three operators with five seeds: the first steps of learning.",
    {
        "learner.learning_rate": (0.001, _HERE),
        "learner.replay_start_steps": (2_000, _HERE),
        "learner.epsilon_decay_steps": (30_000, _HERE),
        "learner.target_period_updates": (500, _HERE),
        "loop.steps": (70_000, _HERE),
        "loop.epoch_steps": (7_000, _HERE),
        "loop.held_out_states": (640, _HERE),
    },
)

PRESETS = {
    preset.name: preset
    for preset in (
        _PAPER,
        _QUICK,
        _SHARP_ATARI,
        _MACHADO,
        _DEMO,
        _CLASSIC,
        _MINATAR,
        _QUICK_MINATAR,
        _SHARP_MINATAR,
        _DEMO_MINATAR,
    )
}

_DEFAULT_PRESETS = {
    "atari": "paper-atari",
    "gym": "classic-control",
    "minatar": "sharp-minatar",
    "mdp": "classic-control",
}


def default_preset(environment: str) -> str:
    """Returns the preset that an environment is trained with unless another is named."""
    return _DEFAULT_PRESETS.get(environment.partition("/")[0], "paper-atari")


def common_preset(environments: Iterable[str]) -> str:
    """Returns the preset that all of several environments are trained with unless another is named.

    Raises:
        ValueError: if they have different ones.
    """
    presets = {default_preset(environment): environment for environment in environments}
    if len(presets) > 1:
        each = ", ".join(f"{name} for {environment}" for name, environment in presets.items())
        raise ValueError(f"these environments have different presets ({each}); name one for all with --preset")
    return next(iter(presets), default_preset(""))


def preset(name: str) -> Preset:
    """Returns a preset by name.

    Raises:
        ValueError: for an unknown name; the nearest and all others are listed.
    """
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}{nearest(name, PRESETS)} (there are {', '.join(PRESETS)})")
    return PRESETS[name]


def sources(config: Config, chosen: Preset) -> dict[str, str]:
    """Says where each value comes from, by dotted name: what the preset says of it, or the command line."""
    preset_values = dict(fields(chosen.config))
    return {
        path: chosen.overrides.get(path, chosen.source) if value == preset_values[path] else "command line"
        for path, value in fields(config)
    }


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
        section, _, name = path.partition(".")
        kind = get_type_hints(type(getattr(config, section)))[name]
        config = replaced(config, path, _of_kind(kind, value, path))
    return config


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
    if get_origin(kind) is tuple:
        return tuple(_of_kind(get_args(kind)[0], one, path) for one in as_list(value))
    kind, value = bool if kind is bool else str, value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, kind):
        raise ValueError(f"{path} ({value!r}) must be {'True or False' if kind is bool else 'a word'}")
    return value


def checked(config: Config) -> Config:
    """Returns `config` after refusing what could not run; see `training.settings.check`."""
    check(config.learner, config.loop)
    kinds = get_args(get_type_hints(NetworkSettings)["kind"])
    if config.network.kind not in kinds:
        raise ValueError(f"network.kind ({config.network.kind!r}) must be one of {', '.join(kinds)}")
    if any(width < 1 for width in config.network.hidden):
        raise ValueError(f"network.hidden {config.network.hidden}: a hidden layer must have at least 1 unit")
    if not config.checkpoint.minutes >= 0:
        raise ValueError(f"checkpoint.minutes ({config.checkpoint.minutes}) must be at least 0")
    if config.checkpoint.keep < 1:
        raise ValueError(f"checkpoint.keep ({config.checkpoint.keep}) must be at least 1")
    return config
