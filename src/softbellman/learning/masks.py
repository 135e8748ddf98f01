"""Masks of legal actions as a replay stores them, eight actions to a byte."""

import numpy as np


def packed(name: str, legal: np.ndarray | None, num_envs: int, num_actions: int | None) -> np.ndarray | None:
    """Packs masks `[E, A]` to `[E, ceil(A / 8)]` uint8, after checking that they are what is stored.

    Args:
        name: what messages call them.
        legal: the masks; None: none.
        num_envs: number of environments, `E`.
        num_actions: number of actions, `A`; None in a replay without masks.

    Raises:
        ValueError: the masks have another shape or dtype, are missing, or are not stored here.
    """
    if legal is None and num_actions is None:
        return None
    wanted = [num_envs, num_actions]
    if legal is None or list(legal.shape) != wanted or legal.dtype != np.bool_:
        given = "missing" if legal is None else f"{legal.dtype} {list(legal.shape)}"
        stored = "no masks" if num_actions is None else f"masks bool {wanted}"
        raise ValueError(f"{name} is {given}; this replay stores {stored}.")
    return np.packbits(legal, axis=-1)


def unpacked(masks: np.ndarray, num_actions: int | None) -> np.ndarray:
    """Returns masks `[..., A]` bool from packed ones `[..., ceil(A / 8)]`."""
    return np.unpackbits(masks, axis=-1, count=num_actions).view(bool)
