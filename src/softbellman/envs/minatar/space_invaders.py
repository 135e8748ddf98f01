"""Space invaders: aliens that sway and sink, and shoot at the cannon that shoots at them."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from softbellman.envs.minatar.board import FIRE, LEFT, NONE, RIGHT, SIZE, block, cell, is_set, joined, moved, spread

_COOL_DOWN = 5
_MOVE_INTERVAL, _SHOT_INTERVAL = 12, 10  # of the aliens
_SHORTEST_INTERVAL = 6


class SpaceInvaders(NamedTuple):
    """The state; `[]` int32 unless another shape is given."""

    cannon: jax.Array
    shot_timer: jax.Array
    direction: jax.Array  # of the aliens, -1 left, 1 right
    move_interval: jax.Array
    move_timer: jax.Array
    alien_shot_timer: jax.Array
    ramp_index: jax.Array
    aliens: jax.Array  # [10], a plane
    rising: jax.Array  # [10], the player's bullets
    falling: jax.Array  # [10], the aliens' bullets


@dataclasses.dataclass(frozen=True)
class SpaceInvadersRules:
    """Each alien shot pays 1. A bullet or an alien that reaches the cannon ends the game; no chance is in it.

    Attributes:
        ramping: every wave of aliens moves faster than the one before, down to an interval of 6.
    """

    ramping: bool
    minimal_actions = (NONE, LEFT, RIGHT, FIRE)
    channels = ("cannon", "alien", "alien_left", "alien_right", "friendly_bullet", "enemy_bullet")
    start_words = 0
    step_words = 0

    def start(self, words: jax.Array) -> SpaceInvaders:
        """The first wave is about to sway to the left."""
        empty = jnp.zeros(SIZE, jnp.int32)
        return SpaceInvaders(
            cannon=jnp.int32(5),
            shot_timer=jnp.int32(0),
            direction=jnp.int32(-1),
            move_interval=jnp.int32(_MOVE_INTERVAL),
            move_timer=jnp.int32(_MOVE_INTERVAL),
            alien_shot_timer=jnp.int32(_SHOT_INTERVAL),
            ramp_index=jnp.int32(0),
            aliens=_wave(),
            rising=empty,
            falling=empty,
        )

    def advance(
        self, play: SpaceInvaders, action: jax.Array, words: jax.Array
    ) -> tuple[SpaceInvaders, jax.Array, jax.Array]:
        """The cannon acts, bullets fly, aliens move, shoot and are shot; a new wave follows the last alien."""
        fires = (action == FIRE) & (play.shot_timer == 0)
        bullet = jnp.where(fires, cell(SIZE - 1, play.cannon), 0)
        rising = jnp.append((play.rising | bullet)[1:], 0)
        shot_timer = jnp.where(fires, _COOL_DOWN, play.shot_timer)
        cannon = moved(play.cannon, action, LEFT, RIGHT)
        falling = jnp.insert(play.falling[:-1], 0, 0)

        moves = play.move_timer == 0
        edge = jnp.where(play.direction < 0, 1, 1 << (SIZE - 1))
        turns = moves & (play.aliens & edge).any()
        direction = jnp.where(turns, -play.direction, play.direction)
        swayed = jnp.where(direction < 0, play.aliens >> 1, play.aliens << 1)
        aliens = jnp.where(turns, jnp.roll(play.aliens, 1), jnp.where(moves, swayed, play.aliens))
        landed = turns & (play.aliens[-1] != 0)
        over = landed | is_set(SIZE - 1, cannon, falling | play.aliens | aliens)
        interval = jnp.minimum(jax.lax.population_count(play.aliens).sum(), play.move_interval)

        shoots = play.alien_shot_timer == 0
        falling = jnp.where(shoots, falling | _nearest(aliens, cannon), falling)
        killed = aliens & rising
        reward = jax.lax.population_count(killed).sum().astype(jnp.float32)
        aliens, rising = aliens & ~killed, rising & ~killed

        cleared = ~aliens.any()
        ramps = cleared & (play.move_interval > _SHORTEST_INTERVAL) & self.ramping
        play = SpaceInvaders(
            cannon=cannon,
            shot_timer=jnp.maximum(shot_timer - 1, 0),
            direction=direction,
            move_interval=play.move_interval - ramps,
            move_timer=jnp.where(moves, interval, play.move_timer) - 1,
            alien_shot_timer=jnp.where(shoots, _SHOT_INTERVAL, play.alien_shot_timer) - 1,
            ramp_index=play.ramp_index + ramps,
            aliens=jnp.where(cleared, _wave(), aliens),
            rising=rising,
            falling=falling,
        )
        return play, reward, over

    def observe(self, play: SpaceInvaders) -> jax.Array:
        """Returns `[10, 10, 6]` bool."""
        leftward = jnp.where(play.direction < 0, play.aliens, 0)
        rightward = play.aliens & ~leftward
        return spread(cell(SIZE - 1, play.cannon), play.aliens, leftward, rightward, play.rising, play.falling)


def _wave() -> jax.Array:
    return block(range(4), range(2, 8))


def _nearest(aliens: jax.Array, cannon: jax.Array) -> jax.Array:
    """Returns the cell of the lowest alien in the column nearest to the cannon, the left one of two as near."""
    column, far = jnp.arange(SIZE), 4 * SIZE
    taken = (joined(aliens) >> column) & 1
    distance = jnp.where(taken == 1, 2 * jnp.abs(column - cannon) + (column > cannon), far)
    nearest = joined(jnp.where(distance == distance.min(), 1 << column, 0)) & joined(aliens)
    row = jnp.where(aliens & nearest, jnp.arange(SIZE), -1)
    return jnp.where(row == row.max(), aliens & nearest, 0)
