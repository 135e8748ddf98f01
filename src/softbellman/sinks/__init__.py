"""Sinks: trackers, or one's own, that take the rows of a run beside `metrics.csv`; one that fails ends no training."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from softbellman.extras import require_extra
from softbellman.faults import in_a_line
from softbellman.references import is_reference, resolve
from softbellman.sinks.mlflow_tracker import MLflow
from softbellman.sinks.tensorboard import TensorBoard
from softbellman.sinks.tracked import Tracked
from softbellman.sinks.trackio_tracker import Trackio
from softbellman.sinks.wandb_tracker import Wandb
from softbellman.study.runs import RunPath
from softbellman.training.metrics import Row


class Sink(Protocol):
    """Takes the rows of one run.

    When training goes on after a stop a sink is made anew and is given all rows that the run has by then, the old ones
    first: one that writes a file begins that file anew, and so no row is there twice. `tracked.Tracked` passes on those
    alone that a tracker was not given before.
    """

    def row(self, row: Row) -> None:
        """Take a row, by the names of columns; None is a quantity that could not be had."""
        ...

    def status(self, state: str, **facts: Any) -> None:
        """Take how the run stands: finished, diverged or stopped."""
        ...

    def close(self) -> None:
        """Write what is not written yet, and release what it holds."""
        ...


MakeSink = Callable[[RunPath], Sink]


SINKS: dict[str, MakeSink] = {
    "tensorboard": TensorBoard,
    "wandb": partial(Tracked, "wandb", Wandb),
    "mlflow": partial(Tracked, "mlflow", MLflow),
    "trackio": partial(Tracked, "trackio", Trackio),
}
"""Sinks that come with softbellman, each by the name of the extra that installs what it needs."""


def require_sinks(names: Sequence[str]) -> None:
    """Refuse sinks that can't be made.

    Args:
        names: of `SINKS`, or `module:function` of a user's own, which is called with a run.

    Raises:
        ValueError: for an unknown name, or a reference that leads to nothing that can be called.
        MissingExtra: if a package is not installed.
    """
    for name in names:
        make = _maker(name)
        if not callable(make):
            raise ValueError(f"sink {name} is a {type(make).__name__}, which can't be called with a run")
        if name in SINKS:
            require_extra(name)


class Sinks:
    """The sinks of one run. One that fails is told of, and gets nothing more."""

    def __init__(
        self, names: Sequence[str], run: RunPath, rows: Sequence[Mapping[str, str]], on_note: Callable[[str], None]
    ) -> None:
        """Make them.

        Args:
            names: as for `require_sinks`.
            run: the run.
            rows: those that it has already, as text.
            on_note: called with what a user should know.
        """
        self._note, self._sinks = on_note, dict[str, Sink]()
        for name in names:
            self._try(name, lambda name=name: self._sinks.update({name: _maker(name)(run)}))
        for row in rows:
            self.row({name: _number(text) for name, text in row.items()})

    def row(self, row: Row) -> None:
        """Pass a row on."""
        for name, sink in list(self._sinks.items()):
            self._try(name, lambda sink=sink: sink.row(row))

    def status(self, state: str, **facts: Any) -> None:
        """Pass on how the run stands."""
        for name, sink in list(self._sinks.items()):
            self._try(name, lambda sink=sink: sink.status(state, **facts))

    def close(self) -> None:
        """Close them."""
        for name, sink in list(self._sinks.items()):
            self._try(name, sink.close)

    def _try(self, name: str, act: Callable[[], Any]) -> None:
        try:
            act()
        except (Exception, SystemExit) as error:  # a user's sink may fail in any way
            with suppress(Exception, SystemExit):
                if (failed := self._sinks.pop(name, None)) is not None:
                    failed.close()
            self._note(f"sink {name} failed: {in_a_line(error)}; training goes on without it")


def _maker(name: str) -> Any:
    if is_reference(name):
        return resolve(name, "sink")
    if name not in SINKS:
        known = ", ".join(SINKS)
        raise ValueError(f"unknown sink {name!r}; there are {known}, and module:function for one of your own")
    return SINKS[name]


def _number(text: str) -> float | int | None:
    if not text:
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)
