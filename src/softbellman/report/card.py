"""Model card: a run as a folder to hand on, which is a study of that one run with a page that says what it is.

    README.md       the card, with the metadata that model hubs read
    replay.mp4      a game of the network
    operator.json   the Bellman operator and the laws that it claims
    results.csv     scores of the study in this environment, with their intervals
    study.json      what was asked for; beside it, in runs/, the parameters and rows of the run

Nothing is sent anywhere.
"""

import dataclasses
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from softbellman.analysis.findings import find, under_way
from softbellman.analysis.records import Records
from softbellman.analysis.scores import collect
from softbellman.config import fields, in_words
from softbellman.envs.families import family_of
from softbellman.faults import reason_of
from softbellman.report import account, page
from softbellman.report.tables import in_short, of_operators, write_table
from softbellman.report.wording import count
from softbellman.study.files import load_params, read_metrics, write_atomically
from softbellman.study.locks import PREFIX
from softbellman.study.place import require_new
from softbellman.study.runs import RunPath, SavedNetwork, params_file, read_status
from softbellman.study.store import Study
from softbellman.study.writer import write_status

if TYPE_CHECKING:
    from softbellman.policies.policy import Policy

_OF_A_RUN = ("best.safetensors", "final.safetensors", "metrics.csv")
_STANDING = ("version", "revision", "agent_steps", "updates")
_OWN = re.compile(r"\b[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # `package.module:name`
# The folders of a place: in quotes, or before a file's line, they may have spaces.
_FOLDERS = re.compile(
    r"""(?<=['"(])~?/[^'"()\n]*/(?=[^'"()/\n]*(?:['"]|, line \d+\)))"""
    r"""|(?<![\w./~-])~?/(?:[^\s'"(),:;=/]+/)*(?=[^\s/])"""
)


def write_card(study: Study, run: RunPath, out: Path, *, network: SavedNetwork = "best") -> Path:
    """Writes the card of a run.

    Args:
        study: the run's study.
        run: the run.
        out: the folder, new or empty.
        network: the network that is filmed and told of: `best`, by the run's test phases, or `final`.

    Returns:
        The path of its `README.md`.

    Raises:
        ValueError: if there is no such network, no parameters or no rows, or the folder holds something already.
        MissingExtra: if jinja2 is not installed.
    """
    require_new(out)
    _, saved = load_params(params_file(run, network))
    if not len(read_metrics(run.path / "metrics.csv")["epoch"]):
        raise ValueError(f"{run.path / 'metrics.csv'} has no row: without a test phase there is nothing to tell")
    place = out if out.exists() else out.parent  # a directory that is there may be a link, or a mounted one
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".card-", dir=place) as scratch:
        made = Path(scratch) / "card"
        own = _only(study, run, made)
        film, played = _film(study, run, made, network)
        policy, unloaded = _policy(made, network)
        records = Records.read(study)
        (record,) = (each for each in records.runs if each.run == run)
        found = find(records, run.environment)
        rows = list(of_operators([found]))
        write_table(made / "results.csv", rows)
        operator = run.arm.made()
        facts = {"operator": str(operator), "arm": str(run.arm), "laws": dataclasses.asdict(operator.laws)}
        write_atomically(made / "operator.json", json.dumps(facts, indent=2) + "\n")
        scores = collect(records, "final", partial=True)
        score = float(scores.values[scores.place(run)])
        text = (
            page.templates(escape=False)
            .get_template("card.md")
            .render(
                run=run,
                arm=str(run.arm),
                network=network,
                saved=saved,
                params=params_file(own, network).relative_to(made),
                score=None if np.isnan(score) else round(score, 4),
                measured=scores.label.removeprefix("test score, "),
                rows=[in_short(row) for row in rows],
                noun=found.noun,
                seeds=count(len(study.seeds), "seed"),
                partial=under_way(records),
                chance=_chance(records, run.environment),
                film=film,
                played=played,
                policy=policy,
                unloaded=unloaded,
                extra=family_of(run.environment).extra,
                needs=_own_code(study, run),
                facts=[*account.training(study.config_of(run), record), ("software", account.software(study))],
                options=in_words(options) if (options := study.config.env.options) else "",
                made_with=account.made_with(study),
                quoted=json.dumps,
            )
        )
        write_atomically(made / "README.md", text)
        if place is out:
            for each in list(made.iterdir()):
                each.rename(out / each.name)
        else:
            made.rename(out)
    return out / "README.md"


def _own_code(study: Study, run: RunPath) -> list[str]:
    """Lists the objects of a user's own modules that a run is made of."""
    config = study.config_of(run)
    made_of = [run.arm, run.environment, config.network.kind, *(value for _, value in fields(config.recipe))]
    return sorted(set(_OWN.findall(" ".join(map(str, made_of)))))


def _only(study: Study, run: RunPath, folder: Path) -> RunPath:
    """Makes a study of one run of a study, without what may name a user's places but the environment's options."""
    facts = {run.environment: study.record["environment_facts"].get(run.environment, {})}
    asked = (run.environment, [run.arm], [run.seed], study.config, facts, [])
    made, *later = (
        each | {"xla_flags": _unplaced(each.get("xla_flags") or "") or None} for each in account.provenances(study)
    )
    (own,) = Study.create(folder, *asked, provenance=made, launches=[{"provenance": each} for each in later]).runs
    for lease in folder.glob(f"{PREFIX}*"):
        lease.unlink()
    own.path.mkdir(parents=True)
    for name in _OF_A_RUN:
        if (run.path / name).exists():
            shutil.copyfile(run.path / name, own.path / name)
    if (state := read_status(run)) is not None:  # without the reason
        facts = json.loads((run.path / "status.json").read_text())
        write_status(own, state, **{name: facts[name] for name in _STANDING if name in facts})
    return own


def _unplaced(text: str) -> str:
    """Shortens the places of files in a text to their names.

    >>> _unplaced("ValueError: no '/home/me/my maps/4x4.json' for gym/Maze-v0 (/home/me/maze.py, line 3)")
    "ValueError: no '4x4.json' for gym/Maze-v0 (maze.py, line 3)"
    """
    return _FOLDERS.sub("", text)


def _film(study: Study, run: RunPath, folder: Path, network: SavedNetwork) -> tuple[str | None, str]:
    """Films a game; returns the film's name and what is seen, or None and why there is none, no fault of the run."""
    from softbellman.running.play import watch

    try:
        path, phase, _ = watch(study, run, folder / "replay.mp4", network=network)
    except Exception as error:  # a user's environment may fail to render in any way
        return None, _unplaced(reason_of(error))
    played = f"The first {phase.steps:,} agent steps of a game" if phase.unfinished else "A game"
    return path.name, f"{played}, score {phase.mean:g}"


def _policy(folder: Path, network: SavedNetwork) -> tuple["Policy | None", str]:
    """Loads the policy as who has the folder will; returns it, or None and why it can't be loaded here."""
    from softbellman.policies.policy import load

    try:
        return load(folder, network=network), ""
    except Exception as error:  # a user's environment or network may fail in any way
        return None, _unplaced(reason_of(error))


def _chance(records: Records, environment: str) -> str | None:
    scores = records.random[environment]
    return None if scores is None else f"{scores.mean():.2f} over {count(len(scores), 'game')}"
