"""Printed tables and labelled lines, 80 columns wide."""

import contextlib
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from softbellman.config import Config, Preset, in_words, sources

LABEL_WIDTH = 17


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table; cells that are numbers stand to the right."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for number, header in enumerate(headers):
        numeric = all(row[number].lstrip("+-.")[:1].isdigit() or row[number] in ("", "-") for row in rows)
        table.add_column(header, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Prints labels, each with its text, wrapped into a column of its own."""
    width = max(60, min(120, shutil.get_terminal_size((80, 24)).columns))
    for label, text in lines:
        print(
            textwrap.fill(
                text,
                width,
                initial_indent=f"{label:{LABEL_WIDTH}}",
                subsequent_indent=" " * LABEL_WIDTH,
                break_on_hyphens=False,
                break_long_words=False,
            ),
            flush=True,
        )


def print_settings(preset: Preset, config: Config, values: Iterable[tuple[str, Any]]) -> None:
    """Prints values of a configuration by dotted name, and where each comes from."""
    where = sources(config, preset)
    print_lines([("preset", f"{preset.name}: {preset.summary}")])
    print_table(("field", "value", "from"), [(name, in_words(value), where[name]) for name, value in values])


def complain(message: str, code: int) -> int:
    """Says in one line what is wrong, and returns the exit code."""
    with contextlib.suppress(OSError):  # the terminal is gone
        print(f"softbellman: {' '.join(message.split())}", file=sys.stderr)
    return code


def written(what: str, write: Callable[[], Path]) -> Path | None:
    """Writes what shows results, and returns where it is, or says why it can't be: that makes no run worse."""
    try:
        return write()
    except (ValueError, ImportError, OSError) as error:
        complain(f"{what} could not be written: {error}", 0)
        return None
