"""Group trainer: rows, parameters and checkpoints written as they come; exact resume."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from softbellman.config import Config, decisive
from softbellman.faults import in_a_line
from softbellman.learning.fixed_policy import FixedPolicy
from softbellman.running.build import make_env, make_loop, obs_scale
from softbellman.running.jax_settings import own_settings
from softbellman.running.raw_policy import Interface, RawPolicy
from softbellman.running.stopping import UNSAVED, Stopped, StopRequests
from softbellman.sinks import Sinks
from softbellman.study.files import free_place
from softbellman.study.groups import Group
from softbellman.study.locks import Lease, Lost, locked
from softbellman.study.place import unwritable
from softbellman.study.provenance import changes, provenance
from softbellman.study.runs import RunPath
from softbellman.study.store import Study
from softbellman.study.writer import RunWriter, count_rows
from softbellman.training.checkpoint import Checkpoint, Checkpoints, Unreadable
from softbellman.training.evaluation import TestPhase
from softbellman.training.lanes import Run
from softbellman.training.loop import LAYOUT, Loop
from softbellman.training.metrics import Row, columns

HINT = (
    "lower learner.learning_rate, clip rewards (learner.reward_clip 1), or give learner.huber_delta a bound that the "
    "errors reach; resuming would come to the same end"
)
AGAIN = "training goes on and tries again later"
PAUSES = (1.0, 3.0, 0.0)  # seconds after each try to save the last state
LONGEST_WAIT = 120.0  # seconds for a process that is saving its last state


class Refused(ValueError):
    """The group can't go on now, or not as is asked for; its checkpoint is kept."""


def _say_nothing(*_: Any) -> None:
    pass


@own_settings()
def train_group(
    study: Study,
    group: Group,
    *,
    on_progress: Callable[[int], None] = _say_nothing,
    on_row: Callable[[int, Row, TestPhase], None] = _say_nothing,
    on_note: Callable[[str], None] = _say_nothing,
    on_resumed: Callable[[int, list[str], dict[str, Any]], None] = _say_nothing,
    on_phase: Callable[[Row, RawPolicy], Any] | None = None,
    on_stop: Callable[[], None] = _say_nothing,
    inexact: bool = False,
) -> None:
    """Trains one group of a study, from where it stands to its end, and removes its directory then.

    A file that can't be written is told of, and tried again at the next occasion; training goes on. Only where that is
    the last one, or was the first, the group is refused.

    Args:
        study: the study, whose lock this process or the one that started it holds.
        group: the group; its runs share their environment and their arms' settings.
        on_progress: called with the agent steps so far after each of them; what it raises ends its calls.
        on_row: called with the index of a run, its row and its test phase after each test phase; likewise.
        on_note: called with what a user should know, such as that the study was resumed, and how exactly.
        on_resumed: called with the agent step at which training goes on, what is not as if there had been no stop,
            and the provenance.
        on_phase: a user's own, called after each test phase of a run with a copy of its row, to which the run's
            environment, operator and seed are added, and with its policy; likewise. It changes nothing; StopIteration
            that it raises asks for a stop.
        on_stop: called when it does.
        inexact: goes on also where that can't be done exactly; see `training.loop.Loop.restore`.

    Raises:
        Refused: its checkpoint can't be read now, or is of other settings, the game under way can't be played again as
            it was, its files can't be written, or another process does not leave the group, or has taken it over.
        Diverged: the loss of every run has become infinite or NaN; the runs are marked so.
        Stopped: it was asked to stop by a signal or by `on_phase`; the runs are marked so, and the state is saved, or
            their `status.json` says that it could not be.
    """

    def told(run: RunPath, row: Row, policy: Callable[[], FixedPolicy]) -> None:
        if on_phase is not None:
            try:
                of_run = {"environment": run.environment, "operator": run.operator, "seed": run.seed}
                on_phase(of_run | row, RawPolicy(training.interface, policy()))
            except StopIteration:
                stop.request()
                on_stop()

    with StopRequests(on_note) as stop, ExitStack() as stack:
        with _refusing_unwritable(group.path):
            lease = stack.enter_context(locked(group.path, _patience(stop, on_note)))
        on_progress, on_row = (_unfailing(each, "what reports on training", on_note) for each in (on_progress, on_row))
        training = _Training(study, group, lease, on_row, _unfailing(told, "on_phase", on_note), on_note)
        try:
            loop = training.begin(stack, on_resumed, inexact=inexact)
            training.run(loop, stop, on_progress)
        except (Lost, Unreadable) as error:
            raise Refused(str(error)) from error


class _Training:
    """The training of a group: its files and its checkpoints."""

    def __init__(
        self,
        study: Study,
        group: Group,
        lease: Lease,
        on_row: Callable[..., None],
        on_phase: Callable[..., None],
        on_note: Callable[[str], None],
    ) -> None:
        self.group, self.config, self.lease = group, study.config_of(group.runs[0]), lease
        self.on_row, self.on_phase, self.on_note = on_row, on_phase, on_note
        self.facts = study.record["environment_facts"].get(group.runs[0].environment, {})
        self.checkpoints = Checkpoints(group.path / "checkpoint", self.config.checkpoint.keep)
        self.provenance = provenance()
        self.writers: list[RunWriter] = []
        self.sinks: list[Sinks] = []
        self.logged = study.record.get("log", [])
        self.marked: set[int] = set()  # runs whose status says that they diverged
        self.saved_at, self.saved_steps = time.monotonic(), 0

    @cached_property
    def interface(self) -> Interface:
        """What the runs' environment itself gives and takes; made for a callback alone."""
        environment = self.group.runs[0].environment
        with closing(make_env(environment, self.config, seed=0, training=False)) as env:
            return Interface.of(env, environment, self.facts)

    def begin(self, stack: ExitStack, on_resumed: Callable[..., None], *, inexact: bool) -> Loop:
        """Makes the loop, and puts it where the newest checkpoint was, if there is one."""
        saved = self.checkpoints.newest(self.on_note)
        if saved is None:
            with _refusing_unwritable(self.group.path):
                self._put_aside()
        else:
            self._refuse_another(saved)
        loop = stack.enter_context(closing(self._make_loop()))
        notes = [] if saved is None else self._restore(loop, saved, inexact=inexact)
        rows = [()] * len(self.group.runs) if saved is None else saved.facts["rows"]
        for index, (run, own) in enumerate(zip(self.group.runs, rows, strict=True)):
            best = b""
            if saved is not None and _best(index) in saved.names:  # older ones lack it
                best = saved.array(_best(index)).tobytes()
            with _refusing_unwritable(run.path):
                self.writers.append(RunWriter(run, columns(), own, self.provenance, self.lease.confirm, best))
            self.sinks.append(Sinks(self.logged, run, own, self.on_note))
            stack.callback(self.sinks[-1].close)
        if saved is not None:
            on_resumed(loop.agent_steps, notes, self.provenance)
            self.on_note(f"goes on from agent step {loop.agent_steps:,}" + ("" if notes else ", exactly as it was"))
            for note in notes:
                self.on_note(note)
        needed, free = loop.replay_bytes, shutil.disk_usage(self.group.path).free
        needed *= (self.config.checkpoint.keep + 1) * self.config.checkpoint.replay
        if needed > free:
            self.on_note(
                f"checkpoints can come to {needed:,} bytes, one more than is kept, and the disk has {free:,} left: "
                "lower checkpoint.keep, or set checkpoint.replay to no, before it is full"
            )
        return loop

    def _make_loop(self) -> Loop:
        """Makes the loop of the group's runs, at its start."""
        runs = [Run(run.arm.made(), run.seed) for run in self.group.runs]
        environment = self.group.runs[0].environment
        return make_loop(environment, self.config, runs, obs_scale(environment, self.facts, self.config))

    def _restore(self, loop: Loop, saved: Checkpoint, *, inexact: bool) -> list[str]:
        """Puts a loop where it was, and returns what is not as if there had been no stop."""
        differences = changes(saved.facts["provenance"], self.provenance)
        try:
            notes = loop.restore(saved, inexact=inexact)
        except (ValueError, OSError) as error:
            raise Refused(str(error)) from error
        self.saved_steps = loop.agent_steps
        return [*(f"perhaps not to the last bit: {difference}" for difference in differences), *notes]

    def _put_aside(self) -> None:
        """Moves what runs without a checkpoint have written out of the way: they begin again, and nothing is lost."""
        for run in self.group.runs:
            if count_rows(run):
                aside = run.path.rename(free_place(run.path))
                self.on_note(f"no checkpoint can be used: the run begins again, and what it wrote before is in {aside}")

    def run(self, loop: Loop, stop: StopRequests, on_progress: Callable[[int], None]) -> None:
        """Trains and tests to the end, and saves on the way."""
        steps, epoch = self.config.loop.steps, self.config.loop.epoch_steps

        def between_steps(done: int) -> None:
            stop.check()
            self.lease.check()
            if time.monotonic() - self.saved_at >= self.config.checkpoint.minutes * 60:
                self._save(loop)
            on_progress(done)

        try:
            while loop.agent_steps < steps or loop.test_is_due:
                if loop.test_is_due:
                    self._test(loop, stop)
                else:
                    loop.advance(min(epoch - loop.agent_steps % epoch, steps - loop.agent_steps), between_steps)
        except Stopped:
            self._mark_stopped(self._save_last(loop))
            raise
        finally:
            self._mark_diverged(loop)
        with _refusing_unwritable(self.group.path):
            try:
                self._finish(loop)
            except OSError:
                if self.saved_steps < loop.agent_steps:
                    self._save(loop, then="whoever goes on with the study tries again")
                raise
        self.group.remove()

    def _finish(self, loop: Loop) -> None:
        """Writes what is not on disk yet, and that the runs are finished."""
        for writer in self.writers:
            writer.flush()
        for index, writer in enumerate(self.writers):
            if index not in loop.diverged:
                writer.status("finished", agent_steps=loop.agent_steps, updates=loop.updates)
                self.sinks[index].status("finished", agent_steps=loop.agent_steps)
        self.lease.confirm()

    def _test(self, loop: Loop, stop: StopRequests) -> None:
        for index, (row, phase) in loop.test(stop.check).items():
            writer = self.writers[index]
            self._write(partial(writer.row, row))
            self.sinks[index].row(row)
            self._write(partial(writer.params, loop.params(index), row["agent_steps"], row["updates"], phase.mean))
            self.on_row(index, row, phase)
            self.on_phase(writer.run, row, partial(loop.policy, index))
        if not self.saved_steps and all(writer.is_complete for writer in self.writers):
            self._save(loop)  # the first, so that a run with rows can always go on

    def _save_last(self, loop: Loop) -> dict[str, str]:
        """Saves the state before a stop, and returns what `status.json` says where that can't be done."""
        for pause in PAUSES:
            if self._save(loop, "it is tried again, and then given up"):
                return {}
            time.sleep(pause)
        newest = f"the newest checkpoint is of agent step {self.saved_steps:,}" if self.saved_steps else "there is none"
        return {"reason": f"the state of agent step {loop.agent_steps:,} {UNSAVED}; {newest}"}

    def _save(self, loop: Loop, then: str = AGAIN) -> bool:
        """Saves a checkpoint, says whether it could be done, and marks runs that have diverged since the last."""
        state = loop.snapshot(with_replay=self.config.checkpoint.replay)
        self._mark_diverged(loop)
        for writer in self.writers:
            self._write(writer.flush, then=then)
        rows = [[dict(zip(writer.columns, row, strict=True)) for row in writer.rows] for writer in self.writers]
        state.facts.update(cells=self.group.cells, rows=rows, config=decisive(self.config), provenance=self.provenance)
        what = f"a checkpoint in {self.checkpoints.folder}"

        def save() -> None:
            kept = {_best(index): writer.best for index, writer in enumerate(self.writers)}
            state.arrays.update({name: [np.frombuffer(best, np.uint8)] for name, best in kept.items() if best})
            self.checkpoints.save(state, loop.agent_steps, self.lease.confirm)

        is_complete = all(writer.is_complete for writer in self.writers)  # else its rows would have other networks
        is_saved = is_complete and self._write(save, what, then)
        if is_saved:
            self.saved_steps = loop.agent_steps
        self.saved_at = time.monotonic()
        return is_saved

    def _write(self, write: Callable[[], Any], what: str | None = None, then: str = AGAIN) -> bool:
        """Writes, and says whether it could be done. A disk that is full now may not be so later."""
        try:
            write()
            return True
        except OSError as error:
            self.on_note(f"{what or error.filename} could not be written: {error.strerror or error}; {then}")
            return False

    def _mark_diverged(self, loop: Loop) -> None:
        for index in loop.diverged.keys() - self.marked:
            moment, writer = loop.diverged[index], self.writers[index]
            parts = [f"the loss was not finite at agent step {moment:,}"]
            self._write(partial(writer.status, "diverged", agent_steps=moment, reason=parts[0], hint=HINT))
            self.sinks[index].status("diverged", agent_steps=moment)
            if self.saved_steps and len(loop.diverged) == len(self.writers):  # later ones would take its place
                parts.append(f"the last good state is of agent step {self.saved_steps:,}, in {self.checkpoints.folder}")
            self.on_note(f"{writer.run.operator}, seed {writer.run.seed} has diverged: {'; '.join([*parts, HINT])}")
            self.marked.add(index)

    def _mark_stopped(self, facts: dict[str, str]) -> None:
        for index, writer in enumerate(self.writers):
            if index not in self.marked:
                self._write(
                    partial(writer.status, "stopped", agent_steps=self.saved_steps, **facts), then="it is given up"
                )
                self.sinks[index].status("stopped", agent_steps=self.saved_steps)

    def _refuse_another(self, saved: Checkpoint) -> None:
        cells = self.group.cells
        if saved.facts.get("layout") != LAYOUT:
            made = saved.facts.get("provenance", {}).get("versions", {}).get("softbellman", "an earlier one")
            raise Refused(
                f"the checkpoint {saved.path} is of another version of softbellman ({made}) with other random draws; "
                "go on with that version, or train a new study"
            )
        if saved.facts.get("cells", cells) != cells:
            raise Refused(f"the checkpoint {saved.path} is of other runs; remove {self.group.path}")
        now, then = decisive(self.config), decisive(Config()) | saved.facts.get("config", {})  # an older one has fewer
        changed = [f"{name} {then[name]} then, {now[name]} now" for name in now if then[name] != now[name]]
        if changed:
            raise Refused(
                f"the checkpoint {saved.path} was made with other settings: {'; '.join(changed)}. "
                "Put study.json back as it was, or train a new study"
            )


@contextmanager
def _refusing_unwritable(path: Path) -> Iterator[None]:
    """Refuses a group whose own files can't be written: that is no fault of its runs, and costs none of its state."""
    try:
        yield
    except OSError as error:
        raise Refused(str(unwritable(path, error, "make room, and go on with the study"))) from error


def _best(index: int) -> str:
    """Returns the name under which a run's best network is saved, as the file that it is."""
    return f"runs/{index}/best"


def _patience(stop: StopRequests, on_note: Callable[[str], None]) -> Callable[[str], None]:
    """Returns what waits for a lock: its holder lost who started it, perhaps, and is saving its state."""
    began, told = time.monotonic(), False

    def wait(holder: str) -> None:
        nonlocal told
        stop.check()
        if not told:
            on_note(f"waits for {holder}, which trains this group still, to save its state and end")
            told = True
        if time.monotonic() - began > LONGEST_WAIT:
            raise Refused(f"{holder} trains this group still; end it, and try again")
        time.sleep(0.1)

    return wait


def _unfailing(callback: Callable[..., None], subject: str, on_note: Callable[[str], None]) -> Callable[..., None]:
    """Returns a callback that no longer calls the one given once that has raised: a logger must not end training."""
    broken = False

    def call(*arguments: Any) -> None:
        nonlocal broken
        if broken:
            return
        try:
            callback(*arguments)
        except Lost:  # the study is another process's, if this one holds both
            raise
        except (Exception, SystemExit) as error:
            broken = True
            on_note(f"{subject} failed, and training goes on: {in_a_line(error)}")

    return call
