"""Laws that an operator claims, and a search for values that show otherwise.

Laws are about `op(q, selector)` as a function of `q`, with the selector held fixed where it matters. The search
knows no operator: it draws values at many scales, climbs from the worst of them, and reports what it finds. That no
violation is found is evidence, not proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from softbellman.faults import faults_placed
from softbellman.operators.contract import precision, require_shapes

if TYPE_CHECKING:
    from softbellman.operators.core import Operator

Values = NDArray[np.float64]
ACTIONS = (2, 3, 5, 10)


@dataclass(frozen=True)
class Laws:
    """The laws that an operator claims; by default none.

    Attributes:
        monotone: `q <= q'` implies `op(q) <= op(q')`.
        translation_equivariant: `op(q + c) = op(q) + c`. With `monotone` it makes a non-expansion (Blackwell).
        non_expansion: `|op(q) - op(q')| <= max|q - q'|`: on one set of values, the Bellman operator contracts.
        at_least_mean: `op(q) >= mean(q)`.
        at_most_max: `op(q) <= max(q)`: it adds no overestimation.
        averages_with_its_weights: `op(q, q) = sum(op.weights(q) q)`.
        weights_are_policy: `op.weights(q)` is nowhere negative and sums to 1.
        gradient_is_derivative: `op.gradient(q)` is the derivative, wherever there is one.
        ignores_illegal: masked actions have weight and gradient exactly 0, and leaving them out changes nothing.
        within_largest_gap: `max(q) - op(q) <= op.largest_gap(actions)`.
        homogeneous: `op(c q, c selector) = c op(q, selector)` for `c > 0`: it needs no unit of value.
        optimality_preserving: on every finite MDP, what is greedy at the fixed point is optimal.
    """

    monotone: bool = False
    translation_equivariant: bool = False
    non_expansion: bool = False
    at_least_mean: bool = False
    at_most_max: bool = False
    averages_with_its_weights: bool = False
    weights_are_policy: bool = False
    gradient_is_derivative: bool = False
    ignores_illegal: bool = False
    within_largest_gap: bool = False
    homogeneous: bool = False
    optimality_preserving: bool = False

    @classmethod
    def of_an_average(cls, **changes: bool) -> Self:
        """Claim what holds for any average with weights that do not change with `q`, but for the changes given."""
        depends = ("at_least_mean", "within_largest_gap", "optimality_preserving")
        average = {field.name: field.name not in depends for field in fields(cls)}
        return cls(**average | changes)


class Witness(NamedTuple):
    """Values that show a violation: `[A]` each. Laws about one `q` have `other` equal to it; an end has zeros."""

    q: Values
    other: Values
    selector: Values


@dataclass(frozen=True)
class Finding:
    """Finding of the search about one law.

    Attributes:
        law: its name, a field of `Laws`.
        claimed: the operator claims it.
        held: no violation was found.
        worst: the largest excess or ratio found, in the units of `allowed`.
        allowed: what the law allows, before rounding.
        tolerance: what is forgiven beyond that as rounding; see `check_operator`.
        witness: where `worst` was found, if that is a violation.
    """

    law: str
    claimed: bool
    held: bool
    worst: float
    allowed: float
    tolerance: float
    witness: Witness | None


@dataclass(frozen=True)
class Report:
    """Findings of the search about an operator, law by law."""

    operator: str
    trials: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """No claimed law was violated."""
        return all(finding.held for finding in self.findings if finding.claimed)

    def __getitem__(self, law: str) -> Finding:
        """Look up a law by its name."""
        return {finding.law: finding for finding in self.findings}[law]

    def __str__(self) -> str:
        """Lay the findings out as a table."""
        broken = [
            f"{f.law} ({f.worst:.4g}, above {f.allowed:g} by more than {f.tolerance:.2g})"
            for f in self.findings
            if f.claimed and not f.held
        ]
        verdict = f"violates what it claims: {', '.join(broken)}" if broken else "no claimed law violated"
        lines = [f"{self.operator}: {verdict} ({self.trials} draws)", ""]
        lines.append(f"{'law':<26}{'claimed':<9}{'found':<10}{'worst':>11}{'allowed':>9}{'tolerance':>11}")
        for f in self.findings:
            claimed, found = ("yes" if f.claimed else "no"), ("held" if f.held else "violated")
            lines.append(f"{f.law:<26}{claimed:<9}{found:<10}{f.worst:>11.4g}{f.allowed:>9g}{f.tolerance:>11.2g}")
        return "\n".join(lines)


class _Probe(NamedTuple):
    """Values of one number of actions, and the operator under examination.

    `q` and `selector` are `[B, A]`; `eps` is the precision in which the operator answers.
    """

    op: Operator
    rng: np.random.Generator
    q: Values
    selector: Values
    eps: float

    def value(self, q: Values) -> Values:
        """Evaluate `[..., B, A]`: `[..., B]`."""
        return _float64(self.op(q, np.broadcast_to(self.selector, q.shape)))

    def scale(self, q: Values) -> Values:
        """The largest magnitude of each row: `[B, 1]`."""
        return np.max(np.abs(q), axis=-1, keepdims=True)

    def rounded(self, q: Values, value: Values) -> Values:
        """The largest magnitude among each row and what it is worth, which its rounding is a part of: `[B]`."""
        return np.maximum(self.scale(q)[:, 0], np.abs(value))

    def slopes(self, q: Values, power: float) -> tuple[Values, Values]:
        """Difference quotients forward and backward in each action, `[B, A]`; the step is `eps ** power * scale`."""
        step = self.eps**power * self.scale(q)
        moves = np.eye(q.shape[-1])[:, None, :] * step  # [A, B, A]
        here = self.value(q)
        ahead, behind = self.value(q + moves), self.value(q - moves)  # [A, B]
        return ((ahead - here) / step[:, 0]).T, ((here - behind) / step[:, 0]).T

    def slope(self, q: Values) -> Values:
        """The difference quotient over a larger step, both ways, that proposes where to look: `[B, A]`."""
        return np.mean(self.slopes(q, 0.25), axis=0)

    def climb(self, objective: Callable[[_Probe, Values], Values], climbers: int = 16, rounds: int = 16) -> _Probe:
        """Move the most promising rows to where an objective `[B]` is larger, by a random search of shrinking steps."""
        first = np.argsort(-objective(self, self.q))[:climbers]
        top = self._replace(q=self.q[first], selector=self.selector[first])
        q, best = top.q, objective(top, top.q)
        for step in np.geomspace(1.0, 0.01, rounds):
            noise, stretch = self.rng.standard_normal(q.shape), self.rng.standard_normal((len(q), 1))
            candidate = q * np.exp(step * stretch) + step * self.scale(q) * noise * (self.rng.random(q.shape) < 0.5)
            reached = objective(top, candidate)
            better = reached > best
            q, best = np.where(better[:, None], candidate, q), np.where(better, reached, best)
        return top._replace(q=q)


class _Excess(NamedTuple):
    """How far a law fails at each row `[B]`, what it allows, and what is forgiven as rounding, at the values given."""

    amount: Values
    allowed: float
    tolerance: float
    at: _Probe
    other: Values


def _monotone(drawn: _Probe) -> _Excess:
    p = drawn.climb(lambda p, q: np.max(-p.slope(q), axis=-1))
    step = p.eps**0.25 * p.scale(p.q) * np.eye(p.q.shape[-1])[np.argmin(p.slope(p.q), axis=-1)]
    p, step = _and_far(p, drawn, step, np.abs(_far(drawn)))
    return _Excess(-_rise(p, step), 0.0, p.eps**0.5 * 10, p, p.q + step)


def _non_expansion(drawn: _Probe) -> _Excess:
    p = drawn.climb(lambda p, q: np.sum(np.abs(p.slope(q)), axis=-1))
    step = p.eps**0.25 * p.scale(p.q) * np.where(p.slope(p.q) < 0, -1.0, 1.0)
    p, step = _and_far(p, drawn, step, _far(drawn))
    return _Excess(np.abs(_rise(p, step)), 1.0, p.eps**0.5 * 10, p, p.q + step)


def _rise(p: _Probe, step: Values) -> Values:
    """The rise of the value over a step, for each unit of the step's length, less what its rounding may be: `[B]`."""
    here = p.value(p.q)
    rise, rounding = p.value(p.q + step) - here, 8 * p.eps * p.rounded(p.q, here)
    return np.sign(rise) * np.maximum(np.abs(rise) - rounding, 0.0) / np.max(np.abs((p.q + step) - p.q), axis=-1)


def _far(p: _Probe) -> Values:
    """Steps of all sizes, in some of the actions at least one, or of one to a tie: over these an operator may jump."""
    size, one = 10 ** p.rng.uniform(-3, 0, size=(len(p.q), 1)), _one_each(p.rng, p.q.shape)
    some = (p.rng.random(p.q.shape) < 0.5) | one
    to_tie = (np.roll(p.q, 1, axis=-1) - p.q) * one
    ties = (np.max(np.abs(to_tie), axis=-1, keepdims=True) > 1e-3 * p.scale(p.q)) & (p.rng.random(size.shape) < 0.3)
    return np.where(ties, to_tie, size * p.scale(p.q) * p.rng.standard_normal(p.q.shape) * some)


def _and_far(p: _Probe, drawn: _Probe, near: Values, far: Values) -> tuple[_Probe, Values]:
    """Join the rows climbed to with those drawn, and the steps of each."""
    q, selector = np.concatenate([p.q, drawn.q]), np.concatenate([p.selector, drawn.selector])
    return p._replace(q=q, selector=selector), np.concatenate([near, far])


def _translation_equivariant(p: _Probe) -> _Excess:
    shift = p.scale(p.q) * p.rng.normal(scale=3.0, size=(len(p.q), 1))
    here = p.value(p.q)
    amount = np.abs(p.value(p.q + shift) - here - shift[:, 0]) / p.rounded(p.q, here)
    return _Excess(amount, 0.0, p.eps**0.75, p, p.q + shift)


def _climbed(objective: Callable[[_Probe, Values], Values], allowed: float = 0.0) -> Callable[[_Probe], _Excess]:
    def search(drawn: _Probe) -> _Excess:
        p = drawn.climb(objective)
        return _Excess(objective(p, p.q), allowed, p.eps**0.75, p, p.q)

    return search


def _gap_ratio(p: _Probe, q: Values) -> Values:
    bound = float(p.op.largest_gap(q.shape[-1]))
    value = p.value(q)
    gap = np.maximum(np.max(q, axis=-1) - value - p.eps**0.75 * p.rounded(q, value), 0.0)
    return gap / bound if bound > 0 else np.where(gap > 0, np.inf, 0.0)


def _averages_with_its_weights(p: _Probe) -> _Excess:
    average = np.sum(_float64(p.op.weights(p.q)) * p.q, axis=-1)
    amount = np.abs(_float64(p.op(p.q, p.q)) - average) / p.scale(p.q)[:, 0]
    return _Excess(amount, 0.0, p.eps**0.75, p, p.q)


def _weights_are_policy(p: _Probe) -> _Excess:
    weights = _float64(p.op.weights(p.q))
    amount = np.maximum(-np.min(weights, axis=-1), np.abs(np.sum(weights, axis=-1) - 1))
    return _Excess(amount, 0.0, p.eps**0.75, p, p.q)


def _gradient_is_derivative(p: _Probe) -> _Excess:
    unit = np.where(p.rng.random((len(p.q), 1)) < 0.5, 10 ** p.rng.uniform(-10, 10, size=(len(p.q), 1)), 1.0)
    p = p._replace(q=unit * p.q, selector=unit * p.selector)  # also where a steep operator turns
    ahead, behind = p.slopes(p.q, 1 / 3)
    smooth = np.abs(ahead - behind) < p.eps**0.25  # else at a kink, or too curved for this step
    slope, way = (ahead + behind) / 2, p.eps ** (1 / 3) * p.scale(p.q) * p.rng.standard_normal(p.q.shape)
    unlike = np.abs(p.value(p.q + way) - p.value(p.q - way) - 2 * np.sum(slope * way, axis=-1))
    smooth &= (unlike < p.eps**0.25 * np.max(np.abs(way), axis=-1))[:, None]  # else a tie that is left by several only
    smooth &= (p.eps ** (1 / 3) * p.rounded(p.q, p.value(p.q)) < p.scale(p.q)[:, 0])[:, None]  # else lost in rounding
    wrong = np.abs(_float64(p.op.gradient(p.q, p.selector)) - slope)
    return _Excess(np.max(np.where(smooth, wrong, 0.0), axis=-1), 0.0, p.eps ** (1 / 3) * 10, p, p.q)


def _ignores_illegal(p: _Probe) -> _Excess:
    actions: int = p.q.shape[-1]
    kept = (actions + 1) // 2
    places = np.sort(np.argsort(p.rng.random(p.q.shape), axis=-1)[:, :kept], axis=-1)
    legal = np.any(places[..., None] == np.arange(actions), axis=1)
    unknown, hidden = (np.where(legal, p.q, behind) for behind in (np.nan, -np.inf))
    if getattr(p.op, "for_actions", None) is None:
        alone = _float64(p.op(*(np.take_along_axis(values, places, axis=-1) for values in (p.q, p.selector))))
    else:  # which cannot be asked of fewer: other values behind the mask change nothing
        alone = _float64(p.op(np.where(legal, p.q, -7 * p.q), np.where(legal, p.selector, 7 * p.selector), legal))
    by_mask, by_infinity = _float64(p.op(unknown, p.selector, legal)), _float64(p.op(hidden, p.selector))
    leaks = [p.op.weights(unknown, legal), p.op.weights(hidden), p.op.gradient(unknown, p.selector, legal)]
    leak = sum(np.max(np.abs(_float64(leaked)), axis=-1, initial=0.0, where=~legal) for leaked in leaks)
    amount = np.maximum(np.abs(by_mask - alone), np.abs(by_infinity - alone)) / p.rounded(p.q, alone) + leak
    return _Excess(amount, 0.0, p.eps**0.75, p, hidden)


def _homogeneous(p: _Probe) -> _Excess:
    factor = np.exp(p.rng.normal(scale=2.0, size=(len(p.q), 1)))
    scaled, here = _float64(p.op(factor * p.q, factor * p.selector)) / factor[:, 0], p.value(p.q)
    near = p.value(p.q * (1 + 8 * p.eps * p.rng.uniform(-1, 1, size=(8, *p.q.shape))))
    amount = np.abs(scaled - here) - np.max(np.abs(near - here), axis=0)  # rounding of q tells: a root near 0 is steep
    return _Excess(np.maximum(amount, 0.0) / p.rounded(p.q, here), 0.0, p.eps**0.75, p, factor * p.q)


def _optimality_preserving(p: _Probe) -> _Excess:
    """Search among MDPs of which the rest follows, a choice between two states of different distances to the maximum.

    Their action values are `q` and `other`, rewards that end the game. Rewards on the way make the first state better,
    by less than the distances differ: then the fixed point prefers the second. Where all distances are the same, the
    other is an end, whose value of 0 no operator changes.
    """
    gap = (np.max(p.q, axis=-1) - _float64(p.op(p.q, p.q))) / p.scale(p.q)[:, 0]
    other = np.roll(p.q / p.scale(p.q), 1, axis=0) * p.scale(p.q)
    distance = (np.max(other, axis=-1) - _float64(p.op(other, other))) / p.scale(p.q)[:, 0]
    if np.all(np.abs(gap - distance) <= p.eps**0.75):
        other, distance = np.zeros_like(p.q), np.zeros_like(gap)
    return _Excess(np.abs(gap - distance), 0.0, p.eps**0.75, p, other)


_SEARCHES: dict[str, Callable[[_Probe], _Excess]] = {
    "monotone": _monotone,
    "translation_equivariant": _translation_equivariant,
    "non_expansion": _non_expansion,
    "at_least_mean": _climbed(lambda p, q: (np.mean(q, axis=-1) - p.value(q)) / p.scale(q)[:, 0]),
    "at_most_max": _climbed(lambda p, q: (p.value(q) - np.max(q, axis=-1)) / p.scale(q)[:, 0]),
    "averages_with_its_weights": _averages_with_its_weights,
    "weights_are_policy": _weights_are_policy,
    "gradient_is_derivative": _gradient_is_derivative,
    "ignores_illegal": _ignores_illegal,
    "within_largest_gap": _climbed(_gap_ratio, allowed=1.0),
    "homogeneous": _homogeneous,
    "optimality_preserving": _optimality_preserving,
}


@faults_placed()
def check_operator(op: Operator, *, trials: int = 1000, seed: int = 0) -> Report:
    """Search for a violation of every law, whether the operator claims it or not.

    A law is violated where `worst` is above `allowed` by more than the tolerance for rounding. With `eps` for the
    precision of the operator's answers that is `eps**0.75`, 1.8e-12 in float64 and 6.4e-6 in float32; for `monotone`
    and `non_expansion`, which are about slopes, `10 * eps**0.5`, 1.5e-7 and 3.5e-3; for `gradient_is_derivative`
    `10 * eps**(1/3)`, 6.1e-5 and 0.049. Amounts are relative: to the step, the change or the largest of the values.

    Args:
        op: the operator. It is called on NumPy float64 arrays `[..., A]`, and may answer in another precision.
        trials: how many draws of action values, over 2 to 10 actions and scales from 1e-4 to 1e4, for derivatives from
            1e-14 to 1e14. Of each number of actions as many are made, at least 4; the report has how many these are.
        seed: of the draws. The same seed gives the same report.

    Returns:
        Its `ok` says that no claimed law was violated; `str` lays it out; `report["monotone"].witness` shows where.

    Raises:
        ValueError: the operator fails, or gives arrays of a wrong shape.

    Example:
        >>> from softbellman import operators as ops
        >>> report = check_operator(ops.softmax(5.0))
        >>> report.ok, report["non_expansion"].held
        (True, False)
    """
    claims, only = getattr(op, "laws", Laws()), getattr(op, "for_actions", None)
    counts = ACTIONS if only is None else (only,)
    each = max(4, trials // len(counts))
    findings = tuple(_examine(law, getattr(claims, law), _probes(op, counts, each, seed)) for law in _SEARCHES)
    return Report(str(op), each * len(counts), findings)


def _examine(law: str, claimed: bool, probes: Iterator[_Probe]) -> Finding:
    held, worst, witness, allowed, tolerance = True, -np.inf, None, 0.0, 0.0
    for probe in probes:
        excess = _SEARCHES[law](probe)
        amount = np.where(np.isnan(excess.amount), np.inf, excess.amount)
        at, allowed = int(np.argmax(amount)), excess.allowed
        if amount[at] > worst:
            worst, tolerance, held = float(amount[at]), excess.tolerance, bool(amount[at] <= allowed + excess.tolerance)
            witness = None if held else Witness(excess.at.q[at], excess.other[at], excess.at.selector[at])
    return Finding(law, claimed, held, worst, allowed, tolerance, witness)


def _probes(op: Operator, counts: tuple[int, ...], each: int, seed: int) -> Iterator[_Probe]:
    """Draw values, so many of each number of actions, at scales of all sizes.

    They are normal ones, heavy-tailed ones, one action far from the others, and whole numbers and a half with ties.
    """
    rng = np.random.default_rng(seed)
    for actions in counts:
        require_shapes(op, actions)
        shape = (each, actions)
        normal, selector = rng.standard_normal(shape), rng.standard_normal(shape)
        lonely = 0.01 * normal + _one_each(rng, shape) * rng.choice([-1.0, 1.0], size=(each, 1))
        tied = np.round(normal * rng.uniform(0, 2, size=(each, 1))) + 0.5  # some of them all equal, none all 0
        kinds = np.stack([normal, normal**3, lonely, tied])[rng.integers(4, size=each), np.arange(each)]
        scale = 10 ** rng.uniform(-4, 4, size=(each, 1))
        yield _Probe(op, rng, scale * kinds, scale * selector, precision(np.asarray(op(kinds, selector))))


def _one_each(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Mark one action of each row: `[B, A]`."""
    return np.arange(shape[1]) == rng.integers(shape[1], size=(shape[0], 1))


def _float64(array: Any) -> Values:
    return np.asarray(array, dtype=np.float64)
