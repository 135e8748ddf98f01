"""Windows of steps around a transition, by chains that both replays follow alike, in NumPy and in JAX.

Deviation D21.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Read = Callable[[str, Any], Any]
"""Reads a column of a replay at places: `obs` and `next_obs` at places `[N]`, others at any."""


class Reach(NamedTuple):
    """Steps that are gathered with a transition.

    Attributes:
        returns: steps of reward, its own among them: the n of n-step returns.
        around: steps behind and before it that a tightening looks at; 0: none.
    """

    returns: int = 1
    around: int = 0


ONE_STEP = Reach()


class Window(NamedTuple):
    """Steps around `B` transitions, for a tightening that looks `k` steps around.

    Rewards are raw. Where a chain ends, rewards are 0 and discounts 1, and observations are no more of use.

    Attributes:
        reward: `[B, k]` float32, of the transition and of the steps behind it.
        discount: `[B, k]` float32.
        obs: `[B, k, *obs_shape]`, the true successor of each of these steps.
        there: `[B, k]` bool, the step is one of the transition's own episode, and stored.
        past_reward: `[B, k]` float32, of the steps before the transition, the latest first.
        past_discount: `[B, k]` float32.
        past_obs: `[B, k, *obs_shape]`, the observation that each of these steps began with.
        past_action: `[B, k]` int32.
        past_there: `[B, k]` bool.
        legal: `[B, k, A]` bool, the legal actions at `obs`; None: all.
    """

    reward: Any
    discount: Any
    obs: Any
    there: Any
    past_reward: Any
    past_discount: Any
    past_obs: Any
    past_action: Any
    past_there: Any
    legal: Any = None


def chain(first: Any, size: int, step: Callable[[Any], tuple[Any, Any]], xp: Any) -> tuple[Any, Any]:
    """Follow transitions one by one, each chain up to its own end.

    Args:
        first: `[B]`, where the transitions are stored.
        size: steps, the first transition among them.
        step: function that gives, for places `[B]`, those of the next transitions, and where there is one, `[B]` bool.
        xp: `numpy` or `jax.numpy`.

    Returns:
        Places `[B, size]`, which stay at a chain's last transition behind its end; and `[B, size]` bool, the transition
        is one of the chain.
    """
    places, there = [first], [first >= 0]
    for _ in range(size - 1):
        following, goes_on = step(places[-1])
        there.append(there[-1] & goes_on)
        places.append(xp.where(there[-1], following, places[-1]))
    return xp.stack(places, axis=1), xp.stack(there, axis=1)


def returns(first: Any, size: int, after: Callable[..., Any], read: Read, xp: Any) -> tuple[Any, Any, Any]:
    """Gather the rewards and discounts of `size` steps from transitions on.

    Args:
        first: `[B]`, where the transitions are stored.
        size: steps.
        after: as in `chain`.
        read: the replay's columns.
        xp: `numpy` or `jax.numpy`.

    Returns:
        Rewards and discounts `[B, size]`, filled up with 0 and 1, which a fold does not see; and places `[B]` of the
        last transitions.
    """
    places, there = chain(first, size, after, xp)
    return (*_rewards(places, there, read, xp), places[:, -1])


def window(
    first: Any,
    size: int,
    after: Callable[..., Any],
    before: Callable[..., Any],
    read: Read,
    xp: Any,
    masked: bool = False,
) -> Window:
    """Gather `size` steps from transitions on, and as many before them; arguments as in `returns`.

    `masked` says that the replay has a column `next_legal`.
    """
    places, there = chain(first, size, after, xp)
    past, past_there = (each[:, 1:] for each in chain(first, size + 1, before, xp))

    def every(name: str, places: Any) -> Any:
        values = read(name, places.reshape(-1))
        return values.reshape(*places.shape, *values.shape[1:])

    return Window(
        *_rewards(places, there, read, xp),
        every("next_obs", places),
        there,
        *_rewards(past, past_there, read, xp),
        every("obs", past),
        read("action", past),
        past_there,
        every("next_legal", places) if masked else None,
    )


def _rewards(places: Any, there: Any, read: Read, xp: Any) -> tuple[Any, Any]:
    """Read rewards and discounts `[B, size]`, and fill them up."""
    reward, discount = read("reward", places), read("discount", places)
    return xp.where(there, reward, xp.float32(0)), xp.where(there, discount, xp.float32(1))
