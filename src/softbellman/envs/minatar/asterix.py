"""Asterix: treasure to fetch and enemies to avoid, which cross the board from either side, at most one a row."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from softbellman.envs.device import below, uniform
from softbellman.envs.minatar.board import DOWN, LEFT, NONE, RIGHT, SIZE, UP, cell, in_rows, moved, on_board, spread

_ROWS = 8  # rows 1 to 8 are where things happen
_SPAWN_INTERVAL, _MOVE_INTERVAL, _RAMP_INTERVAL = 10, 5, 100


class Asterix(NamedTuple):
    """The state; `[]` int32 unless another shape is given, and entity `i` is in row `i + 1`."""

    player_y: jax.Array
    player_x: jax.Array
    spawn_interval: jax.Array
    spawn_timer: jax.Array
    move_interval: jax.Array
    move_timer: jax.Array
    ramp_timer: jax.Array
    ramp_index: jax.Array
    x: jax.Array  # [8]
    rightward: jax.Array  # [8] bool
    gold: jax.Array  # [8] bool
    present: jax.Array  # [8] bool


@dataclasses.dataclass(frozen=True)
class AsterixRules:
    """Treasure pays 1; an enemy ends the game.

    Attributes:
        ramping: things come and move faster with time.
    """

    ramping: bool
    minimal_actions = (NONE, LEFT, UP, RIGHT, DOWN)
    channels = ("player", "enemy", "trail", "gold")
    start_words = 0
    step_words = 3

    def start(self, words: jax.Array) -> Asterix:
        """The player stands in the middle of an empty board."""
        nobody = jnp.zeros(_ROWS, bool)
        return Asterix(
            player_y=jnp.int32(5),
            player_x=jnp.int32(5),
            spawn_interval=jnp.int32(_SPAWN_INTERVAL),
            spawn_timer=jnp.int32(_SPAWN_INTERVAL),
            move_interval=jnp.int32(_MOVE_INTERVAL),
            move_timer=jnp.int32(_MOVE_INTERVAL),
            ramp_timer=jnp.int32(_RAMP_INTERVAL),
            ramp_index=jnp.int32(0),
            x=jnp.zeros(_ROWS, jnp.int32),
            rightward=nobody,
            gold=nobody,
            present=nobody,
        )

    def advance(self, play: Asterix, action: jax.Array, words: jax.Array) -> tuple[Asterix, jax.Array, jax.Array]:
        """Something may appear; the player moves, then what is there moves; the game may become harder."""
        play = _spawn(play, words)
        player_y = moved(play.player_y, action, UP, DOWN, 1, _ROWS)
        player_x = moved(play.player_x, action, LEFT, RIGHT)
        in_row = jnp.arange(1, _ROWS + 1) == player_y

        met = play.present & in_row & (play.x == player_x)
        present = play.present & ~(met & play.gold)
        moves = play.move_timer == 0
        x = play.x + jnp.where(moves, jnp.where(play.rightward, 1, -1), 0)
        present = present & on_board(x)
        met_later = present & in_row & (x == player_x) & moves
        present = present & ~(met_later & play.gold)
        met = met | met_later

        spawn_timer = play.spawn_timer - 1
        move_timer = jnp.where(moves, play.move_interval, play.move_timer) - 1
        play = play._replace(player_y=player_y, player_x=player_x, spawn_timer=spawn_timer, move_timer=move_timer)
        play = play._replace(x=x, present=present)
        reward = (met & play.gold).any().astype(jnp.float32)
        return _ramped(play) if self.ramping else play, reward, (met & ~play.gold).any()

    def observe(self, play: Asterix) -> jax.Array:
        """Returns `[10, 10, 4]` bool."""
        y = jnp.arange(1, _ROWS + 1)
        behind = play.x + jnp.where(play.rightward, -1, 1)
        return spread(
            cell(play.player_y, play.player_x),
            in_rows(play.present & ~play.gold, y, play.x),
            in_rows(play.present, y, behind),
            in_rows(play.present & play.gold, y, play.x),
        )


def _spawn(play: Asterix, words: jax.Array) -> Asterix:
    """Puts something into a row chosen among the empty ones, when it is time and there is one."""
    due = play.spawn_timer == 0
    rightward, gold = uniform(words[0]) < 1 / 2, uniform(words[1]) < 1 / 3
    empty = ~play.present
    rank = jnp.tril(jnp.broadcast_to(empty, (_ROWS, _ROWS)), -1).sum(axis=1)  # empty rows before this one
    chosen = due & empty & (rank == below(words[2], empty.sum()))
    return play._replace(
        spawn_timer=jnp.where(due, play.spawn_interval, play.spawn_timer),
        x=jnp.where(chosen, jnp.where(rightward, 0, SIZE - 1), play.x),
        rightward=jnp.where(chosen, rightward, play.rightward),
        gold=jnp.where(chosen, gold, play.gold),
        present=play.present | chosen,
    )


def _ramped(play: Asterix) -> Asterix:
    """Shortens the intervals, that of moving every other time, once the timer has run out."""
    open_ended = (play.spawn_interval > 1) | (play.move_interval > 1)
    due = open_ended & (play.ramp_timer < 0)
    faster = due & (play.move_interval > 1) & (play.ramp_index % 2 == 1)
    return play._replace(
        move_interval=play.move_interval - faster,
        spawn_interval=play.spawn_interval - (due & (play.spawn_interval > 1)),
        ramp_index=play.ramp_index + due,
        ramp_timer=jnp.where(due, _RAMP_INTERVAL, play.ramp_timer - (open_ended & ~due)),
    )
