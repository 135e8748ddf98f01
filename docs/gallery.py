"""Draw the gallery of operators: the picture docs/operators.svg, and the tables in docs/operators.md.

    python docs/gallery.py

Both are made from the table of operators and from results/benchmarks/operator_speed.csv, and nothing else.
"""

import csv
import math
from html import escape
from pathlib import Path

import numpy as np

from softbellman import operators as ops
from softbellman.operators.table import GROUPS, TABLE, Entry

DOCS = Path(__file__).resolve().parent
SPEEDS = DOCS.parent / "results" / "benchmarks" / "operator_speed.csv"
BEGIN, END = "<!-- gallery: python docs/gallery.py -->", "<!-- end of the gallery -->"
COLUMNS, PANEL, GAP = 6, (132, 88), (18, 26)
X = np.linspace(-1.0, 1.0, 49)
OTHERS = (0.0, -1.0)
"""The values of the other two actions."""
SELECTOR = (0.5, *OTHERS)
BOTTOM, TOP = -1.1, 1.6
APART = ("within_largest_gap", "optimality_preserving")


def picture() -> str:
    """Draw all operators over one action's value, two others fixed."""
    width = COLUMNS * (PANEL[0] + GAP[0]) + GAP[0]
    height = math.ceil(len(TABLE) / COLUMNS) * (PANEL[1] + GAP[1]) + GAP[1]
    parts = [_panel(entry, *divmod(place, COLUMNS)) for place, entry in enumerate(TABLE.values())]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    style = (
        f'{head} font-family="DejaVu Sans, sans-serif" font-size="8">\n<rect width="100%" height="100%" fill="#fff"/>'
    )
    return "\n".join([style, *parts, "</svg>", ""])


def _panel(entry: Entry, row: int, column: int) -> str:
    op = ops.parse(entry.spec)
    q = np.stack([X, *(np.full_like(X, other) for other in OTHERS)], axis=-1)
    selector = np.broadcast_to(SELECTOR, q.shape)
    value, weight = op(q, selector), op.weights(q)[:, 0]
    left, top = GAP[0] + column * (PANEL[0] + GAP[0]), GAP[1] + row * (PANEL[1] + GAP[1])
    lines = [
        f'<g transform="translate({left} {top})">',
        f'<text y="-5">{escape(str(op))}</text>',
        f'<rect width="{PANEL[0]}" height="{PANEL[1]}" fill="none" stroke="#bbb"/>',
        _line(np.max(q, axis=-1), BOTTOM, TOP, "#ccc"),
        _line(np.mean(q, axis=-1), BOTTOM, TOP, "#ccc"),
        _line(weight, -0.05, 1.05, "#D55E00", "3 2"),
        _line(value, BOTTOM, TOP, "#0072B2"),
        "</g>",
    ]
    return "\n".join(lines)


def _line(values: np.ndarray, low: float, high: float, colour: str, dashes: str = "") -> str:
    """Draw a line, broken where it jumps."""
    across = (X - X[0]) / (X[-1] - X[0]) * PANEL[0]
    down = (1 - (np.clip(values, low, high) - low) / (high - low)) * PANEL[1]
    starts = [i == 0 or abs(down[i] - down[i - 1]) > PANEL[1] / 3 for i in range(len(X))]
    path = "".join(f"{'M' if s else 'L'}{x:.1f} {y:.1f}" for s, x, y in zip(starts, across, down, strict=True))
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.4"{dashed}/>'


def tables() -> str:
    """Write the tables, a group each, and what is said once for all."""
    with SPEEDS.open() as file:
        speeds = {row["operator"]: row["to_softmax"] for row in csv.DictReader(file)}
    preserving = [f"`{entry.spec}`" for entry in TABLE.values() if ops.parse(entry.spec).laws.optimality_preserving]
    parts = [f"Of these, `optimality_preserving` are {', '.join(preserving)} alone.\n"]
    for group, entries in GROUPS.items():
        parts.append(f"### {group[0].upper()}{group[1:]}\n")
        parts.append("| spec, from | value, parameter | lacks | gap to max | time |\n|---|---|---|---|---|")
        parts += [_row(entry, speeds[entry.name]) for entry in entries]
        parts.append("")
    return "\n".join(parts)


def _row(entry: Entry, speed: str) -> str:
    op = ops.parse(entry.spec)
    lacks = [law for law in vars(op.laws) if not getattr(op.laws, law) and law not in APART]
    parameters = [f"`{name}` {within}; {within.ends}" for name, within in entry.parameters.items()]
    cells = (
        "<br>".join(filter(None, (f"`{entry.spec}`", entry.source))),
        "<br>".join((_mathematics(entry.formula), *parameters)),
        ", ".join(f"`{law}`" for law in lacks),
        gap(op).replace(" ", "&nbsp;"),
        speed,
    )
    return f"| {' | '.join(cells)} |"


def _mathematics(formula: str) -> str:
    """Write a formula for a cell, of several parts if it defines a letter, so that a line can end between them."""
    return ", ".join(f"${part}$" for part in formula.replace("|", r"\vert ").split(r",\ "))


def gap(op: ops.Operator) -> str:
    """Say how far it may be below the maximum of 4 actions, or of as many as it is for."""
    actions = op.for_actions or 4
    largest, share = op.largest_gap(actions), op.largest_share(actions)
    if op.laws.within_largest_gap and math.isfinite(largest):
        return f"{largest:.3f}"
    return f"{share:.3f} s" if math.isfinite(share) else "unbounded"


def page(text: str) -> str:
    """Put the tables into the page."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{tables()}{END}{rest.split(END)[1]}"


def main() -> None:
    """Write both."""
    (DOCS / "operators.svg").write_text(picture())
    there = DOCS / "operators.md"
    there.write_text(page(there.read_text()))


if __name__ == "__main__":
    main()
