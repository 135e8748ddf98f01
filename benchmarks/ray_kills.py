"""Kills of workers and nodes of a Ray cluster at random moments, and what became of the study that they were training.

    python benchmarks/ray_kills.py                       # 30 kills; about a quarter of an hour
    python benchmarks/ray_kills.py --kills 2 --seed 7    # does it run at all?

Two nodes of one core each, as processes of this machine, train a study of CartPole. At moments drawn at random one of
the processes at work is picked, and by SIGKILL goes all of its node; or it and the process of Ray's that it belongs to;
or that alone, so that what trains is left without a parent, saves its state and ends; or the driver, which is begun
again. A killed node is replaced by a new one. When the study is over before all kills were made, another is begun.

Each study is trained by the local engine too, undisturbed. Every run must have all its rows, each once, and the same
numbers in all columns but `seconds`; and its networks must be the same, byte for byte. Otherwise the exit code is 1.
"""

import argparse
import collections
import contextlib
import csv
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ray.cluster_utils import Cluster

EPOCH = 500
SETTINGS = [
    *("--loop.epoch-steps", str(EPOCH), "--loop.test-steps", "200", "--loop.block-width", "2"),
    *("--learner.replay-start-steps", "200", "--checkpoint.minutes", "0.03"),
]
NODES = 2
KINDS = ["node", "worker and training", "worker", "driver"]
NETWORKS = ("final.safetensors", "best.safetensors")
WORKER = "softbellman.running.worker"


class Killer:
    """Kills what trains, now and then, until it has killed often enough."""

    def __init__(self, cluster: Cluster, kills: int, draw: random.Random, mean: float) -> None:
        """Takes a cluster without nodes, how often to kill, the source of chance, and the seconds between two kills."""
        self.cluster, self.left, self.draw, self.mean = cluster, kills, draw, mean
        self.nodes = [cluster.add_node(num_cpus=1) for _ in range(NODES)]
        self.counts: collections.Counter[str] = collections.Counter()
        self.began = time.monotonic()

    def disturb(self, driver: subprocess.Popen[bytes]) -> int:
        """Kills until a driver has ended, and returns its exit code, below 0 if it was itself killed."""
        while True:
            try:
                return driver.wait(self.draw.uniform(0.2, 1.8) * self.mean if self.left else None)
            except subprocess.TimeoutExpired:
                self.kill_one(driver)

    def kill_one(self, driver: subprocess.Popen[bytes]) -> None:
        """Picks one of the processes that train, and kills something that it depends on."""
        found = [(node, pid) for node in self.nodes for pid in processes_of(node) if is_training(pid)]
        if not found:
            return
        node, pid = self.draw.choice(found)
        kind, worker = self.draw.choice(KINDS), parents().get(pid)
        if worker is None:
            return
        victims = {"node": processes_of(node), "worker and training": [pid, worker], "worker": [worker]}
        kill(victims.get(kind, [driver.pid]))
        if kind == "node":
            self.nodes.remove(node)
            self.cluster.remove_node(node, allow_graceful=False)
            self.nodes.append(self.cluster.add_node(num_cpus=1))
        self.left -= 1
        self.counts[kind] += 1
        print(f"{time.monotonic() - self.began:7.1f} s  killed: {kind}", flush=True)


def parents() -> dict[int, int]:
    """Returns the parent of each process of this machine."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def processes_of(node) -> list[int]:
    """Lists the processes of a node, and all that these began."""
    family, children = parents(), collections.defaultdict(list)
    for pid, parent in family.items():
        children[parent].append(pid)
    found = [info.process.pid for infos in node.all_processes.values() for info in infos]
    for pid in found:  # it grows
        found += children[pid]
    return found


def is_training(pid: int) -> bool:
    """Says whether a process is one that trains a group."""
    try:
        return WORKER in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return False


def kill(pids: list[int]) -> None:
    """Kills processes, all at once, as a power failure does."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def differences(places: Path, phases: int) -> list[str]:
    """Says in what the runs of two studies differ, or are not complete."""
    said = []
    runs = [path.parent.relative_to(places / "local") for path in (places / "local").glob("runs/*/*/*/metrics.csv")]
    for run in runs if len(runs) == 8 else [Path("not all were trained undisturbed")]:
        here, there = places / "ray" / run, places / "local" / run
        if not (here / "final.safetensors").exists() or rows_of(here) != rows_of(there):
            said.append(f"{run}: other numbers than undisturbed")
        elif [row["epoch"] for row in rows_of(here)] != [str(1 + number) for number in range(phases)]:
            said.append(f"{run}: rows {[row['epoch'] for row in rows_of(here)]}")
        elif any((here / name).read_bytes() != (there / name).read_bytes() for name in NETWORKS):
            said.append(f"{run}: other networks")
    return said


def rows_of(folder: Path) -> list[dict[str, str]]:
    """Reads the rows of a run, but for what the clock says."""
    with (folder / "metrics.csv").open() as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def main() -> int:
    """Runs the trial; the exit code is 1 if a run is not as it would have been."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of moments and choices")
    parser.add_argument("--mean", type=float, default=12.0, help="mean seconds between two kills")
    parser.add_argument("--steps", type=int, default=4000, help="agent steps of a run")
    asked = parser.parse_args()
    print(f"seed of the kills: {asked.seed}", flush=True)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    killer = Killer(cluster, asked.kills, random.Random(asked.seed), asked.mean)
    faults, studies = [], 0
    with tempfile.TemporaryDirectory() as folder:
        while killer.left:
            seeds, places = range(4 * studies, 4 * studies + 4), Path(folder) / str(studies)
            while (code := killer.disturb(begin(seeds, asked.steps, places / "ray", f"ray:{cluster.address}"))) < 0:
                pass  # it was killed, and is begun again
            print(f"study {studies} is over (exit code {code}): {killer.left} kills left", flush=True)
            begin(seeds, asked.steps, places / "local", "local").wait()
            faults += differences(places, asked.steps // EPOCH)
            studies += 1
    cluster.shutdown()
    print(f"{sum(killer.counts.values())} kills ({dict(killer.counts)}) in {time.monotonic() - killer.began:.0f} s")
    print(f"{studies * 2 * 4} runs of {studies} studies, and {len(faults)} differences from the undisturbed ones")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def begin(seeds: range, steps: int, out: Path, engine: str) -> subprocess.Popen[bytes]:
    """Begins a comparison, or goes on with it."""
    words = ["compare", "gym/CartPole-v1", "--operators", "max", "softmax(5)", "--seeds", *map(str, seeds)]
    more = ["--steps", str(steps), *SETTINGS, "--workers", str(NODES), "--threads", "1", "--engine", engine, "--quiet"]
    return subprocess.Popen([sys.executable, "-m", "softbellman", *words, *more, "--out", str(out)])


if __name__ == "__main__":
    sys.exit(main())
