"""Controllers: rules that set an operator's parameter as training goes on, by what an update has at hand.

A controller's state is a part of the learner's. An update takes the operator with the parameter that the state holds,
and moves the state by its own signals: so a parameter is that of the updates before.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from softbellman.operators.core import Operator, maximum, mean
from softbellman.operators.doubles import Pair, double
from softbellman.operators.pytrees import register_pytrees
from softbellman.part import Part, require_positive, require_share
from softbellman.temperature import KAPPA, noise_variance

SMALLEST, LARGEST = 1e-12, 1e12
"""The range of a parameter that is set: the inverse of the values that operators are right for."""

_NAMES = ("tau", "omega")
_FURTHEST = 100.0  # factor by which a loop moves kappa at most
_LARGEST_SHARE = 0.99  # of the way from the max to the mean
_DOUBLE, _MEAN = double(maximum()), mean()


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
        require_positive("kappa", self.kappa)
        require_share("rate", self.rate)

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

    How far `double(max)` is on the way from the max to the mean is smoothed at `rate` for each update, as `noise`
    smooths, and is 0.99 at most; how far the operator is, which falls as its parameter rises, is of the minibatch.
    Newton's steps lead to the root, each by a factor of 2 at most.
    """

    name = "match"
    rate: float = 0.001

    def __post_init__(self) -> None:
        """Check the number."""
        require_share("rate", self.rate)

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
        """Begin with distances unknown, of `double(max)` and of the mean; the first update has the operator's own."""
        return jnp.zeros((), jnp.float32), jnp.zeros((), jnp.float32)

    def update(self, state: Any, signals: Signals, operator: Any) -> State:
        """Smooth the distances from the max, and make two of Newton's steps."""
        q, legal, goes_on = signals.ahead, signals.ahead_legal, signals.goes_on
        seen = slice(0, len(signals.online))
        legal_seen, goes_on_seen = None if legal is None else legal[seen], goes_on[seen]
        below = _below_max(lambda values: _DOUBLE(values, signals.online, legal_seen), q[seen], legal_seen)
        below_mean = _below_max(lambda values: _MEAN(values, where=legal), q, legal)
        farthest, log_parameter = _mean(below_mean, goes_on), jnp.log(state.parameter)

        def distance(log_parameter: Any) -> Any:
            own = self.applied(State(jnp.exp(log_parameter)), operator)
            return _mean(_below_max(lambda values: own(values, where=legal), q, legal), goes_on)

        def found(log_parameter: Any) -> tuple[Any, Any]:
            return jax.jvp(distance, (log_parameter,), (jnp.ones_like(log_parameter),))

        now, slope = found(log_parameter)
        new = jnp.stack([_mean(below, goes_on_seen), _mean(below_mean[seen], goes_on_seen)])
        old = jnp.stack(state.memory)
        memory = jnp.where(goes_on_seen.any(), old + self.rate * (new - old), old)
        memory = jnp.where(old[1] > 0, memory, jnp.stack([now, farthest]))
        share = jnp.clip(memory[0] / jnp.where(memory[1] > 0, memory[1], 1.0), 0.0, _LARGEST_SHARE)
        for _ in range(2):
            step = (now - share * farthest) / jnp.maximum(-slope, jnp.finfo(jnp.float32).tiny)
            log_parameter = log_parameter + jnp.clip(step, -math.log(2), math.log(2))
            now, slope = found(log_parameter)
        parameter = within(jnp.exp(log_parameter))
        known = (farthest > 0) & jnp.isfinite(parameter) & jnp.isfinite(memory).all()
        parameter, memory = jnp.where(known, parameter, state.parameter), jnp.where(known, memory, old)
        return State(parameter, (memory[0], memory[1]))


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
        require_positive("kappa", self.kappa)
        require_share("rate", self.rate)
        require_share("smoothing", self.smoothing)

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
