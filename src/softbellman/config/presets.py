"""Presets: named configurations, and where each value of one comes from."""

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

from softbellman.arguments import nearest
from softbellman.config.settings import Config, NetworkSettings, fields, replaced
from softbellman.envs.atari.protocol import MACHADO_ATARI, PAPER_ATARI
from softbellman.envs.families import find_family
from softbellman.envs.minatar.protocol import MinAtarProtocol


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
_HESSEL = "Hessel et al."
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
        "env.options": _HERE,
        "protocol.name": _HERE,
        "protocol.random_first_actions": "deviation D2",
        "protocol.budget_cut_terminates": "deviation D4",
        **{f"minatar.{item.name}": _MINATAR_PACKAGE for item in dataclasses.fields(MinAtarProtocol)},
    },
)
_QUICK = _derived(
    _PAPER,
    "quick-atari",
    "The paper's agent and game with faster decay of exploration, shorter epochs and tests: hours, not a week or two.",
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
        f"protocol.{name}": (value, {"name": _HERE, "max_frames_per_game": "deviation D9"}.get(name, "Machado et al."))
        for name, value in dataclasses.asdict(MACHADO_ATARI).items()
        if value != getattr(PAPER_ATARI, name)
    },
)
_RAINBOW = _derived(
    _PAPER,
    "rainbow",
    "Rainbow (Hessel et al. 2018) on the paper's games: six parts at once, for double(max) or any other operator.",
    {
        "recipe.returns": (3, _HESSEL),
        "recipe.estimate": ("categorical(51, -10, 10)", _HESSEL),
        "recipe.head": ("duelling", _HESSEL),
        "recipe.noise": ("noisy", _HESSEL),
        "recipe.sampling": ("prioritised(0.5, 0.4, 1, 12500000)", _HESSEL),  # to the end of 50 million agent steps
        "learner.optimizer": ("adam", _HESSEL),
        "learner.learning_rate": (6.25e-5, _HESSEL),
        "learner.optimizer_epsilon": (1.5e-4, _HESSEL),
        "learner.loss_reduction": ("mean", _HESSEL),
        "learner.target_period_updates": (2_000, _HESSEL),  # 32,000 frames
        "learner.replay_start_steps": (20_000, _HESSEL),  # 80,000 frames
        "learner.epsilon_end": (0.0, _HESSEL),
        "learner.epsilon_decay_steps": (0, _HESSEL),
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
        "learner.gamma": (0.99, _MINATAR_PACKAGE),
        "learner.optimizer": ("rmsprop-torch", _MINATAR_PACKAGE),
        "learner.learning_rate": (0.00025, _MINATAR_PACKAGE),
        "learner.rmsprop_decay": (0.95, _MINATAR_PACKAGE),
        "learner.optimizer_epsilon": (0.01, _MINATAR_PACKAGE),
        "learner.huber_delta": (1.0, _MINATAR_PACKAGE),
        "learner.loss_reduction": ("mean", _MINATAR_PACKAGE),
        "learner.reward_clip": (None, _MINATAR_PACKAGE),
        "learner.batch_size": (32, _MINATAR_PACKAGE),
        "learner.update_period_steps": (1, _MINATAR_PACKAGE),
        "learner.target_period_updates": (1_000, _MINATAR_PACKAGE),
        "learner.replay_capacity": (100_000, _MINATAR_PACKAGE),
        "learner.replay_start_steps": (5_000, _MINATAR_PACKAGE),
        "learner.epsilon_start": (1.0, _MINATAR_PACKAGE),
        "learner.epsilon_end": (0.1, _MINATAR_PACKAGE),
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
    "MinAtar's example agent with an update every 4 steps, as on Atari: 1 million steps, for comparisons of many runs.",
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
        _RAINBOW,
        _DEMO,
        _CLASSIC,
        _MINATAR,
        _QUICK_MINATAR,
        _SHARP_MINATAR,
        _DEMO_MINATAR,
    )
}


def default_preset(environment: str) -> str:
    """Returns the preset that an environment is trained with unless another is named."""
    family = find_family(environment)
    return family.preset if family else "paper-atari"


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
