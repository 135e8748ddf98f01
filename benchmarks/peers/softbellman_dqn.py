"""Measure softbellman's DQN on one Atari game and print one JSON line.

The counterpart of `sb3_dqn.py`: the same options, the same work for a step, the same line.
"""

import argparse
import json
import os
import platform
import time
from importlib.metadata import version

from softbellman.memory import keep_freed_memory


def measure(game: str, replay_start: int, warmup: int, steps: int, threads: int, seed: int) -> dict[str, object]:
    """Train for `replay_start + warmup + steps` agent steps and time the last `steps` of them.

    The clock starts when agent step `replay_start + warmup` is done, and stops when the last one is, with every
    update that belongs to them finished (`jax.block_until_ready`). No test phases, no diagnostics.
    """
    os.environ["NPROC"] = str(threads)  # the size of XLA's thread pool; read when JAX loads
    keep_freed_memory()  # as the command line does

    import jax

    from softbellman import envs
    from softbellman import operators as ops
    from softbellman.learning.networks import nature_cnn
    from softbellman.learning.recipe import Recipe
    from softbellman.learning.settings import LearnerSettings
    from softbellman.training.host_stage import host_loop
    from softbellman.training.lanes import Run
    from softbellman.training.settings import LoopSettings

    settings = LearnerSettings(
        replay_capacity=100_000, replay_start_steps=replay_start, epsilon_end=0.1, epsilon_decay_steps=0
    )
    loop = host_loop(
        [Run(ops.maximum(), seed)],
        lambda seed, training: envs.make(f"atari/{game}", seed=seed, training=training),
        lambda obs_shape, num_actions: Recipe(nature_cnn(num_actions), settings.update),
        settings,
        LoopSettings(),
    )
    loop.advance(replay_start + warmup)
    jax.block_until_ready(loop.learners)
    before, started = loop.updates, time.perf_counter()
    loop.advance(steps)
    jax.block_until_ready(loop.learners)
    seconds, updates = time.perf_counter() - started, loop.updates - before
    loop.close()
    return {
        "library": "softbellman",
        "steps": steps,
        "updates": updates,
        "seconds": seconds,
        "steps_per_second": steps / seconds,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("softbellman", "jax", "jaxlib", "numpy", "ale-py")},
    }


def main() -> None:
    """Read the options that the driver passes, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--replay-start", type=int, default=1_000, help="agent steps before the first update")
    parser.add_argument("--warmup", type=int, default=1_000, help="agent steps with updates, not timed")
    parser.add_argument("--steps", type=int, default=5_000, help="agent steps timed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    print(json.dumps(measure(**vars(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
