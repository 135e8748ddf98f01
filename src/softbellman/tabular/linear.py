"""Linear solver of one Newton step: `(I - gamma M) x = b`, with M the transitions under a policy.

The weights of the policy are an operator's gradient, which need not be a distribution. Small systems are solved by
LAPACK. For large ones a Krylov method without preconditioner finds out whether the chain mixes fast; only if not, the
matrix is factorised, incompletely, and the factors are kept as a preconditioner while policies change little.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import linalg as krylov

from softbellman.tabular.kernel import Values
from softbellman.tabular.mdp import FiniteMDP

Solver = Callable[[Values], Values]

SMALL = 400  # states up to which LAPACK is quicker than anything else
EASY, UNAIDED, AIDED, MOST = 12, 150, 6, 4000  # rounds of BiCGSTAB; see `solve` and `look_ahead`
NEGLIGIBLE = 1e-15  # a weight that no float64 sum of the others notices


class LinearSolver:
    """Solves the linear systems of Newton's method for one MDP, each with what was learnt from those before."""

    def __init__(self, mdp: FiniteMDP) -> None:
        """Starts knowing nothing of the chain."""
        self._mdp = mdp
        self._horizon: float | None = None  # None as long as systems are easy
        self._factors: Solver | None = None

    def solve(self, weights: Values, b: Values, accuracy: float) -> Values:
        """Solves `(I - gamma M) x = b`.

        Args:
            weights: `[S, A]`, the gradient of the operator: M is `sum_a weights[s, a] kernel[s, a]`.
            b: `[S]`.
            accuracy: the norm of the residual, relative to that of `b`.

        Returns:
            `[S]`; not within `accuracy` where no method got there.
        """
        gamma, chain = self._mdp.gamma, transitions(self._mdp, weights)
        if self._mdp.num_states <= SMALL:
            dense: Any = chain if isinstance(chain, np.ndarray) else chain.toarray()
            try:
                return np.asarray(np.linalg.solve(_matrix(dense, gamma), b), np.float64)
            except np.linalg.LinAlgError:  # singular, as only an operator that is not monotone makes it
                return b
        if self._horizon is not None:
            chain = _summed(chain)
        x, done = self._iterate(chain, gamma, b, accuracy, AIDED if self._factors else UNAIDED, self._factors)
        if not done:
            self._factors = _factorise(_matrix(chain, gamma))
            rounds = UNAIDED if self._factors else MOST
            x, done = self._iterate(chain, gamma, b, accuracy, rounds, self._factors)
        return x

    def look_ahead(self, weights: Values, b: Values, accuracy: float) -> Values:
        """Solves the system roughly, for a policy that is going to change: a full solution would be wasted on it.

        While systems are easy they are solved as they are. Otherwise the discount is lowered to that of a horizon,
        which grows as long as the systems stay cheap (the step of Bertsekas and Ioffe's lambda-policy iteration).
        """
        gamma = self._mdp.gamma
        if self._mdp.num_states <= SMALL:
            return self.solve(weights, b, accuracy)
        chain = transitions(self._mdp, weights)
        if self._horizon is None:
            x, done = self._iterate(chain, gamma, b, accuracy, EASY)
            if done:
                return x
            self._horizon = 10.0
        chain = _summed(chain)
        x, done = self._iterate(chain, min(gamma, 1 - 1 / self._horizon), b, accuracy, UNAIDED)
        self._horizon = min(2 * self._horizon, 1 / (1 - gamma)) if done else self._horizon / 4
        return x if done else b

    def _iterate(
        self, chain: Any, discount: float, b: Values, accuracy: float, rounds: int, factors: Solver | None = None
    ) -> tuple[Values, bool]:
        def apply(x: Values) -> Values:
            return x - discount * (chain @ x)

        scale = float(np.abs(b).max())
        if scale == 0:
            return np.zeros_like(b), True
        matrix, precondition = (
            f and krylov.LinearOperator(chain.shape, f, dtype=b.dtype)  # pyright: ignore
            for f in (apply, factors)
        )
        with np.errstate(all="ignore"):  # a breakdown shows in the result
            # To SciPy a residual whose square is below 1e-32 is a breakdown, however small b itself is.
            x, failed = krylov.bicgstab(matrix, b / scale, rtol=accuracy, atol=0.0, maxiter=rounds, M=precondition)
        if not np.isfinite(x).all():
            return np.zeros_like(b), False
        return x * scale, failed == 0


def transitions(mdp: FiniteMDP, weights: Values) -> Any:
    """Gives `M = sum_a weights[s, a] kernel[s, a]`, `[S, S]`; if sparse, it may hold an entry in several parts."""
    kernel, (num_states, num_actions) = mdp.kernel, weights.shape
    if isinstance(kernel, np.ndarray):
        return np.einsum("sa,sat->st", weights, kernel.reshape(num_states, num_actions, num_states))
    used = np.abs(weights) > NEGLIGIBLE
    starts = np.append(0, np.cumsum(np.count_nonzero(used, axis=1)))
    rows = kernel if starts[-1] == used.size else kernel[np.flatnonzero(used)]
    data = rows.data * np.repeat(weights[used], np.diff(rows.indptr))
    return sparse.csr_array((data, rows.indices, rows.indptr[starts]), shape=(num_states, num_states))


def _summed(chain: Any) -> Any:
    """Puts the parts of each entry together, if there are many: worth it for many products with the matrix."""
    if isinstance(chain, np.ndarray) or chain.nnz < 8 * chain.shape[0]:
        return chain
    chain = chain.copy()
    chain.sum_duplicates()
    return chain


def _matrix(chain: Any, discount: float) -> Any:
    """Gives `I - discount M`, dense or sparse as M is."""
    if isinstance(chain, np.ndarray):
        return np.eye(len(chain)) - discount * chain
    return sparse.csc_array(sparse.eye_array(chain.shape[0], format="csc") - discount * chain)


def _factorise(matrix: Any) -> Solver | None:
    """Factorises the matrix, incompletely if it is sparse; None where that fails."""
    try:
        if isinstance(matrix, np.ndarray):
            factors = linalg.lu_factor(matrix)
            return lambda x: linalg.lu_solve(factors, x)
        return krylov.spilu(
            matrix, drop_tol=1e-3, fill_factor=10, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0
        ).solve
    except (RuntimeError, MemoryError, linalg.LinAlgError):  # singular, or factors too large
        return None
