"""From the words of a command line to a command; what is wrong with them is said in one line."""

import contextlib
import dataclasses
import io
import itertools
import re
from collections.abc import Iterator
from typing import Any

import tyro

from softbellman.cli.commands import COMMANDS, Compare, Training
from softbellman.envs import PREFIXES, nearest, squeeze
from softbellman.study import config as configs

# What tyro says of a fault, and the same for those who do not read Python.
_PLAINLY = (
    (r"^Error parsing | \(required\)|\.$", ""),
    (r"no type matching (\S+) could be instantiated from \['(.*)'\]", r"'\2' is no \1"),
    (r"invalid literal for int\(\) with base 10: (.*)", r"\1 is no integer"),
    (r"could not convert string to float: (.*)", r"\1 is no number"),
)
_TRUTH = {"true", "false", "yes", "no", "on", "off", "0", "1"}


def parse(name: str, words: list[str]) -> Any:
    """Reads the options of a command.

    Args:
        name: a name of `COMMANDS`.
        words: what follows it.

    Raises:
        ValueError: for an unknown option (the nearest are listed) or a value that does not fit.
        SystemExit: after printing the help, if that is asked for.
    """
    command = COMMANDS[name]
    _check_options(name, dict(_options(command)), words)
    if not issubclass(command, Training):
        return _read(name, command, words)
    given = re.search(r"(?:^|\s)--preset[ =](\S+)", " ".join(words))
    guess = next((word for word in words if word.partition("/")[0] in PREFIXES), "")
    preset = given[1] if given else configs.default_preset(guess)
    read = _read(name, command, words, default=_with_preset(command, preset))
    if given:
        return read
    proper = configs.common_preset(read.environments if isinstance(read, Compare) else [read.environment])
    return read if proper == preset else _read(name, command, words, default=_with_preset(command, proper))


def _with_preset(command: type[Training], name: str) -> Training:
    """Returns the defaults of a command under a preset, which the other options override."""
    needed = [item.name for item in dataclasses.fields(command) if _default(item) is dataclasses.MISSING]
    missing: dict[str, Any] = dict.fromkeys(needed, tyro.MISSING)
    return command(preset=name, config=configs.preset(name).config, **missing)


def _options(command: type, prefix: str = "--") -> Iterator[tuple[str, str | None]]:
    """Yields every option; with it, for one that takes no value, the option that says the contrary."""
    for item in dataclasses.fields(command):
        default = _default(item)
        word = item.name.replace("_", "-")
        if isinstance(default, configs.Config):  # its sections are named as if they were the command's
            yield from _options(configs.Config, prefix)
        elif dataclasses.is_dataclass(default):
            yield from _options(type(default), f"{prefix}{word}.")
        elif isinstance(default, bool):
            yield f"{prefix}{word}", f"{prefix}no-{word}"
            yield f"{prefix}no-{word}", f"{prefix}{word}"
        elif default is not dataclasses.MISSING:
            yield f"{prefix}{word}", None


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def _check_options(name: str, options: dict[str, str | None], words: list[str]) -> None:
    for word, following in itertools.pairwise([*words, ""]):
        option, equals, _ = word.partition("=")
        option = option.replace("_", "-")
        if not option.startswith("--") or option == "--help":
            continue
        if option not in options:
            raise ValueError(f"unknown option {word}{_hint(option, options)} (softbellman {name} --help lists all)")
        if options[option] and (equals or following.lower() in _TRUTH):
            raise ValueError(f"{option} takes no value: write {option} or {options[option]}")


def _hint(option: str, options: dict[str, str | None]) -> str:
    """Names the options that may be meant: those that end or begin alike, else those most alike."""
    last = squeeze(option.rpartition(".")[2])
    if last in ("tau", "omega", "temperature"):
        return "; the parameter belongs to the operator: --operator 'softmax(5)'"
    alike = [known for known in options if squeeze(known.rpartition(".")[2]) == last or known.startswith(option)]
    return f"; did you mean {', '.join(alike)}?" if alike else nearest(option, options)


def _read(name: str, command: type, words: list[str], **default: Any) -> Any:
    """Reads by tyro, and turns its framed report of a fault into one line."""
    report = io.StringIO()
    try:
        with contextlib.redirect_stderr(report):
            return tyro.cli(command, args=words, prog=f"softbellman {name}", **default)
    except SystemExit as end:
        if not end.code:
            raise
        said = _first_part(report.getvalue())
        for pattern, plainly in _PLAINLY:
            said = re.sub(pattern, plainly, said)
        raise ValueError(f"{said} (softbellman {name} --help)") from None


def _first_part(report: str) -> str:
    """Takes what follows the title out of a report's frame, which is of dashes where a terminal has no lines."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip("│| ") for line in report.splitlines()[1:]]
    parts = itertools.groupby(lines, lambda line: bool(re.match(r"[╭╰+]?[─-]{4}|[╭+][─-] ", line)))
    said = next((" ".join(part) for is_frame, part in parts if not is_frame), "bad options")
    return " ".join(said.partition("Got errors")[0].split())
