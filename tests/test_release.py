"""A release: what wheel and source archive hold, where the version stands, which commands are tried from the wheel."""

import importlib.util
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import softbellman

ROOT = Path(__file__).resolve().parents[1]


def load(path: str):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


contents, try_wheel = load("release/contents.py"), load("release/try_wheel.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, archive


def test_the_wheel_holds_the_package_and_nothing_else(built):
    assert contents.faults_of_wheel(built[0]) == []


def test_the_archive_holds_what_the_tests_and_the_site_need(built):
    assert contents.faults_of_archive(built[1]) == []


@pytest.mark.parametrize(
    ("gone", "more", "expected"),
    [
        ("softbellman/py.typed", None, ["lacks softbellman/py.typed"]),
        (None, "tests/test_layers.py", ["has tests/test_layers.py"]),
        (None, "softbellman/left_over.py", ["has softbellman/left_over.py"]),
        ("licenses/LICENSE", None, ["lacks licenses/LICENSE"]),
    ],
)
def test_a_wheel_that_is_wrong_is_seen(built, tmp_path, gone, more, expected):
    wrong = tmp_path / "wrong.whl"
    with zipfile.ZipFile(built[0]) as right, zipfile.ZipFile(wrong, "w") as archive:
        for name in right.namelist():
            if gone is None or not name.endswith(gone):
                archive.writestr(name, right.read(name))
        if more:
            archive.writestr(more, "")
    assert contents.faults_of_wheel(wrong) == expected


def test_an_archive_without_its_licence_is_seen(built, tmp_path):
    wrong = tmp_path / "wrong.tar.gz"
    with tarfile.open(built[1]) as right, tarfile.open(wrong, "w:gz") as archive:
        for member in right:
            if not member.name.endswith("/LICENSE"):
                archive.addfile(member, right.extractfile(member))
    assert contents.faults_of_archive(wrong) == ["lacks LICENSE"]


def test_the_version_is_the_released_one_or_the_next_in_development():
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    changelog = (ROOT / "CHANGELOG.md").read_text()
    unreleased, released = re.search(
        r"^## \[Unreleased\]\n(.*?)^## \[(\d\S*)\]", changelog, re.MULTILINE | re.DOTALL
    ).groups()
    assert citation and citation[1] == released
    if not unreleased.strip():
        assert softbellman.__version__ == released
        return
    development = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)\.dev0", softbellman.__version__)
    assert development and tuple(map(int, development.groups())) > tuple(map(int, released.split(".")))


def test_versions_of_python_that_are_named_can_be_had():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert named == sorted(named, key=lambda version: int(version.partition(".")[2]))
    assert project["requires-python"] == f">={named[0]}"
    for version in named:
        assert version in (ROOT / "CHANGELOG.md").read_text(), (
            "the changelog says with which Python a release was tried"
        )


def test_commands_of_the_readme_are_tried_and_cut_short():
    readme = (ROOT / "README.md").read_text()
    shown = re.findall(r"^softbellman .*", readme, re.MULTILINE)
    tried = try_wheel.commands()
    left_out = [line for line in shown if "needs softbellman[" in line]
    assert len(tried) == len(shown) - len(left_out) > 10 and len(left_out) == 1  # ONNX and PyTorch are extras
    for start, words in try_wheel.ADDED.items():
        assert any(" ".join(words) in " ".join(command) for command in tried), f"nothing begins with {start} any more"
    for command in tried:
        if command[1] == "train":
            assert "--dry-run" in command or "--steps" in command


def test_examples_of_the_readme_are_tried():
    assert any("sb.solve(" in block for block in try_wheel.examples())
