"""Engine interface: tasks, events, and the cores shared out."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from softbellman.study.provenance import available_cores

LOCAL, HERE, RAY, SLURM = "local", "here", "ray", "slurm"
DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


class Task(NamedTuple):
    """A group to be trained, in whatever state it is, to its end.

    Attributes:
        study: directory of the study.
        group: name of the group.
        inexact: go on also where that can't be done exactly.
        variables: of the environment that it is to be trained in: `NPROC`, say.
        on_phase: callback after each test phase, or its `module:name` where it is called in another process; or None.
    """

    study: Path
    group: str
    inexact: bool
    variables: Mapping[str, str]
    on_phase: "str | Callable[[Any, Any], Any] | None" = None


class Event(NamedTuple):
    """News of a group.

    Attributes:
        kind: `progress` (`agent_steps`), `row` (`run`, its number in the group, `epoch`, `score`, `games`), `note`
            (`text`), `resumed` (`agent_steps`, `notes`, `provenance`), `stop` (`on_phase` has asked for one), `refused`
            or `died` (`reason`, `report`, and `raised`, where it was an exception and not the end of a process);
            `ended` comes last.
        facts: those named in parentheses.
    """

    kind: str
    facts: dict[str, Any]

    @property
    def line(self) -> str:
        """The event as a line, by which one process tells it another."""
        return json.dumps({"kind": self.kind, **self.facts}) + "\n"


def read_event(line: str | bytes) -> Event | None:
    """Reads the event of a line; None where it is none: others print too, and a full disk cuts lines short.

    >>> read_event('{"kind": "note", "text": "a"}'), read_event("hello"), read_event("[3]")
    (Event(kind='note', facts={'text': 'a'}), None, None)
    """
    try:
        facts = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("kind"), str):
        return None
    return Event(facts.pop("kind"), facts)


OnEvent = Callable[[Task, Event], None]


class Engine(Protocol):
    """Trains groups of runs, several at once.

    One whose groups train on other machines may have a method `memory`, which returns the bytes that they can take
    there together, or None where that is not known; otherwise they must fit into this machine.

    Attributes:
        capacity: groups that train at once.
        process_bytes: memory that each of these takes beside its replays.
        spec: the name by which `--engine` and `make_engine` find it again.
    """

    capacity: int
    process_bytes: int
    spec: str

    def train(self, tasks: Sequence[Task], on_event: OnEvent, check: Callable[[], None]) -> None:
        """Train tasks in their order, and return when each has ended in whatever way; what became of it is on disk.

        Args:
            tasks: the tasks.
            on_event: called with what happens to them.
            check: called several times a second. When it raises, no task is begun any more, those under way save their
                state, and what was raised is raised again once they have.
        """
        ...


def require_counts(workers: int | None, threads: int | str | None) -> None:
    """Refuses numbers of workers and threads below 1.

    Raises:
        ValueError: with the number.
    """
    for name, value in (("workers", workers), ("threads", threads)):
        if value is not None and int(value) < 1:
            raise ValueError(f"{name} ({value}) must be at least 1")


def share(cells: int, workers: int | None, threads: int | str | None) -> tuple[int, int]:
    """Shares the cores out: how many workers, and how many threads for each.

    Args:
        cells: runs to be trained.
        workers: as many as asked for; None: one for each core, but no more than there are runs.
        threads: as many as asked for; None: the cores for each worker, at least one.

    Raises:
        ValueError: if a number is below 1.

    >>> share(15, 4, 2), share(15, 1_000_000, None)
    ((4, 2), (1000000, 1))
    """
    require_counts(workers, threads)
    cores = available_cores()
    workers = workers or max(1, min(cells, cores // int(threads or 1)))
    return workers, int(threads or max(1, cores // workers))


def xla_flags(recorded: Mapping[str, Any], *, deterministic: bool = False) -> str:
    """Returns the flags of XLA to train with: those of the environment, else those recorded.

    Args:
        recorded: the provenance of a study that goes on.
        deterministic: asks for operations that repeat to the last bit on a GPU, and for a failure at others.
    """
    flags = os.environ.get("XLA_FLAGS") or recorded.get("xla_flags") or ""
    return flags if not deterministic or DETERMINISTIC in flags else f"{flags} {DETERMINISTIC}".strip()
