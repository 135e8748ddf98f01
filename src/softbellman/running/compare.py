"""Comparison runner: a comparison trained as one study; `compare` and `train` of Python."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from softbellman import config as configs
from softbellman.arguments import as_integer, as_list, as_path, is_one
from softbellman.config import as_arm, budgets, with_settings
from softbellman.envs import name_of
from softbellman.faults import faults_placed
from softbellman.references import reference_to, resolve
from softbellman.running.comparison import Comparison, Resources, prepare, resources_for
from softbellman.running.engines import HERE, LOCAL, Engine, Here
from softbellman.running.launch import Work, launch, outcome, remove_ended
from softbellman.running.play import measure_chance
from softbellman.running.progress import Reporter, reporter, say
from softbellman.study.groups import OVER
from softbellman.study.matching import require_within
from softbellman.study.provenance import provenance
from softbellman.study.runs import RunPath, read_status
from softbellman.study.store import Study, study_in


def train_comparison(
    comparison: Comparison,
    out: Path,
    resources: Resources,
    *,
    command: Sequence[str] = (),
    retry_failed: bool = False,
    inexact: bool = False,
    quiet: bool = False,
    on_phase: Any = None,
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
        on_phase: see `launch`.

    Returns:
        The study. Runs of it may have failed or diverged: see `launch.outcome`.

    Raises:
        ValueError: the directory holds something else, or another process trains it.
        MemoryError: as `Comparison.work`.
        Stopped: it was asked to stop by a signal, and every group's state is saved, where it could be.
    """
    asked = (comparison.environments, comparison.arms, comparison.seeds, comparison.config, comparison.facts)
    comparison.work(out, resources, retry_failed=retry_failed)
    if study_in(out) is None:
        made_with = provenance() | {"threads": str(resources.threads), "xla_flags": resources.xla_flags or None}
        Study.create(out, *asked, command, provenance=made_with, **_recorded(comparison, resources))
    with Study(out).locked() as lease:
        study = Study(out)  # as it is now that nobody else changes it
        require_within(study, *asked)
        _grow(study, comparison, command, resources)
        study = Study(out)
        work = comparison.work(out, resources, retry_failed=retry_failed)
        if work.groups:
            runs = len(study.runs) - len(_left_as_they_are(study, work))
            progress = reporter(comparison.config.loop.steps * runs, runs, quiet=quiet)
            for each in lease.notes:
                progress.note(each)
            try:
                launch(
                    study,
                    work,
                    engine=resources.trainer,
                    variables=resources.variables,
                    progress=progress,
                    check=lease.check,
                    confirm=lease.confirm,
                    inexact=inexact,
                    on_phase=on_phase,
                )
            finally:
                progress.close()
        else:
            remove_ended(study, lease.confirm)
        # also where one before was stopped while it played
        measure_chance(study, Reporter().note, lease.confirm, None if quiet else say)
    return study


@faults_placed()
def compare(
    environments: Any,
    operators: Any = None,
    seeds: int | Sequence[int] = budgets.COMPARED_SEEDS,
    steps: int | None = None,
    *,
    arms: Any = None,
    frames: int | None = None,
    out: str | Path | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    workers: int | None = None,
    threads: int | None = None,
    engine: str | Engine = LOCAL,
    sinks: Any = None,
    on_phase: str | Callable[[Any, Any], Any] | None = None,
    retry_failed: bool = False,
    quiet: bool = False,
) -> Study:
    """Trains every operator or arm with every seed in every environment, several runs at once, and returns the study.

    Runs that the directory `out` has are not done again; a comparison that was stopped goes on.

        study = sb.compare("gym/CartPole-v1", ["max", ops.softmax(5.0)], seeds=3, settings={"learner.gamma": 0.9})
        pandas.DataFrame(study.metrics())

    An arm is an operator with settings that differ from the study's:

        arms = ["max", "softmax(5)", sb.arm("softmax(5)", gap="gap(0.9)", label="ours")]
        sb.compare("minatar/breakout", arms=arms, out="runs/gaps")

    Args:
        environments: an environment or several: names, or functions or classes of a module that make one.
        operators: a Bellman operator or several, or their specs. One of your own lives in a module, where workers
            find it too. Arms may be among them.
        seeds: how many, 0 and up, or which.
        steps: agent steps of each run; by default the preset's.
        arms: arms, as text or by `softbellman.arm`, in place of the operators.
        frames: emulator frames of each run, instead of `steps`.
        out: directory of the study; by default one in `runs/` that is the same for the same comparison.
        preset: as for `softbellman compare`.
        settings: values of the configuration by dotted name, in place of the preset's.
        workers: groups of runs that train at once; by default one for each core.
        threads: threads of each; by default the cores for each worker. This process has those that JAX has, which
            are set by `NPROC` before Python starts.
        engine: what trains groups: `local`, processes on this machine; `here`, this process, one after the other;
            `ray`, `ray:host:port`, `slurm`, other machines; `module:function` or an object of your own, see
            `engines.Engine`.
        sinks: where rows go beside `metrics.csv`: `tensorboard`, `wandb`, `mlflow`, `trackio`, or a function or class
            of a module that makes a `sinks.Sink` of a run; one or several. By default those that the study was begun
            with, or none.
        on_phase: called after each test phase with a row (columns of `metrics.csv`, environment, operator, seed) and
            the policy of that moment, whose `q(obs)` and `act(obs, legal)` are as those of `sb.load`'s. It can look,
            and change nothing; if it raises StopIteration, all states are saved and the study is returned as it
            stands. An engine in other processes takes a function of a module; `here`, any.
        retry_failed: tries runs again that have failed.
        quiet: prints nothing but notes.

    Raises:
        ValueError: for whatever does not fit, before any work; the message says what to change. An exception of a
            user's own code is its `__cause__`, and the message names the line.
        TypeError: for what is no operator.
        MemoryError: if the groups that train at once do not fit into memory together.
        KeyboardInterrupt: it was stopped, and its state is saved, where it could be.
    """
    environments = [name_of(environment) for environment in as_list(environments)]
    if (operators is None) == (arms is None):
        raise ValueError(f"give operators or arms, and not {'both' if arms is not None else 'neither'}")
    given = [as_arm(one) for one in as_list(operators if arms is None else arms)]
    numbers = [as_integer(seed, "seeds") for seed in as_list(seeds)]
    if is_one(seeds):
        numbers = list(budgets.first_seeds(numbers[0]))
    counts = {"steps": steps, "frames": frames, "workers": workers, "threads": threads}
    steps, frames, workers, threads = (
        None if value is None else as_integer(value, name) for name, value in counts.items()
    )
    chosen = configs.preset(preset or configs.common_preset(environments)).config
    config = with_settings(chosen, settings or {})
    comparison = prepare(environments, given, numbers, config, steps=steps, frames=frames)
    if sinks is not None:
        names = [each if isinstance(each, str) else reference_to(each, "sink") for each in as_list(sinks)]
        comparison = comparison.logging(names)
    folder = comparison.default_out if out is None else as_path(out)
    begun = study_in(folder)
    resources = resources_for(comparison.num_runs, workers, threads, begun, engine=engine)
    on_phase = None if on_phase is None else _callback(on_phase, resources.trainer)
    study = train_comparison(comparison, folder, resources, retry_failed=retry_failed, quiet=quiet, on_phase=on_phase)
    if not quiet:
        for line in outcome(study):
            print(line)
    return study


class Options(TypedDict, total=False):
    """Arguments of `compare` that `train` takes too, so that type checkers and editors know them."""

    frames: int | None
    out: str | Path | None
    preset: str | None
    settings: Mapping[str, Any] | None
    workers: int | None
    threads: int | None
    engine: str | Engine
    sinks: Any
    on_phase: str | Callable[[Any, Any], Any] | None
    retry_failed: bool
    quiet: bool


@faults_placed()
def train(
    environment: Any,
    operator: Any = "max",
    seeds: int | Sequence[int] = 1,
    steps: int | None = None,
    **options: Unpack[Options],
) -> Study:
    """Trains an operator in this process, one seed after the other, and returns the study.

        study = sb.train("gym/CartPole-v1", ops.softmax(5.0), seeds=[3])

    Args:
        environment: its name, or a function or class of a module that makes it.
        operator: the Bellman operator, its spec, or an arm.
        seeds: how many, 0 and up, or which.
        steps: agent steps of each run; by default the preset's.
        options: as for `compare`: `frames`, `out`, `preset`, `settings`, `sinks`, `on_phase`, `quiet`, and, with
            another `engine` than `here`, `workers` and `threads`. Runs that failed are tried again, unless
            `retry_failed=False`.

    Raises:
        ValueError: as `compare`; so do the others.
    """
    if options.get("arms") is not None:
        raise ValueError("train takes one arm, as its operator: operator=sb.arm(...)")
    defaults: Options = {"engine": HERE, "retry_failed": True}
    return compare(environment, operator, seeds, steps, **(defaults | options))


def _callback(on_phase: Any, engine: Engine) -> Any:
    """Returns a callback as an engine's tasks take it: itself in this process, `module:name` elsewhere.

    Raises:
        ValueError: if it can't be called with a row and a policy, or be found by other processes.
    """
    made = resolve(on_phase, "on_phase") if isinstance(on_phase, str) else on_phase
    if not callable(made):
        raise ValueError(f"on_phase is a {type(made).__name__}, which can't be called with a row and a policy")
    try:
        inspect.signature(made).bind("row", "policy")
    except TypeError as error:
        raise ValueError(f"on_phase is called with a row and a policy, which it does not take: {error}") from None
    try:
        return made if isinstance(engine, Here) else reference_to(made, "on_phase")
    except ValueError as error:
        raise ValueError(f"{error}, or train in this process (engine='{HERE}')") from None


def _recorded(comparison: Comparison, resources: Resources) -> dict[str, Any]:
    """Says what `study.json` records of what a study is trained with, so that it goes on likewise."""
    log = {} if comparison.log is None else {"log": list(comparison.log)}
    return {"engine": resources.trainer.spec} | log


def _grow(study: Study, comparison: Comparison, command: Sequence[str], resources: Resources) -> None:
    """Has `study.json` ask for all that a comparison asks for."""
    asked: dict[str, Any] = {
        "environments": comparison.environments,
        "operators": comparison.specs,
        "seeds": comparison.seeds,
    } | _recorded(comparison, resources)
    changes = {name: value for name, value in asked.items() if study.record.get(name) != value}
    study.take_config(comparison.config, command)
    if changes:
        facts = comparison.facts | study.record["environment_facts"]
        study.update(**changes, environment_facts=facts, command=[*command] or study.record["command"])


def _left_as_they_are(study: Study, work: Work) -> list[RunPath]:
    """Lists the runs that are not over and are left so: of other operators, or failed."""
    trained = {run.path for group in work.groups for run in group}
    return [run for run in study.runs if run.path not in trained and read_status(run) not in OVER]
