"""Arms of the claims: families of arms whose parameter is chosen for each game and seed, and the runs they need.

No run is judged by a choice that it took part in: a parameter is chosen by the mean final score of the other seeds.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from softbellman.analysis.choice import Chosen, choose_parameter
from softbellman.analysis.scores import Scores
from softbellman.paper.expected import TABLE_A1
from softbellman.paper.grid import COOLED, EXPLORING_MAX, EXPLORING_MELLOWMAX, PAPERS_PARAMETERS, Scale
from softbellman.paper.results import Results

ARMS = {
    "DQN": "max",
    "DDQN": "double(max)",
    "S-DQN": "softmax({:g})",
    "S-DDQN": "double(softmax({:g}))",
    "mellowmax": "mellowmax({:g})",
    "cooled softmax": COOLED,
    "exploring max": EXPLORING_MAX,
    "exploring mellowmax": EXPLORING_MELLOWMAX,
}
"""Each arm as a study has it, `{:g}` standing for a parameter that is chosen."""

PARTNERS = {"exploring max": "S-DQN", "exploring mellowmax": "mellowmax"}
"""Arms that explore by a policy, and whose parameter each has: no others of its family are needed."""

OPERATORS = ("DQN", "DDQN", "S-DQN", "S-DDQN", "mellowmax")
"""The arms that are operators alone; together they need the whole grid."""

WHOLE, PAPERS, FIXED = "the whole grid", "1, 5, 10", "Table A1"
"""Ways to choose parameters: from the scale's grid, from what it shares with the paper's, or as the paper has them."""


class Arm(NamedTuple):
    """An arm, and the operators that stand for it.

    Attributes:
        name: a name of `ARMS`.
        operators: `[game, seed]` the operator taken; None where none could be chosen.
        results: the results that it is a part of.
    """

    name: str
    operators: np.ndarray
    results: Results

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return what the arm has, `[game, seed, ...]`, of `[game, operator, seed, ...]`; NaN where none was chosen."""
        taken = np.full((values.shape[0], *values.shape[2:]), np.nan)
        for (game, seed), spec in np.ndenumerate(self.operators):
            if spec is not None:
                taken[game, seed] = values[game, self.results.scale.arms.index(spec), seed]
        return taken

    def described(self, game: int) -> str:
        """Name the operators taken in a game, each with the number of its seeds if they differ."""
        taken = Counter(spec or "none" for spec in self.operators[game]).most_common()
        if len(taken) == 1:
            return taken[0][0]
        return ", ".join(f'"{spec}" x{times}' if "=" in spec else f"{spec} x{times}" for spec, times in taken)


def readings(scale: Scale) -> tuple[str, ...]:
    """List how parameters can be chosen at a scale; verdicts are given by the first."""
    papers = (PAPERS,) if candidates(scale, "S-DQN", PAPERS) != candidates(scale, "S-DQN", WHOLE) else ()
    return (WHOLE, *papers, *((FIXED,) if scale.is_atari else ()))


def chosen(scale: Scale) -> str:
    """Say how parameters are chosen at a scale, in a sentence without its end."""
    told = {WHOLE: "from the whole grid, as judged and as drawn", PAPERS: ", and from what it shares with the paper's"}
    told[FIXED] = "; beside these stand the paper's own, of its Table A1"
    ways = "".join(told[reading] for reading in readings(scale))
    return f"Parameters are chosen for each game and seed by the final scores of the other seeds: {ways}"


def candidates(scale: Scale, name: str, reading: str = WHOLE) -> tuple[str, ...]:
    """List the operators of an arm that a reading chooses from; an operator of the grid is an arm of its own."""
    parameters = [n for n in scale.parameters if reading != PAPERS or n in PAPERS_PARAMETERS]
    return tuple(dict.fromkeys(ARMS.get(name, name).format(number) for number in parameters))


def needed(results: Results, names: Iterable[str]) -> np.ndarray:
    """Return which runs `[game, arm, seed]` some arms need: of a chosen one its whole family.

    An arm that explores needs a run for each game and seed, with the parameter that its partner has there; as long as
    nothing of that one is there, with the first.
    """
    found = np.zeros(results.states.shape, dtype=bool)
    for name in names:
        specs = candidates(results.scale, name)
        if name in PARTNERS:
            for (game, seed), spec in np.ndenumerate(take(results, name).operators):
                found[game, results.scale.arms.index(spec or specs[0]), seed] = True
        else:
            found[:, [spec in specs for spec in results.scale.arms]] = True
    return found


def waiting(results: Results, names: Iterable[str]) -> np.ndarray:
    """Return which runs `[game, arm, seed]` that some arms need, and lack, are not known yet.

    These are of arms that explore, in games where not all runs count by which the parameter of the partner is chosen.
    """
    found = np.zeros(results.states.shape, dtype=bool)
    for name in set(PARTNERS) & set(names):
        family = needed(results, [PARTNERS[name]])
        is_open = (family & ~results.counted).any(axis=(1, 2), keepdims=True)
        found |= needed(results, [name]) & ~results.counted & is_open
    return found


def take(results: Results, name: str, reading: str = WHOLE) -> Arm:
    """Choose what stands for an arm in every game and for every seed.

    With the tau of Table A1, mellowmax is chosen from the whole grid: the paper does not say which omega it took. An
    arm that explores has the parameter of its partner by the first reading, and by the others nothing.
    """
    if name in PARTNERS:
        return _with_parameters_of(take(results, PARTNERS[name]), name, reading)
    scale, shape = results.scale, (len(results.scale.games), len(results.scale.seeds))
    specs, fixed = candidates(scale, name, reading), TABLE_A1.get(name)
    if reading == FIXED and fixed:
        rows = [(ARMS[name].format(fixed[game]),) * shape[1] for game in scale.games]
    elif len(specs) == 1:
        rows = [specs * shape[1]] * shape[0]
    else:
        rows = [choose(results, game, specs).left_out.operators for game in range(shape[0])]
    taken = np.empty(shape, dtype=object)
    for game, row in enumerate(rows):
        taken[game] = row
    return Arm(name, taken, results)


def choose(results: Results, game: int, specs: tuple[str, ...]) -> Chosen:
    """Choose among operators by their final scores in a game, as `analysis.choice` does."""
    scale = results.scale
    scores = Scores(
        results.final, scale.environments, scale.arms, scale.seeds, results.states, "final score, for choices"
    )
    return choose_parameter(scores, specs, game=scale.environments[game])


def _with_parameters_of(arm: Arm, name: str, reading: str) -> Arm:
    """Take the members of another family that have the parameters chosen for an arm."""
    scale, operators = arm.results.scale, np.full_like(arm.operators, None)
    partners = dict(zip(candidates(scale, arm.name), candidates(scale, name), strict=True))
    if reading == WHOLE:
        for cell, spec in np.ndenumerate(arm.operators):
            operators[cell] = partners.get(spec)
    return Arm(name, operators, arm.results)
