"""Records of a study's runs, read once: how each stands, what it measured, and what the random policy scored."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from softbellman.study import chance
from softbellman.study.files import read_metrics
from softbellman.study.runs import RunPath, read_standing
from softbellman.study.store import Study
from softbellman.training.metrics import rare


@dataclass(frozen=True, eq=False)
class Record:
    """Record of one run.

    Attributes:
        run: the run.
        state: how it stands: finished, failed, diverged, running, stopped or not begun.
        reason: why it did not go on, or an empty text.
    """

    run: RunPath
    state: str
    reason: str

    @cached_property
    def table(self) -> Mapping[str, np.ndarray]:
        """Its `metrics.csv` by column, `[rows]` that can't be written to; read where it is first asked for, then kept.

        A rare measure that the file lacks, being older, is a column of NaN.

        Raises:
            ValueError: if it is not there, or no table of numbers.
        """
        table = read_metrics(self.run.path / "metrics.csv")
        rows = len(next(iter(table.values())))
        table |= {name: np.full(rows, np.nan) for name in rare() - table.keys()}
        for column in table.values():
            column.flags.writeable = False
        return table

    @cached_property
    def rows(self) -> int:
        """How many test phases it has measured; 0 without a `metrics.csv`."""
        return len(self.column("agent_steps")) if (self.run.path / "metrics.csv").exists() else 0

    def column(self, name: str) -> np.ndarray:
        """Returns a column `[rows]` of its table.

        Raises:
            ValueError: if there is no such column, or the table can't be read.
        """
        if name not in self.table:
            raise ValueError(f"{self.run.path / 'metrics.csv'} has no column {name!r}; it has {', '.join(self.table)}")
        return self.table[name]


@dataclass(frozen=True, eq=False)
class Records:
    """Records of all runs of a study, at one time.

    Attributes:
        study: the study.
        runs: its runs, in its order.
        random: the random policy's scores `[games]` by environment; None where it was not played to an end.
    """

    study: Study
    runs: tuple[Record, ...]
    random: Mapping[str, np.ndarray | None]

    @classmethod
    def read(cls, study: Study) -> "Records":
        """Reads how the runs of a study stand, and what the random policy scored."""
        runs = []
        for run in study.runs:
            state, reason = read_standing(run)
            runs.append(Record(run, state or "not begun", reason))
        return cls(study, tuple(runs), {name: chance.read(study, name) for name in study.environments})
