"""Matplotlib figures of runs: one colour and line for each operator throughout a study."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from softbellman.analysis.curves import Band
from softbellman.analysis.records import Records
from softbellman.analysis.scores import Summary
from softbellman.arguments import as_path
from softbellman.extras import MissingExtra
from softbellman.report.svg import svg_text
from softbellman.report.wording import in_lines
from softbellman.study.files import write_atomically
from softbellman.training import metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind tell apart; the yellow is left out, for it fades on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Lengths of dash and gap, in widths of the line. Where the colours begin anew, the next kind of line does.
DASHES = (
    *((), (4.0, 1.6), (1.2, 1.2), (6.0, 1.5, 1.2, 1.5)),
    *((4.0, 4.0), (1.2, 3.0), (4.0, 1.2, 1.2, 1.2, 1.2, 1.2)),
)
BAND_SEEDS = 3  # from fewer, Student's interval is so wide that its band would fill the picture
_TICK, _ENTRY = 24, 60  # letters of a line of an operator's name, beside an axis and in a legend
_FIT = 11  # rows that fit into a picture of the common height
FEW_POINTS = 30  # so many points of a curve are marked one by one


class Look(NamedTuple):
    """How an operator is drawn: a colour, and the dashes and gaps of its lines, none for a solid one."""

    colour: str
    dashes: tuple[float, ...]

    @property
    def line(self) -> dict[str, Any]:
        """The same as keywords of matplotlib's `plot`."""
        return {"color": self.colour, "linestyle": (0, self.dashes) if self.dashes else "-"}


def look(number: int) -> Look:
    """Returns the look of a study's operator by its number, from 0.

    >>> look(1), look(8)
    (Look(colour='#D55E00', dashes=()), Look(colour='#D55E00', dashes=(4.0, 1.6)))
    """
    return Look(COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)])


def panels() -> dict[str, metrics.Panel]:
    """Returns the panels of the page by their columns in `metrics.csv`, in the order of their places."""
    drawn = {measure.name: measure.panel for measure in metrics.MEASURES if measure.panel}
    return dict(sorted(drawn.items(), key=lambda each: each[1].place))


def _of_training() -> dict[str, metrics.Panel]:
    """Returns the panels that a picture of single runs has; values are of each run's own states."""
    drawn = panels()
    drawn["held_out_value"] = drawn["held_out_value_common"]
    return {name: drawn[name] for name in ("test_return", "held_out_value", "overestimation", "gradient_norm")}


class Curves(NamedTuple):
    """Curves of one operator in a panel.

    Attributes:
        number: the operator's number in the study, from 0.
        seeds: `(x, y)` by seed, each `[points]`.
        band: mean and interval over the seeds, or None for single lines alone.
    """

    number: int
    seeds: dict[int, tuple[np.ndarray, np.ndarray]]
    band: Band | None = None


def new_figure(width: float, height: float) -> "Figure":
    """Returns an empty figure, its size in inches.

    Raises:
        MissingExtra: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtra("matplotlib", "train") from error
    return Figure(figsize=(width, height), layout="constrained")


def draw_curves(studies: Sequence[Records], path: str | Path) -> Path:
    """Draws the learning curves of studies of one environment: one colour for each operator, one line for each run.

    Args:
        studies: what their runs left; a run without a row is left out.
        path: where the picture goes; its ending chooses the format.

    Returns:
        The path.

    Raises:
        ValueError: if the studies are of different environments, or no run has a row yet.
    """
    everything = [record for study in studies for record in study.runs]
    environments = sorted({record.run.environment for record in everything})
    if len(environments) != 1:
        raise ValueError(f"one picture shows one environment, not {', '.join(environments)}")
    operators = list(dict.fromkeys(record.run.operator for record in everything))
    records = [record for record in everything if record.rows]
    if not records:
        raise ValueError("no run has finished a test phase yet: there is nothing to draw")
    runs, tables = [record.run for record in records], [record.table for record in records]
    figure = new_figure(9.6, 6.4)
    unit = step_unit(np.concatenate([table["env_frames"] / table["agent_steps"] for table in tables]))
    for axis, (column, panel) in zip(figure.subplots(2, 2).flat, _of_training().items(), strict=True):
        curves = []
        for number, operator in enumerate(operators):
            lines = {
                index: (table["agent_steps"], table[column])
                for index, (run, table) in enumerate(zip(runs, tables, strict=True))
                if run.operator == operator
            }
            curves.append(Curves(number, lines))
        draw_panel(axis, panel, curves, unit)
        axis.set_title(panel.title)
    seeds = sorted({run.seed for run in runs})
    add_legend(figure, list(enumerate(operators)))
    seed_text = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds, one line each"
    figure.suptitle(f"{environments[0]}, {seed_text}", fontsize="medium")
    return save_picture(figure, path)


def draw_panel(
    axis: Any,
    panel: metrics.Panel,
    curves: Iterable[Curves],
    unit: str,
    *,
    name: str = "",
    each_seed: bool = False,
    behind: Band | None = None,
) -> bool:
    """Draws one quantity: for each operator its mean with a band, or without one a line for each seed.

    Args:
        axis: where to.
        panel: the quantity.
        curves: the operators.
        unit: the label of the x axis.
        name: names the parts, `<name>.o<operator>.<part>`, by which a page finds them in the SVG; it has no dot.
        each_seed: draws thin lines for the seeds also where there is a mean.
        behind: a curve that is drawn in grey behind all others.

    Returns:
        True if a band is wider than what is shown, which is the range of the seeds' lines.
    """
    shown, bands = [], []
    if behind is not None:
        axis.plot(behind.x, behind.mean, color="0.55", linewidth=1.8, zorder=1)
        axis.fill_between(behind.x, behind.low, behind.high, color="0.55", alpha=0.2, linewidth=0, zorder=1)
        shown += [behind.low, behind.high]
    for number, seeds, band in curves:
        colour = look(number)
        for seed, (x, y) in seeds.items():
            shown.append(y)
            style = {"linewidth": 1.5, "marker": _marker(x)} if band is None else {"linewidth": 0.9, "alpha": 0.6}
            if band is None or each_seed:
                axis.plot(x, y, **colour.line, **style, markersize=3, gid=f"{name}.o{number}.seed{seed}")
        if band is None:
            continue
        part = f"{name}.o{number}.mean"
        axis.plot(band.x, band.mean, **colour.line, linewidth=1.8, marker=_marker(band.x), markersize=3, gid=part)
        drawn = band.n >= BAND_SEEDS
        if band.low is not None and band.high is not None and drawn.any():
            edges = [np.where(drawn, edge, np.nan) for edge in (band.low, band.high)]
            filled = axis.fill_between(band.x, *edges, color=colour.colour, alpha=0.16, linewidth=0)
            filled.set_gid(f"{name}.o{number}.band")
            bands += edges
    axis.set(xlabel=unit, ylabel=panel.label, xlim=(0, None))
    axis.xaxis.set_major_formatter(thousands)
    tidy(axis)
    if not any(np.isfinite(line).any() for line in shown):
        axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", color="0.5")
        return False
    low, high = _limits(shown)
    axis.set_ylim(low, high)
    if panel.reference is not None and low < panel.reference < high:
        axis.axhline(panel.reference, color="0.5", linewidth=0.8)
    return any(np.nanmin(edge) < low or np.nanmax(edge) > high for edge in bands)


def draw_intervals(
    axis: Any, label: str, rows: Sequence[tuple[int, str, Summary, np.ndarray]], *, name: str = ""
) -> bool:
    """Draws for each operator the mean of its runs' scores, its interval, and a pale dot for each run.

    Args:
        axis: where to.
        label: what the scores are.
        rows: number and spec of each operator, from top to bottom, its summary and its scores `[seed]`.
        name: as in `draw_panel`.

    Returns:
        True if an interval is wider than what is shown: the dots, and the intervals of at least `BAND_SEEDS` of them.
    """
    shown, tall = [], np.array([_rows_of(spec) for _, spec, _, _ in rows])
    places = np.cumsum(tall) - tall / 2 - 0.5
    for place, (number, _, summary, scores) in zip(places, rows, strict=True):
        line, part = {"color": look(number).colour}, f"{name}.o{number}."
        axis.plot(scores, np.full(len(scores), place - 0.22), "o", **line, alpha=0.4, markersize=4, gid=part + "dots")
        if summary.interval is not None:
            axis.plot(summary.interval, (place, place), **line, linewidth=2, gid=part + "interval")
        if summary.mean is not None:
            axis.plot(summary.mean, place, "D", **line, markersize=6, gid=part + "mean")
        shown += [scores, np.array(summary.interval if summary.counted >= BAND_SEEDS else ())]
    axis.set_yticks(places, ["\n".join(in_lines(spec, _TICK)) for _, spec, _, _ in rows])
    for text, (number, *_) in zip(axis.get_yticklabels(), rows, strict=True):
        text.set_gid(f"{name}.o{number}.label")
    low, high = _limits(shown)
    axis.set(xlabel=label, xlim=(low, high), ylim=(tall.sum() - 0.4, -0.6))
    axis.tick_params(axis="y", length=0)
    tidy(axis)
    return any(
        interval is not None and not low < min(interval) <= max(interval) < high
        for interval in (summary.interval for _, _, summary, _ in rows)
    )


def height_added(names: Sequence[str]) -> float:
    """Returns by how much a picture of intervals grows for names that are long, or many, in inches."""
    return 0.3 * sum(_rows_of(name) - 1 for name in names) + 0.25 * max(0, len(names) - _FIT)


def _rows_of(name: str) -> float:
    """Returns the height of an operator's row, 1 for a name of one line."""
    return 1 + 0.6 * (len(in_lines(name, _TICK)) - 1)


def draw_profile(axis: Any, label: str, thresholds: np.ndarray, shares: Iterable[np.ndarray], name: str = "") -> None:
    """Draws for each operator the share of its runs that score more than each threshold."""
    for number, share in enumerate(shares):
        axis.plot(thresholds, share, **look(number).line, linewidth=1.8, gid=f"{name}.o{number}.mean")
    axis.set(xlabel=label, ylabel="share of runs that score more", ylim=(-0.03, 1.03), xlim=thresholds[[0, -1]])
    tidy(axis)


def add_legend(figure: "Figure", operators: Sequence[tuple[int, str]]) -> None:
    """Names a picture's operators, given by number and text, below its panels."""
    from matplotlib.lines import Line2D

    named = [(number, in_lines(text, _ENTRY)) for number, text in operators]
    handles = [Line2D([], [], **look(number).line, linewidth=2, label="\n".join(lines)) for number, lines in named]
    columns = max(1, int(figure.get_figwidth() * 10 // (6 + max(len(line) for _, lines in named for line in lines))))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=3)


def step_unit(frames_per_step: np.ndarray) -> str:
    """Names the unit of the x axis: agent steps, with the frames of each where there are several."""
    frames = np.min(frames_per_step, initial=np.inf)
    return f"agent steps ({frames:g} frames each)" if 1 < frames < np.inf else "agent steps"


def save_picture(figure: Any, path: str | Path) -> Path:
    """Writes a figure whole or not at all, the same bytes at any time; returns the path.

    The path's ending chooses the format.
    """
    path = as_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        write_atomically(path, svg_text(figure, path.stem))
    else:
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=120, format=path.suffix[1:] or "png")
        write_atomically(path, drawn.getvalue())
    return path


def tidy(axis: Any) -> None:
    """Gives an axis its grid, and takes away its upper and right frame."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def _limits(lines: Sequence[np.ndarray]) -> tuple[float, float]:
    """Returns the range of lines, with a margin."""
    values = np.concatenate([line[np.isfinite(line)] for line in lines])
    low, high = values.min(), values.max()
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 0.5
    return low - margin, high + margin


def _marker(x: np.ndarray) -> str:
    return "o" if len(x) <= FEW_POINTS else ""


def thousands(value: float, _: int) -> str:
    """Writes a number of agent steps in as few letters as it takes.

    >>> [thousands(value, 0) for value in (0, 500, 2500, 50_000, 1_500_000)]
    ['0', '500', '2.5k', '50k', '1.5M']
    """
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{round(value / unit, 3):g}{letter}"
    return f"{value:g}"
