"""Limits of a study of many groups: writes a second of a file system, and events a second of the driver.

    python benchmarks/scale.py --folder /shared/runs                # of the file system that the study is to be on
    python benchmarks/scale.py --groups 1000 --out results/scale    # writes scale.json there

The first part does, in a directory of that file system, what training does there: replaces a file of 4 KB whole, as a
row of `metrics.csv` and a status do; touches a lease; makes and removes a group's directory. Each by one thread and by
eight.

The second part has the driver launch a study of so many groups of one run whose training does nothing: each group tells
of having gone on, of 20 reports of progress and 5 rows, and ends. All that the driver does is real: groups made, events
taken, `study.json` written, statuses read. Beside it stands the same with a tenth of the groups, so that a cost that
grows faster than their number shows.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from softbellman import config as configs
from softbellman import operators as ops
from softbellman.running.engines import Event
from softbellman.running.launch import find_work, launch
from softbellman.running.progress import reporter
from softbellman.study.files import write_atomically
from softbellman.study.groups import open_groups
from softbellman.study.provenance import provenance
from softbellman.study.store import Study
from softbellman.study.writer import write_status

SECONDS = 1.0  # of each measurement of the file system
TOLD = ("progress",) * 4 + ("row",)
ROUNDS = 5


def writes(folder: Path) -> dict[str, dict[str, float]]:
    """Measures operations a second in a directory, by name and number of threads."""
    content = b"x" * 4096

    def replace(own: Path) -> None:
        write_atomically(own / "metrics.csv", content)

    def touch(own: Path) -> None:
        os.utime(own / "lease")

    def make(own: Path) -> None:
        (own / "group").mkdir()
        (own / "group").rmdir()

    found = {}
    for name, act in {"replace a file": replace, "touch a lease": touch, "make and remove a directory": make}.items():
        found[name] = {str(threads): rate(act, folder, threads) for threads in (1, 8)}
    return found


def rate(act: Callable[[Path], None], folder: Path, threads: int) -> float:
    """Measures how often a second threads do something, each in a directory of its own."""

    def repeat(number: int) -> int:
        own, done = folder / f"thread-{number}", 0
        own.mkdir(exist_ok=True)
        (own / "lease").touch()
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            act(own)
            done += 1
        return done

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        total = sum(pool.map(repeat, range(threads)))
    return round(total / (time.perf_counter() - began), 1)


class Nothing:
    """An engine that trains nothing, and tells what training would."""

    spec, process_bytes, capacity = "scale:Nothing", 0, 1000

    def __init__(self, study: Study) -> None:
        """Takes the study."""
        self.study, self.events, self.seconds = study, 0, 0.0

    def train(self, tasks, on_event, check) -> None:
        """Tells of each group; only the driver's own time counts."""
        made_with = provenance()
        runs = {group.path.name: group.runs for group in open_groups(self.study)}

        def tell(task, kind: str, **facts) -> None:
            began = time.perf_counter()
            on_event(task, Event(kind, facts))
            self.seconds += time.perf_counter() - began
            self.events += 1

        for task in tasks:
            tell(task, "resumed", agent_steps=1, notes=[], provenance=made_with)
        for moment in range(1, ROUNDS + 1):
            for task in tasks:
                for kind in TOLD:
                    facts = {"agent_steps": moment} if kind == "progress" else {}
                    facts |= {"run": 0, "epoch": moment, "score": 1.0, "games": 3} if kind == "row" else {}
                    tell(task, kind, **facts)
        for task in tasks:
            for run in runs[task.group]:
                write_status(run, "finished")
            tell(task, "ended")
            check()


def driver(folder: Path, groups: int) -> dict[str, float]:
    """Launches a study of groups of one run that train nothing, and says what that took."""
    config = configs.preset("classic-control").config
    began = time.perf_counter()
    study = Study.create(folder, "gym/CartPole-v1", [ops.maximum()], list(range(groups)), config, {}, [])
    work = find_work(study.runs, [], 1, groups)
    engine = Nothing(study)
    launch(study, work, engine=engine, variables={}, progress=reporter(1, groups, quiet=True))
    total = time.perf_counter() - began
    return {
        "groups": groups,
        "events": engine.events,
        "events a second": round(engine.events / engine.seconds, 1),
        "seconds of the driver for its events": round(engine.seconds, 2),
        "seconds in all": round(total, 2),
        "bytes of study.json": (folder / "study.json").stat().st_size,
        "largest memory of the process, MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, 1),
    }


def main() -> None:
    """Measures, prints, and writes if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, help="a directory of the file system to measure; by default a temporary one"
    )
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="a directory for scale.json")
    asked = parser.parse_args()
    if asked.folder is not None and not asked.folder.is_dir():
        parser.error(f"--folder {asked.folder} is no directory; name one of the file system to measure")
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder, found = Path(name), {"load of the machine before": os.getloadavg()[0], "provenance": provenance()}
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores before")
        found["operations a second, by threads"] = writes(folder)
        for what, rates in found["operations a second, by threads"].items():
            print(f"{what:30} {rates['1']:10,.0f} a second by one thread {rates['8']:10,.0f} by eight")
        found["driver"] = [driver(folder / str(number), number) for number in (asked.groups // 10, asked.groups)]
        for each in found["driver"]:
            print(", ".join(f"{name} {value:,}" for name, value in each.items()))
    if asked.out:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "scale.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
