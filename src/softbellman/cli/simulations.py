"""Options of the commands `simulate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import DisallowNone

from softbellman.temperature import KAPPA, VALUES


@dataclass(frozen=True)
class SimulateBias:
    """Simulates how much operators overestimate noisy action values: Figure 2.

    Attributes:
        operators: specs, such as `max`, `mellowmax:5`, `double:softmax:5`. A double one takes its weights from an
            independent second estimate.
        actions: numbers of actions.
        values: true action values, of one state, instead of `--actions` and `--distance`.
        distance: how far the true values of all actions but one lie below that of the best; at 0 all are equal.
        noise: normal with variance 1, uniform on [-1, 1], or Laplace's with variance 1.
        scale: what the noise is multiplied by.
        trials: independent trials.
        seed: seed of the noise, which is the same for all operators.
        out: directory for `bias.csv` and the picture, which are replaced if they are there.
        picture: format of the picture.
    """

    operators: tuple[str, ...] = (
        *("max", "double(max)"),
        *("softmax(1)", "double(softmax(1))"),
        *("softmax(5)", "double(softmax(5))"),
        *("softmax(10)", "double(softmax(10))"),
    )
    actions: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    values: DisallowNone[tuple[float, ...] | None] = None
    distance: float = 0.0
    noise: Literal["normal", "uniform", "laplace"] = "normal"
    scale: float = 1.0
    trials: int = 100
    seed: int = 0
    out: Path = Path("runs/simulations")
    picture: Literal["png", "svg", "pdf"] = "png"


@dataclass(frozen=True)
class SimulateComparison:
    """Simulates distance to the max and overestimation over the parameter: Figure 7.

    Attributes:
        families: specs with `*` where the parameter goes, such as `softmax(*)` or `double(mellowmax(*))`.
        actions: numbers of actions.
        start: the smallest parameter.
        stop: the largest parameter.
        points: how many parameters, at equal distances.
        noise: normal with variance 1, uniform on [-1, 1], or Laplace's with variance 1.
        trials: independent trials.
        seed: seed of the noise, which is the same for all operators.
        out: directory for `comparison.csv` and the picture, which are replaced if they are there.
        picture: format of the picture.
    """

    families: tuple[str, ...] = ("softmax(*)", "mellowmax(*)")
    actions: tuple[int, ...] = (2, 10, 100)
    start: float = 0.01
    stop: float = 100.0
    points: int = 100
    noise: Literal["normal", "uniform", "laplace"] = "normal"
    trials: int = 100
    seed: int = 0
    out: Path = Path("runs/simulations")
    picture: Literal["png", "svg", "pdf"] = "png"


@dataclass(frozen=True)
class SimulateTemperature:
    """Simulates the tau at which softmax has no bias, and the taus that `noise` and `match` choose.

    Attributes:
        values: true action values.
        sigma: standard deviations of the normal noise, the same in the values of the target and the online network.
        correlation: between the noise of both networks.
        kappa: that of `noise`: tau is kappa over the noise seen.
        trials: independent trials.
        seed: seed of the noise.
        out: directory for `temperature.csv` and the picture, which are replaced if they are there.
        picture: format of the picture.
    """

    values: tuple[float, ...] = VALUES
    sigma: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0)
    correlation: tuple[float, ...] = (0.0, 0.9)
    kappa: float = KAPPA
    trials: int = 20_000
    seed: int = 0
    out: Path = Path("runs/simulations")
    picture: Literal["png", "svg", "pdf"] = "png"
