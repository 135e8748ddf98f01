"""Ray engine: each group in a process on some machine of a Ray cluster, trained again elsewhere if that is lost.

Nothing but news and requests to stop goes through Ray. Groups are read from the study's directory and written
to it, so that all machines must see it; and who trains is settled by the lock of each group, whatever Ray believes.
"""

import importlib
import os
import secrets
import signal
import socket
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from softbellman.extras import imported
from softbellman.faults import in_a_line
from softbellman.memory import available_memory
from softbellman.running.engines.attempt import Attempt, carried_variables, version_mismatch
from softbellman.running.engines.contract import RAY, Event, OnEvent, Task
from softbellman.running.engines.local import POLL, Local, python_path
from softbellman.study.groups import folder_of, saved_steps
from softbellman.study.provenance import available_cores, provenance

ANSWER = 10.0  # seconds for a cluster to answer
RATE = 200  # replies that the driver takes in a second: with more groups at once each is asked less often
LOSSES = 10  # times that a group's machine may be lost at one checkpoint before the group counts as what is at fault
CLIENT = "ray://"
_REMEDY = "`ray start --head` begins a cluster, and says its address"
_TOKEN = "set RAY_AUTH_MODE and RAY_AUTH_TOKEN here as on the cluster's machines; see docs/scale.md"


class Ray:
    """Trains on the machines of a Ray cluster; see `Engine`."""

    process_bytes = Local.process_bytes

    def __init__(self, spec: str, workers: int | None, threads: int) -> None:
        """Looks which machines there are.

        Args:
            spec: `ray`, for processes of this machine; `ray://host:port`, a cluster's port for clients; or
                `ray:host:port` and `ray:auto`, from a machine that is of the cluster.
            workers: groups that train at once; None: as many as there are cores for.
            threads: of each.

        Raises:
            ValueError: the address is none, nothing answers there, or no machine has the cores.
            MissingExtra: Ray is not installed.
        """
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or each process of Ray's tells of a change
        self.spec, self._threads, self._ray = spec, threads, imported(RAY)
        self.memory: Callable[[], int | None] = available_memory
        self._address = spec if spec.startswith(CLIENT) else spec.removeprefix(RAY).removeprefix(":") or None
        if self._address is None:
            self.capacity = workers or max(1, available_cores() // threads)
            return
        with self._connected() as ray:
            machines = [node["Resources"] for node in _alive(ray)]
        cores = [int(each.get("CPU", 0)) for each in machines]
        total = int(sum(each.get("memory", 0) for each in machines))
        self.memory = lambda: total
        self.capacity = workers or sum(number // threads for number in cores)
        if max(cores, default=0) < threads:
            has = ", ".join(map(str, sorted(cores, reverse=True)[:8])) or "none"
            raise ValueError(f"engine {spec}: no machine has {threads} cores (they have {has}); lower --threads")

    def train(self, tasks: Sequence[Task], on_event: OnEvent, check: Callable[[], None]) -> None:
        """Train tasks; see `Engine`.

        Raises:
            ValueError: a machine has other versions, or does not see the study; nothing was begun.
        """
        tasks = [task._replace(study=task.study.absolute()) for task in tasks]
        with self._connected() as ray:
            self._require_alike(ray, tasks[0].study)
            _Round(ray, self, on_event, _environment(), self._threads).train(tasks, check)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Connects, unless this process is already, and leaves again."""
        ray = self._ray
        if ray.is_initialized():
            yield ray
            return
        self._connect(ray)
        try:
            yield ray
        finally:
            ray.shutdown()

    def _connect(self, ray: Any) -> None:
        options: dict[str, Any] = {"address": self._address, "log_to_driver": False, "logging_level": "ERROR"}
        if self._address is None:
            cores = max(available_cores(), self.capacity * self._threads)
            options |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
        elif self._address != "auto":
            _require_answer(self.spec, self._address.removeprefix(CLIENT))
        # Ray has a handler of its own for SIGTERM; training's saves the state.
        before = signal.getsignal(signal.SIGTERM)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)  # what forks becomes Ray
                ray.init(**options)
        except Exception as error:
            said = in_a_line(error)
            remedy = _TOKEN if "token" in str(error).lower() else _REMEDY
            raise ValueError(f"engine {self.spec}: no cluster could be joined: {said}; {remedy}") from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)

    def _require_alike(self, ray: Any, study: Path) -> None:
        """Refuses machines that have other versions, or do not see the study's directory, each by name."""
        on = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        own, token = provenance()["versions"], study / f".seen-{secrets.token_hex(4)}"
        look = ray.remote(num_cpus=0, max_retries=0, runtime_env=_environment())(_look())
        machines = {node["NodeID"]: _name(node) for node in _alive(ray) if node["Resources"].get("CPU", 0)}
        token.write_text(token.name)
        try:
            asked = {
                look.options(scheduling_strategy=on(machine, soft=False)).remote(str(token)): machine
                for machine in machines
            }
            ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=6 * ANSWER) if asked else ([], [])
            faults = {asked[ref]: _fault(ray, ref, own, token) if ref in ready else "does not answer" for ref in asked}
        finally:
            for path in study.glob(f"{token.name}*"):
                path.unlink(missing_ok=True)
        there = {node["NodeID"] for node in _alive(ray)}  # one that went meanwhile is not asked for more
        said = [
            f"{name} {faults[machine]}" for machine, name in machines.items() if machine in there and faults[machine]
        ]
        if said:
            raise ValueError(f"engine {self.spec}: {'; '.join(dict.fromkeys(said))}")


class _Group:
    """A group of a round: where it is trained now, and how often it lost that."""

    def __init__(self, task: Task) -> None:
        self.task, self.has_begun = task, False
        self.worker: Any = None  # Ray's handle of the attempt
        self.losses, self.place = 0, -1


class _Round:
    """The training of tasks, from the first to the last."""

    def __init__(self, ray: Any, engine: Ray, on_event: OnEvent, environment: dict[str, Any], threads: int) -> None:
        self.ray, self.capacity, self.on_event, self.environment = ray, engine.capacity, on_event, environment
        self.made_with, self.running = provenance()["versions"], dict[Any, _Group]()
        # No restarts by Ray: a group that is lost is begun anew here, where it is known how far it came.
        self.remote = ray.remote(num_cpus=threads, max_restarts=0, max_task_retries=0)(Attempt)

    def train(self, tasks: Sequence[Task], check: Callable[[], None]) -> None:
        waiting = deque(map(_Group, tasks))
        try:
            while waiting or self.running:
                check()
                while waiting and len(self.running) < self.capacity:
                    self._begin(waiting.popleft())
                for ref in self._ready(POLL):
                    group = self.running.pop(ref)
                    if self._is_lost(ref, group):
                        waiting.appendleft(group)
        finally:
            self._stop()

    def _begin(self, group: _Group) -> None:
        group.worker = self.remote.options(runtime_env=self.environment).remote(group.task, self.made_with)
        group.has_begun = False
        self._ask(group)

    def _ask(self, group: _Group) -> None:
        self.running[group.worker.news.remote(max(POLL, len(self.running) / RATE))] = group

    def _ready(self, wait: float) -> list[Any]:
        ready, _ = self.ray.wait(list(self.running), timeout=wait)
        return self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0)[0] if ready else []

    def _is_lost(self, ref: Any, group: _Group) -> bool:
        """Takes a group's news, and says whether it is to be begun anew."""
        errors = self.ray.exceptions
        try:
            events, over = self.ray.get(ref)
        except errors.ActorUnavailableError:
            events, over = [], False  # it may be there again
        except errors.RayError as error:
            return self._begins_anew(group, error)
        group.has_begun = True
        for event in events:
            self.on_event(group.task, event)
        if not over:
            self._ask(group)
        return False

    def _begins_anew(self, group: _Group, error: Exception) -> bool:
        """Says whether a group whose process or machine is gone is begun anew: not if that may be by its own fault."""
        place = saved_steps(folder_of(group.task.study, group.task.group))
        group.losses, group.place = group.losses + 1 if place == group.place else 1, place
        reason = in_a_line(error).partition("\n")[0]
        if isinstance(error, self.ray.exceptions.OutOfMemoryError):
            reason = f"its machine ran out of memory: lower --workers, or learner.replay_capacity ({reason})"
        elif isinstance(error, self.ray.exceptions.RayActorError | self.ray.exceptions.NodeDiedError):
            if group.losses <= LOSSES:
                text = f"its machine or process is gone; it is trained again elsewhere from agent step {place:,}"
                self.on_event(group.task, Event("note", {"text": text}))
                return True
            reason = f"its machine or process was lost {group.losses} times at agent step {place:,} ({reason})"
        self.on_event(group.task, Event("died", {"reason": reason, "report": str(error)}))
        self.on_event(group.task, Event("ended", {}))
        return False

    def _stop(self) -> None:
        """Asks all that are under way to stop, and waits until their states are saved."""
        for ref, group in list(self.running.items()):
            if group.has_begun:
                group.worker.stop.remote()
            else:
                self.ray.kill(group.worker)
                del self.running[ref]
        while self.running:
            for ref in self._ready(POLL):
                group = self.running.pop(ref)
                try:
                    over = self.ray.get(ref)[1]
                except self.ray.exceptions.RayError:
                    continue  # it is gone
                if not over:
                    self._ask(group)


def _environment() -> dict[str, Any]:
    """Returns what a process of Ray's needs to find what this one does, and to come to the same results."""
    return {"env_vars": {"PYTHONPATH": python_path()} | carried_variables()}


def _look() -> Callable[[str], tuple[Any, str, str]]:
    """Returns a function that goes to other machines as it is written, since softbellman may not be there."""

    def look(token: str) -> tuple[Any, str, str]:
        import os
        import pathlib

        versions: Any
        try:
            from softbellman.study.provenance import provenance

            versions = provenance()["versions"]
        except Exception as error:
            versions = f"{type(error).__name__}: {error}"
        file = pathlib.Path(token)
        answer = file.with_name(f"{file.name}-{os.getpid()}-{os.urandom(4).hex()}")
        try:
            seen = file.read_text()
            answer.touch()
        except OSError:
            seen = ""
        return versions, seen, str(answer)

    return look


def _fault(ray: Any, ref: Any, versions: Mapping[str, str], token: Path) -> str | None:
    """Says in what a machine that looked is not as it must be, or None."""
    try:
        found, seen, answer = ray.get(ref)
    except ray.exceptions.RayError as error:
        return f"can't be asked: {in_a_line(error)}"
    if isinstance(found, str):
        return f"can't import softbellman ({found}): install it there, or where all machines see it"
    if seen != token.name or not Path(answer).exists():
        return f"does not see {token.parent} as it is here: name a directory that all machines share with --out"
    return version_mismatch(versions, found)


def _alive(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _name(node: Mapping[str, Any]) -> str:
    return f"machine {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


def _require_answer(spec: str, address: str) -> None:
    """Refuses an address where nothing answers as Ray does, before Ray waits for it for minutes."""
    grpc = importlib.import_module("grpc")
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit() and 0 < int(port) < 2**16):
        raise ValueError(
            f"engine {spec}: {address!r} is no host:port; write ray://head:10001, ray:head:6379 or ray:auto"
        )
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER).close()
    except OSError as error:
        raise ValueError(
            f"engine {spec}: nothing answers at {address} ({error.strerror or error}); {_REMEDY}"
        ) from None
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=ANSWER)
        except grpc.FutureTimeoutError:
            raise ValueError(f"engine {spec}: what answers at {address} is no Ray cluster; {_REMEDY}") from None
