"""Weights & Biases: rows, settings and the end of a run, and nothing else; online or not as its user has set."""

import os
import uuid
from collections.abc import Mapping
from typing import Any

from softbellman.sinks.tracked import Facts, setting

SETTINGS = {
    "x_transaction_log_flush_interval": 1,  # seconds; what is not written when this process is killed is lost
    "console": "off",
    "host": "",
    "silent": True,
    "disable_code": True,
    "disable_git": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}


class Wandb:
    """A run of Weights & Biases; see `Tracker`. While it is offline it can't be asked for its rows."""

    newest: int | None = None

    def __init__(self, facts: Facts, known: str | None) -> None:
        """Begin, or go on."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb  # pyright: ignore[reportMissingImports]

        self.id = known or uuid.uuid4().hex[:8]
        self._run: Any = wandb.init(
            project=setting("WANDB_PROJECT"),
            id=self.id,
            resume="allow",
            name=facts.name,
            group=os.environ.get("WANDB_RUN_GROUP") or facts.study,
            config=dict(facts.settings),
            allow_val_change=True,
            reinit="create_new",
            settings=wandb.Settings(**SETTINGS),
        )

    def row(self, step: int, values: Mapping[str, float]) -> None:
        """Log it at the agent step."""
        self._run.log(dict(values), step=step, commit=True)

    def end(self, state: str) -> None:
        """Finish the run."""
        self._run.summary["status"] = state
        self._run.finish(exit_code=0 if state == "finished" else 1)
