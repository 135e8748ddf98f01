"""DQN in one file, in the manner of CleanRL, with a Bellman operator of softbellman's in its target.

    python examples/cleanrl_dqn.py --operator "softmax(5)" --total-timesteps 20000

In a file of your own, two lines change: the operator is read, and the target is `rewards + discounts * op(q_target,
q_online)` where it took the maximum. It needs PyTorch, Gymnasium, NumPy and tyro.
"""

import copy
from dataclasses import dataclass
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
import tyro
from torch import nn

from softbellman import operators as ops


@dataclass
class Args:
    """Options.

    Attributes:
        operator: the Bellman operator; `max` is DQN, `double(max)` double DQN.
        env_id: any Gymnasium environment with a flat Box observation and discrete actions.
    """

    operator: str = "softmax(5)"
    env_id: str = "CartPole-v1"
    seed: int = 1
    total_timesteps: int = 20_000
    learning_starts: int = 1_000
    train_frequency: int = 4
    target_network_frequency: int = 500
    buffer_size: int = 10_000
    batch_size: int = 128
    gamma: float = 0.99
    learning_rate: float = 1e-3
    start_e: float = 1.0
    end_e: float = 0.05
    exploration_fraction: float = 0.5
    device: str = "cpu"
    threads: int = 1  # of PyTorch: networks so small only wait for more


class Batch(NamedTuple):
    """Transitions of a minibatch."""

    obs: torch.Tensor
    actions: torch.Tensor
    next_obs: torch.Tensor
    rewards: torch.Tensor
    terminated: torch.Tensor


def td_target(op: ops.Operator, batch: Batch, target_network: nn.Module, q_network: nn.Module, gamma: float):
    """Compute the targets `[B]`: here is where a maximum was."""
    with torch.no_grad():
        worth = op(target_network(batch.next_obs), q_network(batch.next_obs))
        return batch.rewards + gamma * (1 - batch.terminated) * worth


def main(args: Args) -> tuple[nn.Module, list[float]]:
    """Train; give the network and the return of each episode."""
    op = ops.parse(args.operator)
    torch.set_num_threads(args.threads)
    rng, device = np.random.default_rng(args.seed), torch.device(args.device)
    torch.manual_seed(args.seed)
    env = gymnasium.make(args.env_id)
    if not isinstance(env.action_space, gymnasium.spaces.Discrete) or len(env.observation_space.shape or ()) != 1:
        raise ValueError(f"{args.env_id} needs discrete actions and observations that are a vector of numbers")
    features, actions = env.observation_space.shape[0], int(env.action_space.n)
    ops.require_contract(op, actions, "torch")
    layers = [nn.Linear(features, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, actions)]
    q_network = nn.Sequential(*layers).to(device)
    target_network = copy.deepcopy(q_network)
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)
    sizes = {"obs": (features,), "actions": (), "next_obs": (features,), "rewards": (), "terminated": ()}
    store = {name: np.zeros((args.buffer_size, *size), np.float32) for name, size in sizes.items()}

    obs, _ = env.reset(seed=args.seed)
    returns, score = [], 0.0
    for step in range(args.total_timesteps):
        share = min(1.0, step / (args.exploration_fraction * args.total_timesteps))
        if rng.random() < args.start_e + share * (args.end_e - args.start_e):
            action = int(rng.integers(actions))
        else:
            with torch.no_grad():
                action = int(q_network(torch.as_tensor(obs, dtype=torch.float32, device=device)[None]).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        for name, value in zip(sizes, (obs, action, next_obs, reward, terminated), strict=True):
            store[name][step % args.buffer_size] = value
        obs, score = next_obs, score + float(reward)
        if terminated or truncated:
            returns.append(score)
            if len(returns) % 50 == 0:
                print(f"step {step:,}: the last 20 episodes have a mean return of {np.mean(returns[-20:]):.1f}")
            obs, score = env.reset()[0], 0.0
        if step >= args.learning_starts and step % args.train_frequency == 0:
            chosen = rng.integers(min(step + 1, args.buffer_size), size=args.batch_size)
            batch = Batch(**{name: torch.as_tensor(values[chosen], device=device) for name, values in store.items()})
            target = td_target(op, batch, target_network, q_network, args.gamma)
            values = q_network(batch.obs).gather(1, batch.actions.long()[:, None])[:, 0]
            loss = nn.functional.mse_loss(values, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % args.target_network_frequency == 0:
            target_network.load_state_dict(q_network.state_dict())
    env.close()
    return q_network, returns


if __name__ == "__main__":
    try:
        _, scores = main(tyro.cli(Args))
    except ValueError as error:
        raise SystemExit(f"cleanrl_dqn.py: {error}") from None
    print(f"{len(scores)} episodes" + (f", the last 20 of mean return {np.mean(scores[-20:]):.1f}" if scores else ""))
