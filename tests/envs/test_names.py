"""Environments by name."""

import sys
from functools import partial

import pytest

from softbellman import envs
from softbellman.arguments import squeeze
from softbellman.envs import MissingExtra
from softbellman.envs.checks import episode_seed
from softbellman.envs.minatar import MinAtarProtocol


def test_names_make_the_environment_they_say():
    env = envs.make("gym/CartPole-v1", seed=0, num_envs=2, training=False)
    assert env.describe()["environment"] == "gym/CartPole-v1"
    assert env.describe()["training"] is False
    assert env.num_envs == 2


def test_an_atari_game_takes_its_protocol():
    pytest.importorskip("ale_py")
    from softbellman.envs.atari import MACHADO_ATARI

    assert envs.make("atari/MsPacman", seed=0).describe()["name"] == "paper-atari"
    env = envs.make("atari/ms_pacman", seed=0, protocol=MACHADO_ATARI)
    assert (env.game, env.num_actions) == ("ms_pacman", 18)
    for name in ("gym/CartPole-v1", "mdp/forest"):
        with pytest.raises(ValueError, match="takes no protocol"):
            envs.make(name, seed=0, protocol=MACHADO_ATARI)


def test_a_device_environment_is_had_by_the_same_name():
    env = envs.make_device("minatar/Space-Invaders")
    assert (env.game, env.obs_shape) == ("space_invaders", (10, 10, 6))
    assert env == envs.make("minatar/space_invaders", seed=0).env
    protocol = MinAtarProtocol(ramping=False)
    assert envs.make_device("minatar/asterix", protocol).protocol == protocol
    with pytest.raises(ValueError, match="is played on the host"):
        envs.make_device("gym/CartPole-v1")
    assert not envs.is_device("minatar/") and not envs.is_device("atari/breakout")


def test_l31_names_are_told_without_jax(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    assert envs.is_device("minatar/breakout")
    for make in (envs.make_device, partial(envs.make, seed=0)):
        with pytest.raises(MissingExtra, match=r'jax is not installed; run: pip install "softbellman\[train\]"'):
            make("minatar/breakout")


def test_known_lists_what_make_takes():
    pytest.importorskip("ale_py")
    names = envs.known()
    assert {"atari/breakout", "atari/ms_pacman", "gym/CartPole-v1", "minatar/breakout", "mdp/forest"} <= set(names)
    assert all(envs.is_device(name) == name.startswith(("minatar/", "mdp/")) for name in names)
    assert not [name for name in names if "ALE/" in name or "NoFrameskip" in name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("breakout", "did you mean atari/breakout, minatar/breakout"),
        ("minatar/brekout", "did you mean minatar/breakout"),
        ("minatar/pong", "there are minatar/asterix, minatar/breakout"),
        ("mdp/two-fixed-point", "did you mean mdp/two-fixed-points"),
        ("gimm/CartPole-v1", "did you mean gym/CartPole-v1"),
        ("atari/", "names look like atari/<game>, minatar/<game>, mdp/<example>, gym/<id>, package.module:function"),
        ("gym", "names look like atari/<game>"),
        ("ALE/MsPacman-v5", "goes by atari/ms_pacman here"),
        ("", "unknown environment ''"),
    ],
)
def test_an_unknown_name_lists_the_nearest(name, message):
    pytest.importorskip("ale_py")
    with pytest.raises(ValueError, match=message):
        envs.make(name, seed=0)


def test_a_missing_extra_is_an_import_error_of_one_line():
    error = MissingExtra("ale-py", "atari")
    assert isinstance(error, ImportError)
    assert str(error) == 'ale-py is not installed; run: pip install "softbellman[atari]"'


def test_l5_episode_seeds_never_meet():
    seeds = {
        episode_seed(seed, training=training, env=env, episode=episode)
        for seed in (0, 1, 2, 2**40)
        for training in (True, False)
        for env in range(4)
        for episode in range(50)
    }
    assert len(seeds) == 4 * 2 * 4 * 50
    assert min(seeds) >= 1
    assert max(seeds) < 2**31
    assert episode_seed(0, training=True, env=0, episode=0) == 1_334_260_859


def test_squeeze_forgets_case_and_punctuation():
    assert squeeze("Q*bert") == squeeze("qbert") == "qbert"
