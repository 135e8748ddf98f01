"""Measure softbellman's group of runs on one MinAtar game, and print one JSON line.

Run by `benchmarks/minatar_speed.py`, as a process of its own for each worker, as a comparison trains its groups.
"""

import argparse
import json
import os
import platform
import time
from importlib.metadata import version

from starting_line import wait_for_the_word

from softbellman.memory import keep_freed_memory

# Settings as the other library has them, beyond what all have alike.
BESIDE = {
    "rejax": {
        "learner.optimizer": "adam",
        "learner.optimizer_epsilon": 1e-8,
        "minatar.sticky_probability": 0.0,
        "minatar.max_steps": 1_000,
    },
    "stable-baselines3": {},  # the preset's: MinAtar's own game and optimiser
}


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Train a group; say when each run has made `steps` agent steps, wait for the word, and time as many."""
    os.environ["NPROC"] = str(options.threads)  # the size of XLA's thread pool; read when JAX loads
    keep_freed_memory()  # as a worker does

    import jax

    from softbellman import config as configs
    from softbellman import operators as ops
    from softbellman.running.build import make_loop
    from softbellman.training.lanes import Run

    config = configs.preset("quick-minatar").config
    values = BESIDE[options.beside] | {
        "network.kind": options.network,
        "network.hidden": (64, 64),
        "loop.num_envs": options.envs,
        "loop.epoch_steps": options.steps,
        "learner.replay_start_steps": 1_000,
        "learner.epsilon_decay_steps": 0,
    }
    for name, value in values.items():
        config = configs.replaced(config, name, value)
    seeds = range(options.seed, options.seed + options.runs)
    loop = make_loop(f"minatar/{options.game}", config, [Run(ops.maximum(), seed) for seed in seeds], scale=1.0)
    loop.advance(options.steps)
    if options.tests:
        loop.test()
    jax.block_until_ready(loop.learners)
    before = loop.updates
    wait_for_the_word()
    started = time.perf_counter()
    loop.advance(options.steps)
    if options.tests:
        loop.test()
    jax.block_until_ready(loop.learners)
    ended = time.perf_counter()
    return {
        "started": started,
        "ended": ended,
        "steps": options.steps * options.runs,
        "updates": (loop.updates - before) * options.runs,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("softbellman", "jax", "jaxlib", "numpy")},
    }


def main() -> None:
    """Read the options that the driver passes, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--network", choices=("mlp", "minatar_cnn"), default="minatar_cnn")
    parser.add_argument("--beside", choices=tuple(BESIDE), default="stable-baselines3", help="whose settings to take")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--envs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tests", action="store_true")
    print(json.dumps(measure(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
