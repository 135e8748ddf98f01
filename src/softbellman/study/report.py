"""Pictures of what a study found."""

from pathlib import Path
from typing import Any

from softbellman.study.store import Study, read_metrics

# Okabe and Ito's colours, which the colour-blind tell apart; the yellow is left out, for it fades on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
PANELS = (
    ("test_return", "test score", "raw score a game"),
    ("held_out_value", "value of held-out states", "mean of max Q"),
    ("overestimation", "overestimation", "max Q minus realised return"),
    ("gradient_norm", "gradient norm, last layer", "mean l2 norm"),
)


def draw_curves(studies: list[Study], path: Path) -> Path:
    """Draws the learning curves of studies of one environment: one colour for each operator, one line for each run.

    Args:
        studies: studies whose runs have at least one row each.
        path: where the picture goes; its ending chooses the format.

    Returns:
        `path`.

    Raises:
        ValueError: if the studies are of different environments, or no run has a row yet.
    """
    from matplotlib.figure import Figure

    environments = {study.record["environment"] for study in studies}
    if len(environments) != 1:
        raise ValueError(f"one picture shows one environment, not {', '.join(sorted(environments))}")
    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    axes = figure.subplots(2, 2)
    operators = list(dict.fromkeys(run.operator for study in studies for run in study.runs))
    rows, seeds, frames = 0, set(), set()
    for run in (run for study in studies for run in study.runs):
        metrics = read_metrics(run.path / "metrics.csv")
        rows += len(metrics["epoch"])
        seeds.add(run.seed)
        frames.update(metrics["env_frames"] / metrics["agent_steps"])
        colour = COLOURS[operators.index(run.operator) % len(COLOURS)]
        for axis, (column, _, _) in zip(axes.flat, PANELS, strict=True):
            axis.plot(metrics["agent_steps"], metrics[column], color=colour, marker="o", markersize=3, linewidth=1.5)
    if not rows:
        raise ValueError("no run has finished a test phase yet: there is nothing to draw")
    unit = f" ({min(frames):g} frames each)" if min(frames) > 1 else ""
    for axis, (_, title, label) in zip(axes.flat, PANELS, strict=True):
        axis.set(title=title, ylabel=label, xlabel=f"agent steps{unit}", xlim=(0, None))
        axis.xaxis.set_major_formatter(_thousands)
        tidy(axis)
    axes.flat[2].axhline(0.0, color="0.5", linewidth=0.8)
    for number, operator in enumerate(operators):
        axes.flat[0].plot([], [], color=COLOURS[number % len(COLOURS)], label=operator)
    axes.flat[0].legend(frameon=False)
    seed_text = f"seed {min(seeds)}" if len(seeds) == 1 else f"{len(seeds)} seeds, one line each"
    figure.suptitle(f"{environments.pop()}, {seed_text}", fontsize="medium")
    return save_picture(figure, path)


def save_picture(figure: Any, path: Path) -> Path:
    """Writes a figure, the same bytes at any time, in the format of the path's ending; returns `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def tidy(axis: Any) -> None:
    """Gives an axis its grid, and takes away its upper and right frame."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def _thousands(value: float, _: int) -> str:
    """Writes a number of agent steps in as few letters as it takes.

    >>> [_thousands(value, 0) for value in (0, 500, 2500, 50_000, 1_500_000)]
    ['0', '500', '2.5k', '50k', '1.5M']
    """
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{round(value / unit, 3):g}{letter}"
    return f"{value:g}"
