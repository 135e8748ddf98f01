"""Measure rejax's DQN, as many runs at once as asked for, on one MinAtar game, and print one JSON line.

Run by `benchmarks/minatar_speed.py` in an environment of its own: nothing of softbellman is imported here. rejax makes
one update for each turn of its loop, and a turn steps every environment of a run once; four environments and one
update for each turn are one update of 32 for every 4 steps. Its network, two layers of 64 units, is smaller.
"""

import argparse
import json
import platform
import time
from importlib.metadata import version

import jax
from gymnax.environments.minatar import asterix, breakout, freeway, space_invaders
from rejax import DQN

GAMES = {
    "asterix": asterix.MinAsterix,
    "breakout": breakout.MinBreakout,
    "freeway": freeway.MinFreeway,
    "space_invaders": space_invaders.MinSpaceInvaders,
}


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Train `runs` runs at once and time `steps` agent steps of each, after as many that compile and warm up."""
    env = GAMES[options.game](use_minimal_action_set=False)
    algorithm = DQN.create(
        env=env,
        env_params=env.default_params,
        num_envs=4,
        batch_size=32,
        buffer_size=100_000,
        fill_buffer=1_000,
        num_epochs=1,
        ddqn=False,
        eps_start=0.1,
        eps_end=0.1,
        gamma=0.99,
        learning_rate=0.00025,
        target_update_freq=4_000,
        total_timesteps=options.steps,
        eval_freq=options.steps,
        skip_initial_evaluation=True,
    )
    algorithm = algorithm.replace(eval_callback=lambda algorithm, state, key: ())
    state = jax.vmap(algorithm.init_state)(jax.random.split(jax.random.key(options.seed), options.runs))
    train = jax.jit(jax.vmap(lambda state: algorithm.train(train_state=state)[0]))
    state = jax.block_until_ready(train(state))
    before, started = (int(state.global_step.sum()), int(state.q_ts.step.sum())), time.perf_counter()
    state = jax.block_until_ready(train(state))
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "steps": int(state.global_step.sum()) - before[0],
        "updates": int(state.q_ts.step.sum()) - before[1],  # as the optimiser counted them
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("rejax", "gymnax", "jax", "jaxlib")},
    }


def main() -> None:
    """Read the options that the driver passes, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    print(json.dumps(measure(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
