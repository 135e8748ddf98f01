"""Grid of runs behind the paper's training figures and tables, at three scales.

All views of a scale share one study, so that no run is trained twice. It grows: a view adds the operators it needs.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from softbellman.analysis.scores import final_phases
from softbellman.arguments import nearest
from softbellman.config import Config, as_arm, decisive, preset, with_settings
from softbellman.study.store import Study, study_in

if TYPE_CHECKING:
    from softbellman.running.comparison import Comparison

PAPERS_PARAMETERS = (1, 5, 10)
"""The paper's grid of tau and omega."""

COOLED = "softmax(1), controller=spread_cooling"
EXPLORING_MAX = "max, exploration=policy(softmax({:g}))"
EXPLORING_MELLOWMAX = "mellowmax({0:g}), exploration=policy(mellowmax({0:g}))"
"""Arms beside the grid's operators: softmax cooled as in the authors' code, and operators that explore by a policy."""


class Scale(NamedTuple):
    """How much is run.

    Attributes:
        name: what `--scale` takes.
        summary: one line.
        environments: names of the environments.
        parameters: the grid of tau and omega, increasing.
        seeds: the seeds of each arm in each environment.
        preset: name of the preset.
        settings: values by dotted name in place of the preset's.
        differs: what is not as in the paper, in a sentence.
        decides: whether its runs are long enough for a verdict.
    """

    name: str
    summary: str
    environments: tuple[str, ...]
    parameters: tuple[int, ...]
    seeds: tuple[int, ...]
    preset: str
    settings: Mapping[str, Any]
    differs: str
    decides: bool = True

    @property
    def operators(self) -> tuple[str, ...]:
        """Specs of the whole grid's operators."""
        return operators(self.parameters)

    @property
    def arms(self) -> tuple[str, ...]:
        """The operators, then the arms that explore by a policy of their own, and softmax cooled."""
        return (*self.operators, *explorers(self.parameters))

    @property
    def config(self) -> Config:
        """The configuration of every run but for what an arm says."""
        return with_settings(preset(self.preset).config, self.settings)

    @property
    def phases(self) -> int:
        """Test phases of a run."""
        loop = self.config.loop
        return loop.steps // loop.epoch_steps

    @property
    def final_phases(self) -> int:
        """How many of the last of them a final score is the mean of."""
        return final_phases(self.phases)

    @property
    def is_atari(self) -> bool:
        """Its games are the paper's own."""
        return all(environment.startswith("atari/") for environment in self.environments)

    @property
    def games(self) -> tuple[str, ...]:
        """The games' names, without what they are games of."""
        return tuple(environment.partition("/")[2] for environment in self.environments)

    @property
    def folder(self) -> Path:
        """Where its study is unless another directory is named."""
        return Path("runs") / f"paper-{self.name}"


def operators(parameters: Iterable[float]) -> tuple[str, ...]:
    """List the operators of a grid of tau and omega.

    >>> operators([5])
    ('max', 'double(max)', 'softmax(5)', 'double(softmax(5))', 'mellowmax(5)')
    """
    grids = ("softmax({:g})", "double(softmax({:g}))", "mellowmax({:g})")
    parameters = tuple(parameters)
    return ("max", "double(max)", *(grid.format(number) for grid in grids for number in parameters))


def explorers(parameters: Iterable[float]) -> tuple[str, ...]:
    """List the arms that tell what is due to exploration, and to cooling.

    >>> explorers([5])[1:]
    ('max, exploration=policy(softmax(5))', 'mellowmax(5), exploration=policy(mellowmax(5))')
    """
    grids = (EXPLORING_MAX, EXPLORING_MELLOWMAX)
    parameters = tuple(parameters)
    return (COOLED, *(grid.format(number) for grid in grids for number in parameters))


_SMOKE = Scale(
    name="smoke",
    summary="MinAtar's breakout, 4,000 agent steps: shows in a minute or two that all of it works, decides nothing",
    environments=("minatar/breakout",),
    parameters=(1, 30),
    seeds=(0, 1),
    preset="demo-minatar",
    settings={
        "loop.steps": 4_000,
        "loop.epoch_steps": 1_000,
        "loop.test_steps": 1_000,
        "loop.test_episodes": 10,
        "loop.held_out_states": 320,
        "loop.gradient_batches": 5,
        "learner.replay_capacity": 5_000,
        "learner.replay_start_steps": 500,
        "learner.epsilon_decay_steps": 2_000,
        "learner.target_period_updates": 100,
    },
    differs=(
        "One game of MinAtar in place of six of Atari, 4,000 agent steps a run in place of 50,000,000, two seeds: "
        "nothing is learned in so few steps."
    ),
    decides=False,
)
_LAPTOP = Scale(
    name="laptop",
    summary="three games of MinAtar that the paper has, 600,000 agent steps, 5 seeds: 300 runs, and 45 on exploration",
    environments=("minatar/breakout", "minatar/asterix", "minatar/seaquest"),
    parameters=(1, 5, 10, 30, 100, 300),
    seeds=(10, 11, 12, 13, 14),
    preset="sharp-minatar",
    settings={},
    differs=(
        "MinAtar's games in place of Atari's: one board of 10 x 10 and a small network in place of four screens and "
        "the paper's, one frame a step, a tenth of the actions sticky, no lives, other scores, raw rewards; 600,000 "
        "agent steps a run in place of 50,000,000, with epsilon at its end after 105,000; Adam in place of RMSProp, "
        "and losses averaged over a minibatch in place of summed, so that gradient norms are a 32nd of what they would "
        "be and variances a 1,024th; tau and omega up to 300, since values of MinAtar's actions lie closer together."
    ),
)
_FULL = Scale(
    name="full",
    summary="the paper's six games of Atari, 50,000,000 agent steps, 5 seeds: 330 runs, and 90 on exploration",
    environments=tuple(
        f"atari/{game}" for game in ("qbert", "ms_pacman", "crazy_climber", "breakout", "asterix", "seaquest")
    ),
    parameters=PAPERS_PARAMETERS,
    seeds=(0, 1, 2, 3, 4),
    preset="paper-atari",
    settings={},
    differs="Every departure from the paper and its code has a number in docs/deviations.md.",
)

SCALES = {scale.name: scale for scale in (_SMOKE, _LAPTOP, _FULL)}


def find_scale(name: str) -> Scale:
    """Return a scale by name.

    Raises:
        ValueError: for an unknown name; the nearest and all others are listed.
    """
    if name not in SCALES:
        raise ValueError(f"unknown scale {name!r}{nearest(name, SCALES)} (there are {', '.join(SCALES)})")
    return SCALES[name]


def open_study(scale: Scale, path: Path) -> Study | None:
    """Open the study of a scale, or return None if the directory has none.

    Raises:
        ValueError: if it holds a study that is none of this scale, or none that can be read.
    """
    study = study_in(path)
    if study and (faults := _faults(scale, study)):
        other = next((f"of scale {each.name}" for each in SCALES.values() if not _faults(each, study)), "of no scale")
        raise ValueError(
            f"{path} holds a study {other}, not of {scale.name} ({'; '.join(faults)}); name another directory or scale"
        )
    return study


def plan_runs(scale: Scale, needed: np.ndarray, study: Study | None) -> "Comparison":
    """Check the comparison that trains runs of a scale, and leaves others that its study has as they are.

    Args:
        scale: the scale.
        needed: `[game, arm, seed]` which runs are needed.
        study: the study, as `open_study` returned it.
    """
    from softbellman.running.comparison import prepare

    cells = {(scale.environments[game], scale.arms[arm], scale.seeds[seed]) for game, arm, seed in np.argwhere(needed)}
    wanted = {*(arm for _, arm, _ in cells), *(study.operators if study else ())}
    chosen = [as_arm(spec) for spec in scale.arms if spec in wanted]
    return prepare(scale.environments, chosen, scale.seeds, scale.config)._replace(only=frozenset(cells))


def _faults(scale: Scale, study: Study) -> list[str]:
    """Say in what a study is none of a scale: it may lack runs, and have no others."""
    faults = []
    for name, allowed in (("environments", scale.environments), ("operators", scale.arms), ("seeds", scale.seeds)):
        strange = [str(value) for value in getattr(study, name) if value not in allowed]
        faults += [f"{name} {', '.join(strange)}"] if strange else []
    there, asked = ({"loop.steps": c.loop.steps} | decisive(c) for c in (study.config, scale.config))
    changed = [name for name in asked if asked[name] != there[name]]
    more = f" and {len(changed) - 3} more settings" if len(changed) > 3 else ""
    named = ", ".join(f"{name} {there[name]} there, {asked[name]} asked for" for name in changed[:3])
    return [*faults, *([named + more] if changed else [])]
