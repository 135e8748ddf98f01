"""Check that other processes can make the environments and networks."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from softbellman import envs
from softbellman.config import Config
from softbellman.envs.options import EnvOptions
from softbellman.references import REMEDY, is_reference, resolve
from softbellman.running.engines.local import python_path

_made_elsewhere: set[str] = set()  # what a process of its own could make, as it was asked for


def require_elsewhere(environments: Sequence[str], config: Config) -> None:
    """Refuses environments and a network of a user's own that a new process cannot make.

    A new process knows no id that a script registered, and no function that is in no file.

    Raises:
        ValueError: with what the process said, and what to do.
    """
    asked = [[name, config.env.options] for name in environments if envs.family_of(name).foreign is not None]
    asked += [[config.network.kind, None]] if is_reference(config.network.kind) else []
    asked = [one for one in asked if json.dumps(one) not in _made_elsewhere]
    if not asked:
        return
    done = subprocess.run(
        [sys.executable, "-P", "-m", "softbellman.running.elsewhere", json.dumps(asked)],
        env=os.environ | {"PYTHONPATH": python_path()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    last_words = next(iter(reversed(done.stderr.splitlines())), f"exit code {done.returncode}")
    answers = done.stdout.splitlines()[-1:]  # what was printed while Python started is none
    reasons = json.loads(answers[0]) if answers and not done.returncode else [last_words] * len(asked)
    for one, reason in zip(asked, reasons, strict=True):
        if reason is not None:
            raise ValueError(f"{one[0]} can't be made by the processes that train ({reason}); {_remedy(*one)}")
    _made_elsewhere.update(json.dumps(one) for one in asked)


def _remedy(name: str, options: dict[str, Any] | None) -> str:
    if options is None:
        return REMEDY
    return (envs.family_of(name).foreign or "").format(name=(name.partition("/")[2] or name).rpartition(":")[2])


def _reason(name: str, options: dict[str, Any] | None) -> str | None:
    """Tries to find a network or to make an environment, and returns why that could not be done."""
    try:
        if options is None:
            resolve(name, "network.kind")
        else:
            envs.make(name, seed=0, protocol=EnvOptions(options=options)).close()
    except Exception as error:  # it may fail in any way of its own
        return str(error)
    return None


if __name__ == "__main__":
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever an environment prints is no answer
    reasons = json.dumps([_reason(*one) for one in json.loads(sys.argv[1])])
    print(f"\n{reasons}", file=answer, flush=True)  # what was printed before may have ended within a line
