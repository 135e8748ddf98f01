"""HTML page of a scale: every figure and table, ours beside the paper's, with verdicts."""

from pathlib import Path
from typing import Any

from softbellman.analysis.records import Records
from softbellman.paper.contents import contents
from softbellman.paper.figures.panels import alone
from softbellman.paper.results import Results
from softbellman.report import page
from softbellman.report.svg import svg_text
from softbellman.study.files import write_atomically


def write(results: Results, records: Records | None, path: Path) -> Path:
    """Write the page, anew if there is one.

    Args:
        results: the results.
        records: those of the study that they are of, if there is one.
        path: the page.

    Raises:
        MissingExtra: if a package that draws or writes the page is not installed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render(results, records))
    return path


def render(results: Results, records: Records | None) -> str:
    """Make the page as HTML."""
    found = contents(results, records)
    found["sections"] = [section | _drawn(section) for section in found["sections"]]
    return templates().get_template("page.html").render(**found)


def templates(escape: bool = True) -> Any:
    """Load the templates: ours, and those of a study's report, whose style the page shares.

    Args:
        escape: whether what is put into them is escaped as HTML.

    Raises:
        MissingExtra: if Jinja is not installed.
    """
    made = page.templates(escape=escape, package="softbellman.paper")
    made.filters["capital"] = lambda text: text[:1].upper() + text[1:]
    return made


def _drawn(section: dict[str, Any]) -> dict[str, Any]:
    """Draw the panels of a section."""
    view, pictures = section["view"], []
    for number_of_row, row in enumerate(view.panels(section["data"]) if view.panels else ()):
        for place, panel in enumerate(row):
            svg = svg_text(alone(panel), f"{view.name}-{number_of_row}-{place}")
            pictures.append({"title": panel.title, "svg": svg[svg.index("<svg") :]})
    return {"pictures": pictures}
