"""Nothing of a user's leaves the machine: training, comparing, reporting and a card with sockets blocked."""

import os
import subprocess
import sys
import textwrap

import pytest

from .offline import OFFLINE

TINY = [
    *("--steps", "300", "--loop.epoch-steps", "100", "--loop.test-steps", "100", "--loop.held-out-states", "32"),
    *("--loop.gradient-batches", "1", "--learner.replay-start-steps", "64", "--quiet"),
]
COMMANDS = [
    ["train", "gym/CartPole-v1", "--out", "trained", "--log", "tensorboard", *TINY],
    ["compare", "gym/CartPole-v1", "--operators", "max", "softmax:5", "--seeds", "1", "--out", "compared", *TINY],
    ["resume", "compared"],
    ["report", "compared"],
    ["report", "--follow", "compared"],
    ["evaluate", "trained", "--episodes", "1"],
    ["card", "trained", "--out", "card"],
    ["doctor"],
]


def environment(folder):
    (folder / "sitecustomize.py").write_text(textwrap.dedent(OFFLINE))
    path = os.pathsep.join([str(folder), *sys.path])
    return os.environ | {"PYTHONPATH": path, "REACHED": str(folder / "reached")}


def test_no_command_reaches_another_machine(tmp_path):
    pytest.importorskip("tensorboardX")
    for words in COMMANDS:
        code = "from softbellman.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr)
        assert not (tmp_path / "reached").exists(), (words, (tmp_path / "reached").read_text())
    assert (tmp_path / "card" / "README.md").exists() and list(tmp_path.glob("trained/runs/*/*/*/tensorboard/events*"))


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.create_connection(('example.org', 80), 1)",
        "socket.socket().connect(('192.0.2.1', 80))",
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
        "urllib.request.urlopen('https://example.org', timeout=1)",
    ],
)
def test_an_attempt_would_be_seen(attempt, tmp_path):
    code = f"import socket, subprocess, sys, urllib.request\n{attempt}"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"  # as workers are started
    subprocess.run([sys.executable, "-c", nested], env=environment(tmp_path), capture_output=True, check=False)
    assert (tmp_path / "reached").exists()
