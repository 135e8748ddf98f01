"""Playback of saved networks: evaluation on new games, films, the random policy."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from softbellman import envs
from softbellman.arguments import as_path
from softbellman.config import Config, budgets
from softbellman.envs.step import HostEnv
from softbellman.learning.networks import Network
from softbellman.learning.recipe import Recipe
from softbellman.running.build import accidents, make_env, make_recipe, protocol_of, recorded_scale
from softbellman.running.jax_settings import own_settings, require_backend
from softbellman.study import chance
from softbellman.study.files import load_params
from softbellman.study.runs import RunPath, SavedNetwork, params_file, read_status
from softbellman.study.store import Study
from softbellman.training.evaluation import Policy, TestPhase, greedy_policy, play, random_actions

_HEADLESS = {
    "SDL_VIDEODRIVER": "dummy",  # pictures go into the film, not onto a display
    "SDL_AUDIODRIVER": "dummy",  # without a sound card, it would complain
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
    "IMAGEIO_FFMPEG_NO_PREVENT_SIGINT": "1",  # else the encoder is forked with a handler that JAX's threads forbid
}
CHANCE_GAMES = 100
CHANCE_STEPS = 10_000  # agent steps; slow games are fewer
SMALL_PICTURE = 400  # the longer side, in pixels, from which on a picture is filmed as it is


def exploration_rate(config: Config, epsilon: float | None) -> float:
    """Returns the exploration rate asked for, by default that of the study's own test phases."""
    return config.loop.test_epsilon if epsilon is None else epsilon


def checked_epsilon(epsilon: float) -> float:
    """Returns an exploration rate, or raises for a number that is none."""
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon ({epsilon}) must be in [0, 1]")
    return epsilon


@own_settings()
def evaluate(
    study: Study,
    run: RunPath,
    *,
    network: SavedNetwork = "best",
    epsilon: float | None = None,
    episodes: int = budgets.TEST_GAMES,
    max_steps: int | None = None,
    seed: int = budgets.GAMES_SEED,
) -> TestPhase:
    """Tests a run's saved network on new games.

    Args:
        study: the run's study.
        run: the run.
        network: the network that its test phases found best, or the last one.
        epsilon: exploration rate; None is that of the study's own test phases.
        episodes: games to finish.
        max_steps: budget of agent steps; None is the study's own budget of a test phase, or 5,000 a game if larger.
        seed: seed of the games; training never uses these.

    Raises:
        ValueError: if there are no parameters, or an argument is out of range.
    """
    require_backend()
    config = study.config_of(run)
    env = make_env(run.environment, config, seed, training=False)
    policy = _saved_policy(study, run, env, network, seed, epsilon)
    return _play(policy, env, config, episodes, max_steps)


@own_settings()
def evaluate_random(environment: str, config: Config, *, episodes: int, max_steps: int | None, seed: int) -> TestPhase:
    """Tests the uniformly random policy by the same test phase; it has no values, and so no overestimation."""
    env = make_env(environment, config, seed, training=False)
    rng = np.random.default_rng(seed)

    def policy(obs: np.ndarray, moment: int, age: np.ndarray, legal: Any) -> tuple[np.ndarray, np.ndarray]:
        return random_actions(rng, env), np.zeros(len(obs))

    return _play(policy, env, config, episodes, max_steps)._replace(overestimation=None)


def lacks_chance(study: Study) -> list[str]:
    """List the environments where a run has finished and the random policy has no scores yet."""
    finished = {run.environment for run in study.runs if read_status(run) == "finished"}
    return [name for name in study.environments if name in finished and chance.read(study, name) is None]


def measure_chance(
    study: Study,
    on_note: Callable[[str], None],
    confirm: Callable[[], None] = lambda: None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Play the random policy in each environment where a run has finished, unless it was played, and write its scores.

    The budget is that of one test phase of the study, and at most `CHANCE_STEPS`. A failure is told of and does no
    harm: the report then says nothing of chance. `confirm` is called before anything is written; an
    error of it is such a failure. `say` is called before each is played, which takes a while.
    """
    for environment in lacks_chance(study):
        if say is not None:
            say(f"the random policy plays {environment}, for the score of chance")
        steps = min(CHANCE_STEPS, study.config.loop.test_steps)
        try:
            phase = evaluate_random(environment, study.config, episodes=CHANCE_GAMES, max_steps=steps, seed=0)
            confirm()
            chance.write(study, environment, phase)
        except Exception as error:  # an environment may fail in any way
            on_note(f"the random policy could not be played in {environment}: {type(error).__name__}: {error}")


@own_settings()
def watch(
    study: Study,
    run: RunPath,
    path: str | Path,
    *,
    network: SavedNetwork = "best",
    epsilon: float | None = None,
    episodes: int = budgets.FILM_GAMES,
    max_steps: int = budgets.FILM_STEPS,
    seed: int = budgets.GAMES_SEED,
) -> tuple[Path, TestPhase, int]:
    """Films a run's saved network at play: the true screen in colour, once at the start and after each agent step.

    Args:
        study: the run's study.
        run: the run.
        path: where the film goes, `.mp4` or `.gif`; without an encoder for `.mp4` it becomes a `.gif`.
        network: the network that its test phases found best, or the last one.
        epsilon: exploration rate; None is that of the study's own test phases.
        episodes: games to film.
        max_steps: budget of agent steps: the film ends there at the latest.
        seed: seed of the games.

    Returns:
        The film's path, what was played, and the number of pictures: the agent steps and one.

    Raises:
        ValueError: if there are no parameters or the environment can't be filmed.
        MissingExtra: if imageio is not installed.
    """
    require_backend()
    for name, value in _HEADLESS.items():
        os.environ.setdefault(name, value)
    config = study.config_of(run)
    pace = envs.family_of(run.environment).pictures_per_second(protocol_of(run.environment, config))
    with FilmWriter(path, pace) as film:
        env = make_env(run.environment, config, seed, training=False, record=True)
        policy = _saved_policy(study, run, env, network, seed, epsilon)
        phase = _play(policy, env, config, episodes, max_steps, lambda: film.add(env.screen()))
    return film.path, phase, film.pictures


class FilmWriter:
    """A film that is being written, beside its place until it is whole; its file is made with the first picture.

    Attributes:
        path: where it goes; the ending has become `.gif` if `.mp4` was asked for and there is no encoder.
        pictures: pictures so far.
    """

    def __init__(self, path: str | Path, pictures_per_second: float) -> None:
        """Chooses the encoder.

        Raises:
            ValueError: for another ending than `.mp4` and `.gif`.
            MissingExtra: if imageio is not installed.
        """
        try:
            import imageio.v2 as imageio
        except ModuleNotFoundError as error:
            raise envs.MissingExtra("imageio", "train") from error
        path = as_path(path)
        if path.suffix not in (".mp4", ".gif"):
            raise ValueError(f"a film ends in .mp4 or .gif, and {path} does not")
        self.path = path if path.suffix == ".gif" or _has_encoder() else path.with_suffix(".gif")
        self.pictures = 0
        self._unfinished = self.path.with_name(f".{self.path.stem}.{os.getpid()}{self.path.suffix}")
        self._open, self._rate = imageio.get_writer, pictures_per_second
        self._writer: Any = None

    def __enter__(self) -> "FilmWriter":
        """Returns itself."""
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        """Finishes the file and puts it in its place, or drops it where something was raised."""
        if self._writer is None:
            return
        try:
            self._writer.close()
            if raised is None:
                self._unfinished.replace(self.path)
        finally:
            self._unfinished.unlink(missing_ok=True)

    def add(self, picture: np.ndarray) -> None:
        """Adds a picture `[height, width, 3]` uint8, each pixel made a square of pixels if it is a small one."""
        size = -(-SMALL_PICTURE // max(picture.shape[:2]))
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.suffix == ".mp4":
                options = {"fps": self._rate, "codec": "libx264", "macro_block_size": 2, "quality": 8}
            else:
                options = {"duration": 1000 / self._rate, "loop": 0}
            self._writer = self._open(self._unfinished, **options)
        self._writer.append_data(picture.repeat(size, axis=0).repeat(size, axis=1))
        self.pictures += 1


def _play(
    policy: Policy,
    env: HostEnv,
    config: Config,
    episodes: int,
    max_steps: int | None,
    on_step: Callable[[], None] | None = None,
) -> TestPhase:
    if episodes < 1:
        raise ValueError(f"episodes ({episodes}) must be at least 1")
    if max_steps is None:
        max_steps = max(config.loop.test_steps, budgets.STEPS_OF_A_GAME * episodes)
    try:
        return play(
            policy,
            env,
            max_steps=max_steps,
            max_episodes=episodes,
            update=config.learner,
            on_step=on_step,
        )
    finally:
        env.close()


def _saved_policy(
    study: Study, run: RunPath, env: HostEnv, network: SavedNetwork, seed: int, epsilon: float | None
) -> Policy:
    config = study.config_of(run)
    epsilon = checked_epsilon(exploration_rate(config, epsilon))
    recipe, params, _ = saved(study, run, env, network)
    early = accidents(run.environment, config).get("random_first_actions", 0)
    return greedy_policy(recipe, params, seed, epsilon, early)


def saved(study: Study, run: RunPath, env: HostEnv, network: SavedNetwork) -> tuple[Recipe, Any, dict[str, Any]]:
    """Reads a run's saved network for an environment.

    Returns:
        The recipe that it is computed by, its parameters, and the facts stored beside these.

    Raises:
        ValueError: if there is no such network, or no parameters, or those of another network.
    """
    path, facts = params_file(run, network), study.record["environment_facts"].get(run.environment, {})
    params, stored = load_params(path)
    scale = recorded_scale(facts, str(env.obs_dtype))
    recipe = make_recipe(study.config_of(run), scale, env.obs_shape, env.num_actions)
    _check_shapes(recipe.network, params, path)
    return recipe, params, stored


def _check_shapes(network: Network, params: Any, path: Path) -> None:
    """Refuses parameters of another network than the study's."""
    import jax

    expected = jax.eval_shape(network.init, jax.random.key(0))
    if jax.tree.map(np.shape, expected) != jax.tree.map(np.shape, params):
        raise ValueError(f"{path} holds the parameters of another network than this study's")


def _has_encoder() -> bool:
    try:
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        return False
    return True
