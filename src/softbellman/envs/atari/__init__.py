"""The family `atari/<game>`: games of ale-py under an `AtariProtocol`. Loads no emulator until one is made."""

from collections.abc import Mapping
from typing import Any

from softbellman.envs.atari.protocol import MACHADO_ATARI, PAPER_ATARI, AtariProtocol, honestly_named
from softbellman.envs.step import HostEnv

__all__ = ["MACHADO_ATARI", "PAPER_ATARI", "AtariProtocol", "honestly_named", "make", "name_of_id", "names", "rules"]


def names() -> list[str]:
    """Lists the games.

    Raises:
        MissingExtra: if ale-py is not installed.
    """
    from softbellman.envs.atari.env import games

    return games()


def make(name: str, protocol: AtariProtocol, **options: Any) -> HostEnv:
    """Makes a game; see `AtariEnv`."""
    from softbellman.envs.atari.env import AtariEnv

    return AtariEnv(name, protocol=protocol, **options)


def rules(facts: Mapping[str, Any]) -> str:
    """Says in one sentence what makes scores of two runs comparable or not."""
    limit = facts["max_frames_per_game"]
    return ", ".join(
        (
            f"{facts['num_actions']} actions ({facts['action_set']})",
            f"frame skip {facts['frame_skip']}",
            f"repeat probability {facts['repeat_action_probability']:g}",
            f"0 to {facts['noop_max']} no-ops" if facts["noop_max"] else "no no-ops",
            "a lost life ends an episode in training" if facts["life_loss_terminates"] else "lost lives end nothing",
            f"games cut after {limit:,} frames" if limit else "no time limit",
        )
    )


def name_of_id(name: str) -> str | None:
    """Returns the name here of a game that goes by an id of Gymnasium, `ALE/MsPacman-v5`, or None for another name.

    Raises:
        ValueError: for an id of a game that there is not.
    """
    prefix, _, rest = name.partition("/")
    if prefix != "ALE":
        return None
    from softbellman.envs.atari.env import game_id

    return f"atari/{game_id(rest.partition('-v')[0])}"
