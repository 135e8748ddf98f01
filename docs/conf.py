"""The documentation as a site, which `make docs` builds: pages, notebooks that run, a reference from docstrings."""

import logging
import os
from pathlib import Path
from typing import Any

import jupyter_client
from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx
from traitlets import default

import softbellman

ROOT = Path(__file__).resolve().parents[1]

project = "softbellman"
copyright = "2026, the softbellman authors"
author = "the softbellman authors"
version = release = softbellman.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 1800  # seconds for a cell: one that trains takes a minute on a machine that is not busy
nb_merge_streams = True
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 100
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"softbellman {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"


class PrivateKernel(jupyter_client.AsyncKernelManager):
    """Kernel of a tutorial whose messages are encrypted: it warns of others, which all on the machine could read."""

    @default("transport_encryption")
    def _encrypted(self) -> str:
        return "auto"


jupyter_client.AsyncKernelManager = PrivateKernel  # which nbclient looks up for every notebook
logging.getLogger("traitlets").setLevel(logging.WARNING)  # not each start, though a theme has all loggers print INFO


def link_to_files(app: Sphinx, page: nodes.document) -> None:
    """Makes links to what is no page but in the repository: a file can be downloaded, a folder is only named.

    Links of a page that includes `README.md` or another file of the root count from there.
    """
    folder = Path(app.env.doc2path(app.env.current_document.docname)).parent
    for link in list(page.findall(addnodes.pending_xref)):
        targets = ((base / link["reftarget"]).resolve() for base in (folder, ROOT))
        target = next((each for each in targets if each.exists() and each.is_relative_to(ROOT)), None)
        if link["reftype"] == "myst" and target is not None:
            name = os.path.relpath(target, folder)
            link.replace_self(
                link.children
                if target.is_dir()
                else addnodes.download_reference("", "", *link.children, reftarget=name)
            )


def write_math(writer: Any, node: nodes.math | nodes.math_block) -> None:
    """Writes TeX as MathML, which browsers lay out by themselves: without scripts, fonts or a network."""
    block = isinstance(node, nodes.math_block)
    element = latex2mathml.tex2mathml(node.astext(), as_block=block)
    writer.body.append(f'<div class="math">{element}</div>' if block else element)
    raise nodes.SkipNode


def mark_code(app: Sphinx, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Marks as code what stands indented after an empty line of a docstring."""
    marked: list[str] = []
    indent = 0  # of the paragraph before
    for before, line in zip(["", *lines], lines, strict=False):
        if line.strip():
            here = len(line) - len(line.lstrip())
            if not before.strip() and here >= indent + 4:
                marked += [" " * indent + "::", ""]
            else:
                indent = here
        marked.append(line)
    lines[:] = marked


def skip_fields(app: Sphinx, kind: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leaves out the fields of a named tuple, which its own docstring explains."""
    return True if type(thing).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> None:
    """Adds the above to Sphinx."""
    app.connect("doctree-read", link_to_files, priority=400)  # before Sphinx collects what can be downloaded
    app.connect("autodoc-process-docstring", mark_code, priority=400)  # before napoleon reads the sections
    app.connect("autodoc-skip-member", skip_fields)
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
