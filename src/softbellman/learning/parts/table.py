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


ROLES: dict[str, Role] = {
    "gap": Role(gaps.Gap, gaps.GAPS),
    "target": Role(copies.Latest, {"latest": copies.Latest, "past": copies.Past}),
    "estimate": Role(
        estimates.Value,
        {
            "value": estimates.Value,
            "quantiles": estimates.Quantiles,
            "categorical": estimates.Categorical,
            "ensemble": estimates.Ensemble,
            "transformed": Transformed,
        },
    ),
    "head": Role(Linear, {"linear": Linear, "duelling": Duelling}),
    "noise": Role(NoNoise, {"none": NoNoise, "noisy": Noisy}),
    "scale": Role(scales.Raw, {"raw": scales.Raw, "popart": scales.PopArt}),
    "sampling": Role(sampling.Uniform, {"uniform": sampling.Uniform, "prioritised": sampling.Prioritised}),
    "tightening": Role(tightening.Loose, {"none": tightening.Loose, "tightening": tightening.Tightening}),
    "exploration": Role(
        exploration.Greedy,
        {"epsilon": exploration.Greedy, "boltzmann": exploration.boltzmann, "policy": exploration.Policy},
    ),
    "controller": Role(
        controllers.Fixed,
        {
            kind.name: kind
            for kind in (
                *(controllers.Fixed, schedules.Cooling, schedules.SpreadCooling, schedules.Power),
                *(controllers.Noise, controllers.Match, controllers.Loop),
            )
        },
    ),
    "risk": Role(risks.Neutral, {"neutral": risks.Neutral, "cvar": risks.CVaR}),
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
