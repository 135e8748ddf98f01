"""Schedules: controllers that go by the number of updates, and the cooling of the authors' code."""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from softbellman.learning.parts.controllers import Controller, Signals, State, within
from softbellman.part import require, require_finite, require_positive


class _Schedule(Controller):
    """Base of rules that know the number of updates alone."""

    def at(self, updates: Any) -> Any:
        """Compute the parameter of the next update, so many having been made; float32."""
        raise NotImplementedError

    def init(self, operator: Any) -> State:
        """Begin with the schedule, whatever the operator's parameter."""
        return State(within(self.at(jnp.zeros((), jnp.float32))))

    def update(self, state: Any, signals: Signals, operator: Any) -> State:
        """Take the parameter of the next update."""
        return State(within(self.at((signals.updates + 1).astype(jnp.float32))))


@dataclass(frozen=True)
class Cooling(_Schedule):
    """Logarithmic cooling: `tau = log(k + k0 + 1) / scale` at update k, from 0 (Mitra et al., 1986).

    The paper names it and gives no formula. `scale`, the gamma of Mitra et al., is in the units of the values.
    """

    name = "cooling"
    scale: float = 1.0
    k0: float = 1.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_positive("scale", self.scale)
        require(1 <= self.k0 < math.inf, f"k0 ({self.k0}) must be finite, and 1 or more")
        require_finite("k0", self.k0)

    def at(self, updates: Any) -> Any:
        """Compute `log(k + k0 + 1) / scale`."""
        return jnp.log(updates + (self.k0 + 1)) / self.scale


@dataclass(frozen=True)
class Power(_Schedule):
    """Power schedule of dynamic Boltzmann softmax: `tau = c t^p` at update t, from 1 (Pan et al., 2020)."""

    name = "power"
    c: float = 1.0
    p: float = 2.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_positive("c", self.c)
        require_positive("p", self.p)

    def at(self, updates: Any) -> Any:
        """Compute `c t^p`."""
        return self.c * jnp.exp(self.p * jnp.log(updates + 1))


@dataclass(frozen=True)
class SpreadCooling(Controller):
    """Cooling of the authors' code: `tau = eta floor(log t) sqrt(m / variance)` at update t.

    The variance is that of the online network's values over the `m` legal actions, a mean over the minibatch. Deviation
    D29.
    """

    name = "spread_cooling"
    eta: float = 1.0

    def __post_init__(self) -> None:
        """Check the number."""
        require_positive("eta", self.eta)

    def update(self, state: Any, signals: Signals, operator: Any) -> State:
        """Take the parameter by the variance of this minibatch; where all values are equal, it stays."""
        q, legal = signals.here, signals.here_legal
        legal = jnp.ones(q.shape, bool) if legal is None else legal
        count = legal.sum(axis=-1, keepdims=True)
        deviation = jnp.where(legal, q - jnp.where(legal, q, 0.0).sum(axis=-1, keepdims=True) / count, 0.0)
        variance = (jnp.square(deviation).sum(axis=-1) / count[:, 0]).mean()
        steps = jnp.maximum(jnp.floor(jnp.log((signals.updates + 1).astype(jnp.float32))), 1.0)
        known = (variance > 0) & jnp.isfinite(variance)
        root = jnp.sqrt(count.astype(jnp.float32).mean()) / jnp.sqrt(jnp.where(known, variance, 1.0))
        return State(jnp.where(known, within(self.eta * steps * root), state.parameter))
