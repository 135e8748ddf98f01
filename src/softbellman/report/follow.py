"""Live view: the page of a study under way, written anew after each test phase until nobody trains it."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from softbellman.analysis.findings import find_all
from softbellman.analysis.records import Records
from softbellman.report import write
from softbellman.report.page import Live
from softbellman.study.groups import ENDED
from softbellman.study.locks import Silence, is_held
from softbellman.study.runs import read_status
from softbellman.study.store import Study
from softbellman.study.writer import count_rows

POLL = 1.0  # seconds between two looks at the study
SHARE = 4  # pauses are so many times as long as the page took, and leave the processor to training


def follow(path: Path, out: Path | None = None, *, on_page: Callable[[Path, str], None]) -> None:
    """Writes the page of a study, without films, after each test phase of it, and returns when nobody trains it.

    The pages reload themselves; the last one must be written by who called. A page that is left behind by Ctrl-C, or by
    a fault, does not reload itself.

    Args:
        path: the study's directory.
        out: directory of the page; by default `report/` in the study's.
        on_page: called with the page's path and how far the study is.

    Raises:
        KeyboardInterrupt: as it came.
    """
    told: list[tuple[int, str | None]] | None = None
    silence = Silence()
    try:
        while is_held(path, silence):
            began, look = time.monotonic(), _look(path)
            if look is not None and look[1] != told:
                study, told = look
                if page := _write(study, out, _live(study)):
                    on_page(page, _ended(study))
            time.sleep(max(POLL, SHARE * (time.monotonic() - began)))
    except BaseException:
        if told is not None:
            with suppress(Exception):  # what came first is told
                _write(Study(path), out, None)
        raise


def _look(path: Path) -> tuple[Study, list[tuple[int, str | None]]] | None:
    """Reads how far each run of a study is; None where the file system does not answer, as one of a network may."""
    try:
        study = Study(path)
        return study, [(count_rows(run), read_status(run)) for run in study.runs]
    except OSError:
        return None


def _write(study: Study, out: Path | None, live: Live | None) -> Path | None:
    """Writes the page, if there is anything to write about."""
    records = Records.read(study)
    if not any(record.rows for record in records.runs):
        return None
    return write(records, find_all(records), out, films=False, live=live)


def _live(study: Study) -> Live:
    return Live(_ended(study), datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z"))


def _ended(study: Study) -> str:
    return f"{sum(read_status(run) in ENDED for run in study.runs)} of {len(study.runs)} runs have ended"
