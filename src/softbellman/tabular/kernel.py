"""Transition kernel of a Markov decision process: copied, checked, normalised."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from softbellman.operators.arrays import floats, plain

Values = NDArray[np.float64]
Kernel = Any  # an array or csr_array: they share @, sum and shape, which no one class of the stubs says

ROUNDING = 1e-6  # how far below 0 a probability may be, and from 1 the sum of a row: what float32 leaves of typed ones


def stacked(matrices: Any, name: str) -> Kernel:
    """Copies `[S, A, S]`, `A` sparse `[S, S]` or one sparse `[S * A, S]` to `[S * A, S]`."""
    for matrix in matrices if _are_sparse(matrices) else [matrices]:
        if sparse.issparse(matrix) and matrix.dtype.kind not in "biuf":
            raise ValueError(f"{name} has dtype {matrix.dtype}; it must be of real numbers, such as float64.")
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
        array = np.array(floats(matrices, name), order="C")
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
        array = np.array(floats(reward, "reward"), order="C")
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
        raise_to_zero(kernel.reshape(-1), lambda i: i // active.shape[0], num_actions)
    else:
        if not active.all():
            kernel.data[np.repeat(~active.ravel(), np.diff(kernel.indptr))] = 0.0
        raise_to_zero(kernel.data, lambda i: np.searchsorted(kernel.indptr, i, side="right") - 1, num_actions)
        kernel.eliminate_zeros()
        row_of = np.repeat(np.arange(kernel.shape[0]), np.diff(kernel.indptr))
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


def raise_to_zero(probability: Values, row_of: Callable[[Any], Any], num_actions: int) -> None:
    """Makes probabilities 0 that miss it by rounding, in place; refuses any other that is negative or not finite."""
    wrong = np.flatnonzero(~(np.isfinite(probability) & (probability >= -ROUNDING)))
    if wrong.size:
        where = "state {}, action {}".format(*divmod(int(row_of(wrong[0])), num_actions))
        value = probability[wrong[0]]
        raise ValueError(
            f"transition of {where}: a probability is {value:.9g}; it must be finite and at least 0 "
            f"({-ROUNDING} if off by rounding)."
        )
    probability[probability < 0] = 0.0


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


def read_mask(values: ArrayLike | None, name: str, shape: tuple[int, ...], *, default: bool) -> NDArray[np.bool_]:
    """Copies a mask; all `default` where there is none."""
    if values is None:
        return np.full(shape, default)
    mask = np.array(plain(values, name))
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise ValueError(f"{name} has dtype {mask.dtype} and shape {list(mask.shape)}; it must be bool {list(shape)}.")
    return mask


def check_indices(name: str, index: NDArray, limit: int) -> None:
    """Refuses an index that is not from 0 to `limit - 1`."""
    wrong = np.flatnonzero((index < 0) | (index >= limit))
    if wrong.size:
        raise ValueError(f"transition {wrong[0]}: {name} {index[wrong[0]]} is not among the {limit}.")
