"""Q-iteration with the maximum and with softmax side by side, and what can be measured on it.

This is what the paper's theorems speak of; `theorems` checks them on it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from softbellman import operators as ops
from softbellman.operators.arrays import floats
from softbellman.tabular import bounds
from softbellman.tabular.mdp import FiniteMDP

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Iterates:
    """Q-iteration with the maximum and with softmax from one start, on N MDPs of S states and m actions. See `iterate`.

    Pairs of numbers, `[..., 2]`, are always the smallest and the largest. An end counts as a state of reward and value
    0. An illegal action counts nowhere.

    Attributes:
        gamma: the discount factor.
        tau: of softmax.
        legal: `[N, 1, S, m]` bool.
        rewards: `[N, 1, 2]`, Rmin and Rmax, of expected rewards.
        start: `[N, 1, 2]`, of `Q0`.
        exact: `[N, K + 1, S, m]`, `T^k Q0` for k = 0 .. K; -inf where not legal.
        soft: `[N, K + 1, S, m]`, `Tsoft^k Q0`, likewise.
    """

    gamma: float
    tau: float
    legal: NDArray[np.bool_]
    rewards: Values
    start: Values
    exact: Values
    soft: Values

    @property
    def actions(self) -> int:
        """The number of actions, m."""
        return self.soft.shape[-1]

    @cached_property
    def steps(self) -> Values:
        """The numbers of steps, `0 .. K`: `[K + 1]`."""
        return np.arange(self.soft.shape[1], dtype=np.float64)

    @cached_property
    def values(self) -> Values:
        """The range of the softmax iterates: `[N, K + 1, 2]`."""
        return self._range(self.soft)

    @cached_property
    def error(self) -> Values:
        """The range of `T^k Q0 - Tsoft^k Q0`: `[N, K + 1, 2]`."""
        return self._range(self._finite(self.exact) - self._finite(self.soft))

    @cached_property
    def change(self) -> Values:
        """By how much the step from k to k + 1 with softmax changes a value at most: `[N, K]`."""
        return np.abs(np.diff(self._finite(self.soft), axis=1)).max(axis=(-2, -1))

    @cached_property
    def spread(self) -> Values:
        """From the best action of each state to the worst, in the softmax iterates: `[N, K + 1, S]`."""
        return self.distance(self.soft).max(axis=-1)

    @cached_property
    def gap(self) -> Values:
        """From the maximum to softmax, in the softmax iterates: `[N, K + 1, S]`."""
        return self.shortfall(ops.softmax(self.tau), self.soft)

    @cached_property
    def reachable(self) -> Values:
        """Range of values at each step, by rewards and start alone: `[N, K + 1, 2]`."""
        return bounds.reachable_values(self.gamma, self.rewards, self.start, self.steps)

    @cached_property
    def reachable_ever(self) -> Values:
        """Range of values at any step: `[N, 1, 2]`. The first and the last decide."""
        first, last = self.start, bounds.reachable_values(self.gamma, self.rewards, self.start)
        return np.stack([np.minimum(first, last)[..., 0], np.maximum(first, last)[..., 1]], axis=-1)

    @property
    def width(self) -> Values:
        """How far apart two values can ever be: `[N, 1, 1]`."""
        return np.diff(self.reachable_ever)

    @property
    def q_max(self) -> Values:
        """The paper's Qmax, `Rmax / (1 - gamma)`: `[N, 1, 1]`."""
        return self.rewards[..., 1:] / (1 - self.gamma)

    def shortfall(self, op: ops.Operator, q: Values) -> Values:
        """Measure how far an operator is below the maximum: `[N, K, S, m]` to `[N, K, S]`."""
        return ops.maximum()(q, where=self.legal) - op(q, where=self.legal)

    def distance(self, q: Values) -> Values:
        """Measure from the best action of each state to each action; 0 where not legal: `[N, K, S, m]`."""
        return np.where(self.legal, q.max(axis=-1, keepdims=True) - q, 0.0)

    def _finite(self, q: Values) -> Values:
        return np.where(self.legal, q, 0.0)

    def _range(self, q: Values) -> Values:
        low = q.min(axis=(-2, -1), where=self.legal, initial=np.inf)
        return np.stack([low, q.max(axis=(-2, -1), where=self.legal, initial=-np.inf)], axis=-1)


def iterate_both(mdp: FiniteMDP, tau: float, start: ArrayLike = 0.0, steps: int = 100, *, blocks: int = 1) -> Iterates:
    """Apply the Bellman operators of the maximum (eq. 2) and of softmax (eq. 3) side by side, so many times.

    Args:
        mdp: with actions m.
        tau: of softmax, at least 0.
        start: `Q0`, broadcast to the MDP's states and actions; what it has for illegal actions and terminal states is
            not looked at.
        steps: K, at least 1.
        blocks: N. The states are those of N separate MDPs, one after the other, and what the theorems say of an MDP is
            to be said of each: so a thousand MDPs are iterated at once.

    Raises:
        ValueError: no step, or the states cannot be divided among the blocks, or one leads into another.

    Example:
        >>> from softbellman.tabular import examples
        >>> pair = iterate_both(examples.one_state((1.0, 0.0), gamma=0.5), tau=1.0, steps=2)
        >>> pair.soft[0, -1].round(4).tolist(), pair.error[0, -1].round(4).tolist()
        ([[1.3655, 0.3655]], [0.1345, 0.1345])
    """
    if steps < 1:
        raise ValueError(f"steps ({steps}) must be at least 1.")
    if blocks < 1 or mdp.num_states % blocks:
        raise ValueError(f"blocks ({blocks}) must be at least 1 and divide the number of states, {mdp.num_states}.")
    shape = (blocks, mdp.num_states // blocks, mdp.num_actions)
    onward = sparse.coo_array(mdp.kernel)
    leads_out = onward.row // mdp.num_actions // shape[1] != onward.col // shape[1]
    if onward.data[leads_out].any():
        raise ValueError(f"the states of {blocks} separate MDPs must not lead from one into another.")
    first = np.where(mdp.terminal[:, None], 0.0, np.where(mdp.legal, floats(start, "start"), -np.inf))
    sequences = []
    for op in (ops.maximum(), ops.softmax(tau)):
        sequence = [first]
        for _ in range(steps):
            sequence.append(mdp.apply(op, sequence[-1]))
        sequences.append(np.stack([q.reshape(shape) for q in sequence], axis=1))

    goes_on = np.asarray(mdp.kernel.sum(axis=1)).reshape(shape)
    active = (mdp.legal & ~mdp.terminal[:, None]).reshape(shape)
    ends = ~np.all(goes_on > 1 - 1e-9, axis=(1, 2), where=active) | mdp.terminal.reshape(shape[:2]).any(axis=1)

    def extremes(numbers: Values, counted: NDArray[np.bool_]) -> Values:
        with_end = np.concatenate([numbers.reshape(blocks, -1), np.zeros((blocks, 1))], axis=1)
        counted = np.concatenate([counted.reshape(blocks, -1), ends[:, None]], axis=1)
        low = with_end.min(axis=1, where=counted, initial=np.inf)
        return np.stack([low, with_end.max(axis=1, where=counted, initial=-np.inf)], axis=-1)[:, None]

    return Iterates(
        gamma=mdp.gamma,
        tau=tau,
        legal=mdp.legal.reshape(shape)[:, None],
        rewards=extremes(mdp.reward, active),
        start=extremes(first, mdp.legal),
        exact=sequences[0],
        soft=sequences[1],
    )
