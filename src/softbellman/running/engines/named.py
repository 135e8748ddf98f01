"""Engines by name, as `--engine` and `study.json` have them."""

from typing import Any

from softbellman.references import resolve
from softbellman.running.engines.contract import HERE, LOCAL, RAY, SLURM, Engine
from softbellman.running.engines.here import Here
from softbellman.running.engines.local import Local


def is_of_other_machines(spec: str) -> bool:
    """Says whether an engine may train on other machines, whose cores and memory are not this one's."""
    return spec.partition(":")[0] in (RAY, SLURM)


def make_engine(spec: str, capacity: int | None, threads: int = 1) -> Engine:
    """Make an engine.

    Args:
        spec: `local`, processes on this machine; `here`, this process; `ray`, `ray://host:port`, `ray:host:port` or
            `ray:auto`, a Ray cluster; `slurm` or `slurm:name=value,...`, jobs of Slurm; or `module:function`, which
            makes one of a user's own for a capacity.
        capacity: groups that are to train at once; None, for Ray and Slurm: as many as there is place for.
        threads: of each.

    Raises:
        ValueError: for a name that leads to none, and for what Ray and Slurm refuse.
        MissingExtra: if a package is not installed.
    """
    if spec == HERE:
        return Here()
    if is_of_other_machines(spec):
        from softbellman.running.engines.ray import Ray
        from softbellman.running.engines.slurm import Slurm

        return (Ray if spec.partition(":")[0] == RAY else Slurm)(spec, capacity, threads)
    assert capacity is not None
    if spec == LOCAL:
        return Local(capacity)
    if spec.partition(":")[0] in (LOCAL, HERE):
        raise ValueError(
            f"engine {spec!r}: {spec.partition(':')[0]} takes nothing after it; --workers is how many groups"
        )
    if ":" not in spec:
        there = ", ".join((LOCAL, HERE, RAY, SLURM))
        raise ValueError(f"unknown engine {spec!r}; there are {there}, and module:function for one of your own")
    engine = resolve(spec, "engine")(capacity)
    return require_engine(engine, f"engine {spec} makes a {type(engine).__name__}, which")


def require_engine(engine: Any, subject: str) -> Engine:
    """Refuse what is no engine, before anything relies on it."""
    if not callable(getattr(engine, "train", None)):
        raise ValueError(f"{subject} has no train(tasks, on_event, check)")
    missing = [name for name in ("capacity", "process_bytes", "spec") if not hasattr(engine, name)]
    if missing:
        raise ValueError(f"{subject} has no {', '.join(missing)}; see softbellman.running.engines.Engine")
    return engine
