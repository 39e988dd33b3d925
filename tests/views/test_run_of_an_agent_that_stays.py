"""A run whose root is `….1`: its views show the paths of any run, and no id of a thread.

tests/test_paths.py holds the same for records, outline and notes.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from ipywidgets import Widget

from agentnb.bundles import bundle_of
from agentnb.core.types import AgentStatus
from agentnb.providers.scripted import Reply
from agentnb.run import Run
from agentnb.views.figures.figure import RunFigure
from agentnb.views.panel.tree_view import TreeView
from agentnb.views.static import picture_bundle
from tests.support import DEADLINE_S, Hold, by_agent, spawn
from tests.test_paths import THREAD, run_on, script
from tests.views.figures.trees import texts

TOP, BELOW = THREAD, f"{THREAD}.1"
PATHS = ["root", "1", "3", "3.1", "3.2", "5"]


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    made = {thread: run_on(thread, script(), by_tools=True) for thread in (TOP, BELOW)}
    for run in made.values():
        run.result(DEADLINE_S)
    return made


class Wire(TreeView):
    """A tree view that keeps what it sends."""

    def send(self, content: dict[str, Any], buffers: object = None) -> None:
        self.__dict__.setdefault("sent", []).append(content)


def wire_of(run: Run) -> Wire:
    """A tree view that a page has greeted."""
    view = Wire(run._live())
    view.take({"type": "hello", "view": "page"})
    return view


def paths_in(figure: RunFigure) -> list[str]:
    words = texts(figure)
    return [path for path in PATHS if path in words]


def test_figures_name_agents_by_path(runs: dict[str, Run]) -> None:
    for figures in zip(*map(figures_of, runs.values()), strict=True):
        assert [paths_in(figure) for figure in figures] == [PATHS, PATHS]
        for figure in figures:
            data, about = figure.bundle()
            assert THREAD not in json.dumps([data, about, figure.alt_text, texts(figure)])
    top, below = (run.plot() for run in runs.values())
    assert texts(top) == texts(below)
    assert top.alt_text == below.alt_text


def figures_of(run: Run) -> list[RunFigure]:
    return [run.plot(), run.plot_timeline(), run.plot_tokens()]


def test_outputs_that_stay_in_a_notebook_are_the_same(runs: dict[str, Run]) -> None:
    def shown(run: Run) -> list[object]:
        result = run.result(DEADLINE_S)
        assert run.tree is not None
        data, _ = picture_bundle(run.tree)
        values = (run, result, result.sub_agent_results, run.agents, run.agent("3"), run.events)
        return [*map(bundle_of, values), data["text/plain"]]

    top, below = map(shown, runs.values())

    assert top == below
    assert THREAD not in str(below)


def test_page_gets_paths_and_never_an_id(runs: dict[str, Run]) -> None:
    def sent(run: Run) -> list[dict[str, Any]]:
        view = wire_of(run)
        for path in PATHS:
            view.take({"type": "details", "view": "page", "agent": path, "call": None, "at": None})
        messages: list[dict[str, Any]] = view.__dict__["sent"]
        view.close()
        return messages

    top, below = map(sent, runs.values())

    assert THREAD not in json.dumps(below)
    frame = next(message for message in below if message["type"] == "frame")
    # In the order in which they were spawned, which differs for agents of different parents.
    assert sorted((row["path"], row["parent"] or "") for row in frame["agents"]) == [
        ("1", "root"), ("3", "root"), ("3.1", "3"), ("3.2", "3"), ("5", "root"), ("root", ""),
    ]  # fmt: skip
    details = [message for message in below if message["type"] == "details"]
    assert [(one["agent"], one["task"]) for one in details] == [
        (one["agent"], one["task"]) for one in top if one["type"] == "details"
    ]
    assert [one["agent"] for one in details] == PATHS
    Widget.close_all()


def test_click_in_the_panel_cancels_the_agent_of_that_path() -> None:
    hold = Hold()
    provider = by_agent({"root": [spawn("A", "B"), "together"], "A": Reply("half", pause=hold)})
    run = run_on(BELOW, provider)
    hold.wait()
    view = wire_of(run)

    view.take({"type": "cancel", "agent": "1"})

    assert run.result(DEADLINE_S).output == "together"
    assert run.agent("1").agent_id == f"{BELOW}.1"
    assert [(one.path, one.status) for one in run.agents] == [
        ("root", AgentStatus.COMPLETED),
        ("1", AgentStatus.CANCELLED),
        ("2", AgentStatus.COMPLETED),
    ]
    view.close()
    Widget.close_all()
