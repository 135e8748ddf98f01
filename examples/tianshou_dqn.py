"""Tianshou's DQN with a Bellman operator of softbellman's in its target.

    python examples/tianshou_dqn.py --operator "double(mellowmax(5))" --steps 20000

One line is not Tianshou's own: `use_operator`. It needs Tianshou 2 and tyro.
"""

from dataclasses import dataclass

import gymnasium
import torch
import tyro
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.torch_utils import policy_within_training_step

from softbellman.integrations.tianshou import use_operator


@dataclass
class Args:
    """Options.

    Attributes:
        operator: the Bellman operator; `max` is DQN, `double(max)` double DQN.
        env_id: any Gymnasium environment with a flat Box observation and discrete actions.
        steps: environment steps.
        per_round: environment steps from one update to the next.
    """

    operator: str = "softmax(5)"
    env_id: str = "CartPole-v1"
    steps: int = 20_000
    per_round: int = 5
    seed: int = 0


def main(args: Args) -> tuple[DQN, list[float]]:
    """Train; give the algorithm and the return of each episode."""
    torch.set_num_threads(1)  # networks so small only wait for more
    torch.manual_seed(args.seed)
    env = gymnasium.make(args.env_id)
    if not isinstance(env.action_space, gymnasium.spaces.Discrete) or len(env.observation_space.shape or ()) != 1:
        raise ValueError(f"{args.env_id} needs discrete actions and observations that are a vector of numbers")
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=env.observation_space.shape, action_shape=env.action_space.n, hidden_sizes=[64, 64]),
        action_space=env.action_space,
        observation_space=env.observation_space,
        eps_training=0.1,
    )
    algorithm = use_operator(
        DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=500), args.operator
    )
    envs = DummyVectorEnv([lambda: gymnasium.make(args.env_id)])
    envs.seed(args.seed)
    buffer, returns = VectorReplayBuffer(10_000, 1), []
    collector = Collector(algorithm, envs, buffer)
    collector.reset(gym_reset_kwargs={"seed": args.seed})
    with policy_within_training_step(policy):
        for _ in range(args.steps // args.per_round):
            returns += collector.collect(n_step=args.per_round).returns.tolist()
            algorithm.update(buffer=buffer, sample_size=64)
    return algorithm, returns


if __name__ == "__main__":
    try:
        _, scores = main(tyro.cli(Args))
    except ValueError as error:
        raise SystemExit(f"tianshou_dqn.py: {error}") from None
    print(
        f"{len(scores)} episodes"
        + (f", the last 20 of mean return {sum(scores[-20:]) / len(scores[-20:]):.1f}" if scores else "")
    )
