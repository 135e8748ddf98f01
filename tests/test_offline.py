"""An attempt to reach another machine is seen: no command that the tests run as a process of its own makes one."""

import subprocess
import sys

import pytest

from .offline import blocked


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
    subprocess.run([sys.executable, "-c", nested], env=blocked(tmp_path), capture_output=True, check=False)
    assert (tmp_path / "reached").exists()
