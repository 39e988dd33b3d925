"""What a child is handed, and that nothing else can reach it."""

from __future__ import annotations

import dataclasses

import pytest

from agentnb.core.context import AgentContext
from agentnb.core.types import AgentConfig, Message, user_message

PARENT = AgentContext(
    agent_config=AgentConfig(name="parent", model="demo/x", extra={"a": 1}),
    soul_content="the soul",
    identity_content="the identity",
    user_content="about the person",
    memories=("of this conversation",),
    recalled_memories=("from before",),
    conversation_history=(user_message("hello"),),
    system_prompt="own instructions",
    verbose=True,
)


def test_fields_stand_in_the_order_that_others_rely_on() -> None:
    names = [each.name for each in dataclasses.fields(AgentContext)]

    assert names == [
        *("agent_config", "soul_content", "identity_content", "user_content", "memories"),
        *("recalled_memories", "conversation_history", "system_prompt", "verbose"),
        *("task", "depth", "briefings"),
    ]


def test_empty_context_is_that_of_a_root() -> None:
    context = AgentContext()

    assert context.agent_config == AgentConfig()
    assert (context.task, context.depth) == ("", 0)
    assert (context.memories, context.conversation_history) == ((), ())


def test_fresh_child_gets_who_it_is_and_its_task_and_nothing_else() -> None:
    child = PARENT.child_for_task("the task", 2)

    assert child == AgentContext(
        agent_config=PARENT.agent_config,
        soul_content="the soul",
        identity_content="the identity",
        verbose=True,
        task="the task",
        depth=2,
    )


def test_child_inherits_the_recalled_memories_only_when_told_to() -> None:
    child = PARENT.child_for_task("the task", 1, inherit_memory=True)

    assert child == dataclasses.replace(
        PARENT.child_for_task("the task", 1), recalled_memories=("from before",)
    )


def test_grandchild_inherits_through_its_parent_and_not_past_a_fresh_one() -> None:
    heir = PARENT.child_for_task("a", 1, inherit_memory=True)
    fresh = PARENT.child_for_task("a", 1)

    assert heir.child_for_task("b", 2, inherit_memory=True).recalled_memories == ("from before",)
    assert fresh.child_for_task("b", 2, inherit_memory=True).recalled_memories == ()


def test_later_change_of_a_list_does_not_reach_in() -> None:
    memories, recalled = ["a"], ["b"]
    history: list[Message] = [user_message("c")]
    context = AgentContext(
        memories=memories,  # type: ignore[arg-type]  # a person may well pass a list
        recalled_memories=recalled,  # type: ignore[arg-type]
        conversation_history=history,  # type: ignore[arg-type]
    )

    memories.append("x")
    recalled.append("x")
    history.clear()

    assert context.memories == ("a",)
    assert context.recalled_memories == ("b",)
    assert context.conversation_history == (user_message("c"),)


def test_context_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PARENT.task = "another"  # type: ignore[misc]
