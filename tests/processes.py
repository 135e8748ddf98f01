"""Processes of this machine, which may end while they are looked at."""

from collections.abc import Iterator
from pathlib import Path


def running() -> Iterator[tuple[int, list[str], Path]]:
    """Gives the number, the words and the directory of each process that can be looked at."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, folder = (process / "cmdline").read_text(errors="replace"), (process / "cwd").readlink()
        except OSError:
            continue
        yield int(process.name), words.split("\0"), folder
