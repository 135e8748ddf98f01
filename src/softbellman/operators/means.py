"""Means of action values by powers and squares, most of them measured from the worst action: they need no unit."""

import math
from typing import ClassVar

from softbellman.operators.core import Operator
from softbellman.operators.laws import Laws
from softbellman.operators.parameters import checked, parameter
from softbellman.operators.pytrees import operator
from softbellman.operators.row import Array, Number, Row, best_sums, centre


class FromTheWorst(Operator):
    """A function of the distances to the worst action, in units of the largest of them. The base of these."""

    def height(self, row: Row) -> Array:
        """Give `(q - min(q)) / (max(q) - min(q))`, 1 where all are equal, 0 where not legal: `[..., A]`."""
        xp = row.xp
        height = xp.where(row.spread > 0, (row.z + row.spread) / row.unit, 1.0)
        return xp.where(row.legal, height, 0.0)

    def with_the_worst(self, row: Row, others: Array) -> Array:
        """Give a gradient that sums to 1: what `others` `[..., A]` leave goes to the worst action."""
        xp = row.xp
        worst = xp.astype(row.legal & (row.z == -row.spread), row.z.dtype)
        return xp.where(row.legal, others, 0.0) + row.normalise(worst) * (1 - row.sum(others))


@operator
class PowerMean(FromTheWorst):
    """Take the mean of powers; see `power_mean`."""

    p: Number = parameter(1, ends="1 is the mean", limit="max", example=3.0)

    laws: ClassVar[Laws] = Laws.of_an_average(at_least_mean=True)

    def policy(self, row: Row) -> Array:
        """Give the gradient: the value is the average with it, as it scales with the distances (Euler)."""
        height, p = self.height(row), row.constant(self.p)
        level = row.mean(height**p) ** (1 - 1 / p)  # of p - 1: of a large p the root alone would lose digits
        return self.with_the_worst(row, height ** (p - 1) / level / row.size)

    def offset(self, row: Row) -> Array:
        """Give `min + mean((q - min)^p)^(1/p)`, from the best."""
        p = row.constant(self.p)
        return row.spread * (row.mean(self.height(row) ** p) ** (1 / p) - 1)

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is the policy."""
        return self.weights(q, where)


@operator
class PNorm(FromTheWorst):
    """Take the norm of the distances to the worst; see `p_norm`."""

    p: Number = parameter(1, ends="1 adds all distances to it", limit="max", example=3.0)

    laws: ClassVar[Laws] = Laws(
        translation_equivariant=True,
        at_least_mean=True,
        weights_are_policy=True,
        gradient_is_derivative=True,
        ignores_illegal=True,
        within_largest_gap=True,
        homogeneous=True,
    )

    def policy(self, row: Row) -> Array:
        """Weigh each action by the power of its distance."""
        return row.normalise(self.height(row) ** row.constant(self.p))

    def offset(self, row: Row) -> Array:
        """Give `min + sum((q - min)^p)^(1/p)`, from the best."""
        p = row.constant(self.p)
        return row.spread * (row.sum(self.height(row) ** p) ** (1 / p) - 1)

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give `((q - min) / norm)^(p - 1)`, of sum 1 with the worst action."""
        row = centre(q, where)
        height, p = self.height(row), row.constant(self.p)
        return self.with_the_worst(row, height ** (p - 1) / row.sum(height**p) ** (1 - 1 / p))

    def largest_gap(self, actions: int) -> float:
        """Give 0: it is never below the maximum."""
        return 0.0


@operator
class Lehmer(FromTheWorst):
    """Average with weights by powers of the distance to the worst; see `lehmer`."""

    p: Number = parameter(1, ends="1 is the mean", limit="max", example=3.0)

    laws: ClassVar[Laws] = Laws.of_an_average(at_least_mean=True, monotone=False, non_expansion=False)

    def policy(self, row: Row) -> Array:
        """Weigh each action by `(q - min)^(p - 1)`."""
        return row.normalise(_power(row, self.height(row), row.constant(self.p) - 1))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give `w (1 + (p - 1) (q - value) / (q - min))`, of sum 1 with the worst action."""
        row = centre(q, where)
        height, w = self.height(row), self.policy(row)
        deviation = row.z - row.sum(w * row.z)
        inside = height > 0
        steep = w * (row.constant(self.p) - 1) * (deviation / row.xp.where(inside, height * row.unit, 1.0))
        return self.with_the_worst(row, w + row.xp.where(inside, steep, 0.0))


@operator
class SignedPower(Operator):
    """Take the mean of powers that keep their sign, the quasi-arithmetic mean without a unit; see `signed_power`."""

    p: Number = parameter(1, ends="1 is the mean", example=3.0)

    laws: ClassVar[Laws] = Laws(
        monotone=True,
        at_most_max=True,
        weights_are_policy=True,
        gradient_is_derivative=True,
        ignores_illegal=True,
        homogeneous=True,
    )

    def policy(self, row: Row) -> Array:
        """Weigh each action by the derivative of its power, `|q|^(p - 1)`."""
        t, _ = _in_magnitudes(row)
        steep = row.xp.abs(t) ** (row.constant(self.p) - 1)
        return row.normalise(row.xp.where(row.sum(steep) == 0, 1.0, steep))

    def offset(self, row: Row) -> Array:
        """Give `sign(s) |s|^(1/p)`, s being the mean of `sign(q) |q|^p`, from the best."""
        t, unit = _in_magnitudes(row)
        return self._level(row, t) * unit - row.best

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give `|q / value|^(p - 1) / m`; where the value is 0, and it has none, `1 / m`."""
        row = centre(q, where)
        xp, (t, _) = row.xp, _in_magnitudes(row)
        level = xp.abs(self._level(row, t))
        ratio = xp.where(level > 0, xp.abs(t) / xp.where(level > 0, level, 1.0), 1.0)
        return row.legally(ratio ** (row.constant(self.p) - 1)) / row.size

    def largest_share(self, actions: int) -> float:
        """Give 1: it lies between the smallest value and the largest, as near to the smallest as one likes."""
        return 1.0

    def _level(self, row: Row, t: Array) -> Array:
        xp, p = row.xp, row.constant(self.p)
        s = row.mean(t * _power(row, xp.abs(t), p - 1))
        size = xp.abs(s)
        root = xp.sign(s) * xp.where(size > 0, xp.where(size > 0, size, 1.0) ** (1 / p), 0.0)
        return xp.where(p == 1, s, root)


@operator
class Expectile(Operator):
    """Take the value that both sides pull at with given strengths; see `expectile`."""

    kappa: Number = parameter(0.5, 1, ends="0.5 is the mean and 1 max", example=0.9)

    laws: ClassVar[Laws] = Laws.of_an_average(at_least_mean=True)

    def policy(self, row: Row) -> Array:
        """Weigh the actions above the value by `kappa` and the others by `1 - kappa`.

        Of the averages with so much on some of the best, for any number of them, it is the largest.
        """
        xp, kappa = row.xp, row.constant(self.kappa)
        count, total = best_sums(row, xp.ones_like(row.z), row.z)  # of the best down to each
        weight = kappa * count + (1 - kappa) * (row.size - count)
        average = (kappa * total + (1 - kappa) * (row.sum(row.z) - total)) / weight
        largest = xp.max(xp.where(row.legal, average, -math.inf), axis=-1, keepdims=True)
        lowest = xp.max(xp.where(row.legal & (average == largest), row.z, -math.inf), axis=-1, keepdims=True)
        return row.normalise(xp.where(row.z >= lowest, kappa, 1 - kappa))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is the policy."""
        return self.weights(q, where)


@operator
class Deviation(Operator):
    """Take the mean and some standard deviations; see `deviation`."""

    kappa: Number = parameter(0, ends="0 is the mean", example=0.5)

    laws: ClassVar[Laws] = Laws(
        translation_equivariant=True,
        at_least_mean=True,
        averages_with_its_weights=True,
        gradient_is_derivative=True,
        ignores_illegal=True,
        homogeneous=True,
    )

    def policy(self, row: Row) -> Array:
        """Give the gradient, `(1 + kappa (q - mean) / std) / m`: the value averages with it, and it may be negative."""
        deviation, std = _deviations(row)
        return row.legally(1 + row.constant(self.kappa) * (deviation / std)) / row.size

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is what it averages with."""
        return self.weights(q, where)


@operator
class Relative(Operator):
    """Average by softmax with standard deviations for a unit; see `relative`."""

    kappa: Number = parameter(0, ends="0 is the mean", limit="max, or double(max)", example=2.0)

    laws: ClassVar[Laws] = Laws.of_an_average(at_least_mean=True, monotone=False, non_expansion=False)

    def policy(self, row: Row) -> Array:
        """Weigh each action by `exp(kappa q / std)`."""
        _, std = _deviations(row)
        return row._replace(z=row.z / std).boltzmann(row.constant(self.kappa))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, in which the unit moves too."""
        row = centre(q, where)
        p, (deviation, std) = self.policy(row), _deviations(row)
        standard = deviation / std
        pull = row.constant(self.kappa) * p * (row.z - row.sum(p * row.z)) / std
        return row.legally(p + pull - standard / row.size * row.sum(pull * standard))


def _deviations(row: Row) -> tuple[Array, Array]:
    """Give the deviations from the mean, `[..., A]`, and their root mean square, 1 where it is 0: `[..., 1]`."""
    xp = row.xp
    y = row.z / row.unit
    deviation = y - row.mean(y)
    variance = row.mean(deviation**2)
    spread = row.spread > 0
    std = xp.sqrt(xp.where(spread, variance, 1.0)) * row.unit
    return xp.where(spread, deviation, 0.0) * row.unit, std


def _power(row: Row, base: Array, exponent: Array) -> Array:
    """Give `base ** exponent`, constant where the base is 0: there a derivative may be infinite."""
    xp, is_zero = row.xp, base == 0
    at_zero = xp.astype(exponent == 0, base.dtype)
    return xp.where(is_zero, at_zero, xp.where(is_zero, 1.0, base) ** exponent)


def _in_magnitudes(row: Row) -> tuple[Array, Array]:
    """Give the values in units of the largest magnitude, `[..., A]`, and that, 1 where it is 0: `[..., 1]`."""
    xp = row.xp
    q = xp.where(row.legal, row.best + row.z, 0.0)
    largest = xp.max(xp.abs(q), axis=-1, keepdims=True)
    unit = xp.where(largest > 0, largest, 1.0)
    return xp.where(row.legal, q / unit, 0.0), unit


def power_mean(p: Number) -> PowerMean:
    """Build `min + mean((q - min)^p)^(1/p)`, the power mean of the distances to the worst action.

    Args:
        p: finite and at least 1, which is the mean; no unit.

    Raises:
        TypeError: `p` is no number.
        ValueError: it is out of range.

    Example:
        >>> float(power_mean(2.0)([1.0, 1.0, 1.0, 3.0]))
        2.0

    Source: Dam et al. (2019), of values that are not negative.
    """
    return checked(PowerMean, "power_mean", p)


def p_norm(p: Number) -> PNorm:
    """Build `min + sum((q - min)^p)^(1/p)`, the norm of the distances to the worst action.

    Args:
        p: finite and at least 1, which is the sum; no unit.

    Raises:
        TypeError: `p` is no number.
        ValueError: it is out of range.

    Example:
        >>> float(p_norm(2.0)([0.0, 3.0, 4.0]))
        5.0
    """
    return checked(PNorm, "p_norm", p)


def lehmer(p: Number) -> Lehmer:
    """Build `min + sum((q - min)^p) / sum((q - min)^(p - 1))`, Lehmer's mean of the distances to the worst action.

    Args:
        p: finite and at least 1, which is the mean; no unit.

    Raises:
        TypeError: `p` is no number.
        ValueError: it is out of range.

    Source: Bullen (2003).
    """
    return checked(Lehmer, "lehmer", p)


def signed_power(p: Number) -> SignedPower:
    """Build the quasi-arithmetic mean of `sign(q) |q|^p`.

    Args:
        p: finite and at least 1, which is the mean; no unit.

    Raises:
        TypeError: `p` is no number.
        ValueError: it is out of range.

    Source: Kolmogorov (1930).
    """
    return checked(SignedPower, "signed_power", p)


def expectile(kappa: Number) -> Expectile:
    """Build the expectile over actions: the v that minimises `sum |kappa - (q < v)| (q - v)^2`.

    Args:
        kappa: from 0.5, the mean, to 1, the maximum.

    Raises:
        TypeError: `kappa` is no number.
        ValueError: it is out of range.

    Example:
        >>> float(expectile(0.75)([0.0, 1.0]))
        0.75

    Source: Newey and Powell (1987); Kostrikov, Nair and Levine (2022).
    """
    return checked(Expectile, "expectile", kappa)


def deviation(kappa: Number) -> Deviation:
    """Build `mean(q) + kappa std(q)`, the standard deviation being that over actions.

    Args:
        kappa: finite and at least 0, which is the mean; in standard deviations.

    Raises:
        TypeError: `kappa` is no number.
        ValueError: it is out of range.

    Source: Namkoong and Duchi (2017), for a small kappa the largest average over a ball of policies.
    """
    return checked(Deviation, "deviation", kappa)


def relative(kappa: Number) -> Relative:
    """Build softmax at `tau = kappa / std(q)`, for each row anew.

    Args:
        kappa: finite and at least 0, which is the mean: the inverse temperature in units of `1 / std(q)`.

    Raises:
        TypeError: `kappa` is no number.
        ValueError: it is out of range.

    Source: after the cooled temperature of the code of Song, Parr and Carin (2019), which has factors `sqrt(m)` and
    `floor(log t)` at update t, and one state's deviation for a whole minibatch.
    """
    return checked(Relative, "relative", kappa)
