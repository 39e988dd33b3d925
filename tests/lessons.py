"""Time and cost of the lessons: `python -m tests.lessons [NAME ...]` measures, a test compares.

The command runs each lesson, counts the tokens of all calls to models, and writes them into the
notebook's metadata, with a digest of the code that made them. Then it writes minutes and prices
into the table of notebooks/README.md. Without a name it measures the lessons with changed code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbclient
from nbformat import NotebookNode

from agentnb.core import observers
from agentnb.core.budget import estimate_input_tokens
from agentnb.core.events import ModelCallFinished, ModelCallStarted
from agentnb.core.types import Usage
from agentnb.prices import list_price_of
from tests.notebook.saved import code, load, save

if TYPE_CHECKING:
    from agentnb.core.bus import EventBus
    from agentnb.core.records import RunHead
    from agentnb.core.request import RequestContext

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


def usd(lesson: NotebookNode) -> float:
    """The cost of the tokens in a notebook's metadata, at the list price of `MODEL`."""
    counted = lesson.metadata.usage
    price = list_price_of(MODEL, Usage(counted.input_tokens, counted.output_tokens))
    assert price is not None, f"{MODEL} has no list price"
    return float(price)


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
        takes, costs = minutes(lesson), _cents(usd(lesson))
        total_minutes, total_usd = total_minutes + takes, total_usd + costs
        title = lesson.cells[0].source.splitlines()[0].removeprefix("# ")
        return (
            f"| {found['place']} | [{title}]({found['name']}.ipynb) | {takes} "
            f"| {found['afterwards']} | ${costs:.2f} |"
        )

    course = _ROW.sub(row, course)
    return _TOTAL.sub(f"| | **all** | {total_minutes} | | ${total_usd:.2f} |", course)


def _cents(amount: float) -> float:
    """An amount, rounded up to whole cents."""
    return math.ceil(amount * 100) / 100


# -- measuring ------------------------------------------------------------------------------------


class _Counter:
    """Counts the calls of all runs of its process."""

    def __init__(self) -> None:
        self.calls = self.input_tokens = self.output_tokens = 0

    def begin(
        self, bus: EventBus, head: RunHead, request: RequestContext
    ) -> Callable[[], Awaitable[object]]:
        """See `agentnb.core.observers`."""

        async def ended() -> None:
            calls: dict[str, int] = {}
            sent: dict[str, int] = {}
            for entry in bus.entries:
                event = entry.event
                if isinstance(event, ModelCallStarted):
                    # Not as reported: a script may make its counts up.
                    sent[event.agent_id] = estimate_input_tokens(event.request)
                if not isinstance(event, ModelCallFinished):
                    continue
                agent_id = event.agent_id
                calls[agent_id] = calls.get(agent_id, 0) + 1
                if (agent_id, calls[agent_id]) in bus.recorded_calls:  # recorded: it costs nothing
                    continue
                self.calls += 1
                self.input_tokens += sent[agent_id]
                self.output_tokens += event.usage.output_tokens

        return ended


counter = _Counter()


def begin() -> None:
    """Start counting. Called in the lesson's kernel."""
    observers.add(counter)


def measured(path: Path) -> dict[str, Any]:
    """Run a lesson and count the calls to models and their tokens."""
    lesson = load(path)
    first = code("from tests import lessons as _lessons\n_lessons.begin()")
    last = code("import json as _json\nprint(_json.dumps(vars(_lessons.counter)))")
    copy = load(path)
    copy.cells = [first, *lesson.cells, last]
    client: Any = nbclient.NotebookClient(
        copy, timeout=120, resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute()
    return {**json.loads(copy.cells[-1].outputs[0].text), "of_code": digest(lesson)}


def main(names: Iterable[str]) -> None:
    """Measure lessons and write the figures."""
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["AGENTNB_DEMO_PACE_S"] = "0"
    os.environ["AGENTNB_STORE"] = "none"
    wanted = [FOLDER / f"{name}.ipynb" for name in names]
    for path in wanted or [path for path in lessons() if not is_measured(load(path))]:
        lesson = load(path)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["IPYTHONDIR"] = folder
            lesson.metadata["usage"] = measured(path)
        save(lesson, path)
        print(path.name, dict(lesson.metadata["usage"]), flush=True)
    COURSE.write_text(with_figures(COURSE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
