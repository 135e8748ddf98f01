"""Engines: what trains the groups of a comparison, in this process, on this machine, or on many."""

from softbellman.running.engines.contract import (
    DETERMINISTIC,
    HERE,
    LOCAL,
    Engine,
    Event,
    OnEvent,
    Task,
    require_counts,
    share,
    xla_flags,
)
from softbellman.running.engines.here import Here
from softbellman.running.engines.local import Local

__all__ = [
    "DETERMINISTIC",
    "HERE",
    "LOCAL",
    "Engine",
    "Event",
    "Here",
    "Local",
    "OnEvent",
    "Task",
    "require_counts",
    "share",
    "xla_flags",
]
