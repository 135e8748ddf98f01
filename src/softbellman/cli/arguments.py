"""Parser: from the words of a command line to a command, with errors of one line."""

import contextlib
import dataclasses
import functools
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from softbellman import config as configs
from softbellman.arguments import as_path, nearest, squeeze
from softbellman.cli.commands import COMMANDS, Compare, Training
from softbellman.envs.families import FAMILIES
from softbellman.envs.options import read_options, written_options
from softbellman.references import is_reference

# The words of tyro for a fault, and the same for those who do not read Python.
_PLAINLY = (
    (r"^Error parsing | \(required\)|\.$", ""),
    (r"no type matching (\S+) could be instantiated from \['(.*)'\]", r"'\2' is no \1"),
    (r"invalid literal for int\(\) with base 10: (.*)", r"\1 is no integer"),
    (r"could not convert string to float: (.*)", r"\1 is no number"),
)
_REGISTRY = ConstructorRegistry()
_TRUTH = {"true", "false", "yes", "no", "on", "off", "0", "1"}


@_REGISTRY.primitive_rule
def _options_of_environments(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[dict[str, Any]] | None:
    """Has tyro read options of environments as words `name=value`."""
    if get_origin(info.type) is not dict:
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="[NAME=VALUE ...]",
        instance_from_str=read_options,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=written_options,
    )


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
    options = dict(_options(command))
    _check_options(name, options, words)
    alone, rest = _apart(options, words)
    read = functools.partial(_read, name, command, [*alone, *rest], _greedy(options, rest))
    return _expanded(_with_its_preset(command, read, alone, rest) if issubclass(command, Training) else read())


def _with_its_preset(
    command: type[Training], read: Callable[..., Any], environments: Sequence[str], words: Sequence[str]
) -> Any:
    """Reads a command whose defaults depend on the preset, and the preset, unless it is named, on the environment."""
    given = re.search(r"(?:^|\s)--preset[ =](\S+)", " ".join(words))
    preset = given[1] if given else configs.default_preset(environments[0] if environments else "")
    made = read(default=_with_preset(command, preset))
    if given:
        return made
    proper = configs.common_preset(made.environments if isinstance(made, Compare) else [made.environment])
    return made if proper == preset else read(default=_with_preset(command, proper))


def _expanded(command: Any) -> Any:
    """Returns a command with `~` in its paths replaced by the home directory."""
    paths = {name: as_path(value) for name, value in vars(command).items() if isinstance(value, Path)}
    return dataclasses.replace(command, **paths)


class _Option(NamedTuple):
    """Values that an option takes.

    Attributes:
        name: its own name, of which others are aliases.
        contrary: for one that takes no value, the option that says the contrary.
        takes_many: it takes several values.
        takes_specs: these may look like the name of an environment of a user's own, `module:name`.
        takes_none: `none` is among its values.
    """

    name: str
    contrary: str | None = None
    takes_many: bool = False
    takes_specs: bool = False
    takes_none: bool = False


def _apart(options: Mapping[str, _Option], words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Parts the words that belong to no option from those that do: the name of an environment ends a list of values.

    Among the latter, `none` is written as tyro reads it, and is left out where it stands for no values at all.
    """
    alone, rest, option = list[str](), list[str](), None
    for word, following in itertools.pairwise([*words, "--"]):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            option = options.get(name.replace("_", "-"))
            if option and value.lower() == "none":
                word = name if option.takes_many else f"{name}=None" if option.takes_none else word
            rest.append(word)
            option = None if equals or (option and option.contrary) else option
        elif option is None or (option.takes_many and _is_environment(word, option)):
            alone.append(word)
            option = None
        elif option.takes_many:
            is_only = rest[-1].startswith("--") and (following.startswith("--") or _is_environment(following, option))
            if not (is_only and word.lower() == "none"):
                rest.append(word)
        else:
            rest.append("None" if option.takes_none and word.lower() == "none" else word)
            option = None
    return alone, rest


def _is_environment(word: str, option: _Option) -> bool:
    """Tells the name of an environment from the values of an option."""
    prefix, slash, _ = word.partition("/")
    return prefix in FAMILIES if slash else is_reference(word) and not option.takes_specs


def _with_preset(command: type[Training], name: str) -> Training:
    """Returns the defaults of a command under a preset, which the other options override."""
    needed = [item.name for item in dataclasses.fields(command) if _default(item) is dataclasses.MISSING]
    missing: dict[str, Any] = dict.fromkeys(needed, tyro.MISSING)
    return command(preset=name, config=configs.preset(name).config, **missing)


def _options(command: type, prefix: str = "--") -> Iterator[tuple[str, _Option]]:
    """Yields every option, and what it takes."""
    hints = get_type_hints(command, include_extras=True)
    for item in dataclasses.fields(command):
        default = _default(item)
        word = item.name.replace("_", "-")
        if isinstance(default, configs.Config):  # its sections are named as if they were the command's
            yield from _options(configs.Config, prefix)
        elif dataclasses.is_dataclass(default):
            yield from _options(type(default), f"{prefix}{word}.")
        elif isinstance(default, bool):
            yes, no = f"{prefix}{word}", f"{prefix}no-{word}"
            yield from ((yes, _Option(yes, contrary=no)), (no, _Option(yes, contrary=yes)))
        elif default is not dataclasses.MISSING:
            aliases = [name for each in get_args(hints[item.name])[1:] for name in getattr(each, "aliases", None) or ()]
            option = _option(f"{prefix}{word}", hints[item.name])
            yield from ((name, option) for name in (option.name, *aliases))


def _option(name: str, hint: Any) -> _Option:
    is_annotated = get_origin(hint) is Annotated  # by DisallowNone, as all are that may be left out
    hint = get_args(hint)[0] if is_annotated else hint
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    takes_many = any(get_origin(kind) in (tuple, dict) for kind in kinds)
    takes_specs = any(get_args(kind)[:1] == (str,) for kind in kinds if get_origin(kind) is tuple)
    return _Option(name, None, takes_many, takes_specs, takes_none=type(None) in kinds and not is_annotated)


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def _check_options(name: str, options: Mapping[str, _Option], words: list[str]) -> None:
    given = dict[str, str]()
    for word, following in itertools.pairwise([*words, ""]):
        option, equals, _ = word.partition("=")
        option = option.replace("_", "-")
        if not option.startswith("--") or option == "--help":
            continue
        if option not in options:
            raise ValueError(f"unknown option {word}{_hint(option, options)} (softbellman {name} --help lists all)")
        other, contrary = given.get(options[option].name), options[option].contrary
        if other and other != option and not contrary:
            raise ValueError(f"{other} and {option} are one option by two names; give one of them")
        if other and not contrary:
            remedy = "write all of its values after one" if options[option].takes_many else "give it once"
            raise ValueError(f"{option} is there twice; {remedy}")
        given[options[option].name] = option
        if contrary and (equals or following.lower() in _TRUTH):
            raise ValueError(f"{option} takes no value: write {option} or {contrary}")


def _hint(option: str, options: Iterable[str]) -> str:
    """Names the options that may be meant: those that end or begin alike, else those most alike."""
    last = squeeze(option.rpartition(".")[2])
    if last in ("tau", "omega", "temperature"):
        return "; the parameter belongs to the operator: --operator 'softmax(5)'"
    alike = [known for known in options if squeeze(known.rpartition(".")[2]) == last or known.startswith(option)]
    if alike:
        return f"; did you mean {', '.join(alike)}?"
    elsewhere = [name for name, command in COMMANDS.items() if option in dict(_options(command))]
    return f"; it is one of {', '.join(elsewhere)}" if elsewhere else nearest(option, options)


def _greedy(options: Mapping[str, _Option], words: Sequence[str]) -> str:
    """Says which options that take many values took which: a word that is missing may be among them."""
    taken, name = dict[str, list[str]](), ""
    for word in words:
        if word.startswith("--"):
            name = word
        elif (option := options.get(name.replace("_", "-"))) and option.takes_many:
            taken.setdefault(name, []).append(word)
    told = ", ".join(f"{name} took {' '.join(values)}" for name, values in taken.items())
    return told and f"; write it first ({told})"


def _read(name: str, command: type, words: list[str], taken: str, **default: Any) -> Any:
    """Reads by tyro, and turns its framed report of a fault into one line.

    Args:
        name: a name of `COMMANDS`.
        command: the command of that name.
        words: the words to read.
        taken: what to add where a word is missing.
        default: for tyro.

    Raises:
        ValueError: for what does not fit.
    """
    report = io.StringIO()
    try:
        with contextlib.redirect_stderr(report):
            made = tyro.cli(command, args=words, prog=f"softbellman {name}", registry=_REGISTRY, **default)
        if isinstance(made, Compare) and not made.environments:
            raise ValueError(f"Missing from softbellman {name}: ENV{taken} (softbellman {name} --help)")
        return made
    except SystemExit as end:
        if not end.code:
            raise
        said = _first_part(report.getvalue())
        for pattern, plainly in _PLAINLY:
            said = re.sub(pattern, plainly, said)
        said = f"{said.rstrip('.')}{taken}" if said.startswith("Missing") else said
        raise ValueError(f"{said} (softbellman {name} --help)") from None


def _first_part(report: str) -> str:
    """Takes what follows the title out of a report's frame, which is of dashes where a terminal has no lines."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip("│| ") for line in report.splitlines()[1:]]
    parts = itertools.groupby(lines, lambda line: bool(re.match(r"[╭╰+]?[─-]{4}|[╭+][─-] ", line)))
    said = next((" ".join(part) for is_frame, part in parts if not is_frame), "bad options")
    return " ".join(said.partition("Got errors")[0].split())
