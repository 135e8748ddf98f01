"""Conclusions of a comparison in plain words: what the numbers allow to say, and what not."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from softbellman.analysis.findings import Found, Row
from softbellman.analysis.scores import Summary
from softbellman.analysis.statistics import Difference, Interval, spreads_differ, too_narrow
from softbellman.config.arms import joined
from softbellman.report.wording import count, decimals, decimals_of_difference, ends, listed, number, signed

MANY = 4  # up to so many operators each have a sentence of their own


class _Words(NamedTuple):
    """How a comparison is worded.

    Attributes:
        more: what a positive difference is.
        less: what a negative one is.
        one: says a difference of one operator, by `{name}`, `{amount}`, `{more}` and `{baseline}`.
        many: begins a list of them.
        noun: what is compared.
    """

    more: str
    less: str
    one: str
    many: str
    noun: str


class _Told(NamedTuple):
    """One difference to the baseline: of which arm, from how many seeds, its interval, mean and decimals."""

    name: str
    n: int
    interval: Interval
    mean: float
    digits: int

    @property
    def amount(self) -> str:
        """Its size."""
        return number(abs(self.mean), self.digits)


_SCORES = _Words(
    "more",
    "less",
    "{name} scored {amount} a game {more} than {baseline}",
    "Scored a game {more} than {baseline}",
    "scores",
)
_BESIDE = "than those of {baseline}, each against what its policy obtains"
_VALUES = _Words(
    "higher",
    "lower",
    f"Values of {{name}} lie {{amount}} {{more}} {_BESIDE}",
    f"Values lie {{more}} {_BESIDE}",
    "overestimation",
)


def conclude(found: Found) -> list[str]:
    """Says what can be concluded of an environment: missing runs, unfinished games, scores, chance, values."""
    rows, baseline = found.rows, found.rows[0].operator
    digits = decimals([row.final.mean for row in rows])
    sentences = _missing(rows)
    if cut := [f"{row.operator} ({row.unfinished} of {count(row.counted, 'run')})" for row in rows if row.unfinished]:
        sentences.append(
            f"In final scores of {listed(cut)} are test phases in which no game ended: each is the score of the "
            "unfinished one."
        )
    sentences += _chance(found, digits)
    if len(rows) == 1:
        return [*sentences, _alone(found, digits), *_values(found)]
    others = [(row.operator, row.told) for row in rows if row.told is not None]
    common = max(difference.n for _, difference in others)
    if common < 2:
        why = "one run shows no spread" if common else f"no seed counts both with {baseline} and with another"
        scores = [f"{row.operator} {number(row.final.mean, digits)}" for row in rows if row.final.mean is not None]
        shown = f" Scores a game were {joined(scores)}." if scores else ""
        return [*sentences, f"From {count(common, _seed(others))} no difference can be told: {why}.{shown}"]
    sentences += _compare(others, baseline, _SCORES, _seed(others))
    known = sum(difference.interval is not None and not _is_flat(difference.interval) for _, difference in others)
    if known > 1:
        games = found.environments
        somewhere = f", and {1 - 0.95**games:.0%} in some of {games} environments" if games > 1 else ""
        sentences.append(
            f"These {known} intervals hold all together at 95% (Dunnett's method, which takes the spread of all "
            f"{found.noun}s for one): 5% of studies without any true difference would show one here{somewhere}. The "
            "p-values in the table are those of a paired permutation test, each for itself."
        )
        sentences += _spreads([(row.operator, row.final) for row in found.rows], "final scores")
    return sentences + _values(found)


def _spreads(summaries: Sequence[tuple[str, Summary]], what: str) -> list[str]:
    """Says which intervals of differences to the first, that take all spreads for one, are too wide or too narrow."""
    known = [(name, each.std, each.counted) for name, each in summaries if each.std is not None]
    names, spreads, counts = zip(*known, strict=True)
    if not spreads_differ(counts, spreads):
        return []
    digits, by_size = decimals(spreads), sorted(zip(spreads, names, strict=True))
    low, high = (f"{number(spread, digits)} ({name})" for spread, name in (by_size[0], by_size[-1]))
    narrow = list(itertools.compress(names[1:], too_narrow(counts, spreads)))
    rest = "" if len(narrow) == len(names) - 1 else " and too wide for the rest"
    off = f"too narrow for {listed(narrow)}{rest}" if narrow else "too wide"
    return [f"But spreads differ: standard deviations of {what} lie between {low} and {high}. So intervals are {off}."]


def _missing(rows: Sequence[Row]) -> list[str]:
    """Says of which operators not all runs count, and why; those of which it is the same are named together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.counted < row.asked:
            why = ", ".join(f"{runs} {state}" for state, runs in row.missing.items())
            verb = "counts" if row.counted == 1 else "count"
            alike.setdefault((f"{row.counted} of {row.asked} runs of", f"{verb}: {why}."), []).append(row.operator)
    return [
        f"{counted} {'each of ' if len(names) > 1 else ''}{listed(names)} {why}"
        for (counted, why), names in alike.items()
    ]


def _chance(found: Found, digits: int) -> list[str]:
    """Says which operators play better or worse than random actions: their intervals lie beyond that of chance."""
    random = found.random
    if random is None or random.interval is None:
        return []
    chance = f"{number(random.mean or 0.0, digits)} ({ends(random.interval, digits)} at 95%)"
    lowest, highest = random.interval
    known = [(row.operator, row.final.mean or 0.0, row.final.interval) for row in found.rows if row.final.interval]
    flat = [name for name, _, interval in known if _is_flat(interval)]
    able = {name: mean for name, mean, (low, _) in known if low > highest and name not in flat}
    worse = [name for name, _, (_, high) in known if high < lowest and name not in flat]
    rest = [name for name, _, _ in known if name not in able and name not in worse and name not in flat]
    sentences = []
    if able:
        all_of_them = "Both" if len(found.rows) == 2 else f"All {len(found.rows)}"
        names = f"{all_of_them} {found.noun}s" if len(able) == len(found.rows) > 1 else listed(list(able))
        scores = dict.fromkeys(number(score, digits) for score in (min(able.values()), max(able.values())))
        sentences.append(f"{names} learned: {' to '.join(scores)} a game, where random actions score {chance}.")
    for names, told in ((worse, "scored less than"), (rest, "can't be told from")):
        if names:
            which = "" if sentences else f", which score {chance} a game"
            sentences.append(f"{listed(names)} {told} random actions{which}.")
    if flat:
        which = "" if sentences else f", which score {chance} a game"
        same = listed([f"{name} ({number(mean, digits)} a game)" for name, mean, _ in known if name in flat])
        told = f"Of {same} all runs scored the same: there is no spread to tell them from random actions by"
        sentences.append(f"{told}{which}.")
    return sentences


def _alone(found: Found, digits: int) -> str:
    """Says what the only operator scored."""
    row, label = found.rows[0], found.label.removeprefix("test score, ")
    if row.final.mean is None:
        return f"No run of {row.operator} has a score."
    facts = [label, *_interval(row.final.interval, digits), count(row.counted, "seed")]
    return (
        f"{row.operator} scored {number(row.final.mean, digits)} a game ({', '.join(facts)}). "
        f"There is no other {found.noun} to compare it with."
    )


def _values(found: Found) -> list[str]:
    """Says what can be told of overestimation."""
    (baseline, first, _), *others = found.overestimation
    if first.mean is None or first.interval is None:
        return []
    digits = decimals_of_difference(first.mean, first.interval)
    amount, (low, high) = f"{number(abs(first.mean), digits)}", first.interval
    if low <= 0 <= high:
        told = f"can't be told to lie above or below what its policy goes on to obtain ({signed(first.mean, digits)}, "
    else:
        told = f"lie {amount} {'above' if low > 0 else 'below'} what its policy goes on to obtain ("
    values = f"Values of {baseline} {told}{', '.join(_interval(_outward(first.interval), digits))})."
    differences = [(name, paired) for name, _, paired in others if paired is not None]
    known = [(name, paired) for name, paired in differences if paired.interval is not None]
    sentences = [values, *_compare(known, baseline, _VALUES, _seed(differences))]
    if len(known) > 1:
        sentences.append(f"These {len(known)} intervals hold all together at 95%, apart from those of scores.")
        compared = {baseline, *(name for name, _ in known)}
        sentences += _spreads([(name, own) for name, own, _ in found.overestimation if name in compared], "values")
    if alien := [name for name, _, paired in others if paired is None]:
        sentences.append(
            f"Values of {listed(alien)} have another discount factor, scale or clipping of rewards, or gap, "
            f"and are not compared with those of {baseline}."
        )
    return sentences


def _compare(others: Sequence[tuple[str, Difference]], baseline: str, words: _Words, seed: str) -> list[str]:
    """Says which differences to the baseline can be told, with their intervals, and which can't."""
    known = [
        _Told(name, n, interval, mean, decimals_of_difference(mean, interval))
        for name, (mean, interval, n) in others
        if mean is not None and interval
    ]
    apart = [each for each in known if not each.interval[0] <= 0 <= each.interval[1]]
    told = [each for each in apart if not _is_flat(each.interval)]

    def one(each: _Told) -> str:
        more = words.more if each.mean > 0 else words.less
        return words.one.format(name=each.name, amount=each.amount, more=more, baseline=baseline)

    sentences = [
        f"{one(each)} with each of {count(each.n, seed)}: there is no spread to tell from."
        for each in apart
        if _is_flat(each.interval)
    ]
    for more, sign in ((words.more, 1), (words.less, -1)):
        some = sorted((each for each in told if sign * each.mean > 0), key=lambda each: -sign * each.mean)
        if len(told) <= MANY:
            sentences += [
                f"{one(each)} ({', '.join(_interval(_outward(each.interval), each.digits))}, {count(each.n, seed)})."
                for each in some
            ]
        elif some:
            amounts = [f"{each.name} by {each.amount} ({ends(_outward(each.interval), each.digits)})" for each in some]
            sentences.append(f"{words.many.format(more=more, baseline=baseline)}: {joined(amounts)}.")
    untold = [each for each in known if each.interval[0] <= 0 <= each.interval[1]]
    if untold:
        fewest, most = (choose(each.n for each in untold) for choose in (min, max))
        seeds = count(most, "seed") if fewest == most else f"{fewest} to {most} seeds"
        names = [
            each.name
            if len(untold) > MANY
            else f"{each.name} ({signed(each.mean, each.digits)}, {ends(each.interval, each.digits)})"
            for each in untold
        ]
        sentences.append(
            f"No difference in {words.noun} to {baseline} can be told from {seeds} for {listed(names, 'or')}."
        )
    unknown = [name for name, paired in others if paired.interval is None]
    if unknown:
        sentences.append(f"Of {listed(unknown)} nothing can be told: fewer than two {seed}s count.")
    return sentences


def _seed(others: Sequence[tuple[str, Difference]]) -> str:
    """Names the unit of a comparison: one difference is paired by seeds, several are over all runs."""
    known = sum(difference.interval is not None for _, difference in others)
    return "common seed" if len(others) == 1 or known == 1 else "seed"


def _interval(interval: Interval | None, digits: int) -> list[str]:
    if interval is None:
        return []
    return ["no spread to tell from" if _is_flat(interval) else f"95% interval {ends(interval, digits)}"]


def _is_flat(interval: Interval) -> bool:
    """Tells an interval without a width, of scores that are all the same: that is no certainty."""
    return math.isclose(*interval)


def _outward(interval: Interval) -> Interval:
    """Turns an interval below 0 into one of how far below, as is said with `less` or `below`."""
    return (-interval[1], -interval[0]) if interval[1] < 0 else interval
