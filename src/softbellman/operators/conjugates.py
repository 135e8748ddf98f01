"""Soft maxima: `max_p <p, q> + S(p)` over policies p, with an entropy S, each with the policy that attains it.

All are non-expansions, and exceed the maximum by up to the largest entropy; `centred` subtracts that.
"""

import math
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from softbellman.operators.core import Operator, log_average_exp
from softbellman.operators.laws import Laws
from softbellman.operators.parameters import checked, parameter, shares
from softbellman.operators.pytrees import operator
from softbellman.operators.row import Array, Number, Row, bisect, centre, scaled, stop_gradient


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
        return row.boltzmann(_rate(row, self.tau))

    def rise(self, row: Row) -> Array:
        """Give `log(mean(exp(tau z))) / tau`, which is mellowmax."""
        return log_average_exp(row, row.mean, _rate(row, self.tau))

    def height(self, row: Row) -> Array:
        """Give `log(m) / tau`."""
        return row.xp.log(row.size) / _rate(row, self.tau)


@operator
class Sparsemax(Conjugate):
    """Take the maximum that Gini's index softens, with weights of exactly 0; see `sparsemax`."""

    tau: Number = _sharpness()

    def policy(self, row: Row) -> Array:
        """Project `tau q` onto the simplex; an action counts if the better ones are ahead by less than 1 in all."""
        xp, s = row.xp, scaled(_rate(row, self.tau), row.z)
        with np.errstate(invalid="ignore"):  # both infinitely far
            ahead = xp.where(row.legal[..., None, :], s[..., None, :] - s[..., :, None], 0.0)
            counts = row.legal & (xp.sum(xp.where(ahead > 0, ahead, 0.0), axis=-1) < 1)
        s = xp.where(counts, s, 0.0)
        surplus = s - (row.sum(s) - 1) / row.sum(xp.astype(counts, s.dtype))
        return row.normalise(xp.where(counts & ~(surplus < 0), surplus, 0.0))

    def rise(self, row: Row) -> Array:
        """Give `<p, z> - sum((p - 1/m)^2) / (2 tau)`."""
        p = self.policy(row)
        return row.sum(p * row.z) - row.sum((p - 1 / row.size) ** 2) / (2 * _rate(row, self.tau))

    def height(self, row: Row) -> Array:
        """Give `(1 - 1/m) / (2 tau)`."""
        return (1 - 1 / row.size) / (2 * _rate(row, self.tau))


@operator
class Entmax(Conjugate):
    """Take the maximum that Tsallis' entropy softens; see `entmax`."""

    alpha: Number = parameter(1, ends="1 is logsumexp(tau) and 2 sparsemax(tau)", limit="max", example=1.5)
    tau: Number = _sharpness()

    @np.errstate(divide="ignore", invalid="ignore")  # of a NaN among the values
    def policy(self, row: Row) -> Array:
        """Give `p = ((alpha - 1) tau z + p_best^(alpha - 1))_+^(1 / (alpha - 1))`, solved for the best one's weight."""
        xp = row.xp
        tau = _rate(row, self.tau)
        power, shannon = self._power(row)

        def mass(log_best: Array, s: Array, power: Array) -> Array:
            with np.errstate(over="ignore"):
                far = power * scaled(xp.exp(-power * log_best), s)
            inside = far > -1
            log_ratio = xp.log1p(xp.where(inside, far, 0.0)) / power
            return xp.where(inside & row.legal, xp.exp(log_best + log_ratio), 0.0)

        s, held = scaled(tau, row.z), stop_gradient(power)
        fixed = stop_gradient(s)
        low, high = -xp.log(row.size), xp.zeros_like(row.best)
        log_best = bisect(row, lambda x: xp.sum(mass(x, fixed, held), axis=-1, keepdims=True) > 1, low, high)
        # The derivative of the root is that of one step of Newton from it, whose value is taken away again.
        p = mass(log_best, fixed, held)
        slope = xp.sum(xp.where(p > 0, xp.where(p > 0, p, 1.0) ** (1 - held), 0.0), axis=-1, keepdims=True)
        slope = slope * xp.exp(held * log_best)
        total = xp.sum(mass(log_best, s, power), axis=-1, keepdims=True)
        p = mass(log_best - (total - stop_gradient(total)) / slope, s, power)
        return xp.where(shannon, row.boltzmann(tau), row.normalise(p))

    def rise(self, row: Row) -> Array:
        """Give `<p, z> - (S(1/m) - S(p)) / tau`, `S(p) = (1 - sum(p^alpha)) / (alpha (alpha - 1))`.

        With `m p = 1 + d` the difference is `sum((1 + d)^alpha - 1 - alpha d) / (alpha (alpha - 1) m^alpha)`.
        """
        xp, p = row.xp, self.policy(row)
        power, shannon = self._power(row)
        ratio = xp.where(p > 0, p, 1.0) * row.size
        log_ratio = xp.where(ratio < 0.5, xp.log(ratio), xp.log1p(xp.where(ratio < 0.5, 0.0, ratio - 1)))
        excess = ratio * xp.where(shannon, log_ratio, xp.expm1(power * log_ratio) / power)
        terms = xp.where(p > 0, excess, 0.0) - (p * row.size - 1)
        alpha = row.constant(self.alpha)
        return row.sum(p * row.z) - row.sum(terms) * row.size**-alpha / (alpha * _rate(row, self.tau))

    def height(self, row: Row) -> Array:
        """Give `S(1/m) / tau`."""
        xp, log_m = row.xp, row.xp.log(row.size)
        power, shannon = self._power(row)
        surprise = xp.where(shannon, log_m, -xp.expm1(-power * log_m) / power)
        return surprise / (row.constant(self.alpha) * _rate(row, self.tau))

    def rounding(self, actions: int, spread: float) -> float:
        """Bound that of the root too."""
        return super().rounding(actions, spread) + 2.0**-39 * spread

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
class Prior(Operator):
    """Take the mean of a given policy on an exponential scale; see `kl_prior`."""

    tau: Number = parameter(0, ends="0 is the average with the prior", limit="max")
    prior: tuple[Number, ...] = field()

    laws: ClassVar[Laws] = Laws.of_an_average(
        averages_with_its_weights=False, within_largest_gap=True, homogeneous=False
    )

    @property
    def for_actions(self) -> int | None:
        """As many as the prior has."""
        return len(self.prior)

    def policy(self, row: Row) -> Array:
        """Weigh each action by `prior exp(tau q)`."""
        return row.normalise(row.vector(self.prior) * row.xp.exp(scaled(row.constant(self.tau), row.z)))

    def offset(self, row: Row) -> Array:
        """Give `log(sum(prior exp(tau z))) / tau`."""
        prior = row.normalise(row.vector(self.prior))
        return log_average_exp(row, lambda terms: row.sum(prior * terms), row.constant(self.tau))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is the policy."""
        return self.weights(q, where)

    def largest_gap(self, actions: int) -> float:
        """Give `log(1 / p) / tau`, p the smallest of the prior."""
        return -math.log(min(self.prior)) / self.tau if self.tau > 0 else math.inf


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

    Example:
        >>> float(logsumexp(1.0)([0.0, 0.0]).round(6))
        0.693147

    Source: Rust (1987); Ziebart (2010); Fox, Pakman and Tishby (2016); Haarnoja et al. (2017).
    """
    return checked(LogSumExp, "logsumexp", tau)


def sparsemax(tau: Number) -> Sparsemax:
    """Build the sparse soft maximum `max_p <p, q> + (1 - sum(p^2)) / (2 tau)`.

    Example:
        >>> sparsemax(1.0).weights([0.0, 0.5, 5.0]).tolist()
        [0.0, 0.0, 1.0]

    Source: Martins and Astudillo (2016); Lee, Choi and Oh (2018).
    """
    return checked(Sparsemax, "sparsemax", tau)


def entmax(alpha: Number, tau: Number) -> Entmax:
    """Build the soft maximum of Tsallis' entropy: `max_p <p, q> + (1 - sum(p^alpha)) / (alpha (alpha - 1) tau)`.

    Source: Lee et al. (2020); Peters, Niculae and Martins (2019).
    """
    return checked(Entmax, "entmax", alpha, tau)


def barrier(tau: Number) -> Barrier:
    """Build `max_p <p, q> - KL(uniform, p) / tau`, whose policy is proportional to `1 / (constant - q)`.

    Source: Grill et al. (2020), who find it in AlphaZero's search.
    """
    return checked(Barrier, "barrier", tau)


def kl_prior(tau: Number, *prior: Number) -> Prior:
    """Build the soft maximum with a prior policy: `log(sum(prior exp(tau q))) / tau`.

    It is `max_p <p, q> - KL(p, prior) / tau`.

    Args:
        tau: finite and at least 0.
        prior: a probability for each action, above 0 and of sum 1.

    Example:
        >>> float(kl_prior(1.0, 0.5, 0.5)([0.0, 1.0]).round(6))
        0.620115

    Source: Todorov (2007); Fox, Pakman and Tishby (2016).
    """
    return checked(Prior, "kl_prior", tau, prior=shares("kl_prior", "prior", prior, positive=True))


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


def _rate(row: Row, tau: Number) -> Array:
    """Give an inverse temperature the dtype of the values, no smaller than what has an inverse: `[..., 1]`."""
    rate, least = row.constant(tau), 1e6 / float(row.xp.finfo(row.z.dtype).max)
    return row.xp.where(rate < least, least, rate)
