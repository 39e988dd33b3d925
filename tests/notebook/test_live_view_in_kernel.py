"""The live view in a real kernel: where it is shown, what its output holds, how clicks return."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebook.forked import ForkServer
from tests.notebook.kernel import Kernel, started

VIEW = "application/vnd.jupyter.widget-view+json"
SCRIPT = """
import agentnb, os, sys
session = agentnb.configure(provider=agentnb.ScriptedProvider({
    "Plan": '<spawn_agents><agent task="first part"/></spawn_agents>',
    "first part": "First is done.",
    "<sub_agent_results>": "Brought together.",
}))
"""


@pytest.fixture(scope="module")
def kernel(fork_server: ForkServer) -> Iterator[Kernel]:
    with fork_server.started() as kernel:
        kernel.ok("%load_ext agentnb", SCRIPT)
        yield kernel


def test_live_view_comes_first_and_its_output_holds_the_view_alone(kernel: Kernel) -> None:
    shown = kernel.ok("%%spawn\nPlan")

    assert shown.order == ["view", "display", "picture"]
    ((data, about),) = shown.views
    assert set(data) == {VIEW}
    assert about == {"agentnb": {"view": "live"}}
    assert shown.stderr == ""


def test_background_cell_has_the_live_view_one_line_and_the_run_in_words(kernel: Kernel) -> None:
    shown = kernel.ok("%%spawn --bg -o run\nPlan")

    assert shown.order == ["view", "display"]
    assert "agentnb-beside" in shown.displays[0]["text/html"]
    assert len(shown.stdout.splitlines()) == 1
    kernel.ok("result = run.result()")


@pytest.mark.parametrize(
    ("wanted", "order"),
    [
        ("widget", ["view"]),
        ("static", ["display", "picture"]),
        ("text", ["display"]),
        ("none", []),
    ],
)
def test_display_variable_leaves_parts_out(kernel: Kernel, wanted: str, order: list[str]) -> None:
    kernel.ok(f"os.environ['AGENTNB_DISPLAY'] = {wanted!r}")

    shown = kernel.ok("%%spawn\nPlan")

    kernel.ok("del os.environ['AGENTNB_DISPLAY']")
    assert shown.order == order


DUE = """
import asyncio, threading
from contextlib import contextmanager
from agentnb.notebook import display, magics

begun, due = threading.Event(), threading.Event()
in_words_meanwhile, environ = magics.in_words_meanwhile, dict(os.environ)
display.WORDS_AFTER_S = 0
os.environ.pop("PYTEST_CURRENT_TEST", None)

@contextmanager
def with_a_timer_behind_its_own(run, *, quiet):
    assert begun.wait(60)  # seconds
    frames = run.frames()
    with frames.lock:
        frames._tick()  # the words are as of the view, which may not have heard of the call yet
    with in_words_meanwhile(run, quiet=quiet):
        asyncio.get_running_loop().call_later(0, due.set)
        yield

magics.in_words_meanwhile = with_a_timer_behind_its_own

async def until_due():
    begun.set()
    await asyncio.to_thread(due.wait, 60)  # seconds

session = agentnb.configure(
    provider=agentnb.ScriptedProvider(lambda _: agentnb.Reply("Done.", pause=until_due))
)
"""
"""A run that ends once its words were due in the cell that awaits it."""
UNDUE = "display.WORDS_AFTER_S = 10; magics.in_words_meanwhile = in_words_meanwhile"


def test_cell_that_waits_long_shows_its_run_in_words_until_the_end(kernel: Kernel) -> None:
    kernel.ok(DUE)
    try:
        shown = kernel.ok("%%spawn\nPlan")
        kernel.ok(
            "begun.clear(); due.clear(); os.environ['PYTEST_CURRENT_TEST'] = 'lesson.ipynb::Cell 1'"
        )
        compared = kernel.ok("%%spawn\nPlan")
    finally:
        kernel.ok(UNDUE, "os.environ.update(environ)", SCRIPT)

    assert shown.order == ["view", "display", "display", "picture"]
    words = shown.displays[0]
    assert words["text/plain"].startswith("► running, as of ")
    assert 'class="agentnb-beside agentnb-meanwhile agentnb-open"' in words["text/html"]
    assert (shown.updates > 0, shown.updated) == (True, {})
    assert compared.order == ["view", "display", "picture"]


@pytest.mark.parametrize(("wanted", "mime"), [("static", "text/html"), ("text", "text/plain")])
def test_background_cell_without_the_live_view_has_the_run_in_words_up_to_its_end(
    kernel: Kernel, wanted: str, mime: str
) -> None:
    kernel.ok(f"os.environ['AGENTNB_DISPLAY'] = {wanted!r}")

    shown = kernel.ok("%%spawn --bg -o run\nPlan")
    end = kernel.ok("result = run.result()")

    kernel.ok("del os.environ['AGENTNB_DISPLAY']")
    assert shown.order == ["display"]
    assert list(shown.displays[0])[-1] == mime
    is_told_later = shown.updates + end.updates > 0
    assert is_told_later or "completed: 2 agents" in shown.displays[0]["text/plain"]


def test_background_cell_whose_words_cannot_be_made_keeps_its_run(kernel: Kernel) -> None:
    kernel.ok(
        "os.environ['AGENTNB_DISPLAY'] = 'text'; import sys, agentnb.views.panel as panel",
        "was = sys.modules.pop('agentnb.views.panel.beside', None)",
        "sys.modules['agentnb.views.panel.beside'] = None",
    )

    shown = kernel.ok("%%spawn --bg -o run\nPlan")

    kernel.ok(
        "del os.environ['AGENTNB_DISPLAY'], sys.modules['agentnb.views.panel.beside']",
        "if was: sys.modules['agentnb.views.panel.beside'] = was",
        "result = run.result()",
    )
    assert shown.order == []
    assert "no line on the run" in shown.stderr


def test_quiet_background_cell_shows_nothing_of_its_run(kernel: Kernel) -> None:
    assert kernel.ok("%%spawn --bg --quiet -o run\nPlan").order == []
    kernel.ok("result = run.result()")


def test_quiet_cell_has_no_live_view(kernel: Kernel) -> None:
    assert kernel.ok("%%spawn --quiet\nPlan").order == ["display"]


@pytest.mark.parametrize("blocks", ["%%time\n%%spawn\nPlan", "%%capture out\n%%spawn\nPlan"])
def test_cell_that_blocks_has_the_live_view_too(kernel: Kernel, blocks: str) -> None:
    shown = kernel.ok(blocks, "out.show()" if "capture" in blocks else blocks)

    assert shown.order == ["view", "display", "picture"]


@pytest.mark.parametrize(
    "call",
    [
        "budget_slider()",
        "budget_number()",
        "cancel_button()",
        "pause_button()",
    ],
)
def test_view_as_the_value_of_a_cell_shows_the_view_alone(kernel: Kernel, call: str) -> None:
    kernel.ok("run = session.spawn('Plan'); result = run.result()")

    shown = kernel.ok(f"run.{call}")

    assert shown.order == ["view"]
    assert set(shown.views[0][0]) == {VIEW}
    assert shown.result == ""
    assert shown.unstable == []


@pytest.mark.parametrize("call", ["panel()", "tree_view()"])
def test_view_of_an_ended_run_is_followed_by_the_same_words_in_each_replay(
    kernel: Kernel, call: str
) -> None:
    kernel.ok("run = session.spawn('Plan'); result = run.result()")

    shown = kernel.ok(f"run.{call}")

    assert shown.order == ["view", "display"]
    assert shown.displays[0]["text/plain"].startswith("✓ completed: ")
    assert shown.unstable == []


def test_freeze_replaces_all_live_views_by_nothing(kernel: Kernel) -> None:
    kernel.ok("%agentnb freeze", "%%spawn\nPlan", "session.newest_run.panel()")

    shown = kernel.ok("%agentnb freeze")

    assert shown.updates == 2
    assert shown.stdout.startswith("2 live views are removed")
    assert kernel.ok("%agentnb freeze").stdout == "There is no live view to remove.\n"


def test_view_that_cannot_be_made_is_told_in_a_line_and_takes_nothing_away() -> None:
    with started() as kernel:
        kernel.ok("import sys; sys.modules['ipywidgets'] = None", "%load_ext agentnb", SCRIPT)

        shown = kernel.ok("%%spawn -o answer\nPlan")

        assert shown.order == ["display", "picture"]
        assert shown.stderr.startswith("There is no live view of the run (ModuleNotFoundError: ")
        assert kernel.value("answer.output") == "Brought together."


def test_interrupt_while_the_live_view_is_made_stops_the_run(kernel: Kernel) -> None:
    kernel.ok(
        "import agentnb.notebook.magics as magics; was = magics.show_live_view",
        "def interrupted(run, **_): raise KeyboardInterrupt",
        "magics.show_live_view = interrupted",
        "async def forever():\n    import asyncio\n    await asyncio.Event().wait()",
        "agentnb.configure(provider=agentnb.ScriptedProvider("
        "[agentnb.Reply('Hm', pause=forever)]))",
    )

    shown = kernel.run("%%spawn\nWait")

    kernel.ok("magics.show_live_view = was", SCRIPT)
    assert shown.error_name == "RunCancelled"


def test_run_with_nobody_at_a_browser_is_not_held_up_by_the_budgets_question(
    fork_server: ForkServer,
) -> None:
    with fork_server.started() as kernel:
        kernel.ok(
            "%load_ext agentnb",
            "import agentnb\nfrom agentnb.core.types import Usage\n"
            "session = agentnb.configure(budget=100_000, provider=agentnb.ScriptedProvider({\n"
            "    'Plan': '<spawn_agents><agent task=\"first part\"/></spawn_agents>',\n"
            "    'first part': agentnb.Reply('Much.', usage=Usage(85_000, 10)),\n"
            "    '<sub_agent_results>': 'Brought together.',\n}))",
        )

        shown = kernel.ok("%%spawn -o answer\nPlan")

        kinds = kernel.value("[e.event.kind for e in session.newest_run.events]")
        assert shown.order[0] == "view"
        assert "budget_warning" in kinds
        assert "budget_paused" not in kinds
        assert kernel.value("answer.output") == "Brought together."


def test_ceiling_that_makes_no_sense_is_said_before_anything_is_spent(kernel: Kernel) -> None:
    kernel.ok("os.environ['AGENTNB_BUDGET_CEILING'] = 'much'", "before = session.newest_run")

    shown = kernel.run("%%spawn\nPlan")

    kernel.ok("del os.environ['AGENTNB_BUDGET_CEILING']")
    assert shown.error_name == "NotebookError"
    assert "AGENTNB_BUDGET_CEILING" in shown.error
    assert kernel.value("session.newest_run is before")


def test_doctor_tells_a_live_view_that_no_page_has_said_to_show(kernel: Kernel) -> None:
    kernel.ok("%agentnb freeze")
    before = line_of("live views", kernel.ok("%agentnb doctor").stdout)
    kernel.ok("%%spawn\nPlan")
    unseen = line_of("live views", kernel.ok("%agentnb doctor").stdout)
    kernel.ok("session.newest_run._viewers.seen('model', 'view')")
    seen = line_of("live views", kernel.ok("%agentnb doctor").stdout)

    assert before == "ok     none yet: run a `%%spawn` cell, then this again"
    assert unseen == "warn   no page has reported showing a live view of this kernel"
    assert seen == "ok     a page has shown one"


def line_of(name: str, said: str) -> str:
    """The line of a check, without its name."""
    (line,) = (line for line in said.splitlines() if f" {name} " in line)
    return " ".join(line.split(name)[0].split()).ljust(7) + line.split(name)[1].strip()
