"""References to a user's functions and classes: from `package.module:name` to the object, and back."""

import importlib
import inspect
from typing import Any

from softbellman.arguments import nearest
from softbellman.faults import in_a_line, users_place

REMEDY = "put it into a module, outside of any function, and import it from there"


def is_reference(word: str) -> bool:
    """Say whether a word has the form `package.module:name`, whatever is there.

    Example:
        >>> is_reference("grids.envs:make"), is_reference("grids:Grid.small"), is_reference("gym/grids:Grid-v0")
        (True, True, False)
    """
    module, colon, name = word.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def resolve(reference: str, role: str) -> Any:
    """Return what a reference leads to; its module is imported.

    Args:
        reference: `package.module:name`, in which the name may be of something inside a class.
        role: what messages call it, as in `environment`.

    Raises:
        ValueError: there is no such module or name, the module fails when it is imported, or it is the script that
            runs, which is another one in other processes.
    """
    module, _, name = reference.partition(":")
    if module == "__main__":
        raise ValueError(f"{role} {reference} is in the script that runs, which other processes do not know; {REMEDY}")
    try:
        made = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        if users_place(error):
            raise ValueError(f"{role} {reference}: {module} fails when it is imported: {in_a_line(error)}") from error
        hint = f"write {module[:-3]}, without .py" if module.endswith(".py") else "is its directory on PYTHONPATH?"
        raise ValueError(f"{role} {reference}: cannot import {module} ({error}); {hint}") from error
    for part in name.split("."):
        if not hasattr(made, part):
            public = [other for other in vars(made) if not other.startswith("_")] if hasattr(made, "__dict__") else []
            hint = nearest(part, public) or (f"; it has {', '.join(public[:5])}" if public else "")
            raise ValueError(f"{role} {reference}: {getattr(made, '__name__', made)} has no {part}{hint}")
        made = getattr(made, part)
    return made


def reference_to(given: Any, role: str) -> str:
    """Return the reference by which every process finds a function or class.

    Args:
        given: the function or class.
        role: what messages call it.

    Raises:
        ValueError: it is neither, or has no name of its own in a module; the message says why, and what to do.
    """
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", None)
    if not (callable(given) and isinstance(module, str) and isinstance(name, str)):
        raise ValueError(f"{role} {given!r} must be a name, or a function or class of a module that makes one")
    if "<lambda>" in name:
        why = "a lambda has no name"
    elif "<locals>" in name:
        why = "it is defined inside of a function"
    elif module == "__main__":
        why = "it is defined in the script that runs"
    else:
        try:
            there = resolve(f"{module}:{name}", role)
        except ValueError as error:
            why = str(error)
        else:
            if there is given or (inspect.ismethod(given) and there == given):  # a method is bound anew each time
                return f"{module}:{name}"
            why = "that name leads to another object"
    raise ValueError(f"{role} {module}:{name} can't be found again by other processes: {why}; {REMEDY}")
