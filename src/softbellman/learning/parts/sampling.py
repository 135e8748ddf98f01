"""Sampling: the choice of transitions to learn from, and their weights in the loss."""

from dataclasses import dataclass
from typing import Any

from softbellman.learning.parts.part import Part


@dataclass(frozen=True)
class Uniform(Part):
    """Every transition alike, with replacement."""

    name = "uniform"

    def weights(self, density: Any, updates: Any) -> Any:
        """Compute the weights `[B]` of losses; None: all alike.

        Args:
            density: `[B]`, the probability of each drawn transition, as a multiple of a uniform one's.
            updates: updates made so far.
        """
        return None

    def priority(self, errors: Any) -> Any:
        """Compute the priorities `[B]` of the transitions just learned from; None: there are none."""
        return None
