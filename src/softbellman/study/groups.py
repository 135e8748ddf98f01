"""Trains the runs of a group together, writes what comes of each, and survives being stopped."""

import shutil
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from softbellman import operators as ops
from softbellman.study.plan import make_env, make_network
from softbellman.study.provenance import changes, provenance
from softbellman.study.stopping import Stopped, StopRequests
from softbellman.study.store import RunWriter, Study, count_rows, decisive, plain, read_status
from softbellman.training.checkpoint import Checkpoint, Checkpoints
from softbellman.training.evaluation import TestPhase
from softbellman.training.host_loop import HostLoop, Run
from softbellman.training.metrics import MetricsRow
from softbellman.training.snapshot import restore, snapshot

HINT = (
    "lower learner.learning_rate, clip rewards (learner.reward_clip 1), or give learner.huber_delta a bound that the "
    "errors reach; resuming would come to the same end"
)
OVER = ("finished", "diverged")


def _say_nothing(*_: Any) -> None:
    pass


def train(
    study: Study,
    *,
    on_progress: Callable[[int], None] = _say_nothing,
    on_row: Callable[[int, MetricsRow, TestPhase], None] = _say_nothing,
    on_note: Callable[[str], None] = _say_nothing,
    inexact: bool = False,
) -> None:
    """Trains all runs of a study, which must be one group, from where they stand to their end.

    Rows, parameters, status and checkpoints are written as they come. A file that can't be written is told of, and
    tried again at the next occasion; training goes on.

    Args:
        study: a study, new or begun.
        on_progress: called with the agent steps so far after each of them; what it raises ends its calls.
        on_row: called with the index of a run, its row and its test phase after each test phase; likewise.
        on_note: called with what a user should know, such as that the study was resumed, and how exactly.
        inexact: goes on also where that can't be done exactly; see `training.snapshot.restore`.

    Raises:
        ValueError: another process trains this study, or its checkpoints are of other settings.
        Diverged: the loss of every run has become infinite or NaN; the runs are marked so.
        Stopped: it was asked to stop by a signal, and the state is saved.
        BaseException: whatever else stopped the training; first, the runs are marked with its last line, and the
            whole of it is written to their `error.txt`.
    """
    with ExitStack() as stack:
        stack.enter_context(study.locked())
        if all(read_status(run) in OVER for run in study.runs):
            on_note("every run of this study is over; nothing was done")
            return
        stop = stack.enter_context(StopRequests(on_note))
        on_progress, on_row = _unfailing(on_progress, on_note), _unfailing(on_row, on_note)
        group = _Group(study, on_row, on_note)
        try:
            loop = group.begin(stack, inexact=inexact)
            group.run(loop, stop, on_progress)
        except BaseException as error:
            group.record(error)
            raise


class _Group:
    """The runs of a study, their files and their checkpoints."""

    def __init__(self, study: Study, on_row: Callable[..., None], on_note: Callable[[str], None]) -> None:
        self.study, self.config, self.on_row, self.on_note = study, study.config, on_row, on_note
        name = f"{plain(study.record['environment'])}-{plain(str(study.record['operators'][0]))}"
        self.folder = study.path / "groups" / name
        self.checkpoints = Checkpoints(self.folder / "checkpoint", self.config.checkpoint.keep)
        self.provenance = provenance()
        self.writers: list[RunWriter] = []
        self.marked: set[int] = set()  # runs whose status says that they diverged
        self.saved_at, self.saved_steps = time.monotonic(), 0

    def begin(self, stack: ExitStack, *, inexact: bool) -> HostLoop:
        """Makes the loop, and puts it where the newest checkpoint was, if there is one."""
        saved = self.checkpoints.newest(self.on_note)
        if saved is None:
            self._put_aside()
            rows = [()] * len(self.study.runs)
        else:
            self._refuse_other_settings(saved)
            rows = saved.facts["rows"]
        columns = MetricsRow._fields
        self.writers = [RunWriter(run, columns, own) for run, own in zip(self.study.runs, rows, strict=True)]
        environment, config = self.study.record["environment"], self.config
        accidents: dict[str, Any] = {}
        if environment.startswith("atari/"):
            accidents = {
                name: getattr(config.protocol, name) for name in ("random_first_actions", "budget_cut_terminates")
            }
        loop = HostLoop(
            [Run(ops.parse(run.operator), run.seed) for run in self.study.runs],
            partial(make_env, environment, config),
            partial(make_network, config.network),
            config.learner,
            config.loop,
            **accidents,
        )
        stack.enter_context(closing(loop))
        if saved is not None:
            self._resume(loop, saved, inexact=inexact)
        needed, free = sum(replay.frames.nbytes for replay in loop.replays), shutil.disk_usage(self.study.path).free
        needed *= (self.config.checkpoint.keep + 1) * self.config.checkpoint.replay
        if needed > free:
            self.on_note(
                f"checkpoints can come to {needed:,} bytes, one more than is kept, and the disk has {free:,} left: "
                "lower checkpoint.keep, or set checkpoint.replay to no, before it is full"
            )
        return loop

    def _put_aside(self) -> None:
        """Moves what runs without a checkpoint have written out of the way: they begin again, and nothing is lost."""
        for run in self.study.runs:
            if count_rows(run):
                number = sum(1 for _ in run.path.parent.glob(f"{run.path.name}.before-*")) + 1
                aside = run.path.rename(run.path.with_name(f"{run.path.name}.before-{number}"))
                self.on_note(f"no checkpoint can be used: the run begins again, and what it wrote before is in {aside}")

    def _resume(self, loop: HostLoop, saved: Checkpoint, *, inexact: bool) -> None:
        notes = [
            f"perhaps not to the last bit: {change}" for change in changes(saved.facts["provenance"], self.provenance)
        ]
        notes += restore(loop, saved, inexact=inexact)
        self.saved_steps = loop.agent_steps
        self.study.record_resumption(loop.agent_steps, notes, self.provenance)
        self.on_note(f"goes on from agent step {loop.agent_steps:,}" + ("" if notes else ", exactly as it was"))
        for note in notes:
            self.on_note(note)

    def run(self, loop: HostLoop, stop: StopRequests, on_progress: Callable[[int], None]) -> None:
        """Trains and tests to the end, and saves on the way."""
        steps, epoch = self.config.loop.steps, self.config.loop.epoch_steps

        def between_steps(done: int) -> None:
            stop.check()
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
            self._save(loop)
            raise
        finally:
            self._mark_diverged(loop)
        for index, writer in enumerate(self.writers):
            if index not in loop.diverged:
                writer.status("finished", agent_steps=loop.agent_steps, updates=loop.updates)
        shutil.rmtree(self.folder.parent, ignore_errors=True)  # a study is one group so far

    def record(self, error: BaseException) -> None:
        """Marks every run that is not over with what stopped it."""
        state = "failed" if isinstance(error, Exception) else "stopped"
        for index, writer in enumerate(self.writers):
            if index in self.marked:
                continue
            if isinstance(error, Stopped):
                writer.status(state, agent_steps=self.saved_steps)
            else:
                writer.error(state, traceback.format_exception_only(error)[-1].strip(), traceback.format_exc())

    def _test(self, loop: HostLoop, stop: StopRequests) -> None:
        for index, (row, phase) in loop.test(stop.check).items():
            writer = self.writers[index]
            self._write(f"{writer.run.path}/metrics.csv", partial(writer.row, row))
            self._write(
                f"{writer.run.path}/*.safetensors",
                partial(writer.params, loop.params(index), row.agent_steps, phase.mean),
            )
            self.on_row(index, row, phase)
        if not self.saved_steps:
            self._save(loop)  # the first, so that a run with rows can always go on

    def _save(self, loop: HostLoop) -> None:
        """Saves a checkpoint, and marks runs that have diverged since the last."""
        state = snapshot(loop, with_replay=self.config.checkpoint.replay)
        self._mark_diverged(loop)
        rows = [[dict(zip(writer.columns, row, strict=True)) for row in writer.rows] for writer in self.writers]
        state.facts.update(rows=rows, config=decisive(self.config), provenance=self.provenance)
        if self._write(
            f"a checkpoint in {self.checkpoints.folder}", partial(self.checkpoints.save, state, loop.agent_steps)
        ):
            self.saved_steps = loop.agent_steps
        self.saved_at = time.monotonic()

    def _write(self, what: str, write: Callable[[], Any]) -> bool:
        """Writes, and says whether it could be done. A disk that is full now may not be so later."""
        try:
            write()
            return True
        except OSError as error:
            self.on_note(
                f"{what} could not be written: {error.strerror or error}; training goes on and tries again later"
            )
            return False

    def _mark_diverged(self, loop: HostLoop) -> None:
        for index in loop.diverged.keys() - self.marked:
            moment, writer = loop.diverged[index], self.writers[index]
            reason = f"the loss was not finite at agent step {moment:,}"
            good = f"the last good state is of agent step {self.saved_steps:,}, in {self.checkpoints.folder}"
            writer.status("diverged", agent_steps=moment, reason=reason, hint=HINT)
            self.on_note(f"{writer.run.operator}, seed {writer.run.seed} has diverged: {reason}; {good}; {HINT}")
            self.marked.add(index)

    def _refuse_other_settings(self, saved: Checkpoint) -> None:
        now, then = decisive(self.config), saved.facts.get("config", {})
        changed = [f"{name} {then.get(name)} then, {now[name]} now" for name in now if then.get(name) != now[name]]
        if changed:
            raise ValueError(
                f"the checkpoint {saved.path} was made with other settings: {'; '.join(changed)}. "
                "Put study.json back as it was, or train a new study"
            )


def _unfailing(callback: Callable[..., None], on_note: Callable[[str], None]) -> Callable[..., None]:
    """Returns a callback that no longer calls the one given once that has raised: a logger must not end training."""
    broken = False

    def call(*arguments: Any) -> None:
        nonlocal broken
        if broken:
            return
        try:
            callback(*arguments)
        except Exception as error:
            broken = True
            on_note(f"what reports on training failed, and training goes on: {type(error).__name__}: {error}")

    return call
