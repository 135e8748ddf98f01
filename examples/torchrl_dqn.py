"""TorchRL's DQN loss with a Bellman operator of softbellman's in its target.

    python examples/torchrl_dqn.py --operator "softmax(5)" --steps 20000

One line is not TorchRL's own: `OperatorDQNLoss` in place of `DQNLoss`. It needs TorchRL and tyro.
"""

from dataclasses import dataclass

import torch
import tyro
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, OneHot, TensorDictReplayBuffer
from torchrl.envs import GymEnv, RewardSum, TransformedEnv
from torchrl.modules import EGreedyModule, QValueActor
from torchrl.objectives import HardUpdate

from softbellman.integrations.torchrl import OperatorDQNLoss


@dataclass
class Args:
    """Options.

    Attributes:
        operator: the Bellman operator; `max` is DQN, `double(max)` double DQN.
        env_id: any Gymnasium environment with a flat Box observation of float32 and discrete actions.
        steps: environment steps.
        per_round: environment steps from some updates to the next; one update for each five, at least one.
    """

    operator: str = "softmax(5)"
    env_id: str = "CartPole-v1"
    steps: int = 20_000
    per_round: int = 20
    seed: int = 0


def main(args: Args) -> tuple[torch.nn.Module, list[float]]:
    """Train; give the actor and the return of each episode."""
    torch.set_num_threads(1)  # networks so small only wait for more
    torch.manual_seed(args.seed)
    env = TransformedEnv(GymEnv(args.env_id), RewardSum())
    env.set_seed(args.seed)
    if not isinstance(env.action_spec, OneHot) or env.observation_spec.get("observation", None) is None:
        raise ValueError(f"{args.env_id} needs discrete actions and observations that are a vector of numbers")
    features, actions = env.observation_spec["observation"].shape[-1], env.action_spec.space.n
    layers = [torch.nn.Linear(features, 64), torch.nn.ReLU(), torch.nn.Linear(64, actions)]
    actor = QValueActor(torch.nn.Sequential(*layers), in_keys=["observation"], spec=env.action_spec)
    loss = OperatorDQNLoss(actor, operator=args.operator)
    loss.make_value_estimator(gamma=0.99)
    explore = EGreedyModule(env.action_spec, eps_init=1.0, eps_end=0.05, annealing_num_steps=args.steps // 2)
    acting = TensorDictSequential(actor, explore)
    collector = Collector(env, acting, frames_per_batch=args.per_round, total_frames=args.steps)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10_000), batch_size=64)
    optimiser = torch.optim.Adam(loss.parameters(), 1e-3)
    target, returns = HardUpdate(loss, value_network_update_interval=100), []
    for data in collector:
        buffer.extend(data)
        explore.step(data.numel())
        for _ in range(max(1, args.per_round // 5)):
            loss(buffer.sample())["loss"].backward()
            optimiser.step()
            optimiser.zero_grad()
            target.step()
        returns += data["next", "episode_reward"][data["next", "done"]].flatten().tolist()
    collector.shutdown()
    return actor, returns


if __name__ == "__main__":
    try:
        _, scores = main(tyro.cli(Args))
    except ValueError as error:
        raise SystemExit(f"torchrl_dqn.py: {error}") from None
    print(
        f"{len(scores)} episodes"
        + (f", the last 20 of mean return {sum(scores[-20:]) / len(scores[-20:]):.1f}" if scores else "")
    )
