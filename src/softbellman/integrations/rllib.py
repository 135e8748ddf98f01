# pyright: reportMissingImports=false
"""RLlib's new API stack: `use_operator(config, op)` has a DQN learn with a Bellman operator."""

from typing import Any, TypeVar

from softbellman.extras import MissingExtra, require_tested
from softbellman.integrations.target import bootstrap, heeds_selector, usable
from softbellman.operators import Operator, as_operator

require_tested("rllib")
try:
    from ray.rllib.algorithms.dqn import DQNConfig
    from ray.rllib.algorithms.dqn.dqn_learner import QF_NEXT_PREDS, QF_TARGET_NEXT_PREDS
    from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
    from ray.rllib.utils.torch_utils import FLOAT_MIN
except ModuleNotFoundError as error:
    raise MissingExtra("ray[rllib]", "rllib") from error

_OPERATOR = "bellman_operator"
Config = TypeVar("Config", bound=DQNConfig)


class OperatorLearner(DQNTorchLearner):
    """Learner to which every action of a next state is worth the operator's value: any choice among them is right."""

    def compute_loss_for_module(self, *, fwd_out: Any, config: Any, **given: Any) -> Any:
        """Computes the library's loss; values of -inf, and those that the library masks, are of illegal actions."""
        op, q = config.learner_config_dict[_OPERATOR], fwd_out[QF_TARGET_NEXT_PREDS]
        _require_values(config)
        if config.double_q != heeds_selector(op):
            raise ValueError(f"double_q must be {heeds_selector(op)} for {op}; call use_operator last, which sets it")
        if not hasattr(self, "_usable"):
            self._usable = usable(op, q.shape[-1])
        legal = ~(q <= FLOAT_MIN)  # a NaN is legal; the library makes the operator's NaN 0, as it does without
        q = q.masked_fill(~legal, 0.0)
        value = bootstrap(op, q, lambda: fwd_out[QF_NEXT_PREDS].detach().masked_fill(~legal, 0.0), legal)
        return super().compute_loss_for_module(
            fwd_out={**fwd_out, QF_TARGET_NEXT_PREDS: value.expand_as(q)}, config=config, **given
        )


def use_operator(config: Config, op: Operator | str) -> Config:
    """Has the algorithm of a configuration bootstrap from `op(q_target, q_online)`, and returns the configuration.

    `double_q` is set to what the operator needs: the online network's values at the next states, or not.

    Raises:
        TypeError: it is no `DQNConfig`, or has a learner of its own; or `op` is no operator.
        ValueError: it is not of the new API stack, or learns distributions; with the first update, an operator that
            can't be used with as many actions.
    """
    op = as_operator(op)
    if not isinstance(config, DQNConfig):
        raise TypeError(f"use_operator takes a DQNConfig of RLlib, not {type(config).__name__}")
    learner = config.learner_class
    if learner is DQNTorchLearner:
        learner = OperatorLearner
    elif not issubclass(learner, OperatorLearner):
        raise TypeError(f"use_operator has a learner of its own; derive {learner.__name__} from it, OperatorLearner")
    if not config.enable_rl_module_and_learner:
        raise ValueError("use_operator needs RLlib's new API stack; call config.api_stack() to enable both its parts")
    _require_values(config)
    config.training(double_q=heeds_selector(op))
    return config.learners(learner_class=learner, learner_config_dict={_OPERATOR: op})


def _require_values(config: Any) -> None:
    """Refuses distributions; a configuration can be changed after `use_operator`, so the learner asks too."""
    if config.num_atoms > 1:
        raise ValueError(f"num_atoms ({config.num_atoms}) must be 1: an operator takes values, not distributions")
