"""Breakout: a paddle, a ball that flies along diagonals, three rows of bricks."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from softbellman.envs.device import below
from softbellman.envs.minatar.board import LEFT, NONE, RIGHT, SIZE, block, cell, moved, spread


class Breakout(NamedTuple):
    """The state; coordinates and steps are `[]` int32."""

    ball_y: jax.Array
    ball_x: jax.Array
    step_y: jax.Array  # where the ball flies: -1 up, 1 down
    step_x: jax.Array  # -1 left, 1 right
    last_y: jax.Array  # where the ball was before
    last_x: jax.Array
    paddle: jax.Array
    striking: jax.Array  # [] bool: the last step met a brick, so that the next may not break one
    bricks: jax.Array  # [10], a plane


@dataclasses.dataclass(frozen=True)
class BreakoutRules:
    """Each brick pays 1. The game is over when the ball passes the paddle."""

    minimal_actions = (NONE, LEFT, RIGHT)
    channels = ("paddle", "ball", "trail", "brick")
    start_words = 1
    step_words = 0

    def start(self, words: jax.Array) -> Breakout:
        """The ball starts at the left edge or at the right one, flying inwards."""
        right = below(words[0], 2)
        y, x = jnp.int32(3), right * (SIZE - 1)
        down = jnp.int32(1)
        return Breakout(y, x, down, 1 - 2 * right, y, x, jnp.int32(4), jnp.bool_(False), _wall())

    def advance(self, play: Breakout, action: jax.Array, words: jax.Array) -> tuple[Breakout, jax.Array, jax.Array]:
        """Moves the paddle, then the ball."""
        paddle = moved(play.paddle, action, LEFT, RIGHT)
        y, x = play.ball_y + play.step_y, play.ball_x + play.step_x
        step_y, step_x = play.step_y, play.step_x

        at_side = (x < 0) | (x >= SIZE)
        x = jnp.clip(x, 0, SIZE - 1)
        step_x = jnp.where(at_side, -step_x, step_x)
        at_top = y < 0
        y = jnp.maximum(y, 0)

        target = cell(y, x)
        meets = (play.bricks & target).any() & ~at_top
        breaks = meets & ~play.striking
        bricks = jnp.where(breaks, play.bricks & ~target, play.bricks)

        at_bottom = (y == SIZE - 1) & ~meets
        bricks = jnp.where(at_bottom & ~bricks.any(), _wall(), bricks)
        on_paddle = at_bottom & (play.ball_x == paddle)
        on_edge = at_bottom & ~on_paddle & (x == paddle)
        step_y = jnp.where(at_top | breaks | on_paddle | on_edge, -step_y, step_y)
        step_x = jnp.where(on_edge, -step_x, step_x)
        y = jnp.where(breaks | on_paddle | on_edge, play.ball_y, y)

        play = Breakout(y, x, step_y, step_x, play.ball_y, play.ball_x, paddle, meets, bricks)
        return play, breaks.astype(jnp.float32), at_bottom & ~on_paddle & ~on_edge

    def observe(self, play: Breakout) -> jax.Array:
        """Returns `[10, 10, 4]` bool."""
        ball, trail = cell(play.ball_y, play.ball_x), cell(play.last_y, play.last_x)
        return spread(cell(SIZE - 1, play.paddle), ball, trail, play.bricks)


def _wall() -> jax.Array:
    return block(range(1, 4), range(SIZE))
