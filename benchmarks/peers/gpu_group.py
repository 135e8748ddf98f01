"""Measure one group of runs on the accelerator that JAX finds, and what bounds it; print one JSON line.

Run by `benchmarks/gpu.py`, as a process of its own for each group, as a comparison trains its groups.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from softbellman.memory import keep_freed_memory

REPEATS = 3  # measurements of what is measured alone; the fastest counts
# Not as the preset has it: the group is one block, the replay is small and updates begin early.
PLAYED = {"minatar": 3_000, "atari": 400}  # agent steps of a run before updates; the first third of them compiles
CAPACITY = {"minatar": 100_000, "atari": 5_000}
PRESETS = {"minatar": "sharp-minatar", "atari": "paper-atari"}
LONGEST_CHUNK = 2_000  # agent steps of a run: as many as training makes between two looks at the clock


def clocked(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the seconds until what a function computes is there."""
    import jax

    started = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - started


def repeated(turns: Callable[[int], Any], seconds: float) -> float:
    """Return the seconds of one turn of a compiled loop: turns are doubled until they take long enough.

    Args:
        turns: makes so many turns; the number is an argument of the program, so that nothing is compiled anew.
        seconds: how long they are to take together.
    """
    clocked(turns, 1)  # compiles
    number = 1
    while (taken := clocked(turns, number)) < seconds / REPEATS:
        number *= 2
    return min([taken, *(clocked(turns, number) for _ in range(REPEATS - 1))]) / number


def matrix_rate(size: int, seconds: float) -> float:
    """Return the floating-point operations per second of a product of square matrices in float32, as JAX makes it."""
    import jax
    import jax.numpy as jnp

    left, right = (jax.random.normal(jax.random.key(number), (size, size)) / size**0.5 for number in range(2))

    @jax.jit
    def multiply(number: Any) -> Any:
        return jax.lax.fori_loop(0, number, lambda _, product: product @ right, left)

    return 2 * size**3 / repeated(lambda number: multiply(jnp.int32(number)), seconds)


def update_alone(loop: Any, env: Any, seconds: float) -> tuple[float, float, float]:
    """Return the seconds of one update of every run, and the operations counted in it and in one action of every run.

    All runs learn from one minibatch over and over, which is on the device already.

    Args:
        loop: the loop; it stays as it is.
        env: the environment of a run.
        seconds: how long to measure.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from softbellman.learning import learner
    from softbellman.learning.replay import Transition

    runs, size, rng = len(loop.runs), loop.settings.batch_size, np.random.default_rng(0)
    obs, next_obs = (rng.integers(0, 2, (size, *env.obs_shape)).astype(env.obs_dtype) for _ in range(2))
    action = rng.integers(0, env.num_actions, size).astype(np.int32)
    reward, discount = (rng.random(size, np.float32) for _ in range(2))
    batch = Transition(obs, action, reward, discount, next_obs)
    each = [(loop.state(index), run.operator, batch) for index, run in enumerate(loop.runs)]
    state, operator, batch = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *each)
    if runs == 1:  # the loops take the axis of a single run off, too
        state, operator, batch = jax.tree.map(jnp.asarray, each[0])

    def over_runs(function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(function if runs == 1 else jax.vmap(function))

    @over_runs
    def update(state: Any, operator: Any, batch: Any) -> Any:
        return learner.learn_step(state, operator, batch, loop.recipe)[0]

    @over_runs
    def act(params: Any, obs: Any) -> Any:
        return learner.greedy(loop.recipe.network.apply(params, obs[:1]))

    @jax.jit
    def updates(number: Any, state: Any, operator: Any, batch: Any) -> Any:  # arrays it closed over would be folded
        return jax.lax.fori_loop(0, number, lambda _, state: update(state, operator, batch), state)

    taken = repeated(lambda number: updates(jnp.int32(number), state, operator, batch), seconds)
    return taken, counted(update, state, operator, batch), counted(act, state.params, batch.obs)


def counted(program: Any, *arguments: Any) -> float:
    """Return the floating-point operations that XLA counts in a program, before it is rewritten for a device."""
    return float(program.lower(*arguments).cost_analysis()["flops"])


def train(loop: Any, steps: int) -> Any:
    """Train for so many agent steps of each run; return the state, which may not be computed yet."""
    loop.advance(steps)
    return loop.learners


def in_training(loop: Any, seconds: float) -> tuple[int, float]:
    """Train for a while; return how many agent steps of each run were made, and the seconds that they took.

    They are made in portions of one size, which is found first: a portion is to be long beside what it takes to ask.
    """
    portion = loop.settings.update_period_steps
    clocked(train, loop, portion)  # compiles the updates
    while clocked(train, loop, portion) < seconds / 8 and portion < LONGEST_CHUNK:
        portion *= 2
    steps, taken = 0, 0.0
    while taken < seconds:
        taken += clocked(train, loop, portion)
        steps += portion
    return steps, taken


def emulated(loop: Any, seconds: float) -> float:
    """Return the seconds of one step of every run's emulator, one after the other, as the loop has them stepped."""
    import numpy as np

    rng, steps, started = np.random.default_rng(0), 0, time.perf_counter()
    while (taken := time.perf_counter() - started) < seconds:
        for env in loop.stages[0].envs:
            env.step(rng.integers(0, env.num_actions, 1))
        steps += 1
    return taken / steps


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Make a group, measure its parts alone, then all of it in training."""
    keep_freed_memory()  # as a worker does

    import jax

    from softbellman import config as configs
    from softbellman import operators as ops
    from softbellman.running import build
    from softbellman.training.lanes import Run

    kind, share = options.environment.partition("/")[0], options.seconds / 5
    shrink = 10 if options.small else 1
    played = PLAYED[kind] // shrink
    values = {
        "loop.block_width": options.runs,
        "loop.epoch_steps": 10**9,
        "loop.steps": 10**9,
        "learner.replay_capacity": CAPACITY[kind] // shrink,
        "learner.replay_start_steps": played,
        "learner.epsilon_start": 0.1,  # from the start as in most of training: the network is asked at most steps
        "learner.epsilon_end": 0.1,
    }
    config = configs.with_settings(configs.preset(PRESETS[kind]).config, values)
    runs = [Run(ops.softmax(5.0), seed) for seed in range(options.runs)]
    loop = build.make_loop(options.environment, config, runs, scale=1.0 if kind == "minatar" else 255.0)
    period = loop.settings.update_period_steps
    rate = matrix_rate(options.matrix, share)
    env = build.make_env(options.environment, config, seed=0, training=True)
    update, update_flops, act_flops = update_alone(loop, env, share)
    clocked(train, loop, played // 3)  # compiles acting
    rest = played - played // 3
    step = clocked(train, loop, rest) / rest
    if kind == "atari":
        step = emulated(loop, share)
    made, taken = in_training(loop, share)
    device = jax.devices()[0]
    return {
        "steps": made * options.runs,
        "updates": made // period * options.runs,
        "seconds": taken,
        "period": period,
        "flops_per_step": (act_flops + update_flops / period) / options.runs,
        "matrix_flops": rate,
        "update_seconds": update / options.runs,
        "step_seconds": step / options.runs,
        "device": {"platform": device.platform, "kind": device.device_kind, "count": jax.device_count()},
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("softbellman", "jax", "jaxlib", "numpy")},
    }


def main() -> None:
    """Read the options that the driver passes, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", default="minatar/breakout")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring, beside compilation")
    parser.add_argument("--matrix", type=int, default=4_096, help="rows of the square matrices")
    parser.add_argument("--small", action="store_true")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # as for a worker
    print(json.dumps(measure(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
