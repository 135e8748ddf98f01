"""The report of a comparison: one page that needs no network, with figures as SVG and tables as CSV beside it.

    <study>/report/index.html       the page; figures and films of up to 3 MB are within it
    <study>/report/figures/*.svg    each figure with its legend
    <study>/report/tables/*.csv     see `report.tables`
    <study>/report/videos/          the films
    <study>/report/files.txt        the names of all these, by which the next report removes what it does not write

Numbers are found in `findings`, put into words in `conclusions` and into cells in `cells`; `page` makes a page of all.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from softbellman.analysis.curves import Band, align, collect_curves, mean_band
from softbellman.analysis.findings import Found, across, find_all, under_way
from softbellman.analysis.records import Records
from softbellman.analysis.scores import Scores
from softbellman.analysis.statistics import performance_profile
from softbellman.analysis.sweeps import points, sweeps
from softbellman.config.arms import joined
from softbellman.operators.spec import plain
from softbellman.report import page, pictures
from softbellman.report.by_parameter import Beside, draw_sweeps, drawn
from softbellman.report.films import film_best
from softbellman.report.page import Live, Picture, Section
from softbellman.report.pictures import Curves, panels
from softbellman.report.published import NOTE, published_curve
from softbellman.report.svg import alone, svg_text
from softbellman.report.tables import of_operators, write_tables
from softbellman.study.files import write_atomically
from softbellman.training.metrics import Panel, rare

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "table", "write"]

_SIZE = (5.2, 3.7)  # inches of 72 points: on a phone, a panel of a page has about its true size


def write(
    records: Records, found: Sequence[Found], out: Path | None = None, *, films: bool = True, live: Live | None = None
) -> Path:
    """Writes the report of a study, anew if there is one; the same study gives the same page.

    Of what a report before it wrote there, also of another study, nothing that it does not write again stays.

    Args:
        records: what its runs left; those that failed or diverged do not count, those under way if none has finished.
        found: what it found in each environment, by `find_all`.
        out: its directory; by default `report/` in the study's.
        films: films a game of each operator's best agent, where that can be done.
        live: has the page reload itself, and says so; for a study under way.

    Returns:
        The page's path.

    Raises:
        ValueError: if no run has finished a test phase yet.
        MissingExtra: if a package that draws or writes the page is not installed.
    """
    study = records.study
    folder = out or study.path / "report"
    if not any(record.rows for record in records.runs):
        raise ValueError(f"no run of {study.path} has finished a test phase yet: there is nothing to report")
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    curves = {environment: _curves(records, environment) for environment in study.environments}
    sections = [
        Section(
            each,
            _pictures(records, each, curves[each.environment], folder / "figures"),
            film_best(records, each.environment, folder / "videos") if films else [],
        )
        for each in found
    ]
    games, common = across(records) if len(study.environments) > 1 else ([], None)
    scale = "" if common is None else common.scale
    profile = None if common is None else _profile(common, folder / "figures")
    written = write_tables(records, found, curves, games, folder / "tables")
    written += [each.file for section in sections for each in section.pictures if each.file]
    written += [profile.file] if profile and profile.file else []
    written += [file for section in sections for film in section.films for file in film.files]
    write_atomically(folder / "index.html", page.render(records, folder, sections, games, scale, profile, live))
    _remove_leftovers(folder, written)
    return folder / "index.html"


def _remove_leftovers(folder: Path, written: Iterable[Path]) -> None:
    """Removes what an earlier report wrote and this one did not, by the list that it left, and leaves its own."""
    listing, names = folder / "files.txt", sorted(str(file.relative_to(folder)) for file in written)
    for name in set(listing.read_text().splitlines() if listing.exists() else ()).difference(names):
        file = folder / name
        if file.resolve().is_relative_to(folder.resolve()) and file.is_file():
            file.unlink()
    write_atomically(listing, "".join(f"{name}\n" for name in names))


def table(records: Records) -> list[dict[str, Any]]:
    """Compares the operators of a study, a row for each in each environment."""
    return list(of_operators(find_all(records)))


def plot(records: Records) -> "Figure":
    """Draws scores, overestimation and values of a study, means over the seeds with 95% intervals, by environment."""
    environments = records.study.environments
    figure = pictures.new_figure(13.2, 3.4 * len(environments) + 0.6)
    for row, environment in zip(figure.subplots(len(environments), 3, squeeze=False), environments, strict=True):
        unit = _unit(records, environment)
        for axis, (column, curves) in zip(row, _curves(records, environment).items(), strict=False):
            axis.set_title(f"{environment}: {panels()[column].title.lower()}", fontsize="medium")
            pictures.draw_panel(axis, panels()[column], curves, unit)
    pictures.add_legend(figure, list(enumerate(records.study.operators)))
    return figure


def _curves(records: Records, environment: str) -> dict[str, list[Curves]]:
    """Collects what is shown, by column: of each operator the runs that count, and their mean up to the shortest."""
    partial, found = under_way(records), {}
    for column in panels():
        shown = []
        for number, operator in enumerate(records.study.operators):
            seeds = collect_curves(records, column, operator, environment, partial=partial)
            if seeds:
                shown.append(Curves(number, seeds, mean_band(align(list(seeds.values())))))
        if shown or column not in rare():
            found[column] = shown
    return found


def _unit(records: Records, environment: str) -> str:
    partial = under_way(records)
    frames = [
        frames / steps
        for operator in records.study.operators
        for steps, frames in collect_curves(records, "env_frames", operator, environment, partial=partial).values()
    ]
    return pictures.step_unit(np.concatenate(frames) if frames else np.empty(0))


def _pictures(records: Records, found: Found, curves: dict[str, list[Curves]], folder: Path) -> list[Picture]:
    """Draws an environment's pictures: the score, its intervals, then the other panels."""
    environment, unit, made = found.environment, _unit(records, found.environment), []
    for column, shown in curves.items():
        panel = panels()[column]
        if not shown:
            made.append(Picture(panel.title, panel.meaning, None, "not drawn: no run that counts has measured it"))
            continue

        behind = published_curve(environment, records.study.config) if column == "test_return" else None

        def draw(
            axis: Any, name: str, panel: Panel = panel, shown: list[Curves] = shown, behind: Band | None = behind
        ) -> str:
            cut = pictures.draw_panel(axis, panel, shown, unit, name=name, each_seed=True, behind=behind)
            beyond = "A band that reaches the edge goes on beyond it." if cut else ""
            return " ".join(filter(None, [beyond, _fewer(found, shown), NOTE if behind else ""]))

        operators = [(curve.number, records.study.operators[curve.number]) for curve in shown]
        made.append(_picture(f"{plain(environment)}-{column}", panel.title, panel.meaning, draw, operators, folder))

    rows = [
        (number, row.operator, row.final, found.scores[number]) for number, row in enumerate(found.rows) if row.counted
    ]

    def draw_scores(axis: Any, name: str) -> str:
        cut = pictures.draw_intervals(axis, "raw score a game", rows, name=name)
        return "An interval that reaches the edge goes on beyond it." if cut else ""

    if rows:
        label = found.label.removeprefix("test score, ")
        meaning = f"{label[0].upper()}{label[1:]}; pale dots are runs, the line is the 95% interval of their mean."
        name, added = f"{plain(environment)}-scores", pictures.height_added([row[1] for row in rows])
        made.insert(1, _picture(name, "Scores compared", meaning, draw_scores, [], folder, added))
    return made + _sweeps(records, environment, folder)


def _fewer(found: Found, shown: list[Curves]) -> str:
    """Says which means are somewhere of fewer runs than count, for the others have no value there."""
    least = [(found.rows[number], int(band.n.min())) for number, _, band in shown if band is not None]
    few = joined(f"{n} of {row.counted} of {row.operator}" for row, n in least if n < row.counted)
    return f"Some points are of fewer runs, for others have no value there: down to {few}." if few else ""


def _sweeps(records: Records, environment: str, folder: Path) -> list[Picture]:
    """Draws quantities of an environment against the parameter of families of operators, if there are any."""
    study, partial, made = records.study, under_way(records), []
    found = [(study.operators.index(sweep.operators[0]), sweep) for sweep in sweeps(study)]
    if not found:
        return []
    first, beside = study.operators[0], None
    if not any(first in sweep.operators for _, sweep in found):
        beside = Beside(first, points(records, environment, "action_gap", partial=partial)[first].mean)
    for column, panel in drawn().items():
        values = points(records, environment, column, partial=partial)
        if not any(np.isfinite(values[name].mean) for _, sweep in found for name in sweep.operators):
            continue

        def draw(axis: Any, name: str, panel: Panel = panel, values: Any = values) -> str:
            cut = draw_sweeps(axis, panel, found, values, beside)
            return "An interval that reaches the edge goes on beyond it." if cut else ""

        meaning = "Mean of the test phases that a final score is of, and over seeds, with 95% intervals."
        name, title = f"{plain(environment)}-{column}-by-parameter", f"{panel.title} by parameter"
        made.append(_picture(name, title, meaning, draw, [], folder))
    return made


def _profile(common: Scores, folder: Path) -> Picture | None:
    """Draws the performance profiles of normalised scores, if every operator has one in every game."""
    values = [common.across(operator) for operator in common.operators]
    if any(np.isnan(each).all(axis=1).any() for each in values):
        return None
    low, high = min(0.0, np.nanmin(values)), np.nanmax(values)
    thresholds = np.linspace(low, high + (0.02 * (high - low) or 0.02), 201)  # up to where no run scores more
    shares = [performance_profile(each, thresholds) for each in values]

    def draw(axis: Any, name: str) -> str:
        pictures.draw_profile(axis, "normalised score", thresholds, shares, name=name)
        return ""

    meaning = "Share of runs that score more, all games alike."
    return _picture("games-profile", "Performance profile", meaning, draw, list(enumerate(common.operators)), folder)


def _picture(
    name: str,
    title: str,
    meaning: str,
    draw: Callable[[Any, str], str],
    operators: list[tuple[int, str]],
    folder: Path,
    added: float = 0.0,
) -> Picture:
    """Draws a picture for the page, `added` inches higher, and writes it with title and legend into its own file."""
    figure = pictures.new_figure(_SIZE[0], _SIZE[1] + added)
    from matplotlib import rc_context

    with rc_context({"font.size": 11}):
        note = draw(figure.subplots(), name.replace(".", "-"))  # the page finds parts by what follows a dot
        svg = svg_text(figure, name)
    looks = [(pictures.look(number), spec) for number, spec in operators]
    legend = [(look.colour, look.dashes, spec) for look, spec in looks]
    write_atomically(file := folder / f"{name}.svg", alone(svg, title, legend))
    return Picture(title, meaning, svg, note, file)
