"""Protocol of MinAtar (Young and Tian 2019): how a game is played, field by field. Loads no JAX.

The rules are written here for a compiler: no loops over entities, no gathers and scatters. That they are the rules of
the reference package, to the bit, is tested by playing both from the same draws (`docs/deviations.md`).
"""

import dataclasses

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
RULES = "MinAtar 1.0.15"  # the release of the reference package that the tests compare with


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinAtarProtocol:
    """How a game is played. The defaults are the reference package's, with which its results were published.

    One frame is one agent step: nothing is skipped or stacked. Observations are binary planes `[10, 10, C]`, the
    channels last.

    Attributes:
        sticky_probability: chance at each step that the action carried out last is repeated in place of the one chosen.
            It is kept from one game to the next. Reference 0.1.
        ramping: games grow harder: asterix with time, seaquest with each surfacing, space_invaders with each wave; the
            other two never do. Reference True.
        minimal_actions: only the actions that do something in the game, instead of all six. Reference and published
            results False: a score with the minimal set is of another task.
        max_steps: a game is cut (truncated) after so many steps. Reference None, no limit; freeway always ends
            (terminated) on its step 2,501.
    """

    sticky_probability: float = 0.1
    ramping: bool = True
    minimal_actions: bool = False
    max_steps: int | None = None

    def __post_init__(self) -> None:
        """Refuses values that no game could honour."""
        if not 0.0 <= self.sticky_probability < 1.0:
            raise ValueError(f"sticky_probability must lie in [0, 1), got {self.sticky_probability}")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, or None for no limit, got {self.max_steps}")


REFERENCE = MinAtarProtocol()
"""The protocol of the reference package."""
