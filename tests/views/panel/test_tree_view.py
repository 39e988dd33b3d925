"""What goes between the tree view and its front ends, message by message."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from agentnb.core.events import AgentCancelled
from agentnb.core.protocols import RunControls
from agentnb.core.records import ToolCallRecord
from agentnb.core.types import MediaBlock
from agentnb.views.panel.commands import Commands
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.tree_view import TreeView
from tests.files_of import png
from tests.support import DEADLINE_S
from tests.views.panel.manual_run import ManualRun, id_of


class Wire(TreeView):
    """A tree view whose messages a test reads, and whose front end the test is."""

    def __init__(self, publisher: FramePublisher) -> None:
        self.sent: list[dict[str, Any]] = []
        self._came = threading.Condition()
        super().__init__(publisher, can_answer=True)

    def send(self, content: dict[str, Any], buffers: object = None) -> None:
        with self._came:
            self.sent.append(content)
            self._came.notify_all()

    def heard(self, **message: Any) -> list[dict[str, Any]]:
        """Say something as a front end; what was sent meanwhile."""
        before = len(self.sent)
        self._handle_custom_msg(message, None)
        return self.sent[before:]

    def greeted(self, *views: str) -> Wire:
        """As pages do first: each view says that it is there."""
        for view in views:
            self.heard(type="hello", view=view)
        return self

    def wait_until(self, is_so: Callable[[list[dict[str, Any]]], bool]) -> None:
        with self._came:
            assert self._came.wait_for(lambda: is_so(self.sent), DEADLINE_S), self.sent[-3:]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.sent if message["type"] == kind]


class Clicks(RunControls):
    """Orders that were given."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []

    def cancel(self, agent: str | None = None, reason: str | None = None) -> Any:
        self.given.append(("cancel", agent))

    def set_budget(self, total: int) -> None:
        self.given.append(("set_budget", total))

    def answer_budget(self, answer: str) -> None:
        self.given.append(("answer", answer))


@pytest.fixture
def run() -> ManualRun:
    return ManualRun().began().called("root", "Hello").said("root", "Hm").spawned("1", "a part")


@pytest.fixture
def wire(run: ManualRun) -> Iterator[Wire]:
    view = Wire(FramePublisher(run.bus))
    yield view
    view.close()


def test_page_that_opens_gets_everything_so_far_as_soon_as_it_says_hello(
    run: ManualRun, wire: Wire
) -> None:
    first = wire.get_state("snapshot")["snapshot"]
    assert [row["path"] for row in first["agents"]] == ["root", "1"]
    assert (first["type"], first["base"], first["done"]) == ("frame", None, False)

    run.spawned("2")
    wire.wait_until(lambda sent: bool(sent))

    kept = wire.get_state("snapshot")["snapshot"]
    assert [row["path"] for row in kept["agents"]] == ["root", "1"], "as its other views have it"
    (full,) = wire.heard(type="hello", view="v")
    again = wire.get_state("snapshot")["snapshot"]
    for frame in (full, again):
        assert [row["path"] for row in frame["agents"]] == ["root", "1", "2"]
        assert frame["seq"] == wire.of("frame")[-1]["seq"]


def test_each_frame_is_built_on_the_one_before(run: ManualRun, wire: Wire) -> None:
    begun = wire.get_state("snapshot")["snapshot"]["seq"]
    for path in ("2", "3"):
        run.spawned(path)
        wire.wait_until(
            lambda sent, path=path: any(  # type: ignore[misc]
                row["path"] == path for message in sent for row in message.get("agents", ())
            )
        )

    frames = wire.of("frame")
    assert [frame["base"] for frame in frames] == [begun, *[f["seq"] for f in frames[:-1]]]
    assert [row["path"] for row in frames[-1]["agents"]] == ["root", "3"]  # its count of them


def test_new_notices_are_shown_once_for_those_who_hear_the_page(run: ManualRun, wire: Wire) -> None:
    run.tell(AgentCancelled(agent_id=id_of("1"), reason="by hand")).spawned("2")
    wire.wait_until(lambda sent: any(message["type"] == "notices" for message in sent))
    run.spawned("3")
    wire.wait_until(lambda sent: any("3" == r["path"] for m in sent for r in m.get("agents", ())))

    assert [told["lines"] for told in wire.of("notices")] == [["Cancelled: 1 (by hand)."]]


def test_greeting_is_answered_with_everything(wire: Wire) -> None:
    (frame,) = wire.heard(type="hello", view="v1")

    assert (frame["base"], [row["path"] for row in frame["agents"]]) == (None, ["root", "1"])


def test_look_is_answered_with_the_details(wire: Wire) -> None:
    wire.greeted("v1")

    (look,) = wire.heard(type="details", view="v1", agent="root", call=None, at=None)

    assert (look["view"], look["agent"], look["text"]) == ("v1", "root", "Hm")


def test_details_have_the_pictures_of_tools_which_no_frame_has(run: ManualRun, wire: Wire) -> None:
    picture = MediaBlock("image/png", base64.b64encode(png()).decode())
    record = ToolCallRecord(id_of("root"), "t", "draw", {}, number=1, media=(picture,))
    run.bus.keep_whole(record, 1)
    run.tool("root", "t", "draw").tool_ended("root", "t", "drawn", media=(picture.named(),))
    wire.greeted("v1").heard(type="details", view="v1", agent="root", call=None, at=None)

    wire.wait_until(
        lambda sent: any(picture.data in str(each) for each in sent if each["type"] == "details")
    )
    assert wire.of("frame")
    assert picture.data not in str(wire.of("frame"))


def test_full_frame_in_a_silent_run_has_the_number_that_the_next_one_builds_on(
    run: ManualRun, wire: Wire
) -> None:
    for _ in range(3):  # time alone goes on, and no row changes
        run.after(2)
        wire.publisher._tick()
    (full,) = wire.heard(type="resend")
    assert wire.heard(type="sync", seq=full["seq"]) == [{"type": "newest"}]

    run.spawned("2")
    wire.wait_until(lambda sent: any(m.get("base") is not None for m in sent))

    assert wire.of("frame")[-1]["base"] == full["seq"]


def test_tree_alone_does_not_count_as_somebody_who_could_answer(run: ManualRun) -> None:
    publisher = FramePublisher(run.bus)
    alone = TreeView(publisher)

    alone._handle_custom_msg({"type": "hello", "view": "v1"}, None)

    assert not publisher.viewers.any()
    alone.close()


def test_closed_view_that_is_collected_takes_no_lock(run: ManualRun) -> None:
    publisher = FramePublisher(run.bus)
    view = TreeView(publisher)
    view.close()
    collected = threading.Thread(target=view.close)  # what `__del__` does

    with publisher.lock:
        collected.start()
        collected.join(DEADLINE_S)
        assert not collected.is_alive()


def test_somebody_is_there_from_the_greeting_to_the_farewell(wire: Wire) -> None:
    viewers = wire.publisher.viewers
    assert not viewers.any()

    wire.heard(type="hello", view="v1")
    wire.heard(type="hello", view="v2")
    wire.heard(type="bye", view="v1")
    assert viewers.any()

    wire.heard(type="bye", view="v2")
    assert not viewers.any()


def test_front_end_that_missed_something_gets_everything(wire: Wire) -> None:
    (frame,) = wire.heard(type="resend")

    assert frame["base"] is None
    assert len(frame["agents"]) == 2


def test_front_end_that_is_behind_is_brought_up_and_one_that_is_not_left_alone(wire: Wire) -> None:
    newest = wire.get_state("snapshot")["snapshot"]["seq"]

    assert wire.heard(type="sync", seq=newest) == [{"type": "newest"}]
    (frame,) = wire.heard(type="sync", seq=newest - 1)
    assert frame["base"] is None


def test_view_that_looks_at_an_agent_gets_its_text_and_no_other_view_does(
    run: ManualRun, wire: Wire
) -> None:
    wire.greeted("v1", "v2")
    wire.heard(type="details", view="v1", agent="root", call=None, at=None)
    wire.heard(type="details", view="v2", agent="1", call=None, at=None)
    run.called("1").said("1", "mine")

    wire.wait_until(lambda sent: any("mine" in str(m.get("text", m.get("add"))) for m in sent))

    assert {m["view"] for m in wire.sent if m.get("text") == "mine" or m.get("add") == "mine"} == {
        "v2"
    }


def test_words_of_an_agent_come_at_once_when_it_is_looked_at_while_it_speaks(
    run: ManualRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What only grows would wait for ever: the text has to come by itself.
    monkeypatch.setattr("agentnb.views.panel.frames.TICK_S", 10 * DEADLINE_S)
    view = Wire(FramePublisher(run.bus)).greeted("v1")
    view.heard(type="details", view="v1", agent="root", call=None, at=None)

    run.said("root", " and more")

    view.wait_until(lambda sent: any(" and more" in str(m.get("add")) for m in sent))
    run.ended()
    view.close()


def test_view_that_said_farewell_is_sent_no_details(run: ManualRun, wire: Wire) -> None:
    wire.greeted("v1").heard(type="details", view="v1", agent="root", call=None, at=None)
    wire.heard(type="bye", view="v1")
    before = len(wire.of("details"))

    run.said("root", "more").spawned("9")
    wire.wait_until(lambda sent: any("9" == r["path"] for m in sent for r in m.get("agents", ())))

    assert len(wire.of("details")) == before


def test_look_at_the_past_is_answered_with_the_tree_of_that_time(run: ManualRun) -> None:
    run.after(10).completed("1").replied("root").completed("root").ended()
    wire = Wire(FramePublisher(run.bus)).greeted("v1")

    replay, look = wire.heard(type="details", view="v1", agent="1", call=None, at=5)

    assert (replay["type"], replay["view"], replay["at"]) == ("replay", "v1", 5)
    assert {row["path"]: row["status"] for row in replay["agents"]} == {
        "root": "running",
        "1": "pending",
    }
    assert look["status"] == "pending"
    wire.close()


def test_replay_of_a_run_that_waited_before_it_began_reaches_the_times_of_all_its_events() -> None:
    run = ManualRun().after(5).began().after(4).completed("root").ended()  # after 10 ms, it says

    with closing(Wire(FramePublisher(run.bus)).greeted("v1")) as wire:
        frame = wire.get_state("snapshot")["snapshot"]

    assert (frame["done"], frame["at"]) == (True, 9.0)


def test_replay_goes_to_the_time_that_a_row_shows_with_what_it_shows() -> None:
    run = ManualRun().after(0.004).began().after(1).completed("root").ended()
    wire = Wire(FramePublisher(run.bus)).greeted("v1")
    (row,) = wire.get_state("snapshot")["snapshot"]["agents"]
    assert row["begun"] == 0.0  # rounded down

    replay, look = wire.heard(type="details", view="v1", agent="root", call=None, at=row["begun"])

    assert [one["path"] for one in replay["agents"]] == ["root"]
    assert look["task"] == "the task"
    wire.close()


def test_click_on_cancel_agent_is_a_command_for_that_agent(run: ManualRun) -> None:
    clicks = Clicks()
    wire = Wire(FramePublisher(run.bus, commands=lambda tell: Commands(clicks, _at_once, tell)))
    assert wire.controls

    wire.heard(type="cancel", agent="1")

    assert clicks.given == [("cancel", "1")]
    wire.close()


def test_end_key_of_the_slider_is_a_command_that_keeps_to_the_ceiling(
    run: ManualRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTNB_BUDGET_CEILING", "4000")
    clicks = Clicks()
    wire = Wire(FramePublisher(run.bus, commands=lambda tell: Commands(clicks, _at_once, tell)))

    wire.heard(type="budget", total=2000)
    wire.heard(type="budget", total=9000)

    assert clicks.given == [("set_budget", 2000), ("set_budget", 4000)]
    wire.close()


def test_ceiling_of_tokens_does_not_hold_for_the_end_key_of_a_budget_of_money(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENTNB_BUDGET_CEILING", "4000")
    run, clicks = ManualRun().began(unit="usd"), Clicks()
    wire = Wire(FramePublisher(run.bus, commands=lambda tell: Commands(clicks, _at_once, tell)))

    wire.heard(type="budget", total=9000)

    assert clicks.given == [("set_budget", 9000)]
    wire.close()


def test_run_from_a_file_has_nothing_to_cancel(wire: Wire) -> None:
    assert not wire.controls
    assert wire.heard(type="cancel", agent="1") == []


def test_closed_view_is_sent_nothing_and_no_viewer_is_left(run: ManualRun) -> None:
    publisher = FramePublisher(run.bus)
    wire = Wire(publisher)
    wire.heard(type="hello", view="v1")
    wire.close()
    sent = len(wire.sent)

    run.tell(AgentCancelled(agent_id=id_of("1"), reason="by hand"))
    publisher.tell("something")

    assert len(wire.sent) == sent
    assert not publisher.viewers.any()


def test_two_displays_of_a_view_are_distinguished_and_its_text_is_constant(wire: Wire) -> None:
    other = Wire(wire.publisher)

    assert repr(wire) == repr(other)
    assert "0x" not in repr(wire)
    other.close()


def _at_once(call: Callable[[], object]) -> None:
    call()
