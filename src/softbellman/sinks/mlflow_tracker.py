"""MLflow: rows, settings and the end of a run, in the store that its user set, by default `mlflow.db` here."""

import os
import time
from collections.abc import Mapping

from softbellman.sinks.tracked import Facts, setting

_STATES = {"finished": "FINISHED", "stopped": "KILLED"}
_AT_ONCE = 100  # parameters that MLflow takes at once


class MLflow:
    """A run of MLflow; see `Tracker`."""

    def __init__(self, facts: Facts, known: str | None) -> None:
        """Begin, or go on."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

        self._client = MlflowClient()
        self.id = self._begun(facts) if known is None else known
        if known is not None:
            self._client.update_run(self.id, status="RUNNING")
        known_rows = self._client.get_metric_history(self.id, "epoch")
        self.newest: int | None = max((metric.step for metric in known_rows), default=-1)

    def row(self, step: int, values: Mapping[str, float]) -> None:
        """Log it at the agent step."""
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]

        now = int(time.time() * 1000)
        self._client.log_batch(self.id, [Metric(name, float(value), now, step) for name, value in values.items()])

    def end(self, state: str) -> None:
        """Finish the run."""
        self._client.set_tag(self.id, "status", state)
        self._client.set_terminated(self.id, _STATES.get(state, "FAILED"))

    def _begun(self, facts: Facts) -> str:
        from mlflow.entities import Param  # pyright: ignore[reportMissingImports]

        name = setting("MLFLOW_EXPERIMENT_NAME")
        experiment = self._client.get_experiment_by_name(name)
        place = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        made = self._client.create_run(place, run_name=facts.name, tags={"study": facts.study}).info.run_id
        settings = [Param(key, str(value)) for key, value in facts.settings.items()]
        for first in range(0, len(settings), _AT_ONCE):
            self._client.log_batch(made, params=settings[first : first + _AT_ONCE])
        return made
