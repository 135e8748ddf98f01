"""Configuration: everything that a run is told but its environment, operator and seed.

Nothing here imports JAX or a game, so that a command line can read, check and print a configuration at once.
"""

from softbellman.config.arms import Arm, arm, as_arm, parse_arm
from softbellman.config.presets import PRESETS, Preset, common_preset, default_preset, preset, sources
from softbellman.config.settings import (
    CheckpointSettings,
    Config,
    NetworkSettings,
    checked,
    config_from,
    decisive,
    effective,
    fields,
    in_words,
    replaced,
    with_settings,
)

__all__ = [
    "PRESETS",
    "Arm",
    "CheckpointSettings",
    "Config",
    "NetworkSettings",
    "Preset",
    "arm",
    "as_arm",
    "checked",
    "common_preset",
    "config_from",
    "decisive",
    "default_preset",
    "effective",
    "fields",
    "in_words",
    "parse_arm",
    "preset",
    "replaced",
    "sources",
    "with_settings",
]
