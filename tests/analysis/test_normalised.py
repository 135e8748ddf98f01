"""Human-normalised scores: from figures with a source, for the games that have some."""

import numpy as np
import pytest

from softbellman.analysis.normalised import ATARI, ATARI_57, MNIH_2015, human_normalised, normalise
from softbellman.analysis.scores import Scores, aggregate

PAPER = ("qbert", "ms_pacman", "crazy_climber", "breakout", "asterix", "seaquest")


@pytest.mark.parametrize("reference", [MNIH_2015, ATARI_57])
def test_l44_the_random_policy_is_0_and_the_human_100_percent(reference):
    for game, figures in ATARI.items():
        random, human = figures[0], figures[reference.column]
        if human is not None:
            assert human > random
            assert f"{human_normalised(game, random, reference):.0%}" == "0%"
            assert f"{human_normalised(f'atari/{game}', human, reference):.0%}" == "100%"


def test_l44_the_figures_are_those_published():
    assert sum(figures[1] is not None for figures in ATARI.values()) == 49
    assert len(ATARI) == 57
    assert {game: ATARI[game][:2] for game in PAPER} == {
        "qbert": (163.9, 13455.0),
        "ms_pacman": (307.3, 15693.4),
        "crazy_climber": (10780.5, 35410.5),
        "breakout": (1.7, 31.8),
        "asterix": (210.0, 8503.3),
        "seaquest": (68.4, 20181.8),
    }
    assert human_normalised("seaquest", 8066.78) == pytest.approx(0.3977, abs=1e-4)
    assert human_normalised("seaquest", 8066.78, ATARI_57) == pytest.approx(0.1905, abs=1e-4)


@pytest.mark.parametrize("game", ["minatar/breakout", "atari/pacman", "gym/CartPole-v1", "", "atari/"])
def test_l44_a_game_without_a_human_score_is_an_error_not_0(game):
    with pytest.raises(ValueError, match="there is no human score of"):
        human_normalised(game, 10.0)


def test_l44_the_error_names_the_source_and_the_nearest_games():
    with pytest.raises(ValueError, match=r"of 'atari/seaqest' in Mnih et al\. 2015, .*; did you mean seaquest"):
        human_normalised("atari/seaqest", 10.0)
    with pytest.raises(ValueError, match=r"of 'atari/berzerk' in Mnih"):  # not among their 49
        human_normalised("atari/berzerk", 10.0)
    assert human_normalised("atari/berzerk", 123.7, ATARI_57) == 0.0


def test_l44_scores_are_normalised_game_by_game_and_say_by_what():
    values = np.array([[[1.7, 31.8, np.nan]], [[20181.8, 68.4, 68.4]]])
    states = np.full(values.shape, "finished", dtype=object)
    raw = Scores(values, ("atari/breakout", "atari/seaquest"), ("max",), (0, 1, 2), states, "test score")
    scores = normalise(raw)
    np.testing.assert_allclose(scores.values, [[[0, 1, np.nan]], [[1, 0, 0]]])
    assert MNIH_2015.source in scores.scale and not raw.scale
    assert normalise(raw, ATARI_57).scale.endswith(ATARI_57.source)
    assert aggregate(scores, "max", resamples=100).counted == 5
    np.testing.assert_array_equal(raw.values, values)  # the raw scores are there still, to stand beside them
