"""Settings of every test, made before JAX or Matplotlib loads. Child processes inherit them."""

import fcntl
import importlib.util
import os
import pickle
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")  # [A] + [B, A] without saying so is a bug
os.environ.setdefault("NPROC", "2")  # the size of XLA's thread pool, which results depend on in their last bits
os.environ.setdefault("MPLBACKEND", "Agg")


NEEDED = {"torch": ("torch",), "engines": ("ray", "submitit")}  # by what a test is marked with


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for mark, packages in NEEDED.items():
        if any(importlib.util.find_spec(package) is None for package in packages):
            for item in items:
                if item.get_closest_marker(mark):
                    item.add_marker(pytest.mark.skip(reason=f"{packages[0]} is not installed: make test-{mark}"))


@pytest.fixture(scope="session", autouse=True)
def freed_memory_goes_back():
    """No command that runs here keeps it: that would outlast its test, and one measures what a replay takes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("softbellman.memory.keep_freed_memory", lambda: None)
        yield


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser to look at pages with; where one is required, that there is none is a failure."""
    from .browser import Browser, find_browser

    found = find_browser()
    if found is None and os.environ.get("BROWSER_REQUIRED"):
        pytest.fail("there is no browser to look at the page with: install chromium")
    if found is None:
        pytest.skip("NO BROWSER: the page was not looked at; install chromium")
    with Browser(found, tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture(scope="session")
def common_folder(tmp_path_factory, worker_id) -> Path:
    """The folder that all workers of this run share."""
    return tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent


@pytest.fixture(scope="session")
def once(common_folder) -> Callable[[str, Callable[[Path], Any]], Any]:
    """Makes what takes long once for all workers: the first makes it in a folder of its own, the others wait."""

    def make(name: str, build: Callable[[Path], Any]) -> Any:
        folder, made = common_folder / f"{name}-once", common_folder / f"{name}-made"
        with (common_folder / f"{name}-lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                shutil.rmtree(folder, ignore_errors=True)
                made.write_bytes(pickle.dumps(build(folder)))
        return pickle.loads(made.read_bytes())

    return make


@pytest.fixture(scope="session")
def cartpole(once):
    """A study of two seeds of CartPole, and what was told after each test phase."""
    from .studies import TINY, Study, trained

    def build(folder: Path) -> tuple[Path, Any]:
        values = TINY | {"loop.test_episodes": 5}
        study, rows = trained(folder, "gym/CartPole-v1", "classic-control", "double(softmax(5))", [0, 3], values)
        return study.path, rows

    path, rows = once("cartpole", build)
    return Study(path), rows


@pytest.fixture(scope="session")
def breakout(tmp_path_factory):
    """A study, untrained, of Atari's Breakout."""
    from softbellman import envs

    from .studies import created, untrained

    pytest.importorskip("ale_py")
    folder = tmp_path_factory.mktemp("studies") / "breakout"
    study = created(folder, "atari/breakout", "demo-atari", "softmax(5)", [0], {})
    return untrained(study, envs.make("atari/breakout", seed=0, training=False, protocol=study.config.protocol))


@pytest.fixture(scope="session")
def walk(tmp_path_factory):
    """A study, untrained, of an environment that renders without another package, `gym/walk:Walk-v0`."""
    from softbellman import envs

    from .studies import TINY, WALK, created, untrained

    folder = tmp_path_factory.mktemp("modules")
    (folder / "walk.py").write_text(textwrap.dedent(WALK))
    sys.path.insert(0, str(folder))
    name = "gym/walk:Walk-v0"
    study = created(tmp_path_factory.mktemp("studies") / "walk", name, "classic-control", "max", [0], TINY)
    yield untrained(study, envs.make(name, seed=0))
    sys.path.remove(str(folder))


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory, common_folder):
    """All workers share what takes long to compile; a size makes JAX lock it.

    The processes that a worker starts share a place of their own: one killed may leave half a file.
    """
    import jax

    jax.config.update("jax_compilation_cache_dir", str(common_folder / "compiled"))
    jax.config.update("jax_compilation_cache_max_size", 4 * 2**30)  # more than is ever written
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled_in_processes")))
        patched.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patched.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
        yield
