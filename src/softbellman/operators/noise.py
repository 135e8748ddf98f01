"""Operators of action values that carry normal errors of a given size: which action may be the best, and how good."""

import math
from typing import ClassVar

import numpy as np

from softbellman.operators.conjugates import Conjugate
from softbellman.operators.core import Operator
from softbellman.operators.laws import Laws
from softbellman.operators.parameters import checked, parameter
from softbellman.operators.pytrees import operator
from softbellman.operators.row import Array, Number, Row, compat, erf, scaled

_REACH = 8.0  # in standard deviations
_NODES = 8  # from equal values to those that differ by a standard deviation
_POINTS = {64: (61, 8), 32: (21, 6)}  # for one action, and more for each doubling; by the bits of the dtype


@operator
class Perturbed(Conjugate):
    """Take the expected maximum of values with errors; see `perturbed`."""

    sigma: Number = parameter(0, ends="near 0 it is max", above=True, example=1.0)

    def policy(self, row: Row) -> Array:
        """Give the probability that each action is the best."""
        return row.normalise(_density(row, self.sigma)[0])

    def rise(self, row: Row) -> Array:
        """Give the expectation of the largest, from the best value, less the height.

        Where the errors are larger than all differences, that would leave rounding only. There it is the integral of
        its derivative on the way from equal values, `<p(t z), z>` over t from 0 to 1, of terms that are not positive.
        """
        nodes, shares = np.polynomial.legendre.leggauss(_NODES)
        on_the_way = [row.sum(self.policy(row._replace(z=float((1 + t) / 2) * row.z)) * row.z) for t in nodes]
        near = sum(float(share / 2) * term for share, term in zip(shares, on_the_way, strict=True))
        is_near = row.spread < row.positive(self.sigma)
        return row.xp.where(is_near, near, self._expected(row) - self.height(row))

    def height(self, row: Row) -> Array:
        """Give `sigma` times the expected maximum of m standard normal errors."""
        return self._expected(row._replace(z=row.xp.zeros_like(row.z)))

    def offset(self, row: Row) -> Array:
        """Give the expectation of the largest, from the best value."""
        return self._expected(row)

    def rounding(self, actions: int, spread: float) -> float:
        """Bound the error of the quadrature too."""
        return super().rounding(actions, spread) + 2.0**-36 * max(self.largest_excess(actions), self.sigma)

    @np.errstate(invalid="ignore")  # of a NaN among the values
    def _expected(self, row: Row) -> Array:
        _, of_points = _density(row, self.sigma)
        average = row.xp.sum(of_points * _points(row), axis=-1) / row.xp.sum(of_points, axis=-1)
        return row.positive(self.sigma) * row.xp.where(row.size > 1, average, 0.0)  # of one action not even rounding


@operator
class Weighted(Operator):
    """Average with the probabilities of being the best; see `weighted`."""

    sigma: Number = parameter(0, ends="near 0 it is max", limit="the mean", above=True, example=1.0)

    laws: ClassVar[Laws] = Laws.of_an_average(
        at_least_mean=True, monotone=False, non_expansion=False, homogeneous=False
    )

    def policy(self, row: Row) -> Array:
        """Give the probability that each action is the best."""
        return row.normalise(_density(row, self.sigma)[0])


def _points(row: Row) -> Array:
    """Give the points of quadrature, in units of sigma from the best value: `[..., 1, T]`."""
    least, more = _POINTS[row.xp.finfo(row.z.dtype).bits]
    count = least + more * (row.z.shape[-1] - 1).bit_length()
    points = row.xp.asarray(np.linspace(-_REACH, _REACH, count), dtype=row.z.dtype, device=compat.device(row.z))
    return row.xp.reshape(points, (1,) * row.z.ndim + points.shape)


def _density(row: Row, sigma: Number) -> tuple[Array, Array]:
    """Give the probability of being the best `[..., A]`, and the density of the best at the points `[..., 1, T]`.

    The trapezoidal rule: for functions so smooth its error falls faster than any power of the step.
    """
    xp = row.xp
    z = scaled(1 / row.positive(sigma), row.z)[..., :, None]
    z = xp.where(z > -1e3, z, -1e3)  # out of reach
    points = _points(row)
    x, step = points - z, 2 * _REACH / (points.shape[-1] - 1)
    legal, least = row.legal[..., :, None], float(xp.finfo(z.dtype).eps) ** 2
    density = xp.exp(-(x**2) / 2) * (step / math.sqrt(2 * math.pi))
    below = (1 + erf(x * 0.5**0.5)) / 2
    below = xp.where(below > least, below, least)  # where it is less nothing depends on it
    product = xp.prod(xp.where(legal, below, 1.0), axis=-2, keepdims=True)
    each = xp.where(legal, density / below, 0.0) * product
    # As products with ones, which no compiler takes for something to do over at each use.
    over_points = xp.matmul(each, xp.ones_like(points)[..., 0, :, None])[..., 0]
    return over_points, xp.matmul(xp.ones_like(z)[..., None, :, 0], each)


def perturbed(sigma: Number) -> Perturbed:
    """Build `E[max(q + sigma noise)]`, the maximum smoothed by standard normal noise.

    Args:
        sigma: above 0 and finite, in the units of the values.

    Raises:
        TypeError: `sigma` is no number.
        ValueError: it is out of range.

    Example:
        >>> float(perturbed(1.0)([0.0, 0.0]).round(6))
        0.56419

    Source: Berthet et al. (2020).
    """
    return checked(Perturbed, "perturbed", sigma)


def weighted(sigma: Number) -> Weighted:
    """Build the weighted estimator: the average with the probability that each action is the best, given its error.

    Args:
        sigma: the standard error of each value, above 0 and finite, in the units of the values.

    Raises:
        TypeError: `sigma` is no number.
        ValueError: it is out of range.

    Source: D'Eramo, Restelli and Nuara (2016).
    """
    return checked(Weighted, "weighted", sigma)
