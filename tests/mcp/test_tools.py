"""What agents have of a server: names, schemas, results, progress, approval."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import ScriptedProvider, Session
from agentnb.core.errors import McpServerFailed
from agentnb.core.events import ToolCallFinished, ToolCallReported
from agentnb.errors import ConfigError
from agentnb.tools.mcp import process
from tests.mcp.scene import (
    called,
    is_alive,
    pids_in,
    results,
    said_in,
    server,
    session_with,
    until,
    use,
)
from tests.support import DEADLINE_S, by_agent, spawn


def test_agent_has_the_tools_of_a_server_with_their_schemas_as_they_are() -> None:
    with session_with(server(), script=["fine"]) as session:
        session.run_sync("Look.")
        (request,) = session.settings.provider.requests  # type: ignore[union-attr]

    names = [spec.name for spec in request.tools]
    assert names[:3] == ["t__echo", "t__write", "t__erase"]
    assert len(names) == 16, "both pages of the list"
    assert request.tools[0].description == "Does echo."
    assert request.tools[0].input_schema == {
        "type": "object",
        "properties": {"text": {"type": "string"}},
    }


def test_results_of_every_kind_become_text_and_pictures() -> None:
    script = [*map(use, ("t__echo", "t__everything", "t__fail")), "done"]
    with session_with(server(), script=script) as session:
        run = session.spawn("Call them.")
        found = results(run)
    (_, call, _) = run.agent("root").tool_calls
    assert [(each.media_type, each.size) for each in call.media] == [("image/png", 67)]

    assert found["t__echo"] == "hi"
    assert found["t__everything"].splitlines() == [
        "Look:",
        "(image/png, 12,345 bytes)",
        "(image/png, 67 bytes)",
        "(audio/wav, 12,345 bytes)",
        "A file.",
        "(file:///a.bin, application/pdf, 12,345 bytes)",
        "(resource file:///b.txt: B.)",
        '{"answer": [1, 2]}',
        "(a file was left out: image/png, and its content is not of that type)",
    ]
    assert found["t__fail"] == "!hi"


def test_structured_content_that_the_text_says_already_is_not_said_twice() -> None:
    from mcp.types import CallToolResult, TextContent

    from agentnb.tools.mcp.result import output_of

    def text(structured: Any, *said: str) -> object:
        content = [TextContent(type="text", text=each) for each in said]
        return output_of(CallToolResult(content=[*content], structured_content=structured))

    assert text({"a": 1}, '{"a": 1}') == '{"a": 1}'
    assert text({"result": "yes"}, "yes") == "yes"
    assert text({"content": "yes"}, "yes") == "yes"
    assert text({"result": [1, 2]}, "1", "2") == "1\n2"
    assert text({"a": 1}, "something else") == 'something else\n{"a": 1}'
    assert text({"a": 1}) == '{"a": 1}'
    assert text(None) == "(no output)"


def test_progress_is_shown_in_the_tree() -> None:
    with session_with(server(), script=[use("t__steps"), "done"]) as session:
        run = session.spawn("Go.")
        run.result()

    reports = [e.event.text for e in run.events if isinstance(e.event, ToolCallReported)]
    assert reports[-1] == "2 of 2: going"


def test_calls_of_one_turn_run_at_once() -> None:
    # The second would never run if the first, which sleeps, had to end before it.
    reply = use("t__sleep", "t__echo")
    with session_with(server(), script=[reply, "done"]) as session:
        run = session.spawn("Both.")
        until(lambda: any(isinstance(e.event, ToolCallFinished) for e in run.events), "an end")
        run.cancel()

    calls = {call.name: call.result for call in run.agent("root").tool_calls}
    assert calls["t__echo"] == "hi"


def test_destructive_tool_asks_and_a_read_only_one_does_not() -> None:
    asked = []

    def approve(question: agentnb.Question) -> str:
        asked.append(question.value["tool"])
        return "deny"

    found = called("t__erase", "t__echo", "t__write", of=server(), settings={"approve": approve})

    assert asked == ["t__erase"]
    assert found["t__erase"].startswith("!The tool 't__erase' was not run")
    assert (found["t__echo"], found["t__write"]) == ("hi", "hi")


@pytest.mark.parametrize(("says", "asked_for"), [(False, []), (True, ["t__erase", "t__echo"])])
def test_person_decides_on_the_approval_of_a_server(says: bool, asked_for: list[str]) -> None:
    asked = []

    def approve(question: agentnb.Question) -> str:
        asked.append(question.value["tool"])
        return "approve"

    of = server(approval=says)
    found = called("t__erase", "t__echo", of=of, settings={"approve": approve})

    assert asked == asked_for
    assert found == {"t__erase": "hi", "t__echo": "hi"}


def test_name_of_a_server_stands_for_its_tools_and_one_of_them_can_be_named_alone() -> None:
    with session_with(server(), script=["a", "b", "c"]) as session:
        session.run_sync("All.", tools=["t"])
        session.run_sync("One.", tools=["t__write"])
        with pytest.raises(McpServerFailed, match="no tool 't__wirte'"):
            session.run_sync("None.", tools=["t__wirte"])
        requests = session.settings.provider.requests  # type: ignore[union-attr]

    assert [len(request.tools) for request in requests] == [16, 1]
    assert requests[1].tools[0].name == "t__write"


def test_file_gates_a_server_or_one_tool_of_it_by_name(tmp_path: Path) -> None:
    def asked(named: str) -> list[str]:
        tools: list[str] = []

        def approve(question: agentnb.Question) -> str:
            tools.append(question.value["tool"])
            return "approve"

        (tmp_path / "agentnb.yaml").write_text(f"tools:\n  approval: [{named}]\n")
        called(
            "t__echo", "t__write", of=server(), settings={"approve": approve, "config": tmp_path}
        )
        return tools

    assert asked("t") == ["t__echo", "t__write"]
    assert asked("t__write") == ["t__write"]
    with pytest.raises(McpServerFailed, match="no tool 't__wirte'"):
        asked("t__wirte")
    with pytest.raises(ConfigError, match="no tool 'other'"):
        asked("other")


def test_profile_names_a_server_for_its_sub_agents(tmp_path: Path) -> None:
    profiles = "{looker: {description: Looks., tools: [t__echo], approval: [t]}}"
    (tmp_path / "agentnb.yaml").write_text(f"tools: {{spawn: {{profiles: {profiles}}}}}\n")
    provider = by_agent(
        {
            "root": [
                use("spawn", task="look", profile="looker"),
                use("spawn_await", job_ids="*"),
                "done",
            ],
            "look": [use("t__echo"), "seen"],
        }
    )
    asked = []

    def approve(question: agentnb.Question) -> str:
        asked.append(question.value["tool"])
        return "approve"

    settings = {"config": tmp_path, "provider": provider, "delegation": "tools"}
    with session_with(server(), approve=approve, **settings) as session:
        run = session.spawn("Look.", tools=[])
        run.result()

    (call,) = run.agent("1").tool_calls
    assert (call.name, call.result, asked) == ("t__echo", "hi", ["t__echo"])
    assert not any("t__" in spec.name for spec in provider.requests[0].tools)


def test_sub_agents_have_the_tools_of_their_parent() -> None:
    provider = by_agent({"root": [spawn("look"), "done"], "look": [use("t__echo"), "seen"]})
    with session_with(server(), provider=provider) as session:
        run = session.spawn("Look.")
        run.result()

    assert run.agent("1").tool_calls[0].result == "hi"


def test_tools_that_no_provider_would_take_are_renamed_or_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with session_with(server("bad-list"), script=["fine"]) as session:
        session.run_sync("Look.")
        (request,) = session.settings.provider.requests  # type: ignore[union-attr]

    tools = {spec.name: spec for spec in request.tools}
    echo, bare, plain, other, long = tools
    assert (echo, bare, plain) == ("t__echo", "t__bare", "t__a_b_c")
    assert other.startswith("t__a_b_c_")
    assert len(long) == 64
    assert tools[echo].description == "Does echo.", "the first of two of one name"
    assert tools[bare].input_schema == {"type": "object"}
    assert len(tools[long].description) == 4000
    assert "'echo' that is left out: another one has the same name" in caplog.text


def test_tools_that_break_the_protocol_are_left_out_and_named_and_the_others_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = [use("t__echo", "t__wait"), "done"]
    with session_with(server("broken-tools", "awake"), script=script) as session:
        found = results(session.spawn("Call them."))
        requests = session.settings.provider.requests  # type: ignore[union-attr]
        names = [spec.name for spec in requests[0].tools]

    assert names == ["t__echo", "t__wait"]
    # What was done is told, whatever a schema of results says.
    assert found == {"t__echo": "hi", "t__wait": "hi"}
    told = [record.message for record in caplog.records if record.name == "agentnb"]
    assert [each.partition(" that is left out: ") for each in told] == [
        ("The MCP server 't' has a tool 'odd'", " that is left out: ",
         "it breaks the protocol (inputSchema.type: Input should be 'object')."),
        ("The MCP server 't' has a tool without a name (place 1)", " that is left out: ",
         "it breaks the protocol (name: Field required)."),
        ("The MCP server 't' has a tool 'steps'", " that is left out: ",
         "it breaks the protocol (annotations.readOnlyHint: Input should be a valid boolean, "
         "unable to interpret input)."),
    ]  # fmt: skip


def test_list_of_a_run_stays_and_the_next_run_has_the_new_one() -> None:
    script = [use("t__grow"), use("t__shrink"), "one", use("t__write", "t__grown"), "two"]
    with session_with(server(), script=[*script[:2], use("t__write"), *script[2:]]) as session:
        found = results(session.spawn("Change it."))
        session.run_sync("Look.")
        requests = session.settings.provider.requests  # type: ignore[union-attr]

    assert "Unknown tool: write" in found["t__write"], "a tool that went away is an error result"
    of_runs = [{spec.name for spec in requests[at].tools} for at in (0, 3, 4)]
    assert of_runs[0] == of_runs[1]
    assert of_runs[2] - of_runs[0] == {"t__grown"}
    assert of_runs[0] - of_runs[2] == {"t__write"}


def test_runs_of_a_session_share_one_process_that_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "EOF_PATIENCE_S", DEADLINE_S)
    log = tmp_path / "log"
    with session_with(server(f"log={log}"), script=["one", "two"]) as session:
        session.run_sync("One.")
        session.run_sync("Two.")
        (pid,) = pids_in(log)
        assert is_alive(pid)

    assert not is_alive(pid)
    assert said_in(log)[-1] == "end of input", "it was asked, not killed"


def test_server_gets_its_own_environment_and_the_values_are_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OF_THE_SERVER", "not this one")
    of = server(env={"OF_THE_SERVER": "a-value-to-hide"})
    with session_with(of, script=[use("t__where"), "done"]) as session:
        run = session.spawn("Where?")
        run.result()
        sent = session.settings.provider.requests[1].messages[-1]  # type: ignore[union-attr]

    assert "a-value-to-hide" in str(sent), "what a model is sent is not changed"
    run.to_json(tmp_path / "run.json")
    written = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert "a-value-to-hide" not in written
    assert "[secret OF_THE_SERVER]" in written
    assert "a-value-to-hide" not in repr(of)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with session_with(server(), script=["never"]) as session:
        with pytest.raises(ImportError, match=r"pip install 'agentnb\[mcp\]'"):
            session.spawn("Go.")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "either a `command` or a `url`"),
        ({"command": "x", "url": "http://localhost"}, "either a `command` or a `url`"),
        ({"command": "x", "args": "text"}, "`args` must be a list"),
        ({"command": "x", "env": {"A": 1}}, "'A' has none"),
        ({"command": "x", "headers": {"A": "b"}}, "`headers` belong to a `url`"),
        ({"url": "localhost:80"}, "must be an address"),
        ({"command": "x", "name": "a__b"}, "cannot be the name"),
        ({"command": "x", "timeout_s": 0}, "above 0"),
        ({"command": "x", "approval": "yes"}, "`approval` must be"),
    ],
)
def test_wrong_argument_is_refused_with_the_fix(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        agentnb.mcp(**arguments)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"command": "npx", "args": ["-y", "@org/server-filesystem@2.1", "/data"]}, "filesystem"),
        ({"command": ["uvx", "mcp-server-git"]}, "git"),
        ({"command": "python", "args": ["tools/weather.py"]}, "weather"),
        ({"command": "/usr/bin/thing-mcp"}, "thing"),
        ({"url": "https://mcp.example.org:8000/x"}, "mcp-example-org"),
    ],
)
def test_server_without_a_name_is_called_as_what_it_is(given: dict[str, Any], name: str) -> None:
    assert agentnb.mcp(**given).name == name


def test_two_servers_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="Two tools have the name 't'"):
        Session(provider=ScriptedProvider([]), tools=[server(), server("other")])


def test_models_arguments_arrive_as_they_are() -> None:
    given = {"text": json.dumps({"a": [1, "ü", None]})}
    with session_with(server(), script=[use("t__echo", **given), "done"]) as session:
        assert results(session.spawn("Go."))["t__echo"] == given["text"]
