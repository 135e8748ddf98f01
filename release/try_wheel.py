"""Commands and examples of the README, run from a wheel in an empty environment, for each Python that is named.

    python release/try_wheel.py dist/*.whl python3.11 python3.12

Training is cut short, and is dry where it would take hours; nothing else is changed.
"""

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
EXTRA = "atari"
SHORT = [
    "--steps",
    "2000",
    "--loop.epoch-steps",
    "1000",
    "--loop.test-steps",
    "500",
    "--learner.replay-start-steps",
    "500",
]
ADDED = {"compare": ["--dry-run"], "train gym/CartPole-v1": SHORT, "paper": ["--dry-run"]}
PATIENCE = 1800  # seconds for a command


def blocks(language: str) -> list[str]:
    """Lists the blocks of code of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """Lists the commands, with what makes them short; not those whose comment says that they need another extra."""
    lines = "\n".join(blocks("bash")).replace("\\\n", " ").splitlines()
    own = [line for line in lines if line.startswith("softbellman ") and "needs softbellman[" not in line]
    split = [shlex.split(line, comments=True) for line in own]
    return [words + _added(" ".join(words[1:])) for words in split]


def _added(command: str) -> list[str]:
    return [word for start, words in ADDED.items() if command.startswith(start) for word in words]


def examples() -> list[str]:
    """Lists the examples of Python, but for the one that trains for minutes."""
    return [block for block in blocks("python") if ".compare(" not in block]


def try_with(python: str, wheel: Path, folder: Path) -> list[str]:
    """Runs everything in a new environment in a folder, and says what failed."""
    run = subprocess.run
    run([python, "-m", "venv", folder / "venv"], check=True)
    binaries = folder / "venv" / "bin"
    pip = [binaries / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run([*pip, "install", f"{wheel.resolve()}[{EXTRA}]"], check=True)
    work = folder / "work"
    work.mkdir()
    calls = [[str(binaries / "python"), "-c", "import softbellman; print(softbellman.__file__)"]]
    calls += [[str(binaries / words[0]), *words[1:]] for words in commands()]
    calls += [[str(binaries / "python"), "-c", block] for block in examples()]
    failed = []
    for call in calls:
        shown = shlex.join([Path(call[0]).name, *call[1:]]).splitlines()[0]
        try:
            done = run(call, cwd=work, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
            ok, told = done.returncode == 0, done.stderr
        except subprocess.TimeoutExpired:
            ok, told = False, f"no end after {PATIENCE} s"
        print(f"{'ok    ' if ok else 'FAILED'} {shown}", flush=True)
        if not ok:
            print(told[-2000:], flush=True)
            failed.append(shown)
    return failed


def main() -> int:
    """Tries a wheel with each Python."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("pythons", nargs="+")
    arguments = parser.parse_args()
    failed = []
    for python in arguments.pythons:
        print(subprocess.run([python, "-V"], check=True, capture_output=True, text=True).stdout.strip(), flush=True)
        with tempfile.TemporaryDirectory() as folder:
            failed += try_with(python, arguments.wheel, Path(folder))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
