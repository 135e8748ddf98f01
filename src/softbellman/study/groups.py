"""Trains the runs of a group together, and writes what comes of each."""

import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from softbellman import envs
from softbellman.learning.networks import Network, mlp, nature_cnn
from softbellman.learning.replay import FrameReplay, available_memory, require_memory
from softbellman.study.config import Config, NetworkSettings
from softbellman.study.store import RunWriter, Study
from softbellman.training.evaluation import TestPhase
from softbellman.training.host_loop import HostLoop, Run
from softbellman.training.metrics import MetricsRow
from softbellman import operators as ops

_PIXELS = (4, 84, 84)


def make_env(environment: str, config: Config, seed: int, training: bool) -> envs.HostEnv:
    """Makes a run's environment, for training or for one test phase (a single copy)."""
    protocol = config.protocol if environment.startswith("atari/") else None
    num_envs = config.loop.num_envs if training else 1
    return envs.make(environment, seed=seed, num_envs=num_envs, training=training, protocol=protocol)


def make_network(settings: NetworkSettings, obs_shape: tuple[int, ...], num_actions: int) -> Network:
    """Builds the network for an environment.

    Raises:
        ValueError: if `nature_cnn` is asked for and the observations are not its own.
    """
    if settings.kind == "nature_cnn" and tuple(obs_shape) != _PIXELS:
        raise ValueError(f"network.kind nature_cnn takes observations of shape {_PIXELS}, not {tuple(obs_shape)}; use mlp")
    if settings.kind != "mlp" and tuple(obs_shape) == _PIXELS:
        return nature_cnn(num_actions)
    return mlp(obs_shape, num_actions, settings.hidden)


def replay_bytes(env: envs.HostEnv, config: Config, num_runs: int) -> int:
    """Returns the bytes of all replays of a group, and refuses them if they do not fit into memory.

    Raises:
        MemoryError: with the bytes needed, the bytes there, and the field to change.
    """
    capacity = config.learner.replay_capacity
    needed = num_runs * FrameReplay.bytes_needed(capacity, env.obs_shape, env.obs_dtype, env.stack)
    require_memory(needed, available_memory(), "learner.replay_capacity" + (" or the number of seeds" if num_runs > 1 else ""))
    return needed


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
        BaseException: whatever stopped the training; the runs are marked as failed with its last line first.
    """
    config, runs = study.config, study.runs
    environment = study.record["environment"]
    accidents: dict[str, Any] = {}
    if environment.startswith("atari/"):
        accidents = {
            name: getattr(config.protocol, name) for name in ("random_first_actions", "budget_cut_terminates")
        }
    writers = [RunWriter(run, MetricsRow._fields) for run in runs]
    try:
        loop = HostLoop(
            [Run(ops.parse(run.operator), run.seed) for run in runs],
            partial(make_env, environment, config),
            partial(make_network, config.network),
            config.learner,
            config.loop,
            **accidents,
        )
        while loop.agent_steps < config.loop.steps:
            loop.advance(min(config.loop.epoch_steps, config.loop.steps - loop.agent_steps), on_progress)
            for index, (row, phase) in enumerate(loop.test()):
                writers[index].row(row)
                writers[index].params(loop.params(index), row.agent_steps, phase.mean)
                if on_row is not None:
                    on_row(index, row, phase)
        loop.close()
    except BaseException as error:
        for writer in writers:
            writer.status("failed", reason="".join(traceback.format_exception_only(error)).strip())
        raise
    else:
        for writer in writers:
            writer.status("finished", agent_steps=loop.agent_steps, updates=loop.updates)
    finally:
        for writer in writers:
            writer.close()
