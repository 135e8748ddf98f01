"""Commands `train`, `compare`, `resume` and `doctor`."""

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softbellman.cli.commands import Compare, Doctor, Resume, Train
from softbellman.cli.process import leave_memory_of_the_gpu, set_up_xla
from softbellman.cli.results import print_findings, print_scores
from softbellman.cli.tables import complain, print_lines, print_settings, written
from softbellman.config import Arm, as_arm, budgets
from softbellman.operators.spec import plain
from softbellman.running.engines import HERE, LOCAL
from softbellman.running.stopping import EXIT_CODE

if TYPE_CHECKING:
    from softbellman.running.comparison import Comparison, Resources
    from softbellman.study.store import Study


def train(command: Train) -> int:
    """Trains one operator; the exit code is 1 if a run failed or diverged, and 130 if it was stopped."""
    if command.seeds is not None and len(command.seeds) == 1:
        raise ValueError(f"--seeds lists several seeds; for seed {command.seeds[0]} write --seed {command.seeds[0]}")
    seeds = _seeds(command, (0,))
    arm = as_arm(command.operator)
    name = f"{plain(command.environment)}-{plain(arm.name)}" + (f"-seed-{seeds[0]}" if len(seeds) == 1 else "")
    return _begin(command, [command.environment], [arm], seeds, command.out or Path("runs") / name)


def compare(command: Compare) -> int:
    """Trains a comparison, new or begun; exit codes as for `train`."""
    seeds = _seeds(command, budgets.first_seeds(budgets.COMPARED_SEEDS))
    if command.seeds is not None and len(command.seeds) == 1:
        seeds = budgets.first_seeds(command.seeds[0])
    return _begin(
        command,
        command.environments,
        [as_arm(text) for text in command.operators],
        seeds,
        command.out,
        workers=command.workers,
        retry_failed=command.retry_failed,
    )


def _seeds(command: Train | Compare, otherwise: Sequence[int]) -> Sequence[int]:
    if command.seed is not None and command.seeds is not None:
        raise ValueError("give --seed or --seeds, not both")
    if command.seed is not None:
        return [command.seed]
    return otherwise if command.seeds is None else list(command.seeds)


def _begin(
    command: Train | Compare,
    environments: Sequence[str],
    arms: Sequence[Arm],
    seeds: Sequence[int],
    out: Path | None,
    *,
    workers: int | None = None,
    retry_failed: bool = True,
) -> int:
    """Trains what is asked for, or says what that would be."""
    from softbellman.study.store import study_in

    preset = command.checked_preset()
    begun = study_in(out) if out else None
    _set_up(command.engine, command.threads, begun, deterministic=command.deterministic)
    from softbellman.running.comparison import prepare, resources_for

    comparison = prepare(environments, arms, seeds, command.config, steps=command.steps, frames=command.frames)
    if command.log is not None:
        comparison = comparison.logging(command.log)
    out = out or comparison.default_out
    begun = begun or study_in(out)
    resources = resources_for(
        comparison.num_runs,
        workers,
        command.threads,
        begun,
        engine=command.engine,
        deterministic=command.deterministic,
    )
    if command.dry_run:
        work = comparison.work(out, resources, retry_failed=retry_failed)
        shown = comparison.arms[0].config(comparison.config) if len(comparison.arms) == 1 else comparison.config
        print_settings(preset, shown, comparison.plans[0]._replace(config=shown).settings())
        print_lines([*comparison.summary(work, resources, begun), ("directory", str(out))])
        print_lines(_warnings(comparison))
        return 0
    return _train(
        comparison,
        out,
        resources,
        show=_show_comparison if isinstance(command, Compare) else _show_runs,
        command=sys.argv[1:],
        quiet=command.quiet,
        retry_failed=retry_failed,
    )


def resume(command: Resume) -> int:
    """Goes on with a study, by the engine that it was begun with unless another is named."""
    from softbellman.study.store import Study

    study = Study(command.study)
    asked = study.record["command"]
    if asked[:2] == ["paper", "run"]:
        raise ValueError(
            f"{study.path} is a study of the paper, in which scores choose some of the runs; its own command goes on, "
            f"with --out {shlex.quote(str(study.path))}: {shlex.join(['softbellman', *asked])}"
        )
    older = LOCAL if "workers" in study.record else HERE
    engine = command.engine or study.record.get("engine", older)
    _set_up(engine, command.threads, study)
    from softbellman.running.comparison import prepare, resources_for

    comparison = prepare(study.environments, list(study.arms.values()), study.seeds, study.config)
    resources = resources_for(comparison.num_runs, command.workers, command.threads, study, engine=engine)
    return _train(
        comparison,
        study.path,
        resources,
        show=_show_runs if engine == HERE else _show_comparison,
        quiet=command.quiet,
        retry_failed=command.retry_failed or engine == HERE,
        inexact=command.inexact,
    )


def _train(
    comparison: "Comparison",
    out: Path,
    resources: "Resources",
    *,
    show: Callable[["Study", bool], None],
    quiet: bool,
    **options: Any,
) -> int:
    from softbellman.running.compare import train_comparison
    from softbellman.running.launch import outcome
    from softbellman.study.groups import ENDED
    from softbellman.study.runs import read_status
    from softbellman.study.store import study_in

    if not quiet:
        work = comparison.work(out, resources, retry_failed=options["retry_failed"])
        print_lines([*comparison.summary(work, resources, study_in(out)), *_warnings(comparison)])
    try:
        study = train_comparison(comparison, out, resources, quiet=quiet, **options)
    except KeyboardInterrupt:
        study = study_in(out)
        if study is None:
            raise
        left = any(read_status(run) not in ENDED for run in study.runs)
        after = "to go on: softbellman resume" if left else "all runs have ended: softbellman report"
        return complain(f"stopped; {after} {shlex.quote(str(out))}", EXIT_CODE)
    show(study, quiet)
    faults = outcome(study)
    for fault in faults:
        complain(fault, 1)
    return 1 if faults else 0


def _show_comparison(study: "Study", quiet: bool) -> None:
    """Prints what can be concluded, and writes the page."""
    from softbellman.analysis.findings import find_all
    from softbellman.analysis.records import Records
    from softbellman.report import write

    if quiet:
        written("the page", study.report)
        return
    records = Records.read(study)
    findings = find_all(records)
    print_findings(findings)
    if page := written("the page", lambda: write(records, findings)):
        print_lines([("page", str(page))])


def _show_runs(study: "Study", quiet: bool) -> None:
    """Prints the score of each run, and draws the learning curves."""
    from softbellman.analysis.records import Records
    from softbellman.report.pictures import draw_curves
    from softbellman.study.writer import count_rows

    records = Records.read(study)
    tested = [record for record in records.runs if count_rows(record.run)]
    if not tested:
        return
    picture = written("the learning curves", lambda: draw_curves([records], study.path / "curves.png"))
    if not quiet:
        print_scores(records)
        film = f"softbellman watch {shlex.quote(str(study.path if len(study.runs) == 1 else tested[0].run.path))}"
        print_lines([("learning curves", str(picture))] if picture else [])
        print_lines([("metrics", str(tested[0].run.path / "metrics.csv")), ("film a game", film)])


def _warnings(comparison: "Comparison") -> list[tuple[str, str]]:
    return [("note", line) for line in dict.fromkeys(line for plan in comparison.plans for line in plan.warnings())]


def doctor(_: Doctor) -> int:
    """Prints what works on this machine; the exit code is 1 if anything does not."""
    set_up_xla(None)
    from softbellman.doctor import examine

    checks = examine()
    for check in checks:
        print(f"{check.state:5} {check.name:15} {check.found}")
    return 1 if any(check.state == "FAIL" for check in checks) else 0


def _set_up(engine: str, threads: int | None, begun: "Study | None", *, deterministic: bool = False) -> None:
    """Prepares this process for what will train: itself, or others that need the GPU's memory too."""
    if engine == HERE:
        set_up_xla(threads, begun.record["provenance"] if begun else {}, deterministic=deterministic)
    else:
        leave_memory_of_the_gpu()
