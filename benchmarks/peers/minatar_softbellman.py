"""Measure softbellman's group of runs on one MinAtar game, and print one JSON line.

Run by `benchmarks/minatar_speed.py`, as a process of its own for each worker, as a comparison trains its groups.
"""

import argparse
import json
import os
import platform
import sys
import time
from importlib.metadata import version

from softbellman.memory import keep_freed_memory


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Train a group; say when it is warm, wait for the word to go, and time `steps` agent steps of each run."""
    os.environ["NPROC"] = str(options.threads)  # the size of XLA's thread pool; read when JAX loads
    keep_freed_memory()  # as a worker does

    import jax

    from softbellman import operators as ops
    from softbellman.study import config as configs
    from softbellman.study.plan import make_loop
    from softbellman.training.measurement import Run

    config = configs.preset("quick-minatar").config
    for name, value in (
        ("loop.num_envs", options.envs),
        ("loop.epoch_steps", options.steps),
        ("learner.replay_start_steps", 1_000),
        ("learner.epsilon_decay_steps", 0),
    ):
        config = configs.replaced(config, name, value)
    seeds = range(options.first_seed, options.first_seed + options.runs)
    loop = make_loop(f"minatar/{options.game}", config, [Run(ops.maximum(), seed) for seed in seeds], scale=1.0)
    loop.advance(1_000 + options.warmup)
    if options.tests:
        loop.test()
    jax.block_until_ready(loop.blocks)
    print("ready", flush=True)
    sys.stdin.readline()
    before, started = loop.updates, time.perf_counter()
    loop.advance(options.steps)
    if options.tests:
        loop.test()
    jax.block_until_ready(loop.blocks)
    return {
        "started": started,
        "ended": time.perf_counter(),
        "updates": (loop.updates - before) * options.runs,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("softbellman", "jax", "jaxlib", "numpy")},
    }


def main() -> None:
    """Read the options that the driver passes, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--envs", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tests", action="store_true")
    print(json.dumps(measure(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
