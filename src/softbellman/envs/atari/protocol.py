"""Protocol of an Atari game: what an agent sees and when an episode ends, field by field."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtariProtocol:
    """Protocol of a game: what an agent sees, and when an episode ends. The defaults are `PAPER_ATARI`.

    "Authors" is the released code of Song et al. 2019 on its working path (`run_nature.py`, a fork of `deep_q_rl`).
    Fields called accidents reproduce what that code does without the paper saying so; they are off.

    Attributes:
        name: what a report calls the protocol.
        frame_skip: raw frames for which an action is held, rewards summed. Authors 4; Mnih et al. 2015, 4.
        frame_pool: raw frames at the end of a skip whose pixelwise maximum is seen, 1 or 2. Authors 2; Mnih 2.
        repeat_action_probability: chance at each raw frame that the emulator repeats its last action ("sticky").
            Authors 0; Machado et al. 2018, 0.25. ale-py's own default depends on how it is called, so it is explicit.
        noop_max: a game starts with `k` no-ops of one raw frame, `k` uniform over `0 .. noop_max`, both ends
            included. Authors 30 (0 to 30, and two more: Deviation D1); Mnih 1 to 30; Machado none.
        fire_reset: presses FIRE once a new game has started, where the game has that button. Authors False.
        action_set: `"minimal"`, the actions that do something in the game; `"full"`, all 18. Authors minimal.
        life_loss_terminates: a lost life is an end for the learner while the game goes on, in training only. Lives
            are compared with those at the start of the learning episode, so that a life won and lost again is no
            end. Authors True; Machado False.
        max_frames_per_game: time limit in raw frames after the no-ops, rounded up to a whole step; a game that
            reaches it is truncated, not terminated. None is no limit. Authors and Mnih's training None; 108,000, half
            an hour of play, in evaluations since van Hasselt et al. 2016 and in Dopamine. Deviation D9.
        stack: frames in an observation, the newest last, zeros before the first of an episode (Deviation D3).
            Authors 4; Mnih 4.
        height: rows of a frame seen by the agent. Authors 84.
        width: columns of a frame seen by the agent. Authors 84.
        resize: `"bilinear"` (OpenCV's INTER_LINEAR from 210 x 160, no crop), or `"area"` (INTER_AREA, ale-py's own
            choice: on Q*bert 15% of the pixels then differ by more than 20 grey levels). Authors bilinear.
        random_first_actions: accident. The first so many actions of a learning episode are uniformly random, in
            training and in tests, because the authors' agent waits for a full stack. Authors 4; 0 is off, Deviation
            D2. Honoured by the training loop, which chooses the actions.
        budget_cut_terminates: accident. The last transition before an epoch's budget of steps runs out is stored as
            terminal; stacks that are stored after it begin with zeros, as after a lost life, though the game goes on.
            Authors True; off, Deviation D4. Honoured by the training loop, which knows the budget.
    """

    name: str = "paper-atari"
    frame_skip: int = 4
    frame_pool: int = 2
    repeat_action_probability: float = 0.0
    noop_max: int = 30
    fire_reset: bool = False
    action_set: Literal["minimal", "full"] = "minimal"
    life_loss_terminates: bool = True
    max_frames_per_game: int | None = None
    stack: int = 4
    height: int = 84
    width: int = 84
    resize: Literal["bilinear", "area"] = "bilinear"
    random_first_actions: int = 0
    budget_cut_terminates: bool = False

    def __post_init__(self) -> None:
        """Refuses values that no emulator could honour."""
        if self.frame_skip < 1:
            raise ValueError(f"frame_skip must be at least 1, got {self.frame_skip}: the game would stand still")
        if self.frame_pool not in (1, 2):
            raise ValueError(f"frame_pool must be 1 or 2, got {self.frame_pool}")
        if not 0.0 <= self.repeat_action_probability < 1.0:
            raise ValueError(f"repeat_action_probability must lie in [0, 1), got {self.repeat_action_probability}")
        if self.noop_max < 0 or self.random_first_actions < 0:
            raise ValueError(
                f"noop_max ({self.noop_max}) and random_first_actions ({self.random_first_actions}) must be >= 0"
            )
        if min(self.stack, self.height, self.width) < 1:
            raise ValueError(f"stack, height and width must be >= 1, got {self.stack}, {self.height}, {self.width}")
        if self.max_frames_per_game is not None and self.max_frames_per_game < 1:
            raise ValueError(f"max_frames_per_game must be >= 1 or None, got {self.max_frames_per_game}")
        for field, allowed in (("action_set", ("minimal", "full")), ("resize", ("bilinear", "area"))):
            if getattr(self, field) not in allowed:
                raise ValueError(f"{field} must be one of {', '.join(allowed)}, got {getattr(self, field)!r}")


PAPER_ATARI = AtariProtocol()
"""The protocol of Song et al. 2019: whole games from no-op starts, no sticky actions, lost lives end episodes."""

MACHADO_ATARI = AtariProtocol(
    name="machado-atari",
    repeat_action_probability=0.25,
    noop_max=0,
    action_set="full",
    life_loss_terminates=False,
    max_frames_per_game=108_000,
)
"""The recommendations of Machado et al. 2018: sticky actions, all 18 actions, no knowledge of lives, a time limit."""


def honestly_named(protocol: AtariProtocol) -> AtariProtocol:
    """Takes the name of a known protocol away from one that differs from it."""
    for known in (PAPER_ATARI, MACHADO_ATARI):
        if protocol.name == known.name and protocol != known:
            return dataclasses.replace(protocol, name=f"{known.name}, changed")
    return protocol
