"""Compare the training speed of runs on a MinAtar game with rejax's and Stable-Baselines3's DQN, on the same network.

    .venv/bin/python benchmarks/minatar_speed.py            # 5 rounds; an idle machine, please
    .venv/bin/python benchmarks/minatar_speed.py --smoke    # does it run at all?

There are contests: on rejax's network and on MinAtar's, one run on one core and groups on all cores. In each round of
a contest every side is measured once, in fresh processes; the order alternates. A ratio is that of two sides in one
round. Makes environments for the other libraries under build/benchmarks/, prints every figure and the median ratios,
and writes minatar_speed.{csv,json} into the folder --out. benchmarks/README.md
says how the sides differ.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dqn_speed import RESULTS, busy_cores, describe_hardware, peer_python, provenance, write_results

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "benchmarks" / "peers"
BUILD = ROOT / "build" / "benchmarks"
# One after the other, as in dqn_speed.py. MinAtar's package asks for drawing libraries that nothing here needs.
SB3_REQUIREMENTS = (["torch==2.13.0"], ["stable-baselines3>=2.7,<3"], ["--no-deps", "minatar==1.0.15"])
REJAX_REQUIREMENTS = (["rejax==0.1.2", "gymnax<1"],)
OURS, REJAX, SB3 = "softbellman", "rejax", "stable-baselines3"
PERIOD = 4  # agent steps between two updates
COLUMNS = [
    "network", "runs", "envs", "cores", "round", "place", "library", "processes", "tests", "steps", "updates",
    "seconds", "steps_per_second", "busy_cores",
]  # fmt: skip


class Side(NamedTuple):
    """One of those compared: a library, in how many processes, with or without test phases."""

    library: str
    processes: int = 1
    tests: bool = False


class Contest(NamedTuple):
    """The task of all sides: so many runs, with so many environments each, on so many cores.

    Each run makes `steps` agent steps to warm up, the first 1,000 of them without updates, and as many that are timed.
    """

    network: str
    runs: int
    envs: int
    cores: int
    steps: int
    sides: tuple[Side, ...]

    @property
    def rival(self) -> str:
        """The other library."""
        return next(side.library for side in self.sides if side.library != OURS)


def contests(cores: int, group: int, *, smoke: bool) -> list[Contest]:
    """Return the contests. A group has a process for each core; rejax's is tried as one process, too."""
    found = []
    for network, steps in (("mlp", 100_000), ("minatar_cnn", 8_000)):
        found.append(Contest(network, 1, 4, 1, steps, (Side(OURS), Side(REJAX))))
        sides = dict.fromkeys((Side(OURS, cores), Side(REJAX), Side(REJAX, cores)))
        found.append(Contest(network, group, 4, cores, steps // 4, tuple(sides)))
    found.append(Contest("minatar_cnn", 1, 1, 1, 10_000, (Side(OURS), Side(SB3))))
    sides = (Side(OURS, cores), Side(OURS, cores, tests=True), Side(SB3, cores))
    found.append(Contest("minatar_cnn", cores, 1, cores, 10_000, sides))
    return [contest._replace(steps=1_200) for contest in found] if smoke else found


def read_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side of a contest (5)")
    parser.add_argument("--group", type=int, default=10, help="runs of a group (10)")
    parser.add_argument("--cores", type=int, default=2, help="cores of each side in a contest of groups (2)")
    parser.add_argument("--beside", choices=(REJAX, SB3), nargs="+", default=[REJAX, SB3], help="which others (both)")
    parser.add_argument("--smoke", action="store_true", help="one round of few steps, a run for each core")
    parser.add_argument("--rejax-python", type=Path, help="a Python that has rejax already")
    parser.add_argument("--sb3-python", type=Path, help="a Python that has Stable-Baselines3 and minatar already")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for CSV and JSON")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.group = 1, options.cores
    if min(options.rounds, options.cores) < 1:
        parser.error("--rounds and --cores must be at least 1.")
    if options.group < options.cores:
        parser.error(f"--group ({options.group}) must be at least --cores ({options.cores}): a process for each core.")
    return options


def shares(runs: int, processes: int) -> list[int]:
    """Return how many runs each process has."""
    return [runs // processes + (number < runs % processes) for number in range(processes)]


def command_of_peer(side: Side, contest: Contest, runs: int, seed: int, options: argparse.Namespace) -> list[str]:
    """Return the command that measures a process's share of a side."""
    common = ["--game", options.game, "--steps", str(contest.steps), "--seed", str(seed)]
    threads = ["--threads", str(contest.cores // side.processes)]
    if side.library == REJAX:
        return [str(PEERS / "minatar_rejax.py"), *common, "--network", contest.network, "--runs", str(runs)]
    if side.library == SB3:
        return [str(PEERS / "minatar_sb3.py"), *common, *threads]
    ours = ["--network", contest.network, "--beside", contest.rival, "--runs", str(runs), "--envs", str(contest.envs)]
    return [str(PEERS / "minatar_softbellman.py"), *common, *threads, *ours, *(["--tests"] if side.tests else [])]


def measure(
    side: Side, contest: Contest, options: argparse.Namespace, pythons: dict[str, Path], seed: int
) -> dict[str, Any]:
    """Measure one side: its processes start to count at one word, and the clock runs to the end of the last."""
    threads = str(contest.cores // side.processes)
    environment = os.environ | {"OMP_NUM_THREADS": threads, "NPROC": threads}
    processes = []
    with tempfile.TemporaryFile("w+") as errors:
        for runs in shares(contest.runs, side.processes):
            command = [str(pythons[side.library]), *command_of_peer(side, contest, runs, seed, options)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            processes.append(subprocess.Popen(command, **pipes, text=True, env=environment))
            seed += runs
        if all(process.stdout.readline() for process in processes):  # each says that it is warm, or ends
            for process in processes:
                process.stdin.write("go\n")
                process.stdin.flush()
        said = [process.communicate()[0] for process in processes]
        if not all(said):
            errors.seek(0)
            sys.exit(f"{side.library} failed:\n{errors.read()[-3_000:]}")
    results = [json.loads(line) for line in said]
    total = {name: sum(result[name] for result in results) for name in ("steps", "updates")}
    if total != {"steps": contest.steps * contest.runs, "updates": contest.steps * contest.runs // PERIOD}:
        sys.exit(f"{side.library} made {total}, not {contest.steps} steps of {contest.runs} runs: not the same work.")
    seconds = max(result["ended"] for result in results) - min(result["started"] for result in results)
    return total | {
        "seconds": seconds,
        "steps_per_second": total["steps"] / seconds,
        "versions": results[0]["versions"],
    }


def hold(contest: Contest, options: argparse.Namespace, pythons: dict[str, Path], versions: dict) -> list[dict]:
    """Measure all rounds of a contest, printing each figure; return one row a measurement, and add the versions."""
    rows: list[dict] = []
    print(named(contest), flush=True)
    for number in range(options.rounds):
        for place, side in enumerate(contest.sides if number % 2 == 0 else reversed(contest.sides)):
            busy = busy_cores()
            if busy > 0.2:
                print(f"Other programs keep {busy:.1f} cores busy: this will be worth little.", flush=True)
            result = measure(side, contest, options, pythons, seed=number * contest.runs)
            versions[side.library] = result.pop("versions")
            speed = f"{result['steps_per_second']:,.0f} agent steps/s"
            print(f"  round {number + 1}: {named_side(side)} {speed}", flush=True)
            of_contest = {name: getattr(contest, name) for name in ("network", "runs", "envs", "cores")}
            place_and_busy = {"round": number + 1, "place": place + 1, "busy_cores": round(busy, 2)}
            rows.append(of_contest | place_and_busy | side._asdict() | result)
    return rows


def named(contest: Contest) -> str:
    """Say what a contest is."""
    return (
        f"{contest.network}, {contest.runs} runs of {contest.envs} environments on {contest.cores} cores, "
        f"{contest.steps} steps each:"
    )


def named_side(side: Side) -> str:
    """Say what a side is."""
    return f"{side.library}, {side.processes} processes{', tests included' if side.tests else ''}:"


def outcome(contest: Contest, rows: list[dict]) -> dict[str, Any]:
    """Return the median speed of each side, and beside each rival our speed over its, round by round."""
    speeds = {
        side: [row["steps_per_second"] for row in sorted(rows, key=lambda row: row["round"]) if is_of(row, side)]
        for side in contest.sides
    }
    ours = speeds[contest.sides[0]]
    sides = []
    for side, speed in speeds.items():
        found = side._asdict() | {"median_steps_per_second": statistics.median(speed)}
        if side.library != OURS:
            ratios = [our / its for our, its in zip(ours, speed, strict=True)]
            found |= {"ratios": ratios, "median_ratio": statistics.median(ratios)}
        sides.append(found)
    return contest._asdict() | {"sides": sides}


def is_of(row: dict, side: Side) -> bool:
    """Say whether a measurement is of a side."""
    return side == Side(*(row[name] for name in Side._fields))


def show(outcome: dict[str, Any]) -> None:
    """Print the medians of a contest."""
    for side in outcome["sides"]:
        line = f"  median: {named_side(Side(*(side[name] for name in Side._fields)))}"
        line += f" {side['median_steps_per_second']:,.0f} agent steps/s"
        if "ratios" in side:
            low, high = min(side["ratios"]), max(side["ratios"])
            line += f"; {OURS} makes {side['median_ratio']:.2f} times that, {low:.2f} to {high:.2f} in the rounds"
        print(line, flush=True)


def main() -> None:
    """Measure, print, write."""
    options = read_options()
    pythons = {OURS: Path(sys.executable)}
    if REJAX in options.beside:
        pythons[REJAX] = options.rejax_python or peer_python(BUILD / "rejax", REJAX_REQUIREMENTS, REJAX)
    if SB3 in options.beside:
        pythons[SB3] = options.sb3_python or peer_python(BUILD / "sb3-minatar", SB3_REQUIREMENTS, "Stable-Baselines3")
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if available and len(available) < options.cores:
        sys.exit(f"--cores ({options.cores}) is more than the {len(available)} here; try --cores {len(available)}.")
    started = datetime.now(UTC)
    rows, outcomes, versions = [], [], {}
    for contest in contests(options.cores, options.group, smoke=options.smoke):
        if contest.rival in options.beside:
            if available:
                os.sched_setaffinity(0, available[: contest.cores])  # and so of all that is started from here
            measured = hold(contest, options, pythons, versions)
            rows += measured
            outcomes.append(outcome(contest, measured))
            show(outcomes[-1])
    hardware = describe_hardware()
    print(f"on {hardware['cpu']}, {options.cores} of {hardware['cores']} cores, {hardware['memory_gib']} GiB")
    settings = {name: getattr(options, name) for name in ("game", "rounds", "group", "cores", "beside", "smoke")}
    facts = provenance("minatar_speed.py", settings, started) | {"contests": outcomes, "versions": versions}
    write_results(options.out / "minatar_speed.csv", COLUMNS, rows, facts)


if __name__ == "__main__":
    main()
