"""How Sphinx makes the documentation site: `make docs`.

The source folder is the whole clone, so that links between pages, notebooks and files are the same
here and where the repository is read. Notebooks are shown as they were saved: a build runs nothing.
It asks nothing of the network either, so types of other projects are no links.
"""

from __future__ import annotations

import re
from html import escape
from importlib import import_module
from pathlib import Path
from textwrap import shorten
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
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/icon.svg"
html_search_scorer = str(Path(__file__).parent / "static" / "scorer.js")
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 7,
}
# The first page of a section has no pages below it.
html_sidebars = {"docs/start": []}
toc_object_entries_show_parents = "hide"
highlight_language = "none"
# What stands below a `%%spawn`, and a message in place of a traceback, is prose.
suppress_warnings = ["misc.highlighting_failure"]

# The theme knows a colour scheme only after its script has run, and says so as an error.
_SCHEME = """{
  const root = document.documentElement.dataset;
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  root.mode ||= "auto";
  root.theme ||= isDark ? "dark" : "light";
}"""

# -- pages and notebooks ---------------------------------------------------------------------------

myst_heading_anchors = 4
nb_execution_mode = "off"
# The saved answer, outline and picture are shown; a live view would need its kernel.
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
nb_ipywidgets_js: dict[str, Any] = {}
nb_code_prompt_show = "⋯ Show the folded cell"
nb_code_prompt_hide = "Fold the cell"


def _fold_cells(app: Sphinx, page: nodes.document) -> None:
    """Fold the cells that JupyterLab folds, such as solutions. myst-nb reads only its own tags."""
    for cell in page.findall(nodes.container):
        folded = cell.get("cell_metadata", {}).get("jupyter", {})
        if folded.get("source_hidden"):
            cell["hide_mode"] = "all" if folded.get("outputs_hidden") else "input"
            cell["prompt_show"] = app.config.nb_code_prompt_show
            cell["prompt_hide"] = app.config.nb_code_prompt_hide


def _describe(
    app: Sphinx, name: str, template: str, context: dict[str, Any], page: nodes.document | None
) -> None:
    """Give a page its first paragraph as a description, for search engines."""
    first = next(page.findall(nodes.paragraph), None) if page else None
    if first is not None:
        words = shorten(first.astext(), 160, placeholder=" …")
        context["metatags"] += f'\n<meta name="description" content="{escape(words)}">'


# -- reference -------------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
autodoc_default_options = {"members": True, "undoc-members": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False

_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)(?=(\w?))")
# Nobody calls these: agentnb makes their objects, and their fields are listed below.
_ONLY_READ = set(
    "AgentContext AgentList AgentMetadata AgentNode AgentStatus AgentView Agreement CancelReceipt "
    "Config Cost MapResult MapRun MemoryEntry MemoryList OrchestratorResult Question Run RunInfo "
    "RunList RunRecord SubAgentResult Task TaskList Thread ThreadList ToolContext".split()
)
# What an annotation may name without a link: names of these modules, of other projects, and those
# at the top of a module of `agentnb`. Any other name is a mistake, and a warning.
_PYTHON = (
    "builtins",
    "collections",
    "collections.abc",
    "datetime",
    "decimal",
    "os",
    "pathlib",
    "typing",
)
_OTHERS = {"nx.DiGraph", "TracerProvider"}
_OWN = {
    found[1]
    for file in Path(agentnb.__file__).parent.rglob("*.py")
    for found in re.finditer(r"^(?:class )?(\w+)(?=[(\[:]| = )", file.read_text("utf-8"), re.M)
}


def _mark_code(app: Sphinx, what: str, name: str, it: Any, options: Any, lines: list[str]) -> None:
    """Write code in a docstring as reStructuredText has it: ours are in single backticks.

    Before napoleon reads it, which takes a colon in anything else for the end of a name. In the
    first line of an attribute it takes every colon for the end of a type: an empty comment goes
    before that line.
    """
    marked = _CODE.sub(lambda m: f"``{m[1]}``" + (r"\ " if m[2] else ""), "\n".join(lines))
    lines[:] = marked.split("\n")
    if what in ("attribute", "property", "data"):
        lines[:0] = ["..", ""]


def _hide_constructor(
    app: Sphinx, what: str, name: str, it: Any, options: Any, arguments: str, returns: str
) -> tuple[str, str] | None:
    """Show no arguments of a class that only agentnb calls."""
    is_only_read = what == "class" and name.rpartition(".")[2] in _ONLY_READ
    return ("", "") if is_only_read else None


def _public_name(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: Element) -> Any:
    """Where a type leads that an annotation names: its public name, or nowhere."""
    if node.get("refdomain") != "py":
        return None
    target = str(node["reftarget"])
    module, _, name = target.rpartition(".")
    if name in agentnb.__all__:
        shown = nodes.literal("", text.astext().rpartition(".")[2] or name)
        domain = env.domains.python_domain
        for kind in ("class", "func", "exc"):
            found = domain.resolve_xref(
                env, node["refdoc"], app.builder, kind, f"agentnb.{name}", node, shown
            )
            if found is not None:
                return found
    of_python = {module} & set(_PYTHON) if module else _PYTHON
    known = (
        target in _OTHERS
        or (name in _OWN and module.partition(".")[0] in ("", "agentnb"))
        or any(hasattr(import_module(each), name) for each in of_python)
    )
    return text if known else None


def setup(app: Sphinx) -> None:
    """Sphinx calls it."""
    app.add_js_file(None, body=_SCHEME)
    app.connect("doctree-read", _fold_cells)
    app.connect("html-page-context", _describe)
    app.connect("autodoc-process-docstring", _mark_code, priority=400)
    app.connect("autodoc-process-signature", _hide_constructor)
    app.connect("missing-reference", _public_name)
