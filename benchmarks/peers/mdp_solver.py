"""Solve one finite MDP with one library and print one JSON line.

Run by `benchmarks/mdp_speed.py`: for other libraries in an environment of their own, where nothing of softbellman is
installed. The MDP is built, and what compiles is compiled, before the clock starts. A library that misses the accuracy
wanted is asked again for more, and timed at what it takes.
"""

import argparse
import importlib.metadata
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import sparse

Solver = Callable[[float], tuple[np.ndarray, int]]  # a tolerance, to values and a number of iterations
LONGEST = 3.0  # seconds; no repetition begins after these


def softbellman(kernel: sparse.csr_array, reward: np.ndarray, gamma: float, method: str, operator: str) -> Solver:
    """softbellman, with the operator asked for."""
    from softbellman import FiniteMDP, operators, solve

    mdp, op = FiniteMDP(kernel, reward, gamma), operators.parse(operator)

    def run(tolerance: float) -> tuple[np.ndarray, int]:
        solution = solve(mdp, op, method=method, tolerance=tolerance)
        if not solution.converged:
            sys.exit("not converged")
        return solution.values, solution.iterations

    return run


def quantecon(kernel: sparse.csr_array, reward: np.ndarray, gamma: float, method: str, operator: str) -> Solver:
    """Quantecon's DiscreteDP on pairs of states and actions."""
    from quantecon.markov import DiscreteDP

    states, actions = reward.shape
    pairs = np.repeat(np.arange(states), actions), np.tile(np.arange(actions), states)
    ddp = DiscreteDP(reward.ravel(), sparse.csr_matrix(kernel), gamma, *pairs)
    tiny = DiscreteDP(np.zeros(2), sparse.csr_matrix(np.eye(2)), gamma, [0, 1], [0, 0])
    tiny.solve(method=method, epsilon=1e-3)  # compiles

    def run(tolerance: float) -> tuple[np.ndarray, int]:
        result = ddp.solve(method=method, epsilon=tolerance, max_iter=10**9)
        return result.v, result.num_iter

    return run


def pymdptoolbox(kernel: sparse.csr_array, reward: np.ndarray, gamma: float, method: str, operator: str) -> Solver:
    """pymdptoolbox, with one sparse matrix for each action."""
    from mdptoolbox import mdp as toolbox

    actions = reward.shape[1]
    matrices = tuple(sparse.csr_matrix(kernel[a::actions]) for a in range(actions))

    def run(tolerance: float) -> tuple[np.ndarray, int]:
        if method == "PolicyIterationModified":  # its max_iter is that of the sweeps that evaluate a policy
            model = toolbox.PolicyIterationModified(matrices, reward, gamma, epsilon=tolerance)
        else:
            model = getattr(toolbox, method)(matrices, reward, gamma, epsilon=tolerance, max_iter=10**9)
            model.max_iter = 10**9  # it lowers the number given, to one at which it need not have converged
        started = time.perf_counter()
        model.run()
        run.seconds = time.perf_counter() - started  # without what it finds out about the MDP beforehand
        return np.array(model.V), model.iter

    return run


def mdpsolver(kernel: sparse.csr_array, reward: np.ndarray, gamma: float, method: str, operator: str) -> Solver:
    """mdpsolver: `algorithm-update`, in C++, on as many threads as it likes."""
    import mdpsolver as library

    states, actions = reward.shape
    columns, rows = (np.split(x, kernel.indptr[1:-1]) for x in (kernel.indices, kernel.data))
    nested = [
        [[part[s * actions + a].tolist() for a in range(actions)] for s in range(states)] for part in (columns, rows)
    ]
    algorithm, update = method.split("-")

    def run(tolerance: float) -> tuple[np.ndarray, int]:
        model = library.model()
        model.mdp(discount=gamma, rewards=reward.tolist(), tranMatColumns=nested[0], tranMatProbs=nested[1])
        started = time.perf_counter()
        model.solve(algorithm=algorithm, update=update, tolerance=tolerance, makeFinalCheck=False)
        run.seconds = time.perf_counter() - started  # without the copying of lists
        return np.array(model.getValueVector()), 0

    return run


def timed(solver: Solver, tolerance: float) -> tuple[float, np.ndarray, int]:
    """Run once; a solver that measured itself is believed."""
    started = time.perf_counter()
    values, iterations = solver(tolerance)
    return getattr(solver, "seconds", time.perf_counter() - started), values, iterations


def peak_gib() -> float:
    """Largest resident memory so far: not `ru_maxrss`, which counts the process that started this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 2**20


def main() -> None:
    """Read the options that the driver passes, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("library", "method", "operator", "mdp", "package"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--gamma", type=float, required=True)
    parser.add_argument("--accuracy", type=float, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    options = parser.parse_args()
    with np.load(options.mdp, allow_pickle=False) as file:
        kernel = sparse.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
        reward = file["reward"]
        exact = file.get(f"{options.operator} {options.gamma}")

    solver = globals()[options.library](kernel, reward, options.gamma, options.method, options.operator)
    for tolerance in options.accuracy * np.array([1.0, 0.1, 1e-2, 1e-3, 1e-4]):
        seconds, values, iterations = timed(solver, float(tolerance))
        error = None if exact is None else float(np.max(np.abs(values - exact)))
        if error is None or error <= options.accuracy:
            break
    times = [seconds]
    while len(times) < options.repeats and sum(times) < LONGEST:
        times.append(timed(solver, float(tolerance))[0])
    print(
        json.dumps(
            {
                "seconds": float(np.median(times)),
                "repeats": len(times),
                "tolerance": float(tolerance),
                "error": error,
                "iterations": int(iterations),
                "peak_gib": peak_gib(),
                "versions": {
                    "python": platform.python_version(),
                    **{name: importlib.metadata.version(name) for name in ("numpy", "scipy", options.package)},
                },
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
