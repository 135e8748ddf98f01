"""An attempt at a task, on whichever machine this runs: asked now and then for its news, and stopped, from afar."""

import os
import queue
import socket
import threading
import traceback
from collections.abc import Mapping

from softbellman.faults import in_a_line
from softbellman.running.engines.contract import Event, Task
from softbellman.running.engines.local import Local
from softbellman.running.stopping import Stopped
from softbellman.study.provenance import provenance, version_changes


class Attempt:
    """A task at work in a process of its own on this machine, while whoever asked for it is on another one.

    The process ends, its state saved, with the one that this is made in.
    """

    def __init__(self, task: Task, versions: Mapping[str, str]) -> None:
        """Begins.

        Args:
            task: the task.
            versions: of the packages with which it is to be trained; with others it is refused.
        """
        self._events, self._stopping = queue.SimpleQueue[Event](), threading.Event()
        self._thread = threading.Thread(target=self._train, args=(task, versions), daemon=True)
        self._thread.start()

    def news(self, wait: float) -> tuple[list[Event], bool]:
        """Returns what has happened since, and whether that was all.

        Of reports on progress the last is enough.

        Args:
            wait: seconds to wait before; less if it is over.
        """
        self._thread.join(wait)
        over, events = not self._thread.is_alive(), list[Event]()
        while not self._events.empty():
            event = self._events.get()
            if event.kind == "progress" and events and events[-1].kind == "progress":
                events.pop()
            events.append(event)
        return events, over

    def stop(self) -> None:
        """Asks for a stop as soon as the state is saved."""
        self._stopping.set()

    def wait(self) -> None:
        """Waits until it is over."""
        self._thread.join()

    def _train(self, task: Task, versions: Mapping[str, str]) -> None:
        try:
            if others := version_mismatch(versions, provenance()["versions"]):
                reason = f"machine {socket.gethostname()} {others}"
                self._events.put(Event("refused", {"reason": reason, "report": reason}))
                self._events.put(Event("ended", {}))
                return
            Local(1).train([task], lambda _, event: self._events.put(event), self._check)
        except Stopped:
            pass
        except Exception as error:
            self._events.put(Event("died", {"reason": in_a_line(error), "report": traceback.format_exc()}))
            self._events.put(Event("ended", {}))

    def _check(self) -> None:
        if self._stopping.is_set():
            raise Stopped("stopped")


def version_mismatch(wanted: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """Says in which packages a machine differs from the one that asks, and what to do; None if in none."""
    others = [f"{package} {there} instead of {here}" for package, here, there in version_changes(wanted, found)]
    return f"has {', '.join(others)}: install the same versions there" if others else None


def carried_variables() -> dict[str, str]:
    """Returns the variables of JAX and XLA, which results depend on, so that they hold on other machines too."""
    own = {"JAX_COMPILATION_CACHE_DIR"}  # a place of this machine
    return {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_")) and name not in own}
