"""Bellman operators as values: what the actions of a next state are worth together.

An operator is a small frozen dataclass. Called on action values it gives their worth; `weights` is the policy it
averages with, `gradient` its derivative. Functions such as `softmax` build one and check its parameter; a user's own
is a subclass of `Operator` with one method. The other modules beside this one have the others.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from softbellman.operators.laws import Laws
from softbellman.operators.parameters import checked, parameter
from softbellman.operators.pytrees import operator, register_pytrees
from softbellman.operators.row import (
    Array,
    Number,
    Row,
    bisect,
    centre,
    compat,
    differentiate,
    scaled,
    stop_gradient,
    with_slope,
)


class Operator:
    """Say what action values are worth together. The base of every operator.

    A new operator defines `policy`; one that is no average with its policy defines `offset` too. Masks, dtypes and
    large values have been dealt with when these are called, and all else follows from them.
    """

    laws: ClassVar[Laws] = Laws()

    @property
    def for_actions(self) -> int | None:
        """The only number of actions that it takes; None where any will do."""
        return None

    @property
    def on_one_set(self) -> "Operator | None":
        """Equal of the operator where both sets of values are the same; None where nothing simpler is known."""
        return self

    def __post_init__(self) -> None:
        """Let JAX know the class, where JAX is loaded. It checks nothing: JAX runs it again, with tracers."""
        register_pytrees()

    def policy(self, row: Row) -> Array:
        """Weigh the actions of a centred row: `[..., A]`, not negative, sum 1."""
        raise NotImplementedError(f"{type(self).__name__} must define policy(row).")

    def offset(self, row: Row) -> Array:
        """Measure the value from that of the best action: `[..., 1]`."""
        return row.sum(self.policy(row) * row.z)

    def __call__(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Evaluate action values.

        Args:
            q: `[..., A]`, the values to average; integers become floats, -inf is not legal.
            selector: `[..., A]`, the second set of values, such as that which the policy is from. Only operators on two
                sets of values (`Pair`) heed it.
            where: bool, broadcast to `q`: the legal actions; all by default.

        Returns:
            `[...]`.

        Raises:
            ValueError: a row has no legal action (under tracing: NaN), or a double operator no selector.
        """
        row = centre(q, where)
        return (row.best + self.offset(row))[..., 0]

    def weights(self, q: Array, where: Array | None = None) -> Array:
        """Give the policy that the operator averages with: `[..., A]`, exactly 0 where not legal, NaN if a value is."""
        return self.policy(centre(q, where))

    def mixture(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the policy for a call with the same arguments: `[..., A]`; `double` takes it from the selector."""
        return self.weights(q, where)

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative of the value in `q`: `[..., A]`, here by automatic differentiation."""
        return differentiate(self, q, selector, where)

    def largest_gap(self, actions: int) -> float:
        """Bound `max(q) - op(q)` over all values of so many actions; infinite where nothing is known."""
        return math.inf

    def largest_share(self, actions: int) -> float:
        """Bound `(max(q) - op(q)) / (max(q) - min(q))` over all values of so many actions; infinite where unknown.

        Where the operator is monotone and has no unit, it is furthest from the maximum with one action best and the
        others alike.
        """
        laws, lone = self.laws, np.eye(actions)
        if laws.monotone and laws.translation_equivariant and laws.homogeneous:
            return 1 - float(np.min(self(lone)))
        if laws.at_least_mean:
            return 1 - 1 / actions
        return 1.0 if laws.averages_with_its_weights and laws.weights_are_policy and laws.at_most_max else math.inf

    def largest_support(self, actions: int) -> int:
        """Bound how many of so many actions have a weight above 0."""
        return actions

    def lipschitz(self, actions: int) -> float:
        """Bound `|op(q) - op(q')| / max|q - q'|` for so many actions; infinite where nothing is known."""
        laws = self.laws
        return 1.0 if laws.non_expansion or (laws.monotone and laws.translation_equivariant) else math.inf

    def rounding(self, actions: int, spread: float) -> float:
        """Bound the rounding error of the value in float64, for so many actions whose values spread so far."""
        return 2.0**-53 * (4 * actions + 8) * spread

    def __str__(self) -> str:
        """Spell the operator as a spec that `parse` reads back."""
        from softbellman.operators.spec import spell

        return spell(self)


@operator
class Maximum(Operator):
    """Take the value of the best action; see `maximum`."""

    laws: ClassVar[Laws] = Laws.of_an_average(at_least_mean=True, within_largest_gap=True, optimality_preserving=True)

    def policy(self, row: Row) -> Array:
        """Put all weight on the best action; of equal ones, on the first."""
        best = row.xp.astype(row.legal & (row.z == 0), row.z.dtype)
        return row.normalise(row.xp.where(row.xp.cumulative_sum(best, axis=-1) == 1, best, 0.0))

    def offset(self, row: Row) -> Array:
        """Give 0; where a derivative may be taken, a 0 with which a tie goes to the first, as `gradient` says."""
        return row.xp.zeros_like(row.best) if compat.is_numpy_array(row.z) else super().offset(row)

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is the policy."""
        return self.weights(q, where)

    def largest_gap(self, actions: int) -> float:
        """Give 0."""
        return 0.0

    def largest_support(self, actions: int) -> int:
        """Give 1."""
        return 1


@operator
class Mean(Operator):
    """Average the actions, all alike; see `mean`."""

    laws: ClassVar[Laws] = Laws.of_an_average(at_least_mean=True)

    def policy(self, row: Row) -> Array:
        """Weigh all legal actions alike."""
        return row.normalise(row.xp.ones_like(row.z))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is the policy."""
        return self.weights(q, where)


@operator
class Softmax(Operator):
    """Average with weights proportional to `exp(tau q)`; see `softmax`."""

    tau: Number = parameter(0, ends="0 is the mean", limit="max, or double(max)")

    laws: ClassVar[Laws] = Laws.of_an_average(
        at_least_mean=True, within_largest_gap=True, monotone=False, non_expansion=False, homogeneous=False
    )

    def policy(self, row: Row) -> Array:
        """Weigh each action by `exp(tau q)`."""
        return row.boltzmann(row.constant(self.tau))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give `p (1 + tau (q - sm))`, which is negative below `sm - 1/tau`: softmax is not monotone."""
        row = centre(q, where)
        p = self.policy(row)
        deviation = row.z - row.sum(p * row.z)
        return p + p * deviation * row.constant(self.tau)  # in this order: a p of 0 meets no infinity

    def largest_gap(self, actions: int) -> float:
        """Give `W((m - 1) / e) / tau`, W being Lambert's function: the sharp bound, whatever the values."""
        from scipy.special import lambertw  # pyright: ignore

        return float(lambertw((actions - 1) / math.e).real) / self.tau if self.tau > 0 else math.inf

    def lipschitz(self, actions: int) -> float:
        """Give the largest l1 norm of the gradient, the same for every tau.

        It is met where one action is best and the others equally far below, by `x / tau` with `x (2 p - 1) = 2`,
        `p = exp(x) / (exp(x) + m - 1)`; and it is `x / 2`.
        """
        from scipy.optimize import brentq  # pyright: ignore

        if type(self) is not Softmax:  # a subclass need not be one
            return super().lipschitz(actions)
        if actions == 1:
            return 1.0
        shift = math.log(actions - 1)
        return brentq(lambda x: x * math.tanh((x - shift) / 2) - 2, 2.0, shift + 4, xtol=1e-14) / 2  # pyright: ignore


@operator
class Mellowmax(Operator):
    """Take the mean on an exponential scale; see `mellowmax`. Deviation D16."""

    omega: Number = parameter(0, ends="0 is the mean", limit="max, or double(max)")

    laws: ClassVar[Laws] = Laws.of_an_average(at_least_mean=True, within_largest_gap=True, homogeneous=False)

    def offset(self, row: Row) -> Array:
        """Give `log(mean(exp(omega z))) / omega`; the mean, its limit, where no float tells them apart."""
        parameter = row.constant(self.omega)
        value = log_average_exp(row, row.mean, stop_gradient(parameter))
        if isinstance(self.omega, int | float):  # a constant
            return value
        return with_slope(value, parameter, lambda value, omega: _mellowmax_slope(row, value, omega))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the softmax policy at rate `omega`: not negative, sum 1, so mellowmax is a non-expansion."""
        row = centre(q, where)
        return row.boltzmann(row.constant(self.omega))

    def largest_gap(self, actions: int) -> float:
        """Give `log(m) / omega`, approached as one action leaves the others behind."""
        return math.log(actions) / self.omega if self.omega > 0 else math.inf

    def policy(self, row: Row) -> Array:
        """Give the policy of largest entropy among those that average to the value (Asadi and Littman, 2017)."""
        return row.boltzmann(self._policy_rate(row))

    def _policy_rate(self, row: Row) -> Array:
        """Solve `sum(exp(beta (q - mm)) (q - mm)) = 0`, that is `sm_beta = mm_omega`, for beta: `[..., 1]`.

        The root is bracketed. Above: `sm_omega - mm_omega` is a divergence (KL to uniform, over omega), so not
        negative: `beta <= omega`. Below, with G the spread, `w = min(omega, 1/G)` and v the variance of q under the
        uniform policy: `exp(x) >= 1 + x + x^2/e` for `x >= -1` gives `mm_omega - mean >= 0.35 w v`, and weights of
        at most `exp(bG)` times the uniform give `sm_b - mean <= b exp(bG) v`, which at `b = w/5` is below
        `0.25 w v`; hence `beta >= w/5`. The root may be far below omega, as it grows only like log(omega) when
        that is large: so what is halved is its logarithm.
        """
        xp, finfo, omega = row.xp, row.xp.finfo(row.z.dtype), row.constant(self.omega)
        nearly_mean = scaled(omega, row.spread) < float(finfo.eps) ** 0.5  # where beta = omega/2 to that precision
        unit = stop_gradient(xp.where(nearly_mean, 1.0, row.spread))
        z = stop_gradient(row.z)
        excess = xp.where(row.legal, z - stop_gradient(self.offset(row)), 0.0)

        def is_above(log_rate: Array) -> Array:
            return xp.sum(xp.exp(xp.exp(log_rate) * z) * excess, axis=-1, keepdims=True) > 0

        high = xp.log(stop_gradient(xp.where(nearly_mean, 1.0, omega)))
        low = xp.minimum(high, -xp.log(unit)) - math.log(5)
        with np.errstate(over="ignore"):
            rate = xp.exp(bisect(row, is_above, low, high))

        # The derivative of the root is that of one step of Newton from it, the rate and the slope held constant
        # (implicit function theorem). The step itself is rounding error: its value is taken away again.
        p, y = row.boltzmann(rate), row.z / unit
        average = row.sum(p * y)
        variance = stop_gradient(row.sum(p * (y - average) ** 2))
        slope = xp.where(variance > float(finfo.smallest_normal), variance, 1.0)
        residual = average - self.offset(row) / unit
        rate = rate - (residual - stop_gradient(residual)) / slope / unit
        return xp.where(nearly_mean, omega / 2, rate)


def log_average_exp(row: Row, average: Callable[[Array], Array], omega: Array) -> Array:
    """Give `log(average(exp(omega z))) / omega`; `average(z)`, its limit, where no float tells them apart: `[..., 1]`.

    The average of `exp(omega z) - 1` keeps what is small beside 1; where it is not, the rounding of many terms near
    -1 would hide what is left of their sum, and the average of `exp(omega z)` is taken.
    """
    xp = row.xp
    reach = scaled(omega, row.spread)
    is_average, is_near = reach < 1e-18, reach < 1.0
    rate = xp.where(is_average, 1.0, omega)
    z = scaled(rate, row.z)
    near = xp.log1p(average(xp.expm1(z)))
    return xp.where(is_average, average(row.z), xp.where(is_near, near, xp.log(average(xp.exp(z)))) / rate)


def _mellowmax_slope(row: Row, offset: Array, omega: Array) -> Array:
    """Give the derivative of mellowmax in omega, `KL(p || uniform) / omega^2`: `[..., 1]`.

    It is the mean of `(y exp(y) - exp(y) + 1) / omega^2` at `y = omega (z - offset)`, of which no term is negative;
    where y is small, of `(z - offset)^2 (1/2 + y/3 + y^2/8 + ...)`. At 0 that is half the variance.
    """
    xp, deviation = row.xp, row.z - offset
    y = scaled(omega, deviation)
    is_near = xp.abs(y) < 0.5
    near, series = xp.where(is_near, y, 0.0), 0.0
    for k in reversed(range(14)):
        series = series * near + 1 / (math.factorial(k) * (k + 2))
    far = xp.where(is_near, 1.0, xp.where(y > -1e3, y, -1e3))
    unit = xp.where(is_near, deviation, 1 / xp.where(is_near, 1.0, omega))
    return row.mean(xp.where(is_near, series, far * xp.exp(far) - xp.expm1(far)) * unit * unit)


def maximum() -> Maximum:
    """Build the maximum over actions, the operator of DQN (eq. 2).

    `T Q = R + gamma E[max_a Q(s', a)]`. Of equal actions, the first gets the weight.

    Example:
        >>> float(maximum()([1.0, 3.0, 2.0]))
        3.0

    Source: Bellman (1957); Mnih et al. (2015).
    """
    return Maximum()


def mean() -> Mean:
    """Build the mean over legal actions: the limit of softmax and of mellowmax at 0.

    Example:
        >>> float(mean()([1.0, 3.0, 2.0]))
        2.0
    """
    return Mean()


def softmax(tau: Number) -> Softmax:
    """Build the softmax operator (eq. 3): `sm_tau(q) = sum(exp(tau q) q) / sum(exp(tau q))`.

    Args:
        tau: the *inverse* temperature, finite and at least 0; 0 is the mean, and larger is nearer to the maximum.
            In units of 1/q: what a tau does depends on the scale of the values.

    Raises:
        TypeError: `tau` is no number.
        ValueError: `tau` is negative, NaN or infinite.

    Example:
        >>> float(softmax(1.0)([1.0, 2.0, 3.0]).round(6))
        2.57521

    Source: Song, Parr and Carin (2019); Littman (1996) for its failure to be a contraction.
    """
    return checked(Softmax, "softmax", tau)


def mellowmax(omega: Number) -> Mellowmax:
    """Build the mellowmax operator (eq. 4): `mm_omega(q) = log(mean(exp(omega q))) / omega`.

    Its `weights` are the policy of largest entropy that averages to the value, softmax at a rate of its own for each
    row; so `double(mellowmax(omega))` is defined.

    Args:
        omega: finite and at least 0; 0 is the mean, and larger is nearer to the maximum. In units of 1/q.

    Raises:
        TypeError: `omega` is no number.
        ValueError: `omega` is negative, NaN or infinite.

    Example:
        >>> float(mellowmax(1.0)([1.0, 2.0, 3.0]).round(6))
        2.308994

    Source: Asadi and Littman (2017).
    """
    return checked(Mellowmax, "mellowmax", omega)
