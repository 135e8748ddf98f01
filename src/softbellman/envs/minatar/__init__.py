"""The family `minatar/<game>`: the five games of MinAtar under a `MinAtarProtocol`. Loads no JAX until one is made."""

from collections.abc import Mapping
from typing import Any

from softbellman.envs.minatar.protocol import GAMES, REFERENCE, RULES, MinAtarProtocol
from softbellman.envs.step import DeviceEnv

__all__ = ["GAMES", "REFERENCE", "RULES", "MinAtarProtocol", "make_device", "names", "rules"]


def names() -> list[str]:
    """Lists the games."""
    return list(GAMES)


def make_device(name: str, protocol: MinAtarProtocol) -> DeviceEnv:
    """Makes a game; see `MinAtarEnv`."""
    from softbellman.envs.minatar.env import MinAtarEnv

    return MinAtarEnv(name, protocol)


def rules(facts: Mapping[str, Any]) -> str:
    """Says in one sentence what makes scores of two runs comparable or not."""
    return ", ".join(
        (
            f"{facts['num_actions']} actions ({'minimal' if facts['minimal_actions'] else 'all'})",
            f"repeat probability {facts['sticky_probability']:g}",
            "difficulty ramping" if facts["ramping"] else "no difficulty ramping",
            f"games cut after {facts['max_steps']:,} steps" if facts["max_steps"] else "no time limit",
        )
    )
