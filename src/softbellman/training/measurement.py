"""What is measured of a run after an epoch, whichever loop has trained it: one row of `metrics.csv`."""

from typing import Any, NamedTuple

import jax
import numpy as np

from softbellman.envs.step import HostEnv
from softbellman.learning import diagnostics, learner
from softbellman.learning.learner import LearnerState
from softbellman.learning.networks import Network
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings
from softbellman.training.counts import Clock, Counts, mean
from softbellman.training.evaluation import TestPhase
from softbellman.training.lanes import Run
from softbellman.training.metrics import MetricsRow
from softbellman.training.settings import LoopSettings

COMMON_SEED, COMMON_STATES, COMMON_STRIDE = 20190609, 320, 5


class Ruler(NamedTuple):
    """What every run of a group is measured with.

    Attributes:
        network: the Q-network.
        settings: the learner's numbers.
        loop: the loop's numbers.
        common: `[N, *obs_shape]`, states that all runs of a game share; see `common_states`.
        frames_per_step: frames of an agent step.
    """

    network: Network
    settings: LearnerSettings
    loop: LoopSettings
    common: np.ndarray
    frames_per_step: int

    def row(
        self,
        run: Run,
        clock: Clock,
        counts: Counts,
        phase: TestPhase,
        test_seed: int,
        seconds: float,
        state: LearnerState,
        held_out: Any,
        batches: list[Transition],
    ) -> MetricsRow:
        """Takes every measurement of a run.

        Args:
            run: the run.
            clock: the clock of its group, the epoch that is over counted.
            counts: its counts.
            phase: its test phase.
            test_seed: seed of the test phase's games.
            seconds: wall-clock time so far.
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
            epoch=clock.epoch,
            agent_steps=clock.agent_steps,
            env_frames=clock.agent_steps * self.frames_per_step,
            updates=clock.updates,
            episodes=int(counts.episodes),
            test_return=phase.mean,
            test_episodes=len(phase.scores),
            test_unfinished=int(phase.unfinished),
            train_return=mean(counts.return_sum, counts.finished),
            train_clipped_return=mean(counts.clipped_return_sum, counts.finished),
            held_out_value_common=common["held_out_value"],
            realised_return=phase.realised_return,
            overestimation=phase.overestimation,
            loss=mean(counts.loss_sum, counts.losses),
            epsilon=float(learner.epsilon_at(clock.agent_steps, self.settings)),
            operator_parameter=next((float(leaf) for leaf in jax.tree.leaves(run.operator)), None),
            test_epsilon=self.loop.test_epsilon,
            test_seed=test_seed,
            seconds=seconds,
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
