"""Exact answer of an environment that is a finite MDP, and how far a learner's values are from it."""

from typing import Any

import numpy as np

from softbellman import operators as ops
from softbellman.learning.settings import UpdateSettings
from softbellman.tabular import FiniteMDP, solve
from softbellman.tabular.linear import LinearSolver

_ACCURACY = 1e-10  # of the values of a policy, relative to its rewards


class Exact:
    """Optimal values of a finite MDP with the discount factor and the rewards of a learner.

    Attributes:
        obs: `[N, *obs_shape]`, observations of the states that are no end.
    """

    def __init__(self, mdp: FiniteMDP, obs: np.ndarray, update: UpdateSettings) -> None:
        """Solves the MDP.

        Args:
            mdp: the MDP, its discount factor the learner's, its rewards raw.
            obs: `[S, *obs_shape]`, the observation of each state.
            update: how rewards are learned from.
        """
        self._mdp = mdp.with_reward(update.seen(mdp.reward, np))
        self._open = ~mdp.terminal
        self._q = solve(self._mdp, ops.maximum()).q
        self._linear = LinearSolver(self._mdp)
        self.obs = obs[self._open]

    def statistics(self, q: Any) -> dict[str, float]:
        """Holds action values `[N, A]` of the states of `obs` against the optimal ones.

        Names are the columns of `metrics.csv`; `training.metrics.MEASURES` says what each is.
        """
        legal, optimal = self._mdp.legal[self._open], self._q[self._open]
        q = np.where(legal, np.asarray(q, np.float64), -np.inf)
        best = optimal.max(axis=-1)
        return {
            "value_error": float(np.sqrt(np.square(q[legal] - optimal[legal]).mean())),
            "value_bias": float((q.max(axis=-1) - best).mean()),
            "policy_loss": float((best - self._worth(q.argmax(axis=-1))).mean()),
        }

    def _worth(self, actions: np.ndarray) -> np.ndarray:
        """Computes the values `[N]` of a policy that takes one action in each state."""
        weights = np.zeros(self._mdp.reward.shape)
        weights[self._open, actions] = 1.0
        reward = np.where(weights > 0, self._mdp.reward, 0.0).sum(axis=-1)
        return self._linear.solve(weights, reward, _ACCURACY)[self._open]


def exact_of(env: Any, update: UpdateSettings) -> Exact | None:
    """Solves an environment that offers `as_mdp(gamma)`: a `FiniteMDP` and its observations; None for another."""
    as_mdp = getattr(env, "as_mdp", None)
    if as_mdp is None:
        return None
    mdp, obs = as_mdp(update.gamma)
    return Exact(mdp, obs, update)
