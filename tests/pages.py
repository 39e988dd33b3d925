"""Code blocks of the documentation, and a process that runs them as cells of a notebook."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.notebook.forked import ForkServer

ROOT = Path(__file__).parent.parent
# A fence may be indented in a list; its info string is the language, perhaps with `no-run`.
_BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<code>.*?)^ *(?P=fence) *$", re.M | re.S
)
_REASON = re.compile(r"<!-- (?:no-run|shown): (\S.{9,}) -->\n *\Z")
# Each page has its own folder and names, in one process, since IPython takes a while to start.
_CELLS = """
import json, os, sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
for page, folder, cells in json.load(open(sys.argv[1], encoding="utf-8")):
    os.chdir(folder)
    shell.reset()
    print(f"\\n=== {page}")
    for cell in cells:
        if not shell.run_cell(cell).success:
            print("=== FAILED")
            break
"""


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """One fenced block."""

    language: str
    code: str
    runs: bool
    """False if it is marked `no-run`."""
    reason: str | None
    """From the comment above the block: the reason for `no-run`, or what checks a shown text."""


def blocks_of(page: str) -> list[CodeBlock]:
    """The fenced blocks of a page, by its path from the root of the clone."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        language, *words = match["info"].split() or [""]
        reason = _REASON.search(text[: match.start()])
        code = match["code"]
        found.append(CodeBlock(language, code, "no-run" not in words, reason and reason[1]))
    return found


def code_of(page: str, language: str = "python") -> list[str]:
    """All blocks of a page in a language that are to be run."""
    return [b.code for b in blocks_of(page) if b.language == language and b.runs]


def without_code(text: str) -> str:
    """A page without its fenced blocks."""
    return _BLOCK.sub("", text)


def cells_of(page: str) -> list[str]:
    """The blocks of a page to run: Python, and cells with magics."""
    return [b.code for b in blocks_of(page) if b.language in ("python", "ipython") and b.runs]


def run_cells(
    pages: Mapping[str, Sequence[str]], folder: Path, fork_server: ForkServer
) -> dict[str, str]:
    """Run each page's cells in one process, in this one's environment; return each page's output.

    Args:
        pages: By name: the cells.
        folder: An empty one, for what the pages write.
        fork_server: Starts the process, so that it need not import anything.
    """
    orders = []
    for number, (page, cells) in enumerate(pages.items()):
        own = folder / str(number)
        own.mkdir()
        orders.append((page, str(own), list(cells)))
    given, output, errors = (folder / name for name in ("orders.json", "output", "errors"))
    given.write_text(json.dumps(orders), encoding="utf-8")
    arguments = ["-c", _CELLS, str(given)]
    status = fork_server.popen(arguments, output=output, errors=errors).wait()
    assert status == 0, errors.read_text(encoding="utf-8")
    said = re.split(r"^=== (\S+\.(?:md|ipynb))\n", output.read_text("utf-8"), flags=re.M)
    return dict(zip(said[1::2], said[2::2], strict=True))
