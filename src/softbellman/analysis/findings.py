"""Findings of a comparison in one environment: scores, differences and choices, each computed once."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from softbellman.analysis.choice import FIXED, choose_parameter, families
from softbellman.analysis.normalised import normalise
from softbellman.analysis.records import Records
from softbellman.analysis.scores import SUMMARIES, Aggregate, Scores, Summary, aggregate, collect, summarise
from softbellman.analysis.statistics import (
    Difference,
    Interval,
    improvement_interval,
    paired_difference,
    permutation_test,
    probability_of_improvement,
    simultaneous_differences,
)
from softbellman.study.store import Study

FIXED_BEFOREHAND = "fixed beforehand"


class Row(NamedTuple):
    """One operator in one environment: a row of the table that ends a comparison.

    Attributes:
        environment: name of the environment.
        operator: name of the operator or arm.
        counted: runs that count, of those asked for.
        asked: runs asked for.
        missing: the others, by how they stand.
        final: what runs scored in the end, see `scores.final_phases`.
        best: what its best test phase scored.
        last_phase: what a run's last test phase scored.
        difference: `final` minus that of the study's first operator on common seeds; None for the first itself.
        improvement: probability that a run scores more than one of the first operator; None for the first itself.
        improvement_interval: its bootstrap interval.
        simultaneous: the same over all runs, its interval Dunnett's, where there are several comparisons; else None.
        permutation: p-value of a permutation test of `difference`.
        unfinished: runs that count in whose `final` a test phase is in which no game ended: the unfinished one's score.
    """

    environment: str
    operator: str
    counted: int
    asked: int
    missing: dict[str, int]
    final: Summary
    best: Summary
    last_phase: Summary
    difference: Difference | None
    improvement: float | None
    improvement_interval: Interval | None
    simultaneous: Difference | None = None
    permutation: float | None = None
    unfinished: int = 0

    @property
    def told(self) -> Difference | None:
        """The difference that conclusions are drawn from: corrected for how many there are."""
        return self.simultaneous or self.difference


class Choice(NamedTuple):
    """A family of operators whose parameter was chosen in one of three ways, against the study's first operator.

    Attributes:
        family: such as `double(softmax)`.
        way: how the parameter was chosen.
        chosen: what was chosen.
        scores: what the chosen runs scored.
        difference: that minus the first operator's, on common seeds; None if it is of the family itself.
    """

    family: str
    way: str
    chosen: str
    scores: Summary
    difference: Difference | None


class Found(NamedTuple):
    """Findings of a comparison in one environment.

    Attributes:
        environment: name of the environment.
        rows: one for each operator, in the study's order.
        scores: `[operator, seed]`, the final score of each run.
        label: what those are, and of how many test phases.
        choices: families of two or more parameters, each two ways, or three where the one fixed beforehand was run.
        overestimation: for each operator its mean, and the difference to the first, corrected as `Row.told`; None too
            where an arm's values are in other units.
        random: what the random policy scored, over its games; None if it was not played.
        noun: what is compared, an operator or an arm.
        environments: how many the study has.
    """

    environment: str
    rows: list[Row]
    scores: np.ndarray
    label: str
    choices: list[Choice]
    overestimation: list[tuple[str, Summary, Difference | None]]
    random: Summary | None
    noun: str = "operator"
    environments: int = 1


class Across(NamedTuple):
    """One operator over all environments of a comparison.

    Attributes:
        operator: its name.
        counted: runs that count, of those asked for.
        asked: runs asked for.
        improvement: mean over environments of the probability that a run scores more than one of the first operator.
        improvement_interval: its bootstrap interval.
        normalised: what the operator scored on a common scale, where there is one for every environment.
    """

    operator: str
    counted: int
    asked: int
    improvement: float | None
    improvement_interval: Interval | None
    normalised: Aggregate | None


def under_way(records: Records) -> bool:
    """Tells whether no run of a study has finished yet, so that those under way are all there is to report on."""
    states = collect(records, "final").states
    return not (states == "finished").any()


def scores_of_runs(records: Records) -> dict[str, Scores]:
    """Collects the scores of each run by summary: those under way too, abreast where no run has finished."""
    abreast = under_way(records)
    return {name: collect(records, name, partial=True, abreast=abreast) for name in SUMMARIES}


def find_all(records: Records) -> list[Found]:
    """Compares the operators of a study in each of its environments."""
    return [find(records, environment) for environment in records.study.environments]


def find(records: Records, environment: str) -> Found:
    """Compares the operators of a study in one environment with the first of them.

    Runs that failed or diverged do not count. Those that have not ended do only if none has finished, and then all of
    the environment's count as far as the shortest has come.
    """
    partial = under_way(records)
    by_summary = {
        name: collect(records, name, partial=partial, abreast=partial) for name in ("final", "best", "last_phase")
    }
    flagged = collect(records, "final", "test_unfinished", partial=partial, abreast=partial)
    scores, game = by_summary["final"], by_summary["final"].games.index(environment)
    baseline, rows = scores.operators[0], []
    corrected = [None, *_simultaneous([scores.of(each, environment) for each in scores.operators])]
    for operator, simultaneous in zip(scores.operators, corrected, strict=True):
        own, first = scores.of(operator, environment), scores.of(baseline, environment)
        final, best, last_phase = (summarise(each.of(operator, environment)) for each in by_summary.values())
        another = operator != baseline
        rows.append(
            Row(
                environment,
                operator,
                final.counted,
                final.asked,
                scores.missing(operator, environment),
                final,
                best,
                last_phase,
                paired_difference(own, first) if another else None,
                probability_of_improvement(own, first) if another else None,
                improvement_interval(own, first) if another else None,
                simultaneous,
                permutation_test(own, first) if another else None,
                int((flagged.of(operator, environment) > 0).sum()),
            )
        )
    over = collect(records, "final", "overestimation", partial=partial, abreast=partial)
    values = {operator: over.of(operator, environment) for operator in over.operators}
    alike = [operator for operator in values if _units(records.study, operator) == _units(records.study, baseline)]
    differences = dict(zip(alike[1:], _differences([values[operator] for operator in alike]), strict=True))
    overestimation = [(operator, summarise(own), differences.get(operator)) for operator, own in values.items()]
    chance = records.random[environment]
    random = None if chance is None else summarise(chance)
    study = records.study
    chosen = choices(scores, environment, {name: arm.family for name, arm in study.arms.items()})
    return Found(
        environment,
        rows,
        scores.values[game],
        scores.label,
        chosen,
        overestimation,
        random,
        study.noun,
        len(study.environments),
    )


def _simultaneous(scores: Sequence[np.ndarray]) -> Sequence[Difference | None]:
    """Compares several arms `[seed]` with the first; None for each where only one has scores to compare."""
    first, *others = (int((~np.isnan(each)).sum()) for each in scores)
    alone = len(others) == 1 or (first >= 2 and sum(n >= 2 for n in others) == 1)
    return [None] * len(others) if alone else simultaneous_differences(scores)


def _differences(scores: Sequence[np.ndarray]) -> list[Difference]:
    """Compares arms `[seed]` with the first: one on common seeds, several by intervals that hold together."""
    first, *others = scores
    corrected = _simultaneous(scores)
    return [given or paired_difference(own, first) for given, own in zip(corrected, others, strict=True)]


def _units(study: Study, operator: str) -> tuple[Any, ...]:
    """Returns settings of an arm without which its values can't be compared with those of another."""
    config = study.arms[operator].config(study.config)
    return config.learner.gamma, config.learner.reward_scale, config.learner.reward_clip, config.recipe.gap


def choices(scores: Scores, environment: str, family_of: Mapping[str, str]) -> list[Choice]:
    """Compares each family of operators with the first operator, its parameter chosen in two or three ways.

    Args:
        scores: the scores of a study.
        environment: the environment.
        family_of: the family of each operator; those of a family differ in the operator's parameters alone.
    """
    baseline, found = scores.operators[0], []
    for name, candidates in families(family_of).items():
        chosen = choose_parameter(scores, candidates, FIXED.get(name), environment)
        ways = [("best on the same runs", chosen.best), ("chosen on the other seeds", chosen.left_out)]
        if chosen.fixed is not None:
            ways.append((FIXED_BEFOREHAND, chosen.fixed))
        for way, pick in ways:
            difference = None
            if baseline not in candidates:
                difference = paired_difference(pick.scores, scores.of(baseline, environment))
            found.append(Choice(name, way, pick.described, summarise(pick.scores), difference))
    return found


def across(records: Records) -> tuple[list[Across], Scores | None]:
    """Compares the operators over all environments of a study.

    Returns:
        A row for each operator, and the scores on a common scale, or None if there is none for every environment.
    """
    partial = under_way(records)
    scores = collect(records, "final", partial=partial, abreast=partial)
    try:
        common = normalise(scores)
    except ValueError:  # games whose scale nobody has measured
        common = None
    first, rows = scores.across(scores.operators[0]), []
    for number, operator in enumerate(scores.operators):
        own = scores.across(operator)
        rows.append(
            Across(
                operator,
                int((~np.isnan(own)).sum()),
                own.size,
                probability_of_improvement(own, first) if number else None,
                improvement_interval(own, first) if number else None,
                aggregate(common, operator) if common else None,
            )
        )
    return rows, common
