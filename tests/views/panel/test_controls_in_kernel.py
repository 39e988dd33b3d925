"""The controls in a real kernel, spoken to as JupyterLab speaks to them: while a cell blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests.notebook.kernel import DEADLINE_S, Door, Kernel, a_door, started

SCRIPT = """
import agentnb
reply = agentnb.Reply("Begun and then held.", pause=hold)
session = agentnb.configure(provider=agentnb.ScriptedProvider({"Alone": reply}), budget=50_000)
"""
BEGIN = """
run = session.spawn("Alone")
slider, number, button = run.budget_slider(), run.budget_number(), run.cancel_button()
"""


class HtmlPart:
    """A page that is open in a browser: its messages to widgets go over a subshell."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client
        request = client.session.msg("create_subshell_request", {})
        client.control_channel.send(request)
        reply = client.control_channel.get_msg(timeout=DEADLINE_S)
        self._subshell: str = reply["content"]["subshell_id"]

    def moves(self, widget: str, **state: Any) -> None:
        self._says(widget, {"method": "update", "state": state, "buffer_paths": []})

    def clicks(self, widget: str) -> None:
        self._says(widget, {"method": "custom", "content": {"event": "click"}})

    def _says(self, widget: str, data: dict[str, Any]) -> None:
        message = self._client.session.msg("comm_msg", {"comm_id": widget, "data": data})
        message["header"]["subshell_id"] = self._subshell
        self._client.shell_channel.send(message)

    def waits_for(self, widget: str, **state: Any) -> None:
        """Read what the kernel tells of a widget until it tells this."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            assert time.monotonic() < deadline, f"{widget} was never told to be {state}."
            content = self._client.get_iopub_msg(timeout=DEADLINE_S)["content"]
            data = content.get("data", {})
            is_its = content.get("comm_id") == widget and data.get("method") == "update"
            if is_its and state.items() <= data["state"].items():
                return


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with a_door() as door:
        yield door


@pytest.fixture(scope="module")
def kernel(door: Door) -> Iterator[Kernel]:
    with started() as kernel:
        kernel.ok("%load_ext agentnb", door.hold, SCRIPT)
        yield kernel


@contextmanager
def page_of(kernel: Kernel) -> Iterator[HtmlPart]:
    client = kernel._manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=DEADLINE_S)
        yield HtmlPart(client)
    finally:
        client.stop_channels()


def test_slider_moved_and_cancel_pressed_while_a_cell_blocks_reach_the_run(
    kernel: Kernel, door: Door
) -> None:
    kernel.ok(BEGIN)
    names = "slider.model_id, number.field.model_id, button.model_id"
    slider, number, button = kernel.value(f"[{names}]")
    with page_of(kernel) as page:
        blocked = kernel.send("run.result()")
        door.wait_for_knock()

        page.moves(slider, value=80_000)
        page.waits_for(number, value="80000")  # which knows it from the run
        page.clicks(button)
        shown = kernel.collect(blocked)
        page.waits_for(slider, disabled=True)

    assert shown.error_name == "RunCancelled"
    assert kernel.value("[run.budget.total, slider.value, str(run.status)]") == [
        80_000,
        80_000,
        "cancelled",
    ]
    assert (shown.stdout, shown.stderr) == ("", "")
