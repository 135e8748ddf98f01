"""Environments by name."""

import pytest

from softbellman import envs
from softbellman.envs import MissingExtra, episode_seed, squeeze


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
    with pytest.raises(ValueError, match="takes no protocol"):
        envs.make("gym/CartPole-v1", seed=0, protocol=MACHADO_ATARI)


def test_known_lists_what_make_takes():
    pytest.importorskip("ale_py")
    names = envs.known()
    assert {"atari/breakout", "atari/ms_pacman", "gym/CartPole-v1"} <= set(names)
    assert not [name for name in names if "ALE/" in name or "NoFrameskip" in name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("breakout", "did you mean atari/breakout"),
        ("gimm/CartPole-v1", "did you mean gym/CartPole-v1"),
        ("atari/", "names look like atari/"),
        ("gym", "names look like atari/"),
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
