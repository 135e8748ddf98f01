"""Sinks: where the rows of a run go beside its `metrics.csv`, such as TensorBoard; one that fails ends no training."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from softbellman.extras import MissingExtra
from softbellman.faults import in_a_line
from softbellman.references import found, is_reference
from softbellman.study.runs import RunPath
from softbellman.training.metrics import Row


class Sink(Protocol):
    """Takes the rows of one run.

    When training goes on after a stop a sink is made anew and is given all rows that the run has by then, the old ones
    first: one that writes a file begins that file anew, and so no row is there twice.
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


class TensorBoard:
    """Event files for TensorBoard in `tensorboard/` of the run's directory, a scalar for each measure."""

    def __init__(self, run: RunPath) -> None:
        """Begin anew.

        Raises:
            MissingExtra: if tensorboardX is not installed.
        """
        writer = _summary_writer()
        folder = run.path / "tensorboard"
        shutil.rmtree(folder, ignore_errors=True)
        self._writer = writer(str(folder), flush_secs=30)

    def row(self, row: Row) -> None:
        """Add the measures that could be had, at the row's agent step."""
        for name, value in row.items():
            if value is not None and name != "agent_steps":
                self._writer.add_scalar(name, value, global_step=row["agent_steps"])

    def status(self, state: str, **facts: Any) -> None:
        """Add it as a text."""
        self._writer.add_text("status", state)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


SINKS: dict[str, MakeSink] = {"tensorboard": TensorBoard}


def require_sinks(names: Sequence[str]) -> None:
    """Refuse sinks that can't be made.

    Args:
        names: `tensorboard`, or `module:function` of a user's own, which is called with a run.

    Raises:
        ValueError: for an unknown name, or a reference that leads to nothing that can be called.
        MissingExtra: if a package is not installed.
    """
    for name in names:
        make = _maker(name)
        if not callable(make):
            raise ValueError(f"sink {name} is a {type(make).__name__}, which can't be called with a run")
        if make is TensorBoard:
            _summary_writer()


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
        return found(name, "sink")
    if name not in SINKS:
        known = ", ".join(SINKS)
        raise ValueError(f"unknown sink {name!r}; there are {known}, and module:function for one of your own")
    return SINKS[name]


def _summary_writer() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise MissingExtra("tensorboardX", "tensorboard") from error
    return SummaryWriter


def _number(text: str) -> float | int | None:
    if not text:
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)
