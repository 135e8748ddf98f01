"""Comparisons: every operator with every seed in every environment, checked as a whole, then trained as one study."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from softbellman import operators as ops
from softbellman.arguments import as_integer, as_list, as_path, is_one
from softbellman.envs import is_device
from softbellman.faults import faults_placed
from softbellman.memory import available_memory, require_memory
from softbellman.operators.spec import plain
from softbellman.study import chance
from softbellman.study import config as configs
from softbellman.study.config import Config, with_settings
from softbellman.study.elsewhere import require_elsewhere
from softbellman.study.engines import Engine, share, train_locally, xla_flags
from softbellman.study.groups import OVER, open_groups
from softbellman.study.jax_settings import require_flags
from softbellman.study.launch import Work, find_work, launch, outcome
from softbellman.study.matching import require_within
from softbellman.study.place import require_new
from softbellman.study.plan import Plan, check_in_training, check_seeds, plan
from softbellman.study.progress import study_reporter
from softbellman.study.provenance import provenance
from softbellman.study.store import RunPath, Study, decisive, read_status, runs_of, study_in

_COMPILED_TOGETHER = 8
PROCESS_BYTES = 400_000_000  # of a worker beside its replays; 0.37 to 0.41 GB were measured
_OF_EACH_ENVIRONMENT = ("environment", "observations")
_OF_EACH_RUN = ("frames per step", "network", "budget", "target", "tests", "epsilon")


class Resources(NamedTuple):
    """What a comparison is trained with.

    Attributes:
        workers: groups that train at once.
        threads: threads of each.
        xla_flags: flags of XLA, which results depend on as they do on threads.
    """

    workers: int
    threads: int
    xla_flags: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the environment that workers run in."""
        return {"NPROC": str(self.threads)} | ({"XLA_FLAGS": self.xla_flags} if self.xla_flags else {})


class Comparison(NamedTuple):
    """A comparison, checked: what can be known to be wrong beforehand is not.

    Attributes:
        operators: the Bellman operators.
        seeds: the seeds of each operator in each environment.
        config: the resolved configuration.
        plans: one run's plan in each environment.
        only: specs of the operators that are trained now, the others being left as they are; empty: all.
    """

    operators: list[Any]
    seeds: list[int]
    config: Config
    plans: list[Plan]
    only: frozenset[str] = frozenset()

    def going_on(self, begun: Study | None) -> "Comparison":
        """Returns the comparison for a study that goes on, if there is one: see `Plan.going_on`."""
        recorded = begun.record["environment_facts"] if begun else {}
        return self._replace(plans=[each.going_on(recorded) for each in self.plans])

    @property
    def environments(self) -> list[str]:
        """Names of the environments."""
        return [each.environment for each in self.plans]

    @property
    def specs(self) -> list[str]:
        """Specs of the operators."""
        return [str(operator) for operator in self.operators]

    @property
    def trained(self) -> list[str]:
        """Specs of the operators that are trained now."""
        return [spec for spec in self.specs if not self.only or spec in self.only]

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        """What each environment says of itself, by name."""
        return {each.environment: each.facts for each in self.plans}

    @property
    def cells(self) -> int:
        """How many runs of these there are."""
        return len(self.plans) * len(self.trained) * len(self.seeds)

    @property
    def default_out(self) -> Path:
        """A directory that is the same for the same comparison, whatever its seeds, and another for another."""
        asked = json.dumps([self.environments, self.specs, self.config.loop.steps, decisive(self.config)])
        more = f"-and-{len(self.plans) - 1}-more" if len(self.plans) > 1 else ""
        digest = hashlib.sha256(asked.encode()).hexdigest()[:8]
        return Path("runs") / f"compare-{plain(self.environments[0])}{more}-{digest}"

    def group_width(self, workers: int) -> int:
        """Returns how many runs train together at most: a block, or more where the loop is compiled.

        A loop that is compiled takes its time for that, once for all runs of a group, and its replays are small; but
        each worker is to have several groups, so that all end at about one time.
        """
        width = self.config.loop.block_width
        if not all(is_device(environment) for environment in self.environments):
            return width
        return max(width, min(_COMPILED_TOGETHER, math.ceil(self.cells / (2 * workers))))

    def work(self, out: Path, workers: int, *, retry_failed: bool = False) -> Work:
        """Finds what there is to do in a directory, which need not exist yet. Nothing is written.

        Raises:
            ValueError: if the study there is another one, or something else is there.
            MemoryError: if the groups that train at once do not fit into memory together.
        """
        groups, wanted = [], set(self.trained)
        if study := study_in(out):
            require_within(study, self.environments, self.operators, self.seeds, self.config, self.facts)
            groups = [each for each in open_groups(study) if any(run.operator in wanted for run in each.runs)]
        else:
            require_new(out)
        runs = [run for run in runs_of(out, self.environments, self.specs, self.seeds) if run.operator in wanted]
        found = find_work(runs, groups, self.group_width(workers), workers, retry_failed=retry_failed)
        needed = self.replay_bytes(found, workers) + min(workers, len(found.sizes)) * PROCESS_BYTES
        require_memory(needed, available_memory(), "--workers, learner.replay_capacity or loop.block_width")
        return found

    def replay_bytes(self, work: Work, workers: int) -> int:
        """Returns the bytes of the replays of the groups that train at once, the largest there are."""
        each = {plan.environment: plan.replay_bytes for plan in self.plans}
        return sum(sorted((each[environment] * size for environment, size in work.sizes), reverse=True)[:workers])

    def summary(self, work: Work, resources: Resources) -> list[tuple[str, str]]:
        """Says what will be run: a few labels, each with a text."""
        if not work.sizes:
            return [("runs", f"{self.cells}, none of which is left to train")]
        first = self.plans[0]._replace(replay_bytes=self.replay_bytes(work, 1)).summary()
        at_once = min(resources.workers, len(work.sizes))
        missing = sum(size for _, size in work.sizes)
        replays, each = self.replay_bytes(work, at_once), f"{PROCESS_BYTES / 1e9:g} GB for each of their processes"
        groups = "1 group" if len(work.sizes) == 1 else f"{len(work.sizes)} groups"
        return [
            *(line for each in self.plans for line in each.summary() if line[0] in _OF_EACH_ENVIRONMENT),
            ("operators", ", ".join(self.trained)),
            ("seeds", ", ".join(map(str, self.seeds))),
            ("runs", f"{self.cells}, of which {missing} are left to train, in {groups}"),
            ("at once", f"{at_once} of these, {resources.threads} thread{'s' * (resources.threads > 1)} each"),
            *(line for line in first if line[0] in _OF_EACH_RUN),
            ("memory", f"{replays:,} bytes for the replays of the groups that train at once, and about {each}"),
            *(line for line in first if line[0] == "checkpoints"),
        ]


def prepare(
    environments: Sequence[str],
    operators: Sequence[Any],
    seeds: Iterable[int],
    config: Config,
    *,
    steps: int | None = None,
    frames: int | None = None,
) -> Comparison:
    """Checks everything that can be known to be wrong with a comparison before it starts, and writes nothing.

    Args:
        environments: names of the environments.
        operators: the Bellman operators.
        seeds: the seeds of each operator in each environment.
        config: the configuration.
        steps: agent steps of each run, in place of the configuration's.
        frames: emulator frames of each run, instead of `steps`.

    Raises:
        ValueError: for whatever does not fit; the message says what to change.
        MemoryError: if the replay of a single run does not fit into memory.
    """
    seeds = list(seeds)
    check_seeds(seeds)
    for kind, names in (("environment", environments), ("operator", [str(operator) for operator in operators])):
        twice = sorted({name for name in names if list(names).count(name) > 1})
        if twice or not names:
            given = f"{', '.join(twice)} twice" if twice else "none"
            raise ValueError(f"a comparison takes one {kind} or several different ones, and was given {given}")
    for operator in operators:
        _require_importable(operator)
    plans = [plan(name, operators[0], seeds[:1], config, steps=steps, frames=frames) for name in environments]
    for each in plans:
        for operator in operators:
            check_in_training(operator, each.facts["num_actions"])
    lengths = {each.config.loop.steps: each.environment for each in plans}
    if len(lengths) > 1:
        said = ", ".join(f"{steps:,} of {environment}" for steps, environment in lengths.items())
        raise ValueError(f"{frames:,} frames are {said} agent steps; give --steps instead of --frames")
    require_elsewhere(environments)
    comparison = Comparison(list(operators), seeds, plans[0].config, plans)
    runs_of(Path(), comparison.environments, comparison.specs, seeds)
    return comparison


def resources_for(
    cells: int,
    workers: int | None = None,
    threads: int | None = None,
    begun: Study | None = None,
    *,
    deterministic: bool = False,
) -> Resources:
    """Decides what a comparison is trained with: as asked for, else as it was begun with, else from the cores.

    A GPU trains one group at a time unless another number is asked for.

    Args:
        cells: how many runs there are.
        workers: groups to train at once.
        threads: threads of each.
        begun: the study, if there is one.
        deterministic: asks for operations that repeat to the last bit on a GPU.

    Raises:
        ValueError: if a number is below 1, or XLA does not take the flags.
    """
    import jax

    if workers is None and jax.default_backend() != "cpu":
        workers = 1
    recorded = begun.record["provenance"] if begun else {}
    flags = xla_flags(recorded, deterministic=deterministic)
    require_flags(flags)
    return Resources(*share(cells, workers, recorded.get("threads") if threads is None else threads), flags)


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
                chance.measure(study, progress.note)
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


def _require_importable(operator: Any) -> None:
    """Refuses an operator that other processes could not find by its spec."""
    spec = str(operator)
    if "__main__:" in spec or "<locals>" in spec:
        raise ValueError(
            f"operator {spec} can't be found by the processes that train with it; put its class into a module, "
            "outside of any function, and import it from there"
        )
