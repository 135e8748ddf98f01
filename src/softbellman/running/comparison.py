"""Comparison: every arm with every seed in every environment, checked before it starts."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from softbellman.config import Config, decisive
from softbellman.config.arms import Arm, as_arm, joined, key_of, noun_of, require_different
from softbellman.envs import is_device
from softbellman.memory import available_memory, require_memory
from softbellman.operators.spec import plain
from softbellman.running.build import parts_of, spelled_arm
from softbellman.running.elsewhere import require_elsewhere
from softbellman.running.engines import HERE, LOCAL, Engine, Here, Local, require_counts, share, xla_flags
from softbellman.running.engines.named import is_of_other_machines, make_engine, require_engine
from softbellman.running.jax_settings import require_flags
from softbellman.running.launch import Work, find_work
from softbellman.running.plan import Plan, check_in_training, plan
from softbellman.sinks import require_sinks
from softbellman.study.groups import open_groups
from softbellman.study.matching import require_within
from softbellman.study.place import require_new
from softbellman.study.provenance import thread_pool
from softbellman.study.runs import RunPath, runs_of
from softbellman.study.store import Study, study_in
from softbellman.training.streams import LARGEST_SEED

_COMPILED_TOGETHER = 8
_GOES_WITH_ALL = "softmax(1)"  # an operator that the study's own settings are checked with where no arm has them


class Resources(NamedTuple):
    """Resources of a comparison: workers, threads, engine.

    Attributes:
        workers: groups that train at once.
        threads: threads of each.
        xla_flags: flags of XLA, which results depend on as they do on threads.
        engine: what trains groups; None: processes on this machine.
    """

    workers: int
    threads: int
    xla_flags: str = ""
    engine: Engine | None = None

    @property
    def trainer(self) -> Engine:
        """The engine, a local one by default."""
        return self.engine or Local(self.workers)

    @property
    def memory(self) -> int | None:
        """The bytes that all groups at once can take, of this machine unless the engine knows of others."""
        return getattr(self.trainer, "memory", available_memory)()

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the environment that workers run in."""
        return {"NPROC": str(self.threads)} | ({"XLA_FLAGS": self.xla_flags} if self.xla_flags else {})


class Comparison(NamedTuple):
    """A comparison, checked: what can be known to be wrong beforehand is not.

    Attributes:
        arms: the arms, spelled as they are recorded; one that changes no setting is an operator.
        seeds: the seeds of each arm in each environment.
        config: the resolved configuration, from which arms differ.
        plans: one run's plan in each environment, under that configuration.
        replays: bytes of a run's replay, by environment and name of the arm.
        only: environment, name of the arm and seed of the runs that are trained now, the others being left as they
            are; None: all.
        log: names of the sinks that rows go to beside `metrics.csv`; None: as the study was begun, or none.
    """

    arms: list[Arm]
    seeds: list[int]
    config: Config
    plans: list[Plan]
    replays: Mapping[tuple[str, str], int]
    only: frozenset[tuple[str, str, int]] | None = None
    log: tuple[str, ...] | None = None

    def logging(self, names: Sequence[str]) -> "Comparison":
        """Returns the comparison with sinks.

        Raises:
            ValueError: as `require_sinks`.
        """
        require_sinks(names)
        return self._replace(log=tuple(names))

    @property
    def environments(self) -> list[str]:
        """Names of the environments."""
        return [each.environment for each in self.plans]

    @property
    def specs(self) -> list[str]:
        """The arms as text."""
        return [str(arm) for arm in self.arms]

    @property
    def trained(self) -> list[Arm]:
        """The arms that are trained now."""
        return [arm for arm in self.arms if self.only is None or any(arm.name == name for _, name, _ in self.only)]

    def trains(self, run: RunPath) -> bool:
        """Says whether a run is among those that are trained now."""
        return self.only is None or (run.environment, run.operator, run.seed) in self.only

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        """Facts of each environment, by name."""
        return {each.environment: each.facts for each in self.plans}

    @property
    def num_runs(self) -> int:
        """How many runs of these there are."""
        return len(self.plans) * len(self.arms) * len(self.seeds) if self.only is None else len(self.only)

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
        return max(width, min(_COMPILED_TOGETHER, math.ceil(self.num_runs / (2 * workers))))

    def work(self, out: Path, resources: Resources, *, retry_failed: bool = False) -> Work:
        """Finds what there is to do in a directory, which need not exist yet. Nothing is written.

        Raises:
            ValueError: if the study there is another one, or something else is there.
            MemoryError: if the groups that train at once do not fit into memory together.
        """
        groups, workers = [], resources.workers
        if study := study_in(out):
            require_within(study, self.environments, self.arms, self.seeds, self.config, self.facts)
            groups = [each for each in open_groups(study) if any(map(self.trains, each.runs))]
        else:
            require_new(out)
        runs = [run for run in runs_of(out, self.environments, self.specs, self.seeds) if self.trains(run)]
        found = find_work(runs, groups, self.group_width(workers), workers, retry_failed=retry_failed)
        needed = self.replay_bytes(found, workers) + min(workers, len(found.groups)) * resources.trainer.process_bytes
        lower = ["--workers"] * (workers > 1)
        if study is None and self.only is None:  # those of a study that is begun, or of the paper, are what they are
            lower += ["learner.replay_capacity", "loop.block_width"]
        require_memory(needed, resources.memory, " or ".join(filter(None, [", ".join(lower[:-1]), *lower[-1:]])))
        return found

    def replay_bytes(self, work: Work, workers: int) -> int:
        """Returns the bytes of the replays of the groups that train at once, the largest there are."""
        needed = [sum(self.replays[run.environment, run.operator] for run in group) for group in work.groups]
        return sum(sorted(needed, reverse=True)[:workers])

    def summary(self, work: Work, resources: Resources, begun: Study | None = None) -> list[tuple[str, str]]:
        """Says what will be run: a few labels, each with a text.

        Args:
            work: what there is to do.
            resources: what it is trained with.
            begun: the study that goes on, if there is one: observations enter as it recorded.
        """
        if not work.groups:
            return [("runs", f"{self.num_runs}, none of which is left to train")]
        recorded = begun.record["environment_facts"] if begun else {}
        at_once = min(resources.workers, len(work.groups))
        missing = sum(map(len, work.groups))
        replays = f"{self.replay_bytes(work, at_once):,} bytes for the replay"
        if resources.trainer.process_bytes:
            each = f"{resources.trainer.process_bytes / 1e9:g} GB for each of their processes"
            replays += f"s of the groups that train at once, and about {each}"
        groups = "1 group" if len(work.groups) == 1 else f"{len(work.groups)} groups"
        several = [
            ("runs", f"{self.num_runs}, of which {missing} are left to train, in {groups}"),
            ("at once", f"{at_once} of these, {resources.threads} thread{'s' * (resources.threads > 1)} each"),
        ]
        return [
            *(line for each in self.plans for line in each.environment_lines(recorded)),
            (noun_of(self.trained) + "s" * (len(self.trained) > 1), joined(self.trained)),
            ("seeds" if len(self.seeds) > 1 else "seed", ", ".join(map(str, self.seeds))),
            *(several if self.num_runs > 1 else [("threads", str(resources.threads))]),
            *self.plans[0].run_lines(),
            ("memory", replays),
            ("checkpoints", self.plans[0].checkpoints(self.replay_bytes(work, 1))),
        ]


def prepare(
    environments: Sequence[str],
    arms: Sequence[Any],
    seeds: Iterable[int],
    config: Config,
    *,
    steps: int | None = None,
    frames: int | None = None,
) -> Comparison:
    """Checks everything that can be known to be wrong with a comparison before it starts, and writes nothing.

    Args:
        environments: names of the environments.
        arms: the arms, or Bellman operators.
        seeds: the seeds of each arm in each environment.
        config: the configuration, from which arms differ.
        steps: agent steps of each run, in place of the configuration's.
        frames: emulator frames of each run, instead of `steps`.

    Raises:
        ValueError: for whatever does not fit; the message says what to change.
        MemoryError: if the replay of a single run does not fit into memory.
    """
    seeds, arms = list(seeds), [as_arm(arm) for arm in arms]
    _check_seeds(seeds)
    for kind, names in (("environment", environments), ("operator", [str(arm) for arm in arms])):
        twice = sorted({name for name in names if list(names).count(name) > 1})
        if twice or not names:
            given = f"{', '.join(twice)} twice" if twice else "none"
            raise ValueError(f"a comparison takes one {kind} or several different ones, and was given {given}")
    for arm in arms:
        _require_importable(arm.operator)
    first = next((arm for arm in arms if not arm.changes), Arm(_GOES_WITH_ALL)).made()
    plans = [plan(name, first, seeds[0], config, steps=steps, frames=frames) for name in environments]
    for each in plans:
        for arm in arms:
            check_in_training(arm.made(), each.facts["num_actions"])
    lengths = {each.config.loop.steps: each.environment for each in plans}
    if len(lengths) > 1:
        said = ", ".join(f"{steps:,} of {environment}" for steps, environment in lengths.items())
        raise ValueError(f"{frames:,} frames are {said} agent steps; give --steps instead of --frames")
    require_elsewhere(environments, plans[0].config)
    config, replays = plans[0].config, dict[tuple[str, str], int]()
    for number, arm in enumerate(arms):
        with _told_of(arm):
            arms[number] = spelled_arm(arm, config)
            own = _plans_of(arms[number], plans, seeds[0])
        replays |= {(each.environment, arms[number].name): each.replay_bytes for each in own}
    require_different(arms)
    comparison = Comparison(arms, seeds, config, plans, replays)
    runs_of(Path(), comparison.environments, comparison.specs, seeds)
    return comparison


def _check_seeds(seeds: Sequence[int]) -> None:
    """Refuses seeds that are none, not different, or out of range."""
    if len(set(seeds)) != len(seeds) or not seeds or not all(0 <= seed <= LARGEST_SEED for seed in seeds):
        given = ", ".join(map(str, seeds)) or "none"
        raise ValueError(f"seeds must be different integers in 0 .. {LARGEST_SEED}, got {given}")


def _plans_of(arm: Arm, plans: Sequence[Plan], seed: int) -> Sequence[Plan]:
    """Plans one run of an arm in each environment, from those under the study's configuration.

    Raises:
        ValueError: as `plan`, and for a setting without an effect in any of the environments.
    """
    if not arm.changes:
        parts = parts_of(plans[0].config.recipe)
        for role in ("estimate", "controller"):
            parts[role].check(arm.made())
        return plans
    own = [plan(each.environment, arm.made(), seed, arm.config(each.config)) for each in plans]
    require_elsewhere([each.environment for each in plans], own[0].config)
    used = {path for each in own for path, _ in each.settings()}
    idle = [path for path, _ in arm.changes if path not in used and not path.startswith("recipe.")]  # as `none` is
    if idle:
        raise ValueError(f"{key_of(idle[0])} has no effect here; leave it out")
    return own


@contextmanager
def _told_of(arm: Arm) -> Iterator[None]:
    """Names an arm in what is wrong with its settings."""
    try:
        yield
    except (ValueError, MemoryError) as error:
        kind = MemoryError if isinstance(error, MemoryError) else ValueError
        raise kind(f"arm {arm}: {error}") from error.__cause__ or error


def resources_for(
    num_runs: int,
    workers: int | None = None,
    threads: int | None = None,
    begun: Study | None = None,
    *,
    engine: str | Engine = LOCAL,
    deterministic: bool = False,
) -> Resources:
    """Decides what a comparison is trained with: what is asked for, else from the cores.

    Threads and flags, which results depend on, are otherwise those that it was begun with. A GPU trains one group at
    a time unless another number is asked for. On other machines each group has one thread, and as many train at once as
    there is place for, unless asked otherwise. In this process threads and flags are those that JAX has loaded with.

    Args:
        num_runs: how many runs there are.
        workers: groups to train at once.
        threads: threads of each.
        begun: the study, if there is one.
        engine: what trains groups, or its name; see `make_engine`.
        deterministic: asks for operations that repeat to the last bit on a GPU.

    Raises:
        ValueError: if a number is below 1, the engine is unknown, XLA does not take the flags, or this process trains
            and JAX has other threads.
    """
    import jax

    recorded = begun.record["provenance"] if begun else {}
    flags = xla_flags(recorded, deterministic=deterministic)
    require_flags(flags)
    if isinstance(engine, str) and is_of_other_machines(engine):
        each = share(num_runs, workers, (recorded.get("threads") or 1) if threads is None else threads)[1]
        made = make_engine(engine, workers, each)
        return Resources(made.capacity, each, flags, made)
    if engine == HERE or isinstance(engine, Here):
        require_counts(workers, threads)
        if workers not in (None, 1):
            raise ValueError(f"workers ({workers}): one process trains one group at a time; leave engine {HERE} out")
        pool = thread_pool()
        if threads not in (None, pool):
            raise ValueError(
                f"threads ({threads}): engine {HERE} trains in this process, where JAX has {pool}; set NPROC={threads} "
                "before Python starts, or take engine 'local'"
            )
        workers, threads = 1, pool
    elif workers is None and jax.default_backend() != "cpu":
        workers = 1
    if not isinstance(engine, str):
        workers = require_engine(engine, f"engine {type(engine).__name__}").capacity
    workers, threads = share(num_runs, workers, recorded.get("threads") if threads is None else threads)
    if engine == LOCAL:
        return Resources(workers, threads, flags)
    made = make_engine(engine, workers) if isinstance(engine, str) else engine
    return Resources(made.capacity, threads, flags, made)


def _require_importable(spec: str) -> None:
    """Refuses an operator that other processes could not find by its spec."""
    if "__main__:" in spec or "<locals>" in spec:
        raise ValueError(
            f"operator {spec} can't be found by the processes that train with it; put its class into a module, "
            "outside of any function, and import it from there"
        )
