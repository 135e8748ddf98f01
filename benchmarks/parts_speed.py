"""Measure the cost of the learner's parts in training, each beside the plain recipe.

    .venv/bin/python benchmarks/parts_speed.py            # about ten minutes; an idle machine, please
    .venv/bin/python benchmarks/parts_speed.py --smoke    # does it run at all?

Arm after arm is measured beside the plain recipe, both loops in this process, compiled and filled first. In each round
both train for the same steps, each first in every other round, so that a machine that slows down favours neither; the
median of the rounds' ratios counts. Writes a CSV and a JSON, named after the families, into the folder --out.
"""

import argparse
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

from dqn_speed import RESULTS, busy_cores, provenance, write_results

ARMS = {
    "minatar": [
        "max, target=past(5)",
        "max, estimate=ensemble(4, min)",
        "max, head=duelling",
        "max, sampling=prioritised",
        "max, returns=3",
        "max, estimate=quantiles(51)",
        "softmax(30), estimate=quantiles(51)",
        "max, estimate=categorical(51, -10, 30)",
        "max, gap=gap(0.9)",
        "max, noise=noisy",
        "max, scale=popart(0.001)",
        "max, tightening=tightening",
    ],
    "atari": ["max, sampling=prioritised", "max, estimate=quantiles(51)", "max, returns=3"],
}
SETTINGS = {
    "minatar": ("minatar/breakout", "sharp-minatar", 100_000, 8_000),
    "atari": ("atari/breakout", "sharp-atari", 100_000, 400),
}
COLUMNS = ["environment", "arm", "round", "steps", "plain_seconds", "seconds", "ratio"]


def make_loop(environment: str, preset: str, capacity: int, text: str):
    """Make the loop of an arm, about to learn; from there on the network is asked for nine actions in ten."""
    from softbellman import config as configs
    from softbellman.config.arms import as_arm
    from softbellman.envs import make
    from softbellman.running import build
    from softbellman.training.lanes import Run

    arm = as_arm(text)
    values = {
        "loop.steps": 10**9,
        "loop.epoch_steps": 10**9,
        "learner.replay_capacity": capacity,
        "learner.replay_start_steps": 2_000,
        "learner.epsilon_start": 0.1,
        "learner.epsilon_end": 0.1,
    }
    config = arm.config(configs.with_settings(configs.preset(preset).config, values))
    env = make(environment, seed=0, protocol=build.protocol_of(environment, config))
    scale = env.obs_scale
    env.close()
    return build.make_loop(environment, config, [Run(arm.made(), 0)], scale)


def timed(loop, steps: int) -> float:
    """Train for so many steps, and return the seconds that they took."""
    import jax

    started = time.perf_counter()
    loop.advance(steps)
    jax.block_until_ready(loop.learners)
    return time.perf_counter() - started


def main() -> None:
    """Measure every arm of both families, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true", help="one short round of two arms")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for CSV and JSON")
    options = parser.parse_args()
    from softbellman.memory import keep_freed_memory

    keep_freed_memory()  # as a worker does
    started, busy, rows, medians = datetime.now(UTC), busy_cores(), [], {}
    for family in options.families:
        environment, preset, capacity, steps = SETTINGS[family]
        steps = steps // 10 if options.smoke else steps
        for arm in ARMS[family][: 2 if options.smoke else None]:
            plain, other = (make_loop(environment, preset, capacity, text) for text in (arm.split(",")[0], arm))
            for loop in (plain, other):
                timed(loop, 2_000 + steps)
            ratios = []
            for number in range(1 if options.smoke else options.rounds):
                order = (plain, other) if number % 2 == 0 else (other, plain)
                taken = {loop: timed(loop, steps) for loop in order}
                seconds = [taken[plain], taken[other]]
                ratios.append(seconds[1] / seconds[0])
                rows.append(dict(zip(COLUMNS, [environment, arm, number, steps, *seconds, ratios[-1]], strict=True)))
            for loop in (plain, other):
                loop.close()
            medians[f"{environment}: {arm}"] = [statistics.median(ratios), min(ratios), max(ratios)]
            print(f"{environment:17} {arm:40} {statistics.median(ratios):.3f} times the plain recipe's time "
                  f"({min(ratios):.3f} to {max(ratios):.3f})", flush=True)  # fmt: skip
    settings = {"families": options.families, "rounds": options.rounds, "smoke": options.smoke}
    facts = provenance("parts_speed.py", settings, started) | {"busy_cores_before": busy, "time_over_plain": medians}
    write_results(options.out / f"parts_speed_{'_'.join(options.families)}.csv", COLUMNS, rows, facts)


if __name__ == "__main__":
    main()
