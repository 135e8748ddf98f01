"""Masks of legal actions, from `info["action_mask"]` of Gymnasium environments: held against the rules."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from softbellman.envs.gym_api import EnvironmentFault, as_array

_KEY = 'info["action_mask"]'


class Masks:
    """Masks of the copies of one environment, all of which give one with every reset and step, or none ever.

    Attributes:
        legal: `[E, A]` bool, the actions that are legal now; None where there are no masks.
    """

    def __init__(self, name: str, num_envs: int, num_actions: int) -> None:
        """Knows nothing yet of the environment.

        Args:
            name: what messages call the environment.
            num_envs: number of copies.
            num_actions: number of actions.
        """
        self._name, self._shape = name, (num_envs, num_actions)
        self._are_given: bool | None = None
        self.legal: np.ndarray | None = None

    def take(self, env: int, info: Mapping[str, Any], *, terminated: bool = False) -> None:
        """Takes over the mask of copy `env` from an info, if masks are given.

        Where the episode has terminated, nothing will be done and nothing need be given: all actions count as legal.

        Raises:
            EnvironmentFault: if the mask is not of its shape, holds other numbers than 0 and 1, or allows no action; or
                if there is one now and there was none before, or the other way about.
        """
        given = info.get("action_mask")
        if self._are_given is None:
            self._are_given = given is not None
        if given is not None and not self._are_given:
            self._refuse_change("gives", "gave none before")
        if not self._are_given:
            return
        if terminated:
            mask = np.ones(self._shape[1], bool)
        elif given is None:
            self._refuse_change("lacks", "gave it before")
        else:
            mask = self._checked(given)
        self.legal = np.ones(self._shape, bool) if self.legal is None else self.legal.copy()
        self.legal[env] = mask

    def _checked(self, given: Any) -> np.ndarray:
        """Returns a mask as bools."""
        mask, wanted = as_array(given), f"an array of {self._shape[1]} bools, or of 0 and 1: one for each action"
        if mask.shape != self._shape[1:] or mask.dtype.kind not in "biu":
            kind = f"{mask.dtype} of shape {mask.shape}" if mask.dtype != object else type(given).__name__
            raise EnvironmentFault(f"{self._name}: {_KEY} must be {wanted}, and is {kind}")
        if not np.isin(mask, (0, 1)).all():
            raise EnvironmentFault(f"{self._name}: {_KEY} must be {wanted}, and is {mask.tolist()}")
        if not mask.any():
            raise EnvironmentFault(
                f"{self._name}: {_KEY} allows no action in an episode that goes on; set terminated where there is none"
            )
        return mask.astype(bool)

    def _refuse_change(self, does: str, before: str) -> NoReturn:
        raise EnvironmentFault(
            f"{self._name} {does} {_KEY} now and {before}; give it with every reset and step, or never (all 1 where "
            "all actions are legal)"
        )
