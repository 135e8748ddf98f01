"""Table of the parts: the roles of a recipe, and the names of what can play each."""

from collections.abc import Callable
from typing import Any, NamedTuple

from softbellman import gaps
from softbellman.learning.parts import (
    controllers,
    copies,
    estimates,
    exploration,
    risks,
    sampling,
    scales,
    schedules,
    tightening,
)
from softbellman.learning.parts.heads import Duelling, Linear, Noisy, NoNoise
from softbellman.learning.parts.transformed import Transformed
from softbellman.part import Part, read_part


class Role(NamedTuple):
    """A role of a recipe: the class of its parts, and the functions that make one, by name."""

    kind: type[Part]
    factories: dict[str, Callable[..., Part]]


def _role(plain: type[Part], *others: type[Part]) -> Role:
    """Make a role of its plain part and the others, by their names."""
    return Role(plain, {kind.name: kind for kind in (plain, *others)})


ROLES: dict[str, Role] = {
    "gap": Role(gaps.Gap, gaps.GAPS),
    "target": _role(copies.Latest, copies.Past),
    "estimate": _role(estimates.Value, estimates.Quantiles, estimates.Categorical, estimates.Ensemble, Transformed),
    "head": _role(Linear, Duelling),
    "noise": _role(NoNoise, Noisy),
    "scale": _role(scales.Raw, scales.PopArt),
    "sampling": _role(sampling.Uniform, sampling.Prioritised),
    "tightening": _role(tightening.Loose, tightening.Tightening),
    "exploration": Role(
        exploration.Greedy,
        {"epsilon": exploration.Greedy, "boltzmann": exploration.boltzmann, "policy": exploration.Policy},
    ),
    "controller": _role(
        controllers.Fixed,
        *(schedules.Cooling, schedules.SpreadCooling, schedules.Power),
        *(controllers.Noise, controllers.Match, controllers.Loop),
    ),
    "risk": _role(risks.Neutral, risks.CVaR),
}


def part(role: str, spec: str) -> Any:
    """Read the part that plays a role.

    Raises:
        ValueError: as `read_part`.

    Example:
        >>> str(part("gap", "gap(0.9)")), str(part("exploration", "boltzmann(5)"))
        ('gap(0.9)', 'policy(softmax(5))')
    """
    return read_part(f"recipe.{role}", spec, ROLES[role].factories, ROLES[role].kind)
