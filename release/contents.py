"""Contents of a wheel and a source archive: all that they must hold is there, and nothing else.

python release/contents.py dist
"""

import argparse
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
LEFT_OUT = ("__pycache__", ".pyc")


def package_files() -> set[str]:
    """Lists the files of the package, as a wheel names them: modules, `py.typed`, templates and tables."""
    files = (path for path in (SOURCE / "softbellman").rglob("*") if path.is_file())
    return {path.relative_to(SOURCE).as_posix() for path in files if not str(path).endswith(LEFT_OUT)}


def faults_of_wheel(wheel: Path) -> list[str]:
    """Says what is missing from a wheel, and what does not belong into it."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    facts = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    faults = _differences(names - facts, package_files())
    wanted = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    return faults + [f"lacks {name}" for name in wanted if not any(each.endswith("/" + name) for each in facts)]


def faults_of_archive(archive: Path) -> list[str]:
    """Says what is missing from a source archive: whoever has it can run the tests and build the site."""
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    wanted = {f"src/{name}" for name in package_files()} | {"LICENSE", "README.md", "Makefile", "pyproject.toml"}
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    return [f"lacks {name}" for name in sorted(wanted - names)]


def strays() -> list[str]:
    """Lists files that git does not know and does not ignore: both would hold them, and a fresh clone has none."""
    command = ["git", "ls-files", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def _differences(found: Iterable[str], wanted: Iterable[str]) -> list[str]:
    found, wanted = set(found), set(wanted)
    return [f"lacks {name}" for name in sorted(wanted - found)] + [f"has {name}" for name in sorted(found - wanted)]


def main() -> int:
    """Checks the one wheel and the one archive of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    faults = []
    for pattern, check in (("*.whl", faults_of_wheel), ("*.tar.gz", faults_of_archive)):
        files = list(folder.glob(pattern))
        if len(files) != 1:
            faults.append(f"{folder} holds {len(files)} files {pattern}, and must hold one; empty it first")
        faults += [f"{file.name} {fault}" for file in files for fault in check(file)]
    faults += [f"{name} is not committed" for name in strays()]
    print("\n".join(faults) or "the wheel and the source archive hold what they must")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
