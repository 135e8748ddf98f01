"""A device environment as one on the host: tapes, seeds, pictures, and the same games as in a compiled loop."""

import jax
import numpy as np
import pytest

from softbellman import envs
from softbellman.envs.device import copy_keys
from softbellman.envs.hosted import HostedEnv
from softbellman.tabular.examples import EXAMPLES

NAMES = ["minatar/breakout", "mdp/forest"]


def played(env, steps, seed=0):
    rng = np.random.default_rng(seed)
    return [env.step(rng.integers(env.num_actions, size=env.num_envs)) for _ in range(steps)]


def same(first, second):
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all((one == other).all() for one, other in leaves)


@pytest.mark.parametrize("name", NAMES)
def test_a_tape_played_again_goes_on_bit_for_bit(name):
    env = envs.make(name, seed=3, num_envs=2)
    env.reset()
    for steps in (0, 1, 137):
        played(env, steps, seed=steps)
        tape = env.tape
        again = envs.make(name, seed=3, num_envs=2)
        obs = again.restore(tape)
        assert (obs == env._obs).all() and (again.screen(1) == env.env.screen(obs[1])).all()
        assert all((a.actions == b.actions).all() and a[:2] == b[:2] for a, b in zip(tape, again.tape, strict=True))
        assert same(played(again, 150, seed=1), played(env, 150, seed=1))
    assert max(one.game for one in env.tape) > 2


def test_a_tape_keeps_the_last_action_of_the_game_before():
    """Else a sticky first action would be another one after a resume."""
    env, again = (envs.make("minatar/breakout", seed=0, num_envs=2) for _ in range(2))
    env.reset()
    stuck = 0
    while stuck < 3:
        step = env.step(np.array([4, 4]))
        if step.game_ended.any():
            again.restore(env.tape)
            assert same([env.step(np.array([1, 1]))], [again.step(np.array([1, 1]))])
            stuck += (np.asarray(env._state.last_action)[step.game_ended] == 4).any()


def test_a_tape_of_something_else_is_refused():
    env = envs.make("minatar/breakout", seed=0, num_envs=2)
    env.reset()
    played(env, 5)
    with pytest.raises(ValueError, match="has 2 copies, this environment 1"):
        envs.make("minatar/breakout", seed=0).restore(env.tape)
    for other in ({"seed": 1}, {"seed": 0, "training": False}):
        with pytest.raises(ValueError, match="another run seed or stream"):
            envs.make("minatar/breakout", num_envs=2, **other).restore(env.tape)
    with pytest.raises(ValueError, match="does not end on the observation"):
        envs.make("mdp/forest", seed=0, num_envs=2).restore(env.tape)


def test_the_games_are_those_of_a_compiled_loop_with_the_same_keys():
    env = envs.make_device("minatar/breakout")
    keys = copy_keys(5, training=True, num_envs=2)
    actions = np.random.default_rng(0).integers(6, size=(200, 2)).astype(np.int32)

    @jax.jit
    def loop(keys, actions):
        states, obs = jax.vmap(env.reset)(keys)
        return obs, jax.lax.scan(lambda states, action: jax.vmap(env.step)(states, action, keys), states, actions)[1]

    obs, steps = loop(keys, actions)
    hosted = envs.make("minatar/breakout", seed=5, num_envs=2)
    assert (hosted.reset() == np.asarray(obs)).all()
    for i, action in enumerate(actions):
        assert same([hosted.step(action)], [jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), steps)])


@pytest.mark.parametrize("name", NAMES)
def test_games_differ_by_seed_copy_and_stream_and_repeat_by_seed(name):
    def steps(**which):
        env = envs.make(name, **{"seed": 0, "num_envs": 2, **which})
        env.reset()
        return played(env, 150)

    first = steps()
    assert same(first, steps())
    assert not same(first, steps(seed=1)) and not same(first, steps(training=False))
    assert any((step.obs[0] != step.obs[1]).any() for step in first)
    alone = envs.make(name, seed=0, num_envs=1)  # what a copy does depends on its own actions only
    alone.reset()
    rng = np.random.default_rng(0)
    for step in first:
        assert (alone.step(rng.integers(alone.num_actions, size=2)[:1]).obs[0] == step.obs[0]).all()


def test_l40_a_new_reset_starts_the_next_game():
    env = envs.make("minatar/freeway", seed=0)
    first, second = env.reset(), env.reset()
    assert env.tape[0].game == 1
    assert (first[..., :2] == second[..., :2]).all() and (first != second).any()  # the same start, cars of other speeds


def test_the_picture_after_a_games_end_is_its_last():
    env = envs.make("minatar/breakout", seed=0, num_envs=2)
    env.reset()
    step = env.step(np.array([0, 0]))
    while not step.game_ended[0]:
        step = env.step(np.array([0, 0]))
    assert step.terminated[0] and step.training_end[0]
    assert step.next_obs[0, 9, :, 1].any() and not step.obs[0, 9, :, 1].any()  # the ball is out, and back
    assert (env.screen() == env.env.screen(step.next_obs[0])).all()


@pytest.mark.parametrize("actions", [[0], [0, 6], [0, -1], [0.0, 1.0]])
def test_actions_are_checked(actions):
    env = envs.make("minatar/breakout", seed=0, num_envs=2)
    with pytest.raises(ValueError, match="actions must"):
        env.step(np.array(actions))
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.array([0, 0]))


def test_a_seed_and_a_number_of_copies_are_needed():
    env = envs.make_device("minatar/breakout")
    with pytest.raises(ValueError, match="seed must be an integer"):
        HostedEnv(env, seed=-1)
    with pytest.raises(ValueError, match="num_envs must be at least 1"):
        HostedEnv(env, seed=0, num_envs=0)


def test_masks_go_with_what_is_acted_on_and_with_the_true_successor():
    env, mdp, rng = envs.make("mdp/doors", seed=0, num_envs=3), EXAMPLES["doors"](), np.random.default_rng(0)
    assert env.legal.all()  # before the first reset nothing is known
    obs, ended = env.reset(), 0
    for _ in range(200):
        assert (env.legal == mdp.legal[obs.argmax(axis=1)]).all()
        actions = np.array([rng.choice(np.flatnonzero(one)) for one in env.legal])
        step = env.step(actions)
        assert (step.legal == mdp.legal[step.obs.argmax(axis=1)]).all() and (step.legal == env.legal).all()
        behind = step.next_obs.sum(axis=1) == 0
        assert (step.terminated == behind).all() and step.next_legal[behind].all()
        assert (step.next_legal == mdp.legal[step.next_obs.argmax(axis=1)])[~behind].all()
        obs, ended = step.obs, ended + step.game_ended.sum()
    assert ended > 20
    again = envs.make("mdp/doors", seed=0, num_envs=3)
    again.restore(env.tape)
    assert (again.legal == env.legal).all()
    illegal = np.array([np.flatnonzero(~one)[0] for one in env.legal])
    with pytest.raises(ValueError, match="must be legal"):
        env.step(illegal)


def test_an_environment_without_illegal_actions_has_no_masks():
    env = envs.make("mdp/forest", seed=0)
    env.reset()
    step = env.step(np.zeros(1, int))
    assert env.legal is step.legal is step.next_legal is None


@pytest.mark.parametrize("name", NAMES)
def test_without_a_cpu_it_says_what_to_set(name, monkeypatch):
    def fail(backend=None):
        raise RuntimeError(f"Unknown backend {backend}")

    monkeypatch.setattr(jax, "devices", fail)
    with pytest.raises(
        ValueError, match=r"^JAX_PLATFORMS \(\w+\) leaves out the CPU.*set JAX_PLATFORMS=\w+,cpu, or unset it$"
    ):
        envs.make(name, seed=0)
