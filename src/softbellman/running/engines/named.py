"""Engines by name, as `--engine` and `study.json` have them."""

from typing import Any

from softbellman.references import found
from softbellman.running.engines.contract import HERE, LOCAL, Engine
from softbellman.running.engines.here import Here
from softbellman.running.engines.local import Local


def make_engine(spec: str, capacity: int) -> Engine:
    """Make an engine.

    Args:
        spec: `local`, processes on this machine; `here`, this process; or `module:function`, which makes one of a
            user's own for a capacity.
        capacity: groups that are to train at once.

    Raises:
        ValueError: for a name that leads to none.
    """
    if spec == HERE:
        return Here()
    if spec == LOCAL:
        return Local(capacity)
    if ":" not in spec:
        raise ValueError(f"unknown engine {spec!r}; there are {LOCAL}, {HERE}, and module:function for one of your own")
    engine = found(spec, "engine")(capacity)
    return require_engine(engine, f"engine {spec} makes a {type(engine).__name__}, which")


def require_engine(engine: Any, subject: str) -> Engine:
    """Refuse what is no engine, before anything relies on it."""
    if not callable(getattr(engine, "train", None)):
        raise ValueError(f"{subject} has no train(tasks, on_event, check)")
    missing = [name for name in ("capacity", "process_bytes", "spec") if not hasattr(engine, name)]
    if missing:
        raise ValueError(f"{subject} has no {', '.join(missing)}; see softbellman.running.engines.Engine")
    return engine
