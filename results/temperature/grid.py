"""Copies the paper's grid at laptop, its operators and their runs, into scale/, where the study of tau goes on.

.venv/bin/python results/temperature/grid.py
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from softbellman.paper.grid import SCALES, open_study

HERE = Path(__file__).parent
LAPTOP = SCALES["laptop"]


def copy(source: Path, target: Path) -> int:
    """Copies a study without its arms that explore or are cooled, which a comparison of operators does not have.

    Returns:
        How many runs were copied.

    Raises:
        ValueError: the source is no study of the scale or lacks the random policy's scores, or there is something at
            the target.
    """
    study = open_study(LAPTOP, source)
    if study is None:
        raise ValueError(f"{source} holds no study")
    if target.exists():
        raise ValueError(f"{target} is there already, and goes on by the command of README.md")
    operators = [spec for spec in study.operators if spec in LAPTOP.operators]
    runs = [run for run in study.runs if run.operator in operators and run.path.exists()]
    if not (source / "random").exists():
        raise ValueError(f"{source} has no scores of the random policy; softbellman paper check all plays it")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:  # moved once it is whole
        for run in runs:
            shutil.copytree(run.path, Path(folder) / "study" / run.path.relative_to(source))
        shutil.copytree(source / "random", Path(folder) / "study" / "random")
        record = json.dumps(study.record | {"operators": operators}, indent=2) + "\n"
        (Path(folder) / "study" / "study.json").write_text(record)
        (Path(folder) / "study").rename(target)
    return len(runs)


if __name__ == "__main__":
    try:
        print(f"{copy(HERE.parent / 'paper' / 'laptop', HERE / 'scale')} runs")
    except ValueError as error:
        sys.exit(f"grid.py: {error}")
