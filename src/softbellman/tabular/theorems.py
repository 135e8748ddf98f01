"""Theorems of Song, Parr and Carin (2019): as stated, corrected, and sharp, each ready to be checked.

Every form of a statement is a function of one thing, the `Iterates` of MDPs, and gives its margins: the side that is to
be larger less the other, wherever the inequality speaks. So a form holds where no margin is negative. A condition
of the paper's form is a `Premise`; where that form fails, the statement carries a `counterexample`, as small as can
make the point. docs/theory.md tells it all in words.

Theorem 4 speaks of estimates of the values of a state. Nothing is supposed of how they come about, so the iterates
serve: those of one state are its estimates, all equally likely.

Example:
    >>> LEMMA_2_LOWER.margin("paper", LEMMA_2_LOWER.counterexample()).round(5).tolist()
    [-0.18394]
    >>> LEMMA_2_LOWER.margin("sharp", LEMMA_2_LOWER.counterexample()).tolist()
    [0.0]
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from softbellman import operators as ops
from softbellman.tabular import bounds, examples
from softbellman.tabular.iterates import Iterates, iterate_both

Values = NDArray[np.float64]
Form = Callable[[Iterates], Values]
FORMS = ("paper", "corrected", "sharp")


class Premise(NamedTuple):
    """Condition under which a statement is true as the paper has it; `holds` gives `[N]` bool."""

    text: str
    holds: Callable[[Iterates], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement of the paper, in up to three forms, each from `Iterates` of N MDPs to margins `[N, ...]`.

    Attributes:
        name: where it stands.
        claim: what the paper says.
        premise: what the paper's form needs.
        paper: as stated; None where that is no inequality.
        corrected: true always, with as little changed as can be; None where nothing need be.
        sharp: the best form that we know; None where there is no better one.
        counterexample: builds iterates on which the paper's form fails; None where it is true.
    """

    name: str
    claim: str
    premise: Premise
    paper: Form | None
    corrected: Form | None = None
    sharp: Form | None = None
    counterexample: Callable[[], Iterates] | None = None

    def margin(self, form: str, iterates: Iterates) -> Values:
        """Give the smallest margin of a form on each MDP, in units of q: `[N]`; negative where the form fails.

        Rounding, up to 1e-9 of the largest value, counts as 0.

        Raises:
            ValueError: the statement has no such form.
        """
        compute = getattr(self, form) if form in FORMS else None
        if compute is None:
            raise ValueError(f"{self.name} has no form {form!r}; it has {', '.join(self.forms)}.")
        margins = compute(iterates)
        smallest = margins.min(axis=tuple(range(1, margins.ndim)), initial=np.inf)
        rounding = 1e-9 * np.abs(iterates.reachable_ever).max(axis=(1, 2))
        return np.where(np.abs(smallest) <= rounding, 0.0, smallest)

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that there are."""
        return tuple(form for form in FORMS if getattr(self, form) is not None)


def audit(iterates: Iterates) -> str:
    """Lay out how every statement fares: the smallest margin of each form; a negative one has failed.

    Example:
        >>> print(audit(LEMMA_2_LOWER.counterexample()).splitlines()[4])
        Lemma 2, lower bound          (it is false)            -0.1839           0           0
    """
    lines = [f"{'statement':<30}{'true as stated if':<20}" + "".join(f"{form:>12}" for form in FORMS)]
    for statement in STATEMENTS:
        margins = {form: format(statement.margin(form, iterates).min(), ".4g") for form in statement.forms}
        cells = "".join(f"{margins.get(form, '-'):>12}" for form in FORMS)
        lines.append(f"{statement.name:<30}{statement.premise.text:<20}{cells}")
    return "\n".join(lines)


def _starts_among_rewards(it: Iterates) -> NDArray[np.bool_]:
    return ((it.rewards[..., 0] <= it.start[..., 0]) & (it.start[..., 1] <= it.rewards[..., 1]))[:, 0]


def _signs(it: Iterates) -> NDArray[np.bool_]:
    low, high = it.rewards[:, 0].T
    return _starts_among_rewards(it) & (low <= 0) & (high >= 0)


def _gains(it: Iterates) -> NDArray[np.bool_]:
    low, high = it.rewards[:, 0].T
    return _signs(it) & (high >= -low)


ALWAYS = Premise("(nothing)", lambda it: np.ones(len(it.soft), bool))
SIGNS = Premise("Rmin <= 0 <= Rmax", _signs)
GAINS = Premise("Rmax >= -Rmin >= 0", _gains)
CLOSE = Premise("spread <= 2 Qmax", lambda it: np.all(it.spread <= 2 * it.q_max, axis=(1, 2)))
NEVER = Premise("(it is false)", lambda it: np.zeros(len(it.soft), bool))


def _constant_reward() -> Iterates:
    return iterate_both(examples.one_state([1.0], gamma=0.9), tau=1.0, start=1.0, steps=10)


def _losses() -> Iterates:
    return iterate_both(examples.one_state([0.0, -10.0], gamma=0.9), tau=0.1, start=[[0.0, -10.0]], steps=100)


def _tied_start() -> Iterates:
    return iterate_both(examples.one_state([1.0, 0.0], gamma=0.9), tau=1.0, start=0.0, steps=1)


def _chain() -> Iterates:
    return iterate_both(examples.vanishing_gap(), tau=10.0, start=examples.vanishing_gap_start(), steps=206)


def _within(it: Iterates, limits: Values) -> Values:
    """The margins of the softmax iterates within limits `[N, 1 or K + 1, 2]`: `[N, K + 1, 2]`."""
    return (it.values - limits) * np.array([1.0, -1.0])


def _lemma_2_upper(it: Iterates, largest_distance: Values) -> Values:
    return bounds.lemma_2_upper(it.tau, it.actions, largest_distance)


def _largest_spread(it: Iterates) -> Values:
    """The paper's delta-hat, the largest spread of each state over the iterates: `[N, 1, S]`."""
    return it.spread.max(axis=1, keepdims=True)


def _average(estimates: Values) -> Values:
    """The expectation over the estimates of a state: `[N, K + 1, S]` to `[N, 1, S]`."""
    return estimates.mean(axis=1, keepdims=True)


def _summed(it: Iterates, gap: Values) -> Values:
    """The margins of `T^k Q0 - Tsoft^k Q0 <= sum_(j <= k) gamma^j gap`, gap being `[N, 1, 1]`: `[N, K, 1]` from k = 1.

    At k = 0 both sides are 0, whatever the gap is.
    """
    return bounds.discounted_sum(it.gamma, it.steps)[1:, None] * gap - it.error[:, 1:, 1:]


def _compounded(it: Iterates, gap: Values) -> Values:
    """The margins of `T^k Q0 - Tsoft^k Q0 <= b_k`, `b_0 = 0`, `b_(k+1) = gamma (gap_k + L b_k)`: `[N, K]` from k = 1.

    Here gap is `[N, K]`. With `X = T^k Q0` and `Y = Tsoft^k Q0`, `max X - sm Y = (max X - sm X) + (sm X - sm Y)`: a
    gap at an exact iterate, on which tau has no bearing, and at most L times the error so far.
    """
    lipschitz, bound = bounds.softmax_lipschitz(it.actions), [np.zeros(len(gap))]
    for step in gap.T:
        bound.append(it.gamma * (step + lipschitz * bound[-1]))
    return np.stack(bound[1:], axis=1) - it.error[:, 1:, 1]


def _gap_of_start(it: Iterates) -> Values:
    """The sum of `d / (1 + exp(tau d))` over the distances d of `Q0`, in the state where it is largest: `[N, 1, 1]`."""
    distance = it.distance(it.soft[:, :1])
    return np.sum(distance * expit(-it.tau * distance), axis=-1).max(axis=-1)[..., None]


def _exponential_gap(it: Iterates) -> Values:
    """A bound on the gap at all exact iterates but the last: `(m - 1) D exp(-tau d)`, `[N, K]`.

    D is the largest distance from a best action to another in these, d the smallest that is not 0.
    """
    distance = it.distance(it.exact[:, :-1])
    largest = distance.max(axis=(1, 2, 3), keepdims=True)
    smallest = np.where(distance > 0, distance, largest).min(axis=(1, 2, 3), keepdims=True)
    bound = (it.actions - 1) * largest * np.exp(-it.tau * smallest)
    return np.broadcast_to(bound[..., 0, 0], distance.shape[:2])


def _exact_gap(it: Iterates) -> Values:
    """The gap at all exact iterates but the last, in the state where it is largest: `[N, K]`."""
    return it.shortfall(ops.softmax(it.tau), it.exact[:, :-1]).max(axis=-1)


def _increase(it: Iterates) -> Values:
    """Gain of softmax when tau is more than doubled: `[N, K + 1, S]`."""
    return it.gap - it.shortfall(ops.softmax(2 * it.tau + 1), it.soft)


def _lead(it: Iterates, op: ops.Operator) -> Values:
    """How far softmax is above another operator: `[N, K + 1, S]`."""
    return it.shortfall(op, it.soft) - it.gap


LEMMA_A1 = Statement(
    "Lemma A1",
    "Rmin / (1 - gamma) <= Tsoft^k Q0 <= Rmax / (1 - gamma), if Rmin <= Q0 <= Rmax",
    SIGNS,
    paper=lambda it: _within(it, it.rewards / (1 - it.gamma)),
    corrected=lambda it: _within(it, it.reachable_ever),
    sharp=lambda it: _within(it, it.reachable),
    counterexample=_constant_reward,
)
COROLLARY = Statement(
    "Corollary A2",
    "|Q(s, a) - Q(s, b)| <= 2 Qmax = 2 Rmax / (1 - gamma); Rmax >= -Rmin >= 0 without loss of generality",
    GAINS,
    paper=lambda it: 2 * it.q_max - it.spread,
    corrected=lambda it: it.width - it.spread,
    sharp=lambda it: np.diff(it.reachable) - it.spread,
    counterexample=_losses,
)
LEMMA_2_UPPER = Statement(
    "Lemma 2, upper bound",
    "max Q(s, .) - sm Q(s, .) <= (m - 1) max{1 / (tau + 2), 2 Qmax / (1 + exp(tau))}",
    GAINS,
    paper=lambda it: _lemma_2_upper(it, 2 * it.q_max) - it.gap,
    corrected=lambda it: _lemma_2_upper(it, it.width) - it.gap,
    sharp=lambda it: bounds.largest_gap(it.tau, it.actions, it.spread) - it.gap,
    counterexample=_losses,
)
LEMMA_2_LOWER = Statement(
    "Lemma 2, lower bound",
    "max Q(s, .) - sm Q(s, .) >= D / (m exp(tau D)), D the largest spread of state s over all iterates",
    NEVER,
    paper=lambda it: it.gap - bounds.lemma_2_lower(it.tau, it.actions, _largest_spread(it)),
    corrected=lambda it: it.gap - bounds.lemma_2_lower(it.tau, it.actions, it.spread, _largest_spread(it)),
    sharp=lambda it: it.gap - bounds.smallest_gap(it.tau, it.actions, it.spread),
    counterexample=_tied_start,
)
THEOREM_3_UPPER = Statement(
    "Theorem 3 (I), upper bound",
    "limsup Tsoft^k Q0 <= Q*; in the proof, Tsoft^k Q0 <= T^k Q0 for every k",
    ALWAYS,
    paper=lambda it: it.error[:, 1:, 0],
)
THEOREM_3_LOWER = Statement(
    "Theorem 3 (I), lower bound",
    "liminf Tsoft^k Q0 >= Q* - gamma / (1 - gamma) (m - 1) max{1 / (tau + 2), 2 Qmax / (1 + exp(tau))}; read for every "
    "k, as it is proved",
    GAINS,
    paper=lambda it: bounds.discounted_sum(it.gamma) * _lemma_2_upper(it, 2 * it.q_max) - it.error[..., 1:],
    corrected=lambda it: bounds.discounted_sum(it.gamma) * _lemma_2_upper(it, it.width) - it.error[..., 1:],
    sharp=lambda it: _summed(it, bounds.largest_gap(it.tau, it.actions, it.width)),
    counterexample=_losses,
)
THEOREM_3_RATE = Statement(
    "Theorem 3 (II)",
    "T^k Q0 - Tsoft^k Q0 <= sum_(j <= k) gamma^j sum_i d_i / (1 + exp(tau d_i)), read with the distances d_i of Q0, "
    "the only ones that depend neither on tau nor on k; hence an exponential rate",
    NEVER,
    paper=lambda it: _summed(it, _gap_of_start(it)),
    corrected=lambda it: _compounded(it, _exponential_gap(it)),
    sharp=lambda it: _compounded(it, _exact_gap(it)),
    counterexample=_chain,
)
THEOREM_4_SIGN = Statement(
    "Theorem 4 (I)",
    "the overestimation of softmax is at most that of the maximum",
    ALWAYS,
    paper=lambda it: _average(it.gap),
)
THEOREM_4_LOWER = Statement(
    "Theorem 4 (II), lower bound",
    "softmax reduces overestimation by at least D / (m exp(tau D)), D the largest spread of the estimates",
    NEVER,
    paper=lambda it: _average(it.gap) - bounds.lemma_2_lower(it.tau, it.actions, _largest_spread(it)),
    corrected=lambda it: _average(it.gap - bounds.lemma_2_lower(it.tau, it.actions, it.spread)),
    sharp=lambda it: _average(it.gap - bounds.smallest_gap(it.tau, it.actions, it.spread)),
    counterexample=_tied_start,
)
THEOREM_4_UPPER = Statement(
    "Theorem 4 (II), upper bound",
    "softmax reduces overestimation by at most (m - 1) max{1 / (tau + 2), 2 Qmax / (1 + exp(tau))}",
    CLOSE,
    paper=lambda it: _lemma_2_upper(it, 2 * it.q_max) - _average(it.gap),
    corrected=lambda it: _lemma_2_upper(it, it.width) - _average(it.gap),
    sharp=lambda it: _average(bounds.largest_gap(it.tau, it.actions, it.spread) - it.gap),
    counterexample=_losses,
)
THEOREM_4_MONOTONE = Statement(
    "Theorem 4 (III)",
    "the overestimation of softmax does not decrease in tau",
    ALWAYS,
    paper=lambda it: _average(_increase(it)),
)
LEMMA_A3 = Statement(
    "Lemma A3",
    "softmax does not decrease in tau, whatever the values",
    ALWAYS,
    paper=_increase,
)
REMARK_5_1 = Statement(
    "Section 5.1, remark",
    "softmax alone can have a negative error in the simulation; but it is never below the mean, whose error is that of "
    "the noise, there 0",
    NEVER,
    paper=None,
    corrected=lambda it: _average(_lead(it, ops.mean())),
)
EQUIVALENCE = Statement(
    "Section 6, equivalence",
    "some mellowmax is worth as much as softmax; for omega = tau it is worth no more, so omega >= tau",
    ALWAYS,
    paper=lambda it: np.minimum(_lead(it, ops.mellowmax(it.tau)), it.gap),
)
LIPSCHITZ = Statement(
    "Section 3, no contraction",
    "Tsoft is no contraction for some tau; but |Tsoft Q - Tsoft Q'| <= gamma L |Q - Q'| for every tau",
    ALWAYS,
    paper=None,
    corrected=lambda it: it.gamma * bounds.softmax_lipschitz(it.actions) * it.change[:, :-1] - it.change[:, 1:],
)

STATEMENTS = (
    LEMMA_A1,
    COROLLARY,
    LEMMA_2_UPPER,
    LEMMA_2_LOWER,
    THEOREM_3_UPPER,
    THEOREM_3_LOWER,
    THEOREM_3_RATE,
    THEOREM_4_SIGN,
    THEOREM_4_LOWER,
    THEOREM_4_UPPER,
    THEOREM_4_MONOTONE,
    LEMMA_A3,
    LIPSCHITZ,
    REMARK_5_1,
    EQUIVALENCE,
)
