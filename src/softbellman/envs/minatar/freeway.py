"""Freeway: a chicken crosses eight lanes of cars, as often as time allows."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from softbellman.envs.device import below, uniform
from softbellman.envs.minatar.board import DOWN, NONE, SIZE, UP, cell, in_rows, spread

_LANES = 8  # rows 1 to 8
_COLUMN, _START_ROW = 4, 9  # of the chicken
_MOVE_INTERVAL = 3
_TIME_LIMIT = 2500
_SLOWEST = 5  # a car of speed s moves every s + 1 frames


class Freeway(NamedTuple):
    """The state; `[]` int32 unless another shape is given, and car `i` is in row `i + 1`."""

    row: jax.Array  # of the chicken
    move_timer: jax.Array
    time_left: jax.Array
    x: jax.Array  # [8]
    timer: jax.Array  # [8], frames until the car moves
    speed: jax.Array  # [8], negative for those that drive to the left


@dataclasses.dataclass(frozen=True)
class FreewayRules:
    """Each crossing pays 1. The game is over (terminated) on its step 2,501."""

    minimal_actions = (NONE, UP, DOWN)
    channels = ("chicken", "car", *(f"speed{speed}" for speed in range(1, _SLOWEST + 1)))
    start_words = 2 * _LANES
    step_words = 2 * _LANES

    def start(self, words: jax.Array) -> Freeway:
        """All cars start at the left edge."""
        speed = _speeds(words)
        row, timer, time_left = jnp.int32(_START_ROW), jnp.int32(_MOVE_INTERVAL), jnp.int32(_TIME_LIMIT)
        return Freeway(row, timer, time_left, jnp.zeros(_LANES, jnp.int32), jnp.abs(speed), speed)

    def advance(self, play: Freeway, action: jax.Array, words: jax.Array) -> tuple[Freeway, jax.Array, jax.Array]:
        """The chicken moves; new cars after a crossing; the cars move, and one that meets it sends it back."""
        steps = (play.move_timer == 0) & ((action == UP) | (action == DOWN))
        row = jnp.clip(play.row + jnp.where(steps, jnp.where(action == UP, -1, 1), 0), 0, SIZE - 1)
        move_timer = jnp.where(steps, _MOVE_INTERVAL, play.move_timer)

        across = row == 0
        speed = jnp.where(across, _speeds(words), play.speed)
        timer = jnp.where(across, jnp.abs(speed), play.timer)
        row = jnp.where(across, _START_ROW, row)

        moves = timer == 0
        x = jnp.where(moves, _wrapped(play.x + jnp.sign(speed)), play.x)
        met = (jnp.arange(1, _LANES + 1) == row) & ((play.x == _COLUMN) | (x == _COLUMN))
        play = Freeway(
            row=jnp.where(met.any(), _START_ROW, row),
            move_timer=jnp.maximum(move_timer - 1, 0),
            time_left=play.time_left - 1,
            x=x,
            timer=jnp.where(moves, jnp.abs(speed), timer - 1),
            speed=speed,
        )
        return play, across.astype(jnp.float32), play.time_left < 0

    def observe(self, play: Freeway) -> jax.Array:
        """Returns `[10, 10, 7]` bool."""
        y, size = jnp.arange(1, _LANES + 1), jnp.abs(play.speed)
        behind = _wrapped(play.x - jnp.sign(play.speed))
        trails = [in_rows(size == speed, y, behind) for speed in range(1, _SLOWEST + 1)]
        return spread(cell(play.row, _COLUMN), in_rows(size > 0, y, play.x), *trails)


def _wrapped(x: jax.Array) -> jax.Array:
    """Brings what has left the board by one column in on the other side."""
    return jnp.where(x < 0, SIZE - 1, jnp.where(x >= SIZE, 0, x))


def _speeds(words: jax.Array) -> jax.Array:
    """Draws the speeds `[8]` of cars: 1 to 5, to either side."""
    size = 1 + below(words[:_LANES], _SLOWEST)
    return jnp.where(uniform(words[_LANES:]) < 1 / 2, -size, size)
