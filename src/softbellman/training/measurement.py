"""What is measured of a run after an epoch, whichever loop has trained it: one row of `metrics.csv`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from softbellman.envs.step import HostEnv
from softbellman.learning import diagnostics, learner
from softbellman.learning.learner import LearnerState
from softbellman.learning.networks import Network
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings
from softbellman.operators import register_pytrees
from softbellman.training.evaluation import TestPhase
from softbellman.training.metrics import MetricsRow
from softbellman.training.settings import LoopSettings

COMMON_SEED, COMMON_STATES, COMMON_STRIDE = 20190609, 320, 5


class Run(NamedTuple):
    """One run of a group: its operator, which differs from the others' in parameters only, and its seed."""

    operator: Any
    seed: int


def require_one_structure(runs: Sequence[Run]) -> None:
    """Refuses runs that can't train together.

    Raises:
        ValueError: there is none, or their operators differ in more than parameters.
    """
    register_pytrees()  # an operator may be older than JAX's loading
    if len({jax.tree.structure(run.operator) for run in runs}) != 1:
        given = ", ".join(dict.fromkeys(str(run.operator) for run in runs)) or "no run"
        raise ValueError(f"a group's operators have one structure and differ in parameters only; got {given}")


def blocks_of(runs: int, width: int) -> list[list[int]]:
    """Puts the indices of runs into blocks of one width; the last is filled up with the last run.

    >>> blocks_of(5, 2)
    [[0, 1], [2, 3], [4, 4]]
    """
    return [[min(start + lane, runs - 1) for lane in range(width)] for start in range(0, runs, width)]


class Diverged(ArithmeticError):
    """No run of a group is left: the loss of each has become infinite or NaN."""


@dataclass
class Counters:
    """What is counted of one run.

    Attributes:
        episodes: games finished so far.
        finished: games finished in this epoch.
        return_sum: their raw scores together.
        clipped_return_sum: the same with each reward clipped as the learner clips it.
    """

    episodes: int = 0
    finished: int = 0
    return_sum: float = 0.0
    clipped_return_sum: float = 0.0


class Tally(NamedTuple):
    """What a loop has counted of a run.

    Attributes:
        epoch: number of the epoch that is over, from 1.
        agent_steps: agent steps so far.
        env_frames: frames so far.
        updates: updates so far.
        episodes: games finished so far.
        finished: games finished in this epoch.
        return_sum: their raw scores together.
        clipped_return_sum: the same with each reward clipped as the learner clips it.
        loss: mean loss of this epoch's updates, or None if there was none.
        seconds: wall-clock time so far.
    """

    epoch: int
    agent_steps: int
    env_frames: int
    updates: int
    episodes: int
    finished: int
    return_sum: float
    clipped_return_sum: float
    loss: float | None
    seconds: float


class Ruler(NamedTuple):
    """What every run of a group is measured with.

    Attributes:
        network: the Q-network.
        settings: the learner's numbers.
        loop: the loop's numbers.
        common: `[N, *obs_shape]`, states that all runs of a game share; see `common_states`.
    """

    network: Network
    settings: LearnerSettings
    loop: LoopSettings
    common: np.ndarray

    def row(
        self,
        run: Run,
        tally: Tally,
        phase: TestPhase,
        test_seed: int,
        state: LearnerState,
        held_out: Any,
        batches: list[Transition],
    ) -> MetricsRow:
        """Takes every measurement of a run.

        Args:
            run: the run.
            tally: what its loop has counted.
            phase: its test phase.
            test_seed: seed of the test phase's games.
            state: its learner's state.
            held_out: `[N, *obs_shape]`, the run's own held-out states.
            batches: minibatches for the gradient statistics; none leaves them out.
        """
        values, common = (
            diagnostics.value_statistics(state, run.operator, obs, self.network, self.settings.gamma)
            for obs in (held_out, self.common)
        )
        gradients: dict[str, float | None] = dict.fromkeys(diagnostics.GradientStatistics._fields)
        if batches:
            gradients = dict(
                diagnostics.gradient_statistics(state, run.operator, batches, self.network, self.settings.update)
            )
        return MetricsRow(
            epoch=tally.epoch,
            agent_steps=tally.agent_steps,
            env_frames=tally.env_frames,
            updates=tally.updates,
            episodes=tally.episodes,
            test_return=phase.mean,
            test_episodes=len(phase.scores),
            test_unfinished=int(phase.unfinished),
            train_return=tally.return_sum / tally.finished if tally.finished else None,
            train_clipped_return=tally.clipped_return_sum / tally.finished if tally.finished else None,
            held_out_value_common=common["held_out_value"],
            realised_return=phase.realised_return,
            overestimation=phase.overestimation,
            loss=tally.loss,
            epsilon=float(learner.epsilon_at(tally.agent_steps, self.settings)),
            operator_parameter=next((float(leaf) for leaf in jax.tree.leaves(run.operator)), None),
            test_epsilon=self.loop.test_epsilon,
            test_seed=test_seed,
            seconds=tally.seconds,
            **values,
            **gradients,
        )


def common_states(env: HostEnv) -> np.ndarray:
    """Returns states `[COMMON_STATES, *obs_shape]` that a random policy visits: the same for all runs of a game."""
    rng = np.random.default_rng(COMMON_SEED)
    obs, states = env.reset(), []
    for moment in range(COMMON_STATES * COMMON_STRIDE):
        if moment % COMMON_STRIDE == 0:
            states.append(np.array(obs[0]))
        obs = env.step(rng.integers(env.num_actions, size=env.num_envs)).obs
    env.close()
    return np.stack(states)
