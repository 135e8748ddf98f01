"""Engines by name: what is missing, unknown, of a version not tried or out of reach is said in one line."""

import socket
import sys
from types import SimpleNamespace

import pytest

from softbellman.extras import MissingExtra, UntestedVersion
from softbellman.running.comparison import resources_for
from softbellman.running.engines import Local
from softbellman.running.engines import ray as ray_engine
from softbellman.running.engines.named import is_of_other_machines, make_engine
from softbellman.running.engines.slurm import Slurm, _options


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("ray", 'ray is not installed; run: pip install "softbellman[ray]"'),
        ("ray://head:10001", 'ray is not installed; run: pip install "softbellman[ray]"'),
        ("slurm", 'submitit is not installed; run: pip install "softbellman[slurm]"'),
        ("slurm:mem_gb=4", 'submitit is not installed; run: pip install "softbellman[slurm]"'),
    ],
)
def test_a_missing_extra_is_one_line(spec, said, monkeypatch):
    for name in ("ray", "submitit"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    with pytest.raises(MissingExtra) as told:
        make_engine(spec, 2)
    assert str(told.value) == said


@pytest.mark.parametrize(("package", "version"), [("ray", "1.13.0"), ("ray", "3.0.0"), ("submitit", "1.2.1")])
def test_a_version_that_was_not_tried_is_refused(package, version, monkeypatch):
    monkeypatch.setitem(sys.modules, package, SimpleNamespace(__version__=version))
    with pytest.raises(UntestedVersion, match=rf"{package} {version} is installed, and softbellman was tested with \d"):
        make_engine("ray" if package == "ray" else "slurm", 2)


@pytest.fixture
def package(monkeypatch):
    """A package in place of Ray that joins no cluster."""
    fake = SimpleNamespace(__version__="2.60.0", is_initialized=lambda: False, init=None)
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


@pytest.mark.parametrize("address", ["x", "head", "head:", ":6379", "head:port", "head:0", "head:99999", "head:-1"])
def test_an_address_that_is_none_is_refused(address, package, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", SimpleNamespace())
    with pytest.raises(ValueError, match="is no host:port; write ray://head:10001, ray:head:6379 or ray:auto"):
        make_engine(f"ray:{address}", 2)


def test_an_address_where_nothing_answers_is_refused_at_once(package, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", SimpleNamespace())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for spec in (f"ray:127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(
            ValueError, match=rf"nothing answers at 127.0.0.1:{port} \(Connection refused\); `ray start"
        ):
            make_engine(spec, 2)


def test_what_answers_otherwise_than_ray_is_refused(package, monkeypatch):
    class Late(Exception):
        pass

    class Channel:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    def result(timeout):
        raise Late

    grpc = SimpleNamespace(
        insecure_channel=lambda *_, **__: Channel(),
        channel_ready_future=lambda _: SimpleNamespace(result=result),
        FutureTimeoutError=Late,
    )
    monkeypatch.setitem(sys.modules, "grpc", grpc)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(ValueError, match="is no Ray cluster"):
        make_engine(f"ray:127.0.0.1:{server.getsockname()[1]}", 2)


def test_a_cluster_that_does_not_take_this_process_is_said_with_its_reason(package):
    def init(**_):
        raise RuntimeError("Version mismatch: The cluster was started with Ray: 2.50.0")

    package.init = init
    with pytest.raises(ValueError, match=r"no cluster could be joined: RuntimeError: Version mismatch.*2\.50\.0"):
        make_engine("ray:auto", 2)


@pytest.fixture
def cluster(package, monkeypatch):
    """A cluster of three machines that is joined already, of which one is gone."""

    def node(cores, alive=True):
        return {"Alive": alive, "Resources": {"CPU": float(cores), "memory": 1e9}, "NodeID": str(cores)}

    package.is_initialized = lambda: True
    package.nodes = lambda: [
        node(4),
        node(7),
        node(64, alive=False),
        {"Alive": True, "Resources": {}, "NodeID": "head"},
    ]


def test_a_cluster_says_how_many_groups_train_at_once_and_what_memory_there_is(cluster):
    engine = make_engine("ray:auto", None, threads=2)
    assert (engine.capacity, engine.memory(), engine.spec) == (2 + 3, 2_000_000_000, "ray:auto")
    assert make_engine("ray:auto", 40, threads=2).capacity == 40  # more may come
    with pytest.raises(ValueError, match=r"no machine has 8 cores \(they have 7, 4, 0\); lower --threads"):
        make_engine("ray:auto", None, threads=8)


def test_on_other_machines_a_group_has_one_thread_unless_the_study_was_begun_with_more(cluster):
    resources = resources_for(100, engine="ray:auto")
    assert (resources.workers, resources.threads, resources.memory) == (11, 1, 2_000_000_000)
    begun = SimpleNamespace(record={"provenance": {"threads": "3", "xla_flags": None}})
    assert resources_for(100, begun=begun, engine="ray:auto").threads == 3
    assert resources_for(100, workers=5, threads=2, engine="ray:auto").workers == 5
    for workers, threads in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            resources_for(100, workers, threads, engine="ray:auto")


def test_ray_alone_is_this_machine(package, monkeypatch):
    monkeypatch.setattr(ray_engine, "available_cores", lambda: 8)
    monkeypatch.setattr(ray_engine, "available_memory", lambda: 5)
    engine = make_engine("ray", None, threads=3)
    assert engine.capacity == 2 and engine.memory() == 5


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("ray", True),
        ("ray://head:10001", True),
        ("ray:head:6379", True),
        ("slurm", True),
        ("slurm:a=b", True),
        ("local", False),
        ("here", False),
        ("rays:Engine", False),
    ],
)
def test_engines_of_other_machines_are_known_by_name(spec, expected):
    assert is_of_other_machines(spec) == expected


@pytest.mark.parametrize("part", ["a", "=1", "a=", "a=1,a=2", "a=1,,b=2", ""])
def test_parameters_of_slurm_that_are_none_are_refused(part):
    with pytest.raises(ValueError, match="is no name=value, each once, as in slurm:mem_gb=8"):
        _options(f"slurm:{part}")


def test_parameters_of_slurm():
    assert _options("slurm") == {}
    assert _options("slurm:mem_gb=8, slurm_account = x-1,slurm_comment=a=b") == {
        "mem_gb": 8,
        "slurm_account": "x-1",
        "slurm_comment": "a=b",
    }


def test_what_submitit_refuses_is_said_in_one_line(monkeypatch):
    def refuse(**_):
        raise RuntimeError('Could not detect "srun"\nand more')

    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(__version__="1.5.4", AutoExecutor=refuse))
    with pytest.raises(ValueError, match='engine slurm: Could not detect "srun"; see submitit') as told:
        make_engine("slurm", None)
    assert "\n" not in str(told.value)


def test_an_engine_knows_the_memory_of_its_machines_or_it_is_this_ones(monkeypatch):
    from softbellman.running import comparison

    monkeypatch.setattr(comparison, "available_memory", lambda: 7)
    assert comparison.Resources(1, 1, engine=Local(1)).memory == 7
    assert comparison.Resources(1, 1, engine=Slurm.__new__(Slurm)).memory is None


@pytest.mark.parametrize("spec", ["local:3", "here:2", "local:"])
def test_engines_of_this_machine_take_nothing_after_their_name(spec):
    with pytest.raises(ValueError, match="takes nothing after it; --workers is how many groups"):
        make_engine(spec, 2)
