"""The JavaScript and the types of the wire: the same rows, messages and commands on both sides."""

from __future__ import annotations

import json
import re
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

from agentnb.core.events import SynthesisStarted
from agentnb.views.panel import wire
from agentnb.views.panel.details import Details
from agentnb.views.panel.fold import PanelFold
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.module import ENTRY, STATIC, in_order
from agentnb.views.panel.rules import kind_of
from tests.views.panel.manual_run import ManualRun, id_of
from tests.views.panel.test_tree_view import Wire

SCRIPT = "\n".join((STATIC / name).read_text("utf-8") for name in in_order(ENTRY))
MESSAGES = {kind_of(shape): shape for shape in get_args(wire.PageMessage)}
KINDS_OF_VALUE = {str: str, int: float, float: float, bool: bool, NoneType: NoneType}
"""JavaScript has one kind of number."""


def blank_row() -> dict[str, Any]:
    """What the JavaScript takes for fields that a row does not have."""
    found = re.search(r"^const BLANK = (\{.*?^\});", SCRIPT, re.MULTILINE | re.DOTALL)
    assert found is not None
    quoted = re.sub(r"^\s*(\w+):", r'"\1":', found[1], flags=re.MULTILINE)
    blank = json.loads(re.sub(r",\s*\}$", "}", quoted))
    assert isinstance(blank, dict)
    return blank


def kind_of_default(hint: Any) -> type:
    """Of a field that may be `None`, that; else its own kind."""
    return NoneType if NoneType in get_args(hint) else KINDS_OF_VALUE[hint]


def test_blank_row_of_the_page_has_the_fields_of_a_row_and_values_of_their_kinds() -> None:
    hints = get_type_hints(wire.AgentRow)
    del hints["path"]  # by which the page knows the row

    blank = {name: KINDS_OF_VALUE[type(value)] for name, value in blank_row().items()}

    assert blank == {name: kind_of_default(hint) for name, hint in hints.items()}


def test_row_of_a_new_agent_has_all_fields() -> None:
    run = ManualRun().began().tell(SynthesisStarted(agent_id=id_of("root"), total=2))
    fold = PanelFold()
    fold.feed(run.bus.rows_since(0))

    assert fold.row(id_of("root")).keys() == wire.AgentRow.__annotations__.keys()


def test_whole_details_have_all_fields_but_what_is_added_later() -> None:
    fold = PanelFold()
    fold.feed(ManualRun().began().called("root").bus.rows_since(0))

    whole = Details("root").whole(fold, lambda path: "")

    assert {*whole, "view", "add"} == get_type_hints(wire.DetailsMessage).keys()


def test_messages_have_the_fields_of_their_kind() -> None:
    run = ManualRun().began().called("root").completed("root").ended()
    page = Wire(FramePublisher(run.bus)).greeted("v")
    page.heard(type="details", view="v", agent="root", call=None, at=0.5)
    page.heard(type="sync", seq=page.sent[0]["seq"])
    page.publisher.tell("a line")
    page._made("cancel", "root")(False)
    page.close()

    assert {message["type"] for message in page.sent} == MESSAGES.keys()
    for message in page.sent:
        shape = MESSAGES[message["type"]]
        assert message.keys() <= get_type_hints(shape).keys()
        # Only the frame of a run that was loaded while it went on has the last one.
        assert message.keys() >= shape.__required_keys__ - {"still"}


def test_page_handles_each_kind_of_message_and_no_other() -> None:
    handled = re.findall(r'\.type === "(\w+)"', SCRIPT)

    assert set(handled) == MESSAGES.keys()


def test_page_sends_each_kind_of_command_and_no_other() -> None:
    assert set(re.findall(r'\bsend\(\{ type: "(\w+)"', SCRIPT)) == wire.COMMANDS.keys()


@pytest.mark.parametrize("kind", sorted(wire.COMMANDS))
def test_page_sends_a_command_with_its_fields(kind: str) -> None:
    sent = re.search(rf'send\(\{{ type: "{kind}"(?:, )?(.*?) \}}\)', SCRIPT)
    assert sent is not None
    fields = set()
    for part in filter(None, sent[1].split(", ")):
        if part == "...wanted":  # what is looked at: one object, made in one place
            wanted = re.search(r"#request\.want\(\{ (.*?) \}\)", SCRIPT)
            assert wanted is not None
            fields |= {each.partition(":")[0] for each in wanted[1].split(", ")}
        else:
            fields.add(part.partition(":")[0])

    assert fields == wire.COMMANDS[kind].keys()
