"""One process at a time, on one machine and between machines: those gone hold nothing, those alive lose nothing."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from softbellman.study import locks
from softbellman.study.locks import Held, Lost, locked

HOLDER = """
    import json, sys, time
    from pathlib import Path
    from softbellman.study import locks

    locks.BEAT = 0.1
    facts = locks._facts
    locks._facts = lambda pid: facts(pid) | json.loads(sys.argv[2])
    with locks.locked(Path(sys.argv[1])) as lease:
        print("locked", flush=True)
        while True:
            time.sleep(0.1)
            try:
                lease.confirm()
            except locks.Lost as error:
                print(error, flush=True)
                break
"""
ELSEWHERE = {"space": "another boot, or another container", "host": "node7"}


@pytest.fixture
def holder(tmp_path):
    """Begins a process that holds the lock of a directory, on this machine or, as it says, on another."""
    begun = []

    def begin(facts):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path), json.dumps(facts)],
            stdout=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        assert process.stdout.readline() == "locked\n"
        return process

    yield begin
    for process in begun:
        process.kill()
        process.wait()
        process.stdout.close()


def refused_until(until, folder):
    """Waits for the lock of a directory up to that moment, and has not got it by then."""

    def wait(_):
        if time.monotonic() > until:
            raise InterruptedError

    with pytest.raises(InterruptedError), locked(folder, wait):
        pass


def lease_of(folder):
    return max(folder.glob(".lock.*"), key=lambda path: int(path.name.split(".")[2]))


def beating(folder):
    return [thread for thread in threading.enumerate() if str(folder) in thread.name]


def test_a_second_process_is_refused_and_a_lock_given_back_is_free(tmp_path):
    with locked(tmp_path) as lease:
        assert lease.notes == [] and os.listdir(tmp_path) == [".lock.1"]
        said = rf"trained by another process \(process {os.getpid()} on "
        for _ in range(2):
            with pytest.raises(Held, match=said), locked(tmp_path):
                pass
    assert os.listdir(tmp_path) == [".lock.1.free"]
    with locked(tmp_path):
        assert os.listdir(tmp_path) == [".lock.2"]


def test_who_waits_is_told_who_holds_it_and_may_stop_to_wait(tmp_path):
    waited = []

    def until_told(holder):
        waited.append(holder)
        if len(waited) == 3:
            raise InterruptedError

    with locked(tmp_path), pytest.raises(InterruptedError), locked(tmp_path, until_told):
        pass
    assert len(waited) == 3 and waited[0].startswith(f"process {os.getpid()} on ")


def test_of_many_at_once_one_has_it_at_a_time(tmp_path):
    inside, most, turns = [], [], []

    def take(number):
        for _ in range(5):
            with locked(tmp_path, lambda _: time.sleep(0.001)):
                inside.append(number)
                most.append(len(inside))
                time.sleep(0.001)
                inside.remove(number)
                turns.append(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take, range(8)))
    assert set(most) == {1} and len(turns) == 40


def test_a_killed_process_of_this_machine_is_in_nobodys_way_at_once(holder, tmp_path):
    process = holder({})
    with pytest.raises(Held, match=f"process {process.pid} on "), locked(tmp_path):
        pass
    process.kill()
    process.wait()
    began = time.monotonic()
    with locked(tmp_path):
        assert time.monotonic() - began < locks.LEASE / 4


def test_one_of_this_machine_that_sleeps_keeps_its_lock(holder, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "LEASE", 0.3)
    process = holder({})
    process.send_signal(signal.SIGSTOP)
    until = time.monotonic() + 1
    refused_until(until, tmp_path)


def test_one_of_another_machine_that_lives_keeps_its_lock(holder, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "LEASE", 2.0)
    process, until = holder(ELSEWHERE), time.monotonic() + 4
    with pytest.raises(Held, match=f"process {process.pid} on node7"), locked(tmp_path):  # seen to live
        pass
    refused_until(until, tmp_path)


def test_one_of_another_machine_that_died_holds_it_for_a_lease_and_no_longer(holder, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "LEASE", 1.0)
    process = holder(ELSEWHERE)
    process.kill()
    process.wait()
    began = time.monotonic()
    with locked(tmp_path):
        assert 1.0 <= time.monotonic() - began < 10
        assert [path.name for path in tmp_path.iterdir()] == [".lock.2"]


def test_one_that_was_cut_off_finds_out_before_it_writes_again(holder, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "LEASE", 1.0)
    process = holder(ELSEWHERE)
    process.send_signal(signal.SIGSTOP)
    with locked(tmp_path):
        process.send_signal(signal.SIGCONT)
        assert "another process has taken over" in process.stdout.readline()
        assert process.wait() == 0
        with pytest.raises(Held), locked(tmp_path):  # giving back what was lost takes nothing from its holder
            pass


def test_one_whose_directory_was_made_anew_has_lost_it_and_takes_nothing_from_its_holder(tmp_path):
    folder = tmp_path / "group"
    folder.mkdir()
    with locked(folder) as first:
        shutil.rmtree(folder)
        folder.mkdir()
        with locked(folder) as second:
            with pytest.raises(Lost, match="another process has taken over"):
                first.confirm()
            first.give_back()
            second.confirm()
            assert os.listdir(folder) == [".lock.1"]


def test_a_lease_that_is_lost_is_known_without_a_look(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "BEAT", 0.01)
    with locked(tmp_path) as lease:
        lease.check()
        lease_of(tmp_path).rename(tmp_path / ".lock.2")
        (thread,) = beating(tmp_path)
        thread.join(10)
        with pytest.raises(Lost, match=f"has taken over {tmp_path}$"):  # it was never silent
            lease.check()


def test_a_lease_whose_file_alone_is_removed_is_taken_again(tmp_path):
    with locked(tmp_path) as lease:
        lease_of(tmp_path).unlink()
        lease.confirm()
        assert os.listdir(tmp_path) == [".lock.2"]
        with pytest.raises(Held), locked(tmp_path):
            pass
    assert os.listdir(tmp_path) == [".lock.2.free"]


@pytest.mark.parametrize("there", [".lock.1", ".lock.1.free", ".lock.2", ".lock.3.free"])
def test_a_lease_in_whose_place_another_was_is_lost(there, tmp_path):
    with locked(tmp_path) as lease:
        lease_of(tmp_path).unlink()
        (tmp_path / there).write_text("another's")
        with pytest.raises(Lost, match=f"another process has taken over {tmp_path}$"):
            lease.confirm()
        assert os.listdir(tmp_path) == [there]


@pytest.mark.parametrize("what", ["moved", "removed", "made anew"])
def test_a_directory_that_is_gone_is_no_other_processs(what, tmp_path):
    folder = tmp_path / "group"
    folder.mkdir()
    with locked(folder) as lease:
        folder.rename(tmp_path / "moved") if what == "moved" else shutil.rmtree(folder)
        if what == "made anew":
            folder.mkdir()
        for _ in range(2):
            with pytest.raises(Lost, match=f"^{folder} was moved or removed while it was trained$"):
                lease.confirm()
    assert folder.exists() == (what == "made anew") and not list(folder.glob("*"))


def test_who_was_silent_for_too_long_is_told_so(tmp_path, monkeypatch):
    with locked(tmp_path) as lease:
        monkeypatch.setattr(locks, "_now", lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + locks.LEASE)
        lease_of(tmp_path).rename(tmp_path / ".lock.2")
        for tell in (lease.confirm, lease.check):
            with pytest.raises(Lost, match=f"has taken over {tmp_path}: this one was silent for over 60 s$"):
                tell()


@pytest.mark.parametrize("code", [errno.EIO, errno.ETIMEDOUT, errno.EACCES])
def test_a_file_system_that_does_not_answer_takes_no_lock(code, tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(code, os.strerror(code))

    with locked(tmp_path) as lease:
        with monkeypatch.context() as patched:
            patched.setattr(os, "utime", fails)
            with pytest.raises(OSError, match=re_of(code)):
                lease.confirm()
            lease.check()
        lease.confirm()


def re_of(code):
    return rf"\[Errno {code}\]"


@pytest.mark.parametrize(
    ("changes", "is_over"),
    [
        ({"began": "1"}, True),  # the number was given to another process since
        ({"file": 1}, True),  # a copy of the study, made while it was trained
        ({"pid": 2**22 + 1}, True),
        ({"space": "another boot"}, False),
        ({"space": "another boot", "began": "1", "pid": 2**22 + 1}, False),
        ({"space": ""}, False),  # a system that does not tell
    ],
)
def test_only_what_is_known_to_be_over_is_taken_at_once(changes, is_over, tmp_path, monkeypatch):
    with locked(tmp_path):
        path = lease_of(tmp_path)
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        holder = locks._newest(tmp_path)
        assert holder is not None and holder.is_over == is_over
        path.unlink()


@pytest.fixture
def hidden(monkeypatch):
    """Hides a process as `hidepid` does those of another user: it is not shown, and takes no signal."""

    def hide(pid):
        facts, access, kill = locks._facts, os.access, os.kill
        monkeypatch.setattr(locks, "_facts", lambda asked: facts(asked) | ({"began": None} if asked == pid else {}))
        monkeypatch.setattr(os, "access", lambda path, mode: f"/{pid}/" not in path and access(path, mode))

        def refused(asked, number):
            kill(asked, number)  # of a process that is over it says so
            if (asked, number) == (pid, 0):
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "kill", refused)

    return hide


def test_one_of_this_machine_that_is_hidden_keeps_its_lock_while_it_lives(holder, tmp_path, monkeypatch, hidden):
    monkeypatch.setattr(locks, "LEASE", 2.0)
    process, until = holder({}), time.monotonic() + 4
    hidden(process.pid)
    assert locks.is_held(tmp_path)
    with pytest.raises(Held, match=f"process {process.pid} on "), locked(tmp_path):
        pass
    refused_until(until, tmp_path)
    process.send_signal(signal.SIGSTOP)  # it can't be seen to live any more
    began = time.monotonic()
    with locked(tmp_path):
        assert time.monotonic() - began >= 1.5


def test_one_of_this_machine_that_was_hidden_and_is_over_is_in_nobodys_way(holder, tmp_path, hidden):
    process = holder({})
    hidden(process.pid)
    process.kill()
    process.wait()
    assert not locks.is_held(tmp_path)
    began = time.monotonic()
    with locked(tmp_path):
        assert time.monotonic() - began < locks.LEASE / 4


def test_a_copy_of_a_directory_is_free_while_the_other_is_trained(tmp_path):
    (tmp_path / "one").mkdir()
    with locked(tmp_path / "one"):
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        with locked(tmp_path / "two"):
            pass


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '"x"', '{"pid": "x", "host": 3}', '{"pid": 1}'])
def test_a_file_that_cant_be_read_is_in_the_way_for_a_lease_and_no_longer(content, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "LEASE", 0.3)
    (tmp_path / ".lock.4").write_text(content)
    began, said = time.monotonic(), []
    with locked(tmp_path, said.append):
        assert time.monotonic() - began >= 0.3 and os.listdir(tmp_path) == [".lock.5"]
    assert f"not known which, by {tmp_path / '.lock.4'}" in said[0]


def test_who_comes_late_with_an_old_belief_takes_nothing(tmp_path):
    with locked(tmp_path) as first:
        pass
    with locked(tmp_path) as third:
        assert locks._claim(tmp_path, 1) is None and locks._claim(tmp_path, 2) is None
        third.confirm()
        assert first is not third and os.listdir(tmp_path) == [".lock.2"]


def test_a_full_disk_leaves_no_lease(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # no file can be written
    try:
        with pytest.raises(OSError, match="File too large"), locked(tmp_path):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []


def test_a_lease_given_back_is_touched_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "BEAT", 0.001)
    for _ in range(50):
        with locked(tmp_path):
            pass
    assert [path.name for path in tmp_path.iterdir()] == [".lock.50.free"]
    for thread in beating(tmp_path):
        thread.join(10)
    assert not beating(tmp_path)


def test_a_directory_that_is_removed_is_not_made_again(tmp_path):
    folder = tmp_path / "group"
    folder.mkdir()
    with locked(folder):
        shutil.rmtree(folder)
    assert not folder.exists()
