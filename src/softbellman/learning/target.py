"""Target of the paper's Eq. 1, which is the only place where an operator enters an update, and the Huber loss."""

from typing import Any

import jax
import jax.numpy as jnp

from softbellman.gaps import discounted


def td_target(
    operator: Any,
    reward: jax.Array,
    discount: jax.Array,
    q_next: jax.Array,
    q_next_online: jax.Array,
    where: jax.Array | None = None,
) -> jax.Array:
    """Computes `reward + discount * op(q_next, q_next_online)`, the target of the paper's Eq. 1 and of S-DDQN.

    Where the discount is 0 the bootstrap is left out, not multiplied: a NaN behind a terminal does no harm.

    Args:
        operator: the Bellman operator; `double(op)` takes its weights from `q_next_online`.
        reward: `[B]`, clipped already.
        discount: `[B]`, `gamma * (1 - terminated)`.
        q_next: `[B, A]`, the target network's values at the next observation.
        q_next_online: `[B, A]`, the online network's values there.
        where: `[B, A]` bool, the actions that are legal there; None: all.

    Returns:
        Targets `[B]`.

    Raises:
        ValueError: if `reward`, `discount` or what the operator returns is not of shape `[B]`.
    """
    if reward.shape != q_next.shape[:-1] or discount.shape != reward.shape:
        raise ValueError(
            f"reward {reward.shape} and discount {discount.shape} must have the shape {q_next.shape[:-1]} of the values"
        )
    bootstrap = worth(operator, q_next, q_next_online, where)
    return reward + discounted(discount, bootstrap)


def worth(operator: Any, q: jax.Array, q_online: jax.Array, where: jax.Array | None = None) -> jax.Array:
    """Computes what an operator says that values `[B, A]` are worth, `[B]`; see `td_target`.

    Raises:
        ValueError: if what it returns is not of shape `[B]`.
    """
    value = operator(q, q_online) if where is None else operator(q, q_online, where)
    if value.shape != q.shape[:-1]:
        raise ValueError(f"{operator} gave {value.shape} for values {q.shape}; it must give {q.shape[:-1]}")
    return value


def huber(error: jax.Array, delta: float) -> jax.Array:
    """Computes `b^2 / 2 + b (|d| - b)` with `b = min(|d|, delta)`; its gradient is `d` clipped to `+-delta`.

    Where the second term counts, `b` is delta. So written, no delta is added to a gradient and taken away again, which
    would round an error to what float32 holds beside delta. An infinite delta gives the squared loss.
    """
    size = jnp.abs(error)
    bounded = jnp.where(size > delta, delta, size)  # a NaN stays one
    return bounded * (0.5 * bounded) + bounded * (size - bounded)


def folded(reward: jax.Array, discount: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Folds the rewards and discounts `[B, n]` of windows of steps into those of one step, `[B]` each.

    A window cut short is filled up with rewards of 0 and discounts of 1; single steps, `[B]`, stay as they are.
    """
    if reward.ndim == 1:
        return reward, discount
    total, product = reward[:, -1], discount[:, -1]
    for step in reversed(range(reward.shape[1] - 1)):
        total = reward[:, step] + discount[:, step] * total
        product = discount[:, step] * product
    return total, product
