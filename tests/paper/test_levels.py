"""How far the intervals of verdicts hold, as docs/claims.md tells."""

import numpy as np
import pytest

from softbellman.paper.claims import LEVEL
from softbellman.paper.verdicts import estimate

from ..choices import chosen_by_the_other_seeds

STUDIES, GAMES, SEEDS = 10_000, 3, 5


def share_of_misses(differences):
    """The share of studies `[study, game, seed]` whose interval does not hold the true difference, 0."""
    intervals = [estimate(each, LEVEL).interval for each in differences]
    return np.mean([not low <= 0 <= high for low, high in intervals])


@pytest.mark.parametrize(("spreads", "percent"), [((1, 1, 1), 0.25), ((1, 0.2, 0.2), 1.1), ((1, 1e-6, 1e-6), 1.9)])
def test_games_of_unlike_spread_make_it_too_narrow(spreads, percent):
    noise = np.random.default_rng(0).normal(size=(STUDIES, GAMES, SEEDS))
    assert share_of_misses(noise * np.array(spreads)[:, None]) * 100 == pytest.approx(percent, abs=0.15)


@pytest.mark.parametrize(("parameters", "percent"), [(1, 0.25), (3, 0.8), (6, 1.0)])
def test_choices_by_the_other_seeds_make_it_too_narrow(parameters, percent):
    rng = np.random.default_rng(1)
    own = chosen_by_the_other_seeds(rng.normal(size=(STUDIES, GAMES, parameters, SEEDS)))
    differences = own - rng.normal(size=(STUDIES, GAMES, SEEDS))
    assert share_of_misses(differences) * 100 == pytest.approx(percent, abs=0.15)


@pytest.mark.parametrize(
    ("both_are_chosen", "spreads", "percent"),
    [(True, (1, 1, 1), 2.7), (False, (1, 0.2, 0.2), 2.9), (True, (1, 0.2, 0.2), 5.5)],
)
def test_together_they_make_it_narrower_still(both_are_chosen, spreads, percent):
    rng = np.random.default_rng(2)

    def chosen():
        return chosen_by_the_other_seeds(rng.normal(size=(STUDIES, GAMES, 6, SEEDS)))

    other = chosen() if both_are_chosen else rng.normal(size=(STUDIES, GAMES, SEEDS))
    differences = (chosen() - other) * np.array(spreads)[:, None]
    assert share_of_misses(differences) * 100 == pytest.approx(percent, abs=0.4)
