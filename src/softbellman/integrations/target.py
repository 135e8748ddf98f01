"""Bootstrap of a target in a library on PyTorch: what an operator makes of two networks' values at the next states."""

from collections.abc import Callable
from typing import Any

from softbellman.operators import Operator, as_operator, require_contract


def usable(op: Any, actions: int) -> Operator:
    """Takes an operator, or reads its spec, for so many actions.

    Raises:
        SpecError: a spec can't be read.
        TypeError: it is neither.
        ValueError: it is for another number of actions, or breaks the contract of operators on PyTorch tensors.
    """
    op = as_operator(op)
    require_contract(op, actions, "torch")
    return op


def heeds_selector(op: Operator) -> bool:
    """Tells if an operator looks at the online network's values, as `double(op)` does."""
    return type(op).__call__ is not Operator.__call__


def bootstrap(op: Operator, target: Any, online: Callable[[], Any], where: Any = None) -> Any:
    """Computes `op(q_target, q_online)` at the next states, `[..., 1]`.

    Where no action is legal, as behind the end of an episode, all count: the discount of such a row is 0.

    Args:
        op: the Bellman operator.
        target: the target network's values, `[..., A]`.
        online: gives the online network's values, `[..., A]`; called if the operator looks at them.
        where: bool, `[..., A]`: the legal actions; None: all.
    """
    selector = online() if heeds_selector(op) else None
    if where is not None:
        where = where | ~where.any(dim=-1, keepdim=True)
    return op(target, selector, where)[..., None]
