"""Settings of every test, made before JAX or Matplotlib loads. Child processes inherit them."""

import importlib.util
import os

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")  # [A] + [B, A] without saying so is a bug
os.environ.setdefault("NPROC", "2")  # the size of XLA's thread pool, which results depend on in their last bits
os.environ.setdefault("MPLBACKEND", "Agg")


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
    """All workers share what takes long to compile; a size makes JAX lock it.

    The processes that a worker starts share a place of their own: one killed may leave half a file.
    """
    import jax

    of_this_run = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    jax.config.update("jax_compilation_cache_dir", str(of_this_run / "compiled"))
    jax.config.update("jax_compilation_cache_max_size", 4 * 2**30)  # more than is ever written
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled_in_processes")))
        patched.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patched.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
        yield
