"""Finite Markov decision processes, from arrays, a function, or a table of Gymnasium's toy-text games.

A transition has an end of its own, apart from the state it leads to: `kernel` holds only the probability of going on,
so that no value leaks back from behind an end, whatever operator is applied there.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from softbellman.arguments import as_integer, as_number, is_one
from softbellman.faults import faults_placed
from softbellman.operators import Operator
from softbellman.operators.arrays import flags, floats, whole
from softbellman.tabular.kernel import (
    Kernel,
    Values,
    check_indices,
    cut,
    expected,
    normalised,
    products,
    raise_to_zero,
    read_mask,
    stacked,
)

Outcome = tuple[float, Hashable, float, bool]  # probability, next state, reward, terminated


@dataclass(frozen=True, init=False, eq=False, repr=False)
class FiniteMDP:
    """A finite Markov decision process: `Q = reward + gamma * kernel @ V`.

    Its arrays are copies, and read-only.

    Attributes:
        reward: `[S, A]`, expected; 0 where not legal and in terminal states.
        kernel: `[S * A, S]`, an array or `csr_array`; row `s * A + a` has the probabilities of going on to each
            state without having ended, so that it may sum to less than 1. All 0 where not legal, in terminal states,
            and in the columns of terminal states.
        gamma: the discount factor, at least 0 and below 1.
        legal: `[S, A]` bool; all True in terminal states, where no action matters.
        terminal: `[S]` bool; the value of these is 0, and so is every `Q` of theirs.

    Example:
        >>> mdp = FiniteMDP(transition=[[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]],
        ...                 reward=[[1.0, 0.0], [0.0, 0.0]], gamma=0.5, terminal=[False, True])
        >>> mdp
        FiniteMDP(2 states, 2 actions, gamma 0.5)
        >>> mdp.backup([4.0, 9.0]).tolist()
        [[1.0, 2.0], [0.0, 0.0]]
    """

    reward: Values
    kernel: Kernel
    gamma: float
    legal: NDArray[np.bool_]
    terminal: NDArray[np.bool_]
    _offset: Values  # the reward, -inf where not legal

    def __init__(
        self,
        transition: Any,
        reward: Any,
        gamma: float,
        *,
        terminal: ArrayLike | None = None,
        legal: ArrayLike | None = None,
    ) -> None:
        """Copies and checks the arrays.

        Args:
            transition: `[S, A, S]`, the state first; or sparse: a sequence of `A` matrices `[S, S]`, or one
                `[S * A, S]` with row `s * A + a`. Rows that miss 1 by rounding are normalised.
            reward: `[S, A]` or `[S, A, S]`, or sparse in the same forms as `transition`.
            gamma: the discount factor, at least 0 and below 1.
            terminal: bool `[S]`; none by default. Nothing else that is given for these states is looked at.
            legal: bool `[S, A]`; all by default. Nothing else that is given for illegal actions is looked at.

        Raises:
            ValueError: a shape does not fit, a number is not finite, a probability is negative, a row does not sum
                to 1, or a state has no legal action; the message names state and action.
        """
        kernel = stacked(transition, "transition")
        num_states = kernel.shape[1]
        shape = (num_states, kernel.shape[0] // num_states)
        ends = read_mask(terminal, "terminal", (num_states,), default=False)
        allowed = read_mask(legal, "legal", shape, default=True) | ends[:, None]
        stuck = ~allowed.any(axis=1)
        if stuck.any():
            raise ValueError(
                f"legal: state {np.argmax(stuck)} has no legal action; if that is an end, mark it terminal."
            )
        active = allowed & ~ends[:, None]
        kernel, _ = normalised(kernel, active)
        reward = expected(reward, kernel, shape)
        self._set(cut(kernel, ends), reward, gamma, allowed, ends)

    def _set(self, kernel: Kernel, reward: Values, gamma: float, legal: NDArray, terminal: NDArray) -> None:
        """Checks what is left to check, clears the rewards that do not count, and freezes it all."""
        gamma = as_number(gamma, "gamma")
        if not 0 <= gamma < 1:
            raise ValueError(
                f"gamma ({gamma}) must be at least 0 and below 1: without a discount the values of a policy that never "
                "ends are not finite."
            )
        reward = np.where(legal & ~terminal[:, None], reward, 0.0)
        wrong = ~np.isfinite(reward)
        if wrong.any():
            state, action = np.argwhere(wrong)[0]
            raise ValueError(f"reward of state {state}, action {action} is {reward[state, action]}; it must be finite.")
        # Actions on the outer axis in memory: what operators do along actions is then done for all states at once.
        legal = np.asfortranarray(legal)
        offset = np.asfortranarray(np.where(legal, reward, -np.inf))
        parts = (kernel,) if isinstance(kernel, np.ndarray) else (kernel.data, kernel.indices, kernel.indptr)
        for array in (reward, legal, terminal, offset, *parts):
            array.flags.writeable = False
        for name, value in {
            "reward": reward,
            "kernel": kernel,
            "gamma": gamma,
            "legal": legal,
            "terminal": terminal,
            "_offset": offset,
        }.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_transitions(
        cls,
        state: ArrayLike,
        action: ArrayLike,
        next_state: ArrayLike,
        probability: ArrayLike,
        reward: ArrayLike,
        terminated: ArrayLike | None = None,
        *,
        num_states: int,
        num_actions: int,
        gamma: float,
    ) -> "FiniteMDP":
        """Builds from a list of transitions, `[N]` each; those of the same state, action and next state add up.

        An action without transitions is not legal in that state; a state without any is terminal. Where `terminated`,
        the next state is not looked at.

        Raises:
            ValueError: as in the constructor, or an index is out of range.

        Example:
            >>> mdp = FiniteMDP.from_transitions([0, 0], [0, 1], [0, 1], [1.0, 1.0], [1.0, 3.0],
            ...                                  num_states=2, num_actions=2, gamma=0.5)
            >>> mdp.terminal.tolist(), mdp.backup([2.0, 0.0]).tolist()
            ([False, True], [[2.0, 3.0], [0.0, 0.0]])
        """
        lists: list[NDArray] = [whole(state, "state"), whole(action, "action"), whole(next_state, "next state")]
        lists += [floats(probability, "probability").copy(), floats(reward, "reward")]
        lists.append(np.zeros(lists[0].shape, bool) if terminated is None else flags(terminated, "terminated"))
        if lists[0].ndim != 1 or len({x.shape for x in lists}) != 1:
            shapes = ", ".join(str(x.shape) for x in lists)
            raise ValueError(f"transitions: the lists have shapes {shapes}; each must be [N].")
        s, a, onward, p, r, ended = lists
        onward = np.where(ended, 0, onward)
        num_states, num_actions = as_integer(num_states, "num_states"), as_integer(num_actions, "num_actions")
        for name, index, limit in (
            ("state", s, num_states),
            ("action", a, num_actions),
            ("next state", onward, num_states),
        ):
            check_indices(name, index, limit)
        onward = np.where(ended, num_states, onward)
        rows = s * num_actions + a
        shape = (num_states, num_actions)
        legal = np.zeros(shape, dtype=bool)
        legal[s, a] = True
        terminal = ~np.any(legal, axis=1)
        raise_to_zero(p, lambda i: rows[i], num_actions)
        kernel = sparse.csr_array((p, (rows, onward)), shape=(num_states * num_actions, num_states + 1))
        kernel, sums = normalised(kernel, legal)
        gains = np.bincount(rows, weights=products(p, r), minlength=num_states * num_actions) / sums
        mdp = cls.__new__(cls)
        mdp._set(
            cut(kernel[:, :num_states], terminal), gains.reshape(shape), gamma, legal | terminal[:, None], terminal
        )
        return mdp

    @classmethod
    @faults_placed()
    def from_function(
        cls,
        f: Callable[[Any, Any], Iterable[Outcome] | None],
        states: Sequence[Hashable] | int,
        actions: Sequence[Hashable] | int,
        gamma: float,
    ) -> "FiniteMDP":
        """Builds from a function that tells what may happen.

        Args:
            f: `f(state, action)` gives tuples `(probability, next_state, reward, terminated)`, or None where the
                action is not legal. A state in which no action is legal is terminal.
            states: their names, in the order of the arrays' first axis; a number n stands for `range(n)`.
            actions: likewise.
            gamma: the discount factor.

        Raises:
            ValueError: as in the constructor, or `f` gives no such tuple, or a next state that is not in `states`.

        Example:
            >>> def walk(place, step):
            ...     return [(1.0, place + step, -1.0, place + step == 2)]
            >>> FiniteMDP.from_function(walk, states=[0, 1], actions=[0, 1], gamma=0.9)
            FiniteMDP(2 states, 2 actions, gamma 0.9)
        """
        state_names, action_names = _names(states, "states"), _names(actions, "actions")
        index = {name: i for i, name in enumerate(state_names)}
        if len(index) < len(state_names):
            raise ValueError("states: a name occurs twice; each state must have a name of its own.")
        lists: tuple[list, ...] = ([], [], [], [], [], [])
        for s, state in enumerate(state_names):
            for a, action in enumerate(action_names):
                where = f"f({state!r}, {action!r})"
                for outcome in f(state, action) or ():
                    try:
                        probability, onward, reward, terminated = outcome
                    except (TypeError, ValueError):
                        form = "(probability, next_state, reward, terminated)"
                        raise ValueError(f"{where} gives {outcome!r}; it must give tuples {form}.") from None
                    if not terminated and onward not in index:
                        raise ValueError(f"{where} leads to {onward!r}, which is not among the {len(index)} states.")
                    target = -1 if terminated else index[onward]
                    for values, value in zip(lists, (s, a, target, probability, reward, terminated), strict=True):
                        values.append(value)
        return cls.from_transitions(*lists, num_states=len(index), num_actions=len(action_names), gamma=gamma)

    @classmethod
    def from_gymnasium(cls, env: Any, gamma: float, **kwargs: Any) -> "FiniteMDP":
        """Builds from the table `P` of a toy-text environment: FrozenLake, Taxi or CliffWalking.

        Args:
            env: the environment, or its id.
            gamma: the discount factor.
            **kwargs: for `gymnasium.make`, with an id; such as `is_slippery=False`.

        Raises:
            ImportError: Gymnasium is not installed.
            ValueError: the environment has no table.
        """
        if isinstance(env, str):
            try:
                import gymnasium
            except ModuleNotFoundError:
                raise ImportError('from_gymnasium needs gymnasium: pip install "softbellman[train]"') from None
            env = gymnasium.make(env, **kwargs)
        table = getattr(getattr(env, "unwrapped", env), "P", None)
        if table is None:
            raise ValueError(f"{env} has no table P of transitions; FrozenLake-v1, CliffWalking and Taxi have one.")
        states = sorted(table)
        actions = sorted({action for state in states for action in table[state]})
        return cls.from_function(lambda state, action: table[state].get(action), states, actions, gamma)

    @property
    def num_states(self) -> int:
        """`S`."""
        return self.reward.shape[0]

    @property
    def num_actions(self) -> int:
        """`A`."""
        return self.reward.shape[1]

    def __repr__(self) -> str:
        return f"FiniteMDP({self.num_states} states, {self.num_actions} actions, gamma {self.gamma:g})"

    def with_reward(self, reward: ArrayLike) -> "FiniteMDP":
        """Gives the same MDP with other rewards, `[S, A]`; the kernel is shared.

        Raises:
            ValueError: the shape is another, or a reward is not finite.
        """
        reward = floats(reward, "reward")
        if reward.shape != self.reward.shape:
            raise ValueError(f"reward has shape {list(reward.shape)}; it must be {list(self.reward.shape)}.")
        mdp = type(self).__new__(type(self))
        mdp._set(self.kernel, reward, self.gamma, self.legal, self.terminal)
        return mdp

    def backup(self, values: ArrayLike) -> Values:
        """Gives `reward + gamma * kernel @ values`: `[S]` to `[S, A]`, -inf where an action is not legal."""
        onward = self.kernel @ floats(values, "values")
        onward *= self.gamma
        return np.add(onward.reshape(self.reward.shape), self._offset, order="F")

    def value(self, operator: Operator, q: ArrayLike) -> Values:
        """Gives what the actions are worth together, `operator(q, q)`, and 0 in terminal states: `[S, A]` to `[S]`."""
        q = floats(q, "q")
        worth = np.asarray(operator(q, q, where=self.legal), np.float64)
        return np.where(self.terminal, 0.0, worth)

    def values_of(self, operator: Operator, start: ArrayLike) -> Values:
        """Gives the values `[S]` of action values `[S, A]`; values as they are, and 0 in terminal states.

        Raises:
            ValueError: it has another shape, or is not finite for a legal action.
        """
        start = np.array(floats(start, "a start"))
        if start.shape not in ((self.num_states,), self.reward.shape):
            allowed = f"[{self.num_states}] or {list(self.reward.shape)}"
            raise ValueError(
                f"a start has shape {list(start.shape)}; it must be {allowed}, of values or action values."
            )
        wrong = ~np.isfinite(start) & (self.legal if start.ndim == 2 else True)
        if wrong.any():
            raise ValueError(f"a start is not finite at {np.argwhere(wrong)[0].tolist()}.")
        if start.ndim == 2:
            return self.value(operator, np.where(self.legal, start, -np.inf))
        return np.where(self.terminal, 0.0, start)

    def apply(self, operator: Operator, q: ArrayLike) -> Values:
        """Applies the Bellman operator, `T Q = reward + gamma E[operator(Q(s', .))]` (eq. 2 to 4): `[S, A]`.

        `q` is both averaged and selector, so that `double(op)` equals `op`. Illegal actions are -inf, and what `q` has
        for them does not matter.
        """
        return self.backup(self.value(operator, q))


def _names(given: Any, what: str) -> Sequence[Hashable]:
    """Returns names as they are given, or numbers for so many; a word is the names of its letters."""
    return range(as_integer(given, what)) if is_one(given) and not isinstance(given, str) else list(given)
