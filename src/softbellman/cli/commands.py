"""What each command can be told: dataclasses, from which the options and their help are made."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import DisallowNone, Positional, arg

from softbellman.envs.atari import AtariProtocol
from softbellman.learning.settings import LearnerSettings
from softbellman.study.config import NetworkSettings
from softbellman.training.settings import LoopSettings

# A number or path that may be left out; None is what it then is, and nothing that could be typed.
_Integer = DisallowNone[int | None]
_Path = DisallowNone[Path | None]
_RunPath = Annotated[Path, Positional, arg(metavar="RUN")]


@dataclass(frozen=True)
class Train:
    """Trains a deep Q-network with a Bellman operator on one environment.

    Attributes:
        environment: `atari/<game>`, or `gym/<id>` for any Gymnasium environment with discrete actions.
        operator: what a target makes of the next state's values: `max`, `mean`, `softmax(5)` or `softmax:5`,
            `mellowmax(5)`, `double(softmax(5))`, or `package.module:name` for one of your own.
        seed: seed of the run; 0 if neither this nor `--seeds` is given.
        seeds: seeds of several runs that train together, instead of `--seed`.
        preset: `paper-atari`, `quick-atari`, `machado-atari`, `demo-atari` or `classic-control`: the values of all
            options below that are not given themselves.
        steps: agent steps in all; the same as `--loop.steps`.
        frames: emulator frames in all, instead of `--steps`.
        out: directory to make for the study; by default `runs/` and its environment, operator and seed.
        threads: threads of the learner; by default all cores. Results repeat for the same number only.
        dry_run: prints the resolved configuration and what it needs, and stops.
        quiet: prints nothing but errors.
        learner: how the learner learns.
        loop: how long it trains, and how it is tested.
        network: the Q-network.
        protocol: what the agent sees of an Atari game.
    """

    environment: Annotated[str, Positional, arg(metavar="ENV")]
    operator: str = "max"
    seed: _Integer = None
    seeds: DisallowNone[tuple[int, ...] | None] = None
    preset: DisallowNone[str | None] = None
    steps: _Integer = None
    frames: _Integer = None
    out: _Path = None
    threads: _Integer = None
    dry_run: bool = False
    quiet: bool = False
    learner: LearnerSettings = field(default_factory=LearnerSettings)
    loop: LoopSettings = field(default_factory=LoopSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    protocol: AtariProtocol = field(default_factory=AtariProtocol)


@dataclass(frozen=True)
class Evaluate:
    """Tests a trained network on new games, and the random policy by the same test phase.

    Attributes:
        run: a run's directory, or a study with one run.
        network: the network that the run's test phases found best, or the final one.
        epsilon: exploration rate of the test.
        episodes: games to finish.
        max_steps: budget of agent steps; by default that of the run's own test phases, or 5,000 a game if that is
            more.
        seed: seed of the games; training never uses these.
        out: JSON file to write the scores to.
        threads: threads of the network; by default all cores.
    """

    run: _RunPath
    network: Literal["best", "final"] = "best"
    epsilon: float = 0.05
    episodes: int = 30
    max_steps: _Integer = None
    seed: int = 1
    out: _Path = None
    threads: _Integer = None


@dataclass(frozen=True)
class Watch:
    """Films a trained network at play: the true screen in colour, without a display.

    Attributes:
        run: a run's directory, or a study with one run.
        network: the network that the run's test phases found best, or the final one.
        epsilon: exploration rate.
        episodes: games to film.
        max_steps: budget of agent steps: the film ends there at the latest.
        seed: seed of the games.
        out: the film, `.mp4` or `.gif`; by default in `videos/` of the run's directory.
    """

    run: _RunPath
    network: Literal["best", "final"] = "best"
    epsilon: float = 0.05
    episodes: int = 1
    max_steps: int = 5_000
    seed: int = 1
    out: _Path = None


@dataclass(frozen=True)
class Operators:
    """Lists the Bellman operators and the laws that each claims, or checks those of one.

    Attributes:
        check: an operator's spec: searches for a violation of each law, and prints what was found.
    """

    check: DisallowNone[str | None] = None


@dataclass(frozen=True)
class Doctor:
    """Says what works on this machine."""


COMMANDS: dict[str, type] = {
    "train": Train,
    "evaluate": Evaluate,
    "watch": Watch,
    "operators": Operators,
    "doctor": Doctor,
}
