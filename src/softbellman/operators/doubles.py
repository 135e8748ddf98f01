"""Operators on two sets of values: `op(q, selector)`, in a deep Q-network `op(q_target, q_online)`."""

import math
from typing import ClassVar

from softbellman.operators.core import Maximum, Operator
from softbellman.operators.laws import Laws
from softbellman.operators.parameters import checked, parameter
from softbellman.operators.pytrees import operator
from softbellman.operators.row import Array, Number, Row, centre, legal_actions, real, scaled


class Pair(Operator):
    """Say what one set of values is worth with the help of another. The base of such operators.

    `weights` and `policy` are of one set of values alone, the selector.
    """

    op: Operator

    @property
    def on_one_set(self) -> Operator | None:
        """Equal of it where both sets of values are the same: the operator that it is made of."""
        return self.op

    def policy(self, row: Row) -> Array:
        """Weigh the actions as `op` does."""
        return self.op.policy(row)

    def weights(self, q: Array, where: Array | None = None) -> Array:
        """Give the policy for a selector `q`: `[..., A]`."""
        return self.op.weights(q, where)

    def mixture(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the policy for the selector: `[..., A]`."""
        return self.op.weights(selector, self._legal(q, selector, where))

    @property
    def for_actions(self) -> int | None:
        """The only number of actions that `op` takes."""
        return self.op.for_actions

    def largest_share(self, actions: int) -> float:
        """Give infinity: the selector may be far from `q`."""
        return math.inf

    def largest_support(self, actions: int) -> int:
        """Give that of `op`."""
        return self.op.largest_support(actions)

    def pair(self, q: Array, selector: Array | None, where: Array | None) -> tuple[Row, Array, Array]:
        """Take two sets of values: the row of `q`, the selector from the same best value, and what is legal in both.

        Raises:
            ValueError: there is no selector, it is of another shape, or a row has no legal action.
        """
        legal = self._legal(q, selector, where)
        row, selector = centre(q, legal), real(selector)
        return row, row.xp.where(legal, selector, row.best) - row.best, legal

    @staticmethod
    def smaller(row: Row, other: Array) -> tuple[Array, Array]:
        """Give the smaller of two values of each action, and where it is the other: a NaN of either is the smaller."""
        below = ~(other >= row.z)
        return row.xp.where(below, other, row.z), below

    def _legal(self, q: Array, selector: Array | None, where: Array | None) -> Array:
        if selector is None:
            raise ValueError(
                f"{self} needs a selector: pass two sets of values, the one to average and the one to take the "
                "policy from, such as op(q_target, q_online)."
            )
        averaged, choosing = real(q), real(selector)
        if averaged.shape != choosing.shape:
            shapes = f"q has shape {tuple(averaged.shape)} and selector {tuple(choosing.shape)}"
            raise ValueError(f"{shapes}; they must be the same, with the actions last.")
        return legal_actions(choosing, legal_actions(averaged, where))


@operator
class Double(Pair):
    """Average one set of values with the policy that `op` has for another; see `double`."""

    op: Operator

    @property
    def laws(self) -> Laws:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The laws of an average, as far as `op` claims that its weights are a policy."""
        inner = self.op.laws
        scaling = inner.homogeneous and inner.averages_with_its_weights
        shared = {"ignores_illegal": inner.ignores_illegal, "homogeneous": scaling}
        preserving = inner.optimality_preserving and inner.averages_with_its_weights
        if inner.weights_are_policy:
            return Laws.of_an_average(**shared, optimality_preserving=preserving)
        return Laws(averages_with_its_weights=True, gradient_is_derivative=True, **shared)

    @property
    def on_one_set(self) -> Operator | None:
        """The operator that it doubles, if that is the average with its weights."""
        return self.op if self.op.laws.averages_with_its_weights else None

    def largest_share(self, actions: int) -> float:
        """Give 1: it is an average of `q`, maybe the worst."""
        return 1.0 if self.op.laws.weights_are_policy else math.inf

    def __call__(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give `sum(op.weights(selector) q)`: `[...]`."""
        legal = self._legal(q, selector, where)
        row = centre(q, legal)
        return (row.best + row.sum(self.op.weights(selector, legal) * row.z))[..., 0]

    gradient = Pair.mixture  # the derivative in `q`, the selector held fixed


@operator
class ClippedDouble(Pair):
    """Average the smaller of two values of each action, with the policy for one set; see `clipped_double`."""

    op: Operator

    @property
    def laws(self) -> Laws:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The laws of a double operator, but for those that the second set spoils."""
        inner = self.op.laws
        return Laws(
            monotone=inner.weights_are_policy,
            non_expansion=inner.weights_are_policy,
            at_most_max=inner.weights_are_policy,
            averages_with_its_weights=True,
            weights_are_policy=inner.weights_are_policy,
            gradient_is_derivative=True,
            ignores_illegal=inner.ignores_illegal,
            homogeneous=inner.homogeneous and inner.averages_with_its_weights,
            optimality_preserving=inner.optimality_preserving and inner.averages_with_its_weights,
        )

    @property
    def on_one_set(self) -> Operator | None:
        """The operator that it is made of, if that is the average with its weights."""
        return self.op if self.op.laws.averages_with_its_weights else None

    def __call__(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give `sum(op.weights(selector) min(q, selector))`: `[...]`."""
        row, other, legal = self.pair(q, selector, where)
        smaller, _ = self.smaller(row, other)
        return (row.best + row.sum(self.op.weights(selector, legal) * smaller))[..., 0]

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative in `q`: the policy for the selector where `q` is the smaller, else 0."""
        row, other, legal = self.pair(q, selector, where)
        _, below = self.smaller(row, other)
        return row.xp.where(below, 0 * other, self.op.weights(selector, legal))


class _Together(Pair):
    """The base of operators that apply `op` to one value of each action, made of its two."""

    also: ClassVar[tuple[str, ...]] = ()

    @property
    def laws(self) -> Laws:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of `op` that survive a change of its values by fixed ones."""
        always = ("monotone", "non_expansion", "averages_with_its_weights", "weights_are_policy")
        more = ("gradient_is_derivative", "ignores_illegal", "homogeneous", "optimality_preserving")
        return Laws(**{name: getattr(self.op.laws, name) for name in (*always, *more, *self.also)})

    def together(self, row: Row, other: Array) -> tuple[Array, Array]:
        """Give one value of each action, measured as both are, and its derivative in `q`: `[..., A]`."""
        raise NotImplementedError

    def _parts(self, q: Array, selector: Array | None, where: Array | None) -> tuple[Array, Array, Array, Array]:
        """Give a level, 0 where it matters to `op`, those values from there, their derivative, and what is legal."""
        row, other, legal = self.pair(q, selector, where)
        values, slope = self.together(row, other)
        if self.op.laws.translation_equivariant:
            return row.best, values, slope, legal
        return row.xp.zeros_like(row.best), row.best + values, slope, legal

    def __call__(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give what `op` has for these values: `[...]`."""
        level, values, _, legal = self._parts(q, selector, where)
        return level[..., 0] + self.op(values, where=legal)

    def mixture(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the policy of `op` for these values: `[..., A]`."""
        _, values, _, legal = self._parts(q, selector, where)
        return self.op.weights(values, legal)

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative in `q`: that of `op`, as far as these values go with `q`."""
        _, values, slope, legal = self._parts(q, selector, where)
        return slope * self.op.gradient(values, where=legal)


@operator
class Maxmin(_Together):
    """Take the smaller of two values of each action, then apply `op`; see `maxmin`."""

    op: Operator

    also: ClassVar[tuple[str, ...]] = ("at_most_max",)

    def together(self, row: Row, other: Array) -> tuple[Array, Array]:
        """Give the smaller one, which goes with `q` where that is it."""
        smaller, below = self.smaller(row, other)
        return smaller, row.xp.where(below, 0 * other, 1.0)


@operator
class Averaged(_Together):
    """Average two values of each action, then apply `op`; see `averaged`."""

    op: Operator

    def together(self, row: Row, other: Array) -> tuple[Array, Array]:
        """Give the average, which goes half as far as `q`."""
        return (row.z + other) / 2, 0.5


class _OfTheMaximum(Pair):
    """The base of operators that equal the maximum where both sets of values are the same."""

    op: ClassVar[Operator] = Maximum()  # pyright: ignore[reportIncompatibleVariableOverride]


@operator
class SelfCorrecting(_OfTheMaximum):
    """Take the value of the action that is best in a mix of two sets of values; see `self_correcting`."""

    beta: Number = parameter(0, ends="0 is max, and 1 double(max)", example=3.0)

    laws: ClassVar[Laws] = Laws(
        translation_equivariant=True,
        at_most_max=True,
        averages_with_its_weights=True,
        weights_are_policy=True,
        gradient_is_derivative=True,
        ignores_illegal=True,
        homogeneous=True,
        optimality_preserving=True,
    )

    def largest_share(self, actions: int) -> float:
        """Give 1: it is one of `q`, maybe the worst."""
        return 1.0

    def __call__(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give `q[argmax((1 - beta) q + beta selector)]`: `[...]`."""
        row, other, legal = self.pair(q, selector, where)
        return (row.best + row.sum(self._chosen(row, other, legal) * row.z))[..., 0]

    def mixture(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the chosen action all weight: `[..., A]`."""
        return self._chosen(*self.pair(q, selector, where))

    gradient = mixture  # the derivative in `q`, wherever there is one

    def _chosen(self, row: Row, other: Array, legal: Array) -> Array:
        """Weigh by `q + beta (selector - q)`, the differences measured from the largest: at that, no beta hides q."""
        xp, beta, ahead = row.xp, row.constant(self.beta), other - row.z
        ahead = ahead - xp.max(xp.where(legal, ahead, -math.inf), axis=-1, keepdims=True)
        return self.op.weights(xp.where(beta == 1, other, row.z + scaled(beta, ahead)), legal)


@operator
class WeightedDouble(_OfTheMaximum):
    """Mix both values of the action that is best in the selector; see `weighted_double`."""

    c: Number = parameter(0, ends="near 0 it is the maximum of the selector", limit="double(max)", above=True)

    laws: ClassVar[Laws] = Laws(
        averages_with_its_weights=True,
        weights_are_policy=True,
        gradient_is_derivative=True,
        ignores_illegal=True,
        optimality_preserving=True,
    )

    def __call__(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give `b selector[a] + (1 - b) q[a]` for the best action `a` of the selector: `[...]`."""
        row, _, _, mine, theirs, share, _ = self._parts(q, selector, where)
        return (row.best + mine + share * (theirs - mine))[..., 0]

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative in `q`, in the best and in the worst action of the selector."""
        row, best, worst, mine, theirs, share, spread = self._parts(q, selector, where)
        steep = row.xp.sign(spread) * (1 - share) / (row.positive(self.c) + row.xp.abs(spread)) * (theirs - mine)
        return (1 - share) * best + steep * (best - worst)

    def _parts(self, q: Array, selector: Array | None, where: Array | None) -> tuple[Row, *tuple[Array, ...]]:
        row, other, legal = self.pair(q, selector, where)
        choosing = real(selector)
        best, worst = self.op.weights(choosing, legal), self.op.weights(-choosing, legal)
        mine, theirs = row.sum(best * row.z), row.sum(best * other)
        spread, c = mine - row.sum(worst * row.z), row.positive(self.c)
        size = row.xp.abs(spread)
        return row, best, worst, mine, theirs, size / (c + size), spread


def double(op: Operator) -> Double:
    """Build the double form of an operator: `sum_a w_a q_a`, with `w = op.weights(selector)`.

    `double(maximum())` is the target of double DQN (the unnumbered equation of section 2), `double(softmax(tau))`
    that of S-DDQN.

    Raises:
        TypeError: `op` is no operator.
        ValueError: `op` is doubled already.

    Example:
        >>> from softbellman.operators import maximum
        >>> q_target, q_online = [10.0, 2.0], [1.0, 5.0]
        >>> float(double(maximum())(q_target, q_online))
        2.0

    Source: van Hasselt, Guez and Silver (2016).
    """
    return Double(single("double", op))


def clipped_double(op: Operator) -> ClippedDouble:
    """Build `sum_a w_a min(q_a, selector_a)`, with `w = op.weights(selector)`.

    Raises:
        TypeError: `op` is no operator.
        ValueError: `op` takes two sets of values already.

    Source: Fujimoto, van Hoof and Meger (2018), for `op` the maximum.
    """
    return ClippedDouble(single("clipped_double", op))


def maxmin(op: Operator) -> Maxmin:
    """Build `op(min(q, selector))`.

    Raises:
        TypeError: `op` is no operator.
        ValueError: `op` takes two sets of values already.

    Source: Lan, Pan, Fyshe and White (2020), for `op` the maximum and two networks.
    """
    return Maxmin(single("maxmin", op))


def averaged(op: Operator) -> Averaged:
    """Build `op((q + selector) / 2)`.

    Raises:
        TypeError: `op` is no operator.
        ValueError: `op` takes two sets of values already.

    Source: Anschel, Baram and Shimkin (2017), for `op` the maximum and two networks.
    """
    return Averaged(single("averaged", op))


def self_correcting(beta: Number) -> SelfCorrecting:
    """Build `q[argmax((1 - beta) q + beta selector)]`: 0 is the maximum, 1 `double(max)`, more corrects further.

    Raises:
        TypeError: `beta` is no number.
        ValueError: `beta` is negative, NaN or infinite.

    Source: Zhu and Rigotti (2021).
    """
    return checked(SelfCorrecting, "self_correcting", beta)


def weighted_double(c: Number) -> WeightedDouble:
    """Build `b selector[a] + (1 - b) q[a]`, between the selector's maximum and `double(max)`.

    Here `a` is the best action of the selector, `l` its worst, and `b = |q[a] - q[l]| / (c + |q[a] - q[l]|)`.

    Args:
        c: above 0 and finite, in the units of the values.

    Raises:
        TypeError: `c` is no number.
        ValueError: `c` is not above 0, NaN or infinite.

    Source: Zhang, Pan and Kochenderfer (2017).
    """
    return checked(WeightedDouble, "weighted_double", c)


def single(function: str, op: Operator) -> Operator:
    """Check that what a function is given is an operator on one set of values.

    Raises:
        TypeError: it is no operator.
        ValueError: it takes two sets of values.
    """
    if isinstance(op, Pair):
        already = "doubled already" if isinstance(op, Double) else "an operator on two sets of values already"
        raise ValueError(f"{function}({op}): it is {already}, and there is only one selector; pass {op.op}.")
    if isinstance(op, type) or not callable(getattr(op, "weights", None)):
        raise TypeError(
            f"{function}({op!r}): not an operator; pass one such as softmax(5.0), or use parse() on a string."
        )
    return op
