"""The reference package of MinAtar, made to play from given draws."""

import warnings
from typing import Any

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its drawing libraries' own
    from minatar import Environment


class Draws:
    """Stands in for NumPy's `RandomState`, and hands out the random words that our games are played from."""

    def __init__(self) -> None:
        self.words, self.position = np.zeros(0, np.uint32), 0

    def give(self, words: np.ndarray) -> None:
        self.words, self.position = words, 0

    def rand(self, count: int | None = None) -> Any:
        numbers = (self._next(count or 1) >> 8) / 2.0**24
        return numbers[0] if count is None else numbers

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        low, high = (0, low) if high is None else (low, high)
        numbers = low + np.floor((self._next(size or 1) >> 8) / 2.0**24 * (high - low)).astype(int)
        return int(numbers[0]) if size is None else numbers

    def _next(self, count: int) -> np.ndarray:
        self.position += count
        assert self.position <= len(self.words), "the reference draws more than our game was given"
        return self.words[self.position - count : self.position]


class Reference:
    """A game of the reference package, wrapper and all, each step and each reset played from given words."""

    def __init__(self, game: str, *, sticky_probability: float = 0.1, ramping: bool = True) -> None:
        self.draws: Any = Draws()
        self.env = Environment(game, sticky_action_prob=sticky_probability, difficulty_ramping=ramping)
        self.env.random = self.env.env.random = self.draws
        if game == "seaquest":  # a diver's words come after an enemy's, whether or not one appears
            spawn_diver, sticky_words = self.env.env._spawn_diver, 1

            def spawn_diver_from_its_words() -> None:
                self.draws.position = sticky_words + 3
                spawn_diver()

            self.env.env._spawn_diver = spawn_diver_from_its_words

    def reset(self, words: np.ndarray) -> np.ndarray:
        self.draws.give(words)
        self.env.reset()
        return self.env.state()

    def step(self, action: int, words: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """Takes an action; the first word is for its being sticky."""
        self.draws.give(words)
        reward, terminal = self.env.act(action)
        return self.env.state(), float(reward), bool(terminal)

    def survive(self) -> None:
        """Lets the game go on after its end."""
        self.env.env.terminal = False
