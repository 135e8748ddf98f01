"""Copies the paper's grid at laptop, its operators and their runs, into scale/, where the study of tau goes on.

.venv/bin/python results/temperature/grid.py
"""

import json
import shutil
import sys
from pathlib import Path

from softbellman.paper.grid import SCALES, open_study

HERE = Path(__file__).parent
LAPTOP = SCALES["laptop"]


def copy(source: Path, target: Path) -> int:
    """Copies a study without its arms that explore or are cooled, which a comparison of operators does not have.

    Returns:
        How many runs were copied.

    Raises:
        ValueError: the source is no study of the scale, or there is something at the target.
    """
    study = open_study(LAPTOP, source)
    if study is None:
        raise ValueError(f"{source} holds no study")
    if target.exists():
        raise ValueError(f"{target} is there already, and goes on by the command of README.md")
    operators = [spec for spec in study.operators if spec in LAPTOP.operators]
    runs = [run for run in study.runs if run.operator in operators and run.path.exists()]
    for run in runs:
        shutil.copytree(run.path, target / run.path.relative_to(source))
    shutil.copytree(source / "random", target / "random")
    (target / "study.json").write_text(json.dumps(study.record | {"operators": operators}, indent=2) + "\n")
    return len(runs)


if __name__ == "__main__":
    try:
        print(f"{copy(HERE.parent / 'paper' / 'laptop', HERE / 'scale')} runs")
    except ValueError as error:
        sys.exit(f"grid.py: {error}")
