"""Compare the speed of softbellman's exact solver with other libraries', on the same finite MDPs.

    .venv/bin/python benchmarks/mdp_speed.py                 # everything, each method for half a minute at most
    .venv/bin/python benchmarks/mdp_speed.py --quick         # does it run at all? Small MDPs
    .venv/bin/python benchmarks/mdp_speed.py --large 1000000 # a million states: time and memory, softbellman alone

Makes an environment for the other libraries under build/benchmarks/, measures each in a process of its own, prints
every measurement and the ratios, and writes mdp_speed.{csv,json} into the folder --out. benchmarks/README.md
says how each answer is checked.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from scipy import sparse

from dqn_speed import RESULTS, busy_cores, peer_python, provenance, write_results
from softbellman import FiniteMDP, operators, solve
from softbellman.tabular.linear import LinearSolver

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / "benchmarks" / "peers" / "mdp_solver.py"
PEER_REQUIREMENTS = (["quantecon>=0.11", "pymdptoolbox==4.0b3", "mdpsolver>=0.10"],)
OURS = "softbellman"
OPERATORS = ("max", "mellowmax(10)", "softmax(10)")
METHODS = {
    # Not quantecon's linear_programming, nor pymdptoolbox's PolicyIteration: they make the transitions dense, 4 GB and
    # more for the grid; the latter's other way to evaluate a policy stops at an error of 1e-4.
    "quantecon": ("modified_policy_iteration", "policy_iteration", "value_iteration"),
    "mdpsolver": ("mpi-standard", "mpi-gs", "mpi-sor", "vi-standard", "vi-gs", "vi-sor", "pi-standard", "pi-gs"),
    "pymdptoolbox": ("PolicyIterationModified", "ValueIteration", "ValueIterationGS"),
}
COLUMNS = [
    "mdp", "gamma", "library", "method", "operator", "seconds", "rounds", "repeats", "tolerance", "error", "iterations",
    "peak_gib", "busy_cores", "note",
]  # fmt: skip


def grid(side: int, slip: float = 0.3, seed: int = 0) -> tuple[sparse.csr_array, np.ndarray]:
    """A grid within walls; a move slips to either side with probability `slip`; random rewards. It mixes slowly."""
    cells = np.arange(side * side)
    row, column = np.divmod(cells, side)
    moves = [(-1, 0), (0, 1), (1, 0), (0, -1)]
    ahead = [np.clip(row + r, 0, side - 1) * side + np.clip(column + c, 0, side - 1) for r, c in moves]
    parts = [
        (ahead[(a + turn) % 4], cells * 4 + a, np.full(cells.size, probability))
        for a in range(4)
        for turn, probability in ((0, 1 - slip), (1, slip / 2), (-1, slip / 2))
    ]
    onward, pair, probability = (np.concatenate(x) for x in zip(*parts, strict=True))
    kernel = sparse.csr_array((probability, (pair, onward)), shape=(cells.size * 4, cells.size))
    return kernel, np.random.default_rng(seed).random((cells.size, 4))


def scattered(states: int, actions: int = 4, successors: int = 5, seed: int = 0) -> tuple[sparse.csr_array, np.ndarray]:
    """Each action leads to a few states drawn from all: it mixes fast."""
    rng = np.random.default_rng(seed)
    onward = rng.integers(states, size=(states * actions, successors))
    probability = rng.random(onward.shape)
    probability /= probability.sum(axis=1, keepdims=True)
    starts = np.arange(len(onward) + 1) * successors
    kernel = sparse.csr_array((probability.ravel(), onward.ravel(), starts), shape=(len(onward), states))
    kernel.sum_duplicates()
    return kernel, rng.random((states, actions))


def exact_values(mdp: FiniteMDP) -> tuple[np.ndarray, float]:
    """Solves for the maximum in extended precision, by corrections to a solution: values `[S]`, and how wrong at most.

    That is the residual of the values returned over `1 - gamma`, both in extended precision: however they came about,
    it holds.
    """
    kernel, solver = mdp.kernel.astype(np.longdouble), LinearSolver(mdp)

    def look_ahead(values: np.ndarray) -> np.ndarray:
        return mdp.reward + np.longdouble(mdp.gamma) * (kernel @ values).reshape(mdp.reward.shape)

    values = solve(mdp, operators.maximum(), tolerance=1e-9).values.astype(np.longdouble)
    for _ in range(6):
        q = look_ahead(values)
        policy = np.eye(mdp.num_actions)[q.argmax(axis=1)]
        values = values + solver.solve(policy, (q.max(axis=1) - values).astype(np.float64), 1e-6)
    rounded = values.astype(np.float64)
    residual = look_ahead(rounded.astype(np.longdouble)).max(axis=1) - rounded
    return rounded, float(np.max(np.abs(residual)) / (1 - np.longdouble(mdp.gamma)))


def write(path: Path, kernel: sparse.csr_array, reward: np.ndarray, gammas: list[float]) -> dict[float, float]:
    """Writes an MDP and its exact values to a file; returns bounds on their errors."""
    exact, bounds = {}, {}
    for gamma in gammas:
        exact[f"max {gamma}"], bounds[gamma] = exact_values(FiniteMDP(kernel, reward, gamma))
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {"data": kernel.data, "indices": kernel.indices, "indptr": kernel.indptr, "shape": np.array(kernel.shape)}
    np.savez(path, reward=reward, **parts, **exact)
    return bounds


def measure(python: Path | str, row: dict, path: Path, options: argparse.Namespace) -> dict:
    """Measures in a process of its own; what fails or takes too long gets a note instead of a time."""
    command = [str(python), str(PEER), "--mdp", str(path), "--accuracy", str(options.accuracy)]
    command += ["--repeats", str(options.repeats), "--package", row["library"]]
    for name in ("library", "method", "operator", "gamma"):
        command += [f"--{name}", str(row[name])]
    busy = busy_cores(0.5)
    if busy > 0.2:
        print(f"Other programs keep {busy:.1f} cores busy: this will be worth little.", flush=True)
    row = row | {"busy_cores": round(busy, 2)}
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=options.limit, check=False)
    except subprocess.TimeoutExpired:
        return row | {"note": f"over {options.limit:g} s"}
    if process.returncode:
        return row | {"note": (process.stderr.strip().splitlines() or ["failed"])[-1][:200]}
    row |= json.loads(process.stdout.strip().splitlines()[-1])
    missed = row["error"] is not None and row["error"] > options.accuracy
    return row | {"rounds": 1, "note": "not as accurate as asked for" if missed else ""}


def measure_in_turn(rows: list[dict], pythons: dict[str, Path | str], path: Path, options: argparse.Namespace) -> None:
    """Measures softbellman and the two fastest peers again, in turn, and puts medians into their rows.

    A machine that slows down for a while then favours nobody.
    """
    valid = [row for row in rows if not row["note"]]
    peers = sorted((row for row in valid if row["library"] != OURS), key=lambda row: row["seconds"])
    contenders = [row for row in valid if row["library"] == OURS] + peers[:2]
    measured = [[row] for row in contenders]
    for k in range(1, options.rounds):
        for i in range(len(contenders))[:: -1 if k % 2 else 1]:
            row = measure(pythons[contenders[i]["library"]], contenders[i], path, options)
            if not row["note"]:
                measured[i].append(row)
    for row, several in zip(contenders, measured, strict=True):
        row["seconds"] = float(np.median([one["seconds"] for one in several]))
        row["busy_cores"] = max(one["busy_cores"] for one in several)
        row["rounds"] = len(several)


def wanted(options: argparse.Namespace) -> Iterator[dict]:
    """Lists what to measure at one MDP and gamma: the first columns of a row."""
    for operator in OPERATORS[: 1 if options.large else None]:
        yield {"library": OURS, "method": "newton", "operator": operator}
    for library, methods in METHODS.items():
        for method in methods:
            if library in options.libraries:
                yield {"library": library, "method": method, "operator": "max"}


def compare(rows: list[dict]) -> dict[str, float | str]:
    """Compares our times with the fastest peer's, and of other operators with those of the maximum."""
    ours = {row["operator"]: row["seconds"] for row in rows if row["library"] == OURS and not row["note"]}
    peers = {
        f"{row['library']} {row['method']}": row["seconds"]
        for row in rows
        if row["library"] != OURS and not row["note"]
    }
    result: dict[str, float | str] = {"ours": ours.get("max", float("nan"))}
    if peers:
        fastest = min(peers, key=peers.__getitem__)
        result |= {"fastest_peer": fastest, "peer": peers[fastest], "peer_over_ours": peers[fastest] / result["ours"]}
    return result | {f"{name}_over_max": ours[name] / ours["max"] for name in ours if name != "max" and "max" in ours}


def read_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=150, help="of the grid (150)")
    parser.add_argument("--states", type=int, default=100_000, help="of the random MDP (100000)")
    parser.add_argument("--gammas", type=float, nargs="+", default=[0.99, 0.999, 0.9999])
    parser.add_argument("--accuracy", type=float, default=1e-8, help="largest error of the values (1e-8)")
    parser.add_argument("--rounds", type=int, default=5, help="in which the fastest are measured in turn (5)")
    parser.add_argument("--repeats", type=int, default=3, help="within a measurement, if they are short (3)")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for one method of one library (30)")
    parser.add_argument("--libraries", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--large", type=int, metavar="STATES", help="solve two MDPs of so many states, nothing else")
    parser.add_argument("--quick", action="store_true", help="small MDPs, one gamma, measured twice")
    parser.add_argument("--peer-python", type=Path, help="a Python that has the other libraries already")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for CSV and JSON")
    options = parser.parse_args()
    options.gammas.sort()
    if options.quick:
        options.side, options.states, options.gammas, options.rounds, options.repeats = 20, 2_000, [0.99], 2, 1
    if options.large:
        options.libraries, options.gammas, options.rounds, options.repeats = [], [0.99], 1, 1
        options.side, options.states, options.limit = round(options.large**0.5), options.large, 3_600.0
    return options


def main() -> None:
    """Measure, print, write."""
    options = read_options()
    folder = ROOT / "build" / "benchmarks"
    python = options.peer_python
    if options.libraries and python is None:
        python = peer_python(folder / "mdp", PEER_REQUIREMENTS, "quantecon, pymdptoolbox and mdpsolver")
    pythons = {OURS: sys.executable} | dict.fromkeys(options.libraries, python)
    started = datetime.now(UTC)
    rows, comparisons, versions, bounds = [], {}, {}, {}
    settings = {k: v for k, v in vars(options).items() if k not in ("out", "peer_python", "quick")}
    stem = "mdp_speed_large" if options.large else "mdp_speed"
    hopeless = set()  # over the limit at a lower gamma, which is easier
    for name, (kernel, reward) in {"grid": grid(options.side), "random": scattered(options.states)}.items():
        path = folder / f"{name}.npz"
        bounds[name] = write(path, kernel, reward, [] if options.large else options.gammas)
        for gamma in options.gammas:
            here = []
            for columns in wanted(options):
                row = {"mdp": name, "gamma": gamma, **columns}
                what = (name, row["library"], row["method"], row["operator"])
                if what in hopeless:
                    row["note"] = "over the limit at a lower gamma"
                else:
                    row = measure(pythons[row["library"]], row, path, options)
                if row["note"].startswith("over"):
                    hopeless.add(what)
                versions[row["library"]] = row.pop("versions", versions.get(row["library"], {}))
                time = row["note"] or f"{row['seconds']:.3f} s, error {row['error']}, {row['peak_gib']:.2f} GiB"
                print(f"{name} {gamma:g}: {row['library']} {row['method']} {row['operator']}: {time}", flush=True)
                here.append(row)
            measure_in_turn(here, pythons, path, options)
            comparisons[f"{name} {gamma:g}"] = compare(here)
            print(f"{name} {gamma:g}: {comparisons[f'{name} {gamma:g}']}", flush=True)
            rows += here
            facts = provenance("mdp_speed.py", settings, started)
            facts |= {"comparisons": comparisons, "error_bounds_of_the_exact_values": bounds, "versions": versions}
            write_results(options.out / f"{stem}.csv", COLUMNS, rows, facts)


if __name__ == "__main__":
    main()
