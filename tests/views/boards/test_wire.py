"""The JavaScript and the types of the wire of a board: the same messages on both sides."""

from __future__ import annotations

import re
from typing import Any, get_args, get_type_hints

import pytest

from agentnb.views.boards import wire
from agentnb.views.boards.board_view import ENTRY
from agentnb.views.panel.module import STATIC, in_order
from agentnb.views.panel.rules import MessageRefused, kind_of

SCRIPT = "\n".join((STATIC / name).read_text("utf-8") for name in in_order(ENTRY))
MESSAGES = {kind_of(shape): shape for shape in get_args(wire.BoardMessage)}


def test_page_handles_each_kind_of_message_and_no_other() -> None:
    assert set(re.findall(r'\.type === "(\w+)"', SCRIPT)) == MESSAGES.keys()


def test_page_sends_each_kind_of_command_and_no_other() -> None:
    assert set(re.findall(r'\bsend\(\{ type: "(\w+)"', SCRIPT)) == wire.COMMANDS.keys()


@pytest.mark.parametrize("kind", sorted(wire.COMMANDS))
def test_page_sends_a_command_with_its_fields(kind: str) -> None:
    sent = re.findall(rf'send\(\{{ type: "{kind}"(?:, )?(.*?) \}}\)', SCRIPT)
    assert sent
    for fields in sent:
        names = {part.partition(":")[0] for part in filter(None, fields.split(", "))}
        assert names == wire.COMMANDS[kind].keys()


GOOD: dict[str, dict[str, Any]] = {
    "send": {"view": "v", "order": 1, "thread": "x", "text": "Hello"},
    "note": {"view": "v", "order": 1, "id": "t1", "text": "A note"},
    "status": {"view": "v", "order": 1, "id": "t1", "status": "blocked"},
    "read": {"view": "v", "thread": None, "most": 50},
    "open": {"view": "v", "id": "t1"},
    "calls": {"view": "v", "thread": "x", "run": "y"},
}
BAD: list[tuple[str, str, Any]] = [
    ("send", "text", ""),
    ("send", "text", "x" * 100_001),
    ("send", "text", ["x"]),
    ("send", "thread", None),
    ("send", "order", True),
    ("send", "order", 0),
    ("note", "text", "x" * 20_001),
    ("note", "id", 3),
    ("status", "status", "running"),
    ("status", "status", ["blocked"]),
    ("read", "thread", ""),
    ("read", "most", 5_001),
    ("open", "view", "v" * 101),
    ("calls", "run", None),
]


@pytest.mark.parametrize("kind", GOOD)
def test_command_keeps_the_fields_of_its_kind(kind: str) -> None:
    given = {"type": kind, **GOOD[kind]}
    assert wire.checked_command({**given, "more": 1}) == given


@pytest.mark.parametrize(("kind", "field", "value"), BAD)
def test_wrong_value_is_refused_and_not_quoted(kind: str, field: str, value: Any) -> None:
    with pytest.raises(MessageRefused, match=f"`{field}`"):
        wire.checked_command({"type": kind, **GOOD[kind], field: value})


@pytest.mark.parametrize("content", [None, [], {"type": "budget", "total": 1}, {"type": []}, {}])
def test_unknown_message_is_refused(content: Any) -> None:
    with pytest.raises(MessageRefused):
        wire.checked_command(content)


def test_messages_for_one_view_say_so() -> None:
    for_all = {"frame", "newest", "notice"}
    assert {
        kind for kind, shape in MESSAGES.items() if "view" not in get_type_hints(shape)
    } == for_all
