# pyright: reportMissingImports=false
"""Stable-Baselines3: `use_operator(model, op)` has a DQN learn with a Bellman operator."""

from typing import Any, TypeVar

from softbellman.extras import MissingExtra, require_tested
from softbellman.integrations.target import bootstrap, usable
from softbellman.operators import Operator

require_tested("sb3")
try:
    from stable_baselines3 import DQN
    from torch import nn
except ModuleNotFoundError as error:
    raise MissingExtra(str(error.name), "sb3") from error

Model = TypeVar("Model", bound=DQN)


class OperatorTarget(nn.Module):
    """Target network with one column, the operator's value: the library's maximum over actions is then this value.

    Its parameters are those of the target network. The online network is held in a tuple: a submodule's parameters
    would be paired with the online ones when the target network is moved towards them.
    """

    def __init__(self, op: Operator, target: nn.Module, online: nn.Module) -> None:
        super().__init__()
        self.target, self.others = target, (op, online)

    def forward(self, obs: Any) -> Any:
        """Computes the column `[B, 1]`."""
        op, online = self.others
        return bootstrap(op, self.target(obs), lambda: online(obs))


def use_operator(model: Model, op: Operator | str) -> Model:
    """Has a model's targets bootstrap from `op(q_target, q_online)`, from now on, and returns it.

    What is saved is as without; a loaded model learns with the maximum until this is called again.

    Raises:
        TypeError: the model is no DQN, or learns by a rule of its own; or `op` is no operator.
        ValueError: the operator can't be used, or not with as many actions.
    """
    if not isinstance(model, DQN) or type(model).train is not DQN.train:
        raise TypeError(
            f"use_operator takes a stable_baselines3.DQN that learns by DQN.train, and {type(model).__name__} does not"
        )
    op = usable(op, int(model.action_space.n))
    model.q_net_target = OperatorTarget(op, model.policy.q_net_target, model.policy.q_net)
    return model
