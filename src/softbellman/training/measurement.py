"""Measurement of a run after a test phase: one row of `metrics.csv`."""

from typing import Any, NamedTuple

import jax
import numpy as np

from softbellman.envs.step import HostEnv
from softbellman.learning import diagnostics, learner
from softbellman.learning.fixed_policy import FixedPolicy
from softbellman.learning.learner import LearnerState
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings
from softbellman.training import metrics
from softbellman.training.counts import Clock, Counts
from softbellman.training.evaluation import TestPhase, random_actions
from softbellman.training.exact import Exact
from softbellman.training.lanes import Run
from softbellman.training.metrics import Measured, Row
from softbellman.training.settings import LoopSettings

COMMON_SEED, COMMON_STATES, COMMON_STRIDE = 20190609, 320, 5


class States(NamedTuple):
    """States to measure in.

    Attributes:
        obs: `[N, *obs_shape]`.
        legal: `[N, A]` bool, the legal actions; None: all.
    """

    obs: Any
    legal: Any = None


class Ruler(NamedTuple):
    """The means by which every run of a group is measured."""

    recipe: Recipe
    settings: LearnerSettings
    loop: LoopSettings
    common: States  # those that all runs of a game share; see `common_states`
    frames_per_step: int
    exact: Exact | None  # of an environment that is a finite MDP

    def row(
        self,
        state: LearnerState,
        held_out: States,
        batches: list[Transition],
        *,
        run: Run,
        clock: Clock,
        counts: Counts,
        phase: TestPhase,
        test_seed: int,
        seconds: float,
    ) -> Row:
        """Takes every measurement of a run, in its own held-out states and those that all share.

        Without minibatches the statistics of gradients are left out. All that follows `batches` is as in `Measured`.
        """
        operator = self.recipe.controller.applied(state.control, run.operator)
        values, common = (
            diagnostics.value_statistics(state, operator, states.obs, self.recipe, states.legal)
            for states in (held_out, self.common)
        )
        gradients = diagnostics.gradient_statistics(state, operator, batches, self.recipe) if batches else {}
        exact: dict[str, float] = {}
        if self.exact is not None:
            obs = self.exact.obs
            exact = self.exact.statistics(FixedPolicy(self.recipe, state.params, obs.shape[1:]).q(obs))
        measured = Measured(
            run=run,
            clock=clock,
            counts=counts,
            phase=phase,
            test_seed=test_seed,
            seconds=seconds,
            frames_per_step=self.frames_per_step,
            test_epsilon=self.loop.test_epsilon,
            epsilon=float(learner.epsilon_at(clock.agent_steps, self.settings)),
            values=values,
            common=common,
            gradients=gradients,
            exact=exact,
            parameters=tuple(float(leaf) for leaf in jax.tree.leaves(operator)),
        )
        return {measure.name: measure.of(measured) for measure in metrics.MEASURES}


def common_states(env: HostEnv) -> States:
    """Returns `COMMON_STATES` states that a random policy visits: the same for all runs of a game.

    They are those of the first copy, whose actions are drawn apart: they do not depend on how many copies there are.
    """
    rng, others = np.random.default_rng(COMMON_SEED), np.random.default_rng(COMMON_SEED + 1)
    obs, states, masks = env.reset(), [], []
    for moment in range(COMMON_STATES * COMMON_STRIDE):
        if moment % COMMON_STRIDE == 0:
            states.append(np.array(obs[0]))
            if env.legal is not None:
                masks.append(np.array(env.legal[0]))
        actions = random_actions(others, env)
        actions[0] = random_actions(rng, env, copies=1)[0]
        obs = env.step(actions).obs
    env.close()
    return States(np.stack(states), np.stack(masks) if masks else None)
