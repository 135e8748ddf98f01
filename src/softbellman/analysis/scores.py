"""Scores of a study: collected, summarised for each operator, aggregated over games.

The unit of analysis is the run: its games are never pooled with those of others, nor are raw scores of different games.
A score that is missing, because its run failed, diverged or has not ended, is NaN; how many count stands beside how
many were asked for.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from softbellman.analysis.records import Records
from softbellman.analysis.statistics import (
    Interval,
    as_scores,
    bootstrap_interval,
    interquartile_mean,
    known_mean,
    mean_interval,
)
from softbellman.study.runs import RunPath, merit

MOST_FINAL_PHASES = 10  # as in the paper's Table 1, of 200
SUMMARIES = {
    "final": f"mean of the last quarter of test phases, at most {MOST_FINAL_PHASES}",
    "last_phase": "last test phase",
    "best": "best test phase",
}
UNENDED = ("running", "stopped")


class Scores(NamedTuple):
    """One score for each run of a study.

    Attributes:
        values: `[game, operator, seed]` float64; NaN: no score.
        games: names of the environments.
        operators: names of the operators or arms.
        seeds: the seeds.
        states: `[game, operator, seed]`, how each run stands: finished, failed, diverged, running, stopped, not begun,
            or without a score, though it finished.
        label: what a score is, for headings: `test score, mean of the last 3 of 12 test phases`.
        scale: what makes scores of different games comparable, with its source; empty for raw scores, which are not.
    """

    values: np.ndarray
    games: tuple[str, ...]
    operators: tuple[str, ...]
    seeds: tuple[int, ...]
    states: np.ndarray
    label: str
    scale: str = ""

    def of(self, operator: str, game: str | None = None) -> np.ndarray:
        """Returns the scores `[seed]` of an operator in a game, which may be left out if there is but one."""
        return self.values[self._game(game), _position(self.operators, operator, "operator")]

    def place(self, run: RunPath) -> tuple[int, int, int]:
        """Returns where a run is in `values` and `states`."""
        return self.games.index(run.environment), self.operators.index(run.operator), self.seeds.index(run.seed)

    def across(self, operator: str) -> np.ndarray:
        """Returns the scores `[game, seed]` of an operator."""
        return self.values[:, _position(self.operators, operator, "operator")]

    def missing(self, operator: str, game: str | None = None) -> dict[str, int]:
        """Counts the runs of an operator in a game that have no score, by how they stand."""
        states = self.states[self._game(game), _position(self.operators, operator, "operator")]
        return dict(Counter(states[np.isnan(self.of(operator, game))].tolist()))

    def _game(self, game: str | None) -> int:
        if game is None and len(self.games) > 1:
            raise ValueError(f"scores of different games are not pooled; name one of {', '.join(self.games)}")
        return 0 if game is None else _position(self.games, game, "game")


def collect(
    records: Records,
    summary: str = "final",
    column: str = "test_return",
    *,
    partial: bool = False,
    abreast: bool = False,
) -> Scores:
    """Collects one score for each run of a study.

    Args:
        records: what its runs left.
        summary: `final`, the mean of the last phases, see `final_phases`; `last_phase`; or `best`, see `best_score`.
        column: the column of `metrics.csv`.
        partial: runs that are under way, or were stopped, count as far as they have come. Those that failed or diverged
            never do.
        abreast: the runs of a game count as far as the shortest of them has come, so that all have trained alike.

    Raises:
        ValueError: for a summary or a column that there is not, or metrics that can't be read.
    """
    if summary not in SUMMARIES:
        raise ValueError(f"unknown summary {summary!r}; allowed are {', '.join(SUMMARIES)}")
    games = tuple(dict.fromkeys(record.run.environment for record in records.runs))
    operators = tuple(dict.fromkeys(record.run.operator for record in records.runs))
    seeds = tuple(dict.fromkeys(record.run.seed for record in records.runs))
    values = np.full((len(games), len(operators), len(seeds)), np.nan)
    states = np.full(values.shape, "not begun", dtype=object)
    phases, shortest = set(), dict[str, int]()
    if abreast:
        for record in records.runs:
            if counts(record.state, partial=partial) and record.rows:
                game = record.run.environment
                shortest[game] = min(record.rows, shortest.get(game, record.rows))
    for record in records.runs:
        run = record.run
        cell = games.index(run.environment), operators.index(run.operator), seeds.index(run.seed)
        states[cell] = record.state
        if counts(states[cell], partial=partial) and record.rows:
            so_far = slice(shortest.get(run.environment))
            series = record.column(column)[so_far]
            if summary == "best":
                values[cell] = best_score(series, record.column("updates")[so_far])
            else:
                last = final_phases(len(series)) if summary == "final" else 1
                values[cell] = known_mean(series[-last:])
            phases.add(len(series))
            if states[cell] == "finished" and np.isnan(values[cell]):
                states[cell] = "without a score"
    label = _label(*phases) if summary == "final" and len(phases) == 1 else SUMMARIES[summary]
    return Scores(values, games, operators, seeds, states, f"{column.replace('_return', ' score')}, {label}")


def final_phases(phases: int) -> int:
    """Returns how many of a run's test phases its final score is the mean of: the last quarter, at most 10.

    >>> [final_phases(each) for each in (1, 4, 10, 12, 20, 200)]
    [1, 1, 3, 3, 5, 10]
    """
    return min(-(-phases // 4), MOST_FINAL_PHASES)


def _label(phases: int) -> str:
    """Says what a final score is where all runs have so many test phases."""
    if phases == 1:
        return "the only test phase"
    last = final_phases(phases)
    return f"mean of the last {last} of {phases} test phases" if last > 1 else f"the last of {phases} test phases"


def best_score(scores: np.ndarray, updates: np.ndarray) -> float:
    """Returns the highest score `[phases]` of a run's test phases, which flatters: that of its best network.

    NaN without any score; `updates` `[phases]` are those before each phase, see `study.runs.merit`.
    """
    phases = (merit(*phase) for phase in zip(updates, scores, strict=True) if not np.isnan(phase[1]))
    return max(phases, default=(False, np.nan))[1]


def counts(state: str, *, partial: bool) -> bool:
    """Tells whether what a run measured counts, by how the run stands."""
    return state == "finished" or (partial and state in UNENDED)


class Summary(NamedTuple):
    """Summary of several runs of one operator in one game.

    Attributes:
        asked: runs asked for.
        counted: runs with a score.
        mean: their mean, None without any.
        std: their standard deviation, of the sample (`n - 1`); None of fewer than two.
        interval: Student's t interval of the mean.
        interquartile_mean: see `interquartile_mean`.
        interquartile_interval: its bootstrap interval, see `bootstrap_interval`; None of fewer than three, since that
            of two is from the one to the other.
    """

    asked: int
    counted: int
    mean: float | None
    std: float | None
    interval: Interval | None
    interquartile_mean: float | None
    interquartile_interval: Interval | None


def summarise(scores: ArrayLike, level: float = 0.95, resamples: int = 50_000, seed: int = 0) -> Summary:
    """Summarises the scores `[seed]` of one operator in one game.

    >>> row = summarise(np.array([1.0, np.nan, 3.0]))
    >>> row.counted, row.asked, row.mean
    (2, 3, 2.0)
    """
    scores = as_scores(scores, 1)
    known = scores[~np.isnan(scores)]
    return Summary(
        len(scores),
        len(known),
        float(np.mean(known)) if len(known) else None,
        float(np.std(known, ddof=1)) if len(known) > 1 else None,
        mean_interval(known, level),
        float(interquartile_mean(known)) if len(known) else None,
        bootstrap_interval(known, resamples=resamples, seed=seed, level=level) if len(known) > 2 else None,
    )


class Aggregate(NamedTuple):
    """Aggregate of an operator over all games.

    Attributes:
        asked: runs asked for.
        counted: runs with a score.
        interquartile_mean: over the scores of all games; None if not all have equally many, or none: one with fewer
            would silently weigh less, such as the game in which runs diverged.
        interval: its stratified bootstrap interval; None as well, or if a game has fewer than two scores.
    """

    asked: int
    counted: int
    interquartile_mean: float | None
    interval: Interval | None


def aggregate(scores: Scores, operator: str, level: float = 0.95, resamples: int = 50_000, seed: int = 0) -> Aggregate:
    """Aggregates the scores of an operator over games.

    Raises:
        ValueError: for raw scores of several games, whose scales differ.
    """
    if len(scores.games) > 1 and not scores.scale:
        raise ValueError("raw scores of different games have different scales; normalise them, or report game by game")
    values = scores.across(operator)
    counted = (~np.isnan(values)).sum(axis=1)
    if counted.min() == 0 or counted.min() < counted.max():
        return Aggregate(values.size, int(counted.sum()), None, None)
    interval = bootstrap_interval(values, resamples=resamples, seed=seed, level=level)
    return Aggregate(values.size, int(counted.sum()), float(interquartile_mean(values)), interval)


def _position(names: tuple[str, ...], name: str, kind: str) -> int:
    if name not in names:
        raise ValueError(f"there is no {kind} {name!r} among the scores; there are {', '.join(names)}")
    return names.index(name)
