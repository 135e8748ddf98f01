"""The contract of an operator, tried on a few ordinary values wherever one is used, before any work.

A wrong shape may broadcast to a result that looks right, and a user's operator may fail in any way.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from softbellman.faults import in_a_line
from softbellman.operators.pytrees import register_pytrees, require_pytree

if TYPE_CHECKING:
    from softbellman.operators.core import Operator

Library = Literal["numpy", "jax", "torch"]
_WORDS = {"numpy": "on NumPy arrays", "jax": "in training, on JAX arrays", "torch": "on PyTorch tensors"}
_PARTS = ("a value", "weights", "a gradient")


class Answers(NamedTuple):
    """Outputs of an operator for action values `[B, A]`: its value `[B]`, weights and gradient `[B, A]`.

    The gradient is None where it is not asked for.
    """

    value: Any
    weights: Any
    gradient: Any


def require_contract(op: Operator, actions: int, library: Library = "numpy") -> None:
    """Refuse a user's operator that gives no values and weights to work with, for so many actions.

    Args:
        op: the operator. Those of softbellman are known to keep the contract.
        actions: how many actions there are where it is to be used.
        library: whose arrays it is to be used on. JAX traces it.

    Raises:
        ValueError: as `require_shapes`; or a number is not finite; or the weights are no policy, or what is not legal
            matters, and the contrary is claimed.
    """
    if op.for_actions not in (None, actions):
        raise ValueError(f"operator {op} is for {op.for_actions} actions, and there are {actions}")
    if _is_ours(op):
        return
    q, (value, weights, _) = require_shapes(op, actions, library)
    for part, answer in zip(_PARTS, (value[:, None], weights), strict=False):
        wrong = ~np.isfinite(answer).all(axis=1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"operator {op} gives {part} of {answer[row]} for the action values {q[row]}")
    excess = np.maximum(-np.min(weights, axis=1), np.abs(np.sum(weights, axis=1) - 1))
    laws = getattr(op, "laws", None)
    if getattr(laws, "weights_are_policy", False) and excess.max() > precision(weights) ** 0.75:
        row = int(np.argmax(excess))
        raise ValueError(
            f"operator {op} gives weights of {weights[row]}, of sum {np.sum(weights[row]):.6g}, for the action values "
            f"{q[row]}, and claims that they are a policy; correct them, or do not claim weights_are_policy"
        )
    if getattr(laws, "ignores_illegal", False) and actions > 1:
        _require_masks(op, q, library)


def _require_masks(op: Operator, q: NDArray[Any], library: Library) -> None:
    """Refuse an operator that gives no numbers where the first action is not legal, or gives that a weight."""
    legal: NDArray[np.bool_] = np.ones(q.shape, np.bool_)
    legal[:, 0] = False
    hidden, selector = (np.where(legal, values, np.nan) for values in (q, q[:, ::-1]))
    try:
        value, weights, _ = _EVALUATORS[library](op, hidden, selector, legal)
    except (Exception, SystemExit) as error:  # a user's code may fail in any way
        raise ValueError(f"operator {op} does not run with a mask {_WORDS[library]}: {in_a_line(error)}") from error
    wrong = ~(np.isfinite(value) & np.isfinite(weights).all(axis=1)) | (weights[:, 0] != 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"operator {op} gives a value of {value[row]} and weights of {weights[row]} for the action values {q[row]} "
            "where the first is not legal; heed row.legal, as row.normalise does, or do not claim ignores_illegal"
        )


def require_shapes(op: Operator, actions: int, library: Library = "numpy") -> tuple[NDArray[Any], Answers]:
    """Refuse an operator that fails on ordinary values, or gives arrays of another shape than these call for.

    Returns:
        The action values `[B, A]`, and what the operator gives for them, as NumPy arrays.

    Raises:
        ValueError: the operator fails, and the message names the line of the user's code; or a shape is wrong.
    """
    q = _ordinary(actions, signed=library != "numpy")
    try:
        answers = _EVALUATORS[library](op, q, q[:, ::-1])
    except (Exception, SystemExit) as error:  # a user's code may fail in any way
        if (policy := _policy_shape(op, q)) not in (None, q.shape):  # what it fails by, elsewhere
            raise ValueError(_wrong_shape(op, "a policy", policy, q.shape, q.shape)) from error
        raise ValueError(f"operator {op} does not run {_WORDS[library]}: {in_a_line(error)}") from error
    shapes = Answers(q.shape[:1], q.shape, q.shape)
    for part, answer, shape in zip(_PARTS, answers, shapes, strict=True):
        if answer is None:
            continue
        if answer.dtype.kind not in "fiub":
            raise ValueError(f"operator {op} gives {part} of dtype {answer.dtype}, which is none of real numbers")
        if answer.shape != shape:
            raise ValueError(_wrong_shape(op, part, answer.shape, q.shape, shape))
    return q, answers


def precision(answer: NDArray[Any]) -> float:
    """Give the precision of an answer's dtype; whole numbers count as of float64."""
    return float(np.finfo(answer.dtype if answer.dtype.kind == "f" else np.float64).eps)


def _is_ours(op: Any) -> bool:
    parts = [part for part in getattr(op, "__dict__", {}).values() if hasattr(part, "weights")]
    return type(op).__module__.startswith("softbellman.operators.") and all(_is_ours(part) for part in parts)


def _ordinary(actions: int, *, signed: bool) -> NDArray[Any]:
    """Make action values `[B, A]` with B unlike A: rising, falling, equal, far apart, and of both signs if asked for.

    An operator may be made for values that are not negative, such as a power mean; a network's are of both signs.
    """
    ends = [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (0.0, 100.0)] + [(-1.0, 1.0)] * signed
    rows = [np.linspace(*pair, actions) for pair in ends]
    return np.stack(rows if len(rows) != actions else [*rows, rows[0]])


def _wrong_shape(op: Any, part: str, given: Any, q: tuple[int, ...], right: tuple[int, ...]) -> str:
    return f"operator {op} gives {part} of shape {given} for action values of shape {q}; the right shape is {right}"


def _policy_shape(op: Any, q: NDArray[Any]) -> tuple[int, ...] | None:
    """Give the shape of the policy that a user's class defines; None if it defines none, or that fails."""
    from softbellman.operators.core import Operator
    from softbellman.operators.row import centre

    op = getattr(op, "op", op)  # of a double, what it doubles
    if not isinstance(op, Operator):
        return None
    try:
        return np.shape(op.policy(centre(q)))
    except Exception:
        return None


def _by_numpy(op: Operator, q: NDArray[Any], selector: NDArray[Any], *where: NDArray[Any]) -> Answers:
    from softbellman.operators.core import Operator

    derived = type(op).gradient is Operator.gradient  # and then of the right shape, at the price of JAX
    with np.errstate(all="ignore"):  # what comes of it is looked at
        value, weights = np.asarray(op(q, selector, *where)), np.asarray(op.weights(q, *where))
        return Answers(value, weights, None if derived else np.asarray(op.gradient(q, selector, *where)))


def _by_jax(op: Operator, q: NDArray[Any], selector: NDArray[Any], *where: NDArray[Any]) -> Answers:
    jax: Any = importlib.import_module("jax")

    def evaluate(op: Operator, q: Any, selector: Any, *where: Any) -> Answers:
        return Answers(op(q, selector, *where), op.weights(q, *where), op.gradient(q, selector, *where))

    register_pytrees()  # the operator may be older than JAX's loading
    require_pytree(op)
    given = jax.jit(evaluate)(op, q.astype(np.float32), selector.astype(np.float32), *where)
    return Answers(*map(np.asarray, given))


def _by_torch(op: Operator, q: NDArray[Any], selector: NDArray[Any], *where: NDArray[Any]) -> Answers:
    torch: Any = importlib.import_module("torch")
    given, other = (torch.tensor(values.astype(np.float32)) for values in (q, selector))
    legal = [torch.tensor(mask) for mask in where]
    value, weights = (answer.detach().numpy() for answer in (op(given, other, *legal), op.weights(given, *legal)))
    return Answers(value, weights, None)


_EVALUATORS = {"numpy": _by_numpy, "jax": _by_jax, "torch": _by_torch}
