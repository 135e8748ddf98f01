"""Environments that only this process knows are refused: the processes that train could not make them."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from softbellman import envs
from softbellman.running.local import python_path

_made_elsewhere: set[str] = set()  # names that a process of its own could make


def require_elsewhere(environments: Sequence[str]) -> None:
    """Refuses environments of Gymnasium that a new process cannot make: it knows no id that a script registered.

    Raises:
        ValueError: with what the process said, and what to do.
    """
    names = [name for name in environments if name.startswith("gym/") and name not in _made_elsewhere]
    if not names:
        return
    done = subprocess.run(
        [sys.executable, "-P", "-m", "softbellman.running.elsewhere", *names],
        env=os.environ | {"PYTHONPATH": python_path()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    last_words = next(iter(reversed(done.stderr.splitlines())), f"exit code {done.returncode}")
    answers = done.stdout.splitlines()[-1:]  # what was printed while Python started is none
    reasons = json.loads(answers[0]) if answers and not done.returncode else dict.fromkeys(names, last_words)
    _made_elsewhere.update(set(names) - set(reasons))
    for name, reason in reasons.items():
        plain_id = name.removeprefix("gym/").rpartition(":")[-1]
        raise ValueError(
            f"{name} can't be made by the processes that train ({reason}); they know what a module registers when it "
            f"is imported, not what a script does: put the class and its registration into a module, and name both, "
            f"as in gym/my_module:{plain_id}"
        )


def _reasons(names: Sequence[str]) -> dict[str, str]:
    """Tries to make each environment, and returns why one could not be made, by name."""
    reasons = {}
    for name in names:
        try:
            envs.make(name, seed=0).close()
        except Exception as error:  # it may fail in any way of its own
            reasons[name] = str(error)
    return reasons


if __name__ == "__main__":
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever an environment prints is no answer
    print(json.dumps(_reasons(sys.argv[1:])), file=answer, flush=True)
