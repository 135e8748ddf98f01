"""Measure softbellman's DQN on one Atari game and print one JSON line.

The counterpart of `sb3_dqn.py`: the same options, the same work for a step, the same line.
"""

import argparse
import json
import os
import platform
from importlib.metadata import version


def measure(game: str, replay_start: int, warmup: int, steps: int, threads: int, seed: int) -> dict[str, object]:
    """Train for `replay_start + warmup + steps` agent steps and time the last `steps` of them.

    The clock starts when agent step `replay_start + warmup` is done, and stops when the last one is, with every
    update that belongs to them finished (`jax.block_until_ready`). No test phases, no diagnostics.
    """
    os.environ["NPROC"] = str(threads)  # the size of XLA's thread pool; read when JAX loads

    # TODO: softbellman.training.host_loop, with
    #   game, one environment, operator max, replay of 100,000, replay_start_steps=replay_start, batch 32,
    #   update_period_steps=4, target copy every 10,000 agent steps, epsilon constant at 0.1, the rest paper-atari;
    #   then set `seconds` (time.perf_counter) and `updates` (within the timed steps: steps // 4).
    raise NotImplementedError("benchmarks/peers/softbellman_dqn.py: call softbellman.training.host_loop here")

    seconds, updates = float("nan"), 0
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
