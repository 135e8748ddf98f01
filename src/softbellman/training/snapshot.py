"""Trees of arrays as named arrays of a checkpoint, and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.training.checkpoint import Checkpoint


def saved_tree(prefix: str, tree: Any) -> dict[str, list[np.ndarray]]:
    """Returns the leaves of a pytree as arrays to be saved, by the path to each."""
    leaves, _ = jax.tree.flatten_with_path(tree)
    named = ((jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves)
    return {f"{prefix}/{name}": [np.asarray(leaf)] for name, leaf in named}


def restored_tree(saved: Checkpoint, prefix: str, like: Any, xp: Any = jnp) -> Any:
    """Returns a pytree as `saved_tree` took it apart, with the structure and the arrays' sizes of `like`.

    Raises:
        Damaged: the checkpoint has others.
    """

    def read(name: str, pieces: list[np.ndarray]) -> Any:
        made = np.empty(pieces[0].shape, pieces[0].dtype)
        saved.read_into(name, [made])
        return xp.array(made)

    leaves = [read(name, pieces) for name, pieces in saved_tree(prefix, like).items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
