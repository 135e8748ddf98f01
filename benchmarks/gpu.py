"""Measure the training speed of groups of runs on the accelerator that JAX finds, each against its bound.

    .venv/bin/python benchmarks/gpu.py            # at most 7 minutes; an idle machine, please
    .venv/bin/python benchmarks/gpu.py --small    # does it run at all?

MinAtar is trained with `sharp-minatar`, Atari with the network and learner of `paper-atari`, a small replay, and
emulators on the host. A group is one block: `loop.block_width` is its number of runs. Each group is measured in a
process of its own, which measures on the same device what bounds it:

- `arithmetic`: the rate of a product of large square matrices, in the precision of training, over the floating-point
  operations that XLA counts in acting and in an update. No program that does this work is faster; layers as small as
  these come nowhere near.
- `parts`: steps and updates alone, compiled as they are in training. An update alone is one of a loop of updates on a
  minibatch that stays on the device. On MinAtar a step alone is one of a loop that acts, steps the games and stores; on
  the device steps and updates wait for each other, so that their times add up. On Atari a step alone is one of each
  run's emulator, one after the other in one thread as in training; it could be hidden behind an update on the device,
  so that the slower of the two is the bound.

Uses no network. Keeps to `--seconds`: what would take longer is left out, and a line says so. Prints a line for each
group, and writes gpu.{csv,json} into the folder --out.
"""

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dqn_speed import PEERS, RESULTS, busy_cores, describe_hardware, provenance, write_results

SMALLEST = 8.0  # seconds: a group that has less is not begun
COLUMNS = [
    "environment", "runs", "steps", "updates", "seconds", "steps_per_second", "updates_per_second",
    "arithmetic_steps_per_second", "of_arithmetic", "parts_steps_per_second", "of_parts",
    "step_seconds", "update_seconds", "flops_per_step", "matrix_flops", "busy_cores", "left_out",
]  # fmt: skip


class Group(NamedTuple):
    """Runs that train together."""

    environment: str
    runs: int

    def __str__(self) -> str:
        """Name the group."""
        return f"{self.environment}, {self.runs} run{'s' * (self.runs > 1)}"


def read_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minatar", type=int, nargs="*", default=[1, 55, 165], help="runs of each group (1 55 165)")
    parser.add_argument("--atari", type=int, nargs="*", default=[1, 15], help="runs of each group (1 15)")
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--seconds", type=float, default=420.0, help="for all of it, compilation included (420)")
    parser.add_argument("--small", action="store_true", help="small matrices and replays, seconds of measuring")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for CSV and JSON")
    options = parser.parse_args()
    if min([*options.minatar, *options.atari, options.seconds]) < 1:
        parser.error("--minatar, --atari and --seconds must be at least 1.")
    return options


def measure(group: Group, options: argparse.Namespace, limit: float) -> dict[str, Any]:
    """Measure a group in a process of its own, which is ended at its limit; return what it found, or why nothing."""
    command = [sys.executable, str(PEERS / "gpu_group.py"), "--environment", group.environment]
    command += ["--runs", str(group.runs), "--seconds", "0.5" if options.small else str(min(20.0, limit / 4))]
    command += ["--small", "--matrix", "256"] if options.small else []
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"left_out": f"it took over its {limit:.3g} seconds"}
    if process.returncode:
        said = [line for line in process.stderr.splitlines() if line.strip()]
        return {"left_out": said[-1] if said else f"its process ended with exit code {process.returncode}"}
    return json.loads(process.stdout.splitlines()[-1])


def row_of(group: Group, found: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a group: what was measured, beside its bounds."""
    row: dict[str, Any] = {**group._asdict(), **{name: found[name] for name in COLUMNS if name in found}}
    if "left_out" in found:
        return row
    speed = found["steps"] / found["seconds"]
    step, update = found["step_seconds"], found["update_seconds"] / found["period"]
    on_device = group.environment.startswith("minatar/")
    bounds = {
        "arithmetic": found["matrix_flops"] / found["flops_per_step"],
        "parts": 1 / (step + update if on_device else max(step, update)),
    }
    row |= {"steps_per_second": speed, "updates_per_second": found["updates"] / found["seconds"]}
    for name, bound in bounds.items():
        row |= {f"{name}_steps_per_second": bound, f"of_{name}": speed / bound}
    return row


def show(group: Group, row: dict[str, Any]) -> None:
    """Print a group's speed and how much of its bounds that is."""
    if "left_out" in row:
        print(f"{group}: left out: {row['left_out']}", flush=True)
        return
    speeds = f"{row['steps_per_second']:,.0f} agent steps/s, {row['updates_per_second']:,.0f} updates/s"
    shares = ", ".join(
        f"{row[f'of_{name}']:.1%} of {row[f'{name}_steps_per_second']:,.0f} ({name})"
        for name in ("arithmetic", "parts")
    )
    print(f"{group}: {speeds}; {shares}", flush=True)


def main() -> None:
    """Measure, print, write."""
    options = read_options()
    started, ends = datetime.now(UTC), time.monotonic() + options.seconds
    groups = [Group(f"minatar/{options.game}", runs) for runs in options.minatar]
    groups += [Group(f"atari/{options.game}", runs) for runs in options.atari]
    rows, facts = [], {"device": None, "versions": None}
    for number, group in enumerate(groups):
        left = ends - time.monotonic()
        if left < SMALLEST:
            found: dict[str, Any] = {"left_out": f"{max(left, 0.0):.0f} of {options.seconds:g} seconds are left"}
        else:
            busy = busy_cores(1.0)
            limit = min(2 * left / (len(groups) - number), left - 2)  # twice its share: others may need less
            found = measure(group, options, limit) | {"busy_cores": round(busy, 2)}
        facts |= {name: found[name] for name in facts if name in found}
        rows.append(row_of(group, found))
        show(group, rows[-1])
    hardware = describe_hardware()
    device = f"{facts['device']['kind']} ({facts['device']['platform']}), " if facts["device"] else ""
    print(f"on {device}{hardware['cpu']}, {hardware['cores']} cores")
    settings = {name: getattr(options, name) for name in ("minatar", "atari", "game", "seconds", "small")}
    record = provenance("gpu.py", settings, started) | facts | {"groups": rows}
    write_results(options.out / "gpu.csv", COLUMNS, rows, record)
    if all("left_out" in row for row in rows):
        sys.exit("nothing was measured")


if __name__ == "__main__":
    main()
