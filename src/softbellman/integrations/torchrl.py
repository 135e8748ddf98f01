# pyright: reportMissingImports=false
"""TorchRL: `OperatorDQNLoss` is its `DQNLoss` with a Bellman operator."""

from typing import Any

from softbellman.extras import MissingExtra, require_tested
from softbellman.integrations.target import bootstrap, heeds_selector, usable
from softbellman.operators import Operator, as_operator

require_tested("torchrl")
try:
    import torch
    from torchrl.envs.utils import step_mdp
    from torchrl.objectives import DQNLoss
except ModuleNotFoundError as error:
    raise MissingExtra(str(error.name), "torchrl") from error


class OperatorDQNLoss(DQNLoss):
    """`DQNLoss` whose targets bootstrap from `op(q_target, q_online)`, in place of the maximum or `double_dqn`.

    Values that a `QValueActor` has masked are of illegal actions.

    Args:
        value_network: as for `DQNLoss`.
        operator: the Bellman operator, or its spec.
        options: those of `DQNLoss`.

    Raises:
        TypeError: `double_dqn` is given; or `operator` is none.
        ValueError: the operator can't be used; with the first loss, if it is for another number of actions. Or it
            needs two networks, and there is one. Or an action of the action space is several choices.
    """

    def __init__(self, value_network: Any, *, operator: Operator | str, **options: Any) -> None:
        if options.pop("double_dqn", False):
            raise TypeError("OperatorDQNLoss takes an operator in place of double_dqn; double(max) is the same")
        super().__init__(value_network, **options)
        if self.action_space not in ("one_hot", "categorical"):
            raise ValueError(
                f"OperatorDQNLoss takes the action space one_hot or categorical, and not {self.action_space}: an "
                "operator needs one value for each action"
            )
        self.operator, self._actions = as_operator(operator), 0
        if heeds_selector(self.operator) and not self.delay_value:
            raise ValueError(
                f"{self.operator} takes its weights from another network than its values, and with delay_value=False "
                "there is one: leave delay_value at True"
            )

    @property
    def value_estimator(self) -> Any:
        """The estimator that was chosen, with the operator's values as those of the next states."""
        return _Bootstrapping(super().value_estimator, self.next_value)

    def next_value(self, data: Any) -> Any:
        """Computes the operator's values at the next states of a minibatch, `[..., 1]`."""
        following = step_mdp(data, keep_other=False)
        q = self._action_values(self.target_value_network_params, following)
        if self._actions != q.shape[-1]:
            self._actions = q.shape[-1]
            usable(self.operator, self._actions)
        where = ~(q <= torch.finfo(q.dtype).min)  # a NaN is legal, so that a run that diverges shows it
        online = self.value_network_params.data
        return bootstrap(self.operator, q, lambda: self._action_values(online, following), where)

    def _action_values(self, params: Any, data: Any) -> Any:
        with torch.no_grad(), params.to_module(self.value_network):
            return self.value_network(data.clone(False)).get(self.tensor_keys.action_value)


class _Bootstrapping:
    """Estimator of values that is told those of the next states."""

    def __init__(self, estimator: Any, next_value: Any) -> None:
        self._estimator, self._next_value = estimator, next_value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._estimator, name)

    def value_estimate(self, data: Any, next_value: Any = None, **options: Any) -> Any:
        return self._estimator.value_estimate(data, next_value=self._next_value(data), **options)
