"""Trackio: rows and settings of a run, on this machine unless its user set a Space or a server."""

import contextvars
import uuid
from collections.abc import Mapping
from typing import Any

from softbellman.sinks.tracked import Facts, setting


class Trackio:
    """A run of Trackio, which finds it by its name; see `Tracker`."""

    def __init__(self, facts: Facts, known: str | None) -> None:
        """Begin, or go on."""
        import trackio  # pyright: ignore[reportMissingImports]

        self.id = known or f"{facts.name} ({uuid.uuid4().hex[:8]})"

        def begun() -> Any:
            return trackio.init(
                project=setting("TRACKIO_PROJECT"),
                name=self.id,
                group=facts.study,
                config=dict(facts.settings),
                resume="never" if known is None else "allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

        self._run: Any = contextvars.copy_context().run(begun)  # where another run is under way, it would be ended
        # Rows that were queued when a process was killed are not there. One elsewhere may not have answered.
        self.newest: int | None = self._run._next_step - 1 if self._run._is_local else None

    def row(self, step: int, values: Mapping[str, float]) -> None:
        """Log it at the agent step."""
        self._run.log(dict(values), step=step)

    def end(self, state: str) -> None:
        """Write what is queued; it has no place for how the run stands."""
        self._run.finish()
