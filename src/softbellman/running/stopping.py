"""Signal handling: a request to stop, heard at the next safe place; a second Ctrl-C leaves at once."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

UNSAVED = "could not be saved"  # of the state, in the `status.json` of a run that was stopped
EXIT_CODE = 130  # what shells expect of a program that was interrupted
_INSISTING = (signal.SIGINT, signal.SIGTERM)  # a second of these is someone who does not want to wait
# A terminal that closes, queues before they preempt, a limit of CPU time. They come more than once, from a shell and
# from the kernel, or before a SIGTERM, and never mean that the state should be lost.
_ANNOUNCING = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)

asked = threading.Event()  # the same request, made by this process itself; it never counts as a second one


class Stopped(KeyboardInterrupt):
    """Training was asked to stop, and did so between two steps."""


class StopRequests:
    """Turns signals into requests, while it is entered. In a thread other than the main one, it leaves them alone.

    Within another one it leaves them to that one, and stops with it.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        """Takes what is told that a request has been heard."""
        self._note, self._requested, self._signalled, self._insisted = note, False, False, False
        self._before: dict[signal.Signals, Any] = {}
        self._outer: StopRequests | None = None

    def __enter__(self) -> "StopRequests":
        """Takes the signals over, but for announcing ones that are ignored, as under nohup, or handled by another."""
        if threading.current_thread() is not threading.main_thread():
            return self
        holder = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
        if isinstance(holder, StopRequests):
            self._outer = holder
        else:
            free = [number for number in _ANNOUNCING if signal.getsignal(number) == signal.SIG_DFL]
            for number in (*_INSISTING, *free):
                self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def request(self) -> None:
        """Asks for a stop without a signal."""
        self._requested = True

    @property
    def was_signalled(self) -> bool:
        """A signal has asked for a stop."""
        return self._signalled

    def check(self) -> None:
        """Stops, if that was asked for.

        Raises:
            Stopped: it was.
        """
        if self._requested or asked.is_set():
            raise Stopped("stopped")
        if self._outer is not None:
            self._outer.check()

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if number in _INSISTING:
            if self._insisted:
                os._exit(EXIT_CODE)  # at once: the last checkpoint is whole, and a lock ends with its process
            self._insisted = True
        self._requested = True
        if not self._signalled:
            self._signalled = True
            with suppress(RuntimeError):  # it came within a print, where nothing can be printed
                self._note("stopping: the state is saved first" + "; once more to leave at once" * self._insisted)
