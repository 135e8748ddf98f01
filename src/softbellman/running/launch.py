"""Scheduler: missing runs put into groups, groups given to an engine, dead groups retried."""

import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from softbellman import operators as ops
from softbellman.config.arms import Arm
from softbellman.running.engines import Engine, Event, Task
from softbellman.running.progress import Reporter
from softbellman.running.stopping import UNSAVED, Stopped, StopRequests
from softbellman.study.groups import OVER, Group, open_groups
from softbellman.study.place import unwritable
from softbellman.study.provenance import changes, provenance
from softbellman.study.runs import RunPath, read_standing, read_status
from softbellman.study.store import Study
from softbellman.study.writer import write_error

RECORD_PACE = 1.0  # seconds between two records of groups that went on


class Work(NamedTuple):
    """Work that a study still lacks.

    Attributes:
        begun: groups that go on as they are.
        fresh: runs in no group, as they will be grouped.
    """

    begun: list[Group]
    fresh: list[list[RunPath]]

    @property
    def groups(self) -> list[list[RunPath]]:
        """The runs of each group."""
        return [*(group.runs for group in self.begun), *self.fresh]


def find_work(
    runs: Sequence[RunPath], groups: Sequence[Group], width: int, workers: int, *, retry_failed: bool = False
) -> Work:
    """Finds what there is to do. Nothing is written.

    Args:
        runs: the runs asked for.
        groups: the groups that there are.
        width: runs of a group at most.
        workers: groups that train at once.
        retry_failed: runs that failed are tried again; otherwise they are left alone.
    """
    left = [group for group in groups if group.unfinished]
    held = {run.path for group in left for run in group.runs}
    fresh = [run for run in runs if run.path not in held and read_status(run) not in OVER]
    if not retry_failed:
        left = [group for group in left if any(read_status(run) != "failed" for run in group.unfinished)]
        fresh = [run for run in fresh if read_status(run) != "failed"]
    kinds = {arm: _kind(arm) for arm in dict.fromkeys(run.arm for run in fresh)}
    idle = max(1, workers - len(left))
    return Work(left, compose(fresh, [(run.environment, kinds[run.arm]) for run in fresh], width, idle))


def compose(runs: Sequence[RunPath], kinds: Sequence[Hashable], width: int, workers: int) -> list[list[RunPath]]:
    """Puts runs into groups of about the same size.

    Args:
        runs: the runs.
        kinds: the kind of each; only runs of one kind may train together.
        width: runs of a group at most.
        workers: groups that train at once; groups are made smaller than `width` if otherwise there were fewer.
    """
    parts: dict[Hashable, list[RunPath]] = defaultdict(list)
    for run, kind in zip(runs, kinds, strict=True):
        parts[kind].append(run)
    numbers = {kind: math.ceil(len(part) / width) for kind, part in parts.items()}
    while sum(numbers.values()) < min(workers, len(runs)):
        numbers[max(parts, key=lambda kind: len(parts[kind]) / numbers[kind])] += 1
    groups = []
    for kind, part in parts.items():
        size, larger = divmod(len(part), numbers[kind])
        starts = [number * size + min(number, larger) for number in range(numbers[kind] + 1)]
        groups += [part[start:end] for start, end in itertools.pairwise(starts)]
    return groups


def launch(
    study: Study,
    work: Work,
    *,
    engine: Engine,
    variables: Mapping[str, str],
    progress: Reporter,
    check: Callable[[], None] = lambda: None,
    confirm: Callable[[], None] = lambda: None,
    inexact: bool = False,
    on_phase: str | Callable[[Any, Any], Any] | None = None,
) -> None:
    """Trains what a study lacks. Runs that fail or diverge end no other; how each ended is in its `status.json`.

    A group that dies is tried again from its last checkpoint, as often as it comes further than the time before. If it
    does not, its runs go on alone, each from its start: its checkpoint holds them all together, and is put aside. A run
    alone that does not has failed, and at once if its own code raised an exception.

    Args:
        study: the study, locked.
        work: what it lacks.
        engine: what trains groups.
        variables: of the environment that workers run in.
        progress: takes how it goes.
        check: called several times a second; what it raises ends training as a signal does.
        confirm: called before anything is written into the study; what it raises keeps it from being written, and ends
            training.
        inexact: goes on also where that can't be done exactly.
        on_phase: called after each test phase, or its `module:name` for an engine that trains elsewhere; see
            `train_group`. If it asks for a stop, every group does so too, and this returns.

    Raises:
        Stopped: it was asked to stop by a signal; every group's state is saved, or it is told that it could not be.
        ValueError: a group can't go on as it is; nothing of it was touched, and all others were trained.
    """
    made_with = provenance() | {"threads": variables.get("NPROC"), "xla_flags": variables.get("XLA_FLAGS")}
    started = {"groups": len(work.groups), "workers": engine.capacity, "provenance": made_with}
    before = [each["provenance"] for each in study.record.get("launches", [])]
    if before and (others := changes(before[-1], made_with)):
        progress.note(f"what the study has so far was trained otherwise: {'; '.join(others)}")
    try:
        confirm()
        groups = [*work.begun, *(Group.create(study, runs) for runs in work.fresh)]
        confirm()
        study.update(launches=[*study.record.get("launches", []), started])
    except OSError as error:
        raise unwritable(study.path, error, "make room, and go on with the study") from None

    def check_all() -> None:
        stop.check()
        check()

    with StopRequests(progress.note) as stop:
        watch = _Watch(study, groups, progress, stop, confirm)
        while groups and not watch.stopped:
            groups.sort(key=lambda group: -len(group.runs))  # the long ones first, so that all end at about one time
            tasks = [Task(study.path, group.path.name, inexact, variables, on_phase) for group in groups]
            try:
                engine.train(tasks, watch.heard, check_all)
            except Stopped:
                watch.tell_unsaved()
                if stop.was_signalled or not watch.stopped:
                    raise
                break
            finally:
                watch.record()
            groups = [follower for group in groups for follower in watch.settle(group)]
    remove_ended(study, confirm)
    if watch.refusals:
        raise ValueError("; ".join(watch.refusals.values()))


def remove_ended(study: Study, confirm: Callable[[], None]) -> None:
    """Removes the directories of groups that were killed when all was done but this.

    Args:
        study: the study, locked.
        confirm: as `launch`.
    """
    for group in open_groups(study):
        if not group.unfinished and any(read_status(run) == "finished" for run in group.runs):
            confirm()
            group.remove()


def outcome(study: Study, trained: Callable[[RunPath], bool] = lambda run: True) -> list[str]:
    """Says of each arm of which not every run has finished how many have, and what became of the others.

    Args:
        study: the study.
        trained: says which of its runs are meant; by default all.
    """
    lines, asked = [], [run for run in study.runs if trained(run)]
    for environment in study.environments:
        for operator in study.operators:
            runs = [run for run in asked if (run.environment, run.operator) == (environment, operator)]
            finished = [run for run in runs if read_status(run) == "finished"]
            if len(finished) < len(runs):
                others = "; ".join(f"seed {run.seed} {_fate(run)}" for run in runs if run not in finished)
                lines.append(f"{environment}, {operator}: {len(finished)} of {len(runs)} runs finished; {others}")
    return lines


class _Watch:
    """Watch over the groups under way, and the fate of those that die."""

    def __init__(
        self,
        study: Study,
        groups: Sequence[Group],
        progress: Reporter,
        stop: StopRequests,
        confirm: Callable[[], None],
    ) -> None:
        self.study, self.progress, self.stop, self.refusals = study, progress, stop, dict[str, str]()
        self.confirm = confirm
        self.stopped = False  # by the user's own `on_phase`
        self._groups = {group.path.name: group for group in groups}
        self._over = {run for run in study.runs if read_status(run) in OVER}
        self._steps, self._done = dict[RunPath, int](), 0  # of each run, and of all
        self._spared = 0  # steps that runs which failed or diverged did not take
        self._set_steps(self._over, study.config.loop.steps)
        for group in groups:
            self._set_steps(group.unfinished, group.saved_steps)
        self._heard = set[str]()  # groups that have begun
        self._reports: dict[str, tuple[str, str, bool]] = {}
        self._places: dict[str, int] = {}  # the newest checkpoint when a group died
        self._resumed: tuple[dict[str, int], list[str]] = ({}, [])
        self._made_with: dict[str, object] | None = None  # of the groups that have gone on and are not recorded
        self._recorded_at, self._has_record = -math.inf, False
        self._tell()

    def heard(self, task: Task, event: Event) -> None:
        """Takes an event of a group. A file that can't be read or written is told of, and ends nothing."""
        with self._told_if_unwritten():
            self._hear(task, event)
            if time.monotonic() - self._recorded_at >= RECORD_PACE:
                self._record()

    def record(self) -> None:
        """Writes into `study.json` which groups have gone on since the last time."""
        with self._told_if_unwritten():
            self._record()

    def tell_unsaved(self) -> None:
        """Tells of groups that have stopped, and whose state could not be saved: nobody may hear them any more."""
        for name in sorted(self._heard):
            group = self._groups[name]
            with self._told_if_unwritten(), suppress(ValueError):
                state, reason = read_standing(group.unfinished[0]) if group.unfinished else ("", "")
                if state == "stopped" and UNSAVED in reason:
                    self.progress.note(f"{name}: {reason}")
                elif state == "running":
                    newest = f"the newest checkpoint is of agent step {group.saved_steps:,}"
                    self.progress.note(f"{name}: it did not say how it stopped; {newest}")

    @contextmanager
    def _told_if_unwritten(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.progress.note(f"{error.filename} could not be read or written: {error.strerror}; training goes on")

    def _hear(self, task: Task, event: Event) -> None:
        group, facts = self._groups[task.group], event.facts
        self._heard.add(task.group)
        match event.kind:
            case "progress":
                self._set_steps((run for run in group.runs if run not in self._over), facts["agent_steps"])
                self.progress.steps(self._done)
            case "row":
                run = group.runs[facts["run"]]
                self.progress.score(str(run), facts["epoch"], facts["score"], facts["games"])
            case "note":
                self.progress.note(facts["text"] if len(self._groups) == 1 else f"{task.group}: {facts['text']}")
            case "resumed":
                self._take_resumption(task.group, **facts)
            case "stop":
                self.stopped = True
                self.stop.request()
            case "refused":
                self.refusals[task.group] = facts["reason"]
            case "died":
                self._reports[task.group] = facts["reason"], facts["report"], facts.get("raised", False)
                self.confirm()
                for run in group.unfinished:
                    write_error(run, "stopped", facts["reason"], facts["report"])
            case "ended":
                for run in group.runs:
                    if read_status(run) in OVER:
                        self._end(run)

    def settle(self, group: Group) -> list[Group]:
        """Returns the groups in which the runs of one that has ended go on: none if they are over.

        A file that can't be written is told of, and ends nothing: whoever goes on with the study goes on with those.
        """
        with self._told_if_unwritten():
            return self._settle(group)
        return []

    def _settle(self, group: Group) -> list[Group]:
        name, left = group.path.name, group.unfinished
        reason, report, raised = self._reports.pop(name, ("its process ended without a word", "", False))
        if not left or name in self.refusals:
            return []
        place, before = group.saved_steps, self._places.pop(name, -1)
        if place > before and not (raised and len(group.runs) == 1):
            self._places[name] = place
            self.progress.note(f"{name}: {reason}; it is tried again from agent step {place:,}")
            return [group]
        self.confirm()
        if len(group.runs) == 1:
            write_error(left[0], "failed", reason, report)
            self._end(left[0])
            return []
        aside = group.put_aside()
        lost = f", and the checkpoint of agent step {place:,}, which holds them together, is put aside: {aside}"
        alone = f"its runs go on alone, each from its start{lost if aside else ''}"
        self.progress.note(f"{name}: {reason} once more at the same place; {alone}")
        group.remove()
        groups = [Group.create(self.study, [run]) for run in left]
        self._groups |= {each.path.name: each for each in groups}
        self._set_steps(left, 0)
        return groups

    def _set_steps(self, runs: Iterable[RunPath], agent_steps: int) -> None:
        for run in runs:
            self._done += agent_steps - self._steps.get(run, 0)
            self._steps[run] = agent_steps

    def _take_resumption(self, name: str, agent_steps: int, notes: list[str], provenance: dict[str, object]) -> None:
        """Takes that a group went on, to be recorded."""
        steps, known = self._resumed
        steps[name] = agent_steps
        known += [f"{name}: {note}" for note in notes]
        self._made_with = provenance

    def _record(self) -> None:
        """Records the groups that went on; all of one launch are one resumption. Many go on at about one time."""
        if self._made_with is not None:
            steps, known = self._resumed
            self.confirm()
            self.study.record_resumption(dict(steps), list(known), self._made_with, again=self._has_record)
            self._made_with, self._recorded_at, self._has_record = None, time.monotonic(), True

    def _end(self, run: RunPath) -> None:
        if run not in self._over:
            self._over.add(run)
            steps = self.study.config.loop.steps
            if read_status(run) == "finished":
                self._set_steps([run], steps)
            self._spared += steps - self._steps.get(run, 0)
            self._tell(f"{run}: {_fate(run)}")

    def _tell(self, text: str = "") -> None:
        if self._over:
            self.progress.over(len(self._over), text, self._spared)
        self.progress.steps(self._done)


def _fate(run: RunPath) -> str:
    """Says how a run stands, and why, in a few words."""
    state, reason = read_standing(run)
    log = run.path / "error.txt"
    where = f" ({log})" if state == "failed" and log.exists() else ""
    return (state or "not begun") + (f": {reason}" if reason else "") + where


def _kind(arm: Arm) -> Hashable:
    """Returns what arms must share to train together: all but their operators' parameters."""
    import jax

    ops.register_pytrees()
    return jax.tree.structure(arm.made()), arm.changes
