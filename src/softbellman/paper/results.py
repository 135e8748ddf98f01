"""Results of a scale's runs: arrays over games, operators, seeds and test phases.

A run counts if it finished or diverged. One that diverged has the random policy's score, and no values or gradients.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from softbellman.analysis.normalised import ATARI
from softbellman.analysis.records import Records
from softbellman.analysis.scores import best_score
from softbellman.analysis.statistics import known_mean
from softbellman.operators.spec import family
from softbellman.paper.grid import Scale

COLUMNS = (
    *("test_return", "updates", "held_out_value", "overestimation"),
    *("gradient_norm", "gradient_norm_of_mean", "gradient_variance", "seconds"),
)
_PARAMETER = re.compile(r"(?<=\()[\d.e+-]+(?=\))")


class Missing(NamedTuple):
    """Runs that a view or a claim lacks.

    Attributes:
        runs: how many are missing.
        asked: how many there are in all.
        text: which, in a few words.
        hours: how long they would take one worker at the pace of those that ended; None if none has.
    """

    runs: int
    asked: int
    text: str
    hours: float | None

    @property
    def count(self) -> str:
        """How many, in a sentence without its end."""
        return f"{self.runs} of {self.asked} runs {'is' if self.runs == 1 else 'are'} missing"

    def __str__(self) -> str:
        """Say how many, which, and how long they would take."""
        if not self.runs:
            return "none"
        time = "unknown, for no run has ended" if self.hours is None else f"{duration(self.hours)} of one worker"
        return f"{self.count} ({self.text}); the time they take is {time}"


class Results(NamedTuple):
    """Measurements of the runs of a scale.

    Attributes:
        scale: the scale; its games, arms and seeds are the axes.
        states: `[game, arm, seed]` how each run stands, as `analysis.scores.Scores.states`.
        columns: of `metrics.csv`, by name, `[game, arm, seed, phase]`; NaN of runs that did not finish.
        random: `[game]` the random policy's mean score; NaN if it is not known.
        final: `[game, arm, seed]` mean score of the last phases; NaN: the run does not count.
        maximum: likewise, best test phase.
        learning: likewise, mean of all phases.
    """

    scale: Scale
    states: np.ndarray
    columns: Mapping[str, np.ndarray]
    random: np.ndarray
    final: np.ndarray
    maximum: np.ndarray
    learning: np.ndarray

    @property
    def counted(self) -> np.ndarray:
        """`[game, arm, seed]` which runs count."""
        return (self.states == "finished") | self.diverged

    @property
    def diverged(self) -> np.ndarray:
        """`[game, arm, seed]` which runs diverged."""
        return self.states == "diverged"

    @property
    def agent_steps(self) -> np.ndarray:
        """`[phase]` agent steps before each test phase."""
        return self.scale.config.loop.epoch_steps * np.arange(1, self.scale.phases + 1)

    def late(self, values: np.ndarray) -> np.ndarray:
        """Average `[..., phase]` over the phases of the final score."""
        return known_mean(values[..., -self.scale.final_phases :])

    def early(self, values: np.ndarray) -> np.ndarray:
        """Average `[..., phase]` over as many phases, which end a quarter of the way into the run."""
        end = max(self.scale.phases // 4, self.scale.final_phases)
        return known_mean(values[..., end - self.scale.final_phases : end])

    def of(self, spec: str, values: np.ndarray) -> np.ndarray:
        """Return what an arm has of `[game, arm, ...]`."""
        return values[:, self.scale.arms.index(spec)]

    @property
    def score_scale(self) -> np.ndarray:
        """`[game]` the largest mean final score of an operator minus the random policy's; NaN if that is not positive.

        A negative scale would change signs: where no operator plays better than random actions, none is compared.
        """
        means = known_mean(self.final[:, : len(self.scale.operators)])
        best = np.max(means, axis=1, initial=-np.inf, where=~np.isnan(means))
        return np.where(best > self.random, best - self.random, np.nan)

    @property
    def value_scale(self) -> np.ndarray:
        """`[game]` the mean absolute value of DQN; NaN if it is not positive."""
        found = known_mean(np.abs(self.late(self.of("max", self.columns["held_out_value"]))))
        return np.where(found > 0, found, np.nan)

    def missing(self, needed: np.ndarray) -> Missing:
        """Say which of the runs `[game, arm, seed]` that are needed do not count."""
        lacking = needed & ~self.counted
        alike: dict[tuple[int, int], list[str]] = {}
        for place, spec in enumerate(self.scale.arms):
            alike.setdefault((int(lacking[:, place].sum()), int(needed[:, place].sum())), []).append(spec)
        text = "; ".join(f"{n} of {all_} of {_shortly(named)}" for (n, all_), named in sorted(alike.items()) if n)
        return Missing(int(lacking.sum()), int(needed.sum()), text, self._hours(lacking))

    def hours(self, needed: np.ndarray) -> float | None:
        """Compute the hours of one worker that runs `[game, arm, seed]` took; None if none of them has ended."""
        ended = needed & self.counted
        return self._hours(ended) if ended.any() else None

    def _hours(self, runs: np.ndarray) -> float | None:
        """Estimate the hours of one worker that runs take, from those of the same game that ended, else of all."""
        paces = [_seconds_each(clocks, self.scale.arms) for clocks in self.columns["seconds"][..., -1]]
        known = [pace for pace in paces if pace is not None]
        if not known:
            return None
        each = [pace or float(np.mean(known)) for pace in paces]
        return float(runs.sum(axis=(1, 2)) @ each) / 3600


def read(scale: Scale, records: Records | None) -> Results:
    """Take the results of a scale out of its study's records, or none at all without a study.

    Raises:
        ValueError: if a run's metrics can't be read.
    """
    shape = len(scale.games), len(scale.arms), len(scale.seeds)
    states = np.full(shape, "not begun", dtype=object)
    columns = {name: np.full((*shape, scale.phases), np.nan) for name in COLUMNS}
    final, maximum, learning = (np.full(shape, np.nan) for _ in range(3))
    random = np.array([_random(records, environment) for environment in scale.environments])
    for record in records.runs if records else ():
        run = record.run
        cell = (
            scale.environments.index(run.environment),
            scale.arms.index(run.operator),
            scale.seeds.index(run.seed),
        )
        states[cell] = record.state
        if states[cell] == "diverged":
            final[cell] = maximum[cell] = learning[cell] = random[cell[0]]
        elif states[cell] == "finished":
            phases = record.column("epoch") - 1
            for name in COLUMNS:
                columns[name][cell][phases] = record.column(name)
            scores = columns["test_return"][cell]
            final[cell] = known_mean(scores[-scale.final_phases :])
            maximum[cell] = best_score(scores, columns["updates"][cell])
            learning[cell] = known_mean(scores)
    return Results(scale, states, columns, random, final, maximum, learning)


def deviation(values: np.ndarray) -> float:
    """Compute the standard deviation of a sample, what is not known left out; NaN of fewer than two.

    >>> float(deviation(np.array([1.0, 3.0, np.nan])))
    1.4142135623730951
    """
    known = values[~np.isnan(values)]
    return float(np.std(known, ddof=1)) if len(known) > 1 else float("nan")


def duration(hours: float) -> str:
    """Write a time as one says it.

    >>> duration(13.04), duration(0.5), duration(0.001), duration(12345.6)
    ('about 13.0 hours', 'about 30 minutes', 'about 1 minute', 'about 12,346 hours')
    """
    minutes = max(1, round(60 * hours))
    if minutes < 90:
        return f"about {minutes} minute{'s' * (minutes > 1)}"
    return f"about {hours:,.{1 if hours < 100 else 0}f} hours"


def _shortly(specs: Sequence[str]) -> str:
    """List arms, those that differ in one parameter together.

    >>> _shortly(["max", "double(softmax(1))", "double(softmax(5))"])
    'max, double(softmax(1, 5))'
    >>> _shortly(["max, exploration=policy(softmax(1))", "max, exploration=policy(softmax(5))"])
    '"max, exploration=policy(softmax(1, 5))"'
    """
    families: dict[str, list[str]] = {}
    for spec in specs:
        found = set(_PARAMETER.findall(spec))
        shape = _PARAMETER.sub("{}", spec) if len(found) == 1 else spec
        families.setdefault(shape, []).extend(found if shape != spec else ())
    named = [shape.replace("{}", ", ".join(found)) for shape, found in families.items()]
    return ", ".join(f'"{name}"' if "=" in name else name for name in named)


def _random(records: Records | None, environment: str) -> float:
    """Return the random policy's mean score: as it was played for the study, else as published for an Atari game."""
    played = records.random.get(environment) if records else None
    if played is not None and len(played):
        return float(np.mean(played))
    kind, _, game = environment.partition("/")
    return ATARI[game][0] if kind == "atari" and game in ATARI else float("nan")


def _seconds_each(seconds: np.ndarray, specs: Sequence[str]) -> float | None:
    """Compute the seconds of one worker that a run takes, from the clocks `[operator, seed]` of runs at their end.

    Runs that train together share a clock, which is their group's, and are tested one after the other: clocks of one
    family that follow each other within a second, or 0.05% of a long run, are taken for one.
    """
    families: dict[str, list[float]] = {}
    for spec, clocks in zip(specs, seconds, strict=True):
        families.setdefault(family(spec), []).extend(clocks[~np.isnan(clocks)])
    groups, runs = [], sum(map(len, families.values()))
    for clocks in families.values():
        last = -np.inf
        for clock in sorted(clocks):
            if clock > last + max(1.0, last / 2_000):
                groups.append(clock)
            last = clock
    return float(np.sum(groups)) / runs if runs else None
