"""Objects that a person gives to a run: which agents know and read them, and what is kept."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from agentnb import Reply, ScriptedProvider, Session, ToolUse
from agentnb.core.types import CompletionRequest, TextBlock, ToolResultBlock
from agentnb.testing import by_agent, requests_of, spawn

SALES = pd.DataFrame({"region": ["north", "south"] * 500, "units": range(1000)})
SECRET = pd.DataFrame({"salary": [1, 2, 3]})


def read(name: str, **more: Any) -> Reply:
    """A call of `inspect`."""
    return Reply(tool_uses=(ToolUse(f"i-{name}", "inspect", {"name": name, **more}),))


def told(request: CompletionRequest) -> str:
    """The text after the task in a request's first message."""
    return "\n".join(b.text for b in request.messages[0].content[1:] if isinstance(b, TextBlock))


def results(request: CompletionRequest) -> list[ToolResultBlock]:
    return [
        block
        for message in request.messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


def session_of(provider: ScriptedProvider, **settings: Any) -> Session:
    return Session(provider=provider, store=None, **settings)


def test_root_gets_descriptions_of_given_objects_and_reads_more() -> None:
    provider = by_agent({"root": [read("sales", what="statistics"), "done"]})
    session_of(provider).spawn("look", give={"sales": SALES}).result()
    first, second = requests_of(provider, "root")
    for part in ("sales", "DataFrame", "1,000", "region", "units"):
        assert part in told(first)
    (result,) = results(second)
    assert not result.is_error
    assert "999" in result.text
    assert len(told(first).encode()) < 4_000


def test_run_without_objects_has_no_tool_to_read_them() -> None:
    provider = by_agent({"root": "done"})
    session_of(provider).spawn("look").result()
    (request,) = provider.requests
    assert request.tools == ()
    assert told(request) == ""


def test_name_in_double_braces_is_replaced_in_the_task() -> None:
    provider = by_agent({})
    session_of(provider).spawn("Sum {{ sales }}, not {{other}}.", give={"sales": SALES}).result()
    (request,) = provider.requests
    assert request.messages[0].content[0] == TextBlock("Sum sales, not {{other}}.")
    assert "sales: pandas.DataFrame, 1,000 rows" in told(request)


def test_labels_of_a_demo_run_show_the_tasks_and_not_the_objects() -> None:
    with Session(model="demo", store=None, config=False) as session:
        run = session.spawn("Compare {{sales}} with last year.", give={"sales": SALES})
        run.result()

    topic = "Compare sales with last year."
    assert [agent.task for agent in run.agents] == [
        topic,
        f"Collect the facts about: {topic}",
        f"Find arguments for and against: {topic}",
        f"List what speaks for: {topic}",
        f"List what speaks against: {topic}",
        f"Work out an outline for: {topic}",
    ]


def test_child_of_a_block_has_what_its_task_names_and_no_other_name() -> None:
    task = "Look at {{sales}}."
    provider = by_agent(
        {
            "root": [spawn(task, "Think."), "done"],
            task: [read("sales"), read("secret"), "seen"],
            "Think.": [read("sales"), "thought"],
        }
    )
    give = {"sales": SALES, "secret": SECRET}
    session_of(provider).spawn("go", give=give).result()
    first, second, third = requests_of(provider, task)
    assert "region" in told(first)
    assert [each.is_error for each in results(second)] == [False]
    refused = results(third)[1]
    assert refused.is_error
    for request in (first, second, third, *requests_of(provider, "Think.")):
        # Its name may be only in the child's own text.
        assert "salary" not in str(request)
    assert "secret" not in told(first) + str(first.tools)
    assert told(requests_of(provider, "Think.")[0]) == ""
    assert results(requests_of(provider, "Think.")[1])[0].is_error


def test_child_of_a_tool_has_what_its_context_names() -> None:
    order = {"task": "Look.", "context": "Use sales."}
    started = Reply(tool_uses=(ToolUse("s", "spawn", order),))
    provider = by_agent({"root": [started, "mine", "done"], "Look.": [read("sales"), "seen"]})
    give = {"sales": SALES, "secret": SECRET}
    session_of(provider, delegation="tools").spawn("go", give=give).result()
    first, second = requests_of(provider, "Look.")
    assert "region" in told(first)
    assert "salary" not in told(first)
    assert [each.is_error for each in results(second)] == [False]


def test_grandchild_has_only_what_its_own_parent_had() -> None:
    provider = by_agent(
        {
            "root": [spawn("Middle."), "done"],
            "Middle.": [spawn("Leaf with {{sales}}."), "back"],
            "Leaf with {{sales}}.": [read("sales"), "nothing"],
        }
    )
    session_of(provider).spawn("go", give={"sales": SALES}).result()
    first, second = requests_of(provider, "Leaf with {{sales}}.")
    assert told(first) == ""
    assert results(second)[0].is_error


def test_each_agent_of_a_persons_list_has_everything() -> None:
    provider = by_agent({"a": [read("sales"), "one"], "b": [read("secret"), "two"]})
    give = {"sales": SALES, "secret": SECRET}
    session_of(provider).spawn_all(["a", "b"], give=give, synthesis=False).result()
    for task in "ab":
        assert [each.is_error for each in results(requests_of(provider, task)[1])] == [False]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"give": {"2x": 1}}, "`give`"),
        ({"give": 3}, "`give`"),
        ({"code": "cell"}, "`code`"),
        ({"code": None}, "`code`"),
    ],
)
def test_wrong_gift_is_refused_before_any_call(arguments: Any, words: str) -> None:
    provider = by_agent({})
    with pytest.raises(ValueError, match=words):
        session_of(provider).spawn("go", **arguments)
    assert provider.requests == []


def test_tool_of_ones_own_with_the_name_of_ours_is_refused() -> None:
    def inspect(name: str) -> str:
        """Mine."""
        return name

    with pytest.raises(ValueError, match="'inspect'"):
        session_of(by_agent({}), tools=[inspect]).spawn("go", give={"sales": SALES})
