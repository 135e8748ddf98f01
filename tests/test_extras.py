"""Optional packages: what is missing or untested is said in one line, and the versions are those of pyproject.toml."""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

from softbellman.extras import EXTRAS, TESTED, MissingExtra, UntestedVersion, imported, missing, require_tested

OPTIONAL = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def name_of(requirement):
    return re.match(r"[A-Za-z0-9_-]+", requirement)[0]


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_package_is_one_that_its_extra_installs(extra):
    assert set(EXTRAS[extra]) <= {name_of(requirement) for requirement in OPTIONAL[extra]}


@pytest.mark.parametrize("extra", TESTED)
def test_an_extra_installs_the_versions_that_were_tested(extra):
    (requirement,) = (each for each in OPTIONAL[extra] if name_of(each) == EXTRAS[extra][0])
    low, high = TESTED[extra]
    assert requirement.endswith(f">={low},<{high}")


@pytest.mark.parametrize(
    ("version", "is_taken"),
    [("2.3.9", False), ("2.4.0", True), ("2.9.2", True), ("2.10.0", False), ("2.10.0rc1", False), ("3.0", False)],
)
def test_a_version_that_was_not_tested_is_refused(version, is_taken, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    if is_taken:
        require_tested("sb3")
        return
    with pytest.raises(UntestedVersion, match=r'below 2.10; run: pip install "softbellman\[sb3\]"') as caught:
        require_tested("sb3")
    assert f"stable-baselines3 {version} is installed" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("package", "extra"), [("ray", "rllib"), ("torchrl", "torchrl")])
def test_a_package_that_is_missing_is_named_with_its_extra(package, extra, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(MissingExtra, match=rf'{package} is not installed; run: pip install "softbellman\[{extra}\]"'):
        require_tested(extra)


def test_what_is_broken_within_a_package_is_not_called_missing(monkeypatch, tmp_path):
    (tmp_path / "stable_baselines3.py").write_text('raise ImportError("libcudart.so.12: cannot open")')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.6.0")
    for name in [
        name for name in sys.modules if name.startswith(("stable_baselines3", "softbellman.integrations.sb3"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"^libcudart.so.12: cannot open$"):
        importlib.import_module("softbellman.integrations.sb3")


def test_a_broken_engine_is_not_called_missing(monkeypatch, tmp_path):
    (tmp_path / "submitit.py").write_text('raise ImportError("cannot import name runtime_version")')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "submitit", raising=False)
    with pytest.raises(ImportError, match=r"^cannot import name runtime_version$"):
        imported("slurm")


@pytest.mark.parametrize(
    ("module", "extra"), [("optax", "train"), ("stable_baselines3.common", "sb3"), ("cv2", "all"), (None, "all")]
)
def test_the_extra_of_a_module_is_named(module, extra):
    assert str(missing(ModuleNotFoundError(name=module))).endswith(f'pip install "softbellman[{extra}]"')


@pytest.mark.parametrize("extra", ["sb3", "tianshou", "torchrl", "rllib"])
def test_the_page_says_which_versions_were_tested(extra):
    page = (Path(__file__).parents[1] / "docs" / "integrations.md").read_text()
    assert "{} and later, below {}".format(*TESTED[extra]) in page
