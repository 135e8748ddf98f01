"""Commands `paper list`, `run`, `check` and `page`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softbellman.cli.commands import PaperCheck, PaperList, PaperPage, PaperRun
from softbellman.cli.process import leave_memory_of_the_gpu
from softbellman.cli.tables import complain, print_lines, print_table
from softbellman.running.stopping import EXIT_CODE
from softbellman.study.place import require_directory

if TYPE_CHECKING:
    from softbellman.analysis.records import Records
    from softbellman.paper.figures.view import View
    from softbellman.paper.grid import Scale
    from softbellman.paper.results import Results
    from softbellman.paper.verdicts import Verdict
    from softbellman.study.store import Study


def list_views(command: PaperList) -> int:
    """Prints every figure and table, and the scales."""
    from softbellman.paper.grid import SCALES
    from softbellman.paper.views import VIEWS

    print_lines([(view.name, view.title) for view in VIEWS.values()])
    print()
    print_lines([(f"scale {scale.name}", scale.summary) for scale in SCALES.values()])
    return 0


def run(command: PaperRun) -> int:
    """Trains what a figure or table lacks, and writes it; the exit code is 1 if a run failed or diverged."""
    from softbellman.paper import grid, views

    chosen, scale = views.find(command.name), grid.find_scale(command.scale)
    out = command.out or scale.folder
    study = grid.open_study(scale, out)
    if not command.dry_run:
        require_directory(out / "paper")
    arms = {arm for view in chosen for arm in view.arms}
    code = 0
    if arms:
        leave_memory_of_the_gpu()
        code = _train(command, scale, arms, out, study)
    elif command.dry_run:
        print_lines([("runs", "none: it is measured anew each time, in seconds")])
    if command.dry_run or code == EXIT_CODE:
        return code
    results, _ = _read(scale, out)
    for view in chosen:
        data = view.data(results)
        _print_view(view, results, data)
        paths = view.write(results, data, view.analyse(data), out / "paper")
        print_lines([("written", ", ".join(map(str, paths)))])
    return code


def check(command: PaperCheck) -> int:
    """Prints verdicts alone."""
    from softbellman.paper import grid, views

    chosen, scale = views.find(command.name), grid.find_scale(command.scale)
    results, records = _read(scale, command.study or scale.folder)
    _require(records, chosen, scale, command.study or scale.folder)
    shown = set()
    for view in chosen:
        verdicts = [verdict for verdict in view.check(view.data(results)) if verdict.name not in shown]
        shown |= {verdict.name for verdict in verdicts}  # a claim may belong to two views
        print_lines([(view.name, view.title)])
        _print_lacking(view, results)
        _print_verdicts(verdicts)
    return 0


def page(command: PaperPage) -> int:
    """Writes the page of a scale, as a document too if one is asked for, and prints its first sentence."""
    from softbellman.paper import contents, document, grid, page, views
    from softbellman.paper.claims import CLAIMS
    from softbellman.paper.verdicts import judge

    scale = grid.find_scale(command.scale)
    folder = command.study or scale.folder
    require_directory(folder / "paper", "copy the study to a place that can be, and name that with --study")
    results, records = _read(scale, folder)
    _require(records, list(views.VIEWS.values()), scale, folder)
    pages = [page.write(results, records, folder / "paper" / "index.html")]
    if command.markdown:
        pages.append(document.write(results, records, command.markdown, folder / "paper"))
    verdicts = [judge(claim, results) for claim in CLAIMS]
    print_lines([("found", contents.first_sentence(results, verdicts)), *(("page", str(path)) for path in pages)])
    return 0


def _train(command: PaperRun, scale: "Scale", arms: set[str], out: Path, study: "Study | None") -> int:
    """Trains what some arms lack, or says what it would take; runs chosen by others' scores come after these."""
    from softbellman.analysis.records import Records
    from softbellman.paper import budget, results
    from softbellman.paper.arms import needed, waiting
    from softbellman.paper.grid import plan_runs
    from softbellman.running.compare import train_comparison
    from softbellman.running.comparison import resources_for
    from softbellman.running.launch import outcome
    from softbellman.study.runs import read_status

    there = results.read(scale, Records.read(study) if study else None)
    later = waiting(there, arms)
    comparison = plan_runs(scale, needed(there, arms) & ~later, study)
    resources = resources_for(comparison.num_runs, command.workers, None, study)
    work = comparison.work(out, resources, retry_failed=command.retry_failed)
    print_lines([("scale", f"{scale.name}: {scale.summary}"), *comparison.summary(work, resources, study)])
    if later.any():
        order = ("then", "chosen") if work.groups else ("not yet", "to be chosen")
        print_lines(
            [(order[0], f"{later.sum()} runs on exploration, with parameters {order[1]} by the scores of these")]
        )
    if command.dry_run:
        if work.groups:
            busy = resources._replace(workers=min(resources.workers, len(work.groups)))
            found = budget.calibrate(comparison, busy)
            print_lines(budget.summary(comparison, work, int(later.sum()), busy, found))
        print_lines([("directory", str(out))])
        return 0
    if work.groups or study is None:
        try:
            study = train_comparison(
                comparison, out, resources, command=sys.argv[1:], retry_failed=command.retry_failed
            )
        except KeyboardInterrupt:
            return complain("stopped; the same command goes on", EXIT_CODE)
        if later.any() and waiting(results.read(scale, Records.read(study)), arms).sum() < later.sum():
            return _train(command, scale, arms, out, study)
    faults = outcome(study, comparison.trains)
    for fault in faults:
        complain(fault, 1)
    if any(read_status(run) == "failed" and comparison.trains(run) for run in study.runs):
        complain("the same command with --retry-failed tries again what failed", 1)
    return 1 if faults else 0


def _read(scale: "Scale", folder: Path) -> "tuple[Results, Records | None]":
    """Reads the results of a scale; the random policy is played first where its score is not known yet.

    That is left out where another process trains the study, or it can't be written.
    """
    from softbellman.analysis.records import Records
    from softbellman.paper import grid, results
    from softbellman.running.play import lacks_chance, measure_chance
    from softbellman.running.progress import say

    def note(text: str) -> None:
        print_lines([("note", text)])

    study = grid.open_study(scale, folder)
    if study is not None and not scale.is_atari and lacks_chance(study):  # those of Atari's games were published
        try:
            with study.locked() as lease:
                measure_chance(study, note, lease.confirm, say)
        except ValueError as error:
            note(f"the random policy is not played: {error}")
    records = Records.read(study) if study else None
    return results.read(scale, records), records


def _require(records: "Records | None", chosen: "Sequence[View]", scale: "Scale", folder: Path) -> None:
    if records is None and any(view.arms for view in chosen):
        name = chosen[0].name if len(chosen) == 1 else "all"
        raise ValueError(
            f"{folder} holds no study yet; train one with softbellman paper run {name} --scale {scale.name}, or name "
            "another directory with --study"
        )


def _print_view(view: "View", results: "Results", data: Any) -> None:
    rows = view.analyse(data)
    print_lines([(view.name, view.title), ("the paper", view.expected)])
    for game in dict.fromkeys(row.get("game", "") for row in rows):
        for quantity in dict.fromkeys(row.get("quantity", "") for row in rows):
            _print_rows([row for row in rows if (row.get("game", ""), row.get("quantity", "")) == (game, quantity)])
    print_lines([("meaning", view.meaning(results.scale))])
    _print_lacking(view, results)
    _print_verdicts(view.check(data))


def _print_lacking(view: "View", results: "Results") -> None:
    if not view.measure and (missing := view.missing(results)).runs:
        print_lines([("so far", str(missing))])
    if diverged := view.diverged(results):
        print_lines([("diverged", diverged)])


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Prints rows of one game and quantity, which stand above them."""
    from softbellman.paper.figures.view import lay_out

    above = ("game", "quantity")
    said = ", ".join(rows[0][name] for name in above if name in rows[0])
    if said:
        print(said)
    print_table(*lay_out(rows, left_out=above))


def _print_verdicts(verdicts: "Sequence[Verdict]") -> None:
    from softbellman.paper.contents import described, sample

    for verdict in verdicts:
        claimed = f" (claimed {verdict.claimed})" if verdict.claimed else ""
        print_lines([(verdict.state, f"{verdict.name}: {verdict.says}{claimed}"), ("", f"{verdict.reason}")])
        so_far = ", so far" if verdict.so_far else ""
        for shown in verdict.shown:
            of = f"{described(shown.estimate)}, n = {sample(shown.estimate)}{so_far}"
            print_lines([("", f"{shown.label}, from {shown.reading}: {of}")])
