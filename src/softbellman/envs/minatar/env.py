"""A game of MinAtar under a protocol, as a `DeviceEnv`."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.device import DeviceGame, GameState
from softbellman.envs.minatar.asterix import AsterixRules
from softbellman.envs.minatar.board import FIRE, SIZE
from softbellman.envs.minatar.breakout import BreakoutRules
from softbellman.envs.minatar.freeway import FreewayRules
from softbellman.envs.minatar.protocol import REFERENCE, RULES, MinAtarProtocol
from softbellman.envs.minatar.seaquest import SeaquestRules
from softbellman.envs.minatar.space_invaders import SpaceInvadersRules
from softbellman.envs.picture import painted
from softbellman.envs.step import Step

_WHITE, _GREY, _DIM = (240, 240, 240), (150, 150, 150), (70, 70, 80)
_SKY, _GREEN, _YELLOW, _ORANGE, _RED, _PURPLE = (
    (86, 180, 233), (0, 158, 115), (240, 228, 66), (230, 159, 0), (213, 94, 0), (204, 121, 167),
)  # fmt: skip
# Told apart by the colour-blind (Okabe and Ito 2008), and in the order of painting.
COLOURS = {
    "trail": _DIM,
    **{f"speed{speed}": (55 + 20 * speed, 55 + 20 * speed, 80) for speed in range(1, 6)},
    "oxygen_gauge": _SKY,
    "diver_gauge": _GREEN,
    "brick": _ORANGE,
    "diver": _GREEN,
    "gold": _YELLOW,
    "alien_left": _RED,
    "alien_right": _ORANGE,
    "car": _RED,
    "enemy": _RED,
    "enemy_fish": _RED,
    "enemy_sub": _PURPLE,
    "enemy_bullet": _YELLOW,
    "friendly_bullet": _SKY,
    "sub_back": _GREY,
    "ball": _YELLOW,
    "paddle": _WHITE,
    "player": _WHITE,
    "chicken": _WHITE,
    "cannon": _WHITE,
    "sub_front": _WHITE,
}


@dataclasses.dataclass(frozen=True)
class MinAtarEnv(DeviceGame):
    """One copy of a game; see `DeviceEnv`.

    Attributes:
        game: a name of `GAMES`.
        protocol: how it is played.
    """

    game: str
    protocol: MinAtarProtocol = REFERENCE

    @property
    def rules(self) -> Any:
        """The game itself."""
        ramping = self.protocol.ramping
        match self.game:
            case "asterix":
                return AsterixRules(ramping)
            case "breakout":
                return BreakoutRules()
            case "freeway":
                return FreewayRules()
            case "seaquest":
                return SeaquestRules(ramping)
            case "space_invaders":
                return SpaceInvadersRules(ramping)
        raise ValueError(f"{self.game!r} is no game of MinAtar")

    @property
    def actions(self) -> tuple[int, ...]:
        """The game's number of each action: none 0, left 1, up 2, right 3, down 4, fire 5."""
        return self.rules.minimal_actions if self.protocol.minimal_actions else tuple(range(FIRE + 1))

    @property
    def sticky_probability(self) -> float:
        """See the protocol."""
        return self.protocol.sticky_probability

    @property
    def max_steps(self) -> int | None:
        """See the protocol."""
        return self.protocol.max_steps

    @property
    def num_actions(self) -> int:
        """6, or fewer with the minimal set."""
        return len(self.actions)

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Shape of an observation, `(10, 10, C)`."""
        return (SIZE, SIZE, len(self.rules.channels))

    @property
    def obs_dtype(self) -> np.dtype[Any]:
        """Observations are binary planes."""
        return np.dtype(bool)

    def step(self, state: GameState, action: jax.Array, key: jax.Array) -> tuple[GameState, Step]:
        """Takes an action: see `DeviceEnv.step`."""
        if self.protocol.minimal_actions:
            action = jnp.asarray(self.actions)[action]
        return super().step(state, action, key)

    def screen(self, obs: np.ndarray) -> np.ndarray:
        """Draws an observation, `[400, 400, 3]` uint8."""
        return painted(obs, self.rules.channels, COLOURS)

    def describe(self) -> dict[str, Any]:
        """Returns everything that makes scores of two runs comparable or not."""
        return {
            "environment": f"minatar/{self.game}",
            "rules": RULES,
            **dataclasses.asdict(self.protocol),
            "frame_skip": 1,
            "stack": 1,
            "frames_per_step": self.frames_per_step,
            "num_actions": self.num_actions,
            "reward_clip": "none in the environment",
        }
