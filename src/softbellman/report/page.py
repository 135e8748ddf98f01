"""HTML page of a study: figures, films that are not too large, style and script within one file."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from softbellman.analysis.findings import FIXED_BEFOREHAND, Across, Found, under_way
from softbellman.analysis.records import Records
from softbellman.config.arms import joined
from softbellman.extras import MissingExtra
from softbellman.report import account, cells
from softbellman.report.cells import Operator
from softbellman.report.conclusions import conclude
from softbellman.report.films import Film
from softbellman.report.pictures import BAND_SEEDS
from softbellman.report.wording import count, listed
from softbellman.study.store import Study

LARGEST_FILM = 3_000_000  # bytes of a film that is still put into the page; a larger one is linked
LARGEST_FILMS = 30_000_000  # bytes of all of them
RELOAD = 5  # seconds
MANY = 4  # so many operators are named in the title
MOST_BANDS = 8  # of so many operators bands can still be told apart


class Picture(NamedTuple):
    """A figure of the page.

    Attributes:
        title: its title.
        meaning: what it shows, in a sentence.
        svg: the figure, or None if there is nothing to draw.
        note: what must be known to read this one right, or an empty text.
        file: where it is alone, with title and legend; None if there is nothing to draw.
    """

    title: str
    meaning: str
    svg: str | None
    note: str
    file: Path | None = None


class Live(NamedTuple):
    """Page of a study under way.

    Attributes:
        ended: how far the study is.
        moment: when the page was written.
        seconds: time until it reloads itself.
    """

    ended: str
    moment: str
    seconds: int = RELOAD


class Section(NamedTuple):
    """Section of the page, about one environment."""

    found: Found
    pictures: list[Picture]
    films: list[Film]


def render(
    records: Records,
    folder: Path,
    sections: Sequence[Section],
    games: Sequence[Across],
    scale: str,
    profile: Picture | None,
    live: Live | None = None,
) -> str:
    """Writes the page.

    Args:
        records: what the runs of the study left.
        folder: where the page will be.
        sections: its environments.
        games: what it found over all of them; empty if there is but one.
        scale: what makes their scores comparable, with its source; empty if nothing does.
        profile: the picture of that, or None.
        live: has the page reload itself, and says so.

    Raises:
        MissingExtra: if jinja2 is not installed.
    """
    made, study = templates(escape=True), records.study
    operators = cells.operators_of(study)
    limit = min(LARGEST_FILM, LARGEST_FILMS // max(1, sum(len(section.films) for section in sections)))
    return made.get_template("page.html").render(
        title=_title(study),
        lead=_lead(records, sections),
        live=live,
        style=made.loader.get_source(made, "page.css")[0],
        script=made.loader.get_source(made, "page.js")[0],
        operators=list(operators.values()),
        bands=len(operators) <= MOST_BANDS,
        spread=any(row.counted > 1 for section in sections for row in section.found.rows),
        banded=any(row.counted >= BAND_SEEDS for section in sections for row in section.found.rows),
        sections=[_section(section, operators, folder, limit) for section in sections],
        noun=study.noun,
        games=_games(games, operators, scale, profile, study.noun),
        facts=list(account.facts(records)),
        runs=cells.of_runs(records, operators),
        settings=account.settings(study),
        commands=account.commands(study),
        made_with=account.made_with(study),
        record=_data("application/json", account.record(study).encode()),
    )


def templates(*, escape: bool, package: str = "softbellman.report") -> Any:
    """Loads the templates of a package; those of a report, whose style pages share, are `report/...` there.

    Args:
        escape: whether what is put into them is escaped as HTML.
        package: the package.

    Raises:
        MissingExtra: if jinja2 is not installed.
    """
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined
    except ModuleNotFoundError as error:
        raise MissingExtra("jinja2", "train") from error
    own, reports = (PackageLoader(each, "templates") for each in (package, "softbellman.report"))
    loader = ChoiceLoader([own, PrefixLoader({"report": reports})])
    return Environment(
        loader=loader, autoescape=escape, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _title(study: Study) -> str:
    operators, environments = study.operators, study.environments
    return (
        f"{listed(operators) if len(operators) <= MANY else count(len(operators), study.noun)} on "
        f"{environments[0] if len(environments) == 1 else count(len(environments), 'environment')}"
    )


def _lead(records: Records, sections: Sequence[Section]) -> str:
    study = records.study
    rows = [row for section in sections for row in section.found.rows]
    counted, asked = sum(row.counted for row in rows), sum(row.asked for row in rows)
    runs = f"all {asked} runs count" if counted == asked else f"{counted} of {asked} runs count"
    if counted and under_way(records):
        runs = (
            f"no run has finished yet, and what follows is of {counted} of {asked}; scores are compared up to where "
            f"all of a game's are, and the curves of each {study.noun} go on as far as its own runs"
        )
    return f"{count(len(study.seeds), 'seed')} each, {study.config.loop.steps:,} agent steps a run; {runs}."


def _section(section: Section, operators: dict[str, Operator], folder: Path, limit: int) -> dict[str, Any]:
    found = section.found
    label = found.label.removeprefix("test score, ")
    return {
        "environment": found.environment,
        "sentences": conclude(found),
        "seeds": _seeds(found),
        "pictures": section.pictures,
        "rows": cells.of_operators(found, operators),
        "caption": f"Raw scores a game, means over runs; below each its 95% interval. Final score: {label}.",
        "choices": cells.of_choices(found),
        "fixed": any(choice.way == FIXED_BEFOREHAND for choice in found.choices),
        "films": [_film(film, operators[film.operator], folder, limit) for film in section.films],
    }


def _seeds(found: Found) -> str:
    """Says how many runs are behind each line, and what its band is."""
    counted = {row.operator: row.counted for row in found.rows}
    most = max(counted.values())
    if most == 0:
        return "No run counts, and there is nothing to draw."
    if most == 1:
        return "One seed (n = 1) is behind each line: there is no spread to draw a band from."
    fewer = joined(f"{n} behind {operator}" for operator, n in counted.items() if n != most)
    lines = f"Each line is the mean of {count(most, 'seed')}" + (f" ({fewer})" if fewer else "")
    if most < BAND_SEEDS:
        return f"{lines}; from fewer than {BAND_SEEDS} no band is drawn, for it would fill the figure."
    few = f"; none is drawn from fewer than {BAND_SEEDS}" if min(counted.values()) < BAND_SEEDS else ""
    hidden = " Bands are hidden at first: so many would cover each other." if len(counted) > MOST_BANDS else ""
    return f"{lines}, its band a 95% interval, point by point{few}.{hidden}"


def _games(
    games: Sequence[Across], operators: dict[str, Operator], scale: str, profile: Picture | None, noun: str
) -> dict[str, Any] | None:
    if not games:
        return None
    text = f"Scores are normalised game by game: {scale}. The raw ones are below."
    if not scale:
        text = (
            "Raw scores of different environments have different scales, and these have no common one: they are "
            f"not averaged. How often a run of one {noun} scores more than one of another needs no scale."
        )
    return {
        "rows": cells.of_games(games, operators, noun),
        "text": text,
        "baseline": games[0].operator,
        "profile": profile,
    }


def _film(film: Film, operator: Operator, folder: Path, limit: int) -> dict[str, Any]:
    facts = {"operator": operator, "caption": film.caption, "source": "", "moving": False}
    if film.path is None:
        return facts
    moving = film.path.suffix == ".gif"
    source = str(film.path.relative_to(folder))
    if film.path.stat().st_size <= limit:
        source = _data("image/gif" if moving else "video/mp4", film.path.read_bytes())
    return facts | {"source": source, "moving": moving}


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
