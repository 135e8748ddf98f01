"""Parameter selection: a family's operator chosen by its own scores, and by those of the other seeds.

The best of three parameters, by its own scores, against one baseline flatters. So three results stand side by side:
that one, as the paper reports it; the parameter chosen on the other seeds; and a parameter fixed beforehand.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from softbellman.analysis.scores import Scores
from softbellman.analysis.statistics import known_mean
from softbellman.operators import family

FIXED = {
    "softmax": "softmax(5)",
    "mellowmax": "mellowmax(5)",
    "double(softmax)": "double(softmax(5))",
    "double(mellowmax)": "double(mellowmax(5))",
}
"""The parameter of each family that is fixed beforehand: the middle of the paper's grid of 1, 5 and 10."""


class Pick(NamedTuple):
    """The scores of an operator whose parameter was chosen in some way.

    Attributes:
        operators: the operator taken for each seed, None where none could be chosen.
        scores: `[seed]` its scores; NaN: no score.
    """

    operators: tuple[str | None, ...]
    scores: np.ndarray

    @property
    def described(self) -> str:
        """The operator, or each with the number of seeds that it was taken for.

        >>> Pick(("softmax(1)", "softmax(5)", "softmax(5)"), np.zeros(3)).described
        'softmax(5) for 2 of 3, softmax(1) for 1 of 3 seeds'
        """
        taken = Counter(operator or "none" for operator in self.operators).most_common()
        if len(taken) == 1:
            return taken[0][0]
        return ", ".join(f"{operator} for {times} of {len(self.operators)}" for operator, times in taken) + " seeds"


class Chosen(NamedTuple):
    """The scores of one family of operators in one game, by how the parameter was chosen.

    Attributes:
        best: the parameter with the highest mean of these very scores, as the paper reports it; it flatters.
        left_out: for each seed the parameter with the highest mean on the other seeds: what choosing by experiment is
            worth. The choices share seeds, so an interval of these scores is an approximation.
        fixed: the parameter fixed beforehand; None if it was not run.
    """

    best: Pick
    left_out: Pick
    fixed: Pick | None


def families(family_of: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Groups operators by family; those that are alone in theirs are left out.

    >>> families({"max": "max", "softmax(1)": "softmax", "softmax(5)": "softmax"})
    {'softmax': ('softmax(1)', 'softmax(5)')}
    """
    groups: dict[str, tuple[str, ...]] = {}
    for operator, name in family_of.items():
        groups[name] = (*groups.get(name, ()), operator)
    return {name: members for name, members in groups.items() if len(members) > 1}


def choose_parameter(
    scores: Scores, candidates: Sequence[str], fixed: str | None = None, game: str | None = None
) -> Chosen:
    """Reports a family of operators by how its parameter is chosen; for each game anew, as in the paper.

    Means are over the scores that there are, so look at how many count. Ties go to the first candidate.

    Args:
        scores: the scores of a study.
        candidates: the operators to choose from.
        fixed: the operator fixed beforehand; None: that of `FIXED`.
        game: the game; it may be left out if there is but one.

    Raises:
        ValueError: for an operator or game without a place among the scores, or without candidates.
    """
    if not candidates:
        raise ValueError("there is no operator to choose from")
    values = np.array([scores.of(operator, game) for operator in candidates])
    seeds = range(len(scores.seeds))
    chosen = _best(values)
    apart = [_best(np.delete(values, seed, axis=1)) for seed in seeds]
    fixed = fixed or FIXED.get(family(candidates[0]))
    return Chosen(
        _picked(candidates, values, [chosen for _ in seeds]),
        _picked(candidates, values, apart),
        Pick((fixed,) * len(seeds), scores.of(fixed, game)) if fixed in scores.operators else None,
    )


def _best(values: np.ndarray) -> int | None:
    """Returns which candidate of `[candidate, seed]` has the highest mean, None if none has a score."""
    means = known_mean(values)
    return None if np.isnan(means).all() else int(np.nanargmax(means))


def _picked(candidates: Sequence[str], values: np.ndarray, choices: list[int | None]) -> Pick:
    taken = [np.nan if choice is None else values[choice, seed] for seed, choice in enumerate(choices)]
    return Pick(tuple(None if choice is None else candidates[choice] for choice in choices), np.array(taken))
