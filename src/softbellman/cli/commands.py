"""Options of every command: dataclasses, from which the command line and its help are made."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import DisallowNone, Positional, arg

from softbellman.cli.simulations import SimulateBias, SimulateComparison, SimulateTemperature
from softbellman.config import Config, Preset, budgets, preset
from softbellman.running.engines import HERE, LOCAL

# A number or path that may be left out; None is what it then is, and nothing that could be typed.
_Integer = DisallowNone[int | None]
_Number = DisallowNone[float | None]
_Path = DisallowNone[Path | None]
_RunPath = Annotated[Path, Positional, arg(metavar="RUN")]


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of every command that begins to train.

    Attributes:
        preset: `paper-atari`, `quick-atari`, `sharp-atari`, `machado-atari`, `rainbow`, `demo-atari`,
            `minatar`, `quick-minatar`, `sharp-minatar`, `demo-minatar` or `classic-control`: the values of all options
            below that are not given themselves. By default that of the environment: its values are shown by
            `ENV --help`.
        steps: agent steps of a run; the same as `--loop.steps`.
        frames: emulator frames of a run, instead of `--steps`.
        deterministic: has XLA use only operations that repeat to the last bit, where there is a GPU, and fail at
            others. A CPU always does.
        dry_run: prints the resolved configuration and what it needs, and stops.
        quiet: prints nothing but errors.
        log: where rows go beside `metrics.csv`: `tensorboard`, `wandb`, `mlflow`, `trackio`, or `module:function` for
            a sink of your own.
        config: the configuration.
    """

    preset: DisallowNone[str | None] = None
    steps: _Integer = None
    frames: _Integer = None
    deterministic: bool = False
    dry_run: bool = False
    quiet: bool = False
    log: DisallowNone[tuple[str, ...] | None] = None
    config: Annotated[Config, arg(name="")] = field(default_factory=Config)

    def checked_preset(self) -> Preset:
        """Returns the preset, after refusing a budget that is given twice.

        Raises:
            ValueError: for an unknown preset, too.
        """
        chosen = preset(str(self.preset))
        if self.config.loop.steps != chosen.config.loop.steps and (self.steps or self.frames) is not None:
            raise ValueError("give --loop.steps or one of --steps and --frames, not both")
        return chosen


@dataclass(frozen=True, kw_only=True)
class Train(Training):
    """Trains a deep Q-network with a Bellman operator on one environment.

    Attributes:
        environment: `atari/<game>`, `minatar/<game>`, `mdp/<example>`, `gym/<id>` for any Gymnasium environment with
            discrete actions, or `package.module:function` for a function or class of your own that makes one.
        operator: what a target makes of the next state's values: `max`, `mean`, `softmax(5)` or `softmax:5`,
            `mellowmax(5)`, `double(softmax(5))`, or `package.module:name` for one of your own; or an arm, as for
            `compare`.
        seed: seed of the run; 0 if neither this nor `--seeds` is given.
        seeds: seeds of several runs, instead of `--seed`.
        out: directory to make for the study; by default `runs/` and its environment, operator and seed. If the same
            study is there already, it goes on.
        threads: threads of the learner; by default all cores. Results repeat for the same number only.
        engine: what trains: `here`, this process; `local`, processes on this machine; `ray`, `ray:host:port` or
            `ray://host:port`, a Ray cluster; `slurm` or `slurm:name=value,...`, jobs; or `module:function`, your own.
    """

    environment: Annotated[str, Positional, arg(metavar="ENV")]
    operator: str = "max"
    seed: _Integer = None
    seeds: DisallowNone[tuple[int, ...] | None] = None
    out: _Path = None
    threads: _Integer = None
    engine: str = HERE


@dataclass(frozen=True, kw_only=True)
class Compare(Training):
    """Trains several operators with several seeds each, many runs at once, and reports on them.

    Attributes:
        environments: one or more environments, as for `train`.
        operators: Bellman operators, each as for `train`: `max softmax:5 double:softmax:5`. All are compared with the
            first. One may have settings of its own, and a label, and is then an arm: `"mine=max, gap=gap(0.9)"`.
        seeds: how many seeds, 0 and up; or, if several numbers are given, the seeds themselves. 5 if neither this nor
            `--seed` is given.
        seed: one seed, instead of `--seeds`.
        out: directory to make for the study; by default one in `runs/` that is the same for the same environments,
            operators and settings. If the study is there already, it goes on; runs that it lacks are added, and no
            other is done again.
        workers: groups of runs that train at once, each in a process of its own; by default one for each core.
        threads: threads of each worker; by default the cores for each. Results repeat for the same number only.
        engine: what trains, as for `train`.
        retry_failed: tries runs again that have failed.
    """

    environments: Annotated[tuple[str, ...], Positional, arg(metavar="ENV [ENV ...]")]
    operators: Annotated[tuple[str, ...], arg(aliases=("--arms",))] = ("max", "softmax(5)", "mellowmax(5)")
    seeds: DisallowNone[tuple[int, ...] | None] = None
    seed: _Integer = None
    out: _Path = None
    workers: _Integer = None
    threads: _Integer = None
    engine: str = LOCAL
    retry_failed: bool = False


@dataclass(frozen=True)
class Resume:
    """Goes on with a study that was stopped, or begins one of which there is only its study.json.

    Attributes:
        study: its directory.
        workers: groups that train at once; by default as many as their threads leave cores for.
        threads: threads of the learner; by default as many as it was begun with, which is what results repeat for.
        engine: what trains, as for `train`; by default that with which the study was begun.
        retry_failed: tries runs again that have failed, as an engine in this process does by itself.
        inexact: goes on also where the game under way can't be played again up to where it was.
        quiet: prints nothing but errors.
    """

    study: Annotated[Path, Positional, arg(metavar="DIR")]
    workers: _Integer = None
    threads: _Integer = None
    engine: DisallowNone[str | None] = None
    retry_failed: bool = False
    inexact: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Report:
    """Prints what a comparison found, and writes a page of figures, tables and films.

    Attributes:
        study: its directory.
        out: directory of the page; by default `report/` in the study's.
        follow: writes the page anew after each test phase, as long as the study is trained; the page reloads itself.
    """

    study: Annotated[Path, Positional, arg(metavar="DIR")]
    out: _Path = None
    follow: bool = False


@dataclass(frozen=True)
class Evaluate:
    """Tests a trained network on new games, and the random policy by the same test phase.

    Attributes:
        run: a run's directory, or a study with one run.
        network: the network that the run's test phases found best, or the final one.
        epsilon: exploration rate of the test; by default that of the run's own test phases.
        episodes: games to finish.
        max_steps: budget of agent steps; by default that of the run's own test phases, or 5,000 a game if that is
            more.
        seed: seed of the games; training never uses these.
        out: JSON file to write the scores to.
        threads: threads of the network; by default all cores.
    """

    run: _RunPath
    network: Literal["best", "final"] = "best"
    epsilon: _Number = None
    episodes: int = budgets.TEST_GAMES
    max_steps: _Integer = None
    seed: int = budgets.GAMES_SEED
    out: _Path = None
    threads: _Integer = None


@dataclass(frozen=True)
class Watch:
    """Films a trained network at play: the true screen in colour, without a display.

    Attributes:
        run: a run's directory, or a study with one run.
        network: the network that the run's test phases found best, or the final one.
        epsilon: exploration rate; by default that of the run's own test phases.
        episodes: games to film.
        max_steps: budget of agent steps: the film ends there at the latest.
        seed: seed of the games.
        out: the film, `.mp4` or `.gif`; by default in `videos/` of the run's directory.
    """

    run: _RunPath
    network: Literal["best", "final"] = "best"
    epsilon: _Number = None
    episodes: int = budgets.FILM_GAMES
    max_steps: int = budgets.FILM_STEPS
    seed: int = budgets.GAMES_SEED
    out: _Path = None


@dataclass(frozen=True)
class Card:
    """Writes a folder to hand on: a model card, a film, the parameters, the operator and the scores. Nothing is sent.

    Attributes:
        run: a run's directory, or a study with one run.
        network: the network that the run's test phases found best, or the final one.
        out: the folder, new or empty; by default `card/` in the run's directory.
    """

    run: _RunPath
    network: Literal["best", "final"] = "best"
    out: _Path = None


@dataclass(frozen=True)
class Export:
    """Writes a trained network for PyTorch or ONNX: observations as the environment gives them in, action values out.

    Attributes:
        run: a run's directory, or a study with one run.
        to: `torch`, a safetensors file that `softbellman.integrations.torch_network` reads, or `onnx`.
        network: the network that the run's test phases found best, or the final one.
        out: the file; by default in `export/` of the run's directory.
    """

    run: _RunPath
    to: Literal["torch", "onnx"] = "torch"
    network: Literal["best", "final"] = "best"
    out: _Path = None


@dataclass(frozen=True)
class Operators:
    """Lists the Bellman operators and the laws that each claims, or checks those of one.

    Attributes:
        check: an operator's spec: searches for a violation of each law, and prints what was found.
        table: prints the paper's Table 3, derived from the laws.
    """

    check: DisallowNone[str | None] = None
    table: bool = False


@dataclass(frozen=True)
class Solve:
    """Solves a finite Markov decision process exactly, under any Bellman operator.

    Attributes:
        target: an example such as `forest` or `two-fixed-points`, a Gymnasium id with a table of transitions such as
            `FrozenLake-v1`, or a .json or .npz file; `softbellman.tabular.files` describes both.
        operator: the operator's spec, as for `train`.
        gamma: discount factor; by default the example's or file's own, and 0.99 for Gymnasium.
        gap: part of the action gap that rewards lose: `gap(0.9)` is advantage learning, with `logsumexp(30)`
            Munchausen's recursion; also `persistent(0.9)`, `persistent_q(0.9)`, or a ceiling, as in `gap(0.9, 1)`.
        method: Newton's, or fixed-point iteration.
        tolerance: the largest error of the action values to put up with.
        max_iterations: budget of iterations from each start; by default enough for a contraction.
        out: CSV file to write all to, one line for each state and action.
    """

    target: Annotated[str, Positional, arg(metavar="TARGET")]
    operator: str = "max"
    gamma: _Number = None
    gap: str = "none"
    method: Literal["newton", "iteration"] = "newton"
    tolerance: float = 1e-10
    max_iterations: _Integer = None
    out: _Path = None


_View = Annotated[str, Positional, arg(metavar="NAME")]


@dataclass(frozen=True)
class PaperList:
    """Lists the paper's figures and tables, and the scales to run them at."""


@dataclass(frozen=True)
class PaperRun:
    """Trains what a figure or table of the paper lacks, draws it, and gives the verdicts on its claims.

    Attributes:
        name: a name that `softbellman paper list` gives, such as `figure-3`, or `all`.
        scale: `smoke`, a minute or two and no answer; `laptop`, MinAtar in hours; `full`, the paper's own games, in
            months.
        out: directory of the scale's study, which all figures and tables share; by default `runs/paper-<scale>`.
        workers: groups of runs that train at once; by default one for each core.
        retry_failed: tries runs again that have failed.
        dry_run: prints what it would take, hours from a short calibration included, and stops.
    """

    name: _View
    scale: str = "smoke"
    out: _Path = None
    workers: _Integer = None
    retry_failed: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class PaperCheck:
    """Gives the verdicts on the claims of a figure or table: supported, not supported, or undecided.

    Attributes:
        name: a name that `softbellman paper list` gives, such as `figure-3`, or `all`.
        scale: `smoke`, `laptop` or `full`.
        study: directory of the scale's study; by default `runs/paper-<scale>`.
    """

    name: _View
    scale: str = "smoke"
    study: _Path = None


@dataclass(frozen=True)
class PaperPage:
    """Writes a page of all figures and tables, ours beside the paper's, with their verdicts.

    Attributes:
        scale: `smoke`, `laptop` or `full`.
        study: directory of the scale's study; by default `runs/paper-<scale>`.
        markdown: a file to write the same to as a document, with its pictures beside the page.
    """

    scale: str = "smoke"
    study: _Path = None
    markdown: _Path = None


@dataclass(frozen=True)
class Doctor:
    """Says what works on this machine."""


COMMANDS: dict[str, type] = {
    "train": Train,
    "compare": Compare,
    "resume": Resume,
    "report": Report,
    "evaluate": Evaluate,
    "watch": Watch,
    "card": Card,
    "export": Export,
    "operators": Operators,
    "solve": Solve,
    "simulate bias": SimulateBias,
    "simulate comparison": SimulateComparison,
    "simulate temperature": SimulateTemperature,
    "paper list": PaperList,
    "paper run": PaperRun,
    "paper check": PaperCheck,
    "paper page": PaperPage,
    "doctor": Doctor,
}
