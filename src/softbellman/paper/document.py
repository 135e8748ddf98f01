"""Markdown document of a scale, with a file for each picture."""

import os
import re
import shlex
from pathlib import Path
from typing import Any

from softbellman.analysis.records import Records
from softbellman.paper.contents import contents
from softbellman.paper.page import templates
from softbellman.paper.results import Results
from softbellman.report.pictures import save_picture
from softbellman.study.files import write_atomically


def write(results: Results, records: Records | None, path: Path, pictures: Path) -> Path:
    """Write the document and its pictures, anew if they are there.

    Args:
        results: the results.
        records: those of the study that they are of, if there is one.
        path: the document.
        pictures: the folder of its pictures.

    Raises:
        MissingExtra: if a package that draws or writes is not installed.
    """
    found = contents(results, records)
    for section in found["sections"]:
        if figure := section["view"].plot(results, section["data"]):
            save_picture(figure, pictures / f"{section['name']}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render(found, path, pictures))
    return path


def render(found: dict[str, Any], path: Path, pictures: Path) -> str:
    """Make the document.

    Args:
        found: what `contents` gave.
        path: where it will be, from which links to pictures lead.
        pictures: the folder of its pictures.
    """
    links = Path(os.path.relpath(pictures, path.parent))
    for section in found["sections"]:
        section["picture"] = (links / f"{section['name']}.png").as_posix() if section["view"].panels else ""
    scale, folder = found["scale"].name, str(pictures.parent)
    command = ["softbellman", "paper", "page", "--scale", scale, "--study", folder, "--markdown", str(path)]
    text = templates(escape=False).get_template("page.md")
    return _tidy(text.render(command=shlex.join(command), folder=shlex.quote(folder), **found))


def _tidy(text: str) -> str:
    """Leave one empty line where a template leaves several, and no spaces at the ends of lines."""
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)).strip() + "\n"
