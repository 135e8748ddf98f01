"""Slurm engine: each group a job of an array, submitted by submitit, and queued again at its time limit.

Driver and jobs meet in the study's directory, which all machines must see: `slurm/<moment>/` there has a file of events
for each job, and one that the driver touches for as long as it waits. A job whose driver is gone saves its state and
ends.
"""

import importlib
import os
import secrets
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from softbellman.extras import imported
from softbellman.running.engines.attempt import Attempt
from softbellman.running.engines.contract import SLURM, Event, OnEvent, Task, read_event
from softbellman.running.engines.local import POLL, Local, python_path
from softbellman.study.locks import BEAT, LEASE, Silence
from softbellman.study.provenance import provenance

AT_ONCE = 100  # jobs at once, unless another number is asked for
PACE = 2.0  # seconds between two looks at the files of each side
TIME_LIMITS = 100_000  # times that a job is queued again
_ARRAY = "slurm_array_parallelism"
_OVER = "over"  # the last line of a job's events


class Slurm:
    """Trains in jobs of Slurm; see `Engine`."""

    process_bytes = Local.process_bytes

    def __init__(self, spec: str, workers: int | None, threads: int) -> None:
        """Checks that jobs can be submitted.

        Args:
            spec: `slurm`, or `slurm:name=value,...` with parameters of submitit's: `timeout_min`, `mem_gb`,
                `slurm_partition`, `slurm_account` and others; `cluster=local` runs jobs on this machine, without Slurm.
            workers: jobs at once.
            threads: cores of each.

        Raises:
            ValueError: a parameter is none, or there is no Slurm here.
            MissingExtra: submitit is not installed.
        """
        self.spec, self.capacity, self._submitit = spec, workers or AT_ONCE, imported(SLURM)
        options = _options(spec)
        self._cluster = options.pop("cluster", SLURM)
        own = {"cpus_per_task": threads, "timeout_min": 240, "name": "softbellman", _ARRAY: self.capacity}
        self._parameters = own | options
        with tempfile.TemporaryDirectory() as nowhere:
            self._executor(Path(nowhere))

    def memory(self) -> int | None:
        """Returns None: it is Slurm that knows."""
        return None

    def train(self, tasks: Sequence[Task], on_event: OnEvent, check: Callable[[], None]) -> None:
        """Train tasks; see `Engine`. Jobs that have not begun when it is stopped are cancelled."""
        tasks = [task._replace(study=task.study.absolute()) for task in tasks]
        folder = tasks[0].study / SLURM / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        folder.mkdir(parents=True)
        alive, versions = folder / "driver", provenance()["versions"]
        alive.touch()
        executor, touched = self._executor(folder), time.monotonic()
        at_once = len(tasks) if self._cluster == SLURM else self.capacity  # Slurm itself holds an array to it
        waiting, running = deque(Job(task, alive, versions) for task in tasks), list[_Submitted]()
        try:
            while waiting or running:
                check()
                if time.monotonic() - touched > BEAT:
                    with suppress(OSError):  # what does not answer is tried again, and jobs wait for that
                        alive.touch()
                        touched = time.monotonic()
                if room := min(at_once - len(running), len(waiting)):
                    running += _submitted(executor, [waiting.popleft() for _ in range(room)])
                for each in list(running):
                    events, over = each.news()
                    for event in events:
                        on_event(each.job.task, event)
                    if over:
                        running.remove(each)
                time.sleep(POLL)
        finally:
            with suppress(OSError):  # jobs end too when it stays untouched
                alive.unlink(missing_ok=True)  # jobs that see this save their state and end
            for each in running:
                each.cancel_unless_begun()
            while running := [each for each in running if each.has_begun and not each.news()[1]]:
                time.sleep(POLL)

    def _executor(self, folder: Path) -> Any:
        """Makes what submits jobs.

        Raises:
            ValueError: as `__init__`.
        """
        try:
            limits = {f"{self._cluster}_max_num_timeout": TIME_LIMITS}
            executor = self._submitit.AutoExecutor(folder=folder, cluster=self._cluster, **limits)
            executor.update_parameters(**self._parameters)
            return executor
        except (RuntimeError, ValueError, TypeError, NameError, AssertionError) as error:
            said = str(error).splitlines()[0]
            raise ValueError(f"engine {self.spec}: {said}; see submitit's AutoExecutor for what there is") from None


class Job:
    """A group as a job: what submitit takes to a machine, and takes there again after a time limit."""

    def __init__(self, task: Task, alive: Path, versions: Mapping[str, str]) -> None:
        """Takes the task, the file that the driver touches, and the versions to train with."""
        self.task, self.alive, self.versions = task, alive, dict(versions)
        self.events = alive.with_name(f"{task.group}.events")
        self._attempt: Attempt | None = None

    def __call__(self) -> None:
        """Trains until the group has ended, or the driver is gone."""
        if not self.alive.exists():
            raise ValueError(f"{self.alive} is not seen by {socket.gethostname()}, or its driver is gone")
        silence, attempt, over = Silence(), Attempt(self.task, self.versions), False
        self._attempt = attempt
        self._tell([Event("note", {"text": f"begins on {socket.gethostname()}"})])
        while not over:
            events, over = attempt.news(PACE)
            self._tell(events)
            if self._is_alone(silence):
                attempt.stop()
        self._tell([Event(_OVER, {})])

    def checkpoint(self) -> Any:
        """Saves the state, and returns what is to be queued; submitit calls it shortly before the time limit."""
        if self._attempt is not None:
            self._attempt.stop()
            self._attempt.wait()
        return importlib.import_module("submitit").helpers.DelayedSubmission(Job(self.task, self.alive, self.versions))

    def _is_alone(self, silence: Silence) -> bool:
        try:
            with self.alive.open() as file:
                return silence.seconds(self.alive, os.fstat(file.fileno())) > LEASE
        except OSError:
            return True

    def _tell(self, events: Sequence[Event]) -> None:
        """Adds lines to the file of events. It is closed each time, or other machines would not see them.

        They begin with an empty one: where the disk was full, the last time ended within a line.
        """
        lines = "".join(event.line for event in events)
        with suppress(OSError):  # training goes on
            if lines:
                with self.events.open("a") as file:
                    file.write(f"\n{lines}")


class _Submitted:
    """A job that was submitted, as its driver sees it."""

    def __init__(self, job: Job, handle: Any) -> None:
        self.job, self._handle, self._read, self.has_begun, self._ended = job, handle, 0, False, False

    def news(self) -> tuple[list[Event], bool]:
        """Returns what has happened since, and whether that was all."""
        is_done = self._handle.done()  # asked before: what the job told last is then there to be read
        events = self._lines()
        self.has_begun |= bool(events)
        self._ended |= any(event.kind == "ended" for event in events)
        if not is_done and not any(event.kind == _OVER for event in events):
            return events, False
        if not self._ended:
            reason = f"its job {self._handle.job_id} ended ({self._handle.state}); see {self._handle.paths.stderr}"
            kind = "died" if self.has_begun else "refused"  # a machine that does not see the study, say
            events += [Event(kind, {"reason": reason, "report": reason}), Event("ended", {})]
        return [event for event in events if event.kind != _OVER], True

    def cancel_unless_begun(self) -> None:
        """Takes the job out of the queue if it is still there."""
        if not self.has_begun:
            self._handle.cancel(check=False)

    def _lines(self) -> list[Event]:
        try:
            with self.job.events.open("rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:  # it is not there yet
            return []
        self._read += len(whole) + len(newline)
        return [event for line in whole.splitlines() if (event := read_event(line))]


def _submitted(executor: Any, jobs: Sequence[Job]) -> list[_Submitted]:
    """Submits jobs as one array. They find what this process does, and JAX is set as here."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = python_path()
    try:
        with executor.batch():
            handles = [executor.submit(job) for job in jobs]
    finally:
        del os.environ["PYTHONPATH"]
        os.environ |= {} if before is None else {"PYTHONPATH": before}
    return [_Submitted(job, handle) for job, handle in zip(jobs, handles, strict=True)]


def _options(spec: str) -> dict[str, Any]:
    """Reads the parameters in an engine's name; whole numbers become such.

    >>> _options("slurm:timeout_min=30,slurm_partition=cpu")
    {'timeout_min': 30, 'slurm_partition': 'cpu'}
    """
    options: dict[str, Any] = {}
    for part in spec.partition(":")[2].split(",") if ":" in spec else ():
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (name and equals and value) or name in options:
            raise ValueError(f"engine {spec}: {part!r} is no name=value, each once, as in slurm:mem_gb=8")
        options[name] = int(value) if value.isdigit() else value
    return options
