"""API checker of Gymnasium environments: a broken rule is an error of one line."""

import inspect
import numbers
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from softbellman.faults import in_a_line

_RESET = ("observation", "info")
_STEP = ("observation", "reward", "terminated", "truncated", "info")
_GYMNASIUM = "gymnasium.wrappers"


class EnvironmentFault(ValueError):
    """An environment breaks the API of Gymnasium, or fails; the message is one line."""


class Checked(gymnasium.Wrapper):
    """Passes on what an environment gives, unchanged, once it is known to keep the API."""

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        """Takes the environment.

        Args:
            env: the environment.
            name: what messages call it.

        Raises:
            EnvironmentFault: if its `reset` does not take `seed` and `options`.
        """
        super().__init__(env)
        self._name = name
        try:
            signature = inspect.signature(env.reset)
        except ValueError:  # of a function that is not Python's; a call will tell
            return
        try:
            signature.bind(seed=None, options=None)
        except TypeError:
            self._refuse(f"reset must take seed and options by name, and is reset{signature}")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode.

        Raises:
            EnvironmentFault: if the environment breaks the API, or fails.
        """
        try:
            given = self.env.reset(seed=seed, options=options)
        except EnvironmentFault:
            raise  # it was told of further inside
        except (Exception, SystemExit) as error:  # it may fail in any way of its own
            raise self._failed("reset", error) from error
        self._check_values("reset", given, _RESET)
        return given

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Takes an action.

        Raises:
            EnvironmentFault: if the environment breaks the API, or fails.
        """
        try:
            given = self.env.step(action)
        except EnvironmentFault:
            raise
        except (Exception, SystemExit) as error:
            raise self._failed("step", error) from error
        self._check_values("step", given, _STEP)
        _, reward, *ends, _ = given
        if not _is_real(reward):
            hint = "; give reward.item()" if getattr(reward, "size", 0) == 1 else ""
            self._refuse(f"a reward must be a real number, and is {_kind(reward)}{hint}")
        for name, end in zip(("terminated", "truncated"), ends, strict=True):
            if not _is_truth(end):
                hint = f"; give {name}.item()" if getattr(end, "size", 0) == 1 else ""
                self._refuse(f"{name} must be True or False, and is {_kind(end)}{hint}")
        return given

    def _check_values(self, method: str, given: Any, names: tuple[str, ...]) -> None:
        """Checks that `method` returned so many values, the last of which is an info."""
        if not isinstance(given, tuple | list) or len(given) != len(names):
            count = f"{len(given)} values: " if isinstance(given, tuple | list) else ""
            kinds = ", ".join(map(_kind, given)) if count else _kind(given)
            self._refuse(f"{method} must return {len(names)} values, {', '.join(names)}, and returned {count}{kinds}")
        if not isinstance(given[-1], Mapping):
            self._refuse(f"the info that {method} returns must be a dict, and is {_kind(given[-1])}")

    def _failed(self, method: str, error: BaseException) -> EnvironmentFault:
        """Says how `method` failed."""
        return EnvironmentFault(f"{self._name} fails in {method}: {in_a_line(error)}")

    def _refuse(self, fault: str) -> None:
        raise EnvironmentFault(f"{self._name} breaks the API of Gymnasium: {fault}")


def checked_throughout(env: gymnasium.Env, name: str) -> Checked:
    """Checks what an environment gives to its caller, and what Gymnasium's own wrappers, which take it apart, get.

    Raises:
        EnvironmentFault: as `Checked`.
    """
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        inner = layer.env
        if _is_gymnasiums(layer) and not _is_gymnasiums(inner):
            layer.env = Checked(inner, name)
        layer = inner
    return Checked(env, name)


def as_array(value: Any) -> np.ndarray:
    """Returns a value as an array; one that cannot be made an array of numbers has dtype object."""
    try:
        return np.asarray(value)
    except Exception:  # an object may refuse in any way of its own
        return np.array(None)


def _is_gymnasiums(env: gymnasium.Env) -> bool:
    return type(env).__module__.startswith(_GYMNASIUM)


def _is_real(value: Any) -> bool:
    if not isinstance(value, numbers.Real):
        array = as_array(value)
        return array.ndim == 0 and array.dtype.kind in "biuf"
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _is_truth(value: Any) -> bool:
    """Tells a bool, or 0 or 1 in its place, from whatever else Python would take for one."""
    return isinstance(value, bool) or (_is_real(value) and value in (0, 1))


def _kind(value: Any) -> str:
    """Names a value in a few words: its type, and the shape of an array."""
    if value is None:
        return "None"
    shape = getattr(value, "shape", ())
    return type(value).__name__ + (f" of shape {tuple(shape)}" if shape else "")
