"""Checkpoint files: whole or not at all, checked before they are believed, without code, readable by anyone."""

import errno
import json
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softbellman.training import checkpoint
from softbellman.training.checkpoint import Checkpoint, Checkpoints, Damaged, State, Unreadable, save, sync_folder

RNG = np.random.default_rng(0)
STATE = State(
    {"agent_steps": 12, "rows": ["a,b\n"], "nothing": None},
    {
        "frames": [RNG.integers(256, size=(3, 5), dtype=np.uint8), RNG.integers(256, size=(4, 5), dtype=np.uint8)],
        "weights": [RNG.standard_normal((2, 3), dtype=np.float32)],
        "valid": [np.array([True, False])],
        "scalar": [np.array(7, np.int32)],
        "empty": [np.zeros((0, 4), np.uint16)],
    },
)


@pytest.fixture
def path(tmp_path):
    save(tmp_path / "state.safetensors", STATE)
    return tmp_path / "state.safetensors"


def test_a_link_is_followed_and_stays(path):
    link = path.with_name("link")
    link.symlink_to(path)
    before = path.read_bytes()
    save(link, State({"agent_steps": 13}, {}))
    assert link.is_symlink() and path.read_bytes() != before
    assert sorted(each.name for each in path.parent.iterdir()) == ["link", "state.safetensors"]


def test_what_is_saved_is_read(path):
    read = Checkpoint(path)
    assert read.facts == STATE.facts
    for name, pieces in STATE.arrays.items():
        expected = np.concatenate(pieces) if pieces[0].ndim else pieces[0]
        found = read.array(name)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
    assert read.names == set(STATE.arrays)


def test_arrays_are_read_into_pieces_of_any_lengths(path):
    pieces = [np.zeros((1, 5), np.uint8), np.zeros((6, 5), np.uint8)]
    Checkpoint(path).read_into("frames", pieces)
    np.testing.assert_array_equal(np.concatenate(pieces), np.concatenate(STATE.arrays["frames"]))


@pytest.mark.parametrize("piece", [np.zeros((8, 5), np.uint8), np.zeros((7, 5), np.int32), np.zeros(35, np.uint8)])
def test_an_array_of_another_size_or_kind_is_refused(path, piece):
    with pytest.raises(Damaged, match=r"frames is uint8 \[7, 5\], and"):
        Checkpoint(path).read_into("frames", [piece])


def test_an_array_that_is_not_there_is_named(path):
    with pytest.raises(Damaged, match="it has no array target"):
        Checkpoint(path).array("target")


def test_l37_the_safetensors_package_reads_it_and_there_is_no_code_in_it(path):
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        assert set(file.keys()) == set(STATE.arrays)
        np.testing.assert_array_equal(file.get_tensor("weights"), STATE.arrays["weights"][0])
        assert json.loads(file.metadata()["facts"]) == STATE.facts
    assert not path.read_bytes().startswith(b"\x80"), "a pickle"


def test_l37_a_file_of_another_format_says_which_it_is_and_which_are_read(path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    with pytest.raises(Unreadable, match="its format is 1, and this version reads 2"):
        Checkpoint(path)


@pytest.mark.parametrize("left", [0, 5, 8, 100, -1, -40])
def test_l21_a_file_cut_short_is_noticed(path, left):
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(Damaged):
        Checkpoint(path)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_one_altered_byte_is_noticed_wherever_it_is(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    save(folder / "altered.safetensors", STATE)
    content = bytearray((folder / "altered.safetensors").read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    (folder / "altered.safetensors").write_bytes(content)
    with pytest.raises(Damaged):
        Checkpoint(folder / "altered.safetensors")


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(
                    st.sampled_from(
                        ["__metadata__", "a", "dtype", "shape", "data_offsets", "facts", "format", "sha256"]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        ),
    ),
    st.integers(-5, 5),
)
def test_any_bytes_are_refused_with_a_reason(tmp_path_factory, content, slip):
    """Also a header that is JSON, with names and sizes that could be right: no size in a file is believed."""
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    if not isinstance(content, bytes):
        text = json.dumps(content).encode()
        content = max(0, len(text) + slip).to_bytes(8, "little") + text
    path.write_bytes(content)
    with pytest.raises(Damaged):
        Checkpoint(path)


@pytest.mark.parametrize("length", [2**40, 2**63, 2**64 - 1])
def test_a_size_that_the_file_does_not_have_is_not_allocated(path, length):
    content = path.read_bytes()
    path.write_bytes(length.to_bytes(8, "little") + content[8:])
    with pytest.raises(Damaged, match="says that its header alone has"):
        Checkpoint(path)


def test_l21_a_full_disk_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(path, State({"other": True}, {}))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.ENOSYS], ids=errno.errorcode.get)
def test_a_file_system_that_cant_sync_directories_does_without(code, path, monkeypatch):
    sync, synced = os.fsync, []

    def only_files(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        synced.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    save(path, State({"other": True}, {}))
    assert Checkpoint(path).facts == {"other": True} and len(synced) == 1
    assert os.listdir(path.parent) == [path.name]
    assert not sync_folder(path.parent)


def test_a_directory_that_may_be_written_and_not_read_is_written(path, monkeypatch):
    opened = os.open

    def unreadable(name, *rest):
        if os.path.isdir(name):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(name, *rest)

    monkeypatch.setattr(os, "open", unreadable)
    save(path, State({"other": True}, {}))
    assert Checkpoint(path).facts == {"other": True}


def test_a_disk_that_fails_to_sync_a_directory_is_an_error(path, monkeypatch):
    assert sync_folder(path.parent)

    def fail(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        sync_folder(path.parent)


def test_l22_the_newest_few_are_kept(tmp_path):
    kept = Checkpoints(tmp_path / "some", keep=2)
    for step in (5, 10, 15):
        kept.save(State({"step": step}, {}), step)
    assert sorted(os.listdir(tmp_path / "some")) == ["step-000000000010.safetensors", "step-000000000015.safetensors"]
    only = Checkpoints(tmp_path / "one", keep=1)
    for step in (5, 10):
        only.save(State({"step": step}, {}), step)
    assert os.listdir(tmp_path / "one") == ["step-000000000010.safetensors"]


def test_l21_the_one_before_a_damaged_one_is_used_and_told_of(tmp_path):
    kept, notes = Checkpoints(tmp_path, keep=2), []
    for step in (5, 10):
        kept.save(State({"step": step}, {}), step)
    newest = tmp_path / "step-000000000010.safetensors"
    newest.write_bytes(newest.read_bytes()[:-3])
    again = Checkpoints(tmp_path, keep=1)
    found = again.newest(notes.append)
    assert found is not None and found.facts == {"step": 5}
    assert len(notes) == 1 and str(newest) in notes[0] and "bytes" in notes[0]
    # The damaged file, though its number is higher, is what the next save removes, and not the good one.
    again.save(State({"step": 7}, {}), 7)
    assert os.listdir(tmp_path) == ["step-000000000007.safetensors"]


def test_one_that_may_be_whole_is_not_passed_over(tmp_path, monkeypatch):
    """The next save would remove it: the disk does not answer now, or a later version wrote it."""
    kept, notes = Checkpoints(tmp_path, keep=2), []
    for step in (5, 10):
        kept.save(State({"step": step}, {}), step)
    newest = tmp_path / "step-000000000010.safetensors"
    opened, listed = Path.open, os.listdir

    def unanswered(path, *arguments):
        if path in (newest, tmp_path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return (opened if arguments else listed)(path, *arguments)

    for module, name in ((Path, "open"), (os, "listdir")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, unanswered)
            with pytest.raises(Unreadable, match=f"{tmp_path}.* can't be read: Input/output error; try again"):
                Checkpoints(tmp_path, keep=2).newest(notes.append)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 0)
        with pytest.raises(Unreadable, match=f"{newest} can't be read: its format is 1.*the version that made it"):
            Checkpoints(tmp_path, keep=2).newest(notes.append)
    assert notes == [] and len(os.listdir(tmp_path)) == 2


def test_who_has_lost_the_place_meanwhile_moves_and_removes_nothing(tmp_path):
    """It takes long to write gigabytes: whoever took over may have checkpoints of its own there by then."""
    mine, other = Checkpoints(tmp_path, keep=1), Checkpoints(tmp_path, keep=2)
    mine.save(State({"of": "me"}, {}), 5)
    looks = []

    def lose(look):
        def confirm():
            looks.append(sorted(os.listdir(tmp_path)))
            if len(looks) == look:
                raise Lost

        return confirm

    class Lost(ValueError):
        pass

    other.save(State({"of": "another"}, {}), 10)
    before = sorted(os.listdir(tmp_path))
    for look, taken in ((1, set()), (2, {"step-000000000020.safetensors"})):
        looks.clear()
        with pytest.raises(Lost):
            mine.save(State({"of": "me"}, {}), 20, lose(look))
        assert set(os.listdir(tmp_path)) == {*before, *taken}
    assert f".step-000000000020.safetensors.{os.getpid()}" in looks[0]  # it was written by then


def test_without_a_whole_checkpoint_there_is_none(tmp_path):
    assert Checkpoints(tmp_path / "nowhere", keep=1).newest(print) is None


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / ".step-000000000003.safetensors.999").write_bytes(b"half")
    Checkpoints(tmp_path, keep=1).save(State({}, {}), 4)
    assert os.listdir(tmp_path) == ["step-000000000004.safetensors"]


SAVING = """
    import sys
    from pathlib import Path

    import numpy as np

    from softbellman.training.checkpoint import Checkpoints, State

    kept = Checkpoints(Path(sys.argv[1]), keep=1)
    kept.newest(lambda note: sys.exit(note))
    for step in range(int(sys.argv[2]), 10**9):
        frames = np.full((50, 100_000), step % 256, np.uint8)
        kept.save(State({"step": step}, {"frames": [frames[:20], frames[20:]]}), step)
        print(step, flush=True)
"""


def test_l21_twenty_kills_while_saving_lose_nothing(tmp_path):
    """A process that does nothing but save is killed at 20 random moments; each time the last saved one is there."""
    rng, start = np.random.default_rng(1), 0
    for _ in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SAVING), str(tmp_path), str(start)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        saved = int(process.stdout.readline())
        try:
            process.wait(rng.uniform(0, 0.05))
        except subprocess.TimeoutExpired:
            process.kill()
        saved = max([saved, *map(int, process.stdout.read().split())])
        process.stdout.close()
        assert process.wait() == -9
        found = Checkpoints(tmp_path, keep=1).newest(pytest.fail)
        assert found is not None and found.facts["step"] in (saved, saved + 1)
        assert set(np.unique(found.array("frames"))) == {found.facts["step"] % 256}
        start = found.facts["step"] + 1


MEMORY = """
    import sys
    from pathlib import Path

    import numpy as np

    from softbellman.training.checkpoint import Checkpoint, State, save

    def peak():  # kilobytes; not ru_maxrss, which counts the process that started this one
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(status["VmHWM"].split()[0])

    frames = np.ones((int(sys.argv[2]), 84, 84), np.uint8)
    before = peak()
    save(Path(sys.argv[1]), State({}, {"frames": [frames]}))
    Checkpoint(Path(sys.argv[1])).read_into("frames", [frames])
    print(peak() - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not tell a process's peak of memory"
)
@pytest.mark.parametrize(
    "frames",
    [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)],
)
def test_l22_saving_and_reading_take_no_second_copy_of_the_replay(tmp_path, frames):
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEMORY), str(tmp_path / "large.safetensors"), str(frames)],
        capture_output=True,
        text=True,
        check=True,
    )
    kilobytes = int(process.stdout)
    assert kilobytes < 60_000 if frames == 20_000 else kilobytes < 200_000
    assert (tmp_path / "large.safetensors").stat().st_size >= frames * 84 * 84
