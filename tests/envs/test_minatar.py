"""MinAtar under its protocol. That the games are the reference package's is in `test_minatar_reference.py`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import envs
from softbellman.envs.device import copy_keys
from softbellman.envs.minatar import GAMES, MinAtarProtocol
from softbellman.envs.minatar.env import COLOURS
from softbellman.envs.picture import BACKGROUND

COPIES, STEPS = 4, 25_000
CHANNELS = {"asterix": 4, "breakout": 4, "freeway": 7, "seaquest": 10, "space_invaders": 6}


@partial(jax.jit, static_argnums=(0, 2))
def play_randomly(env, keys, steps):
    """Plays `steps` random actions on as many copies as there are keys; returns what is cheap to keep of each step."""

    def one(states, moment):
        actions = jax.random.randint(jax.random.fold_in(jax.random.key(9), moment), keys.shape, 0, env.num_actions)
        before = states.last_action
        states, step = jax.vmap(env.step)(states, actions, keys)
        cells = step.next_obs.sum(axis=(1, 2), dtype=jnp.int32)  # [E, C]
        return states, (actions, before, states.last_action, step.reward, step.terminated, step.truncated, cells)

    states, _ = jax.vmap(env.reset)(keys)
    return jax.lax.scan(one, states, jnp.arange(steps))[1]


@pytest.fixture(scope="module", params=GAMES)
def played(request):
    env = envs.make_device(f"minatar/{request.param}")
    keys = copy_keys(0, training=True, num_envs=COPIES)
    return env, jax.tree.map(np.asarray, play_randomly(env, keys, STEPS))


def test_l28_a_hundred_thousand_random_steps(played):
    """No exception, observations of one kind, rewards and ends that the game can give."""
    env, (_, _, _, reward, terminated, truncated, cells) = played
    assert env.obs_shape == (10, 10, CHANNELS[env.game]) and env.obs_dtype is np.dtype(bool)
    key = copy_keys(0, training=True, num_envs=1)[0]
    state, obs = jax.eval_shape(env.reset, key)
    after, step = jax.eval_shape(env.step, state, jnp.int32(0), key)
    assert (obs.shape, obs.dtype) == (step.obs.shape, step.obs.dtype) == (env.obs_shape, env.obs_dtype)
    assert (step.next_obs.shape, step.next_obs.dtype) == (obs.shape, obs.dtype)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
    assert np.isin(reward, np.arange(11)).all()
    assert not truncated.any()
    assert cells[..., 0].max() == cells[..., 0].min() == 1  # there is one player, always
    games = terminated.sum()
    assert games == COPIES * (STEPS // 2501) if env.game == "freeway" else games > 500
    if env.game == "freeway":
        assert (np.flatnonzero(terminated[:, 0]) % 2501 == 2500).all()
        assert (cells[..., 1] == 8).all()


def test_l28_a_tenth_of_the_actions_stick(played):
    _, (chosen, before, done, *_) = played
    differs = chosen != before
    assert ((done == chosen) | (done == before)).all()
    assert abs((done == before)[differs].mean() - 0.1) < 0.005
    assert (before[1:] == done[:-1]).all()  # kept through every end of a game


def test_l28_the_same_seed_gives_the_same_sticky_pattern_and_the_same_game(played):
    env, first = played
    again, other_seed = (play_randomly(env, copy_keys(seed, training=True, num_envs=COPIES), STEPS) for seed in (0, 1))
    assert all((one == np.asarray(other)).all() for one, other in zip(first, again, strict=True))
    chosen, before, done, *_ = first
    assert (np.asarray(other_seed[0]) == chosen).all()
    stuck = (done == before) & (chosen != before)
    assert (stuck[:, 0] != stuck[:, 1]).any()  # copies differ
    assert (np.asarray(other_seed[2]) != done).any()  # and so do seeds


@pytest.mark.parametrize("game", ["asterix", "seaquest", "space_invaders"])
def test_l28_without_ramping_nothing_ramps_in_ten_thousand_steps(game):
    """The games are kept from ending, and seaquest's submarine is always full, so that each could ramp many times."""

    def ramps(ramping):
        rules = envs.make_device(f"minatar/{game}", MinAtarProtocol(ramping=ramping)).rules

        def one(play, key):
            words = jax.random.bits(key, (rules.step_words,))
            if game == "seaquest":
                play = play._replace(crew=jnp.int32(6))
            play, *_ = rules.advance(play, jax.random.randint(jax.random.fold_in(key, 1), (), 0, 6), words)
            return play, play.ramp_index

        def play(keys):
            start = rules.start(jnp.zeros(0, jnp.uint32))
            return start, *jax.lax.scan(one, start, keys)

        start, last, index = jax.jit(play)(jax.random.split(jax.random.key(0), 10_000))
        speeds = [getattr(last, name) - getattr(start, name) for name in last._fields if name.endswith("_interval")]
        return int(index.max()), [int(speed) for speed in speeds]

    index, speeds = ramps(True)
    assert index > 1 and min(speeds) < 0
    index, speeds = ramps(False)
    assert index == 0 and not any(speeds)


def test_l28_the_protocol_is_told_and_nothing_is_skipped_or_stacked():
    env = envs.make("minatar/seaquest", seed=0, training=False)
    facts = env.describe()
    assert facts["environment"] == "minatar/seaquest" and facts["rules"].startswith("MinAtar 1.")
    assert (facts["sticky_probability"], facts["ramping"]) == (0.1, True)
    assert (facts["minimal_actions"], facts["max_steps"], facts["num_actions"]) == (False, None, 6)
    assert (facts["frame_skip"], facts["stack"], facts["frames_per_step"]) == (1, 1, 1)
    assert env.stack is None and facts["training"] is False
    other = envs.make_device("minatar/seaquest", MinAtarProtocol(sticky_probability=0.0, ramping=False)).describe()
    assert (other["sticky_probability"], other["ramping"]) == (0.0, False)


def test_one_frame_is_one_step():
    """Breakout's ball moves by one cell a step, along a diagonal."""
    env = envs.make("minatar/breakout", seed=0, num_envs=2)
    obs = env.reset()[0]
    for _ in range(4):
        ball = np.argwhere(obs[..., 1])[0]
        obs = env.step(np.array([0, 0])).obs[0]
        assert np.abs(np.argwhere(obs[..., 1])[0] - ball).tolist() == [1, 1]
        assert (np.argwhere(obs[..., 2])[0] == ball).all()  # the trail


def test_a_limit_cuts_and_is_no_end():
    env = envs.make_device("minatar/breakout", MinAtarProtocol(max_steps=4))  # the ball is not down before step 6
    _, _, _, _, terminated, truncated, _ = play_randomly(env, copy_keys(0, training=True, num_envs=2), 12)
    assert not terminated.any()
    assert np.flatnonzero(truncated[:, 0]).tolist() == [3, 7, 11]


@pytest.mark.parametrize("game", GAMES)
def test_the_minimal_actions_are_those_of_the_reference(game):
    minimal = envs.make_device(f"minatar/{game}", MinAtarProtocol(minimal_actions=True))
    expected = {"asterix": "nlurd", "breakout": "nlr", "freeway": "nud", "seaquest": "nlurdf", "space_invaders": "nlrf"}
    assert minimal.num_actions == len(expected[game])
    assert [("nlurdf")[action] for action in minimal.actions] == list(expected[game])
    assert minimal.describe()["minimal_actions"] is True


def test_a_minimal_action_does_what_the_full_one_does():
    key = copy_keys(0, training=True, num_envs=1)[0]
    full, minimal = (
        envs.make_device("minatar/breakout", MinAtarProtocol(minimal_actions=minimal, sticky_probability=0.0))
        for minimal in (False, True)
    )
    state, _ = jax.jit(full.reset)(key)
    by_number, by_action = jax.jit(minimal.step), jax.jit(full.step)
    for number, action in enumerate(minimal.actions):
        ours, theirs = by_number(state, jnp.int32(number), key), by_action(state, jnp.int32(action), key)
        assert all((a == b).all() for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sticky_probability": 1.0}, "sticky_probability must lie in"),
        ({"sticky_probability": -0.1}, "sticky_probability must lie in"),
        ({"max_steps": 0}, "max_steps must be at least 1, or None"),
    ],
)
def test_values_that_no_game_could_honour_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        MinAtarProtocol(**values)


@pytest.mark.parametrize("game", GAMES)
def test_l46_the_screen_is_in_colour_and_large_enough_for_a_film(game):
    env = envs.make(f"minatar/{game}", seed=0, num_envs=2)
    with pytest.raises(RuntimeError, match="call reset"):
        env.screen()
    obs = env.reset()[0]
    picture = env.screen()
    assert (picture.shape, picture.dtype) == ((400, 400, 3), np.uint8)
    cells = picture.reshape(10, 40, 10, 40, 3)
    assert (cells == cells[:, :1, :, :1]).all()  # each cell is one square of one colour
    filled = obs.any(axis=-1)
    assert ((cells[:, 0, :, 0] != BACKGROUND).any(axis=-1) == filled).all()
    assert set(env.env.rules.channels) - {"alien"} <= set(COLOURS)  # aliens are painted by their direction
