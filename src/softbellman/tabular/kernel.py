"""The kernel of a Markov decision process, one row for each state and action: copied, checked, normalised."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

Values = NDArray[np.float64]
Kernel = Any  # an array or csr_array: they share @, sum and shape, which no one class of the stubs says

ROUNDING = 1e-6  # how far from 1 the probabilities of a row may sum: what typing them in float32 leaves


def stacked(matrices: Any, name: str) -> Kernel:
    """Copies `[S, A, S]`, `A` sparse `[S, S]` or one sparse `[S * A, S]` to `[S * A, S]`."""
    if sparse.issparse(matrices):
        rows: Any = sparse.csr_array(matrices, dtype=np.float64, copy=True)
        num_rows, num_states = rows.shape
        if not num_rows or not num_states or num_rows % num_states:
            raise ValueError(f"{name} is sparse of shape {rows.shape}; it must be [S * A, S], row s * A + a.")
    elif _are_sparse(matrices):
        shapes = {matrix.shape for matrix in matrices}
        num_states, num_actions = matrices[0].shape[0], len(matrices)
        if shapes != {(num_states, num_states)} or not num_states:
            raise ValueError(f"{name}: the sparse matrices have shapes {sorted(shapes)}; each must be [S, S].")
        by_action: Any = sparse.vstack([sparse.csr_array(m, dtype=np.float64) for m in matrices], format="csr")
        order = np.arange(num_states * num_actions).reshape(num_actions, num_states).T.ravel()
        rows = sparse.csr_array(by_action[order])
    else:
        array = _floats(matrices, name)
        if array.ndim != 3 or array.shape[0] != array.shape[2] or not array.size:
            turned = array.ndim == 3 and array.shape[1] == array.shape[2]
            hint = "; if its first axis is the action, pass np.swapaxes(it, 0, 1)" if turned else ""
            raise ValueError(f"{name} has shape {list(array.shape)}; it must be [S, A, S], the state first{hint}.")
        return array.reshape(-1, array.shape[2])
    rows.sum_duplicates()
    return rows


def expected(reward: Any, kernel: Kernel, shape: tuple[int, int]) -> Values:
    """Averages rewards over next states where they depend on them: `[S, A]`."""
    is_sparse = sparse.issparse(reward) or _are_sparse(reward)
    if not is_sparse:
        array = _floats(reward, "reward")
        if array.shape == shape:
            return array
        if array.shape != (*shape, shape[0]):
            allowed = f"[{shape[0]}, {shape[1]}] or [{shape[0]}, {shape[1]}, {shape[0]}]: states, actions, next states"
            raise ValueError(f"reward has shape {list(array.shape)}; it must be {allowed}.")
        gains: Any = array.reshape(-1, shape[0])
    else:
        gains = stacked(reward, "reward")
        if gains.shape != kernel.shape:
            raise ValueError(f"reward is sparse of shape {gains.shape}, stacked; transition has {kernel.shape}.")
    if isinstance(kernel, np.ndarray):
        return products(kernel, gains.toarray() if is_sparse else gains).sum(axis=1).reshape(shape)
    return np.asarray(kernel.multiply(gains).sum(axis=1)).reshape(shape)


def products(probability: Values, reward: Values) -> Values:
    """Multiplies, and gives 0 where the probability is 0, whatever the reward."""
    with np.errstate(invalid="ignore"):
        return np.where(probability == 0, 0.0, probability * reward)


def normalised(kernel: Kernel, active: NDArray[np.bool_]) -> tuple[Kernel, Values]:
    """Checks the rows of active pairs, makes them sum to 1, and clears the others; also gives the sums, in place."""
    num_actions = active.shape[1]
    if isinstance(kernel, np.ndarray):
        kernel[~active.ravel()] = 0.0
        wrong_rows = np.flatnonzero(~(np.isfinite(kernel) & (kernel >= 0)).all(axis=1))
    else:
        if not active.all():
            kernel.data[np.repeat(~active.ravel(), np.diff(kernel.indptr))] = 0.0
        kernel.eliminate_zeros()
        row_of = np.repeat(np.arange(kernel.shape[0]), np.diff(kernel.indptr))
        wrong_rows = row_of[~(np.isfinite(kernel.data) & (kernel.data >= 0))]
    if wrong_rows.size:
        where = "state {}, action {}".format(*divmod(int(wrong_rows[0]), num_actions))
        raise ValueError(f"transition of {where}: a probability is negative or not finite.")
    sums = np.asarray(kernel.sum(axis=1)).ravel()
    off = active.ravel() & (np.abs(sums - 1) > ROUNDING)
    if off.any():
        row = int(np.argmax(off))
        where = "state {}, action {}".format(*divmod(row, num_actions))
        others = f" ({off.sum() - 1} more rows like it)" if off.sum() > 1 else ""
        raise ValueError(f"transition of {where}: its probabilities sum to {sums[row]:.9g}, not 1{others}.")
    sums[~active.ravel()] = 1.0
    if isinstance(kernel, np.ndarray):
        kernel /= sums[:, None]
    else:
        kernel.data /= sums[row_of]
    return kernel, sums


def shortfall(kernel: Kernel) -> Values:
    """Gives 1 minus the sum of each row, as good as in twice the precision.

    The leading bits of probabilities add up without rounding; what is left of them is small.
    """
    is_dense = isinstance(kernel, np.ndarray)
    data = kernel if is_dense else kernel.data
    coarse = np.round(data * 2**26) / 2**26

    def total(part: Values) -> Values:
        rows: Any = part if is_dense else sparse.csr_array((part, kernel.indices, kernel.indptr), shape=kernel.shape)
        return np.asarray(rows.sum(axis=1)).ravel()

    return (1 - total(coarse)) - total(data - coarse)


def cut(kernel: Kernel, terminal: NDArray[np.bool_]) -> Kernel:
    """Clears the ways into terminal states, in place."""
    if terminal.any() and isinstance(kernel, np.ndarray):
        kernel[:, terminal] = 0.0
    elif terminal.any():
        kernel.data[terminal[kernel.indices]] = 0.0
        kernel.eliminate_zeros()
    return kernel


def _are_sparse(matrices: Any) -> bool:
    return isinstance(matrices, list | tuple) and len(matrices) > 0 and all(map(sparse.issparse, matrices))


def _floats(values: Any, name: str) -> Values:
    try:
        return np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no array of numbers: {error}") from None


def read_mask(values: ArrayLike | None, name: str, shape: tuple[int, ...], *, default: bool) -> NDArray[np.bool_]:
    """Copies a mask; all `default` where there is none."""
    if values is None:
        return np.full(shape, default)
    mask = np.array(values)
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise ValueError(f"{name} has dtype {mask.dtype} and shape {list(mask.shape)}; it must be bool {list(shape)}.")
    return mask


def check_indices(name: str, index: NDArray, limit: int) -> None:
    """Refuses an index that is not from 0 to `limit - 1`."""
    if index.size and not np.issubdtype(index.dtype, np.integer):
        raise ValueError(f"transitions: {name} has dtype {index.dtype}; it must be whole numbers.")
    wrong = np.flatnonzero((index < 0) | (index >= limit))
    if wrong.size:
        raise ValueError(f"transition {wrong[0]}: {name} {index[wrong[0]]} is not among the {limit}.")
