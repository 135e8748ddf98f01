"""A command line in an empty directory, and a run that was made on it."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from softbellman import cli

from ..offline import blocked

TINY = [
    *("--steps", "300", "--loop.epoch-steps", "150", "--loop.test-steps", "200", "--loop.held-out-states", "320"),
    *("--loop.gradient-batches", "2", "--learner.replay-start-steps", "100", "--learner.target-period-updates", "20"),
]
TRAIN = ["train", "gym/CartPole-v1", "--operator", "softmax:5", "--seed", "3", *TINY]
COMPARE = [
    *("compare", "gym/CartPole-v1", "--operators", "max", "softmax:5", "--seeds", "3", "7", *TINY),
    *("--loop.block-width", "2", "--workers", "2", "--threads", "1"),
]
MAIN = "from softbellman.cli import main; main()"


def run_alone(folder, *words, code=MAIN, hash_seed="1"):
    """Runs a command line in a process and a directory of its own; gives its output.

    It must succeed in silence, and neither it nor a process that it starts may reach for another machine.
    """
    with tempfile.TemporaryDirectory() as place:
        process = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=folder,
            env=blocked(Path(place)) | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (process.returncode, process.stderr) == (0, "")
        assert not (Path(place) / "reached").exists()
    return process.stdout


def ours(statement):
    """A command of softbellman's own that runs a statement: what it raises is no user's fault."""
    space = {"Path": Path}
    exec(compile(f"def command(_):\n    {statement}", cli.__file__, "exec"), space)
    return space["command"]


@pytest.fixture
def softbellman(tmp_path, monkeypatch, capsys):
    """Runs a command line in an empty directory; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NPROC", "2")
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        try:
            code = cli.run([str(word) for word in words])
        except SystemExit as end:  # after printing help
            code = end.code or 0
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def compared(tmp_path_factory):
    """A comparison on CartPole, made on the command line by processes of its own, and what was printed."""
    folder = tmp_path_factory.mktemp("compared")
    return folder / "study", run_alone(folder, *COMPARE, "--log", "tensorboard", "--out", "study")


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of CartPole, made on the command line, and what was printed."""
    folder = tmp_path_factory.mktemp("trained")
    return folder / "study", run_alone(folder, *TRAIN, "--out", "study")
