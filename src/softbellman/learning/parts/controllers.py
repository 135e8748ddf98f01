"""Controllers: rules that set an operator's parameter as training goes on, by what an update has at hand.

A controller's state is a part of the learner's. An update takes the operator with the parameter that the state holds,
and moves the state by its own signals: so a parameter is that of the updates before.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from softbellman.operators.core import Operator, maximum
from softbellman.operators.doubles import Pair, double
from softbellman.operators.pytrees import register_pytrees
from softbellman.part import Part, require
from softbellman.temperature import KAPPA, noise_variance

SMALLEST, LARGEST = 1e-12, 1e12
"""The range of a parameter that is set: the inverse of the values that operators are right for."""

_NAMES = ("tau", "omega")
_FURTHEST = 100.0  # factor by which a loop moves kappa at most
_DOUBLE = double(maximum())


class Signals(NamedTuple):
    """Quantities that an update has at hand, with `B` transitions of a minibatch.

    Attributes:
        updates: updates made before.
        here: `[B, A]`, the online network's values at `s`.
        here_legal: `[B, A]` bool; None: all.
        ahead: `[B, A]`, the target network's values at `s'`.
        ahead_legal: `[B, A]` bool; None: all.
        goes_on: `[B]` bool, the target bootstraps from `s'`.
        online: `[R, A]`, the online network's values at the first `R` of `s'`, see `looked_at`.
        taken: mean of `Q(s, a)`, each transition as likely as in uniform sampling.
        returns: sums `[E]` of discounted returns from all steps of recent learning episodes, and numbers `[E]` of these
            steps, by environment; None for controllers that need none.
    """

    updates: Any
    here: Any
    here_legal: Any
    ahead: Any
    ahead_legal: Any
    goes_on: Any
    online: Any
    taken: Any
    returns: tuple[Any, Any] | None = None


def looked_at(batch_size: int) -> int:
    """Returns the number of next states of a minibatch at which both networks are compared.

    A target with a single operator needs no pass of the online network there; a pass over these few is hardly a cost.
    """
    return max(1, batch_size // 16)


class State(NamedTuple):
    """State of a controller: the parameter, float32, and what else it remembers."""

    parameter: Any
    memory: Any = None


@dataclass(frozen=True)
class Fixed(Part):
    """The parameter stays as it is; the base of controllers.

    Attributes:
        moves: there is a state, and signals to move it.
        needs_returns: among these are the returns of training.
    """

    name = "fixed"
    moves: ClassVar[bool] = False
    needs_returns: ClassVar[bool] = False

    def check(self, operator: Any) -> None:
        """Refuse an operator that can't be controlled.

        Raises:
            ValueError: with the reason.
        """

    def init(self, operator: Any) -> State | None:
        """Make the first state from the operator as it is given; None: there is none."""
        return None

    def applied(self, state: State | None, operator: Any) -> Any:
        """Give the operator with the parameter of a state."""
        return operator

    def update(self, state: State | None, signals: Any, operator: Any) -> State | None:
        """Move the state by the signals of an update, which was made with `operator`."""
        return state


@dataclass(frozen=True)
class Controller(Fixed):
    """Base of controllers that move the parameter; it begins where the operator has it.

    A subclass defines `update`, and `memory` if it remembers more than the parameter.
    """

    moves: ClassVar[bool] = True

    def check(self, operator: Any) -> None:
        """Refuse an operator that has not one number, its tau or omega.

        Raises:
            ValueError: with the numbers that it has.
        """
        names = _parameters(operator)
        if len(names) != 1 or names[0] not in _NAMES:
            has = f"has {', '.join(names)}" if names else "has none"
            raise ValueError(
                f"recipe.controller {self} sets the one parameter of an operator, its tau or omega, and {operator} "
                f"{has}; take one such as softmax(5), or recipe.controller fixed"
            )

    def init(self, operator: Any) -> State:
        """Begin with the operator's own parameter."""
        (parameter,) = jax.tree.leaves(operator)
        parameter = within(jnp.asarray(parameter, jnp.float32))
        return State(parameter, self.memory(parameter))

    def memory(self, parameter: Any) -> Any:
        """Make what is remembered beside the parameter, at first."""
        return None

    def applied(self, state: Any, operator: Any) -> Any:
        """Put the parameter in the place of the operator's own."""
        return jax.tree.unflatten(jax.tree.structure(operator), [state.parameter])

    def update(self, state: Any, signals: Signals, operator: Any) -> State:
        """Move the state."""
        raise NotImplementedError(f"{type(self).__name__} must define update(state, signals, operator).")


def within(parameter: Any) -> Any:
    """Returns a parameter within the range of those that are set."""
    return jnp.clip(parameter, SMALLEST, LARGEST)


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
        _require_positive("scale", self.scale)
        require(1 <= self.k0 < math.inf, f"k0 ({self.k0}) must be finite, and 1 or more")

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
        _require_positive("c", self.c)
        _require_positive("p", self.p)

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
        _require_positive("eta", self.eta)

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


@dataclass(frozen=True)
class Noise(Controller):
    """Noise of the values: `tau = kappa / sigma`.

    `sigma` is the noise of one network's differences between actions, from how much both networks disagree about them;
    see `noise_variance`. Its square is smoothed at `rate` for each update, over several copies of the target network,
    since just after one both are equal.
    """

    name = "noise"
    kappa: float = KAPPA
    rate: float = 0.001

    def __post_init__(self) -> None:
        """Check the numbers."""
        _require_positive("kappa", self.kappa)
        _require_rate("rate", self.rate)

    def memory(self, parameter: Any) -> Any:
        """Begin with the noise that the operator's own parameter is right for."""
        return _variance_of(self.kappa, parameter)

    def update(self, state: Any, signals: Signals, operator: Any) -> State:
        """Smooth the variance."""
        variance = _smoothed(state.memory, signals, self.rate)
        return State(within(self.kappa / jnp.sqrt(variance)), variance)


@dataclass(frozen=True)
class Match(Controller):
    """The parameter at which an operator is as far below the max as `double(max)`, on average over next states.

    The distance of `double(max)` is smoothed at `rate` for each update, as `noise` smooths; that of the operator, which
    falls as its parameter rises, is of the minibatch, and Newton's steps lead to the root.
    """

    name = "match"
    rate: float = 0.001

    def __post_init__(self) -> None:
        """Check the number."""
        _require_rate("rate", self.rate)

    def check(self, operator: Any) -> None:
        """Refuse an operator that does not rise from the mean to the max.

        Raises:
            ValueError: it does not, or has not one number.
        """
        super().check(operator)
        if isinstance(operator, Pair) or not (operator.laws.at_most_max and operator.laws.at_least_mean):
            raise ValueError(
                f"recipe.controller {self} needs an operator on one set of values that rises from the mean to the max "
                f"with its parameter, and {operator} does not; take softmax(5) or mellowmax(5)"
            )

    def memory(self, parameter: Any) -> Any:
        """Begin with an unknown distance, which the first update takes from the operator's own parameter."""
        return jnp.full((), -1.0, jnp.float32)

    def update(self, state: Any, signals: Signals, operator: Any) -> State:
        """Smooth the distance of `double(max)`, and make two of Newton's steps, each of a factor of 2 at most."""
        q, legal, goes_on = signals.ahead, signals.ahead_legal, signals.goes_on
        seen = slice(0, len(signals.online))
        legal_seen = None if legal is None else legal[seen]
        doubled = _below_max(lambda values: _DOUBLE(values, signals.online, legal_seen), q[seen], legal_seen)

        def distance(log_parameter: Any) -> Any:
            own = self.applied(State(jnp.exp(log_parameter)), operator)
            return _mean(_below_max(lambda values: own(values, where=legal), q, legal), goes_on)

        log_parameter = jnp.log(state.parameter)
        aim = state.memory + self.rate * (_mean(doubled, goes_on[seen]) - state.memory)
        aim = jnp.where(goes_on[seen].any(), aim, state.memory)
        aim = jnp.where(state.memory < 0, distance(log_parameter), aim)
        for _ in range(2):
            now, slope = jax.jvp(distance, (log_parameter,), (jnp.ones_like(log_parameter),))
            step = (now - aim) / jnp.maximum(-slope, jnp.finfo(jnp.float32).tiny)
            log_parameter = log_parameter + jnp.clip(step, -math.log(2), math.log(2))
        parameter = within(jnp.exp(log_parameter))
        found = goes_on.any() & jnp.isfinite(parameter) & jnp.isfinite(aim)
        return State(jnp.where(found, parameter, state.parameter), jnp.where(found, aim, state.memory))


@dataclass(frozen=True)
class Loop(Controller):
    """Closed loop: `tau = kappa / sigma` as `noise` has it, with kappa moved by the returns of training.

    At each update `log(kappa)` goes up by `rate` times the mean discounted return of recent training less the mean
    predicted value, over the running mean of this difference's size, clipped to -1 .. 1: after ACC (Dorka et al.,
    2021). Where values are too large, it goes down. Deviation D30.
    """

    name = "loop"
    needs_returns: ClassVar[bool] = True
    kappa: float = KAPPA
    rate: float = 0.0001
    smoothing: float = 0.001

    def __post_init__(self) -> None:
        """Check the numbers."""
        _require_positive("kappa", self.kappa)
        _require_rate("rate", self.rate)
        _require_rate("smoothing", self.smoothing)

    def memory(self, parameter: Any) -> Any:
        """Begin with the noise as `noise` does, kappa as it is given, and no difference seen."""
        return _variance_of(self.kappa, parameter), jnp.zeros((), jnp.float32), jnp.zeros((), jnp.float32)

    def update(self, state: Any, signals: Signals, operator: Any) -> State:
        """Smooth the variance, and move the logarithm of kappa over the given one."""
        variance, moved, size = state.memory
        variance = _smoothed(variance, signals, self.smoothing)
        total, steps = (jnp.sum(each) for each in signals.returns or (jnp.zeros(1), jnp.zeros(1)))
        difference = total / jnp.maximum(steps, 1) - signals.taken
        known = (steps > 0) & jnp.isfinite(difference)
        difference = jnp.where(known, difference, 0.0)
        new = jnp.abs(difference)
        size = jnp.where(known, jnp.where(size > 0, size + self.smoothing * (new - size), new), size)
        step = jnp.clip(difference / jnp.where(size > 0, size, 1.0), -1.0, 1.0)
        furthest = math.log(_FURTHEST)
        moved = jnp.clip(moved + self.rate * step, -furthest, furthest)
        return State(within(self.kappa * jnp.exp(moved) / jnp.sqrt(variance)), (variance, moved, size))


def _variance_of(kappa: float, parameter: Any) -> Any:
    return jnp.square(kappa / parameter)


def _smoothed(variance: Any, signals: Signals, rate: float) -> Any:
    """Move a variance towards that of the states that are looked at, where there is one."""
    seen = slice(0, len(signals.online))
    legal = None if signals.ahead_legal is None else signals.ahead_legal[seen]
    new, there = noise_variance(signals.ahead[seen], signals.online, legal, signals.goes_on[seen])
    return jnp.where(there & jnp.isfinite(new), variance + rate * (new - variance), variance)


def _below_max(value: Any, q: Any, legal: Any) -> Any:
    """Compute how far below the largest legal value `[B]` an operator is."""
    return (q if legal is None else jnp.where(legal, q, -jnp.inf)).max(axis=-1) - value(q)


def _mean(terms: Any, chosen: Any) -> Any:
    return jnp.where(chosen, terms, 0.0).sum() / jnp.maximum(chosen.sum(), 1)


def _parameters(operator: Operator) -> list[str]:
    """Returns the names of the numbers that an operator has."""
    register_pytrees()  # an operator may be older than JAX's loading
    paths, _ = jax.tree_util.tree_flatten_with_path(operator)
    return [next((str(key.name) for key in reversed(path) if hasattr(key, "name")), "?") for path, _ in paths]


def _require_positive(name: str, number: float) -> None:
    require(0 < number < math.inf, f"{name} ({number}) must be above 0, and finite")


def _require_rate(name: str, rate: float) -> None:
    require(0 < rate <= 1, f"{name} ({rate}) must be above 0 and at most 1")
