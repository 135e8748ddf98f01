"""Recipe of a learner: the network, the numbers of an update, and the parts beside the operator."""

from dataclasses import dataclass, field
from typing import Any

import jax

from softbellman.gaps import Gap, NoGap
from softbellman.learning.networks import Network, Params
from softbellman.learning.parts.controllers import Fixed
from softbellman.learning.parts.copies import Latest
from softbellman.learning.parts.estimates import Value
from softbellman.learning.parts.exploration import Greedy
from softbellman.learning.parts.risks import Neutral
from softbellman.learning.parts.sampling import Uniform
from softbellman.learning.parts.scales import Raw
from softbellman.learning.parts.tightening import Loose
from softbellman.learning.settings import UpdateSettings
from softbellman.learning.windows import Reach


@dataclass(frozen=True)
class Recipe:
    """All that an update is compiled for; parts are hashed by value, the network by identity.

    Attributes:
        network: the Q-network, in the units of the scale.
        update: the numbers of an update.
        returns: steps of reward before the bootstrap.
        gap: part of the action gap that a reward loses.
        target: target networks.
        estimate: quantity that outputs stand for.
        scale: units in which the network learns.
        sampling: choice of transitions.
        tightening: bounds of values.
        exploration: policy of training.
        risk: measure by which the best action is chosen.
        controller: rule that sets the operator's parameter.
    """

    network: Network
    update: UpdateSettings
    returns: int = 1
    gap: Gap = field(default_factory=NoGap)
    target: Latest = field(default_factory=Latest)
    estimate: Value = field(default_factory=Value)
    scale: Raw = field(default_factory=Raw)
    sampling: Uniform = field(default_factory=Uniform)
    tightening: Loose = field(default_factory=Loose)
    exploration: Greedy = field(default_factory=Greedy)
    risk: Neutral = field(default_factory=Neutral)
    controller: Fixed = field(default_factory=Fixed)

    @property
    def is_random(self) -> bool:
        """An update needs random numbers of its own."""
        return self.network.perturb is not None or self.estimate.is_random

    @property
    def reach(self) -> Reach:
        """Steps that an update needs of a replay."""
        return Reach(self.returns, self.tightening.around)

    def q(self, params: Params, obs: jax.Array) -> jax.Array:
        """Compute the online network's values `[B, A]`."""
        return self.estimate.values(self.network.apply(params, obs))

    def acting_q(self, params: Params, obs: jax.Array) -> jax.Array:
        """Compute the values `[B, A]` by which the best action is chosen."""
        return self.risk.values(self.estimate, self.network.apply(params, obs))

    def target_outputs(self, target_params: Any, obs: jax.Array, key: Any = None) -> jax.Array:
        """Compute the target network's outputs `[B, A, *]`, under noise if there is a key for it."""

        def outputs(params: Params) -> jax.Array:
            return self.network.apply(self.perturbed(params, key), obs)

        return self.target.outputs(outputs, target_params, self.estimate.average)

    def target_q(self, target_params: Any, obs: jax.Array) -> jax.Array:
        """Compute the target network's values `[B, A]`, without noise."""
        return self.estimate.values(self.target_outputs(target_params, obs))

    def perturbed(self, params: Params, key: Any) -> Params:
        """Put noise on parameters, where the network has some and there is a key, which is consumed."""
        return params if self.network.perturb is None or key is None else self.network.perturb(params, key)
