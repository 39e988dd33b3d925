"""How Sphinx makes the documentation site: `make docs`.

The source folder is the whole clone, so that links between pages, notebooks and files are the same
here and where the repository is read. Notebooks are shown as they were saved: a build runs nothing.
It asks nothing of the network either, so types of other projects are no links.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.nodes import Element
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import agentnb

project = "agentnb"
author = "agentnb contributors"
copyright = author
version = release = agentnb.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
root_doc = "docs/index"
include_patterns = ["docs/**", "notebooks/*.ipynb", "notebooks/*.md", "CHANGELOG.md", "SECURITY.md"]
exclude_patterns = [".*", "agentnb", "binder", "build", "dist", "node_modules", "tests"]
nitpicky = True

html_theme = "pydata_sphinx_theme"
html_title = "agentnb"
# The first page stands where a reader of the site's own address looks for it.
html_extra_path = ["root"]
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 7,
}
highlight_language = "none"
# What stands below a `%%spawn`, and a message in place of a traceback, is prose.
suppress_warnings = ["misc.highlighting_failure"]

# -- pages and notebooks ---------------------------------------------------------------------------

myst_heading_anchors = 4
nb_execution_mode = "off"
# The saved answer, outline and picture are shown; a live view would need its kernel.
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
nb_ipywidgets_js: dict[str, Any] = {}

# -- reference -------------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "undoc-members": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False

_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)(?=(\w?))")


def _mark_code(app: Sphinx, what: str, name: str, it: Any, options: Any, lines: list[str]) -> None:
    """Write code in a docstring as reStructuredText has it: ours are in single backticks.

    Before napoleon reads it, which takes a colon in anything else for the end of a name.
    """
    marked = _CODE.sub(lambda m: f"``{m[1]}``" + (r"\ " if m[2] else ""), "\n".join(lines))
    lines[:] = marked.split("\n")


def _public_name(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: Element) -> Any:
    """Where a type leads that an annotation names: its public name, or nowhere."""
    if node.get("refdomain") != "py":
        return None
    target = str(node["reftarget"])
    name = target.rpartition(".")[2]
    if name in agentnb.__all__:
        shown = nodes.literal("", text.astext().rpartition(".")[2] or name)
        domain = env.domains.python_domain
        for kind in ("class", "func", "exc"):
            found = domain.resolve_xref(
                env, node["refdoc"], app.builder, kind, f"agentnb.{name}", node, shown
            )
            if found is not None:
                return found
    return text


def setup(app: Sphinx) -> None:
    """Sphinx calls it."""
    app.connect("autodoc-process-docstring", _mark_code, priority=400)
    app.connect("missing-reference", _public_name)
