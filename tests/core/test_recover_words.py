"""What persons said to agents comes again in a recovered or replayed run, each note once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from agentnb.core.errors import AgentEnded
from agentnb.core.events import AgentTold
from agentnb.core.protocols import Tool, ToolContext
from agentnb.core.records import RunJournal
from agentnb.core.types import CompletionRequest, Usage
from agentnb.core.undone import undo_want_of_budget
from agentnb.providers.scripted import AnyReply, Reply
from tests.core import tool_bodies
from tests.core.recovering import NothingLost, Unbroken, finished, told, unbroken
from tests.core.replaying import check_replay, replayed
from tests.core.test_recover import BY_TOOLS, starts, uses
from tests.core.test_recover_orders import Ordered
from tests.support import Tree, spawn


class Person:
    """Says each thing once, whatever is done again: what is recorded was said."""

    def __init__(self) -> None:
        self.trees: list[Tree] = []

    def say(self, path: str, text: str) -> None:
        tree = self.trees[-1]
        orders = tree.past.journal.orders if tree.past is not None else ()
        if text not in [each.value["text"] for each in orders if each.kind == "tell"]:
            tree.request.words.tell(tree.id_of(path), text, "code")

    def during(self, path: str, text: str, reply: AnyReply) -> Callable[[CompletionRequest], Any]:
        def answer(request: CompletionRequest) -> AnyReply:
            self.say(path, text)
            return reply

        return answer

    def tools(self) -> Sequence[Tool]:
        async def body(input: Mapping[str, Any], context: ToolContext) -> str:
            if "tell" in input:
                self.say(*input["tell"])
            return "looked"

        return [tool_bodies.Tool(body)]


def looks(*tell: str) -> Reply:
    return uses(("look", {"tell": list(tell)}))


def scenes(person: Person) -> dict[str, dict[str, Any]]:
    during = person.during
    return {
        "a tool runs": {"root": [looks("root", "one"), looks("root", "two"), "Heard."]},
        "before it ends": {"root": [during("root", "more", "One."), looks("root", "x"), "Two."]},
        "sub-agents work": {
            "root": [looks("root", "one"), spawn("A", "B"), "All."],
            "A": [looks("root", "while you wait"), during("1", "and more", "a"), "a, and more"],
            "B": [spawn("C"), during("2", "late", "b"), "b, too"],
            "C": [looks("2.1", "deep"), looks("2", "to the one above"), "c"],
        },
        "in turn": {
            "root": [spawn("A", "B", mode="sequential"), during("root", "late", "All."), "More."],
            "A": [during("1", "hm", "a"), "a2"],
            "B": [looks("root", "while you wait"), "b"],
        },
    }


async def check_every_moment(person: Person, script: dict[str, Any], **limits: Any) -> Unbroken:
    run = await unbroken(script, person.tools, found=person.trees, **limits)
    whole, last = told(run.tree), run.moments[-1]
    said = Counter(event.text for event in run.tree.of(AgentTold))
    assert set(said.values()) == {1}
    for moment in run.moments:
        tree, provider = await run.recover(moment, past=NothingLost(moment), found=person.trees)

        assert told(tree) == whole
        assert tree.statuses() == run.tree.statuses()
        assert len(provider.requests) == len(set(finished(last)) - set(finished(moment)))
        orders = [each.value["text"] for each in moments_of(tree)[-1].orders]
        assert Counter(orders) == said
    await check_replay(run)
    return run


def moments_of(tree: Tree) -> Sequence[RunJournal]:
    return tree.journal.moments  # type: ignore[union-attr, no-any-return]


@pytest.mark.parametrize("scene", scenes(Person()))
async def test_each_note_comes_once_from_whatever_moment_a_run_goes_on(scene: str) -> None:
    person = Person()
    await check_every_moment(person, scenes(person)[scene])


async def test_agent_of_a_job_hears_it_again() -> None:
    person = Person()
    script = {
        "root": [starts("A"), uses(("spawn_await", {"job_ids": "*"})), "It."],
        "A": [looks("1", "one"), person.during("1", "two", "a"), "a2"],
    }
    await check_every_moment(person, script, orchestrator=BY_TOOLS)


async def test_what_is_said_while_the_past_is_told_comes_with_the_first_new_call() -> None:
    person = Person()
    script = scenes(person)["sub-agents work"]
    run = await unbroken(script, person.tools, found=person.trees)
    calls = [(each, set(finished(each))) for each in run.moments]
    found = person.trees

    def tell() -> None:
        found[-1].request.words.tell(found[-1].id_of("1"), "meanwhile", "code")

    moments = [each for each, had in calls if ("1", 1) in had and ("1", 2) not in had]
    assert len(moments) > 3
    for moment in moments:
        past = Ordered(moment, tell)
        tree, _ = await run.recover(moment, found=found, past=past)

        assert past.misfits == {}
        heard = [event.text for event in tree.of(AgentTold, "1")]
        assert sorted(heard) == ["and more", "meanwhile"]
        again, _ = await run.recover(moments_of(tree)[-1], found=found)
        assert told(again) == told(tree)


async def test_agent_whose_end_is_recorded_cannot_be_told_anything() -> None:
    person = Person()
    run = await unbroken({"root": [spawn("A"), "All."], "A": ["a"]}, found=person.trees)
    moment = next(each for each in run.moments if {end.path for end in each.ends} == {"1"})
    refused: list[str] = []

    def late() -> None:
        with pytest.raises(AgentEnded) as caught:
            person.trees[-1].request.words.tell(person.trees[-1].id_of("1"), "late", "code")
        refused.append(caught.value.path)

    await run.recover(moment, found=person.trees, past=Ordered(moment, late))

    assert refused == ["1"]


async def test_replay_hears_what_was_said_then_and_nothing_else() -> None:
    person = Person()
    script = scenes(person)["before it ends"]
    run = await unbroken(script, person.tools, found=person.trees)

    tree = await replayed(run)

    with pytest.raises(AgentEnded):
        tree.request.words.tell(tree.id_of("root"), "now", "code")
    assert [event.text for event in tree.of(AgentTold)] == ["more", "x"]


async def test_note_of_a_call_that_the_budget_did_not_allow_is_told_with_more_budget() -> None:
    person = Person()
    long = Reply("a", usage=Usage(22_000, 10))
    script: dict[str, Any] = {
        "root": [spawn("A"), "All."],
        "A": [looks("1", "one"), person.during("1", "two", long), "a2"],
    }
    limits: dict[str, Any] = {"budget": 24_000, "on_budget_warning": "continue"}
    run = await unbroken(script, person.tools, found=person.trees, **limits)
    assert run.tree.statuses()["1"] == "exhausted"
    assert [event.text for event in run.tree.of(AgentTold)] == ["one"]

    undone = undo_want_of_budget(run.moments[-1])
    tree, _ = await run.recover(
        undone.journal,
        found=person.trees,
        past=NothingLost(undone.journal, new_total=500_000),
    )

    assert tree.statuses() == {"root": "completed", "1": "completed"}
    assert [event.text for event in tree.of(AgentTold)] == ["one", "two"]
