"""Measure Stable-Baselines3's DQN on one Atari game and print one JSON line.

Run by `benchmarks/dqn_speed.py` in an environment of its own: nothing of softbellman is imported here.
Every option that the library has is set as the paper's preset has it, so that both do the same work for a step:
one environment, frames of 84x84 in stacks of 4, a batch of 32 for every 4 steps, RMSProp, a target copy every
10,000 steps. `benchmarks/README.md` lists the settings that its options cannot express.
"""

import argparse
import json
import platform
import time

import ale_py
import gymnasium as gym
import stable_baselines3
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack


class Stopwatch(BaseCallback):
    """Note the time at two agent steps: `first`, and `last`, where training stops."""

    def __init__(self, first: int, last: int) -> None:
        """Remember the two steps."""
        super().__init__()
        self.first, self.last = first, last
        self.started = self.ended = 0.0

    def _on_step(self) -> bool:
        if self.num_timesteps == self.first:
            self.started, self.updates_before = time.perf_counter(), self.model._n_updates
        if self.num_timesteps == self.last:
            self.ended, self.updates_after = time.perf_counter(), self.model._n_updates
        return self.num_timesteps < self.last


def measure(game: str, replay_start: int, warmup: int, steps: int, threads: int, seed: int) -> dict[str, object]:
    """Train for `replay_start + warmup + steps` agent steps and time the last `steps` of them."""
    torch.set_num_threads(threads)
    gym.register_envs(ale_py)
    name = "".join(word.capitalize() for word in game.split("_"))
    env = VecFrameStack(make_atari_env(f"{name}NoFrameskip-v4", n_envs=1, seed=seed), n_stack=4)
    model = DQN(
        "CnnPolicy",
        env,
        learning_rate=2.5e-4,
        buffer_size=100_000,
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},  # required by the line above
        learning_starts=replay_start,
        batch_size=32,
        gamma=0.99,
        train_freq=4,
        gradient_steps=1,
        target_update_interval=10_000,
        exploration_initial_eps=0.1,  # constant: the value that most of a training run has
        exploration_final_eps=0.1,
        policy_kwargs={
            "optimizer_class": torch.optim.RMSprop,
            "optimizer_kwargs": {"alpha": 0.95, "eps": 0.01, "centered": True},
        },
        device="cpu",
        seed=seed,
    )
    stopwatch = Stopwatch(replay_start + warmup, replay_start + warmup + steps)
    model.learn(total_timesteps=2 * stopwatch.last, callback=stopwatch, log_interval=1_000_000)
    env.close()
    seconds = stopwatch.ended - stopwatch.started
    return {
        "library": "stable-baselines3",
        "steps": steps,
        "updates": stopwatch.updates_after - stopwatch.updates_before,
        "seconds": seconds,
        "steps_per_second": steps / seconds,
        "versions": {
            "python": platform.python_version(),
            "stable-baselines3": stable_baselines3.__version__,
            "torch": torch.__version__,
            "gymnasium": gym.__version__,
            "ale-py": ale_py.__version__,
        },
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
