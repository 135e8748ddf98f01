"""Scales: units in which a network learns."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from softbellman.learning.networks import Network
from softbellman.learning.parts.heads import Output
from softbellman.part import Part, require_share

_LAYER = "scale"
_SMALLEST, _LARGEST = 1e-4, 1e6  # of a standard deviation


@dataclass(frozen=True)
class Raw(Part):
    """The units of the rewards."""

    name = "raw"

    def scaled(self, network: Network) -> Network:
        """Put a network into these units."""
        return network

    def adapted(self, params: Any, network: Network, targets: Any) -> Any:
        """Give parameters for the targets `[B]` of an update, which a function computes; outputs stay as they are."""
        return params

    def unit(self, params: Any) -> Any:
        """Give what errors are divided by; None: nothing."""
        return None


@dataclass(frozen=True)
class PopArt(Raw):
    """Targets of mean 0 and deviation 1, outputs preserved (van Hasselt et al., 2016).

    The network's layer `scale` holds `mean` and `square`, running means of the targets and of their squares; outputs
    are `deviation * raw + mean`, and whenever these move, the network's output layers are rescaled so that outputs
    stay, under noise on the weights too. Deviation D28.
    """

    name = "popart"
    rate: float

    def __post_init__(self) -> None:
        """Check the number."""
        require_share("rate", self.rate)

    def scaled(self, network: Network) -> Network:
        """Put a network into units of the targets' deviation, 1 at first."""

        def init(key: jax.Array) -> Any:
            return network.init(key) | {_LAYER: {"mean": jnp.zeros(()), "square": jnp.ones(())}}

        def apply(params: Any, obs: jax.Array) -> jax.Array:
            mean, deviation = jax.lax.stop_gradient(_moments(params[_LAYER]))
            return deviation * network.apply(params, obs) + mean

        return network._replace(init=init, apply=apply)

    def adapted(self, params: Any, network: Network, targets: Any) -> Any:
        """Move the moments towards those of the targets, and rescale the output layers."""
        goals, moments = targets(), params[_LAYER]
        moved = {
            "mean": moments["mean"] + self.rate * (goals.mean() - moments["mean"]),
            "square": moments["square"] + self.rate * (jnp.square(goals).mean() - moments["square"]),
        }
        (mean, deviation), (new_mean, new_deviation) = _moments(moments), _moments(moved)
        rescaled = {}
        for name, is_centred in network.outputs or (Output(network.last_layer),):
            layer = {entry: array * (deviation / new_deviation) for entry, array in params[name].items()}
            if not is_centred:
                layer["b"] = (deviation * params[name]["b"] + mean - new_mean) / new_deviation
            rescaled[name] = layer
        return {**params, _LAYER: moved, **rescaled}

    def unit(self, params: Any) -> Any:
        """Give the targets' deviation."""
        return jax.lax.stop_gradient(_moments(params[_LAYER])[1])

    def moments(self, params: Any) -> tuple[Any, Any]:
        """Give the mean and the deviation that outputs are in units of."""
        return _moments(params[_LAYER])


def _moments(layer: Any) -> tuple[Any, Any]:
    """Compute mean and deviation."""
    variance = layer["square"] - jnp.square(layer["mean"])
    return layer["mean"], jnp.clip(jnp.sqrt(jnp.maximum(variance, 0.0)), _SMALLEST, _LARGEST)
