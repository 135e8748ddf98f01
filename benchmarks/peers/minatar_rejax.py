"""Measure rejax's DQN, as many runs at once as asked for, on one MinAtar game, and print one JSON line.

Run by `benchmarks/minatar_speed.py` in an environment of its own: nothing of softbellman is imported here. rejax makes
one update for each turn of its loop, and a turn steps every environment of a run once; four environments and one
update for each turn are one update of 32 for every 4 steps.
"""

import argparse
import json
import platform
import time
from importlib.metadata import version

import jax
import jax.numpy as jnp
from flax import linen as nn
from gymnax.environments.minatar import asterix, breakout, freeway, space_invaders
from rejax import DQN
from rejax.networks import DiscreteQNetwork, EpsilonGreedyPolicy
from starting_line import wait_for_the_word

GAMES = {
    "asterix": asterix.MinAsterix,
    "breakout": breakout.MinBreakout,
    "freeway": freeway.MinFreeway,
    "space_invaders": space_invaders.MinSpaceInvaders,
}


class Planes(nn.Module):
    """MinAtar's network, with the methods that rejax asks of one."""

    action_dim: int

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        """Return the values of observations `[B, 10, 10, C]`."""
        x = nn.relu(nn.Conv(16, (3, 3), padding="VALID")(obs))
        x = nn.relu(nn.Dense(128)(x.reshape(len(x), -1)))
        return nn.Dense(self.action_dim)(x)

    def take(self, obs: jax.Array, action: jax.Array) -> jax.Array:
        """Return the values of actions `[B]`."""
        return jnp.take_along_axis(self(obs), action[:, None], axis=1).squeeze(1)


def make_network(name: str, num_actions: int) -> nn.Module:
    """Return the network asked for, under rejax's epsilon-greedy policy."""
    if name == "minatar_cnn":
        return EpsilonGreedyPolicy(Planes)(action_dim=num_actions)
    return EpsilonGreedyPolicy(DiscreteQNetwork)(
        hidden_layer_sizes=(64, 64), action_dim=num_actions, activation=nn.relu
    )


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Train `runs` runs at once; say when each has made `steps` agent steps, wait for the word, and time as many."""
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
        polyak=0.0,  # the target network becomes a copy
        total_timesteps=options.steps,
        eval_freq=options.steps,
        skip_initial_evaluation=True,
    )
    algorithm = algorithm.replace(
        agent=make_network(options.network, env.num_actions), eval_callback=lambda algorithm, state, key: ()
    )
    keys = jax.random.split(jax.random.key(options.seed), options.runs)

    def train_one(state: object) -> object:
        return algorithm.train(train_state=state)[0]

    if options.runs == 1:  # without an axis of runs its conditions stay conditions
        state, train = jax.jit(algorithm.init_state)(keys[0]), train_one
    else:
        state, train = jax.jit(jax.vmap(algorithm.init_state))(keys), jax.vmap(train_one)
    train = jax.jit(train, donate_argnums=0)  # the replays are not copied
    state = jax.tree.map(jnp.copy, state)  # no two arrays of it are one, else they could not be given away
    state = jax.block_until_ready(train(state))

    def clocks(state: object) -> tuple[int, int]:
        return int(state.global_step.sum()), int(state.q_ts.step.sum())  # updates as the optimiser counted them

    steps, updates = clocks(state)
    wait_for_the_word()
    started = time.perf_counter()
    state = jax.block_until_ready(train(state))
    ended = time.perf_counter()
    return {
        "started": started,
        "ended": ended,
        "steps": clocks(state)[0] - steps,
        "updates": clocks(state)[1] - updates,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("rejax", "gymnax", "jax", "jaxlib")},
    }


def main() -> None:
    """Read the options that the driver passes, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--network", choices=("mlp", "minatar_cnn"), default="mlp")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    print(json.dumps(measure(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
