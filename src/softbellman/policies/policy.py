"""Policy of a trained run: actions, values and weights for observations as the environment gives them."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from softbellman.config import budgets
from softbellman.envs.step import HostEnv
from softbellman.learning.fixed_policy import FixedPolicy
from softbellman.learning.recipe import Recipe
from softbellman.operators import Operator
from softbellman.running.build import make_env, protocol_of
from softbellman.running.jax_settings import own_settings, require_backend
from softbellman.running.play import checked_epsilon, saved
from softbellman.running.raw_policy import Interface
from softbellman.study.files import read_metrics
from softbellman.study.runs import RunPath, SavedNetwork
from softbellman.study.store import Study, find_run
from softbellman.training import evaluation, streams
from softbellman.training.streams import Role


@own_settings()
def load(
    path: str | Path,
    *,
    environment: str | None = None,
    arm: Any = None,
    seed: int | None = None,
    network: SavedNetwork = "best",
    exploration_seed: int = budgets.GAMES_SEED,
) -> "Policy":
    """Loads a trained run as a policy.

    Args:
        path: a run's directory, or a study's.
        environment: the run's environment, where a study has several.
        arm: its operator or the name of its arm, where a study has several.
        seed: its seed, where a study has several.
        network: the network that its test phases found best, or the last one.
        exploration_seed: seed of the draws of `act` with an epsilon.

    Raises:
        ValueError: if there is no such run or network, or several runs, or no saved network yet.
        TypeError: for what is no path, such as a `Study`.
        MissingExtra: if a package that its environment needs is not installed.

    Example:
        `policy = sb.load("runs/first")`, then `policy.act(obs)`.
    """
    require_backend()
    choice = "name one of them, or choose by environment, arm and seed"
    study, run = find_run(path, environment=environment, arm=arm, seed=seed, remedy=choice)
    env = make_env(run.environment, study.config_of(run), seed=0, training=False)
    try:
        return Policy(study, run, env, network, exploration_seed)
    finally:
        env.close()


class Policy:
    """Policy of a saved network.

    It takes raw observations, as the environment itself gives them: one, or a batch with an axis `[B]` in front. It
    lays them out, checks and scales them as in training. Of an Atari game they are stacks as `screens` makes them,
    `[4, 84, 84]` uint8, the newest frame last. Each new size of a batch is compiled once.

    Attributes:
        run: the run: where it is, its environment, arm and seed.
        operator: the Bellman operator that it was trained with, its parameter as it was then.
        network: which of its networks this is.
        agent_steps: agent steps that this network was trained for.
        num_actions: number of actions, `A`.
        raw_shape: shape of one raw observation.
        raw_dtype: its dtype.
        first_action: what the environment itself calls the first action; the others follow.
        is_masked: some actions are illegal at times, so that `act` and `weights` must be told the legal ones.
    """

    def __init__(self, study: Study, run: RunPath, env: HostEnv, network: SavedNetwork, exploration_seed: int) -> None:
        """Reads the network; see `load`."""
        self._recipe, self._params, stored = saved(study, run, env, network)
        self.run, self.network, self.agent_steps = run, network, int(stored["agent_steps"])
        facts = study.record["environment_facts"].get(run.environment, {})
        self._interface = Interface.of(env, run.environment, facts)
        self.num_actions, self.first_action = env.num_actions, env.first_action
        self.raw_shape, self.raw_dtype = self._interface.raw_shape, env.raw_dtype
        self.is_masked = self._interface.is_masked
        self._protocol = protocol_of(run.environment, study.config_of(run))
        self._key, self._moment = streams.key(exploration_seed, Role.TEST), 0
        self.operator = _operator_then(self._recipe, run, self.agent_steps)

    def act(self, obs: Any, epsilon: float = 0.0, legal: Any = None) -> Any:
        """Chooses the best action, but for a share `epsilon` of actions drawn among the legal ones, all alike.

        Args:
            obs: one observation, or a batch.
            epsilon: exploration rate.
            legal: bool or 0 and 1, `[A]` for all or `[B, A]`: the legal actions; None: all, where they always are.

        Returns:
            What the environment's `step` takes: an int, or `[B]` int64 for a batch.

        Raises:
            ValueError: for an observation that the environment could not have given, or a wrong argument.
        """
        batch, is_one = self._interface.batch(obs)
        rates = np.full(len(batch), checked_epsilon(epsilon), np.float32)
        actions = self._chosen(batch, rates, self._interface.legal(legal, len(batch))) + self.first_action
        return int(actions[0]) if is_one else actions

    def q(self, obs: Any) -> np.ndarray:
        """Computes the values of all actions, in the rewards' units as the learner saw them, clipped or not.

        Returns:
            `[A]` float32, or `[B, A]` for a batch.

        Raises:
            ValueError: for an observation that the environment could not have given.
        """
        batch, is_one = self._interface.batch(obs)
        values = self._values(batch)
        return values[0] if is_one else values

    def weights(self, obs: Any, legal: Any = None) -> np.ndarray:
        """Computes the weights that the operator averages these values with: the policy that its targets are of.

        Args:
            obs: one observation, or a batch.
            legal: as for `act`.

        Returns:
            `[A]`, or `[B, A]` for a batch.

        Raises:
            ValueError: as `act`.
        """
        batch, is_one = self._interface.batch(obs)
        weights = self.operator.weights(self._values(batch), self._interface.legal(legal, len(batch)))
        return weights[0] if is_one else weights

    def screens(self) -> Any:
        """Makes the history of one Atari game, which turns raw screens into observations; see `Screens`.

        Raises:
            ValueError: for another environment, whose observations are taken as they are.
        """
        from softbellman.envs.atari import AtariProtocol

        if not isinstance(self._protocol, AtariProtocol):
            raise ValueError(f"{self.run.environment} has no screens to stack: its observations are taken as they are")
        from softbellman.envs.atari.screens import Screens

        return Screens(self._protocol)

    def __repr__(self) -> str:
        """Names the run, and what it takes."""
        shape = ", ".join(map(str, self.raw_shape))
        trained = f"{self.network} network after {self.agent_steps:,} agent steps"
        return f"<Policy of {self.run}: {trained}, observations {self.raw_dtype} [{shape}], {self.num_actions} actions>"

    @own_settings()
    def _values(self, batch: np.ndarray) -> np.ndarray:
        return FixedPolicy(self._recipe, self._params, batch.shape[1:]).q(batch)

    @own_settings()
    def _chosen(self, batch: np.ndarray, rates: np.ndarray, legal: np.ndarray | None) -> np.ndarray:
        moment, self._moment = np.uint32(self._moment), (self._moment + 1) % 2**32
        actions, _ = evaluation.act(self._recipe, self._params, batch, self._key, moment, rates, legal)
        return np.asarray(actions).astype(np.int64)


def _operator_then(recipe: Recipe, run: RunPath, agent_steps: int) -> Operator:
    """Returns the operator of a run; where a controller moves its parameter, with the one that it had after some steps.

    Raises:
        ValueError: if that is not recorded.
    """
    operator = run.arm.made()
    if not recipe.controller.moves:
        return operator
    table = read_metrics(run.path / "metrics.csv")
    numbers = table["operator_parameter"][table["agent_steps"] == agent_steps]
    if not len(numbers):
        raise ValueError(
            f"{run.path / 'metrics.csv'} has no row after {agent_steps} agent steps, and no parameter then"
        )
    return jax.tree.map(lambda _: float(numbers[0]), operator)
