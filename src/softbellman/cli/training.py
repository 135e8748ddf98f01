"""The commands that train, and those that show what came of it."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softbellman import operators as ops
from softbellman.cli import comparing
from softbellman.cli.commands import Doctor, Evaluate, Resume, Train, Watch
from softbellman.cli.tables import complain, print_lines, print_settings, print_table, written
from softbellman.faults import in_a_line
from softbellman.running.stopping import EXIT_CODE
from softbellman.study.place import require_file, require_new


def train(command: Train) -> int:
    """Trains a study, new or begun; the exit code is 1 if a run failed or diverged, and 130 if it was stopped."""
    from softbellman.operators.spec import plain
    from softbellman.study.matching import require_same
    from softbellman.study.store import Study, study_in

    if command.seed is not None and command.seeds is not None:
        raise ValueError("give --seed or --seeds, not both")
    preset = command.checked_preset()
    seeds = list(command.seeds) if command.seeds is not None else [command.seed or 0]
    operator = ops.parse(command.operator)
    name = f"{plain(command.environment)}-{plain(str(operator))}-seed-{'-'.join(map(str, seeds))}"
    out = command.out or Path("runs") / name
    begun = study_in(out)
    if begun and "workers" in begun.record:
        raise ValueError(f"{out} is a comparison; it goes on by softbellman resume {out}, or by softbellman compare")
    _set_up_xla(command.threads, begun.record["provenance"] if begun else {}, deterministic=command.deterministic)
    from softbellman.running.plan import plan as make_plan

    plan = make_plan(command.environment, operator, seeds, command.config, steps=command.steps, frames=command.frames)
    if begun is None:
        require_new(out)
    else:
        plan = plan.going_on(begun.record["environment_facts"])
        require_same(begun, plan.environment, [plan.operator], plan.seeds, plan.config)
    if command.dry_run:
        print_settings(preset, plan.config, plan.settings())
        print_lines([*plan.summary(), *(("note", line) for line in plan.warnings())])
        return 0
    facts = {plan.environment: plan.facts}
    study = begun or Study.create(out, plan.environment, [plan.operator], plan.seeds, plan.config, facts, sys.argv[1:])
    with study.locked():
        study.take_config(plan.config, sys.argv[1:])
    return _train_study(study, plan, quiet=command.quiet)


def resume(command: Resume) -> int:
    """Goes on with a study."""
    from softbellman.study.store import Study

    study = Study(command.study)
    if "workers" in study.record:
        return comparing.resume(command, study)
    if command.workers is not None or command.retry_failed:
        raise ValueError(f"{study.path} is no comparison: it takes neither --workers nor --retry-failed")
    _set_up_xla(command.threads, study.record["provenance"])
    from softbellman.running.plan import plan as make_plan

    (environment,), (operator,) = study.environments, study.operators
    plan = make_plan(environment, ops.parse(operator), study.seeds, study.config)
    plan = plan.going_on(study.record["environment_facts"])
    return _train_study(study, plan, quiet=command.quiet, inexact=command.inexact)


def _train_study(study: Any, plan: Any, *, quiet: bool, inexact: bool = False) -> int:
    from softbellman.report.pictures import draw_curves
    from softbellman.running import group_training as groups
    from softbellman.running.progress import reporter
    from softbellman.running.stopping import Stopped
    from softbellman.study.locks import Held
    from softbellman.study.runs import read_status
    from softbellman.study.writer import count_rows
    from softbellman.training.host_loop import Diverged

    if not quiet:
        print_lines(plan.summary())
    progress = reporter(plan.config.loop.steps, len(plan.seeds), quiet=quiet)
    try:
        groups.train(
            study,
            on_progress=progress.steps,
            on_row=lambda index, row, phase: progress.score(
                f"{study.runs[index].operator}, seed {study.runs[index].seed}", row.epoch, phase.mean, len(phase.scores)
            ),
            on_note=progress.note,
            inexact=inexact,
        )
    except Stopped:
        return complain(f"stopped; to go on: softbellman resume {study.path}", EXIT_CODE)
    except (groups.Refused, Held):
        raise
    except Diverged as error:
        return complain(f"no run is left: {error}", 1)
    except (Exception, SystemExit) as error:
        file = study.runs[0].path / "error.txt"
        where = f" (all of it: {file})" if file.exists() else ""
        return complain(f"the run failed: {in_a_line(error)}{where}", 1)
    finally:
        progress.close()
    tested = [run for run in study.runs if count_rows(run)]
    picture = (
        written("the learning curves", lambda: draw_curves([study], study.path / "curves.png")) if tested else None
    )
    if tested and not quiet:
        _print_results(tested)
        watch = f"softbellman watch {study.path if len(study.runs) == 1 else tested[0].path}"
        curves = [("learning curves", str(picture))] if picture else []
        print_lines([*(("note", line) for line in plan.warnings()), *curves])
        print_lines([("metrics", str(tested[0].path / "metrics.csv")), ("film a game", watch)])
    diverged = [str(run.seed) for run in study.runs if read_status(run) == "diverged"]
    return complain(f"the runs of these seeds diverged: {', '.join(diverged)}", 1) if diverged else 0


def _print_results(runs: Sequence[Any]) -> None:
    from softbellman.analysis.scores import best_score
    from softbellman.study.files import read_metrics

    rows = []
    for run in runs:
        metrics = read_metrics(run.path / "metrics.csv")
        overestimation = metrics["overestimation"][-1]
        rows.append(
            (
                run.operator,
                str(run.seed),
                f"{metrics['episodes'][-1]:,.0f}",
                f"{metrics['test_return'][-1]:.2f}",
                f"{best_score(metrics['test_return'], metrics['updates']):.2f}",
                "-" if np.isnan(overestimation) else f"{overestimation:+.2f}",
            )
        )
    print_table(("operator", "seed", "games", "final score", "best score", "overestimation"), rows)


def evaluate(command: Evaluate) -> int:
    """Prints the scores of a trained network beside those of the random policy."""
    from softbellman.study.files import load_params, write_record
    from softbellman.study.store import find_run

    study, run = find_run(command.run)
    if command.out is not None:
        require_file(command.out)
    _set_up_xla(command.threads)
    from softbellman.analysis.statistics import mean_interval
    from softbellman.running import play

    epsilon = play.exploration_rate(study.config, command.epsilon)
    options: dict[str, Any] = {"episodes": command.episodes, "max_steps": command.max_steps, "seed": command.seed}
    trained = play.evaluate(study, run, which=command.network, epsilon=epsilon, **options)
    random = play.evaluate_random(run.environment, study.config, **options)
    rows, notes = [], []
    for policy, phase in ((run.operator, trained), ("random", random)):
        interval = mean_interval(phase.scores)
        rows.append(
            (
                policy,
                f"{len(phase.scores):,}",
                f"{phase.mean:.2f}",
                "-" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
                f"{np.median(phase.scores):g}",
                f"{phase.scores.max():g}",
                f"{phase.steps:,}",
            )
        )
        if phase.unfinished:
            notes.append(f"{policy}: no game ended within the budget; its score is that of the unfinished one")
        elif len(phase.scores) < command.episodes:
            notes.append(f"{policy}: the budget of steps ended the test after {len(phase.scores)} games")
        if phase.identical:
            notes.append(f"{policy}: {len(phase.scores)} identical episodes; nothing is known of other starts")
        if interval is None:
            notes.append(f"{policy}: one score shows no spread, so there is no interval")
    _, facts = load_params(run.path / f"{command.network}.safetensors")
    network = f"{command.network} network of seed {run.seed}, after {facts['agent_steps']:,} agent steps"
    tested = f"{network}, epsilon {epsilon:g}, games from seed {command.seed}"
    print_lines([("tested", f"{run.environment}: {tested}")])
    print_table(("policy", "games", "mean", "95% interval", "median", "best", "agent steps"), rows)
    print_lines([("note", note) for note in notes])
    if command.out is not None:
        settings = {"network": command.network, "epsilon": epsilon, "seed": command.seed}
        record = {"environment": run.environment, "operator": run.operator, "training_seed": run.seed}
        write_record(
            command.out,
            record | settings | {"agent_steps": facts["agent_steps"]},
            {"trained": trained, "random": random},
        )
        print_lines([("scores", str(command.out))])
    return 0


def watch(command: Watch) -> int:
    """Films a trained network."""
    from softbellman.study.store import find_run

    study, run = find_run(command.run)
    out = command.out or run.path / "videos" / f"{command.network}-seed-{command.seed}.mp4"
    require_file(out)
    _set_up_xla(None)
    from softbellman.running import play

    epsilon = play.exploration_rate(study.config, command.epsilon)
    path, phase, pictures = play.watch(
        study,
        run,
        out,
        which=command.network,
        epsilon=epsilon,
        episodes=command.episodes,
        max_steps=command.max_steps,
        seed=command.seed,
    )
    ended = f"not over after {phase.steps:,} agent steps" if phase.unfinished else "over"
    scores = ", ".join(f"{score:g}" for score in phase.scores)
    games = "1 game" if len(phase.scores) == 1 else f"{len(phase.scores)} games"
    print_lines(
        [
            ("played", f"{run.environment}, {run.operator}, {command.network} network, epsilon {epsilon:g}"),
            ("score", f"{scores} ({games}, {ended})"),
            ("video", f"{path} ({pictures:,} pictures: the first, and one for each agent step)"),
        ]
    )
    return 0


def doctor(_: Doctor) -> int:
    """Prints what works on this machine; the exit code is 1 if anything does not."""
    _set_up_xla(None)
    from softbellman.running.doctor import examine

    checks = examine()
    for check in checks:
        print(f"{check.state:5} {check.name:15} {check.found}")
    return 1 if any(check.state == "FAIL" for check in checks) else 0


def _set_up_xla(threads: int | None, recorded: Mapping[str, Any] = {}, *, deterministic: bool = False) -> None:
    """Prepares the process before JAX loads: freed memory is kept, and XLA told its threads and flags.

    These two are what results depend on in their last bits.

    Args:
        threads: size of its thread pool; by default what was recorded, else `NPROC`, else all cores.
        recorded: the provenance of a study that is resumed.
        deterministic: asks for operations that repeat to the last bit on a GPU.
    """
    from softbellman.memory import keep_freed_memory
    from softbellman.running.engines import xla_flags
    from softbellman.study.provenance import available_cores

    if threads is not None and threads < 1:
        raise ValueError(f"threads ({threads}) must be at least 1")
    os.environ["NPROC"] = str(threads or recorded.get("threads") or os.environ.get("NPROC") or available_cores())
    flags = xla_flags(recorded, deterministic=deterministic)
    if flags:
        os.environ["XLA_FLAGS"] = flags
    keep_freed_memory()
