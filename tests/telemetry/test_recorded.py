"""What a record answers was not done now: it has no span."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import agentnb
from agentnb import Reply, Session, ToolContext, ToolUse
from agentnb.testing import by_agent, spawn
from tests.core.recovering import unbroken
from tests.core.tool_bodies import Tool
from tests.support import task_of
from tests.telemetry.spans import AGENT, CHAT, RUN, TOOL, Seen, attributes


@agentnb.tool
def look(word: str) -> str:
    """Look.

    Args:
        word: Any.
    """
    return f"{word} seen"


SCRIPT: dict[str, Any] = {
    "root": [spawn("a", "b"), "all"],
    "a": [Reply(tool_uses=(ToolUse("1", "look", {"word": "x"}),)), "one"],
    "b": "two",
}


def session_of(mode: str, cassette: Path, script: dict[str, Any] | None = None) -> Session:
    return Session(
        provider=by_agent(SCRIPT if script is None else script),
        tools=[look],
        store=None,
        mode=mode,
        cassette=cassette,
    )


def test_replay_has_no_calls(seen: Seen, tmp_path: Path) -> None:
    cassette = tmp_path / "a.cassette.jsonl"
    live = session_of("record", cassette).run_sync("go")
    recorded = len(seen.of(CHAT)), len(seen.of(TOOL))

    again = session_of("replay", cassette).run_sync("go")

    assert again.usage == live.usage
    assert recorded == (5, 1)
    assert (len(seen.of(CHAT)), len(seen.of(TOOL))) == recorded
    assert [attributes(run).get("agentnb.recorded_calls") for run in seen.of(RUN)] == [None, 6]
    assert len(seen.of(AGENT)) == 6
    counts = {
        attributes(each)["agentnb.path"]: attributes(each).get("agentnb.recorded_calls")
        for each in seen.of(AGENT)[3:]
    }
    assert counts == {"root": 2, "1": 3, "2": 1}


def test_auto_has_only_the_calls_that_were_asked_anew(seen: Seen, tmp_path: Path) -> None:
    cassette = tmp_path / "a.cassette.jsonl"
    session_of("record", cassette).run_sync("go")
    lines = cassette.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line).get("path") != "2"]
    cassette.write_text("".join(kept), encoding="utf-8")
    before = len(seen.of(CHAT))
    model = by_agent(SCRIPT)

    Session(provider=model, tools=[look], store=None, mode="auto", cassette=cassette).run_sync("go")

    assert len(kept) < len(lines)
    assert [task_of(request) for request in model.requests] == ["b"]
    assert len(seen.of(CHAT)) == before + 1
    assert seen.of(CHAT)[-1] in seen.below(seen.of(AGENT)[-1])
    assert attributes(seen.of(AGENT)[-1])["agentnb.path"] == "2"


async def test_recovered_run_has_only_the_calls_that_are_made_again(seen: Seen) -> None:
    calls: list[object] = []

    async def counted(given: object, _: ToolContext) -> str:
        calls.append(given)
        return "seen"

    run = await unbroken(SCRIPT, lambda: [Tool(counted)])

    assert (len(seen.of(CHAT)), len(seen.of(TOOL)), len(calls)) == (5, 1, 1)
    for moment in run.moments:
        seen.exporter.clear()
        calls.clear()
        _, provider = await run.recover(moment)
        assert len(seen.of(CHAT)) == len(provider.requests)
        assert len(seen.of(TOOL)) == len(calls)
        assert attributes(seen.one(RUN))["agentnb.run.recovered"] == 1
        found = len(seen.of(CHAT)) + len(seen.of(TOOL))
        assert attributes(seen.one(RUN)).get("agentnb.recorded_calls", 0) == 6 - found
