"""Contents of a scale for its page and its document: first sentence, verdicts, a section for each view."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from softbellman.analysis.records import Records
from softbellman.paper.arms import ARMS, chosen, needed
from softbellman.paper.claims import CLAIMS, LEVEL
from softbellman.paper.figures.view import View, lay_out
from softbellman.paper.results import Results, duration
from softbellman.paper.verdicts import STATES, Estimate, Verdict, judge
from softbellman.paper.views import VIEWS
from softbellman.report import account
from softbellman.report.wording import count, number, signed

FEW_ROWS = 12  # a longer table is folded, unless the paper's numbers are in it


def contents(results: Results, records: Records | None) -> dict[str, Any]:
    """Gather what a template needs: all but the pictures, which differ between a page and a document."""
    scale = results.scale
    verdicts = [judge(claim, results) for claim in CLAIMS]
    made = dict(account.facts(records)) if records and results.counted.any() else {}
    return {
        "title": f"The paper, figure by figure: {scale.name}",
        "first": first_sentence(results, verdicts),
        "scale": scale,
        "missing": results.missing(needed(results, ARMS)),
        "level": f"{LEVEL:.2%}",
        "chosen": chosen(scale),
        "verdicts": [_verdict(verdict) for verdict in verdicts],
        "sections": [_section(view, results) for view in VIEWS.values()],
        "made_with": account.made_with(records.study) if records else "",
        "made": {name: made[name] for name in ("learner", "tests", "software", "hardware") if name in made},
    }


def first_sentence(results: Results, verdicts: Sequence[Verdict]) -> str:
    """Sum up the verdicts on all claims.

    >>> from softbellman.paper import grid, results
    >>> nothing = results.read(grid.SCALES["smoke"], None)
    >>> first_sentence(nothing, [judge(claim, nothing) for claim in CLAIMS])[99:]
    'at scale smoke (1 game of MinAtar, 2 seeds, 4,000 agent steps a run): 22 of 22 runs are missing.'
    """
    counts = Counter(verdict.state for verdict in verdicts)
    said = [f"{counts[state]} {'is' if counts[state] == 1 else 'are'} {state}" for state in STATES]
    scale, missing = results.scale, results.missing(needed(results, ARMS))
    return (
        f"Of the paper's {len(verdicts)} claims about training, {said[0]}, {said[1]} and {said[2]} at scale "
        f"{scale.name} ({count(len(scale.games), 'game')} of {'Atari' if scale.is_atari else 'MinAtar'}, "
        f"{count(len(scale.seeds), 'seed')}, {scale.config.loop.steps:,} agent steps a run)"
        f"{f': {missing.count}' if missing.runs else ''}."
    )


def described(estimate: Estimate) -> str:
    """Write an estimate with its interval.

    >>> described(Estimate(0.5, (0.25, 0.75), 10, 2)), described(Estimate(None, None, 0, 0))
    ('+0.500 (0.250 to 0.750)', 'nothing yet')
    """
    if estimate.mean is None:
        return "nothing yet"
    if estimate.interval is None:
        return signed(estimate.mean, 3)
    low, high = estimate.interval
    return f"{signed(estimate.mean, 3)} ({number(low, 3)} to {number(high, 3)})"


def sample(estimate: Estimate) -> str:
    """Write of how many differences an estimate is, and of how many games: before all have run, it may be of one.

    >>> sample(Estimate(0.5, None, 5, 1)), sample(Estimate(0.5, None, 15, 3)), sample(Estimate(None, None, 0, 0))
    ('5 in 1 game', '15 in 3 games', '0')
    """
    return f"{estimate.n} in {count(estimate.games, 'game')}" if estimate.n else "0"


def _verdict(verdict: Verdict) -> dict[str, Any]:
    shown = [
        {"reading": one.reading, "label": one.label, "text": described(one.estimate), "n": sample(one.estimate)}
        for one in verdict.shown
    ]
    deciding = [one for one in shown if one["reading"] == shown[0]["reading"]]
    return verdict._asdict() | {"kind": verdict.state.replace(" ", "-"), "shown": shown, "deciding": deciding}


def _section(view: View, results: Results) -> dict[str, Any]:
    data = view.data(results)
    rows = view.analyse(data)
    missing = None if view.measure else view.missing(results)
    hours = None if view.measure else results.hours(needed(results, view.arms))
    return {
        "view": view,
        "data": data,
        "name": view.name,
        "title": view.title,
        "expected": view.expected,
        "notes": view.meaning(results.scale),
        "command": f"softbellman paper run {view.name} --scale {results.scale.name}",
        "missing": str(missing) if missing and missing.runs else "",
        "diverged": view.diverged(results),
        "counted": f"{missing.asked - missing.runs} of {missing.asked} runs" if missing else "",
        "took": "seconds" if view.measure else "nothing yet" if hours is None else f"{duration(hours)} of one worker",
        "verdicts": [_verdict(verdict) for verdict in view.check(data)],
        "table": lay_out(rows),
        "folded": len(rows) > FEW_ROWS and "paper" not in rows[0],
    }
