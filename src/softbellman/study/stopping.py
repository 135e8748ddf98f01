"""Ctrl-C and the signal to terminate: the first asks for a stop at the next safe place, the second leaves at once."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

EXIT_CODE = 130  # what shells expect of a program that was interrupted


class Stopped(KeyboardInterrupt):
    """Training was asked to stop, and did so between two steps."""


class StopRequests:
    """Turns signals into requests, while it is entered. In a thread other than the main one, it leaves them alone."""

    def __init__(self, note: Callable[[str], None]) -> None:
        """Takes what is told that a request has been heard."""
        self._note, self._requested = note, False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequests":
        """Takes the signals over."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Stops, if that was asked for.

        Raises:
            Stopped: it was.
        """
        if self._requested:
            raise Stopped("stopped")

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self._requested:
            os._exit(EXIT_CODE)  # at once: the last checkpoint is whole, and a lock ends with its process
        self._requested = True
        self._note("stopping: the state is saved first; once more to leave at once")
