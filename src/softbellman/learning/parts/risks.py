"""Risks: the measure of a distribution of returns by which the best action is chosen."""

from dataclasses import dataclass
from typing import Any

from softbellman.part import Part, require_share


@dataclass(frozen=True)
class Neutral(Part):
    """The mean."""

    name = "neutral"

    def values(self, estimate: Any, out: Any) -> Any:
        """Compute the values `[..., A]` to act by from outputs `[..., A, *]`."""
        return estimate.values(out)


@dataclass(frozen=True)
class CVaR(Neutral):
    """The mean of the worst share `level` of returns: conditional value at risk (Dabney et al., 2018b)."""

    name = "cvar"
    level: float

    def __post_init__(self) -> None:
        """Check the number."""
        require_share("level", self.level)

    def values(self, estimate: Any, out: Any) -> Any:
        """Compute the lower tail's means."""
        return estimate.lower_tail(out, self.level)
