"""The family `gym/<id>`: any Gymnasium environment with a Box observation and Discrete actions.

Copies are stepped one after the other as plain scalar environments and reset right after an episode's end. Nothing
here depends on the automatic reset of Gymnasium's vector environments, whose next-step form slips in a step that
ignores its action and leads from one episode into the next.
"""

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from softbellman.arguments import nearest
from softbellman.envs.checks import (
    check_tape,
    checked_actions,
    checked_num_envs,
    checked_seed,
    episode_seed,
    given_to,
)
from softbellman.envs.options import EnvOptions
from softbellman.envs.step import Step, Tape
from softbellman.extras import MissingExtra
from softbellman.faults import in_a_line

try:
    import gymnasium
except ModuleNotFoundError as error:
    raise MissingExtra("gymnasium", "train") from error

from softbellman.envs.gym_api import Checked, EnvironmentFault, checked_throughout
from softbellman.envs.masks import Masks
from softbellman.envs.observations import Observations


class GymEnv:
    """`E` copies of one Gymnasium environment for one run, as a `HostEnv`.

    Observations are laid out, stored and scaled as `Observations` says. Actions are `0 .. n - 1`, whatever the
    environment's own first action; where it gives `info["action_mask"]`, that says which are legal. A breach of the
    API of Gymnasium is a `ValueError` of one line. Every episode starts from a seed of its own, a function of the run's
    seed, the stream (training or test), the copy and the episode's index, so that an episode can be played again from
    its `tape`.

    Arrays in a returned `Step` are copies: an environment that writes into the same array at every step does no harm.
    """

    def __init__(
        self,
        environment: str | Callable[..., gymnasium.Env],
        *,
        seed: int,
        name: str | None = None,
        num_envs: int = 1,
        training: bool = True,
        options: Mapping[str, Any] | None = None,
        record: bool = False,
    ):
        """Makes the copies; the first `reset` starts the episodes.

        Args:
            environment: a Gymnasium id, `module:id` for one that an import registers, or a function that makes a copy.
            seed: seed of the run, `>= 0`.
            name: what the environment of a function is called; by default the function's own name.
            num_envs: number of copies `E`.
            training: False gives test episodes: another stream of seeds.
            options: keyword arguments for the environment itself, or for the function.
            record: renders every step, for `screen`; a function must make copies with `render_mode="rgb_array"`.

        Raises:
            ValueError: for an unknown id, an environment that cannot be made or cannot render, a space that does not
                fit, or frames that cannot be counted.
        """
        self.seed, self.num_envs, self.training = checked_seed(seed), checked_num_envs(num_envs), training
        options = dict(options or {})
        if isinstance(environment, str):
            self.name, self._options = f"gym/{environment}", {}  # its spec holds them
            options |= {"render_mode": "rgb_array"} if record else {}
        else:
            self.name, self._options = name or getattr(environment, "__name__", "environment"), options
        self._make_copy = functools.partial(_make, environment, options, self.name)
        self._envs = [self._make_copy() for _ in range(self.num_envs)]
        first = self._envs[0]
        self.max_episode_steps = _time_limit(first)
        self.frames_per_step = _own_frame_skip(first)
        space, actions = _checked_spaces(first, self.name)
        self.num_actions, self.first_action = int(actions.n), int(actions.start)
        self._observations = Observations(space, self.name)
        self.obs_shape, self.obs_dtype = self._observations.shape, self._observations.dtype
        self.raw_shape, self.raw_dtype = space.shape, np.dtype(space.dtype)
        self.obs_scale = self._observations.scale
        self.stack: int | None = None
        self._masks = Masks(self.name, self.num_envs, self.num_actions)
        self._episodes = [-1] * self.num_envs
        self._actions: list[list[int]] = [[] for _ in range(self.num_envs)]
        self._obs = np.zeros((self.num_envs, *self.obs_shape), self.obs_dtype)
        self._record, self._screens = record, [np.zeros((0, 0, 3), np.uint8)] * self.num_envs
        if record and first.render_mode != "rgb_array":
            raise ValueError(f'{self.name} renders no pictures; one must be made with render_mode="rgb_array"')

    @property
    def legal(self) -> np.ndarray | None:
        """The actions that are legal now, `[E, A]` bool; None where there are no masks, or before the first `reset`."""
        return self._masks.legal

    def reset(self) -> np.ndarray:
        """Starts the first (or next) episode of every copy and returns `obs` `[E, *obs_shape]`."""
        for env in range(self.num_envs):
            self._start(env, self._episodes[env] + 1)
            self._render(env)
        return self._obs.copy()

    def step(self, actions: np.ndarray) -> Step:
        """Takes `actions` `[E]` and returns the `Step`; a copy whose episode ended is reset at once.

        Raises:
            ValueError: for actions out of range or illegal, and for whatever the environment does that breaks the API
                of Gymnasium or its own declarations, or raises.
            RuntimeError: before the first `reset`.
        """
        actions = checked_actions(actions, self.num_envs, self.num_actions, self.legal)
        if self._episodes[0] < 0:
            raise RuntimeError("step before the first reset; call reset() once")
        next_obs = np.empty_like(self._obs)
        reward = np.zeros(self.num_envs, np.float32)
        ends = np.zeros((2, self.num_envs), bool)
        next_legal = None if self.legal is None else self.legal.copy()
        for env, action in enumerate(actions.tolist()):
            next_obs[env], reward[env], *ends[:, env] = self._play(env, action)
            if next_legal is not None and self.legal is not None:
                next_legal[env] = self.legal[env]
            self._obs[env] = next_obs[env]
            self._render(env)
            if ends[:, env].any():
                self._start(env, self._episodes[env] + 1)
        terminated, truncated = ends
        ended = terminated | truncated
        return Step(
            self._obs.copy(), next_obs, reward, terminated, truncated, ended, terminated, self.legal, next_legal
        )

    def rehearse(self) -> list[str]:
        """Resets the first copy and takes a step, to be closed then: a fault is found before anything depends on it.

        Returns:
            Notes for a user on an environment that can be trained with.

        Raises:
            ValueError: as `step`; or if a second copy, such as a test phase plays beside training, is the first again.
        """
        env = self._envs[0]
        second = self._make_copy()
        if second.unwrapped is env.unwrapped:
            raise EnvironmentFault(f"{self.name} makes the same environment again; it must make another at each call")
        second.close()
        self._start(0, 0)
        outside = self._observations.outside(self._obs[0])
        self._obs[0] = self._play(0, 0 if self.legal is None else int(self.legal[0].argmax()))[0]
        outside = outside or self._observations.outside(self._obs[0])
        return [f"{self.name} gave {outside}; floats enter as they are"] if outside else []

    def close(self) -> None:
        """Closes the copies."""
        for env in self._envs:
            env.close()

    @property
    def tape(self) -> tuple[Tape, ...]:
        """One `Tape` per copy: with the run's seed, all the state there is of a deterministic environment."""
        return tuple(
            Tape(episode, self._seed(env, episode), np.array(actions, np.uint16), zlib.crc32(self._obs[env]))
            for env, (episode, actions) in enumerate(zip(self._episodes, self._actions, strict=True))
        )

    def restore(self, tape: Sequence[Tape]) -> np.ndarray:
        """Plays the episodes of `tape` again up to where they were, and returns the current `obs`.

        Raises:
            ValueError: if the tape is of another number of copies or another seed, or if the environment, played
                again with the same seed and actions, ends on another observation: it cannot be resumed exactly.
        """
        check_tape(tape, self.num_envs, self.seed, training=self.training)
        self._episodes = [one.game for one in tape]  # of all, so that none is played twice if one can't be restored
        for env, one in enumerate(tape):
            self._start(env, one.game)
            for action in one.actions.tolist():
                self._obs[env] = self._play(env, action)[0]
            if zlib.crc32(self._obs[env]) != one.checksum:
                raise ValueError(
                    f"{self.name}, played again from its seed and actions, does not end where it did: "
                    "it draws random numbers that reset(seed=...) does not fix, or it is not the same version"
                )
        return self._obs.copy()

    def screen(self, env: int = 0) -> np.ndarray:
        """Returns the picture of copy `env` after the last action, `[height, width, 3]` uint8.

        Where that action ended an episode it is the last picture of it, not the first of the next.

        Raises:
            RuntimeError: unless the environment was made with `record=True` and reset.
        """
        if not self._record or not self._screens[env].size:
            raise RuntimeError("no picture is kept; make the environment with record=True and reset it")
        return self._screens[env].copy()

    def taken(self, raw: Any) -> np.ndarray:
        """Returns an observation that someone else has, as `reset` and `step` give it; see `HostEnv.taken`."""
        return self._observations.taken(raw, given_to(self.name))

    def describe(self) -> dict[str, Any]:
        """Returns everything that makes scores of two runs comparable or not, for a log and for a run's record."""
        spec = self._envs[0].spec
        options = (spec.kwargs if spec else {}) | self._options
        return {
            "environment": self.name,
            "training": self.training,
            "frame_skip": 1,
            "frames_per_step": self.frames_per_step,
            "max_episode_steps": self.max_episode_steps,
            "options": {name: _said(value) for name, value in options.items() if name != "render_mode"},
            "num_actions": self.num_actions,
            **({} if self.legal is None else {"action_mask": "heeded"}),
            "reward_clip": "none in the environment",
        }

    def _seed(self, env: int, episode: int) -> int:
        return episode_seed(self.seed, training=self.training, env=env, episode=episode)

    def _start(self, env: int, episode: int) -> None:
        self._episodes[env] = episode
        self._actions[env].clear()
        obs, info = self._envs[env].reset(seed=self._seed(env, episode))
        self._obs[env] = self._observations.taken(obs)
        self._masks.take(env, info)

    def _play(self, env: int, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """Takes a step of copy `env`, and returns the successor, the reward and both ends."""
        self._actions[env].append(action)
        obs, reward, terminated, truncated, info = self._envs[env].step(self.first_action + action)
        reward = float(reward)
        self._masks.take(env, info, terminated=bool(terminated))
        with np.errstate(over="ignore"):
            if not np.isfinite(np.float32(reward)):
                raise EnvironmentFault(f"{self.name} gave the reward {reward}, which is not finite in float32")
        return self._observations.taken(obs), reward, bool(terminated), bool(truncated)

    def _render(self, env: int) -> None:
        """Keeps the picture of copy `env`, where pictures are asked for."""
        if not self._record:
            return
        try:
            picture = np.asarray(self._envs[env].render())
        except (gymnasium.error.Error, ImportError) as error:
            raise EnvironmentFault(f"{self.name} cannot be filmed: {error}") from error
        except (Exception, SystemExit) as error:  # it may fail in any way of its own
            raise EnvironmentFault(f"{self.name} cannot be filmed: {in_a_line(error)}") from error
        if picture.ndim != 3 or picture.shape[-1] != 3 or picture.dtype != np.uint8:
            raise EnvironmentFault(
                f"{self.name} cannot be filmed: it renders {picture.dtype} of shape {picture.shape}, "
                "and pictures are uint8 of shape [height, width, 3]"
            )
        self._screens[env] = picture


def names() -> list[str]:
    """Lists the ids registered with Gymnasium, those of ale-py left out: they go by `atari/<game>`."""
    return sorted(name for name, spec in gymnasium.registry.items() if "ale_py" not in str(spec.entry_point))


def make(name: str, protocol: EnvOptions, **options: Any) -> GymEnv:
    """Makes the environment of an id; see `GymEnv`."""
    return GymEnv(name, options=protocol.options, **options)


def rules(facts: Mapping[str, Any]) -> str:
    """Says in one sentence what makes scores of two runs comparable or not."""
    limit, skip = facts["max_episode_steps"], facts["frames_per_step"]
    options = "".join(f", {name} {value}" for name, value in facts["options"].items())
    ends = f"cut after {limit:,} steps" if limit else "no time limit"
    masked = ', the legal ones by info["action_mask"]' if "action_mask" in facts else ""
    skips = f"frame skip {skip}" if skip > 1 else "no frame skip"
    return f"{facts['num_actions']} actions{masked}, {skips}, {ends}{options}"


def _own_frame_skip(env: gymnasium.Env) -> int:
    """Returns the number of frames that `env` itself takes per step.

    Raises:
        ValueError: for an environment that skips a random number of them.
    """
    own: Any = (env.spec.kwargs if env.spec else {}).get("frameskip")
    for attribute in ("_frameskip", "frameskip", "frame_skip"):
        own = getattr(env.unwrapped, attribute, None) if own is None else own
    own = 1 if own is None else own
    if not isinstance(own, int | np.integer):
        name = env.spec.id if env.spec else type(env.unwrapped).__name__
        raise ValueError(
            f"{name} skips a random number of frames, {own}, so frames cannot be counted: make it with "
            "frameskip=1, or, for an Atari game, use atari/<game>"
        )
    return int(own)


def _said(option: Any) -> Any:
    """Returns an option of an environment as JSON can hold it; an object goes by the name of its class."""
    if option is None or isinstance(option, bool | int | float | str):
        return option
    if isinstance(option, np.ndarray | np.generic):
        return _said(option.tolist())
    if isinstance(option, list | tuple):
        return [_said(each) for each in option]
    if isinstance(option, Mapping):
        return {str(name): _said(value) for name, value in option.items()}
    named = option if hasattr(option, "__qualname__") else type(option)
    return f"{named.__module__}.{named.__qualname__}"


def _make(environment: Any, options: dict[str, Any], label: str) -> Checked:
    """Makes one copy."""
    if not isinstance(environment, str):
        try:
            env = environment(**options)
        except (Exception, SystemExit) as error:
            raise EnvironmentFault(f"{label} cannot be made: {in_a_line(error)}") from error
        if not isinstance(env, gymnasium.Env):
            raise ValueError(f"{label} must make one gymnasium.Env, not a vector of them; it made {type(env).__name__}")
        return checked_throughout(env, label)
    if environment.startswith("ALE/"):
        raise ValueError(
            f"gym/{environment} skips frames by itself: use atari/<game>, which spells out its frame skip and the "
            "rest of its protocol"
        )
    try:
        env = gymnasium.make(environment, **{"disable_env_checker": True} | options)
    except gymnasium.error.UnregisteredEnv as error:
        own = "" if ":" in environment else f"; one that your module registers is gym/my_module:{environment}"
        raise ValueError(
            f"unknown Gymnasium environment {environment!r}{nearest(environment, names())}{own}"
        ) from error
    except (Exception, SystemExit) as error:  # an environment may fail to start in any way of its own
        hint = "; module:id imports the module first" * isinstance(error, ModuleNotFoundError)
        raise EnvironmentFault(f"{label} cannot be made: {in_a_line(error)}{hint}") from error
    return checked_throughout(env, label)


def _time_limit(env: gymnasium.Env) -> int | None:
    """Finds the time limit of an environment: that of its wrappers which cuts first."""
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return min(limits, default=None)


def _checked_spaces(env: gymnasium.Env, name: str) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Discrete]:
    """Returns the spaces of observations and actions, or raises, with the space and what to do, for other kinds."""
    observations, actions = (getattr(env, f"{name_of}_space", None) for name_of in ("observation", "action"))
    observed, acted = (" ".join(str(space).split()) for space in (observations, actions))  # arrays have lines
    if isinstance(observations, gymnasium.spaces.Discrete):
        raise ValueError(
            f"{name} has the observation space {observed}; a Box is needed: wrap it in "
            "gymnasium.wrappers.FlattenObservation (one-hot), or, if it is a finite MDP, use mdp/<example>"
        )
    if not isinstance(observations, gymnasium.spaces.Box):
        raise ValueError(
            f"{name} has the observation space {observed}; a Box is needed: "
            "wrap it in gymnasium.wrappers.FlattenObservation"
        )
    if not isinstance(actions, gymnasium.spaces.Discrete):
        raise ValueError(
            f"{name} has the action space {acted}; a Discrete one is needed, since the value of each action is "
            "learned: wrap it in gymnasium.wrappers.TransformAction from an index to one of finitely many actions"
        )
    return observations, actions
