"""Budgets that no configuration holds, by default alike in Python and on the command line."""

COMPARED_SEEDS = 5  # of each operator of a comparison
TEST_GAMES = 30  # that a saved network is tested on
STEPS_OF_A_GAME = 5_000  # agent steps: for each game of a test, unless the study's own test phases have more in all
FILM_GAMES = 1
FILM_STEPS = 5_000  # agent steps
GAMES_SEED = 1  # of tests and films; training never uses these games
MOST_SEEDS = 100_000  # that can be asked for by their number


def first_seeds(number: int) -> range:
    """Returns so many seeds, 0 and up.

    Raises:
        ValueError: for none, and for more than anybody can train.
    """
    if number < 1:
        raise ValueError(
            f"seeds ({number}) by their number must be at least 1; for seed 0 alone write --seed 0, in Python seeds=[0]"
        )
    if number > MOST_SEEDS:
        raise ValueError(f"seeds ({number}) must be at most {MOST_SEEDS:,} by their number; list those you mean")
    return range(number)
