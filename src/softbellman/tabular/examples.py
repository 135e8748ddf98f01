"""Example MDPs, each with what it shows and the values to expect.

`EXAMPLES` lists by name those that can be built without arguments.

Example:
    >>> sorted(EXAMPLES)[:3]
    ['asadi-littman', 'doors', 'expansive']
    >>> EXAMPLES["small"]()
    FiniteMDP(2 states, 2 actions, gamma 0.9)
"""

from collections.abc import Callable
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from softbellman.operators.arrays import floats
from softbellman.tabular.mdp import FiniteMDP

PUBLISHED_REWARD = 0.0335  # printed as 0.033, it seems: with 0.033 the published tau has but one fixed point


def one_state(rewards: ArrayLike = (1.0, 0.0), gamma: float = 0.9) -> FiniteMDP:
    """Build one state whose actions, with these rewards `[A]`, all lead back to it.

    The gaps between its actions are those of the rewards from the first step on, which makes it the smallest
    counterexample to much: with rewards (1, 0) and `Q0 = 0`, softmax and the maximum agree at first and not later.

    Example:
        >>> one_state((1.0, 0.0), gamma=0.5).backup([2.0]).tolist()
        [[2.0, 1.0]]
    """
    rewards = floats(rewards, "rewards")
    return FiniteMDP(np.ones((1, len(rewards), 1)), rewards[None], gamma)


def two_fixed_points(reward_b: float = 0.033, gamma: float = 0.98) -> FiniteMDP:
    """Build the MDP of Asadi and Littman (2017, figure 1), where softmax has up to three fixed points.

    In state 0, action a pays 0.122 and stays with probability 0.66, action b pays `reward_b` and stays with 0.99;
    state 1 is the end. To choose b always is optimal: V* = 1.107383. For softmax, a raises the share of a: with tau
    between 16.87379331 and 17.04571397 there are two stable fixed points and an unstable one between them; at tau 17,
    V = 0.607770, 0.691909 and 0.876889. At the published tau of 16.55 there is one, V = 0.550402. Mellowmax has one
    always.

    Example:
        >>> two_fixed_points().backup([1.107382550336, 0.0])[0].round(6).tolist()
        [0.838255, 1.107383]
    """
    stay = np.array([0.66, 0.99])
    transition = np.zeros((2, 2, 2))
    transition[0] = np.stack([stay, 1 - stay], axis=1)
    return FiniteMDP(transition, [[0.122, reward_b], [0.0, 0.0]], gamma, terminal=[False, True])


def two_fixed_points_published(gamma: float = 0.98) -> FiniteMDP:
    """Build the same MDP with a reward of 0.0335 for b, for which the printed 0.033 may stand.

    With it the published tau of 16.55 has several fixed points, as published: V = 0.593000, 0.755758 (unstable) and
    0.857084.
    """
    return two_fixed_points(PUBLISHED_REWARD, gamma)


def period_two(gamma: float = 0.9) -> FiniteMDP:
    """Build an MDP on which iteration with softmax at tau 1 settles on a cycle of two, and so never ends.

    One state, 500 actions: the first pays 10 and ends, the others pay -3.6495... and stay. The higher the value of the
    state, the more of its weight goes to the many that stay, and the lower its next value: V alternates between
    8.564869553258 and 6.628665662252. Between them lies the one fixed point, 7.591486182385, which repels (slope
    -1.08385); Newton's method finds it. V* = 10.

    Example:
        >>> from softbellman import operators as ops
        >>> mdp, q = period_two(), np.zeros((2, 500))
        >>> values = []
        >>> for _ in range(1000):
        ...     q = mdp.apply(ops.softmax(1.0), q)
        ...     values.append(round(float(mdp.value(ops.softmax(1.0), q)[0]), 6))
        >>> sorted(values[-2:])
        [6.628666, 8.56487]
    """
    others = 499
    transition = np.zeros((2, 1 + others, 2))
    transition[0, 0, 1] = transition[0, 1:, 0] = 1.0
    reward = np.zeros((2, 1 + others))
    reward[0] = [10.0, *others * [-3.649502564146246]]
    return FiniteMDP(transition, reward, gamma, terminal=[False, True])


def vanishing_gap(gamma: float = 0.99) -> FiniteMDP:
    """Build the chain on which the rate of Theorem 3 (II) is not exponential in tau, once it has to serve every k.

    State 0 leads to state 1, where action 0 leads to state 2 and action 1 to state 3; both stay for ever, and no
    reward is paid. Start from `vanishing_gap_start`, where the better action is better by 1. After k - 1 steps it is
    better by `d = gamma^(k-1)`, and after k steps state 0 is off by `gamma d / (1 + exp(tau d))`. For every tau of
    1.28 or more some k makes `tau d` about 1.28, and the error about `0.27568 / tau`. State 4 pays 1 for ever; it is
    there to put the start within the rewards, as Lemma A1 wants it.
    """
    onward = np.array([[1, 1], [2, 3], [2, 2], [3, 3], [4, 4]])
    reward = np.zeros((5, 2))
    reward[4] = 1.0
    return FiniteMDP(np.eye(5)[onward], reward, gamma)


def vanishing_gap_start() -> NDArray[np.float64]:
    """Give the `Q0` to go with `vanishing_gap`: `[5, 2]`, 1 where the way leads to state 3, else 0."""
    start = np.zeros((5, 2))
    start[1, 1] = start[3] = 1.0
    return start


def expansive(gamma: float = 0.99) -> FiniteMDP:
    """Build an MDP on which softmax drives two sets of values apart, in the spirit of Littman (1996).

    One state, two actions that stay and pay 2.4 and 0. At tau 1, `Q = (2.4, 0)` and `Q' = (2.5, -0.1)` differ by 0.1
    and, after one step, by 0.118656: softmax expands by 1.198546, which gamma makes 1.186560, in the maximum norm. Yet
    iteration converges, to one fixed point: expansion need not mean more than that the proof by contraction fails.
    Its limit is `two_fixed_points` and `period_two`.
    """
    return one_state((2.4, 0.0), gamma)


def small(gamma: float = 0.9) -> FiniteMDP:
    """Build the smallest example of pymdptoolbox: two states, two actions.

    V* = 42.441860, 36.046512 at gamma 0.9, and 392.299107, 386.160714 at 0.99.
    """
    transition = [[[0.5, 0.5], [0.0, 1.0]], [[0.8, 0.2], [0.1, 0.9]]]
    return FiniteMDP(transition, [[5.0, 10.0], [-1.0, 2.0]], gamma)


def forest(
    states: int = 3, reward_wait: float = 4.0, reward_cut: float = 2.0, fire: float = 0.1, gamma: float = 0.9
) -> FiniteMDP:
    """Build the forest of pymdptoolbox, which grows a year older at each step unless it is cut or burns.

    States are ages, the last standing for all above it. Action 0 waits: the forest burns, back to age 0, with
    probability `fire`; where it is of the last age, waiting pays `reward_wait`. Action 1 cuts, back to age 0, and pays
    nothing at age 0, `reward_cut` at the last age, 1 between. Sparse, so that there may be millions of ages.

    V* = 26.244, 29.484, 33.484 at gamma 0.9 and 74.6496, 78.1056, 82.1056 at 0.96; to wait is always best.

    Raises:
        ValueError: fewer than 2 states, or `fire` is no probability.
    """
    if states < 2:
        raise ValueError(f"forest: states ({states}) must be at least 2, a youngest age and an oldest.")
    if not 0 <= fire <= 1:
        raise ValueError(f"forest: fire ({fire}) must be a probability, from 0 to 1.")
    ages, young = np.arange(states), np.zeros(states, dtype=int)
    older = np.minimum(ages + 1, states - 1)
    wait = sparse.coo_array((np.repeat([1 - fire, fire], states), (np.tile(ages, 2), np.concatenate([older, young]))))
    cut = sparse.coo_array((np.ones(states), (ages, young)), shape=(states, states))
    reward = np.zeros((states, 2))
    reward[1:, 1] = 1.0
    reward[-1] = reward_wait, reward_cut
    return FiniteMDP([wait, cut], reward, gamma)


def doors(gamma: float = 0.9) -> FiniteMDP:
    """Build three rooms in a row before an end, in which not every action is legal.

    Action 0 goes back, which is illegal in room 0; action 1 goes on; action 2 jumps over a room and is legal in room 0
    only. A step costs 1, a jump 1.5. All values are below 0, so that an illegal action, if it counted and were worth 0,
    would look best. V* = -2.4, -1.9, -1: to jump and to go on is optimal.

    Example:
        >>> doors().legal.tolist()
        [[False, True, True], [True, True, False], [True, True, False], [True, True, True]]
    """
    transition = np.zeros((4, 3, 4))
    transition[[1, 2], 0, [0, 1]] = transition[[0, 1, 2], 1, [1, 2, 3]] = transition[0, 2, 2] = 1.0
    legal = transition.any(axis=-1)
    return FiniteMDP(transition, np.tile([-1.0, -1.0, -1.5], (4, 1)), gamma, terminal=[False] * 3 + [True], legal=legal)


def asadi_littman(seed: int = 0, gamma: float = 0.98) -> FiniteMDP:
    """Draw an MDP from the family of Asadi and Littman (2017): the same seed, the same MDP.

    2 to 10 states and 2 to 5 actions. Each probability, before it is normalised, is uniform in [0, 0.01], with
    probability 0.5 plus a normal number of mean 1 and variance 0.1, and with probability 0.1 plus another of mean 100
    and variance 1; below 0 becomes 0. Rewards are drawn alike, and divided by twice their maximum.

    Iteration with softmax at tau 16.55 does not settle on 13 of the first 200 seeds, seed 0 among them, which ends in
    a cycle of three; with mellowmax it settles on all.
    """
    rng = np.random.default_rng(seed)
    states, actions = int(rng.integers(2, 11)), int(rng.integers(2, 6))

    def draw(*shape: int) -> NDArray[np.float64]:
        numbers = rng.uniform(0.0, 0.01, shape)
        for chance, mean, variance in ((0.5, 1.0, 0.1), (0.1, 100.0, 1.0)):
            numbers += (rng.random(shape) < chance) * rng.normal(mean, variance**0.5, shape)
        return np.maximum(numbers, 0.0)

    transition, reward = draw(states, actions, states), draw(states, actions)
    return FiniteMDP(transition / transition.sum(axis=-1, keepdims=True), 0.5 * reward / reward.max(), gamma)


def garnet(seed: int = 0, states: int = 50, actions: int = 8, branching: int = 4, gamma: float = 0.95) -> FiniteMDP:
    """Draw an MDP of the Garnet family (Bhatnagar et al. 2009): the same seed, the same MDP. Nothing of it ends.

    Each action of a state leads to `branching` states, its own possibly among them, drawn without repetition, with
    probabilities that are the lengths into which as many uniform points less one cut the unit interval. Rewards of
    states and actions are
    standard normal.

    Raises:
        ValueError: there is no state or action, or not so many states to branch to.
    """
    if min(states, actions) < 1 or not 1 <= branching <= states:
        raise ValueError(
            f"garnet: states ({states}) and actions ({actions}) must be at least 1, "
            f"branching ({branching}) from 1 to states."
        )
    rng = np.random.default_rng(seed)
    transition = np.zeros((states, actions, states))
    for row in transition.reshape(-1, states):
        cuts = np.sort(rng.random(branching - 1))
        row[rng.choice(states, branching, replace=False)] = np.diff(cuts, prepend=0.0, append=1.0)
    return FiniteMDP(transition, rng.normal(size=(states, actions)), gamma)


EXAMPLES: MappingProxyType[str, Callable[..., FiniteMDP]] = MappingProxyType(
    {
        "two-fixed-points": two_fixed_points,
        "two-fixed-points-published": two_fixed_points_published,
        "period-two": period_two,
        "vanishing-gap": vanishing_gap,
        "expansive": expansive,
        "one-state": one_state,
        "small": small,
        "forest": forest,
        "doors": doors,
        "asadi-littman": asadi_littman,
        "garnet": garnet,
    }
)
