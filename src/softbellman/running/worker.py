"""Worker process: trains one group, and reports to the process that started it.

It writes one JSON object a line to standard output. It stops, its state saved, when a line arrives on standard input,
and when standard input ends, since then nobody is left who waits for it; if both happen, it leaves at once. A worker
that hangs and that nobody waits for leaves after `LONGEST_STOP`, so that its group can be taken up again.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from softbellman.faults import in_a_line
from softbellman.memory import keep_freed_memory
from softbellman.references import resolve
from softbellman.running.stopping import EXIT_CODE, Stopped, asked

PACE = 0.5  # seconds between two reports of progress
LONGEST_STOP = 1800.0  # seconds to stop in, where nobody is left who waits for it


def main(study: str, group: str, inexact: str, on_phase: str) -> int:
    """Trains a group; see `work`. Any text as `inexact` says yes, an empty one as `on_phase` that there is none."""
    keep_freed_memory()
    send = _sender(_take_output())
    threading.Thread(target=_watch_input, daemon=True).start()
    return work(Path(study), group, inexact=bool(inexact), send=send, on_phase=on_phase or None)


def work(
    study: Path,
    group: str,
    *,
    inexact: bool,
    send: Callable[..., None],
    on_phase: str | Callable[[Any, Any], Any] | None = None,
) -> int:
    """Trains a group.

    Args:
        study: directory of the study.
        group: name of the group.
        inexact: goes on also where that can't be done exactly.
        send: called with the kind of an event and its facts; see `engines.Event`.
        on_phase: called after each test phase, or its `module:name`; see `train_group`.

    Returns:
        The exit code: 0 when its runs are over, 1 if it can't go on, 130 if it was stopped.
    """
    from softbellman.running.group_training import Refused, train_group
    from softbellman.study.groups import open_group
    from softbellman.study.store import Study
    from softbellman.training.loop import Diverged

    told = -PACE

    def on_progress(agent_steps: int) -> None:
        nonlocal told
        if time.monotonic() - told >= PACE:
            told = time.monotonic()
            send("progress", agent_steps=agent_steps)

    try:
        opened = Study(study)
        train_group(
            opened,
            open_group(opened, group),
            on_progress=on_progress,
            on_row=lambda index, row, phase: send(
                "row", run=index, epoch=row["epoch"], score=phase.mean, games=len(phase.scores)
            ),
            on_note=lambda text: send("note", text=text),
            on_resumed=lambda steps, notes, made: send("resumed", agent_steps=steps, notes=notes, provenance=made),
            on_phase=resolve(on_phase, "on_phase") if isinstance(on_phase, str) else on_phase,
            on_stop=lambda: send("stop"),
            inexact=inexact,
        )
    except Stopped:
        return EXIT_CODE
    except KeyboardInterrupt:
        send("died", reason="stopped", report=traceback.format_exc())
        return EXIT_CODE
    except Diverged:
        return 0
    except Refused as error:
        send("refused", reason=str(error), report=traceback.format_exc())
        return 1
    except BaseException as error:
        send("died", reason=in_a_line(error), report=traceback.format_exc(), raised=True)
        return 1
    return 0


def _take_output() -> TextIO:
    """Returns standard output, for this module alone; whatever else is printed goes to standard error.

    It begins with a new line: what Python's own start printed may have ended within one.
    """
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with suppress(OSError):
        print(file=output, flush=True)
    return output


def _sender(output: TextIO) -> Callable[..., None]:
    def send(kind: str, **facts: Any) -> None:
        with suppress(OSError):  # nobody listens any more: the end of standard input says so too
            print(json.dumps({"kind": kind, **facts}), file=output, flush=True)

    return send


def _watch_input() -> None:
    """Asks the main thread to stop when a line arrives or the input ends. Reading the descriptor holds no lock."""
    waited_for = os.read(0, 1)
    asked.set()
    if waited_for:
        while os.read(0, 1):
            pass  # until whoever asked has left, and does not wait for the state to be saved
    else:
        time.sleep(LONGEST_STOP)  # nobody is left to end what hangs, which would hold its group for ever
    os._exit(EXIT_CODE)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
