"""Messages that no page of ours sends: refused by shape, kind and range, counted and told once."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentnb.views.panel import messages, tree_view, wire
from agentnb.views.panel.commands import Commands
from agentnb.views.panel.controls import BudgetNumber, BudgetSlider, CancelButton
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.header import Notices
from agentnb.views.panel.messages import MOST_AT_ONCE, MOST_PER_S, Intake
from agentnb.views.panel.rules import MessageRefused
from tests.views.panel.manual_run import ManualRun
from tests.views.panel.stage import FrontEnd, Stage
from tests.views.panel.test_tree_view import Clicks, Wire, _at_once


class Attacked:
    """A tree view of a run that has controls, and has ended, so that nothing goes on beside."""

    def __init__(self) -> None:
        run = ManualRun().began().called("root", "Hello").spawned("1", "a part").after(5)
        self.run = run.completed("1").replied("root").completed("root").ended()
        self.clicks = Clicks()
        self.publisher = FramePublisher(
            self.run.bus,
            budget=lambda: (100, 1_000, "tokens"),
            commands=lambda tell: Commands(self.clicks, _at_once, tell),
        )
        self.wire = Wire(self.publisher).greeted("v")

    def hears(self, content: object) -> list[dict[str, Any]]:
        """What is answered to a message, but for the notice that one was refused."""
        before = len(self.wire.sent)
        self.wire._handle_msg({"content": {"data": {"method": "custom", "content": content}}})
        return [m for m in self.wire.sent[before:] if m["type"] not in ("notices", "frame")]

    @property
    def notices(self) -> tuple[str, ...]:
        return self.publisher.whole().summary.notices


@pytest.fixture
def attacked() -> Iterator[Attacked]:
    view = Attacked()
    yield view
    view.wire.close()


def look(**forged: Any) -> dict[str, Any]:
    return {"type": "details", "view": "v", "agent": "root", "call": None, "at": None, **forged}


FORGED: dict[str, object] = {
    "nothing": None,
    "a list": ["hello"],
    "a text": "hello",
    "a number": 5,
    "no kind": {},
    "unknown kind": {"type": "no such thing"},
    "kind that is a list": {"type": ["details"]},
    "kind that is an object": {"type": {}},
    "greeting without a view": {"type": "hello"},
    "view that is a number": {"type": "hello", "view": 7},
    "view without a name": {"type": "here", "view": ""},
    "view of a long name": {"type": "hello", "view": "v" * 101},
    "farewell of a list": {"type": "bye", "view": ["v"]},
    "frame that is a text": {"type": "sync", "seq": "1"},
    "frame that is nan": {"type": "sync", "seq": math.nan},
    "negative budget": {"type": "budget", "total": -5},
    "budget of nothing": {"type": "budget", "total": 0},
    "budget that is true": {"type": "budget", "total": True},
    "budget that is a text": {"type": "budget", "total": "5000"},
    "budget with a fraction": {"type": "budget", "total": 5000.5},
    "budget without an end": {"type": "budget", "total": math.inf},
    "budget that no browser holds": {"type": "budget", "total": 2**53},
    "budget of no number": {"type": "budget"},
    "budget below what is used": {"type": "budget", "total": 1},
    "cancel of nobody": {"type": "cancel"},
    "cancel of true": {"type": "cancel", "agent": True},
    "cancel in another run": {"type": "cancel", "agent": "1.7"},
    "cancel of an endless name": {"type": "cancel", "agent": "1" * 1_000_000},
    "call that is a text": look(call="x"),
    "call before the first": look(call=0),
    "call that is true": look(call=True),
    "agent that is a list": look(agent=[]),
    "time that is a text": look(at="soon"),
    "time that is nan": look(at=math.nan),
    "time that is endless": look(at=math.inf),
    "time before the run": look(at=-1),
    "time that is true": look(at=True),
    "view that never said it is there": look(view="another"),
}


@pytest.mark.parametrize("content", FORGED.values(), ids=list(FORGED))
def test_forged_message_does_nothing_and_is_counted_and_told(
    attacked: Attacked, content: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert attacked.hears(content) == []

    assert attacked.clicks.given == []
    assert (attacked.publisher.refused, len(attacked.notices)) == (1, 1)
    assert attacked.notices[0].startswith("A message of a page was refused: ")
    assert capsys.readouterr() == ("", "")


def test_refused_messages_are_shown_once_and_the_view_goes_on(attacked: Attacked) -> None:
    for content in FORGED.values():
        attacked.hears(content)

    assert (attacked.publisher.refused, len(attacked.notices)) == (len(FORGED), 1)
    replay, details = attacked.hears(look(agent="1", at=2.5))
    assert (replay["type"], details["status"]) == ("replay", "pending")
    attacked.hears({"type": "budget", "total": 5000})
    assert attacked.clicks.given == [("set_budget", 5000)]


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"method": "no such method"},
        {"method": ["update"]},
        {"method": "update"},
        {"method": "update", "state": []},
        {"method": "custom"},
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "kind", [Notices, CancelButton, BudgetSlider, lambda s: BudgetNumber(s).field]
)
def test_message_around_it_that_is_none_is_refused_by_every_widget(
    kind: Callable[[Stage], Any], data: object, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage()
    widget = kind(stage)

    widget._handle_msg({"content": {"data": data}, "buffers": []})

    assert (stage.refused, stage.given) == (1, [])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("value", [-5, True, None, "80000", 80_000.5, math.nan, [], 2**53])
def test_forged_value_of_the_slider_is_not_a_command_and_is_put_right(value: object) -> None:
    stage = Stage(tokens_used=100)
    page = FrontEnd(BudgetSlider(stage))

    page.moves(value=value)
    stage.work()

    assert (stage.given, stage.refused, page.state["value"]) == ([], 1, 50_000)


def test_page_changes_nothing_of_a_control_but_its_value() -> None:
    stage = Stage()
    slider, notices = BudgetSlider(stage), Notices(stage)

    FrontEnd(slider).moves(max=10, min=90_000, disabled=True)
    FrontEnd(notices).moves(value="<b>Cancelled</b>")
    stage.work()

    assert (stage.given, slider.min, slider.disabled) == ([], 0, False)
    assert "Cancelled" not in notices.value


def test_flood_is_answered_as_far_as_a_person_could_ask(attacked: Attacked) -> None:
    now_s = [0.0]
    attacked.wire._intake = Intake(lambda: now_s[0])

    answered = sum(len(attacked.hears(look())) for _ in range(5_600))
    now_s[0] = 1.0
    later = sum(len(attacked.hears(look())) for _ in range(5_600))

    assert (answered, later) == (MOST_AT_ONCE, MOST_PER_S)
    assert attacked.publisher.refused == 2 * 5_600 - answered - later
    assert len(attacked.notices) == 1


def test_intake_fills_up_again_and_no_further() -> None:
    now_s = [0.0]
    intake = Intake(lambda: now_s[0])
    for _ in range(MOST_AT_ONCE):
        intake.take()
    with pytest.raises(MessageRefused):
        intake.take()

    now_s[0] = 1e6
    for _ in range(MOST_AT_ONCE):
        intake.take()
    with pytest.raises(MessageRefused):
        intake.take()


def test_views_that_are_remembered_have_a_greatest_number(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_view, "MOST_VIEWS", 3)

    for n in range(5):
        attacked.hears({"type": "here", "view": f"w{n}"})
        attacked.hears(look(view=f"w{n}"))

    assert list(attacked.wire._seen_at_s) == list(attacked.wire._details) == ["w2", "w3", "w4"]
    assert len(attacked.publisher.viewers._heard_at_s) == 3


@pytest.mark.parametrize("content", [{"type": "resend"}, {"type": "hello", "view": "v"}], ids=repr)
def test_command_whose_handling_fails_is_reported_and_escapes_nowhere(
    attacked: Attacked,
    content: object,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise RuntimeError("It broke.")

    monkeypatch.setattr(attacked.wire, "_full_frame", fail)

    assert attacked.hears(content) == []

    assert (attacked.publisher.refused, attacked.notices) == (0, ("It broke.",))
    assert capsys.readouterr() == ("", "")


def test_change_of_a_control_whose_handling_fails_is_reported_and_put_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    slider = BudgetSlider(stage)
    page = FrontEnd(slider)

    def fail(name: str, value: object) -> None:
        raise RuntimeError("It broke.")

    monkeypatch.setattr(slider, "set_trait", fail)
    page.moves(value=80_000)

    assert (stage.given, stage.refused, page.state["value"]) == ([], 0, 50_000)
    assert stage.whole().summary.notices == ("It broke.",)
    assert capsys.readouterr() == ("", "")


VALUES: list[Any] = [
    *(None, True, False, -5, 0, 1, 2**53, 10**400, 0.5, math.nan, math.inf, -math.inf),
    *("", "v", "root", "1", "1.7", "w" * 3_000, "\ud800", [], ["v"], {}, {"type": "details"}),
]


def test_any_messages_leave_the_run_as_it_was_and_raise_nothing(
    attacked: Attacked, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MOST_PER_S", 10**9)
    random_ = random.Random(13)
    before, events = json.dumps(attacked.publisher.whole().rows), len(attacked.run.bus)
    names = sorted({name for fields in wire.COMMANDS.values() for name in fields})
    for _ in range(int(os.environ.get("PROPERTY_EXAMPLES", "300"))):
        kind = random_.choice([*wire.COMMANDS, "x", *VALUES])
        content = {"type": kind, **{name: random_.choice(VALUES) for name in names}}
        attacked.hears(random_.choice([content] * 9 + VALUES))

    assert json.dumps(attacked.publisher.whole().rows) == before
    assert len(attacked.run.bus) == events
    assert all(
        order in (("cancel", "root"), ("cancel", "1")) or order[1] >= 100
        for order in attacked.clicks.given
    )
    assert attacked.publisher.refused > 100
    assert len(attacked.notices) == 1
    assert capsys.readouterr() == ("", "")
