"""Target networks: the last copy of the online network, or several copies reduced to one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from softbellman.part import Part, require, require_count


@dataclass(frozen=True)
class Latest(Part):
    """One target network, the last copy."""

    name = "latest"

    def first(self, params: Any) -> Any:
        """Make the target network's parameters from those of the online network."""
        return jax.tree.map(jnp.copy, params)

    def copied(self, target_params: Any, params: Any) -> Any:
        """Copy the online network."""
        return jax.tree.map(jnp.copy, params)

    def outputs(self, apply: Callable[[Any], Any], target_params: Any, average: Callable[[Any], Any]) -> Any:
        """Compute the outputs of the target network.

        Args:
            apply: gives the outputs of one set of parameters.
            target_params: the parameters.
            average: takes the mean of several outputs along their first axis.
        """
        return apply(target_params)


@dataclass(frozen=True)
class Past(Latest):
    """The last `size` copies, each output reduced to its mean or minimum over them.

    `past(K, mean)` is Averaged-DQN (Anschel, Baram and Shimkin, 2017); its parameters have an axis `[K]` in front, the
    newest first.
    """

    name = "past"
    size: int
    reduce: Literal["mean", "min"] = "mean"

    def __post_init__(self) -> None:
        """Check the arguments."""
        require_count("copies", self.size)
        require(self.reduce in ("mean", "min"), f"copies are reduced by mean or min, not {self.reduce}")

    def first(self, params: Any) -> Any:
        """Make every copy of the online network as it is."""
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self.size, axis=0), params)

    def copied(self, target_params: Any, params: Any) -> Any:
        """Put the online network first, and drop the oldest."""
        return jax.tree.map(lambda all, new: jnp.concatenate([new[None], all[:-1]]), target_params, params)

    def outputs(self, apply: Callable[[Any], Any], target_params: Any, average: Callable[[Any], Any]) -> Any:
        """Compute the outputs of every copy, and reduce them."""
        outputs = jax.vmap(apply)(target_params)
        return average(outputs) if self.reduce == "mean" else outputs.min(axis=0)
