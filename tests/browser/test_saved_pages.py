"""What a saved notebook says without its kernel: the truth of each run's record, and no more.

Each view, however its run stood, as nbconvert's web page and in JupyterLab, where the file is
trusted and a new kernel knows nothing of it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import pytest
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary
from playwright.sync_api import Browser, Locator, expect

from agentnb import RunRecord, Session
from tests.browser.desk import KERNEL, Desk
from tests.browser.web_page import a_web_page
from tests.notebook import saved
from tests.notebook.forked import LAUNCHER, ForkServer
from tests.notebook.kernel import DEADLINE_S

SETUP = """\
%load_ext agentnb
import agentnb, asyncio, json, os, signal
from agentnb.core.errors import InvalidRequest
from agentnb.testing import Reply, ScriptedProvider, spawn, task_of

held, loop = asyncio.Queue(), asyncio.get_running_loop()

async def hold():
    loop.call_soon_threadsafe(held.put_nowait, None)
    await asyncio.Event().wait()

def answer(request):
    task, asked = task_of(request), request.messages[0].text
    is_held = "cancelled" in asked or "open" in asked
    if "failed" in asked:
        return Reply("", error=InvalidRequest("out of order"))
    if task == "held" or is_held and "alone" in asked:
        return Reply("half", pause=hold)
    if task != "root" or len(request.messages) > 1 or "quick" in asked or "alone" in asked:
        return "Said."
    return spawn("a", "held" if is_held else "b")

async def ended(*runs):
    for run in runs:
        try:
            await run
        except (agentnb.RunCancelled, InvalidRequest):
            pass

async def changed(task):
    while session.tasks.get(task.id).status == "in_progress":
        await asyncio.sleep(0.01)

session = agentnb.configure(provider=ScriptedProvider(answer))"""
SHOW = {
    "tree": 'tree = session.spawn("{state}", name="tree {state}")\ndisplay(tree.tree_view())',
    "panel": 'panel = session.spawn("{state}", name="panel {state}")\ndisplay(panel.panel())',
    "map": """\
out = session.map(["quick {state}", "alone {state}"], "{{{{text}}}}", name="map {state}")
display(out)""",
    "bg": '%%spawn --name "bg {state}" --bg -o bg\n{state}',
    "board": """\
task = session.tasks.create("{state}", "alone {state}", assigned_to="new:scripted/{state}")""",
}
ENDS = {
    "done": "await ended(tree, panel, out, bg)\nsession.tasks.complete(task.id);",
    "failed": "await ended(tree, panel, out, bg)\nawait changed(task)",
    "cancelled": """\
for _ in range(5):
    await held.get()
for run in (tree, panel, out, bg):
    run.cancel()
await ended(tree, panel, out, bg)
session.tasks.update(task.id, status="archived");""",
    "open": "for _ in range(5):\n    await held.get()",
}
RECORDS = """\
print(json.dumps({
    info.name: {"status": run.status, "agents": {r["path"]: r["status"] for r in run.to_records()}}
    for info in session.runs() if info.name for run in [session.load(info.id)]
} | {"board": {task.title: task.status for task in session.tasks.list()}}))"""
CONTROLS = """\
display(panel.cancel_button(), panel.pause_button())
display(panel.budget_slider(), panel.budget_number())"""
CELLS = {
    "setup": SETUP,
    "board": "display(session.tasks.panel())",
    **{
        f"{view} {state}": code.format(state=state)
        for state, end in ENDS.items()
        for view, code in [*SHOW.items(), ("end", end.replace("{", "{{").replace("}", "}}"))]
    },
    "controls": CONTROLS,
    "records": RECORDS,
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
}
PLACES = {name: at for at, name in enumerate(CELLS)}
ENDED = {"done": "completed", "failed": "failed", "cancelled": "cancelled"}
VIEWS = ("tree", "panel", "map", "bg")
FILES = {"running": (*ENDED, "open"), "killed": ("killed",)}
"""The states of the runs of each file: saved while its kernel ran, and after it was killed."""
NOT_ENDED = {"running", "waiting", "pending"}
READ = "all => all.map(({dataset}) => [dataset.agentPath ?? dataset.row, dataset.status])"
MARKS = """all => all.filter(each =>
    each.checkVisibility() && getComputedStyle(each, "::before").display !== "none").length"""
WITHOUT_BLOB = "script-src http: https: 'unsafe-inline' 'unsafe-eval'"
"""A policy under which ipywidgets is loaded, and anywidget refuses our scripts."""
LATEST = re.compile(r"(running|pending), as of \d\d:\d\d")
STEERS = re.compile("Cancel|Pause|Resume|Continue|Play|Send|Complete|Add note|Read aloud")


@dataclass(frozen=True)
class Saved:
    """One notebook as it was saved while runs went on, and after its kernel was killed."""

    running: NotebookNode
    killed: NotebookNode
    records: Mapping[str, Any]
    """By run: its status and its agents' by path; `board`: each task's status."""
    left: Mapping[str, Any]
    """The records that the killed kernel left."""

    def file(self, *states: str) -> NotebookNode:
        """The board, each state's views in the order of `VIEWS`, and a cell with controls alone."""
        made = deepcopy(self.killed if "killed" in states else self.running)
        of = ["open" if state == "killed" else state for state in states]
        names = [f"{view} {state}" for state in of for view in VIEWS]
        made.cells = [made.cells[PLACES[name]] for name in ["board", *names, "controls"]]
        return made

    def record(self, view: str, state: str) -> Any:
        if state == "killed":
            return self.left[f"{view} open"]
        return self.records[f"{view} {state}"]


@pytest.fixture(scope="module")
def of_kernel(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Saved:
    folder = tmp_path_factory.mktemp("saved")
    notebook = saved.notebook(*map(saved.code, CELLS.values()))
    notebook.metadata["kernelspec"] = KERNEL
    client = NotebookClient(
        notebook,
        timeout=int(DEADLINE_S),
        kernel_name="python3",
        coalesce_streams=True,  # a kernel may cut what is printed anywhere
        resources={"metadata": {"path": str(folder)}},
    )

    async def execute() -> NotebookNode:
        async with client.async_setup_kernel():
            *cells, (at_kill, kill) = enumerate(notebook.cells)
            for at, cell in cells:
                await client.async_execute_cell(cell, at)
            client.set_widgets_metadata()
            running = deepcopy(notebook)
            with pytest.raises(DeadKernelError):
                await client.async_execute_cell(kill, at_kill)
            client.set_widgets_metadata()
        return running

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTNB_STORE", str(folder / "runs.db"))
        patch.setattr(LAUNCHER, fork_server.launch)
        with ThreadPoolExecutor(1) as apart:  # Playwright's loop runs on this thread
            running = apart.submit(asyncio.run, execute()).result()
    (said,) = running.cells[PLACES["records"]].outputs
    with Session(store=folder / "runs.db") as later:
        left = {info.name: _record(later.load(info.id)) for info in later.runs() if info.name}
    return Saved(running, notebook, json.loads(said.text), left)


def _record(run: RunRecord) -> dict[str, Any]:
    return {
        "status": run.status,
        "agents": {row["path"]: row["status"] for row in run.to_records()},
    }


Front = Callable[[NotebookNode], Sequence[Locator]]
"""Opens a file, and returns the outputs of its cells."""


@pytest.fixture(params=["web page", "JupyterLab"])
def front(request: pytest.FixtureRequest) -> Iterator[Front]:
    with ExitStack() as stack:
        if request.param == "JupyterLab":
            yield partial(in_lab, request.getfixturevalue("desk"))
            return
        context = stack.enter_context(request.getfixturevalue("chromium").new_context())

        def in_web_page(file: NotebookNode) -> Sequence[Locator]:
            page = stack.enter_context(a_web_page(context, file))
            page.give_up()
            return [page.output(at) for at in range(len(file.cells))]

        yield in_web_page


def in_lab(desk: Desk, file: NotebookNode) -> Sequence[Locator]:
    """The cells' outputs in JupyterLab, which trusts the file and starts a new kernel for it."""
    name = f"{len(file.cells)}-cells.ipynb"
    saved.save(file, desk.server.folder / name)
    notary: Any = NotebookNotary
    notary(data_dir=str(desk.server.data)).sign(file)
    notebook = desk.open(name)
    assert notebook.is_trusted
    notebook.show_again()
    return [notebook.output(at) for at in range(len(file.cells))]


@pytest.mark.parametrize("file", FILES)
def test_saved_views_say_what_the_record_says(front: Front, of_kernel: Saved, file: str) -> None:
    board, *views, controls = front(of_kernel.file(*FILES[file]))

    expect_stands_still(board, "board")
    expect_board(board, of_kernel.records["board"])
    for (state, view), place in zip(product(FILES[file], VIEWS), views, strict=True):
        expect_stands_still(place, f"{view} {state}")
        expect_view(view, place, of_kernel.record(view, state), state)
    expect_nothing_to_press(controls)


def test_page_that_still_waits_for_a_kernel_offers_nothing(
    chromium: Browser, of_kernel: Saved
) -> None:
    """As when it is printed at once, or made into a PDF."""
    with chromium.new_context() as context, a_web_page(context, of_kernel.file("open")) as page:
        for at, view in enumerate(["board", *VIEWS]):
            place = page.output(at)
            expect(place.locator(".agentnb-tree-view, .agentnb-board").first).to_be_visible()
            steering = place.locator("button:visible:enabled", has_text=STEERS)
            assert steering.all_inner_texts() == [], view
            assert place.locator("[role=slider]:visible").count() == 0, view
            assert place.get_by_text("No kernel answers").count() == 0, "it has not waited for it"
        expect_nothing_to_press(page.output(1 + len(VIEWS)))


def test_policy_that_forbids_our_scripts_leaves_the_words_and_nothing_to_press(
    chromium: Browser, of_kernel: Saved
) -> None:
    with (
        chromium.new_context() as context,
        a_web_page(context, of_kernel.file("open"), policy=WITHOUT_BLOB) as page,
    ):
        for at, view in enumerate(["board", *VIEWS]):
            place = page.output(at)
            if view in ("panel", "map", "bg"):  # ipywidgets is loaded, and draws its part
                expect(place.locator("button.agentnb-cancel-run")).to_have_count(1)
            expect(place.locator("button:visible", has_text=STEERS)).to_have_count(0)
            expect(place.locator("[role=slider]:visible")).to_have_count(0)
            expect(place.locator(".agentnb-tree-view")).to_have_count(0)
            if view != "board":
                expect(place.locator(".agentnb-beside")).to_contain_text(LATEST)
        expect_nothing_to_press(page.output(1 + len(VIEWS)))


def expect_stands_still(place: Locator, what: str) -> None:
    place.scroll_into_view_if_needed()
    expect(place).to_contain_text("No kernel answers")
    steering = place.locator("button:visible:enabled", has_text=STEERS)
    assert steering.all_inner_texts() == [], what
    # JupyterLab marks a widget without its kernel: once for each view is enough.
    assert place.locator(".jupyter-widgets-disconnected").evaluate_all(MARKS) <= 1, what


def expect_nothing_to_press(controls: Locator) -> None:
    controls.scroll_into_view_if_needed()
    expect(controls.locator("button")).to_have_count(2)
    for kind in ("button", "input", "[role=slider]"):
        expect(controls.locator(f"{kind}:visible")).to_have_count(0)


def expect_board(place: Locator, tasks: Mapping[str, str]) -> None:
    rows = place.locator("[data-board-status]")
    expect(rows).to_have_count(len(tasks))
    names = rows.locator(".agentnb-row-name").all_inner_texts()
    shown = rows.evaluate_all("rows => rows.map(row => row.dataset.boardStatus)")
    assert dict(zip(names, shown, strict=True)) == tasks


def expect_view(view: str, place: Locator, record: Any, state: str) -> None:
    agents = {path: at for path, at in record["agents"].items() if view != "map" or path != "root"}
    rows = place.locator("[role=row][data-row]" if view == "map" else "[role=treeitem]")
    if state in ENDED:
        expect(rows).to_have_count(len(agents))
    shown = dict(rows.evaluate_all(READ))
    words = place.locator(".agentnb-beside")
    expect(words).to_be_visible()
    if state in ENDED:
        assert record["status"] == ENDED[state]
        assert shown == agents
        expect(words).to_contain_text(record["status"])
        expect(place).not_to_contain_text("not live")
    else:
        ended = {path: status for path, status in shown.items() if status not in NOT_ENDED}
        assert ended.items() <= agents.items()
        expect(place).to_contain_text(re.compile(r"not live: as of \d\d:\d\d"))
        expect(words).to_contain_text(LATEST)
    if view != "tree":
        status = re.compile(ENDED.get(state, "running|pending"))
        expect(place.locator(".agentnb-run-status")).to_contain_text(status)
