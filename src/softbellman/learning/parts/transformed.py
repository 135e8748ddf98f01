"""Transformed values: a network that learns a squashed value, so that large and small ones take steps alike."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from softbellman.learning.parts.estimates import Value
from softbellman.part import require_share


@dataclass(frozen=True)
class Transformed(Value):
    """The value under `h(x) = sign(x) (sqrt(|x| + 1) - 1) + slope x` (Pohlen et al., 2018).

    The target is that of the values themselves, squashed: `h(r + gamma op(h^-1(Q')))`. Pohlen et al. have a slope of
    0.01; 0.001 is that of R2D2 (Kapturowski et al., 2019).
    """

    name = "transformed"
    in_units = False
    slope: float = 0.001

    def __post_init__(self) -> None:
        """Check the number."""
        require_share("slope", self.slope)

    def squashed(self, x: Any) -> Any:
        """Compute `h`."""
        return x / (jnp.sqrt(jnp.abs(x) + 1.0) + 1.0) + self.slope * x  # the same, and right for small x too

    def values(self, out: Any) -> Any:
        """Compute the inverse of `h`: `[..., A]`.

        With `y = |h|` and `t = sqrt(|x| + 1)`, `slope t^2 + t - (1 + slope + y) = 0`, and `|x| = t^2 - 1`.
        """
        y = jnp.abs(out)
        share = 2.0 / (
            jnp.sqrt(1.0 + 4.0 * self.slope * (1.0 + self.slope + y)) + 1.0 + 2.0 * self.slope
        )  # (t - 1) / y
        return out * share * (y * share + 2.0)  # y share is t - 1

    def average(self, outs: Any) -> Any:
        """Take the mean of the values of several networks along the first axis, squashed."""
        return self.squashed(self.values(outs).mean(axis=0))

    def losses(self, taken: Any, target: Any, delta: float, unit: Any = None) -> tuple[Any, Any]:
        """Compute the losses and the errors of squashed values, `[B]` each."""
        return super().losses(taken, self.squashed(target), delta, unit)
