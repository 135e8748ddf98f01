"""Arms of a study: an operator, settings that differ from the study's, and a label; as text, and back.

    arm   = [ label "=" ] operator { "," key "=" value }
    key   = field of the section `recipe`, or `section.field`

as in `softmax(5)`, `softmax(5), gap=gap(0.9)` and `fast=max, returns=3, learner.learning_rate=0.001`.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args, get_origin

from softbellman.arguments import as_integer, nearest
from softbellman.config.settings import Config, fields, kind_of, with_settings
from softbellman.operators import Operator
from softbellman.operators.spec import FACTORIES, SpecError, as_operator, family, parse, split

LONGEST = 150  # bytes of a name, which is that of a directory too

_KEYED = re.compile(r"([^()=,:]*)=(.*)", re.DOTALL)
_LABEL = re.compile(r"\w[\w .+-]*")
_RECIPE = "recipe."
_GAME = "arms of a study play the same game; train another study"
_MEASURED = "arms of a study are trained for the same steps and measured alike; train another study"
_SHARED = "it changes no result, and is the study's"
_FIXED = {
    "env.": _GAME,
    "protocol.": _GAME,
    "minatar.": _GAME,
    "checkpoint.": _SHARED,
    "loop.block_width": _SHARED,
    "loop.num_envs": "",
    "loop.": _MEASURED,
}
"""Beginnings of fields, each with the reason why no arm can change them, or none; the first that fits counts."""


@dataclass(frozen=True)
class Arm:
    """An arm of a study; `arm` and `parse_arm` make one.

    Attributes:
        operator: spec of the operator.
        changes: fields by dotted name with the values that they have in place of the study's, in the order of `KEYS`.
        label: name to show in place of the spec, or an empty text.
        given: the operator, where it was given as a value; else its spec is read when it is needed.
    """

    operator: str
    changes: tuple[tuple[str, Any], ...] = ()
    label: str = ""
    given: Operator | None = field(default=None, compare=False, repr=False)

    @property
    def spec(self) -> str:
        """The arm as text, without its label."""
        return ", ".join([self.operator, *(f"{key_of(path)}={_written(value)}" for path, value in self.changes)])

    @property
    def name(self) -> str:
        """The label, or the spec where there is none."""
        return self.label or self.spec

    @property
    def family(self) -> str:
        """The spec without the numbers of the operator."""
        return str(replace(self, operator=family(self.operator), label=""))

    def __str__(self) -> str:
        """Write the arm as text that `parse_arm` reads back to an equal one."""
        return f"{self.label}={self.spec}" if self.label else self.spec

    def made(self) -> Operator:
        """Give the operator.

        Raises:
            SpecError: as `operators.parse`.
        """
        return parse(self.operator) if self.given is None else self.given

    def config(self, base: Config) -> Config:
        """Return the configuration of the arm's runs.

        Args:
            base: the study's.
        """
        return with_settings(base, dict(self.changes)) if self.changes else base


def arm(operator: Any, label: str = "", settings: Mapping[str, Any] | None = None, **parts: Any) -> Arm:
    """Make an arm for `compare`.

        sb.arm("softmax(5)", gap="gap(0.9)", label="ours")

    Args:
        operator: the Bellman operator, its spec, or an arm, which is then extended.
        label: the name to show.
        settings: values of the configuration by dotted name.
        parts: fields of the section `recipe`, as values or as their specs.

    Raises:
        ValueError: for a key that no arm can have, one that is there twice, or a value of another kind.
        TypeError: for what is no operator.
    """
    base = as_arm(operator)
    pairs = [*base.changes, *(settings or {}).items(), *parts.items()]
    label = label.strip() if isinstance(label, str) else label
    made = _made(base.operator, pairs, base.label if label == "" else label, base.given)
    if parse_arm(str(made)) != made:
        raise ValueError(f"arm {made} can't be written as text: a value has a comma or an equals sign in it")
    return made


def as_arm(given: Any) -> Arm:
    """Take an arm or an operator, or read one from text; the operator is spelled as it is recorded.

    Raises:
        ValueError: as `parse_arm` and `operators.parse`.
        TypeError: it is none of these.

    Example:
        >>> str(as_arm("softmax:5, gap=gap(0.9)")), as_arm("x=max").name
        ('softmax(5), gap=gap(0.9)', 'x')
    """
    if isinstance(given, str):
        given = parse_arm(given)
    if isinstance(given, Arm):
        made = given.made()
        return replace(given, operator=str(made), given=made)
    made = as_operator(given)
    return Arm(str(made), given=made)


def parse_arm(text: str) -> Arm:
    """Read an arm from text. The operator's spec is taken as it is, since its module need not be at hand.

    Raises:
        ValueError: for a label or key that no arm can have, or a value of another kind.

    Example:
        >>> parse_arm("fast=max, learner.learning_rate=1e-3, returns=3")
        Arm(operator='max', changes=(('recipe.returns', 3), ('learner.learning_rate', 0.001)), label='fast')
    """
    if missing := _UNPARTED.search(text):
        raise ValueError(f"arm {text!r}: write a comma before {missing[1]}")
    try:
        first, *items = split(text, text)
    except SpecError:
        return Arm(text.strip())  # its parentheses are amiss, which the reader of operators says better
    label, first = _keyed(first) or ("", first)
    while items and ":" in first and _keyed(items[0]) is None:  # `entmax:1.5, 5`
        first = f"{first}, {items.pop(0)}"
    pairs = []
    for item in items:
        pair = _keyed(item)
        if pair is None:
            raise ValueError(f"arm {text!r}: {item!r} is no setting; write key=value, such as gap=gap(0.9)")
        pairs.append(pair)
    try:
        return _made(first, [(key, _read(key, value)) for key, value in pairs], label)
    except ValueError as error:
        raise ValueError(f"arm {text!r}: {error}") from None


def require_different(arms: Sequence[Arm]) -> None:
    """Refuse two arms that differ in their labels at most, or have one label.

    Raises:
        ValueError: with both.
    """
    for one, other in itertools.combinations(arms, 2):
        if one.spec == other.spec:
            raise ValueError(f"arms {one} and {other} differ in their labels at most; leave one out")
        if one.name == other.name:
            raise ValueError(f"arms {one} and {other} have one label; choose another for one of them")


def noun_of(arms: Iterable[Arm]) -> str:
    """Say what arms are called: an operator, where each is its operator alone."""
    return "arm" if any(arm.changes or arm.label for arm in arms) else "operator"


def joined(arms: Iterable[Any]) -> str:
    """List operators or arms, by semicolons where one of them has commas of its own.

    >>> joined(["max", "softmax(5)"]), joined(["max", "max, returns=3"])
    ('max, softmax(5)', 'max; max, returns=3')
    """
    names = [str(each) for each in arms]
    return separator(names).join(names)


def separator(names: Iterable[str]) -> str:
    """Give what parts names in a list: a semicolon where one of them has commas of its own."""
    return "; " if any("=" in name for name in names) else ", "


def key_of(path: str) -> str:
    """Return the key by which an arm changes a field."""
    return path.removeprefix(_RECIPE)


def _keys() -> dict[str, str]:
    """Returns the fields that an arm can change, by key, those of the recipe first."""
    free = [path for path, _ in fields(Config()) if not _reason(path)]
    return {key_of(path): path for path in sorted(free, key=lambda path: not path.startswith(_RECIPE))}


def _reason(path: str) -> str:
    """Returns why no arm can change a field, or an empty text."""
    return next((reason for beginning, reason in _FIXED.items() if path.startswith(beginning)), "")


KEYS = _keys()
"""Fields that an arm can change, by key, in the order in which they are written."""
_KNOWN = dict(fields(Config()))


_UNPARTED = re.compile(rf"(?:\)|\b(?:{'|'.join(FACTORIES)}))\s+({'|'.join(map(re.escape, KEYS))})\s*=")
"""A setting without a comma between it and the operator or setting before it."""


def _path(key: str) -> str:
    """Returns the field of a key, in full or not.

    Raises:
        ValueError: no arm can change it.
    """
    path = KEYS.get(key, key)
    if path not in _KNOWN:
        last = {known.rpartition(".")[2]: known for known in _KNOWN}
        hint = f"; did you mean {last[key]}?" if key in last else nearest(key, KEYS) or nearest(key, last)
        parts = ", ".join(known for known in KEYS if "." not in known)
        raise ValueError(f"unknown setting {key!r}{hint or f'; there are {parts}, and section.field of others'}")
    if reason := _reason(path):
        raise ValueError(f"no arm can change {path}: {reason}")
    return path


def _made(operator: str, pairs: Iterable[tuple[str, Any]], label: str, given: Operator | None = None) -> Arm:
    """Makes an arm from keys and values, checked.

    Raises:
        ValueError: for what does not fit.
    """
    changes = dict[str, Any]()
    for key, value in pairs:
        path = _path(key)
        if path in changes:
            raise ValueError(f"{key} is there twice")
        value = value.strip() if isinstance(value, str) else value
        changes[path] = dict(fields(with_settings(Config(), {path: value})))[path]
        if changes[path] == "":
            raise ValueError(f"{key} has no value")
    _require_label(label)
    made = Arm(operator, tuple((path, changes[path]) for path in KEYS.values() if path in changes), label, given)
    if (changes or label) and len(made.name.encode()) > LONGEST:
        raise ValueError(f"its name has more than {LONGEST} letters; give it a label, as in 'mine=max, returns=3'")
    return made


def _require_label(label: str) -> None:
    """Refuses a label that is none, or that reads as something else.

    Raises:
        ValueError: with what to do.
    """
    if not isinstance(label, str) or (label and not _LABEL.fullmatch(label)):
        raise ValueError(f"label {label!r} must begin with a letter, digit or _, and have these, spaces and . + - only")
    if label in FACTORIES:
        raise ValueError(f"label {label!r} is the name of an operator; write {label}(5), or choose another label")
    if label == "random actions":
        raise ValueError(f"label {label!r} is that of the random policy in tables; choose another label")
    if label in _KNOWN or label in KEYS:
        raise ValueError(f"{label!r} is a setting, and no label; an arm begins with its operator: 'max, returns=3'")


def _keyed(item: str) -> tuple[str, str] | None:
    """Takes `key=value` apart, or returns None."""
    found = _KEYED.fullmatch(item)
    return (found[1].strip(), found[2].strip()) if found else None


def _read(key: str, text: str) -> Any:
    """Reads a value of the kind that a field has; what is none is left as it is, and refused later."""
    kind = kind_of(_path(key))
    if type(None) in get_args(kind):
        if text.lower() == "none":
            return None
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is tuple:
        words = [] if text.lower() == "none" else text.split()
        return tuple(_number(word, get_args(kind)[0]) for word in words)
    return _number(text, kind)


def _number(text: str, kind: Callable[[str], Any]) -> Any:
    try:
        if kind is int and not text.lstrip("+-").isdigit():
            return as_integer(float(text), text)  # 1e6
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


def _written(value: Any) -> str:
    """Writes a value as `_read` reads it."""
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return " ".join(map(_written, value))
    if isinstance(value, float):
        return repr(value).removesuffix(".0").replace("e+", "e")
    return str(value)
