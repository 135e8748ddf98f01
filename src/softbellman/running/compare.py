"""Comparing: a comparison trained as one study, in its directory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softbellman import config as configs
from softbellman import operators as ops
from softbellman.arguments import as_integer, as_list, as_path, is_one
from softbellman.config import with_settings
from softbellman.faults import faults_placed
from softbellman.running.comparison import Comparison, Resources, prepare, resources_for
from softbellman.running.engines import Engine, train_locally
from softbellman.running.launch import Work, launch, outcome
from softbellman.running.play import measure_chance
from softbellman.running.progress import study_reporter
from softbellman.study.groups import OVER
from softbellman.study.matching import require_within
from softbellman.study.provenance import provenance
from softbellman.study.runs import RunPath, read_status
from softbellman.study.store import Study, study_in


def train(
    comparison: Comparison,
    out: Path,
    resources: Resources,
    *,
    command: Sequence[str] = (),
    retry_failed: bool = False,
    inexact: bool = False,
    quiet: bool = False,
    engine: Engine | None = None,
) -> Study:
    """Trains what a comparison lacks, in its directory, which is made if it is not there.

    Args:
        comparison: the comparison; the study in the directory, if there is one, grows into it.
        out: the directory.
        resources: what it is trained with.
        command: the arguments that asked for it.
        retry_failed: runs that failed are tried again; otherwise they are left alone.
        inexact: goes on also where that can't be done exactly.
        quiet: prints nothing but notes.
        engine: what trains groups; None: processes on this machine.

    Returns:
        The study. Runs of it may have failed or diverged: see `launch.outcome`.

    Raises:
        ValueError: the directory holds something else, or another process trains it.
        MemoryError: as `Comparison.work`.
        Stopped: it was asked to stop by a signal, and every group's state is saved.
    """
    asked = (comparison.environments, comparison.operators, comparison.seeds, comparison.config, comparison.facts)
    comparison.work(out, resources.workers, retry_failed=retry_failed)
    if study_in(out) is None:
        made_with = provenance() | {"threads": str(resources.threads), "xla_flags": resources.xla_flags or None}
        Study.create(out, *asked, command, provenance=made_with, workers=resources.workers)
    with Study(out).locked() as weaker:
        study = Study(out)  # as it is now that nobody else changes it
        require_within(study, *asked)
        _grow(study, comparison, command, resources.workers)
        study = Study(out)
        work = comparison.work(out, resources.workers, retry_failed=retry_failed)
        if work.sizes:
            runs = len(study.runs) - len(_left_as_they_are(study, comparison, work))
            progress = study_reporter(comparison.config.loop.steps * runs, runs, quiet=quiet)
            for each in weaker:
                progress.note(each)
            try:
                launch(
                    study,
                    work,
                    engine=engine or train_locally,
                    workers=resources.workers,
                    variables=resources.variables,
                    progress=progress,
                    inexact=inexact,
                )
                measure_chance(study, progress.note)
            finally:
                progress.close()
    return study


@faults_placed()
def compare(
    environments: str | Sequence[str],
    operators: Any,
    seeds: int | Sequence[int] = 5,
    steps: int | None = None,
    *,
    frames: int | None = None,
    out: str | Path | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    workers: int | None = None,
    threads: int | None = None,
    retry_failed: bool = False,
    quiet: bool = False,
) -> Study:
    """Trains every operator with every seed in every environment, several runs at once, and returns the study.

    What is done already, in the directory `out`, is not done again; a comparison that was stopped goes on.

        study = sb.compare("gym/CartPole-v1", ["max", ops.softmax(5.0)], seeds=3, settings={"learner.gamma": 0.9})
        pandas.DataFrame(study.metrics())

    Args:
        environments: name of an environment, or names of several.
        operators: a Bellman operator or several, or their specs. One of your own lives in a module, where workers
            find it too.
        seeds: how many, 0 and up, or which.
        steps: agent steps of each run; by default the preset's.
        frames: emulator frames of each run, instead of `steps`.
        out: directory of the study; by default one in `runs/` that is the same for the same comparison.
        preset: as for `softbellman compare`.
        settings: values of the configuration by dotted name, in place of the preset's.
        workers: groups of runs that train at once; by default one for each core.
        threads: threads of each; by default the cores for each worker.
        retry_failed: tries runs again that have failed.
        quiet: prints nothing but notes.

    Raises:
        ValueError: for whatever does not fit, before any work; the message says what to change. What a user's own code
            raised is its `__cause__`, and the message names the line.
        TypeError: for what is no operator.
        MemoryError: if the groups that train at once do not fit into memory together.
        KeyboardInterrupt: it was stopped, and its state is saved.
    """
    environments, operators = as_list(environments), ops.as_operators(operators)
    numbers = [as_integer(seed, "seeds") for seed in as_list(seeds)]
    if is_one(seeds):
        numbers = list(range(numbers[0]))
    counts = {"steps": steps, "frames": frames, "workers": workers, "threads": threads}
    steps, frames, workers, threads = (
        None if value is None else as_integer(value, name) for name, value in counts.items()
    )
    chosen = configs.preset(preset or configs.common_preset(environments)).config
    config = with_settings(chosen, settings or {})
    comparison = prepare(environments, operators, numbers, config, steps=steps, frames=frames)
    folder = comparison.default_out if out is None else as_path(out)
    begun = study_in(folder)
    resources = resources_for(comparison.cells, workers, threads, begun)
    study = train(comparison, folder, resources, retry_failed=retry_failed, quiet=quiet)
    if not quiet:
        for line in outcome(study):
            print(line)
    return study


def _grow(study: Study, comparison: Comparison, command: Sequence[str], workers: int) -> None:
    """Has `study.json` ask for all that a comparison asks for."""
    asked: dict[str, Any] = {
        "environments": comparison.environments,
        "operators": comparison.specs,
        "seeds": comparison.seeds,
        "workers": workers,
    }
    changes = {name: value for name, value in asked.items() if study.record.get(name) != value}
    study.take_config(comparison.config, command)
    if changes:
        facts = comparison.facts | study.record["environment_facts"]
        study.update(**changes, environment_facts=facts, command=[*command] or study.record["command"])


def _left_as_they_are(study: Study, comparison: Comparison, work: Work) -> list[RunPath]:
    """Lists the runs that are not over and are left so, since only other operators are trained now."""
    under_way = {run.path for group in work.begun for run in group.runs}
    return [
        run
        for run in study.runs
        if run.operator not in comparison.trained and run.path not in under_way and read_status(run) not in OVER
    ]
