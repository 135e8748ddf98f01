"""The site has every page of docs/, links lead somewhere, pages fit, and the tutorials' code runs, at a small size."""

import ast
import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIALS = {
    "own-operator": {"steps": 1_200},
    "comparison": {"seeds": 2, "steps": 7_000},
    "solving": {},
    "stable-baselines3": {"steps": 600},
}


def listed_pages() -> list[str]:
    """The names in the tables of contents, without `.md`."""
    tables = re.findall(r"^```\{toctree\}\n(.*?)^```", (DOCS / "index.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line for table in tables for line in table.splitlines() if line and not line.startswith(":")]


def test_the_tables_of_contents_have_every_page_once():
    names = [page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES]
    assert sorted(listed_pages()) == sorted(set(names) - {"index"}), "list the page in docs/index.md"


def without_code(text: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](there.md) and [b](there.md#one-two)", []),
        ("# Own\n[a](#own) [b](#other)", ["#other"]),
        ("[a](gone.md) ![b](gone.png)", ["gone.md", "gone.png"]),
        ("[a](there.md#three)", ["there.md#three"]),
        ("`[a](gone.md)`\n```\n[b](gone.md)\n```\n", []),
    ],
)
def test_broken_links_are_seen(text, expected, tmp_path):
    (tmp_path / "there.md").write_text("# One `two`\n\n```\n# Three\n```\n")
    page = tmp_path / "page.md"
    page.write_text(text)
    assert broken_links(page) == expected


@pytest.fixture(scope="module")
def check_site():
    spec = importlib.util.spec_from_file_location("check_site", DOCS / "check_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WIDE = '<table style="width: {}px"><tr><td>wide</td></tr></table>'
BOX = '<div class="table-wrapper" style="overflow-x: auto">{}</div>'


@pytest.mark.parametrize(
    ("body", "scrolled"),
    [
        ("<p>text</p>", []),
        (WIDE.format(1200), [390]),
        (WIDE.format(1400), [1280, 390]),
        (BOX.format(WIDE.format(1400)), []),
        (f'<section id="gallery">{BOX.format(WIDE.format(1400))}</section>', [1280]),
        (f'<section id="gallery">{BOX.format(WIDE.format(1200))}</section>', []),
        ("<pre>" + 100 * "long-" + "</pre>", [1280, 390]),
        ('<div style="position: absolute; left: 500px">beside</div>', [390]),
    ],
)
def test_pages_that_scroll_sideways_are_seen(body, scrolled, tmp_path, browser, check_site):
    head = '<!doctype html><meta name="viewport" content="width=device-width, initial-scale=1">'
    (tmp_path / "page.html").write_text(f'{head}<body style="margin: 0">{body}')
    faults = check_site.faults_of_width(tmp_path, browser)
    assert [int(re.search(r"window of (\d+) px: \d+ px$", fault)[1]) for fault in faults] == scrolled


def cells(tutorial: str) -> list[str]:
    text = (DOCS / "tutorials" / f"{tutorial}.md").read_text()
    return re.findall(r"^```\{code-cell\} python\n(?::tags:[^\n]*\n)?(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.docs
def test_a_tutorial_that_runs_prints_nothing(tmp_path):
    """Neither Sphinx does nor the kernel."""
    for package in ("myst_nb", "furo"):
        pytest.importorskip(package)
    shutil.copy(DOCS / "conf.py", tmp_path)
    shutil.copytree(DOCS / "_static", tmp_path / "_static")
    head = (DOCS / "tutorials" / "solving.md").read_text().partition("\n# ")[0]
    (tmp_path / "index.md").write_text(f"{head}\n# One\n\n```{{code-cell}} python\n6 * 7\n```\n")
    words = ["-q", "-E", "-W", str(tmp_path), str(tmp_path / "site")]
    process = subprocess.run([sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
    assert "42" in (tmp_path / "site" / "index.html").read_text()


def test_every_tutorial_is_run():
    assert {page.stem for page in (DOCS / "tutorials").glob("*.md")} == set(TUTORIALS)


MARKS = {"stable-baselines3": pytest.mark.torch, "comparison": pytest.mark.slow}


@pytest.mark.parametrize("tutorial", [pytest.param(name, marks=MARKS.get(name, ())) for name in TUTORIALS])
def test_the_code_of_tutorials_runs(tutorial, tmp_path, monkeypatch):
    """At the sizes above in place of the tutorial's own."""
    if tutorial == "stable-baselines3":
        pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sizes, names = dict(TUTORIALS[tutorial]), {"__name__": "__main__"}
    modules = set(sys.modules)
    for cell in cells(tutorial):
        if written := re.match(r"%%writefile (\S+)\n", cell):
            Path(written[1]).write_text(cell[written.end() :])
            importlib.invalidate_caches()
            continue
        tree = ast.parse(cell.removeprefix("%matplotlib inline\n"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and (name := ast.unparse(node.targets[0])) in sizes:
                node.value = ast.copy_location(ast.Constant(sizes.pop(name)), node.value)
        exec(compile(tree, tutorial, "exec"), names)
    assert not sizes, "the tutorial sets no such size"
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_the_pages_of_the_interface_have_every_module_of_analysis():
    listed = re.findall(r"automodule:: (\S+)", (ROOT / "docs/api/analysis.md").read_text())
    files = (ROOT / "src/softbellman/analysis").glob("[!_]*.py")
    assert sorted(listed) == sorted(f"softbellman.analysis.{file.stem}" for file in files)
