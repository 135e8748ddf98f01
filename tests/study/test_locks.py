"""One process at a time, also where the file system has no locks of its own."""

import errno
import fcntl
import json
import os
import re
import resource
import subprocess
import sys
import textwrap

import pytest

from softbellman.study.locks import CLAIM, Held, locked

NO_LOCKS = [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL]


def without_locks(monkeypatch, code=errno.ENOLCK):
    def flock(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_with_locks_nothing_is_weaker_and_a_second_process_is_refused(tmp_path):
    with locked(tmp_path) as weaker:
        assert weaker == [] and os.listdir(tmp_path) == [".lock"]
        with pytest.raises(Held, match=rf"trained by another process \(process {os.getpid()}\)"), locked(tmp_path):
            pass


@pytest.mark.parametrize("code", NO_LOCKS, ids=errno.errorcode.get)
def test_without_locks_a_file_keeps_others_out_and_that_is_said(code, tmp_path, monkeypatch):
    without_locks(monkeypatch, code)
    with locked(tmp_path) as weaker:
        assert len(weaker) == 1 and "has no locks; .lock.held there says who trains" in weaker[0]
        for _ in range(2):
            said = rf"process {os.getpid()} on .*\.lock\.held; if it is over, remove that file"
            with pytest.raises(Held, match=said), locked(tmp_path):
                pass
        waited = []

        def until_told(holder):
            waited.append(holder)
            if len(waited) == 3:
                raise InterruptedError

        with pytest.raises(InterruptedError), locked(tmp_path, until_told):
            pass
        assert len(waited) == 3 and waited[0].startswith(f"process {os.getpid()} on ")
    assert not (tmp_path / CLAIM).exists()
    with locked(tmp_path):  # free again
        pass


def test_a_lock_that_fails_for_another_reason_is_an_error(tmp_path, monkeypatch):
    without_locks(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"), locked(tmp_path):
        pass
    assert not (tmp_path / CLAIM).exists()


def test_without_locks_a_killed_process_is_in_nobodys_way_and_a_live_one_is(tmp_path, monkeypatch):
    code = f"""
        import errno, fcntl, time
        from pathlib import Path
        from softbellman.study.locks import locked

        def flock(*_):
            raise OSError(errno.ENOLCK, "none")

        fcntl.flock = flock
        with locked(Path({str(tmp_path)!r})):
            print("locked", flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    without_locks(monkeypatch)
    with pytest.raises(Held, match=f"process {process.pid} on "), locked(tmp_path):
        pass
    process.kill()
    process.communicate()
    with locked(tmp_path):
        assert json.loads((tmp_path / CLAIM).read_text())["pid"] == os.getpid()


@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({"began": "1"}, True),  # the number was given to another process since
        ({"space": "another boot, or another container"}, False),
        ({"space": "another boot", "began": "1", "pid": 2**22 + 1}, False),
    ],
)
def test_without_locks_only_what_is_known_to_be_over_is_taken(changes, taken, tmp_path, monkeypatch):
    without_locks(monkeypatch)
    with locked(tmp_path):
        facts = json.loads((tmp_path / CLAIM).read_text())
    (tmp_path / CLAIM).write_text(json.dumps(facts | changes))
    if taken:
        with locked(tmp_path):
            assert json.loads((tmp_path / CLAIM).read_text()) == facts
        return
    with pytest.raises(Held, match="if it is over, remove that file"), locked(tmp_path):
        pass
    (tmp_path / CLAIM).unlink()
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '"x"'])
def test_without_locks_a_file_that_cant_be_read_says_what_to_do(content, tmp_path, monkeypatch):
    without_locks(monkeypatch)
    (tmp_path / CLAIM).write_text(content)
    said = re.escape(f"by {tmp_path / CLAIM}; if it is over, remove that file")
    with pytest.raises(Held, match=said), locked(tmp_path):
        pass


def test_without_locks_a_full_disk_leaves_no_claim(tmp_path, monkeypatch):
    without_locks(monkeypatch)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # no file can be written
    try:
        with pytest.raises(OSError, match="File too large"), locked(tmp_path):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / CLAIM).exists()
