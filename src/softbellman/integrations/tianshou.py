# pyright: reportMissingImports=false
"""Tianshou 2: `use_operator(algorithm, op)` has a DQN learn with a Bellman operator."""

from functools import partial
from typing import Any, TypeVar

from softbellman.extras import MissingExtra, require_tested
from softbellman.integrations.target import bootstrap, usable
from softbellman.operators import Operator

require_tested("tianshou")
try:
    import torch
    from tianshou.algorithm.modelfree.dqn import DQN
    from tianshou.data import Batch
except ModuleNotFoundError as error:
    raise MissingExtra(str(error.name), "tianshou") from error

Algorithm = TypeVar("Algorithm", bound=DQN)


def use_operator(algorithm: Algorithm, op: Operator | str) -> Algorithm:
    """Has an algorithm's targets bootstrap from `op(q_target, q_online)`, from now on, and returns it.

    The operator takes the place of `is_double`. Masks in `obs.mask` are heeded.

    Raises:
        TypeError: the algorithm is no DQN, or has targets of its own; or `op` is no operator.
        ValueError: the operator can't be used, or not with as many actions.
    """
    if not isinstance(algorithm, DQN) or type(algorithm)._target_q is not DQN._target_q:
        raise TypeError(f"use_operator takes a tianshou DQN with its own targets, not {type(algorithm).__name__}")
    algorithm._target_q = partial(_target_q, algorithm, usable(op, int(algorithm.policy.action_space.n)))
    return algorithm


def _target_q(algorithm: Any, op: Operator, buffer: Any, indices: Any) -> Any:
    following = buffer[indices].obs_next
    batch, mask = Batch(obs=following, info=[None] * len(indices)), getattr(following, "mask", None)
    model = algorithm.model_old if algorithm.use_target_network else algorithm.policy.model
    q = algorithm.policy(batch, model=model).logits
    where = None if mask is None else torch.as_tensor(mask, dtype=torch.bool, device=q.device)
    return bootstrap(op, q, lambda: algorithm.policy(batch).logits, where)[..., 0]
