"""Compare the training speed of softbellman's DQN with Stable-Baselines3's, on the same Atari game.

    .venv/bin/python benchmarks/dqn_speed.py            # 5 alternating pairs; an idle machine, please
    .venv/bin/python benchmarks/dqn_speed.py --pairs 1 --warmup 200 --steps 400   # does it run at all?

Makes an environment for the other library under build/benchmarks/, measures each side in processes of its own, prints
every pair, the medians and their ratio, and writes dqn_speed.{csv,json} into the folder --out.
benchmarks/README.md says how the sides differ.
"""

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "benchmarks" / "peers"
RESULTS = ROOT / "build" / "benchmarks" / "results"  # what is published is in results/, and replaced only if asked
# One after the other: PyTorch first and by its plain version, so that an index that offers a build for the CPU can
# choose it, and the rest take what is there.
PEER_REQUIREMENTS = (["torch==2.13.0"], ["stable-baselines3>=2.7,<3", "ale-py>=0.12", "opencv-python-headless>=4.10"])
COLUMNS = ["pair", "place", "library", "steps", "updates", "seconds", "steps_per_second", "busy_cores"]
THEIRS, OURS = "stable-baselines3", "softbellman"


def peer_python(folder: Path, requirements: tuple[list[str], ...], name: str) -> Path:
    """Return the Python of an environment that has the other libraries, making it on the first call."""
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    wanted = json.dumps(requirements)
    if not ready.exists() or ready.read_text() != wanted:
        print(f"Installing {name} into {folder}; this takes a few minutes.", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        for packages in requirements:
            subprocess.run([python, "-m", "pip", "install", "-qq", *packages], check=True)
        ready.write_text(wanted)
    return python


def keep_to_cores(threads: int) -> None:
    """Bind this process, and so its children, to `threads` cores, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < threads:
            sys.exit(f"--threads ({threads}) is more than the {len(cores)} cores here; try --threads {len(cores)}.")
        os.sched_setaffinity(0, cores[:threads])


def busy_cores(seconds: float = 2.0) -> float:
    """Return how many cores other programs keep busy, watched for a while; NaN where the system does not say."""
    counters = Path("/proc/stat")
    if not counters.exists():
        return float("nan")

    def read() -> tuple[float, float]:
        ticks = [int(word) for word in counters.read_text().splitlines()[0].split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]  # all; idle and waiting for disks

    total_before, idle_before = read()
    time.sleep(seconds)
    total, idle = read()
    return (1 - (idle - idle_before) / max(total - total_before, 1)) * (os.cpu_count() or 1)


def measure(python: Path, script: str, options: argparse.Namespace, seed: int) -> dict:
    """Run one peer in a process of its own and return what it printed."""
    command = [str(python), str(PEERS / script), "--game", options.game, "--seed", str(seed)]
    for name in ("replay_start", "warmup", "steps", "threads"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    process = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if process.returncode:
        sys.exit(f"{script} failed:\n{process.stderr[-3_000:]}")
    return json.loads(process.stdout.strip().splitlines()[-1])


def describe_hardware() -> dict[str, object]:
    """Say what the numbers were measured on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def revision() -> str:
    """Return the commit, with a mark when the tree has changes."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def command_of(script: str, settings: dict) -> str:
    """Return the command that measures again: its options by name, lists in words, None and False left out."""
    words = ["python", f"benchmarks/{script}"]
    for name, value in settings.items():
        if value is None or value is False:
            continue
        words.append(f"--{name.replace('_', '-')}")
        words += [] if value is True else map(str, value if isinstance(value, list) else [value])
    return " ".join(words)


def provenance(script: str, settings: dict, started: datetime) -> dict:
    """Say how the measurements so far were made."""
    return {
        "command": command_of(script, settings),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - started).total_seconds()),
        "revision": revision(),
        "settings": settings,
        "hardware": describe_hardware(),
    }


def write_results(path: Path, columns: list[str], rows: list[dict], facts: dict) -> None:
    """Write a table, and beside it, as JSON, how it was made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    path.with_suffix(".json").write_text(json.dumps(facts, indent=2) + "\n")
    print(f"written: {path}, {path.with_suffix('.json')}")


def read_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of measurements (5)")
    parser.add_argument("--replay-start", type=int, default=1_000, help="agent steps before the first update (1000)")
    parser.add_argument("--warmup", type=int, default=1_000, help="agent steps with updates, not timed (1000)")
    parser.add_argument("--steps", type=int, default=5_000, help="agent steps timed (5000)")
    parser.add_argument("--threads", type=int, default=2, help="threads, and cores, of either side (2)")
    parser.add_argument("--peer-python", type=Path, help="a Python that has Stable-Baselines3 already")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for CSV and JSON")
    options = parser.parse_args()
    if min(options.pairs, options.replay_start, options.steps, options.threads) < 1 or options.warmup < 0:
        parser.error("--pairs, --replay-start, --steps and --threads must be at least 1, --warmup at least 0.")
    for name in ("replay_start", "warmup", "steps"):
        if getattr(options, name) % 4:
            parser.error(f"--{name.replace('_', '-')} must be a multiple of 4, the steps between two updates.")
    return options


def measure_pairs(sides: dict[str, tuple[Path, str]], options: argparse.Namespace) -> tuple[list[dict], dict]:
    """Measure all pairs, printing each; return one row a measurement, and the versions of each side."""
    rows: list[dict] = []
    versions: dict[str, dict[str, str]] = {}
    for pair in range(options.pairs):
        for place, library in enumerate(sides if pair % 2 == 0 else reversed(sides)):
            busy = busy_cores()
            if busy > 0.2:
                print(f"Other programs keep {busy:.1f} cores busy: this will be worth little.", flush=True)
            result = measure(*sides[library], options, seed=pair)
            versions[library] = result.pop("versions")
            if result["updates"] != options.steps // 4:
                sys.exit(f"{library} made {result['updates']} updates in {options.steps} steps: not the same work.")
            rows.append({"pair": pair + 1, "place": place + 1, "busy_cores": round(busy, 2), **result})
        speed = {row["library"]: row["steps_per_second"] for row in rows[-2:]}
        print_speeds(f"pair {pair + 1}", speed[OURS], speed[THEIRS])
    return rows, versions


def print_speeds(what: str, ours: float, theirs: float) -> None:
    """Print one line of the comparison."""
    ratio = ours / theirs
    print(f"{what}: {OURS} {ours:.1f}, {THEIRS} {theirs:.1f} agent steps/s, ratio {ratio:.2f}", flush=True)


def main() -> None:
    """Measure, print, write."""
    options = read_options()
    folder = ROOT / "build" / "benchmarks" / "sb3"
    peer = options.peer_python or peer_python(folder, PEER_REQUIREMENTS, "Stable-Baselines3")
    sides = {OURS: (Path(sys.executable), "softbellman_dqn.py"), THEIRS: (peer, "sb3_dqn.py")}
    keep_to_cores(options.threads)
    started = datetime.now(UTC)
    rows, versions = measure_pairs(sides, options)

    medians = {
        library: statistics.median(row["steps_per_second"] for row in rows if row["library"] == library)
        for library in sides
    }
    hardware = describe_hardware()
    print_speeds("median", medians[OURS], medians[THEIRS])
    print(f"on {hardware['cpu']}, {options.threads} of {hardware['cores']} cores, {hardware['memory_gib']} GiB")
    for library, found in versions.items():
        print(f"{library}: " + ", ".join(f"{name} {number}" for name, number in found.items()))

    settings = {key: getattr(options, key) for key in ("game", "pairs", "replay_start", "warmup", "steps", "threads")}
    facts = provenance("dqn_speed.py", settings, started) | {
        "median_steps_per_second": medians,
        "ratio_of_medians": medians[OURS] / medians[THEIRS],
        "versions": versions,
    }
    write_results(options.out / "dqn_speed.csv", COLUMNS, rows, facts)


if __name__ == "__main__":
    main()
