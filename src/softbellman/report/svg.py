"""SVG export of figures: within a page, or alone in a file."""

import io
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from softbellman.report.wording import in_lines

_SVG = "http://www.w3.org/2000/svg"
_UNUSED_ID = re.compile(r' id="[\w.]+_\d+"')  # matplotlib numbers parts anew in every picture
_TITLE, _ENTRY = 24, 18  # heights, in pixels
_LETTERS = 25  # of a name in half the width of a picture


def svg_text(figure: Any, name: str) -> str:
    """Writes a figure as SVG, its text as text; several pictures of different names can stand in one page."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _UNUSED_ID.sub("", text.getvalue())


def alone(svg: str, title: str, legend: Sequence[tuple[str, Sequence[float], str]]) -> str:
    """Turns a picture of a page into one that stands alone: with title and legend, without lines of single seeds.

    Args:
        svg: what `svg_text` gave.
        title: the title.
        legend: colour, dashes and name of each operator, below the picture: two in a row, or one if a name is long.
    """
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    picture = ElementTree.fromstring(svg)
    for part in list(picture.iter()):
        for child in list(part):
            if ".seed" in child.get("id", ""):
                part.remove(child)
    width, height = (float(size) for size in picture.attrib["viewBox"].split()[2:])
    picture.attrib.update({"y": str(_TITLE), "width": f"{width:g}", "height": f"{height:g}"})
    columns = 2 if all(len(name) <= _LETTERS for *_, name in legend) else 1
    named = [(colour, dashes, in_lines(name, _LETTERS * 2)) for colour, dashes, name in legend]
    rows = [max(len(lines) for *_, lines in named[start : start + columns]) for start in range(0, len(named), columns)]
    whole_height = height + _TITLE + _ENTRY * sum(rows)
    size = {"width": f"{width:g}", "height": f"{whole_height:g}", "viewBox": f"0 0 {width:g} {whole_height:g}"}
    whole = ElementTree.Element(f"{{{_SVG}}}svg", size)
    _add(whole, "rect", width="100%", height="100%", fill="#ffffff")
    _add(whole, "text", title, x=8, y=16, font_family="DejaVu Sans, sans-serif", font_size=12, font_weight="bold")
    whole.append(picture)
    for place, (colour, dashes, lines) in enumerate(named):
        row, column = divmod(place, columns)
        x, y = 8 + column * width / 2, height + _TITLE + _ENTRY * (sum(rows[:row]) + 0.5)
        dashed = " ".join(f"{2 * length:g}" for length in dashes) or "none"
        _add(whole, "line", x1=x, x2=x + 28, y1=y, y2=y, stroke=colour, stroke_width=2, stroke_dasharray=dashed)
        for number, line in enumerate(lines):
            own = {"x": x + 34, "y": y + 4 + _ENTRY * number, "font_family": "DejaVu Sans, sans-serif", "font_size": 11}
            _add(whole, "text", line, **own)
    return ElementTree.tostring(whole, encoding="unicode") + "\n"


def _add(parent: ElementTree.Element, kind: str, text: str | None = None, **attributes: object) -> None:
    named = {name.replace("_", "-"): str(value) for name, value in attributes.items()}
    ElementTree.SubElement(parent, f"{{{_SVG}}}{kind}", named).text = text
