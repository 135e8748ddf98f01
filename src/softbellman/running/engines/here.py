"""In-process engine: one group after the other."""

from collections.abc import Callable, Sequence

from softbellman.running.engines.contract import HERE, Event, OnEvent, Task
from softbellman.running.stopping import EXIT_CODE, Stopped
from softbellman.running.worker import work


class Here:
    """Trains in this process, one group after the other: what one compiles, the next need not."""

    capacity, process_bytes, spec = 1, 0, HERE

    def train(self, tasks: Sequence[Task], on_event: OnEvent, check: Callable[[], None]) -> None:
        """Train tasks; see `Engine`."""
        for task in tasks:
            check()
            send = _telling(task, on_event)
            code = work(task.study, task.group, inexact=task.inexact, send=send, on_phase=task.on_phase)
            on_event(task, Event("ended", {}))
            if code == EXIT_CODE:
                raise Stopped("stopped")


def _telling(task: Task, on_event: OnEvent) -> Callable[..., None]:
    return lambda kind, **facts: on_event(task, Event(kind, facts))
