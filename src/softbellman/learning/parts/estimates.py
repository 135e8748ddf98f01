"""Estimates: the quantity that a network's outputs for an action stand for, and how it is learned.

A target is a law: atoms and their weights. Its mean is `td_target`, whatever the estimate and the operator: where the
operator is an average, the law mixes the next state's laws with its weights, and it is shifted by what the operator's
value is beside the mean of that mixture.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.gaps import discounted
from softbellman.learning.target import huber, td_target
from softbellman.part import Part, require, require_count, require_finite


class Law(NamedTuple):
    """A distribution for each row: atoms `[B, M]`, and their weights `[B, M]`, of sum 1."""

    atoms: Any
    weights: Any

    @property
    def mean(self) -> Any:
        """The means `[B]`."""
        return jnp.sum(self.atoms * self.weights, axis=-1)


@dataclass(frozen=True)
class Value(Part):
    """The value of an action: one output, learned by the Huber loss of the temporal-difference error."""

    name = "value"
    outputs = None  # axis of a network's outputs beside that of the actions; None: no such axis
    is_random = False  # drawn anew for each update
    is_law = False  # outputs stand for a distribution of returns
    in_units = True  # outputs are in the units of the rewards

    def check(self, operator: Any) -> None:
        """Refuse an operator with which there is no target: a law mixes others with the weights of a policy.

        Raises:
            ValueError: with the law of operators that is missing.
        """
        require(
            not self.is_law or operator.laws.weights_are_policy,
            f"recipe.estimate {self} mixes distributions with the operator's weights, and those of {operator} are no "
            "policy: it does not claim weights_are_policy; take an operator that does, such as softmax(5), or "
            "recipe.estimate value",
        )

    def drawn(self, key: Any) -> "Value":
        """Draw what an update needs; the key is consumed."""
        return self

    def values(self, out: Any) -> Any:
        """Compute action values `[..., A]` from outputs `[..., A, *]`."""
        return out

    def average(self, outs: Any) -> Any:
        """Take the mean of outputs of several networks along the first axis."""
        return outs.mean(axis=0)

    def lower_tail(self, out: Any, level: float) -> Any:
        """Compute the mean of the worst share `level` of each action's returns, `[..., A]`."""
        raise NotImplementedError(f"{self} knows nothing of the distribution of returns")

    def taken(self, out: Any, action: Any) -> Any:
        """Choose the outputs of the actions `[B]` that were taken: `[B, *]`."""
        return jnp.take_along_axis(out, jnp.expand_dims(action, range(1, out.ndim)), axis=1)[:, 0]

    def target(self, operator: Any, reward: Any, discount: Any, out: Any, q_select: Any, where: Any = None) -> Any:
        """Compute the targets `[B]` or their law.

        Args:
            operator: the Bellman operator.
            reward: `[B]`.
            discount: `[B]`.
            out: the target network's outputs at the next observation, `[B, A, *]`.
            q_select: `[B, A]`, the online network's values there.
            where: `[B, A]` bool, the legal actions there; None: all.
        """
        return td_target(operator, reward, discount, self.values(out), q_select, where)

    def mean(self, target: Any) -> Any:
        """Compute the means `[B]` of targets."""
        return target.mean if isinstance(target, Law) else target

    def losses(self, taken: Any, target: Any, delta: float, unit: Any = None) -> tuple[Any, Any]:
        """Compute the losses and the errors by which transitions are ranked, `[B]` each.

        Args:
            taken: the outputs for the actions taken, `[B, *]`.
            target: the targets.
            delta: where the Huber loss turns linear.
            unit: what errors are divided by; None: nothing.
        """
        error = target - taken
        return huber(error if unit is None else error / unit, delta), error


@dataclass(frozen=True)
class Ensemble(Value):
    """Several heads for each action, trained together on one target that reduces them.

    `mean` averages them; `min` is Maxmin Q-learning (Lan et al., 2020); `median` is between; `mix` draws a random
    convex combination for each update, as REM does (Agarwal, Schuurmans and Norouzi, 2020), and acts by the mean.
    Deviation D24.
    """

    name = "ensemble"
    size: int
    reduce: Literal["mean", "min", "median", "mix"] = "mean"

    def __post_init__(self) -> None:
        """Check the arguments."""
        require_count("heads", self.size)
        known = ("mean", "min", "median", "mix")
        require(self.reduce in known, f"heads are reduced by {', '.join(known)}, not {self.reduce}")

    @property
    def outputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One output for each head."""
        return self.size

    @property
    def is_random(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A mix is drawn for each update."""
        return self.reduce == "mix"

    def drawn(self, key: Any) -> Value:
        """Draw the shares of a mix: uniform numbers divided by their sum."""
        if self.reduce != "mix":
            return self
        shares = jax.random.uniform(key, (self.size,), minval=1e-6)
        return _Mix(self.size, shares / shares.sum())

    def values(self, out: Any) -> Any:
        """Reduce the heads: `[..., A]`."""
        if self.reduce == "min":
            return out.min(axis=-1)
        return jnp.median(out, axis=-1) if self.reduce == "median" else out.mean(axis=-1)

    def losses(self, taken: Any, target: Any, delta: float, unit: Any = None) -> tuple[Any, Any]:
        """Compute the mean of the heads' losses."""
        losses, errors = Value().losses(taken, target[:, None], delta, unit)
        return losses.mean(axis=-1), errors.mean(axis=-1)


class _Mix(Value):
    """An ensemble in one update: a convex combination of its heads is the value."""

    def __init__(self, size: int, shares: Any) -> None:
        """Take the shares `[size]`."""
        self.outputs, self._shares = size, shares  # pyright: ignore[reportAttributeAccessIssue]

    def values(self, out: Any) -> Any:
        """Combine the heads: `[..., A]`."""
        return out @ self._shares

    def losses(self, taken: Any, target: Any, delta: float, unit: Any = None) -> tuple[Any, Any]:
        """Compute the loss of the combination."""
        return super().losses(self.values(taken), target, delta, unit)


def mixed(
    operator: Any, reward: Any, discount: Any, atoms: Any, weights: Any, q: Any, q_select: Any, where: Any
) -> Law:
    """Compute the law of the target from those of the next state's actions.

    Args:
        operator: the Bellman operator.
        reward: `[B]`.
        discount: `[B]`.
        atoms: `[B, A, N]` of each action, or what broadcasts to it.
        weights: `[B, A, N]` or what broadcasts to it: of sum 1 for each action.
        q: `[B, A]`, the means of these laws.
        q_select: `[B, A]`, the online network's values.
        where: `[B, A]` bool, the legal actions; None: all.

    Returns:
        The law of `reward + discount * (atom + shift)` for an action drawn from the operator's policy; its mean is
        `td_target`. Where the discount is 0, all atoms are at the reward.
    """
    policy, size = operator.mixture(q, q_select, where), (*q.shape, max(atoms.shape[-1], weights.shape[-1]))
    goal = td_target(operator, reward, discount, q, q_select, where)
    atoms, weights = (jnp.broadcast_to(part, size) for part in (atoms, weights))
    support = operator.largest_support(q.shape[-1])
    if support < q.shape[-1]:  # the others have no weight, and would cost as much
        policy, chosen = jax.lax.top_k(policy, support)
        atoms, weights = (jnp.take_along_axis(part, chosen[..., None], axis=1) for part in (atoms, weights))
    shares = (policy[..., None] * weights).reshape(len(policy), -1)
    spread = discounted(discount[:, None], atoms.reshape(len(policy), -1))
    return Law(spread + (goal - jnp.sum(spread * shares, axis=-1))[:, None], shares)


@dataclass(frozen=True)
class Quantiles(Value):
    """`size` quantiles of the return of each action, learned by quantile regression (Dabney et al., 2018).

    The target's atoms are those of all actions, weighted: the mixture itself, with nothing projected. Deviation D25.
    """

    name = "quantiles"
    size: int
    is_law, in_units = True, False

    def __post_init__(self) -> None:
        """Check the argument."""
        require_count("quantiles", self.size)

    @property
    def outputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One output for each quantile."""
        return self.size

    def values(self, out: Any) -> Any:
        """Take the mean of the quantiles: `[..., A]`."""
        return out.mean(axis=-1)

    def lower_tail(self, out: Any, level: float) -> Any:
        """Take the mean of the lowest quantiles, the last of them in part."""
        share = jnp.clip(level * self.size - jnp.arange(self.size), 0.0, 1.0)
        return jnp.sort(out, axis=-1) @ share / (level * self.size)

    def target(self, operator: Any, reward: Any, discount: Any, out: Any, q_select: Any, where: Any = None) -> Law:
        """Compute the law of the targets."""
        weights = jnp.full((1, 1, 1), 1 / self.size, out.dtype)
        return mixed(operator, reward, discount, out, weights, self.values(out), q_select, where)

    def losses(self, taken: Any, target: Any, delta: float, unit: Any = None) -> tuple[Any, Any]:
        """Compute the quantile Huber losses, a sum over the quantiles and a mean over the target's atoms."""
        losses = jnp.sum(_pinball(taken, target.atoms, target.weights, delta), axis=1)
        return losses, losses


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _pinball(quantiles: Any, atoms: Any, weights: Any, delta: float) -> Any:
    """Compute each quantile's Huber loss against a law, `[B, N]`; its derivative is that in the quantiles alone.

    Loss and derivative are sums over all pairs, which are never stored.
    """
    return _pinball_forward(quantiles, atoms, weights, delta)[0]


def _pinball_forward(quantiles: Any, atoms: Any, weights: Any, delta: float) -> tuple[Any, Any]:
    size = quantiles.shape[1]
    middle = (jnp.arange(size, dtype=quantiles.dtype) + 0.5) / size
    error = atoms[:, None, :] - quantiles[:, :, None]
    slope = jnp.where(error < 0, 1 - middle[None, :, None], middle[None, :, None]) * weights[:, None, :]
    return jnp.sum(slope * huber(error, delta), axis=2), jnp.sum(slope * jnp.clip(error, -delta, delta), axis=2)


def _pinball_backward(delta: float, slopes: Any, cotangent: Any) -> tuple[Any, None, None]:
    return -slopes * cotangent, None, None


_pinball.defvjp(_pinball_forward, _pinball_backward)


@dataclass(frozen=True)
class Categorical(Value):
    """Probabilities of `size` equally spaced returns from `low` to `high` (C51: Bellemare, Dabney and Munos, 2017).

    Inside of the support the projected target has the mean of the target; outside it is clipped. Deviation D25.
    """

    name = "categorical"
    size: int
    low: float
    high: float
    is_law, in_units = True, False

    def __post_init__(self) -> None:
        """Check the arguments."""
        require_count("atoms", self.size, 2)
        require_finite("low", self.low)
        require_finite("high", self.high)
        require_finite("high less low", float(self.high) - float(self.low))
        differ = np.float32(self.low) < np.float32(self.high)
        require(bool(differ), f"low ({self.low}) must be below high ({self.high}), in float32 too")

    @property
    def outputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One logit for each atom."""
        return self.size

    @property
    def support(self) -> Any:
        """The returns, `[size]` float32."""
        return np.linspace(self.low, self.high, self.size, dtype=np.float32)

    def values(self, out: Any) -> Any:
        """Take the mean of the atoms: `[..., A]`."""
        return jax.nn.softmax(out, axis=-1) @ self.support

    def average(self, outs: Any) -> Any:
        """Average probabilities, and give their logarithms."""
        return jax.scipy.special.logsumexp(jax.nn.log_softmax(outs, axis=-1), axis=0) - np.log(len(outs))

    def lower_tail(self, out: Any, level: float) -> Any:
        """Take the mean of the lowest returns that have the probability `level` together."""
        p = jax.nn.softmax(out, axis=-1)
        before = jnp.cumsum(p, axis=-1) - p
        return jnp.clip(level - before, 0.0, p) @ self.support / level

    def target(self, operator: Any, reward: Any, discount: Any, out: Any, q_select: Any, where: Any = None) -> Law:
        """Compute the law of the targets, not yet projected."""
        p = jax.nn.softmax(out, axis=-1)
        q = p @ self.support
        return mixed(operator, reward, discount, self.support[None, None], p, q, q_select, where)

    def projected(self, law: Law) -> Any:
        """Share each atom of a law between its neighbours on the support: probabilities `[B, size]`."""
        place = (jnp.clip(law.atoms, self.low, self.high) - self.low) / (self.high - self.low) * (self.size - 1)
        near = jnp.clip(1.0 - jnp.abs(place[:, :, None] - jnp.arange(self.size)[None, None]), 0.0, 1.0)
        return jnp.sum(law.weights[:, :, None] * near, axis=1)

    def losses(self, taken: Any, target: Any, delta: float, unit: Any = None) -> tuple[Any, Any]:
        """Compute the cross-entropy of the projected targets."""
        losses = -jnp.sum(self.projected(target) * jax.nn.log_softmax(taken, axis=-1), axis=-1)
        return losses, losses
