"""Operators as text: `double(softmax(5))` on a command line, `double-softmax-5` in a path.

The grammar, in which a name after a colon is one of your own, in a module of your own:
    spec       = name [ "(" arguments ")" | ":" arguments ]
    name       = "max" | "softmax" | "double" | any other of the table of operators | module ":" name
    arguments  = argument { "," argument }
    argument   = number | True | False | spec
"""

import difflib
import importlib
import inspect
import itertools
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, cast

from softbellman.arguments import as_list
from softbellman.faults import in_a_line, users_place
from softbellman.operators.core import Operator
from softbellman.operators.table import TABLE

FACTORIES: dict[str, Callable[..., Operator]] = {name: entry.build for name, entry in TABLE.items()}
_NAMES: dict[type, str] = {entry.cls: name for name, entry in TABLE.items()}
ALLOWED = (
    "Allowed are max, mean, softmax(5), mellowmax(5), keep(0.1), double(softmax(5)) and others that `softbellman "
    "operators` lists, and package.module:name for your own."
)

_HEAD = re.compile(r"([A-Za-z_][\w.]*)(.*)", re.DOTALL)
_SPELLED = re.compile(r"([A-Za-z_][\w.]*(?::[A-Za-z_][\w.<>]*)?)(\(.*\))?", re.DOTALL)
_OPERATOR = "an operator is of a subclass of softbellman.operators.Operator, whose policy(row) weighs the actions"
_SETTING = re.compile(r"[A-Za-z_][\w.]*\s*=.*", re.DOTALL)
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE)


class SpecError(ValueError):
    """A spec that names no operator; the message says what is allowed."""


def parse(spec: str) -> Operator:
    """Read an operator from its spec; `str(op)` is the way back.

    Args:
        spec: such as `max`, `softmax(5)`, the same without quoting as `softmax:5`, `double(mellowmax(10))`, or
            `package.module:name` for an operator of your own, or for a class or function that makes one, with
            arguments if it takes some: `package.module:name(3)`. The module is imported; nothing is evaluated.

    Raises:
        SpecError: the name is unknown, an argument is missing, superfluous or bad, or a parenthesis has no partner.

    Example:
        >>> str(parse("double:softmax:5"))
        'double(softmax(5))'
    """
    head = _HEAD.fullmatch(spec.strip())
    if head is None:
        raise SpecError(f"{spec!r} is not an operator. {ALLOWED}")
    name, rest = head.groups()
    _require_alone(spec)
    user = re.match(r":([A-Za-z_]\w*)", rest) if name not in FACTORIES else None
    if user is None:
        return _build(spec, name, _builtin(name), _arguments(spec, rest.strip()))
    made = _imported(spec, name, user[1])
    arguments = _arguments(spec, rest[user.end() :].strip())
    if isinstance(made, Operator):
        if arguments:
            raise SpecError(f"{spec!r}: {name}:{user[1]} is an operator already and takes no arguments.")
        return made
    return _build(spec, f"{name}:{user[1]}", made, arguments)


def name_and_arguments(spec: str) -> tuple[str, list[str]]:
    """Take a spec apart, into its name and its arguments as they are written; nothing is looked up.

    Raises:
        SpecError: it does not follow the grammar.

    Example:
        >>> name_and_arguments("past(10, mean)"), name_and_arguments("mine.gaps:Wide(0.5)")
        (('past', ['10', 'mean']), ('mine.gaps:Wide', ['0.5']))
    """
    head = _SPELLED.fullmatch(spec.strip())
    if head is None:
        raise SpecError(f"{spec!r} is neither a name nor name(arguments)")
    text = (head[2] or "")[1:-1].strip()
    return head[1], split(spec, text) if text else []


def as_operator(given: Any) -> Operator:
    """Take an operator, or read its spec.

    Raises:
        SpecError: as `parse`.
        TypeError: it is neither.
    """
    if isinstance(given, str):
        return parse(given)
    if not isinstance(given, Operator):
        hint = "call it" if callable(given) else "pass one such as softbellman.operators.softmax(5.0)"
        raise TypeError(f"{given!r} is no operator; {hint}, or pass a spec such as 'softmax(5)'.")
    return given


def as_operators(given: Any) -> list[Operator]:
    """Take one operator or several, each as `as_operator` takes it.

    Example:
        >>> [str(op) for op in as_operators("max")], [str(op) for op in as_operators(["max", parse("softmax(5)")])]
        (['max'], ['max', 'softmax(5)'])
    """
    return [as_operator(one) for one in as_list(given)]


def spell(op: Any) -> str:
    """Write an operator as a spec that `parse` reads back to an equal one."""
    name, number = _NAMES.get(op.__class__, f"{type(op).__module__}:{type(op).__qualname__}"), _exact
    if name in FACTORIES:  # these cast to float, so that 5 is enough for 5.0
        number = _shortest
    given: list[Any] = [getattr(op, field.name) for field in (fields(op) if is_dataclass(op) else ())]
    values = itertools.chain.from_iterable(cast("tuple[Any, ...]", v) if isinstance(v, tuple) else (v,) for v in given)
    arguments = ", ".join(spell(value) if hasattr(value, "weights") else number(value) for value in values)
    return f"{name}({arguments})" if arguments else name


def family(spec: str) -> str:
    """Give a spec without its numbers; what is no spec is a family of its own.

    It is read as text, since a module of your own need not be at hand where a result is looked at.

    Example:
        >>> family("double(softmax(0.5))"), family("max"), family("mine.operators:Sharp(2, 1e-3)")
        ('double(softmax)', 'max', 'mine.operators:Sharp')
    """
    return _numbers_apart(spec)[0]


def numbers(spec: str) -> tuple[str, ...]:
    """Give the numbers in a spec, as they are written.

    Example:
        >>> numbers("double(softmax(0.5))"), numbers("max"), numbers("entmax(1.5, 5)")
        (('0.5',), (), ('1.5', '5'))
    """
    return _numbers_apart(spec)[1]


def _numbers_apart(spec: str) -> tuple[str, tuple[str, ...]]:
    if _NUMBER.fullmatch(spec):
        return "", (spec,)
    head = _SPELLED.fullmatch(spec)
    if head is None or not head[2]:
        return spec, ()
    try:
        parts = [_numbers_apart(part) for part in split(spec, head[2][1:-1])]
    except SpecError:
        return spec, ()
    rest = ", ".join(name for name, _ in parts if name)
    return f"{head[1]}({rest})" if rest else head[1], tuple(itertools.chain.from_iterable(found for _, found in parts))


def plain(name: str) -> str:
    """Write a name in letters that any path takes, and that lead out of no directory.

    Example:
        >>> plain("atari/breakout"), plain("double(softmax(5))"), plain("..")
        ('atari-breakout', 'double-softmax-5', '')
    """
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.")


def _shortest(value: Any) -> str:
    try:
        number = value.item() if hasattr(value, "item") else value
        return repr(float(number)).removesuffix(".0").replace("e+", "e")
    except (TypeError, ValueError, RuntimeError):  # a tracer, or an array of more than one number
        return str(value)


def _exact(value: Any) -> str:
    return float.__repr__(value) if isinstance(value, float) else repr(value)


def _builtin(name: str) -> Callable[..., Operator]:
    if name in FACTORIES:
        return FACTORIES[name]
    near = difflib.get_close_matches(name.lower(), FACTORIES)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise SpecError(f"Unknown operator {name!r}.{hint} {ALLOWED}")


def _imported(spec: str, module: str, name: str) -> Any:
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        if users_place(error):
            raise SpecError(f"{spec!r}: {module!r} fails when it is imported: {in_a_line(error)}") from error
        near = difflib.get_close_matches(module.lower(), FACTORIES)
        hint = f"did you mean {near[0]}?" if near else "is its directory on PYTHONPATH?"
        raise SpecError(f"{spec!r}: cannot import {module!r} ({error}); {hint}") from error
    if not hasattr(imported, name):
        public = [other for other in vars(imported) if not other.startswith("_")]
        near = difflib.get_close_matches(name, public) or public[:5]
        raise SpecError(f"{spec!r}: module {module!r} has no {name!r}; it has {', '.join(near)}.")
    return getattr(imported, name)


def _arguments(spec: str, text: str) -> list[Any]:
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    elif text.startswith(":"):
        text = text[1:].strip()
        if not text:
            raise SpecError(f"{spec!r}: nothing follows the colon. {ALLOWED}")
    elif text.startswith("("):
        raise SpecError(f"{spec!r}: a parenthesis is not closed, or something follows it. {ALLOWED}")
    elif text:
        raise SpecError(f"{spec!r}: cannot read {text!r}. {ALLOWED}")
    return [_argument(spec, part) for part in split(spec, text)] if text else []


def split(spec: str, text: str) -> list[str]:
    """Split at the commas outside all parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth != 0:
        raise SpecError(f"{spec!r}: a parenthesis has no partner. {ALLOWED}")
    return [part.strip() for part in parts]


def _require_alone(spec: str) -> None:
    """Refuse an operator with settings, as an arm of a comparison has them; other faults are for others to tell."""
    try:
        operator, *others = split(spec, spec)
    except SpecError:
        return
    for other in others:
        if _SETTING.fullmatch(other):
            raise SpecError(
                f"{spec!r}: {other} is a setting of an arm, which train and compare take; here an operator stands "
                f"alone: {operator}."
            )


def _argument(spec: str, text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    if "=" in text:
        raise SpecError(f"{spec!r}: write the value alone, without a name, as in softmax(5).")
    if _HEAD.fullmatch(text) is None:
        raise SpecError(f"{spec!r}: {text!r} is neither a number nor an operator. {ALLOWED}")
    return parse(text)


def _build(spec: str, name: str, factory: Any, arguments: list[Any]) -> Operator:
    if not callable(factory):
        raise SpecError(f"{spec!r}: {name} is neither an operator nor a class or function that makes one; {_OPERATOR}.")
    signature = inspect.signature(factory)
    try:
        signature.bind(*arguments)
    except TypeError:
        wanted = ", ".join(signature.parameters) or "no argument"
        raise SpecError(
            f"{spec!r}: {name} takes {wanted}, and was given {len(arguments) or 'none'}. "
            f"It must be an operator, or make one; {_OPERATOR}."
        ) from None
    try:
        op: Any = factory(*arguments)
    except (Exception, SystemExit) as error:  # a user's factory may fail in any way
        is_users = users_place(error) is not None
        if not is_users and not isinstance(error, TypeError | ValueError | SystemExit):
            raise
        raise SpecError(f"{spec!r}: {in_a_line(error) if is_users else str(error) or repr(error)}") from error
    if not isinstance(op, Operator):
        raise SpecError(f"{spec!r}: {name} made {op!r}; {_OPERATOR}.")
    return op
