"""Trains the runs of a group together, and writes what comes of each."""

import traceback
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from softbellman import operators as ops
from softbellman.study.plan import make_env, make_network
from softbellman.study.store import RunWriter, Study
from softbellman.training.evaluation import TestPhase
from softbellman.training.host_loop import HostLoop, Run
from softbellman.training.metrics import MetricsRow


def train(
    study: Study,
    *,
    on_progress: Callable[[int], None] | None = None,
    on_row: Callable[[int, MetricsRow, TestPhase], None] | None = None,
) -> None:
    """Trains all runs of a study, which must be one group, and writes rows, parameters and status as they come.

    Args:
        study: a study just made.
        on_progress: called with the agent steps so far after each of them.
        on_row: called with the index of a run, its row and its test phase after each test phase.

    Raises:
        BaseException: whatever stopped the training; first, the runs are marked with its last line, and the whole of
            it is written to their `error.txt`.
    """
    config, environment = study.config, study.record["environment"]
    accidents: dict[str, Any] = {}
    if environment.startswith("atari/"):
        accidents = {name: getattr(config.protocol, name) for name in ("random_first_actions", "budget_cut_terminates")}
    with ExitStack() as stack:
        writers = [stack.enter_context(closing(RunWriter(run, MetricsRow._fields))) for run in study.runs]
        try:
            loop = HostLoop(
                [Run(ops.parse(run.operator), run.seed) for run in study.runs],
                partial(make_env, environment, config),
                partial(make_network, config.network),
                config.learner,
                config.loop,
                **accidents,
            )
            stack.enter_context(closing(loop))
            while loop.agent_steps < config.loop.steps:
                loop.advance(min(config.loop.epoch_steps, config.loop.steps - loop.agent_steps), on_progress)
                for index, (row, phase) in enumerate(loop.test()):
                    writers[index].row(row)
                    writers[index].params(loop.params(index), row.agent_steps, phase.mean)
                    if on_row is not None:
                        on_row(index, row, phase)
        except BaseException as error:
            state = "failed" if isinstance(error, Exception) else "stopped"
            for writer in writers:
                writer.error(state, traceback.format_exception_only(error)[-1].strip(), traceback.format_exc())
            raise
        for writer in writers:
            writer.status("finished", agent_steps=loop.agent_steps, updates=loop.updates)
