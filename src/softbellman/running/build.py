"""Factories: the environment, the network and the loop of a run, from its configuration."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from softbellman import envs
from softbellman.config import Config, NetworkSettings
from softbellman.envs.families import section_forms
from softbellman.envs.step import Scale
from softbellman.learning.networks import Network, minatar_cnn, mlp, nature_cnn
from softbellman.references import is_reference
from softbellman.running.own_network import own_network
from softbellman.training.device_stage import device_loop
from softbellman.training.host_stage import host_loop
from softbellman.training.lanes import Run
from softbellman.training.loop import Loop

_PIXELS = (4, 84, 84)
_BOARD = (10, 10)  # of MinAtar's planes


def make_env(environment: str, config: Config, seed: int, training: bool, record: bool = False) -> envs.HostEnv:
    """Makes a run's environment, for training or for one test phase (a single copy), or for a film with `record`.

    Raises:
        ValueError: as `envs.make`, and for a protocol of Atari games where there is none to play.
    """
    num_envs = config.loop.num_envs if training else 1
    protocol = protocol_of(environment, config)
    return envs.make(environment, seed=seed, num_envs=num_envs, training=training, protocol=protocol, record=record)


def protocol_of(environment: str, config: Config) -> Any:
    """Returns the protocol that an environment is played under, or None where there is none.

    Raises:
        ValueError: for a protocol of other environments that was changed, in vain.
    """
    own, usual = envs.family_of(environment).section, Config()
    for section, forms in section_forms().items():
        if section != own and getattr(config, section) != getattr(usual, section):
            raise ValueError(f"{environment} does not heed the fields of {section}; they are for {forms} only")
    return getattr(config, own) if own else None


def accidents(environment: str, config: Config) -> dict[str, Any]:
    """Returns the fields of an environment's protocol that the loop on the host honours, since it chooses actions."""
    protocol = protocol_of(environment, config)
    return {name: getattr(protocol, name) for name in envs.family_of(environment).accidents}


def recorded_scale(facts: Mapping[str, Any], obs_dtype: str) -> Scale:
    """Returns what the observations of a study are divided by.

    Args:
        facts: what the study recorded of the environment. Before the scale was recorded, uint8 was divided by 255.
        obs_dtype: dtype of the observations.

    Raises:
        ValueError: if what is recorded is no scale.
    """
    scale = facts.get("obs_scale", 255.0 if obs_dtype == "uint8" else 1.0)
    numbers = scale if isinstance(scale, list | tuple) else [scale]
    if not numbers or not all(type(number) in (int, float) and 0 < number < np.inf for number in numbers):
        raise ValueError(f"obs_scale ({scale!r}) in study.json must be a number above 0, or one for each entry")
    return tuple(numbers) if isinstance(scale, list | tuple) else scale


def obs_scale(environment: str, facts: Mapping[str, Any], config: Config) -> Scale:
    """Returns what the observations of a study are divided by; see `recorded_scale`."""
    if "obs_scale" in facts:
        return recorded_scale(facts, "")
    env = make_env(environment, config, seed=0, training=False)
    env.close()
    return recorded_scale(facts, str(env.obs_dtype))


def make_loop(environment: str, config: Config, runs: Sequence[Run], scale: Scale) -> Loop:
    """Makes the loop of a group of runs, at its start: compiled as one program where the environment can be."""
    env_of_run = functools.partial(make_env, environment, config)
    network = functools.partial(make_network, config.network, scale)
    if envs.is_device(environment):
        env = envs.make_device(environment, protocol_of(environment, config))
        return device_loop(runs, env, env_of_run, network, config.learner, config.loop)
    return host_loop(runs, env_of_run, network, config.learner, config.loop, **accidents(environment, config))


def network_kind(settings: NetworkSettings, obs_shape: tuple[int, ...]) -> str:
    """Chooses the network for observations of a shape.

    Raises:
        ValueError: if a network is asked for that takes other observations, or if none is asked for and they are other
            pictures: a network of fully connected layers must be asked for.
    """
    shape = tuple(obs_shape)
    are_planes = len(shape) == 3 and shape[:2] == _BOARD
    if settings.kind == "nature_cnn" and shape != _PIXELS:
        raise ValueError(f"network.kind nature_cnn takes observations of shape {_PIXELS}, not {shape}; try mlp")
    if settings.kind == "minatar_cnn" and not are_planes:
        raise ValueError(f"network.kind minatar_cnn takes planes of {_BOARD}, not {shape}; try auto")
    if settings.kind != "auto":
        return settings.kind
    if shape != _PIXELS and not are_planes and len(shape) > 1:
        raise ValueError(
            f"no network fits observations of shape {shape} by itself: nature_cnn takes {_PIXELS}; "
            "mlp flattens them and must be asked for with --network.kind mlp"
        )
    return "nature_cnn" if shape == _PIXELS else "minatar_cnn" if are_planes else "mlp"


@functools.cache
def make_network(settings: NetworkSettings, scale: Scale, obs_shape: tuple[int, ...], num_actions: int) -> Network:
    """Builds the network for an environment, once: what JAX compiled for it serves again.

    Raises:
        ValueError: as `network_kind` and `own_network`.
    """
    kind = network_kind(settings, obs_shape)
    if is_reference(kind):
        return own_network(kind, scale, obs_shape, num_actions)
    if kind == "nature_cnn":
        return nature_cnn(num_actions, scale=scale)
    if kind == "minatar_cnn":
        return minatar_cnn(obs_shape, num_actions, scale=scale)
    return mlp(obs_shape, num_actions, settings.hidden, scale=scale)
