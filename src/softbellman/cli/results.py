"""Commands `report`, `evaluate`, `watch`, `card` and `export`."""

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from softbellman.cli.commands import Card, Evaluate, Export, Report, Watch
from softbellman.cli.process import set_up_xla
from softbellman.cli.tables import print_lines, print_table
from softbellman.study.place import require_directory, require_file, require_new

if TYPE_CHECKING:
    from softbellman.analysis.findings import Found
    from softbellman.analysis.records import Records
    from softbellman.study.store import Study


def report(command: Report) -> int:
    """Prints what a study found, and writes its page."""
    from softbellman.analysis.findings import find_all
    from softbellman.analysis.records import Records
    from softbellman.report import write
    from softbellman.study.store import Study

    study = Study(command.study)
    require_directory(command.out or study.path / "report")
    if command.follow:
        study = _followed(study, command.out)
    records = Records.read(study)
    findings = find_all(records)
    print_findings(findings)
    print_lines([("page", str(write(records, findings, command.out)))])
    return 0


def _followed(study: "Study", out: Path | None) -> "Study":
    """Writes pages as long as a study is trained, and returns the study as it then is."""
    from softbellman.report.follow import follow
    from softbellman.study.store import Study

    print_lines([("following", f"{study.path} as long as it is trained; Ctrl-C ends this, and not the training")])
    sys.stdout.flush()
    follow(study.path, out, on_page=_tell)
    print_lines([("following", "nobody trains it any more; the page is written for the last time")])
    return Study(study.path)


def _tell(page: Path, ended: str) -> None:
    print_lines([("page", f"{page}: {ended}")])
    sys.stdout.flush()


def print_findings(findings: "Sequence[Found]") -> None:
    """Prints what can be concluded, and a row for each operator in each environment."""
    from softbellman.analysis.scores import SUMMARIES
    from softbellman.report.conclusions import conclude
    from softbellman.report.tables import in_short, of_operators

    for found in findings:
        if len(findings) > 1:
            print_lines([("environment", found.environment)])
        print_lines(zip(itertools.chain(["found"], itertools.repeat("")), conclude(found), strict=False))
        rows = [
            (
                *in_short(row),
                _rounded(row["best"]),
                _difference(row),
                "-" if row["permutation_p"] is None else f"{row['permutation_p']:.2g}",
            )
            for row in of_operators([found])
        ]
        if found.random is not None and found.random.interval is not None:
            low, high = found.random.interval
            rows.append(("random actions", "-", _rounded(found.random.mean), f"{low:.2f} to {high:.2f}", "-", "-", "-"))
        print_table((found.noun, "runs", "score", "95% interval", "best", f"minus {found.rows[0].operator}", "p"), rows)
    print_lines([("score", f"{SUMMARIES['final']}, then over runs")])


def _difference(row: Mapping[str, Any]) -> str:
    mean, low, high = row["difference"], row["difference_low"], row["difference_high"]
    if mean is None:
        return "-"
    return f"{mean:+.2f}" + ("" if low is None else f" ({low:.2f} to {high:.2f})")


def _rounded(value: float | None) -> str:
    return "-" if value is None or np.isnan(value) else f"{value:.2f}"


def print_scores(records: "Records") -> None:
    """Prints how each run with a test phase stands, and its final and its best score; of one that diverged, none."""
    from softbellman.analysis.scores import collect

    final, best, over = (
        collect(records, summary, column, partial=True)
        for summary, column in (("final", "test_return"), ("best", "test_return"), ("final", "overestimation"))
    )
    rows = []
    for record in records.runs:
        if not record.rows:
            continue
        run, place = record.run, final.place(record.run)
        overestimation = over.values[place]
        rows.append(
            (
                run.operator,
                str(run.seed),
                str(final.states[place]),
                f"{record.column('episodes')[-1]:,.0f}",
                _rounded(final.values[place]),
                _rounded(best.values[place]),
                "-" if np.isnan(overestimation) else f"{overestimation:+.2f}",
            )
        )
    print_table(("operator", "seed", "state", "games", "final score", "best score", "overestimation"), rows)
    print_lines([("final score", final.label.removeprefix("test score, "))])


def evaluate(command: Evaluate) -> int:
    """Prints the scores of a trained network beside those of the random policy."""
    from softbellman.study.files import load_params, write_record
    from softbellman.study.runs import params_file
    from softbellman.study.store import find_run

    study, run = find_run(command.run)
    if command.out is not None:
        require_file(command.out)
    set_up_xla(command.threads)
    from softbellman.analysis.statistics import mean_interval
    from softbellman.running import play

    epsilon = play.exploration_rate(study.config, command.epsilon)
    options: dict[str, Any] = {"episodes": command.episodes, "max_steps": command.max_steps, "seed": command.seed}
    trained = play.evaluate(study, run, network=command.network, epsilon=epsilon, **options)
    random = play.evaluate_random(run.environment, study.config, **options)
    rows, notes = [], []
    for policy, phase in ((run.operator, trained), ("random", random)):
        interval = mean_interval(phase.scores)
        rows.append(
            (
                policy,
                f"{len(phase.scores):,}",
                f"{phase.mean:.2f}",
                "-" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
                f"{np.median(phase.scores):g}",
                f"{phase.scores.max():g}",
                f"{phase.steps:,}",
            )
        )
        if phase.unfinished:
            notes.append(f"{policy}: no game ended within the budget; its score is that of the unfinished one")
        elif len(phase.scores) < command.episodes:
            notes.append(f"{policy}: the budget of steps ended the test after {len(phase.scores)} games")
        if phase.identical:
            notes.append(f"{policy}: {len(phase.scores)} identical episodes; nothing is known of other starts")
        if interval is None:
            notes.append(f"{policy}: one score shows no spread, so there is no interval")
    _, facts = load_params(params_file(run, command.network))
    network = f"{command.network} network of seed {run.seed}, after {facts['agent_steps']:,} agent steps"
    tested = f"{network}, epsilon {epsilon:g}, games from seed {command.seed}"
    print_lines([("tested", f"{run.environment}: {tested}")])
    print_table(("policy", "games", "mean", "95% interval", "median", "best", "agent steps"), rows)
    print_lines([("note", note) for note in notes])
    if command.out is not None:
        settings = {"network": command.network, "epsilon": epsilon, "seed": command.seed}
        record = {"environment": run.environment, "operator": str(run.arm), "training_seed": run.seed}
        write_record(
            command.out,
            record | settings | {"agent_steps": facts["agent_steps"]},
            {"trained": trained, "random": random},
        )
        print_lines([("scores", str(command.out))])
    return 0


def watch(command: Watch) -> int:
    """Films a trained network."""
    from softbellman.study.store import find_run

    study, run = find_run(command.run)
    out = command.out or run.path / "videos" / f"{command.network}-seed-{command.seed}.mp4"
    require_file(out)
    set_up_xla(None)
    from softbellman.running import play

    epsilon = play.exploration_rate(study.config, command.epsilon)
    path, phase, pictures = play.watch(
        study,
        run,
        out,
        network=command.network,
        epsilon=epsilon,
        episodes=command.episodes,
        max_steps=command.max_steps,
        seed=command.seed,
    )
    ended = f"not over after {phase.steps:,} agent steps" if phase.unfinished else "over"
    scores = ", ".join(f"{score:g}" for score in phase.scores)
    games = "1 game" if len(phase.scores) == 1 else f"{len(phase.scores)} games"
    print_lines(
        [
            ("played", f"{run.environment}, {run.operator}, {command.network} network, epsilon {epsilon:g}"),
            ("score", f"{scores} ({games}, {ended})"),
            ("video", f"{path} ({pictures:,} pictures: the first, and one for each agent step)"),
        ]
    )
    return 0


def card(command: Card) -> int:
    """Writes the card of a run."""
    from softbellman.study.store import find_run

    study, run = find_run(command.run)
    out = command.out or run.path / "card"
    require_new(out)
    set_up_xla(None)
    from softbellman.report.card import write_card

    print_lines([("card", str(write_card(study, run, out, network=command.network)))])
    return 0


def export(command: Export) -> int:
    """Writes a trained network for other tools."""
    from softbellman.study.store import find_run

    study, run = find_run(command.run)
    set_up_xla(None)
    from softbellman.policies import export as exporting

    path = exporting.export(study, run, command.to, network=command.network, out=command.out)
    print_lines([("network", f"{run}, {command.network} network"), ("file", str(path))])
    return 0
