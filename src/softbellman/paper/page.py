"""The page of a scale: every figure and table, ours beside the paper's, with verdicts; it opens without a network."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softbellman.envs import MissingExtra
from softbellman.paper.claims import CLAIMS, LEVEL
from softbellman.paper.panels import alone
from softbellman.paper.results import Results
from softbellman.paper.verdicts import STATES, Estimate, Verdict, judge
from softbellman.paper.view import View, lay_out
from softbellman.paper.views import VIEWS
from softbellman.study.report import account
from softbellman.study.report.wording import number, signed
from softbellman.study.store import Study, write_atomically
from softbellman.study.svg import svg_text

_FEW_ROWS = 12  # a longer table is folded, unless the paper's numbers are in it


def write(results: Results, study: Study | None, path: Path) -> Path:
    """Write the page, anew if there is one.

    Args:
        results: the results.
        study: the study that they are of, if there is one.
        path: the page.

    Raises:
        MissingExtra: if a package that draws or writes the page is not installed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render(results, study))
    return path


def render(results: Results, study: Study | None) -> str:
    """Make the page as HTML."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtra("jinja2", "train") from error
    ours, reports = (
        PackageLoader(package, "templates") for package in ("softbellman.paper", "softbellman.study.report")
    )
    templates = Environment(
        loader=ours, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    verdicts = [judge(claim, results) for claim in CLAIMS]
    scale = results.scale
    return templates.get_template("page.html").render(
        style=reports.get_source(templates, "page.css")[0] + ours.get_source(templates, "page.css")[0],
        title=f"The paper, figure by figure: {scale.name}",
        first=first_sentence(results, verdicts),
        scale=scale,
        missing=results.missing(scale.operators),
        level=f"{LEVEL:.2%}",
        verdicts=[_verdict(verdict) for verdict in verdicts],
        sections=[_section(view, results) for view in VIEWS.values()],
        made_with=account.made_with(study) if study else "",
    )


def first_sentence(results: Results, verdicts: Sequence[Verdict]) -> str:
    """Sum up the verdicts on all claims.

    >>> from softbellman.paper import grid, results
    >>> nothing = results.read(grid.SCALES["smoke"], None)
    >>> first_sentence(nothing, [judge(claim, nothing) for claim in CLAIMS])
    "Of the paper's 20 claims about training, 0 are supported, 0 are not supported and 20 are undecided at scale smoke."
    """
    counts = Counter(verdict.state for verdict in verdicts)
    said = [f"{counts[state]} {'is' if counts[state] == 1 else 'are'} {state}" for state in STATES]
    return (
        f"Of the paper's {len(verdicts)} claims about training, {said[0]}, {said[1]} and {said[2]} "
        f"at scale {results.scale.name}."
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


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "name": verdict.name,
        "says": verdict.says,
        "claimed": verdict.claimed,
        "state": verdict.state,
        "kind": verdict.state.replace(" ", "-"),
        "reason": verdict.reason,
        "so_far": verdict.so_far,
        "shown": [
            {
                "reading": shown.reading,
                "label": shown.label,
                "text": described(shown.estimate),
                "n": shown.estimate.n,
            }
            for shown in verdict.shown
        ],
    }


def _section(view: View, results: Results) -> dict[str, Any]:
    data = view.data(results)
    rows = view.analyse(data)
    missing = None if view.measure else view.missing(results)
    pictures = []
    for number_of_row, row in enumerate(view.panels(data) if view.panels else ()):
        for place, panel in enumerate(row):
            svg = svg_text(alone(panel), f"{view.name}-{number_of_row}-{place}")
            pictures.append({"title": panel.title, "svg": svg[svg.index("<svg") :]})
    return {
        "name": view.name,
        "title": view.title,
        "expected": view.expected,
        "notes": view.notes,
        "command": f"softbellman paper run {view.name} --scale {results.scale.name}",
        "missing": str(missing) if missing and missing.runs else "",
        "counted": f"{missing.asked - missing.runs} of {missing.asked} runs" if missing else "",
        "verdicts": [_verdict(verdict) for verdict in view.check(data)],
        "pictures": pictures,
        "table": lay_out(rows),
        "folded": len(rows) > _FEW_ROWS and "paper" not in rows[0],
    }
