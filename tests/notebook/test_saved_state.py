"""The state of widgets that `jupyter execute --inplace` and others save: the truth, or older truth.

They save what a cell's widgets said until the cell was idle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from nbclient import NotebookClient

from agentnb.views.freeze import IN_WORDS, LIVE_VIEW
from tests.notebook.forked import LAUNCHER, ForkServer
from tests.notebook.kernel import DEADLINE_S
from tests.notebook.saved import code, notebook

SETUP = """\
%load_ext agentnb
import agentnb, asyncio, json, threading
from agentnb.core.errors import InvalidRequest
from agentnb.testing import Reply, ScriptedProvider, spawn, task_of

begun, released = asyncio.Event(), threading.Event()
loop = asyncio.get_running_loop()

async def hold():
    loop.call_soon_threadsafe(begun.set)
    await asyncio.Event().wait()

def answer(request):
    task, asked = task_of(request), request.messages[0].text
    if task == "held":
        return Reply("half", pause=hold)
    if task == "slow":
        return Reply("late", pause=lambda: asyncio.to_thread(released.wait))
    if task != "root":
        return f"done: {task}"
    if len(request.messages) > 1:
        return "Both."
    if "failed" in asked:
        return Reply("", error=InvalidRequest("out of order"))
    held = ["slow", "held"] if "slow" in asked else ["held"] if "held" in asked else ["b"]
    return spawn("a", *held)

session = agentnb.configure(provider=ScriptedProvider(answer))"""
CELLS = {
    "done": "%%spawn --name done\ndone",
    "failed": "%%spawn --name failed\nfailed",
    "cancelled": """\
run = session.spawn("One of them is held.", name="cancelled")
display(run.panel())
await begun.wait()
run.cancel()
try:
    await run
except agentnb.RunCancelled:
    pass""",
    "map": "out = session.map(['a', 'b'], '{{text}}', name='map')\ndisplay(out)\nawait out",
    "open": """\
begun.clear()
open_run = session.spawn("One of them is held.", name="open")
await begun.wait()  # its state is saved as the panel is made
display(open_run.panel())""",
    "in bg": "%%spawn --name in-bg --bg -o bg\nin bg",
    "wait": "await bg",
    "polled": "%%spawn --name polled --bg -o polled\nThis is polled.",
    "poll": "while not polled.done:\n    await asyncio.sleep(0.01)",
    "closed": """\
closed = bg.panel()
display(closed)
closed.close()""",
    "going": "%%spawn --name going --bg -o going\nOne is slow, one is held.",
    "second": """\
going.panel()""",
    "more": """\
released.set()
while [row["status"] for row in going.to_records()].count("completed") < 2:
    await asyncio.sleep(0.01)""",
    "records": """\
runs = {info.name: session.load(info.id) for info in session.runs()}
print(json.dumps({
    name: {"status": run.status, "agents": {r["path"]: r["status"] for r in run.to_records()}}
    for name, run in runs.items()
}))""",
    "last": "%%spawn --name last\nlast",
}


class Page:
    """What a saved notebook shows without its kernel."""

    def __init__(self, saved: Any) -> None:
        kind = "application/vnd.jupyter.widget-state+json"
        self._models = {
            key: {**model["state"], "model": model["model_name"]}
            for key, model in saved.metadata["widgets"][kind]["state"].items()
        }
        self._cells = dict(zip(["setup", *CELLS], saved.cells, strict=True))
        (said,) = self._cells["records"].outputs
        self.records: Mapping[str, Any] = json.loads(said.text)

    def view(self, cell: str) -> list[dict[str, Any]]:
        """All widgets of a cell's live view."""
        kind = "application/vnd.jupyter.widget-view+json"
        (shown,) = [o for o in self._cells[cell].outputs if kind in o.get("data", {})]
        return list(self._below(shown.data[kind]["model_id"]))

    def _below(self, model_id: str) -> Iterator[dict[str, Any]]:
        model = self._models[model_id]
        yield model
        for child in model.get("children", ()):
            yield from self._below(child.removeprefix("IPY_MODEL_"))

    def frame(self, cell: str) -> dict[str, Any]:
        frame: dict[str, Any]
        (frame,) = [m["snapshot"] for m in self.view(cell) if "snapshot" in m]
        return frame

    def header(self, cell: str) -> str:
        texts = [str(m.get("value")) for m in self.view(cell)]
        (header,) = [text for text in texts if "agentnb-run-status" in text]
        return header

    def is_shown(self, cell: str) -> bool:
        """Whether a cell has a live view, which may have been taken back."""
        views = [o for o in self._cells[cell].outputs if o.get("metadata") == LIVE_VIEW]
        return any(o.data for o in views)

    def words(self, cell: str) -> str:
        """What stands beside a cell's live view, for a page that shows none."""
        (said,) = [o.data["text/plain"] for o in self._outputs_in_words(cell)]
        return str(said)

    def _outputs_in_words(self, cell: str) -> list[Any]:
        return [o for o in self._cells[cell].outputs if o.get("metadata") == IN_WORDS]

    def buttons(self, cell: str) -> list[bool]:
        """Whether each can be pressed."""
        return [not m["disabled"] for m in self.view(cell) if m["model"] == "ButtonModel"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Page:
    saved = notebook(code(SETUP), *map(code, CELLS.values()))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("saved"))
        patch.setenv("AGENTNB_STORE", "runs.db")
        patch.setattr(LAUNCHER, fork_server.launch)
        client = NotebookClient(
            saved,
            timeout=int(DEADLINE_S),
            kernel_name="python3",
            allow_errors=True,
            coalesce_streams=True,  # a kernel may cut what is printed anywhere
        )
        client.execute()
    return Page(saved)


@pytest.mark.parametrize("cell", ["done", "failed", "cancelled", "in bg", "polled"])
def test_saved_tree_is_that_of_the_record(page: Page, cell: str) -> None:
    frame, record = page.frame(cell), page.records[cell.replace(" ", "-")]

    assert (frame["done"], frame["status"]) == (True, record["status"])
    assert {row["path"]: row["status"] for row in frame["agents"]} == record["agents"]
    assert f"<strong>{record['status']}</strong>" in page.header(cell)
    assert page.buttons(cell) == [False, False]


@pytest.mark.parametrize("cell", ["cancelled", "in bg", "polled", "map", "open"])
def test_words_beside_a_view_are_those_of_the_record(page: Page, cell: str) -> None:
    record = page.records[cell.replace(" ", "-")]
    begun = [status for status in record["agents"].values() if status != "skipped"]
    counts = f"{len(begun)} agents: "

    line, *rest = page.words(cell).splitlines()

    assert line.partition(" ")[2].startswith(record["status"])
    assert counts in line or cell == "open", "that one has gone on since"
    assert (["row", "status", "answer"] in [row.split() for row in rest]) == (cell == "map")
    assert ("as of" in line) == (cell == "open")


def test_saved_map_has_its_answers(page: Page) -> None:
    frame = page.frame("map")

    assert (frame["done"], frame["rows"]) == (True, 2)
    answers = {row["path"]: row.get("answer") for row in frame["agents"] if row["path"] != "root"}
    assert answers == {"1": "Both.", "2": "Both."}, "as the model said of each row"


def test_run_that_goes_on_is_saved_as_it_was(page: Page) -> None:
    frame = page.frame("open")

    assert (frame["done"], frame["status"]) == (False, "running")
    assert frame["made"] > 1_700_000_000


@pytest.mark.parametrize("cell", ["going", "second"])
def test_views_of_a_run_that_goes_on_are_saved_as_of_the_end_of_the_last_cell(
    page: Page, cell: str
) -> None:
    """What a thread sends between two cells is lost, so that a state may be lost in part."""
    frame, record = page.frame(cell), page.records["going"]

    assert {row["path"]: row["status"] for row in frame["agents"]} == record["agents"]
    counts = "4 agents: 2 running, 2 completed"
    assert counts in page.words(cell)
    assert any(counts in str(model.get("value")) for model in page.view(cell))


def test_closed_view_is_not_saved(page: Page) -> None:
    assert page.is_shown("in bg")
    assert not page.is_shown("closed")


def test_cell_that_ends_the_notebook_is_saved_with_its_end(page: Page) -> None:
    frame = page.frame("last")

    assert (frame["done"], len(frame["agents"])) == (True, 3)
    assert "<strong>completed</strong>" in page.header("last")
    assert page.buttons("last") == [False, False]
