"""Averages whose weights depend on the order of the actions alone, or on nothing: all of them non-expansions."""

from typing import ClassVar

from softbellman.operators.core import Operator
from softbellman.operators.laws import Laws
from softbellman.operators.parameters import checked, parameter, shares
from softbellman.operators.pytrees import operator
from softbellman.operators.row import Array, Number, Row


class Ordered(Operator):
    """Weigh each action by its place in the order of values; of equal ones the first comes first. The base of these."""

    laws: ClassVar[Laws] = Laws.of_an_average(at_least_mean=True)

    def mass(self, row: Row, rank: Array, count: Array) -> Array:
        """Weigh the rank, 0 of the best, among so many legal actions: `[..., A]`; it need not sum to 1."""
        raise NotImplementedError

    def policy(self, row: Row) -> Array:
        """Weigh each action by its rank."""
        return row.normalise(self.mass(row, row.rank, row.size))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is the policy."""
        return self.weights(q, where)


@operator
class EpsilonSoft(Ordered):
    """Mix the maximum and the mean; see `epsilon_soft`."""

    epsilon: Number = parameter(0, 1, ends="0 is max and 1 the mean", example=0.1)

    def mass(self, row: Row, rank: Array, count: Array) -> Array:
        """Give the best `1 - epsilon` more than the others."""
        epsilon = row.constant(self.epsilon)
        return row.xp.where(rank == 0, 1 - epsilon, 0.0) + epsilon / count


@operator
class Smoothed(Ordered):
    """Share a part among all but the best; see `smoothed`."""

    mu: Number = parameter(0, 0.5, ends="0 is max", example=0.1)

    def mass(self, row: Row, rank: Array, count: Array) -> Array:
        """Give the best `1 - mu`, and each other its part of `mu`."""
        mu, one = row.constant(self.mu), row.xp.ones_like(count)
        return row.xp.where(rank == 0, 1 - mu, mu / row.xp.where(count > 1, count - 1, one))


@operator
class TopK(Ordered):
    """Average the best actions, so many; see `top_k`."""

    k: Number = parameter(1, ends="1 is max, and as many as there are actions the mean", limit="mean", whole=True)

    def mass(self, row: Row, rank: Array, count: Array) -> Array:
        """Give each of the best the same."""
        return row.xp.astype(rank < row.constant(self.k), row.z.dtype)


@operator
class Tail(Ordered):
    """Average the best share of the actions; see `tail`."""

    share: Number = parameter(0, 1, ends="0 is max and 1 the mean", example=0.2)

    def mass(self, row: Row, rank: Array, count: Array) -> Array:
        """Give each of the best the same, and the last what is left."""
        xp = row.xp
        taken = row.constant(self.share) * count
        taken = xp.where(taken > 1, taken, 1.0)  # no less than the best
        return xp.clip(taken - rank, 0.0, 1.0)


@operator
class Yager(Ordered):
    """Weigh ranks by differences of a power; see `yager`."""

    r: Number = parameter(0, 1, ends="0 is max and 1 the mean", example=0.3)

    def mass(self, row: Row, rank: Array, count: Array) -> Array:
        """Give `((rank + 1) / count)^r - (rank / count)^r`."""
        xp, r = row.xp, row.constant(self.r)
        before = xp.where(rank > 0, (xp.where(rank > 0, rank, 1.0) / count) ** r, 0.0)
        return xp.where(rank < count, ((rank + 1) / count) ** r - before, 0.0)


@operator
class Owa(Ordered):
    """Average with given weights by rank; see `owa`."""

    ranked: tuple[Number, ...]

    laws: ClassVar[Laws] = Laws.of_an_average()

    @property
    def for_actions(self) -> int | None:
        """As many as there are weights."""
        return len(self.ranked)

    def mass(self, row: Row, rank: Array, count: Array) -> Array:
        """Spread the weights evenly over the ranks that there are, where a mask leaves fewer."""
        xp, given, size = row.xp, row.vector(self.ranked), len(self.ranked)
        low, high = rank / count, (rank + 1) / count
        total = xp.zeros_like(row.z)
        for i in range(size):  # in JAX quicker than one more axis
            upper = xp.where(high < (i + 1) / size, high, (i + 1) / size)
            lower = xp.where(low > i / size, low, i / size)
            total = total + given[..., i : i + 1] * xp.where(upper > lower, upper - lower, 0.0)
        return total


@operator
class Quantile(Ordered):
    """Take one value by its place in the order; see `quantile`."""

    p: Number = parameter(0, 1, ends="0 is the smallest value and 1 the largest", example=0.75)

    laws: ClassVar[Laws] = Laws.of_an_average()

    def mass(self, row: Row, rank: Array, count: Array) -> Array:
        """Give all to the one at `ceil(p count)`, counted from the worst; decimals are forgiven their rounding."""
        xp = row.xp
        place = xp.ceil(row.constant(self.p) * count - 1e-4)
        return xp.astype(rank == count - xp.where(place > 1, place, 1.0), row.z.dtype)


@operator
class Median(Ordered):
    """Take the middle value; see `median`."""

    laws: ClassVar[Laws] = Laws.of_an_average()

    def mass(self, row: Row, rank: Array, count: Array) -> Array:
        """Give all to the middle, or to both in the middle."""
        return row.xp.astype(row.xp.abs(2 * rank - (count - 1)) < 1.5, row.z.dtype)


@operator
class Minimum(Ordered):
    """Take the value of the worst action; see `minimum`."""

    laws: ClassVar[Laws] = Laws.of_an_average()

    def mass(self, row: Row, rank: Array, count: Array) -> Array:
        """Give all to the last."""
        return row.xp.astype(rank == count - 1, row.z.dtype)


@operator
class Hurwicz(Ordered):
    """Mix the best and the worst; see `hurwicz`."""

    a: Number = parameter(0, 1, ends="0 is the smallest value and 1 max", example=0.8)

    laws: ClassVar[Laws] = Laws.of_an_average()

    def mass(self, row: Row, rank: Array, count: Array) -> Array:
        """Give the best `a` and the worst the rest."""
        xp, a = row.xp, row.constant(self.a)
        return xp.where(rank == 0, a, 0.0) + xp.where(rank == count - 1, 1 - a, 0.0)


@operator
class Fixed(Operator):
    """Average with a given policy; see `fixed`."""

    given: tuple[Number, ...]

    laws: ClassVar[Laws] = Laws.of_an_average()

    @property
    def for_actions(self) -> int | None:
        """As many as the policy has."""
        return len(self.given)

    def policy(self, row: Row) -> Array:
        """Give the policy, scaled up where a mask leaves a part of it."""
        return row.normalise(row.vector(self.given))

    def gradient(self, q: Array, selector: Array | None = None, where: Array | None = None) -> Array:
        """Give the derivative, which is the policy."""
        return self.weights(q, where)


def epsilon_soft(epsilon: Number) -> EpsilonSoft:
    """Build `(1 - epsilon) max(q) + epsilon mean(q)`: the best that an epsilon-greedy policy can have.

    Args:
        epsilon: from 0, the maximum, to 1, the mean.

    Raises:
        TypeError: `epsilon` is no number.
        ValueError: it is out of range.

    Example:
        >>> float(epsilon_soft(0.5)([1.0, 3.0]))
        2.5

    Source: Sutton and Barto (2018); Asadi and Littman (2017).
    """
    return checked(EpsilonSoft, "epsilon_soft", epsilon)


def smoothed(mu: Number) -> Smoothed:
    """Build the average with `1 - mu` on the best action and `mu / (m - 1)` on each other, the clipped maximum.

    Args:
        mu: from 0, the maximum, to 0.5: the part that all but the best share.

    Raises:
        TypeError: `mu` is no number.
        ValueError: it is out of range.

    Source: Barber (2023).
    """
    return checked(Smoothed, "smoothed", mu)


def top_k(k: Number) -> TopK:
    """Build the mean of the `k` best actions.

    Args:
        k: whole and at least 1; 1 is the maximum.

    Raises:
        TypeError: `k` is no number.
        ValueError: it is out of range.

    Example:
        >>> float(top_k(2)([1.0, 5.0, 3.0]))
        4.0

    Source: Yager (1988).
    """
    return checked(TopK, "top_k", k)


def tail(share: Number) -> Tail:
    """Build the mean of the best share of the actions, the last of them counted in part.

    It is `max <p, q>` over policies with `p <= 1 / (share m)`: the conditional value at risk of the uniform policy.

    Args:
        share: from 0, the maximum, to 1, the mean.

    Raises:
        TypeError: `share` is no number.
        ValueError: it is out of range.

    Source: Rockafellar and Uryasev (2000).
    """
    return checked(Tail, "tail", share)


def yager(r: Number) -> Yager:
    """Build the average by rank with weights `(i / m)^r - ((i - 1) / m)^r`, i = 1 being the best.

    Args:
        r: from 0, the maximum, to 1, the mean.

    Raises:
        TypeError: `r` is no number.
        ValueError: it is out of range.

    Source: Yager (1996).
    """
    return checked(Yager, "yager", r)


def owa(*ranked: Number) -> Owa:
    """Build the average with given weights by rank, the best first: an ordered weighted average.

    Args:
        ranked: as many as there are actions, at least 0 and of sum 1.

    Example:
        >>> float(owa(0.5, 0.5, 0.0)([1.0, 5.0, 3.0]))
        4.0

    Source: Yager (1988).
    """
    return Owa(shares("owa", "weights", ranked))


def quantile(p: Number) -> Quantile:
    """Build the quantile over actions: the value at place `ceil(p m)`, counted from the worst.

    Args:
        p: from 0, the smallest value, to 1, the largest.

    Raises:
        TypeError: `p` is no number.
        ValueError: it is out of range.

    Example:
        >>> float(quantile(0.5)([1.0, 5.0, 3.0]))
        3.0

    Source: Hyndman and Fan (1996), the first of their definitions.
    """
    return checked(Quantile, "quantile", p)


def median() -> Median:
    """Build the median; of an even number of actions, the mean of both in the middle."""
    return Median()


def minimum() -> Minimum:
    """Build the minimum over actions; of equal ones, the last gets the weight."""
    return Minimum()


def hurwicz(a: Number) -> Hurwicz:
    """Build `a max(q) + (1 - a) min(q)`.

    Args:
        a: from 0, the smallest value, to 1, the maximum.

    Raises:
        TypeError: `a` is no number.
        ValueError: it is out of range.

    Source: Hurwicz (1951).
    """
    return checked(Hurwicz, "hurwicz", a)


def fixed(*given: Number) -> Fixed:
    """Build the average with a given policy, the target of expected SARSA.

    Args:
        given: a probability for each action, above 0 and of sum 1.

    Source: van Seijen, van Hasselt, Whiteson and Wiering (2009).
    """
    return Fixed(shares("fixed", "policy", given, positive=True))
