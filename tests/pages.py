"""Pages of documentation, run: what they define, and that what their comments promise is so."""

import ast
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

PROMISE = re.compile(r"-?\d+\.\d{4}|^True|^False|^\"[^\"]*\"")


def read_page(name: str) -> tuple[str, list[str]]:
    """The text of a page in docs/, and its blocks of Python."""
    text = (Path(__file__).parents[1] / "docs" / name).read_text()
    return text, re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@contextmanager
def run_page(blocks: list[str], module_name: str, tolerance: float) -> Iterator[tuple[dict, int]]:
    """Runs blocks as a module that can be imported meanwhile; gives its names, and how many promises were kept.

    A promise is a number with four decimals, a truth or a text in the comment of a line, for the value of that line.
    """
    module = ModuleType(module_name)
    sys.modules[module_name] = module
    promises = 0
    for block in blocks:
        exec(block, vars(module))
        for line in block.splitlines():
            code, _, comment = line.partition("  # ")
            if promised := PROMISE.search(comment):
                expected, value = ast.literal_eval(promised[0]), eval(code, vars(module))
                close = pytest.approx(expected, abs=tolerance) if isinstance(expected, float) else expected
                assert value == close, line
                promises += 1
    yield vars(module), promises
    del sys.modules[module_name]
