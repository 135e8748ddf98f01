"""Bounds of softmax's distance from the maximum, in one state and along Q-iteration.

Names say which way a bound goes, docstrings where it comes from and when it is met. Two of the known bounds are what
an operator says of itself: `ops.softmax(tau).largest_gap(m)` is `W((m - 1) / e) / tau`, the largest gap over all
values, and `ops.mellowmax(tau).largest_gap(m)` is `log(m) / tau`, which holds for softmax too and is weaker.

`m` is the number of actions; `tau`, in units of 1/q, the inverse temperature of softmax. All else that a bound takes
or gives is in units of q, and may be an array.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from softbellman import operators as ops
from softbellman.operators.arrays import floats


def largest_gap(tau: float, actions: int, spread: ArrayLike = math.inf) -> Any:
    """Bound `max(q) - sm_tau(q)` over all values of so many actions that lie within a `spread` of each other: sharp.

    Given its value g, the gap grows with the distance of any action from the best up to `g + 1/tau`, so the worst case
    has one best action and all others equally far below: by the spread, or by `(1 + W((m - 1) / e)) / tau` if that is
    less. There the gap is `W((m - 1) / e) / tau`, which is the bound where nothing is known of the spread.

    Args:
        tau: at least 0.
        actions: m, at least 1.
        spread: `[...]`, the largest less the smallest value, at least 0.

    Returns:
        `[...]`; infinite where both tau is 0 and the spread infinite.

    Raises:
        ValueError: `tau` or a spread is negative.

    Example:
        >>> float(largest_gap(1.0, 2).round(6)), float(largest_gap(1.0, 2, spread=1.0).round(6))
        (0.278465, 0.268941)
    """
    others, spreads = actions - 1, _distances(spread, "spread")
    if others == 0:
        return np.zeros_like(spreads)
    if tau == 0:
        return spreads * (others / actions)
    distance = np.minimum(spreads, 1 / tau + ops.softmax(tau).largest_gap(actions))
    return distance * others / (np.exp(tau * distance) + others)


def smallest_gap(tau: float, actions: int, spread: ArrayLike) -> Any:
    """Bound `max(q) - sm_tau(q)` from below, `q` having this very spread: `d / (1 + (m - 1) exp(tau d))`, sharp.

    Met where all actions but one are equally good. It is at least `d / (m exp(tau d))`, see `lemma_2_lower`.

    Raises:
        ValueError: a spread is negative.

    Example:
        >>> q = np.array([3.0, 3.0, 1.0])
        >>> gap = q.max() - ops.softmax(1.0)(q)
        >>> bool(np.isclose(gap, smallest_gap(1.0, 3, spread=2.0)))
        True
    """
    distance = _distances(spread, "spread")
    weight = np.exp(-tau * distance)
    return distance * weight / (weight + actions - 1)


def lemma_2_upper(tau: float, actions: int, largest_distance: ArrayLike) -> Any:
    """Bound the gap as Lemma 2 does: `(m - 1) max(1 / (tau + 2), D / (1 + exp(tau)))`.

    True where no two values are farther apart than D. The paper has `D = 2 Qmax = 2 Rmax / (1 - gamma)`, for which it
    needs `Rmax >= -Rmin >= 0`; where that fails it may be negative, and is taken as it is. Of order `m / tau` for large
    tau, and far above `largest_gap`: 914 against 1.46 at tau 1, 18 actions and D 200.

    Example:
        >>> round(float(lemma_2_upper(1.0, 18, 200.0)))
        914
    """
    return (actions - 1) * np.maximum(1 / (tau + 2), floats(largest_distance, "largest_distance") * expit(-tau))


def lemma_2_lower(tau: float, actions: int, distance: ArrayLike, largest_distance: ArrayLike | None = None) -> Any:
    """Bound the gap from below as Lemma 2 does: `d / (m exp(tau D))`.

    True where d is the spread of the very values in question, and `D >= d`. The paper puts the supremum over all
    iterates in place of both, which is false as soon as one of the others has a smaller spread.

    Args:
        tau: at least 0.
        actions: m.
        distance: d.
        largest_distance: D; d by default.

    Raises:
        ValueError: a distance is negative, or D is below d.
    """
    nearest = _distances(distance, "distance")
    farthest = nearest if largest_distance is None else _distances(largest_distance, "largest_distance")
    if np.any(farthest < nearest):
        raise ValueError(f"largest_distance ({largest_distance}) must be at least distance ({distance}).")
    return nearest / actions * np.exp(-tau * farthest)


def entropy_gap(tau: float, q: ArrayLike) -> Any:
    """Bound the gap by `H(p) / tau`, p being the softmax policy at `q` `[..., A]` and H its entropy: `[...]`.

    From `tau sm(q) + H(p) = log(sum(exp(tau q))) >= tau max(q)`. At most `log(m) / tau`.

    Raises:
        ValueError: `tau` is not above 0, where nothing bounds the gap.

    Example:
        >>> float(entropy_gap(1.0, [0.0, 1.0]).round(6))
        0.582203
    """
    _require_rate(tau)
    p = ops.softmax(tau).weights(q)
    return -np.sum(p * np.log(p, out=np.zeros_like(p), where=p > 0), axis=-1) / tau


def per_action_gap(tau: float, actions: int) -> float:
    """Bound the gap by `m / (e tau)`, since each action adds at most `d exp(-tau d) <= 1 / (e tau)`.

    Raises:
        ValueError: `tau` is not above 0, where nothing bounds the gap.

    Source: O'Donoghue et al. (2017).

    Example:
        >>> round(per_action_gap(1.0, 2), 6)
        0.735759
    """
    _require_rate(tau)
    return actions / (math.e * tau)


def softmax_lipschitz(actions: int) -> float:
    """Give the Lipschitz constant L of softmax over m actions in the maximum norm, the same for every tau > 0.

    It is the largest l1 norm of the gradient, met where one action is best and the others equally far below, by
    `x / tau` with `x (2 p - 1) = 2`, `p = exp(x) / (exp(x) + m - 1)`; and `L = x / 2`. So the softmax Bellman operator
    contracts by `gamma L`, and has one fixed point, whenever `gamma < 1 / L`. Beyond that it may have several, or
    none that iteration finds: `examples.two_fixed_points`, `examples.period_two`.

    Args:
        actions: m, at least 1.

    Example:
        >>> round(softmax_lipschitz(2), 7), round(1 / softmax_lipschitz(2), 5)
        (1.1996786, 0.83356)
    """
    return ops.softmax(1.0).lipschitz(actions)


def discounted_sum(gamma: float, steps: Any = math.inf) -> Any:
    """Add `gamma^j` over `j = 1 .. steps`: how a gap that is suffered at every step adds up (proof of Theorem 3).

    Args:
        gamma: the discount factor, below 1.
        steps: `[...]`; infinite for the limit.

    Example:
        >>> discounted_sum(0.5, 2), discounted_sum(0.5)
        (0.75, 1.0)
    """
    return gamma * (1 - gamma**steps) / (1 - gamma)


def reachable_values(gamma: float, rewards: ArrayLike, start: ArrayLike, steps: ArrayLike = math.inf) -> Any:
    """Bound all values after so many steps of Q-iteration, whatever the transitions and the operator: Lemma A1, mended.

    A backup adds at most the largest reward to a discounted value that was at most the largest so far. So after k
    steps no value exceeds `Rmax (1 - gamma^k) / (1 - gamma) + gamma^k max(Q0)`, and alike from below. The operator
    need only lie between the smallest and the largest of the values it is given. The paper's
    `[Rmin, Rmax] / (1 - gamma)` supposes `Rmin <= 0 <= Rmax`, besides `Q0` in `[Rmin, Rmax]`.

    Args:
        gamma: the discount factor, below 1.
        rewards: the smallest and the largest expected reward. Where episodes end, 0 is among them.
        start: the smallest and the largest value of `Q0`. Where episodes end, 0 is among them.
        steps: `[...]`, k; infinite for what is approached in the end.

    Returns:
        `[..., 2]`, lower and upper bounds.

    Example:
        >>> reachable_values(0.5, rewards=(-1.0, 1.0), start=(0.0, 0.0), steps=2).tolist()
        [-1.5, 1.5]
    """
    remembered = np.power(gamma, steps)[..., None]
    return floats(rewards, "rewards") * (1 - remembered) / (1 - gamma) + remembered * floats(start, "start")


def _require_rate(tau: float) -> None:
    if not 0 < tau < math.inf:
        raise ValueError(f"tau ({tau}) must be finite and above 0; at 0 softmax is the mean, and no gap is too large.")


def _distances(given: ArrayLike, name: str) -> Any:
    distances = floats(given, name)
    if not np.all(distances >= 0):
        raise ValueError(f"{name} ({given}) must be at least 0; a distance is the larger value less the smaller.")
    return distances
