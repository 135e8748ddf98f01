"""Tightening: a penalty for values outside of bounds from the trajectory."""

from dataclasses import dataclass
from typing import Any

from softbellman.learning.parts.part import Part


@dataclass(frozen=True)
class Loose(Part):
    """No bounds."""

    name = "none"
    around = 0  # steps looked at before a transition, and from it on

    def penalty(self, taken: Any, window: Any, values: Any) -> Any:
        """Compute what a loss `[B]` gets on top; None: nothing.

        Args:
            taken: `[B]`, the values of the actions taken.
            window: steps around the transitions.
            values: function that gives the target network's values of observations.
        """
        return None
