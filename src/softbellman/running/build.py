"""Factories: the environment, the network, the recipe and the loop of a run, from its configuration."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from softbellman import envs
from softbellman.config import Config, NetworkSettings, fields, replaced
from softbellman.config.arms import Arm, key_of
from softbellman.envs.families import section_forms
from softbellman.envs.step import Scale
from softbellman.learning.networks import Network, minatar_cnn, mlp, nature_cnn
from softbellman.learning.parts.heads import Linear, NoNoise
from softbellman.learning.parts.risks import Neutral
from softbellman.learning.parts.scales import Raw
from softbellman.learning.parts.table import ROLES, part
from softbellman.learning.recipe import Recipe
from softbellman.learning.settings import RecipeSettings
from softbellman.references import is_reference
from softbellman.running.own_code import own_network
from softbellman.training.device_stage import device_loop
from softbellman.training.host_stage import host_loop
from softbellman.training.lanes import Run
from softbellman.training.loop import Loop

_PIXELS = (4, 84, 84)
_BOARD = (10, 10)  # of MinAtar's planes
_LINEAR, _NO_NOISE, _RAW = Linear(), NoNoise(), Raw()


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
    recipe = functools.partial(make_recipe, config, scale)
    if env := compiled_env(environment, config):
        return device_loop(runs, env, env_of_run, recipe, config.learner, config.loop)
    return host_loop(runs, env_of_run, recipe, config.learner, config.loop, **accidents(environment, config))


def compiled_env(environment: str, config: Config) -> envs.DeviceEnv | None:
    """Returns the environment that is compiled together with its learner; None where the loop runs on the host.

    A device environment with illegal actions is played on the host: the stage on the device has no masks.
    """
    if not envs.is_device(environment):
        return None
    env = envs.make_device(environment, protocol_of(environment, config))
    return None if env.is_masked else env


def network_kind(settings: NetworkSettings, obs_shape: tuple[int, ...]) -> str:
    """Chooses the network for observations of a shape.

    Raises:
        ValueError: if a network is asked for that takes other observations, or if none is asked for and they are other
            pictures: a network of fully connected layers must be asked for.
    """
    shape = tuple(obs_shape)
    are_planes = len(shape) == 3 and shape[:2] == _BOARD
    remedy = "try auto, or a preset for such environments"
    if settings.kind == "nature_cnn" and shape != _PIXELS:
        raise ValueError(f"network.kind nature_cnn takes observations of shape {_PIXELS}, not {shape}; {remedy}")
    if settings.kind == "minatar_cnn" and not are_planes:
        raise ValueError(f"network.kind minatar_cnn takes planes of {_BOARD}, not {shape}; {remedy}")
    if settings.kind != "auto":
        return settings.kind
    if shape != _PIXELS and not are_planes and len(shape) > 1:
        raise ValueError(
            f"no network fits observations of shape {shape} by itself: nature_cnn takes {_PIXELS}; "
            "mlp flattens them and must be asked for with --network.kind mlp"
        )
    return "nature_cnn" if shape == _PIXELS else "minatar_cnn" if are_planes else "mlp"


def make_recipe(config: Config, scale: Scale, obs_shape: tuple[int, ...], num_actions: int) -> Recipe:
    """Builds the recipe of a learner for an environment.

    Raises:
        ValueError: as `make_network` and `parts_of`.
    """
    parts = parts_of(config.recipe)
    head, noise, estimate = parts.pop("head"), parts.pop("noise"), parts["estimate"]
    sizes = (tuple(obs_shape), num_actions)
    network = make_network(config.network, scale, *sizes, head, noise, parts["scale"], estimate.outputs)
    return Recipe(network, config.learner.update, returns=config.recipe.returns, **parts)


def parts_of(settings: RecipeSettings) -> dict[str, Any]:
    """Reads the parts of a recipe, by role.

    Raises:
        ValueError: for a spec that names none, and for parts that can't work together.
    """
    if not 1 <= settings.returns <= 1_000:
        raise ValueError(
            f"recipe.returns ({settings.returns}) must be in 1 .. 1000: steps of reward before the bootstrap"
        )
    parts = {role: part(role, getattr(settings, role)) for role in ROLES}
    estimate = parts["estimate"]
    if parts["controller"].needs_returns and parts["gap"] != part("gap", "none"):
        raise ValueError(
            f"recipe.controller {settings.controller} holds values against returns, and with recipe.gap {settings.gap} "
            "values are no returns; try noise(0.75)"
        )
    lowest, in_units = getattr(parts["target"], "reduce", None) == "min", "values in the rewards' units; try value"
    for role, is_chosen, fits, needs in (
        ("risk", parts["risk"] != Neutral(), estimate.is_law, "a distribution of returns; try quantiles(51)"),
        ("target", lowest, not estimate.is_law, "values; try value"),
        ("tightening", parts["tightening"].around > 0, estimate.in_units, in_units),
        ("scale", parts["scale"] != Raw(), estimate.in_units, in_units),
    ):
        if is_chosen and not fits:
            raise ValueError(
                f"recipe.{role} {getattr(settings, role)} does not go with recipe.estimate {settings.estimate}: it "
                f"needs {needs}"
            )
    return parts


def spelled_out(config: Config) -> Config:
    """Returns a configuration whose parts are spelled as they are recorded: two spellings are one study.

    Raises:
        ValueError: as `parts_of`.
    """
    for role, given in parts_of(config.recipe).items():
        config = replaced(config, f"recipe.{role}", str(given))
    return config


def spelled_arm(arm: Arm, base: Config) -> Arm:
    """Returns an arm whose parts are spelled as they are recorded.

    Args:
        arm: the arm.
        base: the study's configuration, its own parts spelled so.

    Raises:
        ValueError: as `parts_of`, and for a setting that the study has already.
    """
    if not arm.changes:
        return arm
    values, usual = dict(fields(spelled_out(arm.config(base)))), dict(fields(base))
    for path, _ in arm.changes:
        if values[path] == usual[path]:
            raise ValueError(f"{key_of(path)} changes nothing, for the study has it already; leave it out")
    return dataclasses.replace(arm, changes=tuple((path, values[path]) for path, _ in arm.changes))


@functools.cache
def make_network(
    settings: NetworkSettings,
    scale: Scale,
    obs_shape: tuple[int, ...],
    num_actions: int,
    head: Linear = _LINEAR,
    noise: NoNoise = _NO_NOISE,
    units: Raw = _RAW,
    outputs: int | None = None,
) -> Network:
    """Builds the network for an environment, once: what JAX compiled for it serves again.

    Raises:
        ValueError: as `network_kind` and `own_network`, and for a head or outputs that a custom network can't have.
    """
    kind, more = network_kind(settings, obs_shape), {"scale": scale, "head": head, "outputs": outputs}
    if is_reference(kind):
        if head != Linear() or outputs is not None:
            raise ValueError(
                f"network.kind {kind} has one output for each action and a head of its own; recipe.head and "
                "recipe.estimate are for the networks of softbellman"
            )
        made = own_network(kind, scale, obs_shape, num_actions)
    elif kind == "nature_cnn":
        made = nature_cnn(num_actions, **more)
    elif kind == "minatar_cnn":
        made = minatar_cnn(obs_shape, num_actions, **more)
    else:
        made = mlp(obs_shape, num_actions, settings.hidden, **more)
    return units.scaled(noise.added(made))
