"""Run plan: all checks before a run starts, and its summary."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from softbellman import envs
from softbellman import operators as ops
from softbellman.config import PRESETS, Config, checked, effective, replaced
from softbellman.learning import device_replay
from softbellman.learning.learner import epsilon_at
from softbellman.learning.parts.exploration import Greedy, Policy
from softbellman.learning.parts.table import ROLES
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import FrameReplay
from softbellman.memory import available_memory, require_memory
from softbellman.references import is_reference
from softbellman.running.build import (
    compiled_env,
    make_env,
    make_network,
    make_recipe,
    network_kind,
    recorded_scale,
    spelled_out,
)
from softbellman.running.jax_settings import overruled, own_settings, require_backend
from softbellman.running.own_code import check_network, check_parts, check_scale
from softbellman.training.settings import check_side_by_side, num_updates


class Plan(NamedTuple):
    """A run, checked: what can be known to be wrong beforehand is not.

    Attributes:
        environment: name of the environment.
        config: the resolved configuration.
        facts: what the environment says of itself, its observations and their scale among it.
        frames_per_step: emulator frames in an agent step.
        network: what `network.kind` comes to.
        replay_bytes: bytes of the replay, once full.
        notes: what a user should know of the environment.
    """

    environment: str
    config: Config
    facts: dict[str, Any]
    frames_per_step: int
    network: str
    replay_bytes: int
    notes: tuple[str, ...] = ()

    def settings(self) -> list[tuple[str, Any]]:
        """Lists the dotted names and values of all fields that have an effect in this run."""
        return effective(self.config, [self.environment], self.network)

    def environment_lines(self, recorded: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
        """Says what is played, and what is seen of it: a few labels, each with a text.

        Args:
            recorded: facts of environments, by name, in a study that goes on: observations enter as it recorded.
        """
        facts = self.facts
        if self.environment in recorded:
            facts = facts | {"obs_scale": recorded_scale(recorded[self.environment], facts["obs_dtype"])}
        rules = envs.family_of(self.environment).rules(facts)
        return [
            ("environment", f"{self.environment}: {rules}; rewards enter learning {self.config.learner.rewards}"),
            ("observations", _observations(facts)),
        ]

    def run_lines(self) -> list[tuple[str, str]]:
        """Says how the run goes: a few labels, each with a text."""
        learner, loop = self.config.learner, self.config.loop
        frames = loop.steps * self.frames_per_step
        period = learner.target_period_updates
        hidden = ", ".join(map(str, self.config.network.hidden))
        tests = f"{loop.test_steps:,} agent steps of other games"
        if loop.test_episodes is not None:
            tests = f"{loop.test_episodes} other games, {loop.test_steps:,} agent steps at most"
        return [
            ("frames per step", str(self.frames_per_step)),
            ("network", self.network + (f", hidden layers {hidden or 'none'}" if self.network == "mlp" else "")),
            ("budget", f"{loop.steps:,} agent steps, {frames:,} frames, {num_updates(learner, loop):,} updates"),
            ("target", f"copied before updates 0, {period:,}, {2 * period:,}, ..."),
            ("tests", f"{loop.tested}: {tests}"),
            ("epsilon", f"{self._epsilon()}; {loop.test_epsilon:g} in tests"),
        ]

    def checkpoints(self, replay_bytes: int) -> str:
        """Says how often the state of a group is saved, and what that takes of the disk."""
        settings = self.config.checkpoint
        size = f"up to {replay_bytes:,} bytes of replay each" if settings.replay else "without the replay"
        often = f"every {settings.minutes:g} minutes" if settings.minutes else "after every step"
        return f"{often}, {size}, the last {settings.keep} kept until the end"

    def _epsilon(self) -> str:
        """Writes the exploration rate at the corners of its schedule."""
        learner, steps = self.config.learner, self.config.loop.steps
        start, end = learner.replay_start_steps, learner.replay_start_steps + learner.epsilon_decay_steps
        corners = sorted({0, start, start + learner.epsilon_decay_steps // 2, end, steps})
        rates = [f"{epsilon_at(step, learner):.3g} at {step:,}" for step in corners if step <= steps]
        return ", ".join(rates) + " agent steps"

    def warnings(self) -> list[str]:
        """Says what the run can't show, what is amiss with its environment, and which settings of JAX's don't hold."""
        steps, notes = self.config.loop.steps, [*self.notes, *overruled()]
        family = envs.family_of(self.environment)
        if steps > family.too_few_steps:
            return notes
        longer = ", ".join(f"{name} {PRESETS[name].config.loop.steps:,}" for name in family.longer)
        taught = f"{steps:,} agent steps cannot teach {family.member}, and scores stay near chance (presets: {longer})"
        return [*notes, taught]


@own_settings()
def plan(
    environment: str,
    operator: Any,
    seed: int,
    config: Config,
    *,
    steps: int | None = None,
    frames: int | None = None,
) -> Plan:
    """Checks everything that can be known to be wrong with a run before it starts, and writes nothing.

    Args:
        environment: name of the environment.
        operator: the Bellman operator.
        seed: the seed.
        config: the configuration.
        steps: agent steps in all, in place of the configuration's.
        frames: emulator frames in all, instead of `steps`.

    Raises:
        ValueError: for whatever does not fit; the message says what to change.
        MemoryError: if the replay does not fit into memory.
    """
    if steps is not None and frames is not None:
        raise ValueError(f"give --steps ({steps}) or --frames ({frames}), not both")
    require_backend()
    config = spelled_out(config)
    family = envs.family_of(environment)
    if family.section is not None:
        config = replaced(config, family.section, family.recorded(getattr(config, family.section)))
    env = make_env(environment, config, seed, training=True)
    try:
        if frames is not None:
            per_step = env.frames_per_step
            if frames % per_step:
                raise ValueError(f"frames ({frames}) must be a multiple of the {per_step} frames of an agent step")
            steps = frames // per_step
        if steps is not None:
            config = replaced(config, "loop.steps", steps)
        checked(config)
        network = network_kind(config.network, env.obs_shape)
        if is_reference(network):
            made = make_network(config.network, env.obs_scale, env.obs_shape, env.num_actions)
            check_network(network, made, env.obs_shape, env.obs_dtype, env.num_actions)
        recipe = make_recipe(config, env.obs_scale, env.obs_shape, env.num_actions)
        if is_reference(network):
            check_scale(network, recipe, env.obs_shape, env.obs_dtype)
        if compiled_env(environment, config):
            check_side_by_side(config.loop)
        check_in_training(operator, env.num_actions)
        recipe.estimate.check(operator)
        recipe.controller.check(operator)
        _check_exploration(recipe.exploration, env.num_actions)
        notes = tuple(env.rehearse())
        if own := _own_parts(config):
            masked = env.legal is not None  # known of a Gymnasium environment once it was reset
            check_parts(own, recipe, operator, env.obs_shape, env.obs_dtype, env.num_actions, masked=masked)
        bytes_needed = _replay_bytes(environment, env, config, recipe)
        facts = env.describe() | {
            "obs_shape": list(env.obs_shape),
            "obs_dtype": str(env.obs_dtype),
            "obs_scale": env.obs_scale,
        }
        return Plan(environment, config, facts, env.frames_per_step, network, bytes_needed, notes)
    finally:
        env.close()


def _own_parts(config: Config) -> str:
    """Names the parts of a user's own."""
    given = ((role, getattr(config.recipe, role)) for role in ROLES)
    return ", ".join(f"recipe.{role} {spec}" for role, spec in given if is_reference(spec.partition("(")[0]))


@own_settings()
def check_in_training(operator: Any, num_actions: int) -> None:
    """Refuses an operator that could not be trained with, which matters for a user's own.

    Raises:
        ValueError: if it breaks the contract of operators on JAX arrays, or has a spec that does not lead back to it.
    """
    ops.require_contract(operator, num_actions, "jax")
    if ops.parse(str(operator)) != operator:
        raise ValueError(f"operator {operator} is not what its own spec, which the study records, leads to")


def _check_exploration(exploration: Greedy, num_actions: int) -> None:
    """Refuses an exploration by an operator that could not be trained with."""
    if isinstance(exploration, Policy):
        try:
            check_in_training(exploration.operator, num_actions)
        except ValueError as error:
            raise ValueError(f"recipe.exploration {exploration}: {error}") from error.__cause__ or error


def _replay_bytes(environment: str, env: envs.HostEnv, config: Config, recipe: Recipe) -> int:
    """Returns the bytes of a run's replay, with what sampling keeps in mind.

    Raises:
        MemoryError: they do not fit into memory; with the bytes needed, the bytes there, and the field to change.
    """
    capacity = config.learner.replay_capacity
    if compiled_env(environment, config):
        needed = device_replay.bytes_needed(capacity, env.obs_shape, env.obs_dtype, recipe.reach)
    else:
        masked_actions = None if env.legal is None else env.num_actions
        needed = FrameReplay.bytes_needed(capacity, env.obs_shape, env.obs_dtype, env.stack, masked_actions)
    needed += recipe.sampling.bytes_needed(capacity)
    require_memory(needed, available_memory(), "learner.replay_capacity")
    return needed


def _observations(facts: dict[str, Any]) -> str:
    """Says what observations are, and how they enter the network."""
    shape, scale = ", ".join(map(str, facts["obs_shape"])), facts["obs_scale"]
    if isinstance(scale, tuple):
        entering = f"each entry divided by its own bound, {min(scale):g} to {max(scale):g}"
    else:
        entering = "as they are" if scale == 1.0 else f"divided by {scale:g}"
    return f"{facts['obs_dtype']} [{shape}], {entering}"
