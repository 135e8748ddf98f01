"""Groups: runs that train together, and the directory that they have until they end.

<study>/groups/<id>/cells.json    which runs they are: environment, arm, seed
<study>/groups/<id>/checkpoint/   their exact state
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from softbellman.study.files import free_place, write_atomically
from softbellman.study.runs import RunPath, group_name, read_status
from softbellman.study.store import Study
from softbellman.training.checkpoint import Checkpoints, step_of

OVER = ("finished", "diverged")
ENDED = (*OVER, "failed")  # what failed is tried again only if that is asked for


class Group(NamedTuple):
    """Runs that train together, and their directory."""

    path: Path
    runs: list[RunPath]

    @classmethod
    def create(cls, study: Study, runs: Sequence[RunPath]) -> "Group":
        """Makes the directory of a new group, in place of what was there under its name, which is its first run's.

        Checkpoints that were there are put aside.
        """
        group = cls(folder_of(study.path, group_name(runs[0])), list(runs))
        group.put_aside()
        shutil.rmtree(group.path, ignore_errors=True)
        group.path.mkdir(parents=True, exist_ok=True)
        write_atomically(group.path / "cells.json", json.dumps({"cells": group.cells}, indent=2) + "\n")
        return group

    @property
    def cells(self) -> list[list[Any]]:
        """Environment, arm and seed of each run."""
        return [[run.environment, str(run.arm), run.seed] for run in self.runs]

    @property
    def unfinished(self) -> list[RunPath]:
        """The runs that are not over."""
        return [run for run in self.runs if read_status(run) not in OVER]

    @property
    def saved_steps(self) -> int:
        """The agent step of the newest checkpoint, whole or not; 0 without any."""
        return saved_steps(self.path)

    def put_aside(self) -> Path | None:
        """Moves the checkpoints out of the way, beside the directory, and returns where they are; None without any."""
        return (self.path / "checkpoint").rename(free_place(self.path)) if self.saved_steps else None

    def remove(self) -> None:
        """Removes the directory, and the one above if it was the last."""
        shutil.rmtree(self.path / "checkpoint", ignore_errors=True)  # before what says that there is a group
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self.path.parent.rmdir()


def folder_of(study: Path, name: str) -> Path:
    """Returns the directory of a group of a study."""
    return study / "groups" / name


def saved_steps(folder: Path) -> int:
    """Returns the agent step of the newest checkpoint in a group's directory; see `Group.saved_steps`."""
    return max((step_of(file.name) or 0 for file in folder.glob("checkpoint/step-*")), default=0)


def open_group(study: Study, name: str) -> Group:
    """Opens a group of a study.

    Raises:
        ValueError: if there is none of that name, or it has a run that the study does not ask for.
    """
    return _opened(folder_of(study.path, name), _cells(study))


def open_groups(study: Study) -> list[Group]:
    """Opens all groups of a study, in the order of their names.

    Raises:
        ValueError: as `open_group`.
    """
    known = _cells(study)
    folders = sorted(study.path.glob("groups/*"))
    return [_opened(each, known) for each in folders if (each / "cells.json").exists() or saved_steps(each)]


def _cells(study: Study) -> dict[tuple[str, str, int], RunPath]:
    return {(run.environment, str(run.arm), run.seed): run for run in study.runs}


def _cells_of(folder: Path) -> list[list[Any]]:
    """Reads which runs a group has; where that file was removed, its checkpoint says so too."""
    try:
        return json.loads((folder / "cells.json").read_text())["cells"]
    except FileNotFoundError:
        saved = Checkpoints(folder / "checkpoint", 1).newest(lambda text: None)
        if saved is None:
            raise
        return saved.facts["cells"]


def _opened(folder: Path, known: Mapping[tuple[str, str, int], RunPath]) -> Group:
    try:
        cells = _cells_of(folder)
        return Group(folder, [known[environment, arm, seed] for environment, arm, seed in cells])
    except OSError as error:
        raise ValueError(f"{folder} is no group of runs: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder} is no group of runs of this study ({error!r}); put study.json back as it was, or remove it"
        ) from None
