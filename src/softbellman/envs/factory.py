"""The family `package.module:function`: Gymnasium environments of a user's own, made by a function or class."""

import inspect
from collections.abc import Callable
from typing import Any

from softbellman.arguments import nearest
from softbellman.envs.gym import GymEnv, rules
from softbellman.envs.options import EnvOptions
from softbellman.references import resolve

__all__ = ["make", "names", "rules"]


def names() -> list[str]:
    """Lists nothing: what there is, only its author knows."""
    return []


def make(name: str, protocol: EnvOptions, *, record: bool = False, **options: Any) -> GymEnv:
    """Makes the copies of an environment by calling its factory, once for each; see `GymEnv`.

    Raises:
        ValueError: if the factory can't be found, does not take its options, fails, or makes no Gymnasium environment.
    """
    factory: Callable[..., Any] = resolve(name, "environment")
    if not callable(factory):
        raise ValueError(f"environment {name} is of {type(factory).__name__}, and must be a function or class")
    given = protocol.options | ({"render_mode": "rgb_array"} if record and _takes_render_mode(factory) else {})
    _check_options(name, factory, given)
    return GymEnv(factory, name=name, options=given, record=record, **options)


def _check_options(name: str, factory: Callable[..., Any], options: dict[str, Any]) -> None:
    """Refuses options that a factory does not take, or lacks."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # of a function that is not Python's; a call will tell
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        unknown = next((option for option in options if option not in signature.parameters), "")
        hint = nearest(unknown, signature.parameters) if unknown else ""
        taken = ", ".join(signature.parameters) or "none"
        raise ValueError(f"{name}: {error}{hint} (options that it takes: {taken}; set by --env.options)") from None


def _takes_render_mode(factory: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return "render_mode" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
