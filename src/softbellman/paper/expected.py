"""Numbers of the paper (Song, Parr and Carin, ICML 2019): mean scores and standard deviations, five seeds each."""

from collections.abc import Mapping

Score = tuple[float, float]
"""A mean and its standard deviation."""

TABLE_1: Mapping[str, Mapping[float, Score]] = {
    "qbert": {
        1: (12068.66, 1085.65),
        5: (11049.28, 1565.57),
        10: (11191.31, 1336.35),
        float("inf"): (10577.76, 1508.27),
    },
    "ms_pacman": {1: (2492.40, 183.71), 5: (2566.44, 227.24), 10: (2546.18, 259.82), float("inf"): (2293.73, 160.50)},
    "breakout": {1: (313.08, 20.13), 5: (350.88, 35.58), 10: (303.71, 65.59), float("inf"): (284.64, 60.83)},
    "crazy_climber": {
        1: (107405.11, 4617.90),
        5: (111111.07, 5047.19),
        10: (104049.46, 6686.84),
        float("inf"): (96373.08, 9244.27),
    },
    "asterix": {
        1: (3476.91, 460.27),
        5: (10266.12, 2682.00),
        10: (6588.13, 1183.10),
        float("inf"): (5523.80, 694.72),
    },
    "seaquest": {1: (272.20, 49.75), 5: (2701.05, 10.06), 10: (6254.01, 697.12), float("inf"): (5695.35, 1862.59)},
}
"""Scores of S-DDQN by game and tau; an infinite tau is DDQN."""

TABLE_2: Mapping[str, Mapping[str, Score]] = {
    "qbert": {"DQN": (8331.72, 1597.67), "S-DQN": (11307.10, 1332.80), "mellowmax": (11775.93, 1173.51)},
    "ms_pacman": {"DQN": (2368.79, 219.17), "S-DQN": (2856.82, 369.75), "mellowmax": (2458.76, 130.34)},
    "crazy_climber": {"DQN": (90923.40, 11059.39), "S-DQN": (106422.27, 4821.40), "mellowmax": (99601.47, 19271.53)},
    "breakout": {"DQN": (255.32, 64.69), "S-DQN": (345.56, 34.19), "mellowmax": (355.94, 25.85)},
    "asterix": {"DQN": (196.91, 135.16), "S-DQN": (8868.00, 2167.35), "mellowmax": (11203.75, 3818.40)},
    "seaquest": {"DQN": (4090.36, 1455.73), "S-DQN": (8066.78, 1646.51), "mellowmax": (6476.20, 1952.12)},
}
"""Scores of max, softmax and mellowmax without double Q-learning, by game; the best parameter of 1, 5 and 10."""

TABLE_A1: Mapping[str, Mapping[str, int]] = {
    "S-DQN": {"qbert": 1, "ms_pacman": 1, "breakout": 5, "crazy_climber": 1, "asterix": 5, "seaquest": 5},
    "S-DDQN": {"qbert": 1, "ms_pacman": 5, "breakout": 5, "crazy_climber": 5, "asterix": 5, "seaquest": 10},
}
"""The tau of each game in the figures that compare methods."""
