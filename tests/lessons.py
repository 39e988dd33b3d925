"""Time and cost of the lessons: `python -m tests.lessons [NAME ...]` measures, tests compare.

The command runs each lesson, records its runs in a cassette, and writes the calls and tokens of
that cassette into the notebook's metadata, with a digest of the code that made them. Then it writes
minutes and prices into the table of notebooks/README.md. Without a name it measures the lessons
with changed code. With `--check` it writes nothing: it records the lessons, by default all, and
compares their prices with the table's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbclient
from nbformat import NotebookNode

from agentnb.cassette import Cassette, CassetteJournal
from agentnb.core.budget import estimate_input_tokens
from agentnb.core.media import with_media
from agentnb.core.records import CallRecord
from agentnb.core.types import MediaBlock, Usage
from agentnb.modes import LIVE, SUFFIX, Labels, label_of
from agentnb.prices import list_price_of
from agentnb.repeat import Repeat, Take
from tests.notebook.saved import code, load, save

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "notebooks"
COURSE = FOLDER / "README.md"
MODEL = "anthropic/claude-sonnet-5-5"
"""The table has this model's list price."""
_ROW = re.compile(
    r"^\| (?P<place>\d+) \| \[(?P<title>[^]]+)\]\((?P<name>[\w-]+)\.ipynb\) \| (?P<minutes>\d+) "
    r"\| (?P<afterwards>[^|]+) \| \$(?P<usd>\d+\.\d\d) \|$",
    re.MULTILINE,
)
_TOTAL = re.compile(r"^\| \| \*\*all\*\* \| \d+ \| \| \$\d+\.\d\d \|$", re.MULTILINE)

# How fast a person reads. Two exercises take as long as two short functions.
_WORDS_A_MINUTE = 200
_LINES_A_MINUTE = 40
_MINUTES_FOR_EXERCISES = 4


# -- what the files have --------------------------------------------------------------------------


def lessons() -> list[Path]:
    """The lessons of the course, which begins after the quickstart."""
    return sorted(path for path in FOLDER.glob("*.ipynb") if path.stem != "quickstart")


def digest(lesson: NotebookNode) -> str:
    """A short hash of a notebook's code."""
    sources = [cell.source for cell in lesson.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16]


def is_measured(lesson: NotebookNode) -> bool:
    """Whether the tokens in a notebook's metadata are those of its code."""
    return bool(lesson.metadata.get("usage", {}).get("of_code") == digest(lesson))


def usd(usage: Mapping[str, Any]) -> float:
    """The cost of a notebook's tokens at the list price of `MODEL`, rounded up to whole cents."""
    price = list_price_of(MODEL, Usage(usage["input_tokens"], usage["output_tokens"]))
    assert price is not None, f"{MODEL} has no list price"
    return math.ceil(price * 100) / 100


def minutes(lesson: NotebookNode) -> int:
    """About how long a person takes, without the folded cells and checks."""
    words = sum(len(c.source.split()) for c in lesson.cells if c.cell_type == "markdown")
    lines = sum(
        sum(bool(line.strip()) for line in cell.source.splitlines())
        for cell in lesson.cells
        if cell.cell_type == "code"
        and not cell.metadata.get("jupyter", {}).get("source_hidden")
        and "def check_" not in cell.source
    )
    return round(words / _WORDS_A_MINUTE + lines / _LINES_A_MINUTE + _MINUTES_FOR_EXERCISES)


def rows(course: str) -> list[re.Match[str]]:
    """The rows of the course's table, one for each lesson."""
    return list(_ROW.finditer(course))


def with_figures(course: str) -> str:
    """The page of the course, with the figures of the notebooks."""
    total_minutes, total_usd = 0, 0.0

    def row(found: re.Match[str]) -> str:
        nonlocal total_minutes, total_usd
        lesson = load(FOLDER / f"{found['name']}.ipynb")
        takes, costs = minutes(lesson), usd(lesson.metadata.usage)
        total_minutes, total_usd = total_minutes + takes, total_usd + costs
        title = lesson.cells[0].source.splitlines()[0].removeprefix("# ")
        return (
            f"| {found['place']} | [{title}]({found['name']}.ipynb) | {takes} "
            f"| {found['afterwards']} | ${costs:.2f} |"
        )

    course = _ROW.sub(row, course)
    return _TOTAL.sub(f"| | **all** | {total_minutes} | | ${total_usd:.2f} |", course)


# -- measuring ------------------------------------------------------------------------------------


def record(path: str) -> None:
    """Record the live runs of this process in a cassette. Called in the lesson's kernel.

    They stay live: in mode `record` nothing stored is read, which two lessons do. A run in another
    mode, which the lesson sets itself, has the lesson's own cassette.
    """
    cassette, labels, take = Path(path), Labels(), Repeat.take

    def recorded(self: Repeat, name: str, task: str, thread_id: str) -> Take | None:
        if self.name != LIVE:
            return take(self, name, task, thread_id)
        label = labels.next(cassette, label_of(name, task))
        return Take(label, thread_id, None, CassetteJournal(cassette, label), None)

    Repeat.take = recorded  # type: ignore[method-assign]


def measured(path: Path) -> dict[str, Any]:
    """Run a lesson, record its runs in cassettes, and count the calls in them."""
    lesson, copy = load(path), load(path)
    with tempfile.TemporaryDirectory() as folder:
        own = str(Path(folder, f"lesson{SUFFIX}"))
        copy.cells.insert(
            0, code(f"from tests import lessons as _lessons\n_lessons.record({own!r})")
        )
        environment = {
            "AGENTNB_DEMO_PACE_S": "0",
            "AGENTNB_MODE": "live",  # unless the lesson sets another
            "AGENTNB_STORE": "none",
            "IPYTHONDIR": str(Path(folder, "ipython")),
            "PYTHONPATH": str(ROOT),
            "TMPDIR": folder,  # for the cassette that a lesson makes
        }
        client: Any = nbclient.NotebookClient(
            copy, timeout=120, resources={"metadata": {"path": str(path.parent)}}
        )
        client.execute(env=os.environ | environment)
        made = [Cassette.read(each) for each in sorted(Path(folder).rglob(f"*{SUFFIX}"))]
        return {**counted(made), "of_code": digest(lesson)}


def counted(cassettes: Iterable[Cassette]) -> dict[str, int]:
    """The calls in cassettes, and their tokens by the size of what was sent and answered.

    Not as reported: a script may make its counts up. A call that failed before its reply began
    costs nothing, and one that a record answered is not recorded again.
    """
    found = Counter(calls=0, input_tokens=0, output_tokens=0)
    for cassette in cassettes:
        for label in cassette.labels:
            # A request only names its files. Those of tools are whole in the tools' lines.
            tools = cassette.journal(label).tool_calls
            files = {file.digest: file for tool in tools for file in tool.media}
            for call in cassette.calls(label):
                if call.error is None or call.usage != Usage():
                    found.update(_tokens_of(call, files))
    return dict(found)


def _tokens_of(call: CallRecord, files: Mapping[str, MediaBlock]) -> Counter[str]:
    """One call, and its tokens."""
    messages = with_media(call.request.messages, lambda file: files.get(file.digest, file))
    sent = replace(call.request, messages=messages)
    answer = () if call.message is None else (call.message,)
    said = replace(call.request, system="", tools=(), messages=answer)
    return Counter(
        calls=1,
        input_tokens=estimate_input_tokens(sent),
        output_tokens=estimate_input_tokens(said),
    )


def measure(paths: Iterable[Path]) -> None:
    """Measure lessons, and write the figures."""
    for path in paths:
        lesson = load(path)
        lesson.metadata["usage"] = measured(path)
        save(lesson, path)
        print(path.stem, dict(lesson.metadata["usage"]), flush=True)
    COURSE.write_text(with_figures(COURSE.read_text("utf-8")), "utf-8")


def check(paths: Iterable[Path]) -> int:
    """Compare the prices of lessons with those of their cassettes. Returns how many differ."""
    table = {row["name"]: float(row["usd"]) for row in rows(COURSE.read_text("utf-8"))}
    faults = 0
    for path in paths:
        found = measured(path)
        costs, listed = usd(found), table[path.stem]
        faults += costs != listed
        tokens = f"{found['input_tokens']:,} tokens in, {found['output_tokens']:,} out"
        recorded = f"{found['calls']} calls recorded, {tokens}: ${costs:.2f}"
        print(f"{path.stem}: {recorded}; in the table ${listed:.2f}", flush=True)
    print(f"{faults} faults")
    return faults


def main(arguments: Sequence[str]) -> int:
    """Measure or check lessons. Returns the number of faults."""
    parser = argparse.ArgumentParser(prog="python -m tests.lessons")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("name", nargs="*")
    given = parser.parse_args(arguments)
    named = [FOLDER / f"{name}.ipynb" for name in given.name]
    if given.check:
        return check(named or lessons())
    measure(named or [path for path in lessons() if not is_measured(load(path))])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
