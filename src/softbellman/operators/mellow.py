"""Relatives of mellowmax: `log(sum(d^kappa exp(omega q))) / omega`, d being a policy that may depend on q."""

import math
from dataclasses import field
from typing import ClassVar

import numpy as np

from softbellman.operators.core import Mean, Operator, Softmax, log_average_exp
from softbellman.operators.doubles import single
from softbellman.operators.laws import Laws
from softbellman.operators.orders import Fixed
from softbellman.operators.parameters import checked, parameter, shares
from softbellman.operators.pytrees import operator
from softbellman.operators.row import Array, Number, Row, centre, scaled


@operator
class SoftMellowmax(Operator):
    """Take the mean on an exponential scale with softmax's weights; see `sm2`."""

    alpha: Number = parameter(0, ends="0 is mellowmax(omega)", limit="max")
    omega: Number = parameter(0, ends="0 is softmax(alpha)", limit="max")

    laws: ClassVar[Laws] = Laws.of_an_average(
        at_least_mean=True,
        within_largest_gap=True,
        monotone=False,
        non_expansion=False,
        averages_with_its_weights=False,
        homogeneous=False,
    )

    def policy(self, row: Row) -> Array:
        """Weigh each action by `exp((alpha + omega) q)`: the weights of softmax, tilted."""
        return row.boltzmann(row.constant(self.alpha) + row.constant(self.omega))

    def offset(self, row: Row) -> Array:
        """Give `log(sum(softmax(alpha z) exp(omega z))) / omega`; softmax, its limit, where they are the same float."""
        p = row.boltzmann(row.constant(self.alpha))
        return log_average_exp(row, lambda terms: row.sum(p * terms), row.constant(self.omega))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give `p + alpha (p - d) / omega`, with d the weights of softmax and p those tilted: it may be negative."""
        row = centre(q, where)
        xp, alpha, omega = row.xp, row.constant(self.alpha), row.constant(self.omega)
        p, d = row.boltzmann(alpha + omega), row.boltzmann(alpha)
        deviation = row.z - self.offset(row)
        y = scaled(omega, deviation)
        is_near, is_zero = xp.abs(y) < 1, omega == 0
        safe = xp.where(is_zero, 1.0, omega)
        near = d * xp.where(is_zero, deviation, xp.expm1(xp.where(is_near, y, 0.0)) / safe)
        return row.legally(p + alpha * xp.where(is_near, near, (p - d) / safe))

    def largest_gap(self, actions: int) -> float:
        """Bound it as the average of softmax over tau from alpha to `alpha + omega`, which it is, and by mellowmax's.

        The first gives `W((m - 1) / e) log(1 + omega / alpha) / omega`, the second `log(m) / omega`.
        """
        if self.omega == 0:
            return Softmax(self.alpha).largest_gap(actions)
        by_mellowmax, tilt = math.log(actions) / self.omega, self.omega / self.alpha if self.alpha else math.inf
        if tilt == math.inf:
            return by_mellowmax
        return min(Softmax(self.alpha).largest_gap(actions) * (math.log1p(tilt) / tilt if tilt else 1.0), by_mellowmax)

    def lipschitz(self, actions: int) -> float:
        """Give softmax's: it is an average of softmax over tau."""
        return Softmax(1.0).lipschitz(actions) if type(self) is SoftMellowmax else super().lipschitz(actions)


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
        return math.log(math.fsum(self.prior) / min(self.prior)) / self.tau if self.tau > 0 else math.inf


@operator
class GeneralMellowmax(Operator):
    """Take the logarithm of a weighted sum of exponentials; see `general_mellowmax`."""

    op: Operator
    kappa: Number = parameter(0, 1, ends="0 is logsumexp(omega), and 1 makes it an average", example=0.5)
    omega: Number = parameter(0, ends="a large one is max", limit="max", above=True)

    @property
    def laws(self) -> Laws:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of log-sum-exp where d is given, without an upper bound; else what is left of them.

        As `d^kappa >= d`, it is at least the average with d.
        """
        inner, is_given = self.op.laws, type(self.op) in (Mean, Fixed)
        return Laws(
            monotone=is_given,
            translation_equivariant=inner.translation_equivariant,
            non_expansion=is_given,
            at_least_mean=inner.averages_with_its_weights and inner.at_least_mean,
            weights_are_policy=inner.weights_are_policy,
            gradient_is_derivative=True,
            ignores_illegal=inner.ignores_illegal,
        )

    @property
    def for_actions(self) -> int | None:
        """The only number of actions that `op` takes."""
        return self.op.for_actions

    def policy(self, row: Row) -> Array:
        """Weigh each action by `d^kappa exp(omega q)`."""
        return row.normalise(self._prior(row) * row.xp.exp(scaled(row.positive(self.omega), row.z)))

    @np.errstate(divide="ignore", invalid="ignore")  # of a NaN among the values
    def offset(self, row: Row) -> Array:
        """Give `log(sum(d^kappa exp(omega z))) / omega`."""
        prior, omega = self._prior(row), row.positive(self.omega)
        total = row.sum(prior)
        average = log_average_exp(row, lambda terms: row.sum(prior * terms) / total, omega)
        return average + row.xp.log(total) / omega

    def rounding(self, actions: int, spread: float) -> float:
        """Bound that of the logarithm of the whole weight too, which is at most `(1 - kappa) log(m)`."""
        return super().rounding(actions, spread) + 2.0**-50 * (1 - self.kappa) * math.log(actions) / self.omega

    def _prior(self, row: Row) -> Array:
        """Give `d^kappa`; of softmax from its rate, as a weight may be too small for a float and its power not."""
        xp, kappa = row.xp, row.constant(self.kappa)
        if type(self.op) is Softmax:
            rate = row.constant(self.op.tau)
            level = xp.log(row.sum(xp.exp(scaled(rate, row.z))))
            return row.legally(xp.exp(scaled(kappa * rate, row.z) - kappa * level))
        d = self.op.policy(row)
        power = xp.where(d > 0, d, 1.0) ** kappa
        with np.errstate(invalid="ignore"):
            return xp.where((d > 0) | (kappa == 0), power, 0.0)


def sm2(alpha: Number, omega: Number) -> SoftMellowmax:
    """Build soft mellowmax: `log(sum(softmax(alpha q) exp(omega q))) / omega`.

    Args:
        alpha: finite and at least 0; 0 is `mellowmax(omega)`.
        omega: finite and at least 0; 0 is `softmax(alpha)`.

    Example:
        >>> float(sm2(1.0, 1.0)([0.0, 1.0]).round(6))
        0.813666

    Source: Gan, Zhang and Tan (2021).
    """
    return checked(SoftMellowmax, "sm2", alpha, omega)


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


def general_mellowmax(op: Operator, kappa: Number, omega: Number) -> GeneralMellowmax:
    """Build `log(sum(d^kappa exp(omega q))) / omega`, with d the policy of another operator.

    With the mean it is between log-sum-exp (kappa 0) and mellowmax (1); with a fixed policy and 1, `kl_prior`; with
    softmax and 1, `sm2`.

    A weight d that is too small for a float counts as 0, where its power with a small kappa would not be; softmax's
    alone are taken from their logarithms.

    Raises:
        TypeError: `op` is no operator, or a parameter no number.
        ValueError: a parameter is out of range, or `op` takes two sets of values.

    Source: Gan, Zhang and Tan (2021), who have the policies above and kappa 0 or 1.
    """
    return checked(GeneralMellowmax, "general_mellowmax", kappa, omega, op=single("general_mellowmax", op))
