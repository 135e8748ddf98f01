"""Measure Stable-Baselines3's DQN on one MinAtar game and print one JSON line.

Run by `benchmarks/minatar_speed.py` in an environment of its own: nothing of softbellman is imported here. The game is
the reference package's, the network MinAtar's: 16 filters 3x3, 128 units.
"""

import argparse
import json
import platform
import time

import gymnasium as gym
import minatar
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from starting_line import wait_for_the_word


class Game(gym.Env):
    """A game of the reference package: planes first, as PyTorch's convolutions take them."""

    def __init__(self, name: str) -> None:
        """Take the game's name."""
        self.game = minatar.Environment(name)
        height, width, planes = self.game.state_shape()
        self.observation_space = gym.spaces.Box(0, 1, (planes, height, width), np.uint8)
        self.action_space = gym.spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Start a game."""
        if seed is not None:
            self.game.seed(seed)
        self.game.reset()
        return self._obs(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take an action."""
        reward, ended = self.game.act(int(action))
        return self._obs(), float(reward), bool(ended), False, {}

    def _obs(self) -> np.ndarray:
        return np.moveaxis(self.game.state(), -1, 0).astype(np.uint8)


class Planes(BaseFeaturesExtractor):
    """MinAtar's network up to its last layer."""

    def __init__(self, space: gym.spaces.Box) -> None:
        """Take the observations' space."""
        super().__init__(space, 128)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(space.shape[0], 16, 3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(8 * 8 * 16, 128),
            torch.nn.ReLU(),
        )

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the features of observations."""
        return self.layers(obs.float())


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Train one run; say when it has made `steps` agent steps, wait for the word, and time as many."""
    torch.set_num_threads(options.threads)
    model = DQN(
        "CnnPolicy",
        Game(options.game),
        learning_rate=2.5e-4,
        buffer_size=100_000,
        learning_starts=1_000,
        batch_size=32,
        gamma=0.99,
        train_freq=4,
        gradient_steps=1,
        target_update_interval=4_000,
        exploration_initial_eps=0.1,
        exploration_final_eps=0.1,
        policy_kwargs={
            "features_extractor_class": Planes,
            "net_arch": [],
            "normalize_images": False,
            "optimizer_class": torch.optim.RMSprop,
            "optimizer_kwargs": {"alpha": 0.95, "eps": 0.01, "centered": True},
        },
        device="cpu",
        seed=options.seed,
    )
    model.learn(options.steps, log_interval=1_000_000)
    before = model._n_updates
    wait_for_the_word()
    started = time.perf_counter()
    model.learn(options.steps, log_interval=1_000_000, reset_num_timesteps=False)
    ended = time.perf_counter()
    return {
        "started": started,
        "ended": ended,
        "steps": options.steps,
        "updates": model._n_updates - before,
        "versions": {
            "python": platform.python_version(),
            "stable-baselines3": stable_baselines3.__version__,
            "torch": torch.__version__,
            "gymnasium": gym.__version__,
        },
    }


def main() -> None:
    """Read the options that the driver passes, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    print(json.dumps(measure(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
