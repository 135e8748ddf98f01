"""The best average with a policy that keeps a share of the largest entropy: softmax, and sparsemax, without a unit."""

import math
from typing import ClassVar

import numpy as np

from softbellman.operators.core import Operator
from softbellman.operators.laws import Laws
from softbellman.operators.parameters import checked, parameter
from softbellman.operators.pytrees import operator
from softbellman.operators.row import Array, Number, Row, best_sums, bisect, scaled, stop_gradient


@operator
class Keep(Operator):
    """Average with the best of the policies of so much entropy; see `keep`."""

    rho: Number = parameter(0, 1, ends="0 is max and 1 the mean", example=0.1)

    laws: ClassVar[Laws] = Laws.of_an_average(at_least_mean=True)

    def policy(self, row: Row) -> Array:
        """Weigh each action by `exp(rate q)`, at the rate at which the entropy is `rho log(m)`.

        Where even the best actions alone have more entropy, since there are several, all weight is theirs.
        """
        row = row._replace(z=row.z / stop_gradient(row.unit))
        return row.boltzmann(self._policy_rate(row))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is the policy: the value is the largest over a set of them (Danskin)."""
        return self.weights(q, where)

    def rounding(self, actions: int, spread: float) -> float:
        """Bound that of the root too: an error of `2^-42` in the rate moves the value by less than `2^-41`."""
        return super().rounding(actions, spread) + 2.0**-41 * spread

    def _policy_rate(self, row: Row) -> Array:
        """Solve `KL(softmax(rate z), uniform) = (1 - rho) log(m)` for the rate, of a row whose spread is 1: `[..., 1]`.

        The divergence rises with the rate, from 0 to `log(m / best)`, and is measured as a sum of terms that are not
        negative: so a rho near 1 is told from 1.
        """
        xp, finfo, rho = row.xp, row.xp.finfo(row.z.dtype), row.constant(self.rho)
        log_m, z = xp.log(row.size), stop_gradient(row.z)
        aim = (1 - stop_gradient(rho)) * log_m
        centred = row._replace(z=z)

        def is_above(log_rate: Array) -> Array:
            return _divergence(centred, scaled(xp.exp(log_rate), z)) > aim

        low = xp.full_like(row.best, math.log(float(finfo.eps)))
        high = xp.full_like(row.best, 0.9 * math.log(float(finfo.max)))
        with np.errstate(over="ignore", under="ignore"):
            rate = xp.exp(bisect(row, is_above, low, high))

        # The derivative of the root by the implicit function theorem, the rate and the slope held constant: the
        # divergence has the derivatives rate^2 p (z - mean) in z and rate variance in the rate. Both terms are 0.
        p = centred.boltzmann(rate)
        deviation = z - row.sum(p * z)
        variance = row.sum(p * deviation**2)
        slope = xp.where(variance > float(finfo.smallest_normal), variance, 1.0)
        by_values = row.sum(p * deviation * row.z) * rate
        by_rho = stop_gradient(log_m) * rho / rate
        return rate - (by_values - stop_gradient(by_values)) / slope - (by_rho - stop_gradient(by_rho)) / slope


@operator
class Gini(Operator):
    """Average with the best of the policies of so much impurity; see `gini`."""

    rho: Number = parameter(0, 1, ends="0 is max and 1 the mean", example=0.1)

    laws: ClassVar[Laws] = Laws.of_an_average(at_least_mean=True)

    @np.errstate(divide="ignore", invalid="ignore")  # of a NaN among the values
    def policy(self, row: Row) -> Array:
        """Give `p = 1/n + r (z - mean)` over the n best, at the r that meets the bound; of all such n the largest.

        An n will do if no weight is negative, and if n equal weights are within the bound.
        """
        xp, z = row.xp, row.z / stop_gradient(row.unit)
        eps = float(xp.finfo(z.dtype).eps)
        count, total, squares = best_sums(row, xp.ones_like(z), z, z * z)  # of the best down to each
        room = self._room(row, count)
        rate = _rate(row, squares - total * total / count, room)
        will_do = row.legal & (1 / count + rate * (z - total / count) >= -8 * eps) & (room >= -8 * eps)
        inside = row.legal & (z >= xp.min(xp.where(will_do, z, 0.0), axis=-1, keepdims=True))
        chosen = row._replace(z=z, legal=inside)
        deviation = z - chosen.mean(z)
        p = 1 / chosen.size + _rate(row, chosen.sum(deviation**2), self._room(row, chosen.size)) * deviation
        return row.normalise(xp.where(inside & (p > 0), p, 0.0))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is the policy, as for `Keep`."""
        return self.weights(q, where)

    def rounding(self, actions: int, spread: float) -> float:
        """Bound that of weights too that count as not negative above `-8 eps`."""
        return super().rounding(actions, spread) + 2.0**-49 * actions * spread

    def _room(self, row: Row, count: Array) -> Array:
        """Give what the bound on `sum(p^2)` leaves above `1 / count`, that of so many equal weights.

        It is `1 - rho (1 - 1/m) - 1/count`, written so that for all m of them it is no difference: near a rho of 1
        the weights go with its root.
        """
        size = row.size
        return (1 - row.constant(self.rho)) * (1 - 1 / size) - (size - count) / (size * count)


def _rate(row: Row, squares: Array, room: Array) -> Array:
    """Give the rate at which weights that differ by it times values have so much room for their own squares."""
    xp, is_free = row.xp, (squares > 0) & (room > 0)
    return xp.where(is_free, xp.sqrt(xp.where(is_free, room / xp.where(is_free, squares, 1.0), 1.0)), 0.0)


def _divergence(row: Row, s: Array) -> Array:
    """Give the divergence of `softmax(s)` from the uniform policy, without cancellation: `[..., 1]`.

    With `t = s - log(mean(exp(s)))` it is the mean of `t exp(t) - exp(t) + 1`, where t is small that of
    `t^2 (1/2 + t/3 + t^2/8 + ...)`.
    """
    xp = row.xp
    above = xp.expm1(s)
    mean = row.mean(above)
    t = s - xp.log1p(mean)
    is_near = xp.abs(t) < 0.25
    near, series = xp.where(is_near, t, 0.0), 0.0
    for k in reversed(range(12)):
        series = series * near + 1 / (math.factorial(k) * (k + 2))
    ratio = (above + 1) / (mean + 1)
    return row.mean(xp.where(is_near, series * near * near, t * ratio - (ratio - 1)))


def keep(rho: Number) -> Keep:
    """Build the largest average with a policy of so much entropy: `max {<p, q> : entropy(p) >= rho log(m)}`.

    The policy is softmax's at a rate of each row's own, so that it keeps a share `rho` of the largest entropy.
    Unlike softmax at a fixed tau it is monotone, so a non-expansion, and without a unit, `keep(c q) = c keep(q)`.

    Args:
        rho: from 0, the maximum, to 1, the mean.

    Raises:
        TypeError: `rho` is no number.
        ValueError: `rho` is out of range.

    Example:
        >>> op = keep(0.5)
        >>> float(op([1.0, 2.0, 3.0]).round(6)), float(op([100.0, 200.0, 300.0]).round(4))
        (2.791934, 279.1934)
    """
    return checked(Keep, "keep", rho)


def gini(rho: Number) -> Gini:
    """Build the largest average with a policy of so much of Gini's impurity, which gives weights of exactly 0.

    It is `max {<p, q> : 1 - sum(p^2) >= rho (1 - 1/m)}`: `keep` with another entropy, and no root to find.

    Args:
        rho: from 0, the maximum, to 1, the mean.

    Raises:
        TypeError: `rho` is no number.
        ValueError: `rho` is out of range.

    Example:
        >>> gini(0.2).weights([1.0, 2.0, 9.0]).round(4).tolist()
        [0.0, 0.0718, 0.9282]

    Source: Duchi and Namkoong (2019), for the ball of policies.
    """
    return checked(Gini, "gini", rho)
