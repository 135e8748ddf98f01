"""Custom networks, `network.kind package.module:function`: made and checked."""

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import numpy as np

from softbellman.envs.step import Scale
from softbellman.faults import in_a_line
from softbellman.learning.networks import Network
from softbellman.references import found

_ROLE = "network.kind"
_ARGUMENTS = "(obs_shape, num_actions, scale)"


def own_network(reference: str, scale: Scale, obs_shape: tuple[int, ...], num_actions: int) -> Network:
    """Makes the network that `function(obs_shape, num_actions, scale)` returns.

    Raises:
        ValueError: if there is no such function, or it fails, or returns no `Network`.
    """
    function = found(reference, _ROLE)
    if not callable(function):
        _refuse(reference, f"is of {type(function).__name__}, and must be a function of {_ARGUMENTS}")
    try:
        inspect.signature(function).bind(obs_shape, num_actions, scale)
    except TypeError as error:
        _refuse(reference, f"must take {_ARGUMENTS}: {error}")
    made: Any = _called(reference, "fails", function, obs_shape, num_actions, scale)
    if not isinstance(made, Network):
        _refuse(reference, f"returns {type(made).__name__}, and must return a softbellman.learning.networks.Network")
    return made


def check_network(
    reference: str, network: Network, obs_shape: tuple[int, ...], obs_dtype: Any, num_actions: int
) -> None:
    """Refuses a network that could not be learned with; nothing is computed but shapes.

    Raises:
        ValueError: if its parameters or values are not what `Network` promises.
    """
    params: Any = _called(reference, "fails in init", jax.eval_shape, network.init, jax.random.key(0))
    if not _are_params(params):
        _refuse(reference, "gives parameters that are no dict of layers, each a dict of float32 arrays, by plain names")
    if "w" not in params.get(network.last_layer, {}):
        layers = f"its layers: {', '.join(params) or 'none'}"
        _refuse(reference, f"has the last layer {network.last_layer!r}, in which there are no weights 'w' ({layers})")
    for batch in (1, 2):
        obs = jax.ShapeDtypeStruct((batch, *obs_shape), obs_dtype)
        q: Any = _called(reference, "fails in apply", jax.eval_shape, network.apply, params, obs)
        shape, dtype = getattr(q, "shape", None), getattr(q, "dtype", None)
        if shape != (batch, num_actions) or dtype != np.float32:
            given = "no array" if shape is None else f"{dtype} of shape {shape}"
            _refuse(
                reference,
                f"gives {given} for {batch} of {num_actions} actions, and must give float32 of shape "
                f"({batch}, {num_actions})",
            )


def _are_params(params: Any) -> bool:
    """Tells nested dicts of float32 arrays, which is what is saved and read back."""
    if not isinstance(params, dict) or not all(isinstance(part, dict) for part in params.values()):
        return False
    names = [*params, *(name for part in params.values() for name in part)]
    leaves = [leaf for part in params.values() for leaf in part.values()]
    return all(isinstance(name, str) and "/" not in name for name in names) and all(
        getattr(leaf, "dtype", None) == np.float32 for leaf in leaves
    )


def _called(reference: str, how: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:  # a user's code may fail in any way of its own
        raise ValueError(f"{_ROLE} {reference} {how}: {in_a_line(error)}") from error


def _refuse(reference: str, fault: str) -> NoReturn:
    raise ValueError(f"{_ROLE} {reference} {fault}")
