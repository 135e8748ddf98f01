"""Heads: the fully connected layers that end a network, and noise on their weights."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from softbellman.part import Part, require_positive


def dense(layer: Mapping[str, jax.Array], x: jax.Array) -> jax.Array:
    """Computes a fully connected layer, `[B, in]` to `[B, out]`."""
    return x @ layer["w"] + layer["b"][None, :]


class Output(NamedTuple):
    """A fully connected layer that outputs are a sum of.

    Attributes:
        layer: its name.
        is_centred: its mean over actions is taken away, so that a number added to all of its biases is lost.
    """

    layer: str
    is_centred: bool = False


@dataclass(frozen=True)
class Linear(Part):
    """Hidden layers and one output layer, `q`."""

    name = "linear"
    outputs: ClassVar[tuple[Output, ...]] = (Output("q"),)  # the layers that outputs are a sum of

    def shapes(self, features: int, hidden: Mapping[str, int], num_outputs: int, per_action: int) -> dict[str, Any]:
        """Give the shape of each layer's weights.

        Args:
            features: what enters.
            hidden: widths of the hidden layers, by name.
            num_outputs: outputs of all actions together.
            per_action: outputs of one of them.
        """
        sizes = [features, *hidden.values(), num_outputs]
        return dict(zip([*hidden, "q"], itertools.pairwise(sizes), strict=True))

    def apply(self, params: Any, x: Any, hidden: Mapping[str, int], outputs: int | None) -> Any:
        """Compute the outputs of `[B, features]`: `[B, A]`, or `[B, A, outputs]`."""
        for name in hidden:
            x = jax.nn.relu(dense(params[name], x))
        return _by_action(dense(params["q"], x), outputs)


@dataclass(frozen=True)
class Duelling(Linear):
    """A stream for the state's value beside one for the actions' advantages (Wang et al., 2016).

    Both have hidden layers of their own; the mean of the advantages is taken away. Deviation D26.
    """

    name = "duelling"
    outputs = (Output("q", is_centred=True), Output("value_q"))

    def shapes(self, features: int, hidden: Mapping[str, int], num_outputs: int, per_action: int) -> dict[str, Any]:
        """Give the shapes of both streams."""
        stream = super().shapes(features, hidden, per_action, per_action)
        return super().shapes(features, hidden, num_outputs, per_action) | {
            f"value_{name}": shape for name, shape in stream.items()
        }

    def apply(self, params: Any, x: Any, hidden: Mapping[str, int], outputs: int | None) -> Any:
        """Add the value to each advantage less their mean."""
        stream = {name: params[f"value_{name}"] for name in (*hidden, "q")}
        advantage = super().apply(params, x, hidden, outputs)
        value = super().apply(stream, x, hidden, outputs)
        return value + advantage - advantage.mean(axis=1, keepdims=True)


def _by_action(flat: Any, outputs: int | None) -> Any:
    return flat if outputs is None else flat.reshape(len(flat), -1, outputs)


@dataclass(frozen=True)
class NoNoise(Part):
    """Weights as they are."""

    name = "none"

    def added(self, network: Any) -> Any:
        """Give a network whose weights can be perturbed."""
        return network


@dataclass(frozen=True)
class Noisy(NoNoise):
    """Factorised Gaussian noise on the weights of fully connected layers, its size learned (Fortunato et al., 2018).

    It starts at `size / sqrt(fan-in)`. Without a key, as in tests, weights are their means. Deviation D27.
    """

    name = "noisy"
    size: float = 0.5

    def __post_init__(self) -> None:
        """Check the number."""
        require_positive("the size of the noise", self.size)

    def added(self, network: Any) -> Any:
        """Give a network whose parameters hold the sizes of the noise, and whose weights can be perturbed."""

        def init(key: jax.Array) -> Any:
            params = network.init(key)
            return {name: layer | self._sizes(layer) for name, layer in params.items()}

        return network._replace(init=init, perturb=_perturbed)

    def _sizes(self, layer: Any) -> dict[str, Any]:
        if not _is_dense(layer):
            return {}
        start = self.size / math.sqrt(layer["w"].shape[0])
        return {"w_noise": jnp.full_like(layer["w"], start), "b_noise": jnp.full_like(layer["b"], start)}


def _is_dense(layer: Any) -> bool:
    return "w" in layer and layer["w"].ndim == 2


def _perturbed(params: Any, key: jax.Array) -> Any:
    """Draws noise for every layer that has sizes of it, all in one draw, and adds it; consumes the key."""
    noisy = [name for name, layer in params.items() if "w_noise" in layer]
    lengths = list(itertools.chain.from_iterable(params[name]["w"].shape for name in noisy))
    drawn = jax.random.normal(key, (sum(lengths),))
    drawn = jnp.sign(drawn) * jnp.sqrt(jnp.abs(drawn))
    parts = iter(jnp.split(drawn, list(itertools.accumulate(lengths))[:-1]))
    made = dict(params)
    for name in noisy:
        layer, entering, leaving = params[name], next(parts), next(parts)
        w = layer["w"] + layer["w_noise"] * (entering[:, None] * leaving[None, :])
        made[name] = {**layer, "w": w, "b": layer["b"] + layer["b_noise"] * leaving}
    return made
