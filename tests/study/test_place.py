"""A place that can't be written is refused before any work, in one line that says what to do."""

import errno
import os
from pathlib import Path

import pytest

from softbellman.study.place import require_directory, require_file, require_new


@pytest.mark.parametrize("name", ["new", "new/deep/er", "empty"])
def test_new_and_empty_places_will_do_and_nothing_is_written(name, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    require_new(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    require_new(Path(name))
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


@pytest.mark.parametrize("name", ["file", "link"])
def test_a_file_is_no_place(name, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(ValueError, match="is there already and nothing is overwritten"):
        require_new(tmp_path / name)
    with pytest.raises(
        ValueError, match=rf"/study can't be written \(Not a directory: .*{name}\); name another .*--out"
    ):
        require_new(tmp_path / name / "study")


def test_a_link_that_leads_nowhere_or_round_and_round_is_no_place(tmp_path):
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "nowhere").symlink_to("gone/away")
    for name in ("round", "nowhere", "nowhere/study"):
        with pytest.raises(ValueError, match=r"can't be written \(.*\); name another directory with --out"):
            require_new(tmp_path / name)


def test_a_name_that_is_too_long_is_no_place(tmp_path):
    with pytest.raises(ValueError, match=r"can't be written \(File name too long\); name another directory with --out"):
        require_new(tmp_path / ("x" * 300))


@pytest.mark.parametrize(("flags", "reason"), [(0, "Permission denied"), (os.ST_RDONLY, "Read-only file system")])
@pytest.mark.parametrize("name", [".", "new/deep"])
def test_a_directory_that_may_not_be_written_is_named(name, flags, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: type("Status", (), {"f_flag": flags})())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"can't be written \({reason}.*\); name another directory with --out"):
        require_new(tmp_path / name)


def test_a_directory_that_may_not_be_entered_is_no_place(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(ValueError, match=r"can't be written \(Permission denied: .*\); name another"):
        require_new(tmp_path / "study")


def test_a_file_may_be_new_or_there_and_is_left_as_it_is(tmp_path):
    (tmp_path / "there").write_text("mine")
    for name in ("there", "new", "new/deep.csv"):
        require_file(tmp_path / name)
    require_directory(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"] and (tmp_path / "there").read_text() == "mine"


def test_a_file_that_cant_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "there").touch()
    with pytest.raises(ValueError, match=r"/dev/null can't be written \(it is no regular file\); name another file"):
        require_file(Path("/dev/null"))  # to replace it would make it a file for all
    for name, reason in ((".", "Is a directory"), ("there/x", "Not a directory: .*there")):
        with pytest.raises(ValueError, match=rf"can't be written \({reason}\); name another file with --out"):
            require_file(tmp_path / name)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for name in ("there", "new"):
        with pytest.raises(ValueError, match=rf"{name} can't be written \(Permission denied.*\); name another file"):
            require_file(tmp_path / name)
    with pytest.raises(ValueError, match=r"can't be written \(Permission denied\); name another directory with --out"):
        require_directory(tmp_path)
