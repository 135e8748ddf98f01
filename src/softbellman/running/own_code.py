"""A user's own networks and parts of the learner, `package.module:name`: made and checked."""

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.step import Scale
from softbellman.faults import in_a_line
from softbellman.learning import device_replay, learner
from softbellman.learning.networks import Network
from softbellman.learning.parts.scales import Raw
from softbellman.learning.recipe import Recipe
from softbellman.references import resolve

_ROLE = "network.kind"
_ARGUMENTS = "(obs_shape, num_actions, scale)"
_ROWS = 8  # transitions of the replay that parts are tried with
_FAR, _NEAR = 1e4, 1e-5  # size of targets that units are tried with; share of a unit that rounding may move values by


def own_network(reference: str, scale: Scale, obs_shape: tuple[int, ...], num_actions: int) -> Network:
    """Makes the network that `function(obs_shape, num_actions, scale)` returns.

    Raises:
        ValueError: if there is no such function, or it fails, or returns no `Network`.
    """
    function = resolve(reference, _ROLE)
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


def check_scale(reference: str, recipe: Recipe, obs_shape: tuple[int, ...], obs_dtype: Any) -> None:
    """Refuses a network whose values move with the units that it learns in; an update of these is computed.

    Raises:
        ValueError: if they move, or the layers to rescale are not there.
    """
    if recipe.scale == Raw():
        return
    network, role = recipe.network, f"under recipe.scale {recipe.scale}"
    before = network.init(jax.random.key(0))
    after = _called(
        reference, f"fails {role}", recipe.scale.adapted, before, network, lambda: jnp.asarray([-_FAR, 3 * _FAR])
    )
    obs = jnp.ones((1, *obs_shape), obs_dtype)
    moved, unit = jnp.abs(network.apply(after, obs) - network.apply(before, obs)).max(), recipe.scale.unit(after)
    if not moved < _NEAR * (_FAR if unit is None else unit):
        _refuse(
            reference,
            f"does not keep its values {role}; name the layers that they are a sum of, with weights 'w' and biases "
            "'b', as the outputs of its Network",
        )


def check_parts(
    parts: str,
    recipe: Recipe,
    operator: Any,
    obs_shape: tuple[int, ...],
    obs_dtype: Any,
    num_actions: int,
    *,
    masked: bool = False,
) -> None:
    """Refuses parts with which no action is chosen or no update is made; nothing is computed but shapes.

    Args:
        parts: the parts of a user's own, which messages name.
        recipe: the recipe that they belong to.
        operator: the Bellman operator.
        obs_shape: shape of an observation.
        obs_dtype: its dtype.
        num_actions: number of actions.
        masked: some actions are illegal.

    Raises:
        ValueError: if anything fails, or an update changes the shapes of what the learner carries.
    """
    legal = jnp.ones((_ROWS, num_actions), bool) if masked else None
    sampling, returns = recipe.sampling, (jnp.zeros(1), jnp.zeros(1))

    def update(key: jax.Array) -> tuple[Any, Any]:
        state = learner.init(recipe, key, operator)
        learner.act(recipe, state.params, jnp.zeros((_ROWS, *obs_shape), obs_dtype), key, jnp.float32(0.5), legal)
        replay = device_replay.empty(_ROWS, obs_shape, obs_dtype, recipe.reach)
        memory = sampling.written(sampling.memory(_ROWS, jnp), jnp.int32(_ROWS), _ROWS)
        numbers, density = sampling.draw(memory, jnp.arange(_ROWS, dtype=jnp.uint32), jnp.int32(_ROWS), jnp)
        batch = device_replay.gather(
            replay, numbers.astype(jnp.int32), obs_shape, obs_dtype, reach=recipe.reach, written=_ROWS
        )
        batch = batch._replace(density=density, legal=legal, next_legal=legal)
        after, metrics = learner.learn_step(state, operator, batch, recipe, returns)
        known = sampling.learned(memory, numbers, metrics.priority, jnp)
        return (state, memory), (learner.copy_target(after, recipe), known)

    try:
        before, after = (jax.tree.map(_shaped, each) for each in jax.eval_shape(update, jax.random.key(0)))
    except (Exception, SystemExit) as error:  # a user's code may fail in any way of its own
        raise ValueError(f"{parts}: an update fails: {in_a_line(error)}") from error
    if before != after:
        raise ValueError(f"{parts}: an update changes the shape or the dtype of what the learner carries")


def _shaped(leaf: Any) -> tuple[tuple[int, ...], str]:
    return leaf.shape, str(leaf.dtype)


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
