"""Seaquest: a submarine picks up divers and shoots at fish and submarines, as long as its oxygen lasts.

Swimmers are kept in slots, the newest first: one that appears is put in front and all others move up by one, so that no
slot is ever searched for. There are more slots than the game can fill: an enemy appears at most every frame, and once
they are that frequent it is gone after 30; a diver every 30 frames, gone after 60; a shot every 5, gone after 10. The
enemies' bullets are all alike, so that their rows are kept as bits.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from softbellman.envs.device import below, uniform
from softbellman.envs.minatar.board import (
    DOWN,
    FIRE,
    FULL_ROW,
    LEFT,
    NONE,
    RIGHT,
    SIZE,
    UP,
    cell,
    in_rows,
    is_set,
    moved,
    on_board,
    spread,
)

_OXYGEN = 200
_CREW = 6  # divers that fit in
_ENEMY_INTERVAL, _DIVER_INTERVAL = 20, 30  # between appearances
_MOVE_INTERVAL, _FASTEST_MOVE, _DIVER_MOVE_INTERVAL = 5, 2, 5
_COOL_DOWN, _ENEMY_SHOT_INTERVAL = 5, 10
_ENEMY_SLOTS, _DIVER_SLOTS, _BULLET_SLOTS = 32, 4, 3


class Swimmers(NamedTuple):
    """Enemies or divers in slots, the newest first, each `[N]`; bullets of the player, which need no timer."""

    present: jax.Array  # bool
    y: jax.Array  # int32
    x: jax.Array
    rightward: jax.Array  # bool
    timer: jax.Array  # frames until it moves


class Seaquest(NamedTuple):
    """The state; `[]` int32 unless another shape is given."""

    y: jax.Array  # of the submarine's front
    x: jax.Array
    rightward: jax.Array  # [] bool
    surfaced: jax.Array  # [] bool, already dealt with
    oxygen: jax.Array
    crew: jax.Array  # divers on board; -1 after six were brought up, as in the reference
    shot_timer: jax.Array
    enemy_interval: jax.Array
    enemy_timer: jax.Array
    diver_timer: jax.Array
    move_interval: jax.Array
    ramp_index: jax.Array
    bullets: Swimmers  # [3]
    divers: Swimmers  # [4]
    enemies: Swimmers  # [32]
    armed: jax.Array  # [32] bool, the enemy is a submarine
    enemy_shot_timer: jax.Array  # [32]
    hostile_right: jax.Array  # [10], bit x of row y: an enemy's bullet there flies to the right
    hostile_left: jax.Array  # [10]


@dataclasses.dataclass(frozen=True)
class SeaquestRules:
    """An enemy shot pays 1; six divers brought up pay up to 10, for the oxygen left.

    Enemies, their bullets, no oxygen, and surfacing without a diver end the game.

    Attributes:
        ramping: enemies come and move faster with each surfacing.
    """

    ramping: bool
    minimal_actions = (NONE, LEFT, UP, RIGHT, DOWN, FIRE)
    channels = (
        "sub_front", "sub_back", "friendly_bullet", "trail", "enemy_bullet",
        "enemy_fish", "enemy_sub", "oxygen_gauge", "diver_gauge", "diver",
    )  # fmt: skip
    start_words = 0
    step_words = 5

    def start(self, words: jax.Array) -> Seaquest:
        """The submarine lies at the surface of an empty sea."""
        enemies, nothing = _nobody(_ENEMY_SLOTS), jnp.zeros(SIZE, jnp.int32)
        return Seaquest(
            y=jnp.int32(0),
            x=jnp.int32(5),
            rightward=jnp.bool_(False),
            surfaced=jnp.bool_(True),
            oxygen=jnp.int32(_OXYGEN),
            crew=jnp.int32(0),
            shot_timer=jnp.int32(0),
            enemy_interval=jnp.int32(_ENEMY_INTERVAL),
            enemy_timer=jnp.int32(_ENEMY_INTERVAL),
            diver_timer=jnp.int32(_DIVER_INTERVAL),
            move_interval=jnp.int32(_MOVE_INTERVAL),
            ramp_index=jnp.int32(0),
            bullets=_nobody(_BULLET_SLOTS),
            divers=_nobody(_DIVER_SLOTS),
            enemies=enemies,
            armed=enemies.present,
            enemy_shot_timer=enemies.timer,
            hostile_right=nothing,
            hostile_left=nothing,
        )

    def advance(self, play: Seaquest, action: jax.Array, words: jax.Array) -> tuple[Seaquest, jax.Array, jax.Array]:
        """New enemies and divers; the player; then, in this order, bullets, divers, enemies and their bullets."""
        play = _steer(_spawn(play, words), action)
        play, first_hits = _bullets(play)
        play = _divers(play)
        play, second_hits, met_enemy = _enemies(play)
        play, met_bullet = _hostile_bullets(play)
        play, prize, stranded = self._breathe(play)
        return play, (first_hits + second_hits + prize).astype(jnp.float32), met_enemy | met_bullet | stranded

    def _breathe(self, play: Seaquest) -> tuple[Seaquest, jax.Array, jax.Array]:
        """Runs the timers, uses oxygen, and surfaces; returns the prize, and whether the game is lost by any of it."""
        below_surface = play.y > 0
        comes_up = ~below_surface & ~play.surfaced
        rescues = comes_up & (play.crew != 0)
        full = rescues & (play.crew == _CREW)
        prize = jnp.where(full, play.oxygen * 10 // _OXYGEN, 0)
        stranded = (play.oxygen <= 0) | (comes_up & ~rescues)
        oxygen = jnp.where(rescues, _OXYGEN, play.oxygen - below_surface)
        harder = rescues & ((play.enemy_interval > 1) | (play.move_interval > _FASTEST_MOVE)) & self.ramping
        faster = harder & (play.move_interval > _FASTEST_MOVE) & (play.ramp_index % 2 == 1)
        play = play._replace(
            surfaced=~below_surface & (play.surfaced | rescues),
            oxygen=oxygen,
            crew=jnp.where(full, 0, play.crew) - rescues,
            shot_timer=jnp.maximum(play.shot_timer - 1, 0),
            enemy_interval=play.enemy_interval - (harder & (play.enemy_interval > 1)),
            enemy_timer=jnp.maximum(play.enemy_timer - 1, 0),
            diver_timer=jnp.maximum(play.diver_timer - 1, 0),
            move_interval=play.move_interval - faster,
            ramp_index=play.ramp_index + harder,
        )
        return play, prize, stranded

    def observe(self, play: Seaquest) -> jax.Array:
        """Returns `[10, 10, 10]` bool."""
        enemies, divers = play.enemies, play.divers
        oxygen = jnp.maximum(play.oxygen, 0) * 10 // _OXYGEN
        crew = jnp.maximum(play.crew, 0)
        last_row = cell(SIZE - 1, 0)
        return spread(
            cell(play.y, play.x),
            cell(play.y, play.x + jnp.where(play.rightward, -1, 1)),
            _plane(play.bullets),
            _plane(enemies, behind=True) | _plane(divers, behind=True),
            play.hostile_right | play.hostile_left,
            _plane(enemies, ~play.armed),
            _plane(enemies, play.armed),
            last_row * ((1 << oxygen) - 1),
            last_row * (((1 << crew) - 1) << (SIZE - 1 - crew)),
            _plane(divers),
        )


def _nobody(slots: int) -> Swimmers:
    nothing, no = jnp.zeros(slots, jnp.int32), jnp.zeros(slots, bool)
    return Swimmers(no, nothing, nothing, no, nothing)


def _in_front(new: jax.Array, slots: jax.Array, appears: jax.Array) -> jax.Array:
    """Puts `new` `[]` into the first of the slots `[N]`, and what was there one further, where something appears."""
    return jnp.where(appears, jnp.concatenate([jnp.asarray(new, slots.dtype)[None], slots[:-1]]), slots)


def _added(swimmers: Swimmers, new: Swimmers) -> Swimmers:
    return jax.tree.map(lambda one, slots: _in_front(one, slots, new.present), new, swimmers)


def _spawn(play: Seaquest, words: jax.Array) -> Seaquest:
    """Lets an enemy and a diver appear at a side when it is their time; no enemy where others come the other way."""
    rightward, armed = uniform(words[0]) < 1 / 2, uniform(words[1]) < 1 / 3
    y = 1 + below(words[2], SIZE - 2)
    enemies = play.enemies
    due = play.enemy_timer == 0
    comes = due & ~(enemies.present & (enemies.y == y) & (enemies.rightward != rightward)).any()
    enemy = Swimmers(comes, y, jnp.where(rightward, 0, SIZE - 1), rightward, play.move_interval)

    diver_due = play.diver_timer == 0
    diver_rightward, diver_y = uniform(words[3]) < 1 / 2, 1 + below(words[4], SIZE - 2)
    diver_x, diver_timer = jnp.where(diver_rightward, 0, SIZE - 1), jnp.int32(_DIVER_MOVE_INTERVAL)
    return play._replace(
        enemies=_added(enemies, enemy),
        armed=_in_front(armed, play.armed, comes),
        enemy_shot_timer=_in_front(jnp.int32(_ENEMY_SHOT_INTERVAL), play.enemy_shot_timer, comes),
        enemy_timer=jnp.where(due, play.enemy_interval, play.enemy_timer),
        divers=_added(play.divers, Swimmers(diver_due, diver_y, diver_x, diver_rightward, diver_timer)),
        diver_timer=jnp.where(diver_due, _DIVER_INTERVAL, play.diver_timer),
    )


def _steer(play: Seaquest, action: jax.Array) -> Seaquest:
    fires = (action == FIRE) & (play.shot_timer == 0)
    bullet = Swimmers(fires, play.y, play.x, play.rightward, jnp.int32(0))
    return play._replace(
        bullets=_added(play.bullets, bullet),
        shot_timer=jnp.where(fires, _COOL_DOWN, play.shot_timer),
        y=moved(play.y, action, UP, DOWN, 0, SIZE - 2),
        x=moved(play.x, action, LEFT, RIGHT),
        rightward=(play.rightward | (action == RIGHT)) & (action != LEFT),
    )


def _bullets(play: Seaquest) -> tuple[Seaquest, jax.Array]:
    """The player's bullets fly: each takes the fish in its way, or else the submarine, the oldest of several."""
    bullets = play.bullets
    x = _ahead(bullets)
    bullets = bullets._replace(x=x, present=bullets.present & on_board(x))
    order = jnp.where(play.armed, _ENEMY_SLOTS, 0) - jnp.arange(_ENEMY_SLOTS)
    return _shot(play._replace(bullets=bullets), play.enemies.present, order)


def _divers(play: Seaquest) -> Seaquest:
    """Divers swim; those at the submarine, before or after, come on board while there is room, the newest first."""
    divers = play.divers
    moves = divers.timer == 0
    x = jnp.where(moves, _ahead(divers), divers.x)
    reached = divers.present & (divers.y == play.y) & ((divers.x == play.x) | (x == play.x))
    rank = jnp.tril(jnp.broadcast_to(reached, (_DIVER_SLOTS, _DIVER_SLOTS)), -1).sum(axis=1)
    boards = reached & (rank < _CREW - play.crew)
    timer = jnp.where(moves, _DIVER_MOVE_INTERVAL, divers.timer - 1)
    divers = divers._replace(present=divers.present & ~boards & on_board(x), x=x, timer=timer)
    return play._replace(divers=divers, crew=play.crew + boards.sum())


def _enemies(play: Seaquest) -> tuple[Seaquest, jax.Array, jax.Array]:
    """Enemies swim, run into the player's bullets, and shoot, those just hit too; returns the hits, and a collision.

    Of those that have just moved onto a bullet it takes a submarine before a fish, and the newest of several.
    """
    enemies = play.enemies
    moves = enemies.present & (enemies.timer == 0)
    x = jnp.where(moves, _ahead(enemies), enemies.x)
    in_row = enemies.present & (enemies.y == play.y)
    met = in_row & ((enemies.x == play.x) | (x == play.x))
    exposed = moves & on_board(x) & ~(in_row & (x == play.x))
    swum = enemies._replace(x=x, timer=jnp.where(moves, play.move_interval, enemies.timer - 1))

    shoots = enemies.present & play.armed & (play.enemy_shot_timer == 0)
    play = play._replace(
        enemies=swum._replace(present=enemies.present & on_board(x)),
        enemy_shot_timer=jnp.where(play.enemy_shot_timer == 0, _ENEMY_SHOT_INTERVAL, play.enemy_shot_timer - 1),
        hostile_right=play.hostile_right | in_rows(shoots & swum.rightward, swum.y, x),
        hostile_left=play.hostile_left | in_rows(shoots & ~swum.rightward, swum.y, x),
    )
    order = jnp.where(play.armed, 0, _ENEMY_SLOTS) + jnp.arange(_ENEMY_SLOTS)
    play, hits = _shot(play, exposed, order)
    return play, hits, met.any()


def _hostile_bullets(play: Seaquest) -> tuple[Seaquest, jax.Array]:
    """The enemies' bullets fly; returns whether one was where the submarine is, before or after."""
    right, left = (play.hostile_right << 1) & FULL_ROW, play.hostile_left >> 1
    met = is_set(play.y, play.x, play.hostile_right | play.hostile_left | right | left)
    return play._replace(hostile_right=right, hostile_left=left), met


def _shot(play: Seaquest, exposed: jax.Array, order: jax.Array) -> tuple[Seaquest, jax.Array]:
    """Removes each bullet that meets exposed enemies, with the one of them that is first in order; counts them.

    No two of the player's bullets are ever in the same cell: one is as fast as the submarine that fired it.
    """
    bullets, enemies = play.bullets, play.enemies
    at_bullet = (enemies.x[None, :] == bullets.x[:, None]) & (enemies.y[None, :] == bullets.y[:, None])
    meets = at_bullet & exposed[None, :] & bullets.present[:, None]
    rank = jnp.where(meets, order[None, :], 2 * _ENEMY_SLOTS)
    taken = (meets & (rank == rank.min(axis=1, keepdims=True))).any(axis=0)
    hits = meets.any(axis=1)
    play = play._replace(
        bullets=bullets._replace(present=bullets.present & ~hits),
        enemies=enemies._replace(present=enemies.present & ~taken),
    )
    return play, hits.sum()


def _ahead(swimmers: Swimmers) -> jax.Array:
    return swimmers.x + jnp.where(swimmers.rightward, 1, -1)


def _plane(swimmers: Swimmers, which: jax.Array | bool = True, *, behind: bool = False) -> jax.Array:
    """Returns the plane `[10]` of some of the swimmers, or of the cells behind them."""
    x = swimmers.x + jnp.where(swimmers.rightward, -1, 1) if behind else swimmers.x
    return in_rows(swimmers.present & which, swimmers.y, x)
