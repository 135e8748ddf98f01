"""Soft maxima: `max_p <p, q> + S(p)` over policies p, with an entropy S, each with the policy that attains it.

All are non-expansions, and exceed the maximum by up to the largest entropy; `centred` subtracts that.
"""

import math
from typing import Any, ClassVar

import numpy as np

from softbellman.operators.core import Operator, log_average_exp
from softbellman.operators.laws import Laws
from softbellman.operators.parameters import checked, parameter
from softbellman.operators.pytrees import operator
from softbellman.operators.row import Array, Number, Row, bisect, bracket, centre, scaled, stop_gradient


def _sharpness() -> Any:
    """Declare an inverse temperature that may not be 0, where the soft maximum is infinite."""
    return parameter(0, ends="a large one is max", limit="max", above=True)


class Conjugate(Operator):
    """Take `max_p <p, q> + S(p)`, with S 0 for a single action and largest for the uniform policy. The base of these.

    `policy` is the p that attains it, so that the derivative in q is the policy (Danskin).
    """

    laws: ClassVar[Laws] = Laws.of_an_average(
        at_least_mean=True,
        within_largest_gap=True,
        at_most_max=False,
        averages_with_its_weights=False,
        homogeneous=False,
    )

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is the policy."""
        return self.weights(q, where)

    def rise(self, row: Row) -> Array:
        """Measure the value from that of the best action, less what it is where all are equal: `[..., 1]`."""
        raise NotImplementedError

    def height(self, row: Row) -> Array:
        """Give what it exceeds the best action by where all are equal, the largest entropy: `[..., 1]`."""
        raise NotImplementedError

    def offset(self, row: Row) -> Array:
        """Add the two: apart, neither is lost in the rounding of the other."""
        return self.rise(row) + self.height(row)

    def largest_gap(self, actions: int) -> float:
        """Give 0: it is never below the maximum."""
        return 0.0

    def largest_excess(self, actions: int) -> float:
        """Give the most that it is above the maximum: its height."""
        return float(self.height(centre(np.zeros(actions)))[0])

    def rounding(self, actions: int, spread: float) -> float:
        """Bound that of the height too."""
        return super().rounding(actions, spread) + 2.0**-48 * (spread + self.largest_excess(actions))


@operator
class LogSumExp(Conjugate):
    """Take the maximum that Shannon's entropy softens; see `logsumexp`."""

    tau: Number = _sharpness()

    def policy(self, row: Row) -> Array:
        """Weigh each action by `exp(tau q)`."""
        return row.boltzmann(row.positive(self.tau))

    def rise(self, row: Row) -> Array:
        """Give `log(mean(exp(tau z))) / tau`, which is mellowmax."""
        return log_average_exp(row, row.mean, row.positive(self.tau))

    def height(self, row: Row) -> Array:
        """Give `log(m) / tau`."""
        return row.xp.log(row.size) / row.positive(self.tau)


@operator
class Sparsemax(Conjugate):
    """Take the maximum that Gini's index softens, with weights of exactly 0; see `sparsemax`."""

    tau: Number = _sharpness()

    def policy(self, row: Row) -> Array:
        """Project `tau q` onto the simplex; an action counts if the better ones are ahead by less than 1 in all."""
        xp, s = row.xp, scaled(row.positive(self.tau), row.z)
        with np.errstate(invalid="ignore"):  # both infinitely far
            ahead = xp.where(row.legal[..., None, :], s[..., None, :] - s[..., :, None], 0.0)
            counts = row.legal & (xp.sum(xp.where(ahead > 0, ahead, 0.0), axis=-1) < 1)
        s = xp.where(counts, s, 0.0)
        surplus = s - (row.sum(s) - 1) / row.sum(xp.astype(counts, s.dtype))
        return row.normalise(xp.where(counts & ~(surplus < 0), surplus, 0.0))

    def rise(self, row: Row) -> Array:
        """Give `<p, z> - sum((p - 1/m)^2) / (2 tau)`."""
        p = self.policy(row)
        return row.sum(p * row.z) - row.sum((p - 1 / row.size) ** 2) / (2 * row.positive(self.tau))

    def height(self, row: Row) -> Array:
        """Give `(1 - 1/m) / (2 tau)`."""
        return (1 - 1 / row.size) / (2 * row.positive(self.tau))


@operator
class Entmax(Conjugate):
    """Take the maximum that Tsallis' entropy softens; see `entmax`."""

    alpha: Number = parameter(1, ends="1 is logsumexp(tau) and 2 sparsemax(tau)", limit="max", example=1.5)
    tau: Number = _sharpness()

    def policy(self, row: Row) -> Array:
        """Give `p = ((alpha - 1) tau z + p_best^(alpha - 1))_+^(1 / (alpha - 1))`, solved for the best one's weight."""
        return self._policy(row, self._log_best(row))

    @np.errstate(divide="ignore", invalid="ignore")  # of a NaN among the values
    def _policy(self, row: Row, ends: tuple[Array, Array]) -> Array:
        """Give the policy, from two ends that enclose the logarithm of the best one's weight."""
        xp, (power, shannon), tau = row.xp, self._power(row), row.positive(self.tau)
        s = scaled(tau, row.z)
        held, fixed = stop_gradient(power), stop_gradient(s)
        # With a large alpha the last weight jumps between two floats: that between them which leaves the sum at 1.
        less, more = (_masses(row, fixed, held, end)[0] for end in ends)
        lack, jump = 1 - row.sum(less), row.sum(more - less)
        share = xp.clip(xp.where(jump > 0, lack / xp.where(jump > 0, jump, 1.0), 0.0), 0.0, 1.0)
        # The derivative of the root is that of one step of Newton from it, whose value is taken away again.
        log_best = (ends[0] + ends[1]) / 2
        p, base = _masses(row, fixed, held, log_best)
        slope = row.sum(p / base)
        total = row.sum(_masses(row, s, power, log_best)[0])
        step = (total - stop_gradient(total)) / slope
        moved, _ = _masses(row, s, power, log_best - step)
        p = less + share * (more - less) + (moved - stop_gradient(moved))
        return xp.where(shannon, row.boltzmann(tau), row.normalise(p))

    def rise(self, row: Row) -> Array:
        """Give `<p, z> - (S(1/m) - S(p)) / tau`, `S(p) = (1 - sum(p^alpha)) / (alpha (alpha - 1))`.

        The derivative in z is p, the rest of it being 0 (Danskin). It is attached as a product of which each factor
        gives half of the second derivative: through p, whose own derivative may be large, the 0 would be lost.
        """
        z, ends = stop_gradient(row.z), self._log_best(row)
        p = self._policy(row._replace(z=(row.z + z) / 2), ends)
        return self._rise(row._replace(z=z), stop_gradient(p), ends) + row.sum(p * (row.z - z))

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")  # of a NaN among the values
    def _rise(self, row: Row, p: Array, ends: tuple[Array, Array]) -> Array:
        """Give the rise with the policy held, which is all that its derivative in the parameters needs (Danskin).

        Near the uniform policy, `m p = 1 + d`, the difference of the entropies is
        `sum((1 + d)^alpha - 1 - alpha d) / (alpha (alpha - 1) m^alpha)`. Elsewhere the dual of the maximum is taken, in
        which an error of the root counts for less than in p: with `c = p_best^(alpha - 1)` it is
        `(m^(1 - alpha) - alpha c + (alpha - 1) sum(p^alpha)) / (alpha (alpha - 1) tau)`.
        """
        xp, size, alpha, tau = row.xp, row.size, row.constant(self.alpha), row.positive(self.tau)
        (power, shannon), log_m = self._power(row), xp.log(row.size)
        log_best = (ends[0] + ends[1]) / 2
        is_near = shannon | (power * (log_best + log_m) < 1)

        ratio = xp.where(is_near & (p > 0), p, 1 / size) * size
        log_ratio = xp.where(ratio < 0.5, xp.log(ratio), xp.log1p(xp.where(ratio < 0.5, 0.0, ratio - 1)))
        excess = ratio * xp.where(shannon, log_ratio, xp.expm1(power * log_ratio) / power)
        terms = xp.where(p > 0, excess, 0.0) - (p * size - 1)
        near = row.sum(p * row.z) - row.sum(terms) * size**-alpha / (alpha * tau)

        mass, base = _masses(row, scaled(tau, row.z), power, log_best)
        level = xp.exp(power * log_best)
        far = size**-power - alpha * level + power * level * row.sum(mass * base)
        return xp.where(is_near, near, far / power / (alpha * tau))

    def _log_best(self, row: Row) -> tuple[Array, Array]:
        """Enclose the logarithm of the best one's weight, held constant: `[..., 1]` each."""
        xp, (power, _) = row.xp, self._power(row)
        s, power = stop_gradient(scaled(row.positive(self.tau), row.z)), stop_gradient(power)
        low, high = -xp.log(row.size), xp.zeros_like(row.best)
        return bracket(row, lambda x: row.sum(_masses(row, s, power, x)[0]) > 1, low, high)

    @np.errstate(over="ignore")
    def height(self, row: Row) -> Array:
        """Give `S(1/m) / tau`."""
        xp, log_m = row.xp, row.xp.log(row.size)
        power, shannon = self._power(row)
        surprise = xp.where(shannon, log_m, -xp.expm1(-power * log_m) / power)
        return surprise / (row.constant(self.alpha) * row.positive(self.tau))

    def rounding(self, actions: int, spread: float) -> float:
        """Bound that of the root too, which counts for the more the larger alpha is."""
        return super().rounding(actions, spread) + (2.0**-39 + 2.0**-50 * float(self.alpha)) * spread

    def _power(self, row: Row) -> tuple[Array, Array]:
        """Give `alpha - 1`, 1 where it is too small to divide by, and where that is so: there it is log-sum-exp."""
        power = row.constant(self.alpha) - 1
        shannon = power < float(row.xp.finfo(row.z.dtype).eps)
        return row.xp.where(shannon, 1.0, power), shannon


@operator
class Barrier(Operator):
    """Take the maximum less the divergence of the uniform policy from the one taken; see `barrier`."""

    tau: Number = parameter(0, ends="0 is the mean", limit="max")

    laws: ClassVar[Laws] = Laws.of_an_average(at_least_mean=True, averages_with_its_weights=False, homogeneous=False)

    def policy(self, row: Row) -> Array:
        """Give `p = 1 / (m (1 + tau (-z) - shift))`, solved for the shift."""
        return row.normalise(1 / (1 + self._above_one(row)))

    def offset(self, row: Row) -> Array:
        """Give `<p, z> + mean(log(m p)) / tau`; the mean, its limit, where no float tells them apart."""
        xp, tau = row.xp, row.constant(self.tau)
        is_mean = scaled(tau, row.spread) < 1e-18
        above = self._above_one(row)
        p = row.normalise(1 / (1 + above))
        value = row.sum(p * row.z) - row.mean(xp.log1p(above)) / xp.where(is_mean, 1.0, tau)
        return xp.where(is_mean, row.mean(row.z), value)

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is the policy."""
        return self.weights(q, where)

    def rounding(self, actions: int, spread: float) -> float:
        """Bound that of the root too."""
        return super().rounding(actions, spread) + 2.0**-39 * spread

    @np.errstate(divide="ignore", invalid="ignore")  # of a NaN among the values
    def _above_one(self, row: Row) -> Array:
        """Give `1 / (m p) - 1`: `[..., A]`."""
        xp = row.xp
        with np.errstate(over="ignore"):
            x = -scaled(row.constant(self.tau), row.z)
            x = xp.where(x < float(xp.finfo(x.dtype).max) * 1e-6, x, float(xp.finfo(x.dtype).max) * 1e-6)
        fixed, widest = stop_gradient(x), 1 - 1 / row.size
        reach = xp.max(fixed, axis=-1, keepdims=True)
        reach = xp.where(reach < widest, reach, widest)

        def policy(share: Array) -> Array:
            return xp.where(row.legal, 1 / (1 + (fixed - reach * share)), 0.0)

        def is_above(share: Array) -> Array:  # sum(p) > 1, as a sum of what is left of each term, for small x
            return row.mean(policy(share) * (fixed - reach * share)) < 0

        zero = xp.zeros_like(row.best)
        shift = reach * bisect(row, is_above, zero, zero + 1)
        p = xp.where(row.legal, 1 / (1 + (fixed - shift)), 0.0)
        moved = row.sum(p * p * x) / row.sum(p * p)  # of one step of Newton, the derivative of the root
        return x - (shift + (moved - stop_gradient(moved)))


@operator
class Centred(Operator):
    """Take a soft maximum less its value at equal actions; see `centred`."""

    op: Conjugate

    laws: ClassVar[Laws] = Laws.of_an_average(
        at_least_mean=True, within_largest_gap=True, averages_with_its_weights=False, homogeneous=False
    )

    def policy(self, row: Row) -> Array:
        """Weigh the actions as `op` does."""
        return self.op.policy(row)

    def offset(self, row: Row) -> Array:
        """Give the rise of `op`."""
        return self.op.rise(row)

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, that of `op`."""
        return self.op.gradient(q, selector, where)

    def largest_gap(self, actions: int) -> float:
        """Give the largest entropy, approached as one action leaves the others behind."""
        return self.op.largest_excess(actions)

    def rounding(self, actions: int, spread: float) -> float:
        """Bound it as that of `op`."""
        return self.op.rounding(actions, spread)


def logsumexp(tau: Number) -> LogSumExp:
    """Build the soft maximum `log(sum(exp(tau q))) / tau = max_p <p, q> + entropy(p) / tau`.

    It is above the maximum by up to `log(m) / tau`, where all values are equal.

    Args:
        tau: the inverse temperature, finite and above 0, in units of 1/q.

    Raises:
        TypeError: `tau` is no number.
        ValueError: it is out of range.

    Example:
        >>> float(logsumexp(1.0)([0.0, 0.0]).round(6))
        0.693147

    Source: Rust (1987); Ziebart (2010); Fox, Pakman and Tishby (2016); Haarnoja et al. (2017).
    """
    return checked(LogSumExp, "logsumexp", tau)


def sparsemax(tau: Number) -> Sparsemax:
    """Build the sparse soft maximum `max_p <p, q> + (1 - sum(p^2)) / (2 tau)`.

    Args:
        tau: the inverse temperature, finite and above 0, in units of 1/q.

    Raises:
        TypeError: `tau` is no number.
        ValueError: it is out of range.

    Example:
        >>> sparsemax(1.0).weights([0.0, 0.5, 5.0]).tolist()
        [0.0, 0.0, 1.0]

    Source: Martins and Astudillo (2016); Lee, Choi and Oh (2018).
    """
    return checked(Sparsemax, "sparsemax", tau)


def entmax(alpha: Number, tau: Number) -> Entmax:
    """Build the soft maximum of Tsallis' entropy: `max_p <p, q> + (1 - sum(p^alpha)) / (alpha (alpha - 1) tau)`.

    Args:
        alpha: finite and at least 1; 1 is `logsumexp(tau)`, 2 `sparsemax(tau)`; a large one is near the maximum.
        tau: the inverse temperature, finite and above 0, in units of 1/q.

    Raises:
        TypeError: a parameter is no number.
        ValueError: it is out of range.

    Source: Lee et al. (2020); Peters, Niculae and Martins (2019).
    """
    return checked(Entmax, "entmax", alpha, tau)


def barrier(tau: Number) -> Barrier:
    """Build `max_p <p, q> - KL(uniform, p) / tau`, whose policy is proportional to `1 / (constant - q)`.

    Args:
        tau: the inverse temperature, finite and at least 0, which is the mean; in units of 1/q.

    Raises:
        TypeError: `tau` is no number.
        ValueError: it is out of range.

    Source: Grill et al. (2020), who find it in AlphaZero's search.
    """
    return checked(Barrier, "barrier", tau)


def centred(op: Operator) -> Centred:
    """Build a soft maximum less its value where all actions are equal: between the mean and the maximum.

    `centred(logsumexp(omega))` is `mellowmax(omega)`, but for its weights.

    Raises:
        TypeError: `op` is no soft maximum.

    Source: Geist, Scherrer and Pietquin (2019), for the regularised maximum.
    """
    if not isinstance(op, Conjugate):
        raise TypeError(f"centred({op}): pass a soft maximum: logsumexp, sparsemax, entmax or perturbed.")
    return Centred(op)


def _masses(row: Row, s: Array, power: Array, log_best: Array) -> tuple[Array, Array]:
    """Give `(power s + p_best^power)_+^(1 / power)`, and its base in units of that of the best, 1 where it is 0."""
    xp, most = row.xp, math.log(0.1 * float(row.xp.finfo(row.z.dtype).max))
    lift, highest = -power * log_best, most - xp.log(power)  # beyond it, only ties with the best have a weight
    rate = power * xp.exp(xp.where(lift < highest, lift, highest))
    inside = row.legal & (scaled(rate, s) > -1)
    far = rate * xp.where(inside, s, 0.0)
    return xp.where(inside, xp.exp(log_best + xp.log1p(far) / power), 0.0), 1 + far
