"""TensorBoard: event files in `tensorboard/` of a run's directory, a scalar for each measure."""

import shutil
from typing import Any

from softbellman.study.runs import RunPath
from softbellman.training.metrics import Row


class TensorBoard:
    """Event files of one run, begun anew where training goes on; see `sinks.Sink`."""

    def __init__(self, run: RunPath) -> None:
        """Begin anew."""
        from tensorboardX import SummaryWriter

        folder = run.path / "tensorboard"
        shutil.rmtree(folder, ignore_errors=True)
        self._writer = SummaryWriter(str(folder), flush_secs=30)

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
