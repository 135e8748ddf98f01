"""Saved networks at play: what is measured and what is filmed is what they do."""

import re
import sys
import warnings

import numpy as np
import pytest

from softbellman import envs
from softbellman.envs import MissingExtra
from softbellman.policies.export import export
from softbellman.policies.policy import load
from softbellman.report.card import write_card
from softbellman.running import play
from softbellman.running.build import make_network
from softbellman.study.files import load_params, save_params

imageio = pytest.importorskip("imageio.v2")


def pictures_of(path):
    with warnings.catch_warnings(), imageio.get_reader(path) as film:
        warnings.simplefilter("ignore", ResourceWarning)  # its reader leaves the pipes to the decoder open
        return [np.asarray(picture)[..., :3] for picture in film]


def test_a_network_is_tested_on_games_of_its_own_and_always_the_same_ones(cartpole):
    study, _ = cartpole
    run = study.runs[0]
    first, second = (play.evaluate(study, run, episodes=4) for _ in range(2))
    other = play.evaluate(study, run, episodes=4, seed=2)
    assert len(first.scores) == 4
    np.testing.assert_array_equal(first.scores, second.scores)
    assert first.overestimation == second.overestimation
    assert first.scores.tolist() != other.scores.tolist()
    assert first.overestimation is not None


def test_best_and_final_are_the_networks_of_their_test_phases(cartpole):
    study, rows = cartpole
    for index, run in enumerate(study.runs):
        phases = [(row, phase) for at, row, phase in rows if at == index]
        chosen = {"best": max(phases, key=lambda phase: phase[1].mean), "final": phases[-1]}
        for which, (row, phase) in chosen.items():
            again = play.evaluate(
                study, run, network=which, epsilon=0.0, episodes=5, max_steps=300, seed=int(row["test_seed"])
            )
            np.testing.assert_array_equal(again.scores, phase.scores)


@pytest.mark.parametrize("network", ["last", "Best", "", "../seed-1/best", None, 0, ["best"]])
def test_a_network_of_another_name_is_refused_wherever_one_is_asked_for(network, cartpole, tmp_path):
    study, _ = cartpole
    run = study.runs[0]
    for ask in (
        lambda: play.evaluate(study, run, network=network),
        lambda: play.watch(study, run, tmp_path / "film.gif", network=network),
        lambda: load(run.path, network=network),
        lambda: write_card(study, run, tmp_path / "card", network=network),
        lambda: export(study, run, "torch", network=network),
    ):
        with pytest.raises(ValueError, match=rf"^network \({re.escape(repr(network))}\) must be best or final$"):
            ask()
    assert not list(tmp_path.iterdir())


def test_l38_epsilon_0_is_greedy(cartpole):
    study, _ = cartpole
    run, config = study.runs[0], study.config
    env = envs.make(run.environment, seed=0)
    obs = env.reset() + np.float32([[0.02, -0.3, 0.1, 0.4]])
    age = np.zeros(1, np.int64)

    def actions(epsilon):
        policy = play._saved_policy(study, run, env, "final", 1, epsilon)
        return {int(policy(obs, moment, age)[0][0]) for moment in range(500)}

    params, _ = load_params(run.path / "final.safetensors")
    greedy = np.asarray(make_network(config.network, 1.0, (4,), 2).apply(params, obs)).argmax()
    assert actions(0.0) == {greedy}
    assert actions(1.0) == {0, 1}


def test_the_random_policy_is_tested_alike_and_claims_no_values(cartpole):
    study, _ = cartpole
    options = {"episodes": 30, "max_steps": None, "seed": 1}
    random = play.evaluate_random("gym/CartPole-v1", study.config, **options)
    assert 15 < random.mean < 35  # about 22, as everybody finds
    assert random.overestimation is None
    assert random.realised_return is not None
    np.testing.assert_array_equal(
        random.scores, play.evaluate_random("gym/CartPole-v1", study.config, **options).scores
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 1.5}, r"epsilon \(1\.5\) must be in \[0, 1\]"),
        ({"epsilon": float("nan")}, r"epsilon \(nan\)"),
        ({"episodes": 0}, r"episodes \(0\) must be at least 1"),
        ({"max_steps": 0}, "0 agent steps has no step"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_cannot_be_tested_is_refused(cartpole, wrong, message):
    study, _ = cartpole
    with pytest.raises(ValueError, match=message):
        play.evaluate(study, study.runs[0], **wrong)


def test_parameters_of_another_network_are_refused(cartpole, tmp_path):
    study, _ = cartpole
    run = study.runs[0]._replace(path=tmp_path)
    save_params(tmp_path / "best.safetensors", {"q": {"w": np.ones((4, 2)), "b": np.ones(2)}}, 1, 0.0)
    with pytest.raises(ValueError, match="parameters of another network"):
        play.evaluate(study, run)


@pytest.mark.parametrize("ending", [".mp4", ".gif"])
def test_l46_a_film_has_a_picture_for_each_agent_step_and_one_more(walk, tmp_path, ending):
    path, phase, count = play.watch(walk, walk.runs[0], tmp_path / "films" / f"walk{ending}", episodes=1)
    film = pictures_of(path)
    assert (phase.steps, count, len(film)) == (12, 13, 13)
    assert film[0].shape == (40 * 7, 60 * 7, 3)  # a small picture is enlarged
    for moment, picture in enumerate(film):  # the last one too is of this episode, not of the next
        red, _, blue = picture.reshape(-1, 3).mean(axis=0)
        assert red == pytest.approx(20 * moment, abs=12)
        assert blue == pytest.approx(255 - 20 * moment, abs=12)


def test_l46_a_film_of_several_games_ends_with_its_budget(walk, tmp_path):
    path, phase, count = play.watch(walk, walk.runs[0], tmp_path / "walk.mp4", episodes=5, max_steps=30)
    assert (phase.steps, len(phase.scores), count) == (30, 2, 31)
    assert len(pictures_of(path)) == 31


def test_l46_an_atari_film_shows_the_true_screen_in_colour(breakout, tmp_path):
    path, phase, count = play.watch(breakout, breakout.runs[0], tmp_path / "breakout.mp4", max_steps=60)
    film = pictures_of(path)
    assert phase.steps + 1 == count == len(film) == 61
    env = envs.make("atari/breakout", seed=1, training=False, protocol=breakout.config.protocol, record=True)
    env.reset()
    screen = env.screen()
    assert film[0].shape == (420, 320, 3)
    assert np.abs(film[0][::2, ::2].astype(float) - screen).mean() < 4  # what the video's compression takes
    assert np.abs(film[0][..., 0].astype(int) - film[0][..., 2]).max() > 100
    assert any((picture != film[0]).any() for picture in film)


def test_l46_the_last_picture_of_a_game_is_its_own_and_not_the_next_ones(breakout):
    env = envs.make("atari/breakout", seed=1, training=False, protocol=breakout.config.protocol, record=True)
    env.reset()
    first, last, ended = env.screen(), env.screen(), False
    fire, still = env.action_meanings.index("FIRE"), env.action_meanings.index("NOOP")
    for moment in range(2_000):
        before = last
        ended = bool(env.step(np.array([fire if moment % 8 == 0 else still])).game_ended[0])
        last = env.screen()
        if ended:
            break
    assert ended
    assert (last[:30] == before[:30]).all()  # the score and the lives that are left
    assert (last[:30] != first[:30]).any()


def test_l46_without_an_encoder_the_film_is_a_gif(walk, tmp_path, monkeypatch):
    monkeypatch.setattr(play, "_has_encoder", lambda: False)
    path, _, count = play.watch(walk, walk.runs[0], tmp_path / "walk.mp4")
    assert path == tmp_path / "walk.gif"
    assert len(pictures_of(path)) == count
    assert [file.name for file in tmp_path.iterdir()] == ["walk.gif"]


@pytest.mark.parametrize("ending", [".mp4", ".gif"])
def test_a_film_that_is_interrupted_leaves_the_one_before(walk, tmp_path, monkeypatch, ending):
    place = tmp_path / f"walk{ending}"
    place.write_bytes(b"before")
    pictures, add = [], play.FilmWriter.add

    def stop(film, picture):
        if len(pictures) == 5:
            raise KeyboardInterrupt
        pictures.append(picture)
        add(film, picture)

    monkeypatch.setattr(play.FilmWriter, "add", stop)
    with pytest.raises(KeyboardInterrupt):
        play.watch(walk, walk.runs[0], place)
    assert place.read_bytes() == b"before" and [*tmp_path.iterdir()] == [place]


def test_l46_cartpole_is_filmed_without_a_display(cartpole, tmp_path, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.delenv("DISPLAY", raising=False)
    study, _ = cartpole
    path, phase, count = play.watch(study, study.runs[0], tmp_path / "cartpole.mp4", max_steps=20)
    film = pictures_of(path)
    assert phase.steps + 1 == count == len(film)
    assert film[0].shape == (400, 600, 3)
    assert (film[0] != film[-1]).any()


def test_what_cannot_be_filmed_is_refused_before_anything_is_made(cartpole, walk, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"ends in \.mp4 or \.gif, and .*film\.avi does not"):
        play.watch(walk, walk.runs[0], tmp_path / "a" / "film.avi")
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    with pytest.raises(ValueError, match=r"CartPole-v1 cannot be filmed: pygame is not installed, run `pip install"):
        play.watch(cartpole[0], cartpole[0].runs[0], tmp_path / "a" / "film.mp4")
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    with pytest.raises(MissingExtra, match=r'imageio is not installed; run: pip install "softbellman\[train\]"'):
        play.watch(walk, walk.runs[0], tmp_path / "a" / "film.mp4")
    assert not any(tmp_path.iterdir())
