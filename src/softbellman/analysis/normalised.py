"""Normalised scores of Atari games: 0 for the random policy, 1 for a human, with the source of both.

A score that is normalised hides what was scored, so the raw one is always reported beside it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from softbellman.analysis.scores import Scores
from softbellman.analysis.statistics import as_scores
from softbellman.arguments import nearest


class Reference(NamedTuple):
    """A source of human scores.

    Attributes:
        source: where they were published.
        column: where they are in `ATARI`.
    """

    source: str
    column: int


MNIH_2015 = Reference(
    "Mnih et al. 2015, Extended Data Table 2, to the decimal as in van Hasselt, Guez and Silver 2016, appendix", 1
)
"""The reference of the papers whose protocol this is: 49 games, null-op starts, 5 minutes."""

ATARI_57 = Reference("DQN Zoo, dqn_zoo/atari_data.py of 2019", 2)
"""Later work: 57 games, null-op starts, 30 minutes. The human scores 42,054.7 in Seaquest, not 20,181.8."""

# Random policy, human of `MNIH_2015`, human of `ATARI_57`. Both sources have the same random policy.
ATARI: dict[str, tuple[float, float | None, float]] = {
    "alien": (227.8, 6875.4, 7127.7),
    "amidar": (5.8, 1675.8, 1719.5),
    "assault": (222.4, 1496.4, 742.0),
    "asterix": (210.0, 8503.3, 8503.3),
    "asteroids": (719.1, 13156.7, 47388.7),
    "atlantis": (12850.0, 29028.1, 29028.1),
    "bank_heist": (14.2, 734.4, 753.1),
    "battle_zone": (2360.0, 37800.0, 37187.5),
    "beam_rider": (363.9, 5774.7, 16926.5),
    "berzerk": (123.7, None, 2630.4),
    "bowling": (23.1, 154.8, 160.7),
    "boxing": (0.1, 4.3, 12.1),
    "breakout": (1.7, 31.8, 30.5),
    "centipede": (2090.9, 11963.2, 12017.0),
    "chopper_command": (811.0, 9881.8, 7387.8),
    "crazy_climber": (10780.5, 35410.5, 35829.4),
    "defender": (2874.5, None, 18688.9),
    "demon_attack": (152.1, 3401.3, 1971.0),
    "double_dunk": (-18.6, -15.5, -16.4),
    "enduro": (0.0, 309.6, 860.5),
    "fishing_derby": (-91.7, 5.5, -38.7),
    "freeway": (0.0, 29.6, 29.6),
    "frostbite": (65.2, 4334.7, 4334.7),
    "gopher": (257.6, 2321.0, 2412.5),
    "gravitar": (173.0, 2672.0, 3351.4),
    "hero": (1027.0, 25762.5, 30826.4),
    "ice_hockey": (-11.2, 0.9, 0.9),
    "jamesbond": (29.0, 406.7, 302.8),
    "kangaroo": (52.0, 3035.0, 3035.0),
    "krull": (1598.0, 2394.6, 2665.5),
    "kung_fu_master": (258.5, 22736.2, 22736.3),
    "montezuma_revenge": (0.0, 4366.7, 4753.3),
    "ms_pacman": (307.3, 15693.4, 6951.6),
    "name_this_game": (2292.3, 4076.2, 8049.0),
    "phoenix": (761.4, None, 7242.6),
    "pitfall": (-229.4, None, 6463.7),
    "pong": (-20.7, 9.3, 14.6),
    "private_eye": (24.9, 69571.3, 69571.3),
    "qbert": (163.9, 13455.0, 13455.0),
    "riverraid": (1338.5, 13513.3, 17118.0),
    "road_runner": (11.5, 7845.0, 7845.0),
    "robotank": (2.2, 11.9, 11.9),
    "seaquest": (68.4, 20181.8, 42054.7),
    "skiing": (-17098.1, None, -4336.9),
    "solaris": (1236.3, None, 12326.7),
    "space_invaders": (148.0, 1652.3, 1668.7),
    "star_gunner": (664.0, 10250.0, 10250.0),
    "surround": (-10.0, None, 6.5),
    "tennis": (-23.8, -8.9, -8.3),
    "time_pilot": (3568.0, 5925.0, 5229.2),
    "tutankham": (11.4, 167.6, 167.6),
    "up_n_down": (533.4, 9082.0, 11693.2),
    "venture": (0.0, 1187.5, 1187.5),
    "video_pinball": (16256.9, 17297.6, 17667.9),
    "wizard_of_wor": (563.5, 4756.5, 4756.5),
    "yars_revenge": (3092.9, None, 54576.9),
    "zaxxon": (32.5, 9173.3, 9173.3),
}


def human_normalised(
    game: str, score: Sequence[Any] | np.ndarray | float, reference: Reference = MNIH_2015
) -> np.ndarray | float:
    """Computes `(score - random) / (human - random)`: 0 for the random policy, 1 for the human.

    Args:
        game: name of an Atari game, `atari/breakout` or `breakout`. A game of MinAtar is another game, and nobody's
            score in it was published.
        score: raw scores of any shape.
        reference: whose human scores.

    Raises:
        ValueError: for a game without a human score.

    >>> human_normalised("atari/breakout", 31.8), human_normalised("atari/breakout", 1.7)
    (1.0, 0.0)
    """
    random, *humans = ATARI.get(game.removeprefix("atari/"), (0.0, None, None))
    human = humans[reference.column - 1]
    if human is None:
        known = [name for name, figures in ATARI.items() if figures[reference.column] is not None]
        raise ValueError(f"there is no human score of {game!r} in {reference.source}{nearest(game, known)}")
    raw = as_scores(score) if isinstance(score, Sequence) else score
    return (raw - random) / (human - random)


def normalise(scores: Scores, reference: Reference = MNIH_2015) -> Scores:
    """Normalises the scores of a study game by game, so that they can be aggregated over games.

    Raises:
        ValueError: for a game without a human score.
    """
    values = np.array(
        [human_normalised(game, of_game, reference) for game, of_game in zip(scores.games, scores.values, strict=True)]
    )
    return scores._replace(values=values, scale=f"0 is the random policy, 1 the human; {reference.source}")
