"""The map in docs/design.md, enforced: who may import whom, what stays light, how long a file may be."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "softbellman"

# Imports that each part may make of the others. A key with a dot is a single module with a rule of its own;
# a value with a dot allows that module alone. To loosen a rule, change docs/design.md with it.
ALLOWED = {
    "arguments": set(),
    "extras": set(),
    "faults": set(),
    "references": {"arguments", "faults"},
    "operators": {"arguments", "faults"},
    "memory": set(),
    "part": {"operators", "arguments", "references"},
    "gaps": {"operators", "part"},
    "integrations": {"operators", "extras"},
    "tabular": {"operators", "gaps", "memory", "arguments", "extras", "faults"},
    "simulation": {"operators", "memory", "arguments", "faults"},
    "temperature": {"operators", "simulation", "memory", "arguments"},
    "envs": {"arguments", "extras", "faults", "references"},
    "envs.mdp": {"tabular", "operators"},
    "learning": {"operators", "part", "gaps", "temperature", "envs.step", "memory"},
    "training": {"operators", "envs", "learning", "faults"},
    "training.exact": {"operators", "learning", "tabular"},
    "config": {"operators", "part", "envs", "learning.settings", "training.settings", "arguments", "references"},
    "study": {"operators", "training", "config", "memory", "arguments"},
    "study.store": {
        "operators",
        "training",
        "config",
        "arguments",
        "analysis",
        "report",
    },  # a study's own page, drawn when asked for
    "analysis": {"operators", "training.metrics", "config", "study", "arguments"},
    "sinks": {"training", "config", "study", "extras", "faults", "references"},
    "running": {
        *("operators", "envs", "learning", "training", "config", "study", "sinks"),
        *("memory", "arguments", "extras", "faults", "references"),
    },
    "report": {
        "operators",
        "training.metrics",
        "config",
        "study",
        "analysis",
        "running",
        "arguments",
        "extras",
        "faults",
    },
    # It tries what it promises: the run as a policy.
    "report.card": {
        "envs.families",
        *("operators", "config", "study", "analysis", "running", "policies", "faults"),
    },
    "policies": {
        *("operators", "integrations", "envs", "learning", "training", "config", "study", "running"),
        *("arguments", "extras", "references"),
    },
    "paper": {
        *("operators", "tabular", "simulation", "temperature", "envs", "learning", "training"),
        *("config", "study", "analysis", "running", "report", "arguments", "extras"),
    },
    "cli": {
        "doctor",
        *("operators", "gaps", "tabular", "simulation", "temperature", "envs", "learning", "training"),
        *("config", "study", "analysis", "running", "policies", "report", "paper", "memory"),
        *("arguments", "extras", "faults", "references"),
    },
    "doctor": {"envs", "extras", "learning", "memory", "running", "study"},
    "__init__": {"operators", "tabular", "config", "study", "running", "policies", "report"},
    "__main__": {"cli"},
}

# Slow to load, or from an extra that may be missing: imported only where used in the modules below.
HEAVY = {
    "jax", "optax", "gymnasium", "ale_py", "cv2", "matplotlib", "torch", "imageio", "safetensors", "gymnax", "pandas",
    "tensorboardX", "wandb", "mlflow", "trackio", "ray", "submitit", "stable_baselines3", "tianshou", "torchrl",
    "tensordict", "onnx",
}  # fmt: skip
LIGHT = ("operators", "config", "cli", "__init__", "__main__")

LONGEST_FILE = 400
LARGEST_FOLDER = 16  # modules
VAGUE_NAMES = {"utils.py", "common.py", "base.py", "helpers.py", "misc.py"}

# Within a folder: what an operator says of itself, by the table that lists all of them.
CIRCLES = [
    [
        *("operators.conjugates", "operators.contract", "operators.core", "operators.doubles", "operators.entropy"),
        *("operators.laws", "operators.means", "operators.mellow", "operators.noise", "operators.orders"),
        *("operators.spec", "operators.table"),
    ],
]

FILES = sorted(ROOT.rglob("*.py"))


def module_name(file: Path) -> str:
    """`operators.core` for `operators/core.py`, `operators` for `operators/__init__.py`, `__init__` for the package."""
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    if len(parts) > 1 and parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def own_imports(tree: ast.AST, file: Path) -> Iterator[str]:
    """Every module of ours that a file imports, anywhere in it, as a name without the leading `softbellman.`."""
    package = ["softbellman", *file.relative_to(ROOT).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            source = ".".join([*start, *([node.module] if node.module else [])])
            # The last part may be a module or a thing in one: `envs.step` and `envs.step.Step` both lie within `envs`.
            names = [f"{source}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name == "softbellman" or name.startswith("softbellman."):
                yield name.removeprefix("softbellman").removeprefix(".")


def imports_at_load(node: ast.AST) -> Iterator[str]:
    """The top-level packages that are imported when a module loads: not those inside functions or for types only."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.orelse:
            yield from imports_at_load(child)
        return
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        yield node.module.partition(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from imports_at_load(child)


def within(module: str, part: str) -> bool:
    return module == part or module.startswith(part + ".")


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_imports_flow_one_way(file):
    module = module_name(file)
    part = module if module in ALLOWED else module.partition(".")[0]
    assert part in ALLOWED, f"{part} is not on the map: add it to ALLOWED and to docs/design.md"
    allowed = ALLOWED[part] | {part.partition(".")[0]}
    for target in own_imports(ast.parse(file.read_text()), file):
        assert any(within(target, name) for name in allowed), f"{module} may not import {target or 'softbellman'}"


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_light_modules_load_nothing_heavy(file):
    module = module_name(file)
    if any(within(module, light) for light in LIGHT):
        loaded = set(imports_at_load(ast.parse(file.read_text())))
        assert not loaded & HEAVY, f"{module} imports {sorted(loaded & HEAVY)} when it loads; import where it is used"


@pytest.mark.parametrize("module", ["softbellman", "softbellman.operators", "softbellman.config", "softbellman.cli"])
def test_loading_stays_light_through_every_import(module):
    """The same, seen from outside: whatever these import, directly or not, loads nothing heavy."""
    code = f"import sys, {module}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == ""


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_files_are_short_and_well_named(file):
    assert file.name not in VAGUE_NAMES, f"{file.name} says nothing: name the file after what it holds"
    lines = len(file.read_text().splitlines())
    assert lines <= LONGEST_FILE, f"{file.name} has {lines} lines, over {LONGEST_FILE}: two things live in it"


def test_folders_are_small():
    modules = Counter(file.parent.relative_to(ROOT).as_posix() for file in FILES if file.name != "__init__.py")
    assert {folder: n for folder, n in modules.items() if n > LARGEST_FOLDER} == {}


def circles(arrows: Mapping[str, set[str]]) -> list[set[str]]:
    """The sets of names that import each other, directly or not."""
    reached = {name: {name, *arrows[name]} for name in arrows}
    grown = -1
    while grown != (grown := sum(map(len, reached.values()))):
        for name in arrows:
            reached[name] |= {far for near in reached[name] for far in reached.get(near, ())}
    alike = {
        name: frozenset(other for other in arrows if name in reached[other] and other in reached[name])
        for name in arrows
    }
    return sorted((set(names) for names in set(alike.values()) if len(names) > 1), key=sorted)


def test_no_circle_of_imports_leaves_a_folder():
    """Folders import one way but for a study's own page; within a folder there is no circle either."""
    names = [module_name(file) for file in FILES]
    arrows: dict[str, set[str]] = {name: set() for name in names}
    for file in FILES:
        for target in own_imports(ast.parse(file.read_text()), file):
            found = max((name for name in names if within(target, name)), key=len, default=None)
            if found is not None and found != module_name(file):
                arrows[module_name(file)].add(found)
    own_page = {"analysis.findings", "analysis.records", "report"}
    assert own_page <= arrows["study.store"]
    arrows["study.store"] -= own_page
    assert [sorted(each) for each in circles(arrows)] == CIRCLES
    folders: dict[str, set[str]] = {}
    for name, targets in arrows.items():
        own = name.partition(".")[0]
        folders.setdefault(own, set()).update(target.partition(".")[0] for target in targets if not within(target, own))
    assert circles(folders) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from softbellman.operators import core", ["operators.core"]),
        ("from ..operators.core import maximum", ["operators.core.maximum"]),
        ("from . import step", ["envs.step"]),
        ("def f():\n    import softbellman.study.store", ["study.store"]),
        ("import numpy", []),
    ],
)
def test_the_reader_of_imports_sees_them_all(source, expected):
    assert list(own_imports(ast.parse(source), ROOT / "envs" / "atari.py")) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import jax.numpy as jnp", {"jax"}),
        ("try:\n    import jax\nexcept ImportError:\n    jax = None", {"jax"}),
        ("class A:\n    import jax", {"jax"}),
        ("def f():\n    import jax", set()),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jax", {"typing"}),
    ],
)
def test_the_reader_of_loads_sees_what_runs(source, expected):
    assert set(imports_at_load(ast.parse(source))) == expected
