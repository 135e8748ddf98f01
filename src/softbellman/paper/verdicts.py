"""Verdicts on claims: intervals of differences paired by seed, stratified by game, and what follows from them."""

import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from softbellman.analysis.statistics import Interval
from softbellman.paper.arms import needed, readings, take
from softbellman.paper.claims import LEVEL, Claim
from softbellman.paper.results import Results
from softbellman.report.wording import count

State = Literal["supported", "not supported", "undecided"]
STATES: tuple[State, ...] = ("supported", "not supported", "undecided")


class Estimate(NamedTuple):
    """The mean over games of the mean over seeds, and its interval.

    Attributes:
        mean: the mean; None without any difference.
        interval: Student's; None if a game has fewer than two.
        n: how many differences there are.
        games: in how many games.
    """

    mean: float | None
    interval: Interval | None
    n: int
    games: int


class Shown(NamedTuple):
    """An estimate: how parameters were chosen, of what it is, and the numbers."""

    reading: str
    label: str
    estimate: Estimate


class Verdict(NamedTuple):
    """Verdict on a claim.

    Attributes:
        name: the claim's.
        says: what the paper says.
        claimed: what is claimed of the differences; empty for what needs no statistics.
        state: supported, not supported or undecided.
        reason: why it is so.
        shown: the estimates, those that the verdict is given by first.
        so_far: the estimates are of a part of the runs, and decide nothing.
    """

    name: str
    says: str
    claimed: str
    state: State
    reason: str
    shown: Sequence[Shown] = ()
    so_far: bool = False


def estimate(difference: np.ndarray, level: float = LEVEL) -> Estimate:
    """Estimate a mean difference, stratified by game.

    Args:
        difference: `[game, seed]`; NaN: none. A game without any is left out.
        level: the interval's level, in `(0, 1)`.

    >>> found = estimate(np.array([[1.0, 3.0], [4.0, 8.0]]), 0.95)
    >>> found.mean, [round(end, 3) for end in found.interval]
    (4.0, [-0.811, 8.811])
    """
    games = [known for row in difference if len(known := row[np.isfinite(row)])]
    n = sum(map(len, games))
    if not games:
        return Estimate(None, None, 0, 0)
    middle = float(np.mean([np.mean(row) for row in games]))
    if min(map(len, games)) < 2:
        return Estimate(middle, None, n, len(games))
    variances = [float(np.var(row, ddof=1)) / len(row) if np.ptp(row) else 0.0 for row in games]
    half = float(stats.t.ppf(0.5 + level / 2, n - len(games)) * sum(variances) ** 0.5 / len(games))
    return Estimate(middle, (middle - half, middle + half), n, len(games))


def judge(claim: Claim, results: Results) -> Verdict:
    """Give the verdict on a claim, by the first reading; the others are shown beside it."""
    names = claim.name, claim.says, claim.claimed
    games = [place for place, game in enumerate(results.scale.games) if not claim.games or game in claim.games]
    if not games:
        return Verdict(*names, "undecided", f"scale {results.scale.name} has no {' or '.join(claim.games)}")
    differences: dict[str, list[np.ndarray]] = {}
    for reading in readings(results.scale):
        pick = functools.cache(functools.partial(take, results, reading=reading))
        differences[reading] = [part.difference(results, pick, reading)[games] for part in claim.parts]
    own = next(iter(differences.values()))
    shown = [
        Shown(reading, part.label, estimate(difference))
        for reading, found in differences.items()
        for part, difference in zip(claim.parts, found, strict=True)
        if found is own or (np.isfinite(difference).any() and not np.array_equal(found, own, equal_nan=True))
    ]
    runs = needed(results, claim.needs)
    runs[[game not in games for game in range(len(results.scale.games))]] = False
    missing = results.missing(runs)
    if missing.runs:
        return Verdict(*names, "undecided", missing.count, shown, so_far=True)
    if fault := _fault(results, games, runs, own):
        return Verdict(*names, "undecided", fault, shown)
    if not results.scale.decides:
        return Verdict(*names, "undecided", f"scale {results.scale.name} decides nothing", shown)
    return Verdict(*names, *decide(claim, [each.estimate.interval for each in shown[: len(own)]]), shown)


def decide(claim: Claim, intervals: Sequence[Interval | None]) -> tuple[State, str]:
    """Decide a claim by the intervals of its parts, and say why."""
    known = [interval for interval in intervals if interval is not None]
    if len(known) < len(intervals):
        return "undecided", "a game has fewer than two seeds"
    which = "both intervals lie" if len(known) > 1 else "the whole interval lies"
    sides = [_side(interval, claim) for interval in known]
    if all(side == "claimed" for side in sides):
        return "supported", f"{which} on the claimed side"
    if "other" in sides:
        return "not supported", "a whole interval lies on the other side of the margin"
    return "undecided", "an interval holds the margin"


def _side(interval: Interval, claim: Claim) -> str:
    low, high = interval if claim.side == ">" else (-interval[1], -interval[0])
    margin = claim.margin if claim.side == ">" else -claim.margin
    return "claimed" if low > margin else "other" if high < margin else "both"


def _fault(results: Results, games: Sequence[int], runs: np.ndarray, differences: Sequence[np.ndarray]) -> str:
    """Say why differences can't be had though every run counts, or nothing if they can."""
    faults = []
    for row, game in enumerate(games):
        if all(np.isfinite(each[row]).all() for each in differences):
            continue
        diverged = int((runs & results.diverged)[game].sum())
        reasons = [f"{count(diverged, 'run')} diverged, without values or gradients"] if diverged else []
        if np.isnan(results.random[game]):
            reasons.append("the random policy's score is not known")
        elif np.isnan(results.score_scale[game]):
            reasons.append("no operator plays better than random actions")
        faults.append(
            f"{results.scale.games[game]} has no difference: {', '.join(reasons) or 'not all of it is known'}"
        )
    return "; ".join(faults)
