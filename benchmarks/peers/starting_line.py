"""The line at which the measured programs wait for each other: all start to count at one word of the driver's."""

import sys


def wait_for_the_word() -> None:
    """Say that all is compiled and warm, and wait for a line on standard input."""
    print("ready", flush=True)
    sys.stdin.readline()
