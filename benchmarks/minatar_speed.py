"""Compare the training speed of groups of runs on a MinAtar game with rejax's and Stable-Baselines3's DQN.

    .venv/bin/python benchmarks/minatar_speed.py            # 5 rounds; an idle machine, please
    .venv/bin/python benchmarks/minatar_speed.py --rounds 1 --steps 2000   # does it run at all?

Makes environments for the other libraries under build/benchmarks/, measures each in processes of its own, in rounds
that alternate in order, prints every figure and the ratios of medians, and writes
minatar_speed.{csv,json} into the folder --out. What is the same on all sides and what is not: benchmarks/README.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dqn_speed import (
    RESULTS,
    busy_cores,
    describe_hardware,
    keep_to_cores,
    peer_python,
    provenance,
    write_results,
)

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "benchmarks" / "peers"
BUILD = ROOT / "build" / "benchmarks"
# One after the other, as in dqn_speed.py. MinAtar's package asks for drawing libraries that nothing here needs.
SB3_REQUIREMENTS = (["torch==2.13.0"], ["stable-baselines3>=2.7,<3"], ["--no-deps", "minatar==1.0.15"])
REJAX_REQUIREMENTS = (["rejax==0.1.2", "gymnax<1"],)
OURS, REJAX, SB3 = "softbellman", "rejax", "stable-baselines3"
COLUMNS = [
    "round", "place", "library", "runs", "envs", "tests", "steps", "updates", "seconds", "steps_per_second",
    "busy_cores",
]  # fmt: skip


class Case(NamedTuple):
    """What is measured: a library, runs trained together, environments of each, with or without test phases."""

    library: str
    runs: int
    envs: int
    tests: bool = False


def read_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each case (5)")
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 5, 15], help="sizes of a group (1 5 15)")
    parser.add_argument("--steps", type=int, default=20_000, help="agent steps of each run that are timed (20000)")
    parser.add_argument("--warmup", type=int, default=2_000, help="agent steps with updates, not timed (2000)")
    parser.add_argument("--threads", type=int, default=2, help="cores of each side (2)")
    parser.add_argument("--rejax-python", type=Path, help="a Python that has rejax already")
    parser.add_argument("--sb3-python", type=Path, help="a Python that has Stable-Baselines3 and minatar already")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for CSV and JSON")
    options = parser.parse_args()
    if min(options.rounds, options.steps, options.threads, *options.runs) < 1 or options.warmup < 0:
        parser.error("--rounds, --runs, --steps and --threads must be at least 1, --warmup at least 0.")
    for name in ("warmup", "steps"):
        if getattr(options, name) % 4:
            parser.error(f"--{name} must be a multiple of 4, the steps between two updates.")
    return options


def measure(case: Case, options: argparse.Namespace, pythons: dict[str, Path], seed: int) -> dict[str, Any]:
    """Measure one case and return steps, updates, seconds and versions."""
    common = ["--game", options.game, "--steps", str(options.steps)]
    if case.library == OURS:
        return measure_ours(case, options, common, seed)
    if case.library == REJAX:
        extra = ["minatar_rejax.py", "--runs", str(case.runs), "--seed", str(seed)]
    else:
        warmup = ["--warmup", str(options.warmup)]
        extra = ["minatar_sb3.py", *warmup, "--threads", str(options.threads), "--seed", str(seed)]
    command = [str(pythons[case.library]), str(PEERS / extra[0]), *extra[1:], *common]
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads), "NPROC": str(options.threads)}
    process = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if process.returncode:
        sys.exit(f"{case.library} failed:\n{process.stderr[-3_000:]}")
    return json.loads(process.stdout.strip().splitlines()[-1])


def measure_ours(case: Case, options: argparse.Namespace, common: list[str], seed: int) -> dict[str, Any]:
    """Train a group as a comparison does: a worker with one thread for each core, the runs shared out among them."""
    workers = min(options.threads, case.runs)
    threads = options.threads // workers
    sizes = [case.runs // workers + (number < case.runs % workers) for number in range(workers)]
    processes, first = [], seed * case.runs
    for size in sizes:
        command = [sys.executable, str(PEERS / "minatar_softbellman.py"), *common, "--runs", str(size)]
        command += ["--first-seed", str(first), "--envs", str(case.envs), "--threads", str(threads)]
        command += ["--warmup", str(options.warmup), *(["--tests"] if case.tests else [])]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        first += size
    for process in processes:
        if process.stdout.readline() != "ready\n":
            sys.exit(f"{OURS} failed: see above")
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    results = [json.loads(process.communicate()[0]) for process in processes]
    seconds = max(result["ended"] for result in results) - min(result["started"] for result in results)
    return {
        "seconds": seconds,
        "steps": options.steps * case.runs,
        "updates": sum(result["updates"] for result in results),
        "versions": results[0]["versions"],
    }


def measure_all(cases: list[Case], options: argparse.Namespace, pythons: dict[str, Path]) -> tuple[list[dict], dict]:
    """Measure all rounds, printing each figure; return one row a measurement, and the versions of each library."""
    rows: list[dict] = []
    versions: dict[str, dict[str, str]] = {}
    for number in range(options.rounds):
        for place, case in enumerate(cases if number % 2 == 0 else reversed(cases)):
            busy = busy_cores()
            if busy > 0.2:
                print(f"Other programs keep {busy:.1f} cores busy: this will be worth little.", flush=True)
            result = measure(case, options, pythons, seed=number)
            versions[case.library] = result.pop("versions")
            if result["updates"] != result["steps"] // 4:
                sys.exit(
                    f"{case.library} made {result['updates']} updates in {result['steps']} steps: not the same work."
                )
            speed = result["steps"] / result["seconds"]
            print(f"round {number + 1}: {named(case)} {speed:,.0f} agent steps/s", flush=True)
            place_and_busy = {"round": number + 1, "place": place + 1, "busy_cores": round(busy, 2)}
            rows.append(place_and_busy | case._asdict() | result | {"steps_per_second": speed})
    return rows, versions


def named(case: Case) -> str:
    """Say what a case is."""
    tests = ", tests included" if case.tests else ""
    return f"{case.library}, {case.runs} runs, {case.envs} environments each{tests}:"


def medians_of(rows: list[dict], cases: list[Case]) -> dict[Case, float]:
    """Return the median speed of each case."""
    return {
        case: statistics.median(
            row["steps_per_second"] for row in rows if Case(*(row[name] for name in Case._fields)) == case
        )
        for case in cases
    }


def main() -> None:
    """Measure, print, write."""
    options = read_options()
    pythons = {
        REJAX: options.rejax_python or peer_python(BUILD / "rejax", REJAX_REQUIREMENTS, REJAX),
        SB3: options.sb3_python or peer_python(BUILD / "sb3-minatar", SB3_REQUIREMENTS, "Stable-Baselines3"),
    }
    cases = [Case(OURS, runs, envs) for runs in options.runs for envs in (1, 4)]
    cases += [Case(OURS, runs, 1, tests=True) for runs in options.runs]
    cases += [Case(REJAX, runs, 4) for runs in options.runs]
    cases += [Case(SB3, 1, 1)]
    keep_to_cores(options.threads)
    started = datetime.now(UTC)
    rows, versions = measure_all(cases, options, pythons)

    medians = medians_of(rows, cases)
    best = {library: max(speed for case, speed in medians.items() if case.library == library) for library in pythons}
    hardware = describe_hardware()
    for case, speed in medians.items():
        ratios = ", ".join(f"{speed / best[library]:.2f} times {library}'s best" for library in best)
        print(f"median: {named(case)} {speed:,.0f} agent steps/s" + (f", {ratios}" if case.library == OURS else ""))
    print(f"on {hardware['cpu']}, {options.threads} of {hardware['cores']} cores, {hardware['memory_gib']} GiB")

    settings = {key: getattr(options, key) for key in ("game", "rounds", "runs", "steps", "warmup", "threads")}
    facts = provenance("minatar_speed.py", settings, started) | {
        "medians": [case._asdict() | {"steps_per_second": speed} for case, speed in medians.items()],
        "best": best,
        "versions": versions,
    }
    write_results(options.out / "minatar_speed.csv", COLUMNS, rows, facts)


if __name__ == "__main__":
    main()
