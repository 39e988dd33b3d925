"""What a session may be given for tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import agentnb
from agentnb.core.protocols import ToolContext
from agentnb.core.types import ToolSpec, ToolUse
from agentnb.default_session import configure
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.session import Session
from agentnb.tools.registry import tools_of


def look(at: str) -> str:
    """Look at it."""
    return at


class Own:
    """Somebody's own tool."""

    def __init__(self, name: str = "own") -> None:
        self.spec = ToolSpec(name, "Own.", {"type": "object"})

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        return "own"


def names(given: Any, known: Any = ()) -> list[str]:
    return [tool.spec.name for tool in tools_of(given, known)]


def test_functions_tools_and_names_are_tools_in_their_order() -> None:
    known = tools_of([agentnb.tool(look, name="known")])

    assert names([look, Own(), "known", "workspace"], known) == [
        "look",
        "own",
        "known",
        "workspace_read",
        "workspace_write",
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("workspace", "must be a list of functions, tools or names, not 'workspace'"),
        (look, "must be a list"),
        ([look, agentnb.tool(look)], "Two tools have the name 'look'"),
        (["workspace", "workspace"], "Two tools have the name 'workspace_read'"),
        (["lok"], "`tools`: there is no tool 'lok' (known: 'workspace', 'memory', 'tasks')"),
        ([5], "5 is not a tool"),
        ([Own], "is not a tool"),
        ([Own("a b")], "'a b' cannot be a tool's name"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_what_is_no_tool_is_refused_with_the_session(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as refused:
        Session(provider=ScriptedProvider([]), tools=given)

    assert words in str(refused.value)


def offered(provider: ScriptedProvider) -> list[list[str]]:
    return [[spec.name for spec in request.tools] for request in provider.requests]


def test_tools_of_a_run_stand_in_place_of_the_sessions_and_may_name_them() -> None:
    provider = ScriptedProvider(["a", "b", "c", "d"])
    session = Session(provider=provider, tools=[look, Own()])

    session.run_sync("x")
    session.run_sync("x", tools=["own", agentnb.tool(look, name="peer")])
    session.run_sync("x", tools=[])
    with pytest.raises(ValueError, match="known: 'look', 'own', 'workspace', 'memory', 'tasks'"):
        session.spawn("x", tools=["look_up"])
    session.spawn_all(["x"], synthesis=False, tools=["own"]).result()

    assert offered(provider) == [["look", "own"], ["own", "peer"], [], ["own"]]


def test_new_default_session_keeps_the_tools_of_the_old_one() -> None:
    configure(provider=ScriptedProvider([]), tools=[look])
    try:
        assert [tool.spec.name for tool in configure(budget=1000).tools] == ["look"]
    finally:
        configure(tools=())


def test_sub_agents_have_the_tools_of_their_parent() -> None:
    provider = ScriptedProvider(
        [
            '<spawn_agents><agent task="part" /></spawn_agents>',
            Reply(tool_uses=(ToolUse("a", "look", {"at": "it"}),)),
            "seen",
            "all",
        ]
    )

    Session(provider=provider, tools=[look]).run_sync("x")

    assert offered(provider) == [["look"]] * 4
