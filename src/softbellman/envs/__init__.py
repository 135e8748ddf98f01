"""Environments: the interface that all of them have, and the way to make one by its name."""

from softbellman.envs.families import FAMILIES, Family, family_of, is_device, known, make, make_device, name_of
from softbellman.envs.options import EnvOptions
from softbellman.envs.step import DeviceEnv, HostEnv, Step, Tape
from softbellman.extras import MissingExtra

__all__ = [
    "FAMILIES",
    "DeviceEnv",
    "EnvOptions",
    "Family",
    "HostEnv",
    "MissingExtra",
    "Step",
    "Tape",
    "family_of",
    "is_device",
    "known",
    "make",
    "make_device",
    "name_of",
]
