"""Policy in an environment's own terms: raw observations, and actions by the numbers that its `step` takes."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from softbellman.envs.step import HostEnv
from softbellman.learning.fixed_policy import FixedPolicy
from softbellman.operators.arrays import flags, plain


class Interface(NamedTuple):
    """What an environment itself gives and takes.

    Attributes:
        environment: its name.
        raw_shape: shape of one raw observation.
        taken: lays a raw observation out as a network takes it, and refuses what the environment could not have given.
        num_actions: number of actions, `A`.
        first_action: what the environment itself calls the first action; the others follow.
        is_masked: some actions are illegal at times.
    """

    environment: str
    raw_shape: tuple[int, ...]
    taken: Callable[[Any], np.ndarray]
    num_actions: int
    first_action: int
    is_masked: bool

    @classmethod
    def of(cls, env: HostEnv, environment: str, facts: Mapping[str, Any]) -> Self:
        """Describes an environment, with what a study recorded of it."""
        is_masked = env.legal is not None or "action_mask" in facts
        return cls(environment, tuple(env.raw_shape), env.taken, env.num_actions, env.first_action, is_masked)

    def batch(self, obs: Any) -> tuple[np.ndarray, bool]:
        """Returns observations `[B, *obs_shape]`, and whether one alone was given.

        Raises:
            ValueError: for an observation that the environment could not have given.
        """
        if isinstance(obs, list | tuple) and len(obs) > 1 and isinstance(obs[-1], Mapping):
            raise ValueError(
                f"the policy of {self.environment} was given {len(obs)} things, the last an info, as reset() and "
                "step() of an environment return them; pass the first, the observation: obs, info = env.reset()"
            )
        raw = plain(obs, f"what the policy of {self.environment} was given")
        is_one = raw.shape == self.raw_shape
        if not is_one and (raw.shape[1:] != self.raw_shape or not len(raw)):
            batch = ", ".join(map(str, ("B", *self.raw_shape)))
            raise ValueError(
                f"the policy of {self.environment} was given observations of shape {raw.shape}; one alone has "
                f"{self.raw_shape}, and B of them, at least 1, have [{batch}]"
            )
        return np.stack([self.taken(each) for each in (raw[None] if is_one else raw)]), is_one

    def legal(self, legal: Any, batch: int) -> np.ndarray | None:
        """Returns the legal actions `[B, A]`, or None: all.

        Raises:
            ValueError: for a mask of another shape, with other values than 0 and 1 or without a legal action; for none
                where some actions are illegal at times.
        """
        if legal is None:
            if self.is_masked:
                raise ValueError(f"{self.environment} has illegal actions; pass legal, such as its action mask")
            return None
        given = flags(legal, "legal")
        if given.shape not in ((self.num_actions,), (batch, self.num_actions)):
            raise ValueError(
                f"legal has the shape {given.shape}; it must be {(self.num_actions,)} or {(batch, self.num_actions)}"
            )
        if not given.any(axis=-1).all():
            raise ValueError(f"legal has a row in which no action is: {given.tolist()}")
        return np.broadcast_to(given, (batch, self.num_actions))


class RawPolicy:
    """Values and best actions of a network as it is at a moment of training, for raw observations."""

    def __init__(self, interface: Interface, fixed: FixedPolicy) -> None:
        """Takes a network, and what its environment gives and takes."""
        self._interface, self._fixed = interface, fixed

    def q(self, obs: Any) -> np.ndarray:
        """Computes action values: `[A]` float32 of one observation, `[B, A]` of a batch.

        Raises:
            ValueError: for an observation that the environment could not have given.
        """
        batch, is_one = self._interface.batch(obs)
        values = self._fixed.q(batch)
        return values[0] if is_one else values

    def act(self, obs: Any, legal: Any = None) -> Any:
        """Chooses the best action, as the environment's `step` takes it: an int, or `[B]` int64 for a batch.

        Args:
            obs: one observation, or a batch.
            legal: bool or 0 and 1, `[A]` for all or `[B, A]`: the legal actions; None: all, where they always are.

        Raises:
            ValueError: for an observation that the environment could not have given, or a wrong mask.
        """
        batch, is_one = self._interface.batch(obs)
        actions = self._fixed.act(batch, self._interface.legal(legal, len(batch))).astype(np.int64)
        actions += self._interface.first_action
        return int(actions[0]) if is_one else actions
