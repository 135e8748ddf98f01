"""Settings of every test, made before JAX or Matplotlib loads. Child processes inherit them."""

import importlib.util
import os

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")  # [A] + [B, A] without saying so is a bug
os.environ.setdefault("NPROC", "2")  # the size of XLA's thread pool, which results depend on in their last bits
os.environ.setdefault("MPLBACKEND", "Agg")

_CACHE_BYTES = 4 * 2**30  # more than is ever written


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("torch") is None:
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(pytest.mark.skip(reason="PyTorch is not installed: make test-torch"))


@pytest.fixture(scope="session", autouse=True)
def freed_memory_goes_back():
    """No command that runs here keeps it: that would outlast its test, and one measures what a replay takes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("softbellman.memory.keep_freed_memory", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory, worker_id):
    """A program is compiled once by the tests, all workers together, and once by the processes that they start.

    These have a place of their own, since one killed may leave half a file. A size makes JAX lock what it shares.
    """
    import jax

    of_this_run = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    jax.config.update("jax_compilation_cache_dir", str(of_this_run / "compiled"))
    jax.config.update("jax_compilation_cache_max_size", _CACHE_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JAX_COMPILATION_CACHE_DIR", str(of_this_run / "compiled-in-processes"))
        patched.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", str(_CACHE_BYTES))
        patched.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patched.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
        yield
