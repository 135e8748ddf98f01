"""Local engine: a worker process on this machine for each group."""

import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

from softbellman.running.engines.contract import LOCAL, Event, OnEvent, Task, read_event
from softbellman.running.stopping import EXIT_CODE

POLL = 0.2  # seconds between two looks at whether to stop
COMMAND = (sys.executable, "-P", "-m", "softbellman.running.worker")  # -P: nothing is found where it was not found here
_LAST_BYTES = 20_000  # of what a process printed before it died


def python_path() -> str:
    """Returns the `PYTHONPATH` by which another process finds what this one does."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


class Local:
    """Trains in processes on this machine, one for each group; see `Engine`.

    A process that ends, in whatever way, ends no other. A program that one compiles is used by the next.
    """

    spec = LOCAL
    process_bytes = 400_000_000  # 0.37 to 0.41 GB were measured

    def __init__(self, capacity: int) -> None:
        """Takes how many processes there are to be at once."""
        self.capacity = capacity

    def train(self, tasks: Sequence[Task], on_event: OnEvent, check: Callable[[], None]) -> None:
        """Train tasks; see `Engine`."""
        waiting, running = deque(tasks), set[_Worker]()
        with selectors.DefaultSelector() as selector, _scratch(tasks) as compiled:
            try:
                while waiting or running:
                    check()
                    while waiting and len(running) < self.capacity:
                        try:
                            worker = _Worker(waiting[0], compiled)
                        except OSError:  # no process or file can be had now, perhaps when one has ended
                            if not running:
                                raise
                            break
                        waiting.popleft()
                        running.add(worker)
                        selector.register(worker.output, selectors.EVENT_READ, worker)
                    for key, _ in selector.select(POLL):
                        worker = key.data
                        if not worker.hear(on_event):
                            selector.unregister(worker.output)
                            running.remove(worker)
                            worker.end(on_event)
            finally:
                for worker in running:
                    worker.ask_to_stop()
                for worker in running:
                    worker.close()


def _scratch(tasks: Sequence[Task]) -> tempfile.TemporaryDirectory[str]:
    """Makes a directory that ends with this process, beside the study where the system has no place for such."""
    try:
        return tempfile.TemporaryDirectory(prefix="softbellman-")
    except OSError:
        return tempfile.TemporaryDirectory(prefix=".softbellman-", dir=tasks[0].study)


class _Worker:
    """A process at work on a task."""

    def __init__(self, task: Task, compiled: str) -> None:
        self.task, self._line, self._told = task, b"", False
        os.makedirs(compiled, exist_ok=True)  # what cleans up temporary files by their age may have taken it
        self._errors = tempfile.TemporaryFile(dir=compiled)  # noqa: SIM115 (it is closed with the process)
        inherited = {
            "PYTHONPATH": python_path(),
            "XLA_PYTHON_CLIENT_PREALLOCATE": os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
        }
        cache = {
            "JAX_COMPILATION_CACHE_DIR": compiled,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
        try:
            self._process = subprocess.Popen(
                [*COMMAND, str(task.study), task.group, "inexact" if task.inexact else "", str(task.on_phase or "")],
                env=cache | os.environ | inherited | dict(task.variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C is for this process, which asks its workers to stop
            )
        except OSError:
            self._errors.close()
            raise
        self.input, self.output = _piped(self._process.stdin), _piped(self._process.stdout)

    def hear(self, on_event: OnEvent) -> bool:
        """Passes on what the process has said since; False when it has ended.

        What Python's own start printed, such as a `.pth` file, goes to its errors.
        """
        said = os.read(self.output.fileno(), 1 << 16)
        *lines, self._line = (self._line + said).split(b"\n")
        for line in lines:
            event = read_event(line)
            if event is None:
                with suppress(OSError):
                    os.write(self._errors.fileno(), line + b"\n")
                continue
            self._told |= event.kind in ("died", "refused", "stop")
            on_event(self.task, event)
        return bool(said)

    def end(self, on_event: OnEvent) -> None:
        """Says that the process ended, and how if it ended ill and could not say so itself."""
        code = self._process.wait()
        if code and not self._told:
            facts = {"reason": _reason(code), "report": f"{_reason(code)}\n\n{self._last_words()}"}
            on_event(self.task, Event("died", facts))
        on_event(self.task, Event("ended", {}))
        self.close()

    def ask_to_stop(self) -> None:
        """Asks for a stop as soon as the state is saved."""
        self.output.close()
        with suppress(OSError):
            self.input.write(b"stop\n")
            self.input.flush()

    def close(self) -> None:
        """Waits for the process to end; its input stays open until then, or it would leave at once."""
        self._process.wait()
        self.output.close()
        self._errors.close()
        with suppress(OSError):
            self.input.close()

    def _last_words(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LAST_BYTES))
        return self._errors.read().decode(errors="replace")


def _reason(code: int) -> str:
    if code == EXIT_CODE:
        return "stopped by a signal from elsewhere"
    if code > 0:
        return f"its process ended with exit code {code}"
    try:
        return f"its process was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was killed by signal {-code}"


def _piped(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
