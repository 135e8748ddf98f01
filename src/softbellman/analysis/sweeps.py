"""Sweeps: families of operators over their one parameter, and each quantity of a study along them."""

import re
from typing import NamedTuple

import numpy as np

from softbellman.analysis.choice import families
from softbellman.analysis.records import Records
from softbellman.analysis.scores import collect
from softbellman.analysis.statistics import Interval, mean_interval
from softbellman.operators.spec import numbers
from softbellman.operators.table import TABLE
from softbellman.study.store import Study

FEWEST = 3  # parameters that make a sweep
INVERSE_TEMPERATURES = ("tau", "omega")  # parameters whose unit is 1/value


class Sweep(NamedTuple):
    """A family of operators, or arms, that differ in one parameter alone.

    Attributes:
        family: its name.
        operators: the members, by their parameters.
        parameters: `[n]` float64, increasing.
    """

    family: str
    operators: tuple[str, ...]
    parameters: np.ndarray

    @property
    def is_inverse_temperature(self) -> bool:
        """The parameter has the unit 1/value, as the table of operators tells; of operators that are not in it, no."""
        named = re.findall(r"\w+", self.family.partition(",")[0])
        parameters = [next(iter(TABLE[name].parameters)) for name in named if name in TABLE and TABLE[name].parameters]
        return bool(parameters) and set(parameters) <= set(INVERSE_TEMPERATURES)


class Point(NamedTuple):
    """A quantity of one operator: its mean over seeds, NaN without any, and the interval of that."""

    mean: float
    interval: Interval | None


def sweeps(study: Study) -> list[Sweep]:
    """Lists the families of a study with at least three parameters, in its order."""
    found = []
    for family, members in families({name: arm.family for name, arm in study.arms.items()}).items():
        given = {name: numbers(study.arms[name].operator) for name in members}
        if len(members) >= FEWEST and all(len(each) == 1 for each in given.values()):
            ordered = sorted(members, key=lambda name, given=given: float(given[name][0]))
            found.append(Sweep(family, tuple(ordered), np.array([float(given[name][0]) for name in ordered])))
    return found


def points(records: Records, environment: str, column: str, *, partial: bool) -> dict[str, Point]:
    """Summarises a quantity of each operator in a game: its value in the end of each run, over seeds."""
    scores = collect(records, "final", column, partial=partial, abreast=partial)
    found = {}
    for operator in scores.operators:
        values = scores.of(operator, environment)
        known = values[~np.isnan(values)]
        found[operator] = Point(float(known.mean()) if len(known) else np.nan, mean_interval(known))
    return found
