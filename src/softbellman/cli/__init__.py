"""The command line: parses, calls, prints. Exit code 0: all is well; 1: a run failed; 2: bad input; 130: stopped."""

import importlib.metadata
import io
import math
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from softbellman import operators as ops
from softbellman.arguments import nearest
from softbellman.cli import paper, results, theory, training
from softbellman.cli.arguments import parse
from softbellman.cli.commands import COMMANDS, Operators
from softbellman.cli.tables import complain, print_table
from softbellman.extras import missing
from softbellman.faults import in_a_line, users_place
from softbellman.operators.table import GROUPS
from softbellman.running.stopping import EXIT_CODE

_HELP = ("-h", "--help")


def main() -> NoReturn:
    """Runs the command line of `sys.argv` and exits."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a letter that the terminal lacks is no fault
    sys.path.append("")  # `--operator package.module:name` finds what lies in the working directory
    code = run(sys.argv[1:])
    if code == EXIT_CODE:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is ending already
    sys.exit(code)


def run(words: list[str]) -> int:
    """Runs a command line and returns its exit code; whatever goes wrong is said in one line."""
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read the output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return complain("stopped", EXIT_CODE)
    except (Exception, SystemExit) as error:
        return _complain_of(error)


def _complain_of(error: Exception | SystemExit) -> int:
    """Says in one line what went wrong, and whose fault it is; returns the exit code."""
    if users_place(error):
        return complain(in_a_line(error), 2)
    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, ModuleNotFoundError):
        return complain(str(missing(error)), 2)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return complain(where + (error.strerror or str(error) or type(error).__name__), 2)
    if isinstance(error, ValueError | MemoryError | ImportError):
        return complain(str(error) or type(error).__name__, 2)
    where = _kept("".join(traceback.format_exception(error)))
    return complain(f"a fault of softbellman's own, {type(error).__name__}: {error} (all of it: {where})", 1)


def _kept(report: str) -> str:
    """Writes a report into a file, and returns where it is, or the report itself where no file can be written."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="softbellman-", suffix=".txt", delete=False) as file:
            file.write(report)
        return file.name
    except OSError:
        return report


def _run(words: list[str]) -> int:
    if not words or words[0] in _HELP:
        _list_commands()
        return 0 if words else 2
    name, *rest = words
    if name == "--version":
        print(f"softbellman {importlib.metadata.version('softbellman')}")
        return 0
    if any(known.startswith(f"{name} ") for known in COMMANDS):
        if not rest or rest[0] in _HELP:
            _list_commands(f"{name} ")
            return 0 if rest else 2
        name, *rest = f"{name} {rest[0]}", *rest[1:]
    if name not in COMMANDS:
        raise ValueError(f"unknown command {name!r}{nearest(name, COMMANDS)} (there are {', '.join(COMMANDS)})")
    return _HANDLERS[name](parse(name, rest))


def _list_commands(group: str = "") -> None:
    """Prints the commands whose names begin so, a line each."""
    lines = [
        f"  {name:20} {(command.__doc__ or '').splitlines()[0]}"
        for name, command in COMMANDS.items()
        if name.startswith(group)
    ]
    usage = f"usage: softbellman {group}COMMAND ..."
    print(f"{usage}\n\n" + "\n".join(lines) + f"\n\nsoftbellman {group}COMMAND --help says more.")


def _operators(command: Operators) -> int:
    if command.check is not None:
        report = ops.check_operator(ops.parse(command.check))
        print(report)
        return 0 if report.ok else 1
    if command.table:
        return theory.show_table()
    for group, entries in GROUPS.items():
        listed = [(entry.spec, entry.algorithm) for entry in entries]
        listed += [other for entry in entries for other in entry.more]
        print(f"{group[0].upper()}{group[1:]}")
        print_table(("spec", "contracts", "unit", "gap to max", "algorithm"), [_line(*other) for other in listed])
    print("contracts: a result moves by no more than the values do; of operators on two sets of")
    print("values, where both are the same. unit: the parameter's.")
    print("gap to max: at most, with 4 actions, or as many as there are weights; s is the")
    print("spread, the largest value minus the smallest. Any of one set of values can be")
    print("doubled, as double(keep(0.1)). Formulas and pictures: docs/operators.md.")
    print("Your own operator: package.module:name. To search for violations of its laws: --check SPEC.")
    return 0


def _line(spec: str, algorithm: str) -> tuple[str, ...]:
    """Returns a line about an operator: what it claims, as far as a choice among operators depends on it."""
    operator = ops.parse(spec)
    laws, actions, single = operator.laws, operator.for_actions or 4, operator.on_one_set
    gap, share = operator.largest_gap(actions), operator.largest_share(actions)
    if laws.within_largest_gap and math.isfinite(gap):
        furthest = f"{gap:.4f}"
    else:
        furthest = f"{share:.4f} s" if math.isfinite(share) else "unbounded"
    contracts = "yes" if single is not None and single.laws.non_expansion else "no"
    return (spec, contracts, "none" if laws.homogeneous else "value", furthest, algorithm)


_HANDLERS: dict[str, Callable[[Any], int]] = {
    "train": training.train,
    "compare": training.compare,
    "report": results.report,
    "resume": training.resume,
    "evaluate": results.evaluate,
    "watch": results.watch,
    "card": results.card,
    "export": results.export,
    "operators": _operators,
    "solve": theory.solve,
    "simulate bias": theory.simulate_bias,
    "simulate comparison": theory.simulate_comparison,
    "simulate temperature": theory.simulate_temperature,
    "paper list": paper.list_views,
    "paper run": paper.run,
    "paper check": paper.check,
    "paper page": paper.page,
    "doctor": training.doctor,
}
