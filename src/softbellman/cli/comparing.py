"""The commands that train many runs as one study, and report on them."""

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softbellman import operators as ops
from softbellman.cli.commands import Compare, Report, Resume
from softbellman.cli.tables import complain, print_lines, print_settings, print_table, written
from softbellman.running.stopping import EXIT_CODE
from softbellman.study.place import require_directory

if TYPE_CHECKING:
    from softbellman.running.comparison import Comparison, Resources
    from softbellman.study.store import Study


def compare(command: Compare) -> int:
    """Trains a comparison, new or begun; the exit code is 1 if a run failed or diverged, and 130 if it was stopped."""
    preset = command.checked_preset()
    operators = [ops.parse(spec) for spec in command.operators]
    seeds = _seeds(command)
    leave_memory_of_the_gpu()
    from softbellman.running.comparison import prepare, resources_for
    from softbellman.study.store import study_in

    comparison = prepare(
        command.environments, operators, seeds, command.config, steps=command.steps, frames=command.frames
    )
    out = command.out or comparison.default_out
    begun = study_in(out)
    resources = resources_for(
        comparison.cells, command.workers, command.threads, begun, deterministic=command.deterministic
    )
    if command.dry_run:
        work = comparison.work(out, resources.workers, retry_failed=command.retry_failed)
        print_settings(preset, comparison.config, comparison.plans[0].settings())
        print_lines(
            [*comparison.going_on(begun).summary(work, resources), ("directory", str(out)), *_warnings(comparison)]
        )
        return 0
    return _train(
        comparison, out, resources, command=sys.argv[1:], quiet=command.quiet, retry_failed=command.retry_failed
    )


def _seeds(command: Compare) -> Sequence[int]:
    if command.seed is None:
        seeds = (5,) if command.seeds is None else command.seeds
        return range(seeds[0]) if len(seeds) == 1 else seeds
    if command.seeds is not None:
        raise ValueError("give --seed or --seeds, not both")
    return [command.seed]


def resume(command: Resume, study: "Study") -> int:
    """Goes on with a comparison."""
    leave_memory_of_the_gpu()
    from softbellman.running.comparison import prepare, resources_for

    operators = [ops.parse(spec) for spec in study.operators]
    comparison = prepare(study.environments, operators, study.seeds, study.config)
    resources = resources_for(comparison.cells, command.workers, command.threads, study)
    return _train(
        comparison,
        study.path,
        resources,
        quiet=command.quiet,
        retry_failed=command.retry_failed,
        inexact=command.inexact,
    )


def report(command: Report) -> int:
    """Prints what a study found, and writes its page."""
    from softbellman.study.store import Study

    study = Study(command.study)
    require_directory(command.out or study.path / "report")
    _print_table(study)
    print_lines([("page", str(study.report(command.out)))])
    return 0


def _train(comparison: "Comparison", out: Path, resources: "Resources", *, quiet: bool, **options: Any) -> int:
    from softbellman.running.compare import train
    from softbellman.running.launch import outcome
    from softbellman.running.stopping import Stopped
    from softbellman.study.store import study_in

    if not quiet:
        work = comparison.work(out, resources.workers, retry_failed=options["retry_failed"])
        begun = study_in(out)
        print_lines(comparison.going_on(begun).summary(work, resources))
    try:
        study = train(comparison, out, resources, quiet=quiet, **options)
    except Stopped:
        left = comparison.work(out, resources.workers).sizes
        after = f"to go on: softbellman resume {out}" if left else f"all runs have ended: softbellman report {out}"
        return complain(f"stopped; {after}", EXIT_CODE)
    faults = outcome(study)
    if not quiet:
        _print_table(study)
        print_lines(_warnings(comparison))
    page = written("the page", study.report)
    if page and not quiet:
        print_lines([("page", str(page))])
    for fault in faults:
        complain(fault, 1)
    return 1 if faults else 0


def _print_table(study: "Study") -> None:
    """Prints what can be concluded, and a row for each operator in each environment."""
    from softbellman.analysis.findings import find
    from softbellman.report.conclusions import conclude
    from softbellman.report.tables import of_operators

    for environment in study.environments:
        found = find(study, environment)
        if len(study.environments) > 1:
            print_lines([("environment", environment)])
        print_lines(zip(itertools.chain(["found"], itertools.repeat("")), conclude(found), strict=False))
        rows = [
            (
                row["operator"],
                f"{row['counted']} of {row['asked']}",
                _rounded(row["last_10"]),
                _between(row, "last_10"),
                _rounded(row["best"]),
                _difference(row),
            )
            for row in of_operators([found])
        ]
        if found.random is not None and found.random.interval is not None:
            low, high = found.random.interval
            rows.append(("random actions", "-", _rounded(found.random.mean), f"{low:.2f} to {high:.2f}", "-", "-"))
        print_table(("operator", "runs", "score", "95% interval", "best", f"minus {study.operators[0]}"), rows)
    print_lines([("score", "mean of a run's last 10 test phases, or of all if there are fewer, then over runs")])


def _difference(row: Mapping[str, Any]) -> str:
    interval = _between(row, "difference")
    if row["difference"] is None:
        return "-"
    return f"{row['difference']:+.2f}" + (f" ({interval})" if interval != "-" else "")


def _between(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "-" if low is None else f"{low:.2f} to {high:.2f}"


def _rounded(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _warnings(comparison: "Comparison") -> list[tuple[str, str]]:
    return [("note", line) for line in dict.fromkeys(line for plan in comparison.plans for line in plan.warnings())]


def leave_memory_of_the_gpu() -> None:
    """Has JAX, before it loads, take no more of a GPU than it needs: the workers use it too."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
