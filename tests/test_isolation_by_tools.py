"""A sub-agent started by a tool sees only what it was given: checked on the wire, word by word.

The real SDK sends every request to a local server. Each secret stands for one place from which
something could leak; a table has the secrets and the tools that each agent may see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentnb import Session, ToolContext, tool
from agentnb.core.events import AgentSpawned
from agentnb.run import Run
from tests.loopback import LoopbackServer, Reply
from tests.support import spawn

SOUL, IDENTITY, USER, MEMORY = "soul-7f1a", "identity-2c9d", "user-b04e", "memory-5d2f"
MESSAGE, ROOT_SAID, FINAL = "message-c4d1", "rootplan-88f0", "final-dd77"
TOOL_RESULT, NOTE, KEPT = "looked-up-91e0", "note-33b8", "kept-5c17"
AGENTS, STYLE, PROMPT_FILE = "agents-file-60a2", "style-file-71b3", "prompt-file-82c4"
STRICT, KIND, KIND_SAID = "strict-prompt-93d5", "kind-prompt-a4e6", "kind-description-b5f7"
CONTEXT, ORDERED, CONTEXT_BELOW = "context-p-d719", "ordered-prompt-e82a", "context-p1-f93b"
TASKS = {
    "P": "task-p-aa01",
    "Q": "task-q-aa02",
    "R": "task-r-aa03",
    "P1": "task-p1-aa04",
    "P2": "task-p2-aa05",
}
ANSWERS = {name: f"answer-{name.lower()}-bb0{n}" for n, name in enumerate(TASKS)}
JOBS = {name: f"the id of the job of {name}" for name in TASKS}
"""Names for the ids, which are known only when the jobs exist."""

SECRETS = {
    *(SOUL, IDENTITY, USER, MEMORY, MESSAGE, ROOT_SAID, FINAL, TOOL_RESULT, NOTE, KEPT),
    *(AGENTS, STYLE, PROMPT_FILE, STRICT, KIND, KIND_SAID, CONTEXT, ORDERED, CONTEXT_BELOW),
    *(*TASKS.values(), *ANSWERS.values()),
}
SHARED = {SOUL, IDENTITY, MEMORY}
SPAWN_TOOLS = {"spawn", "spawn_await", "spawn_status", "spawn_cancel"}

SETTINGS = f"""\
tools:
  spawn:
    profiles:
      strict:
        system_prompt_file: strict.md
        system_prompt: {STRICT}
        bootstrap_files: [STYLE.md]
        tools: [count]
      kind:
        description: {KIND_SAID}
        system_prompt: {KIND}
"""


@tool
def look(ctx: ToolContext) -> str:
    """Look it up, leave a note for the agents, and keep something for the tools of this run."""
    ctx.workspace["note"] = KEPT
    ctx.notes["note"] = NOTE
    return TOOL_RESULT


@tool
def count(what: str) -> str:
    """Count something."""
    return what


Call = tuple[str, dict[str, str]]


def start(name: str, **more: str) -> Call:
    return "spawn", {"task": TASKS[name], **more}


def wait(*names: str) -> Call:
    return "spawn_await", {"job_ids": ", ".join(names) or "*"}


class Wire:
    """The server's script, and the requests that it got from each agent."""

    def __init__(self, script: dict[str, list[Reply]]) -> None:
        self._script = script
        self._said: dict[str, str] = {}
        """All requests of each agent, by agent."""
        self.run: Future[Run] = Future()
        self.tools: dict[str, set[str]] = {}
        self.first: dict[str, dict[str, Any]] = {}

    def answer(self, body: dict[str, Any]) -> Reply:
        words = strings(body)
        who = next((n for n, t in TASKS.items() if f"<task>\n{t}\n</task>" in words), "root")
        self.first.setdefault(who, body)
        self._said[who] = f"{self._said.get(who, '')}\n{words}"
        self.tools.setdefault(who, set()).update(t["name"] for t in body.get("tools", ()))
        replies = self._script.get(who)
        return self._with_ids(replies.pop(0)) if replies else Reply(text=ANSWERS[who])

    def _with_ids(self, reply: Reply) -> Reply:
        """Replace the names of jobs by their ids."""
        calls = [self._with_id(*call) for call in reply.tool_uses if isinstance(call, tuple)]
        return replace(reply, tool_uses=calls)

    def _with_id(self, name: str, given: Mapping[str, Any]) -> Call:
        names = given.get("job_ids", "*").split(", ")
        if name != "spawn_await" or names == ["*"]:
            return name, dict(given)
        return wait(*(self.ids[each] for each in names))

    @property
    def ids(self) -> dict[str, str]:
        """The id of each started job."""
        names = {task: name for name, task in TASKS.items()}
        spawned = (entry.event for entry in self.run.result(60).events)
        return {
            names[event.task_description]: event.job_id
            for event in spawned
            if isinstance(event, AgentSpawned) and event.job_id
        }

    @property
    def words(self) -> dict[str, set[str]]:
        """The secrets in all requests of each agent, by agent."""
        jobs = {JOBS[name]: job for name, job in self.ids.items()}
        secrets = {secret: secret for secret in SECRETS} | jobs
        return {
            who: {name for name, secret in secrets.items() if secret in said}
            for who, said in self._said.items()
        }


def strings(value: Any) -> str:
    """Every string in a JSON value, in any field."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return "\n".join(strings(each) for each in value) if isinstance(value, list) else ""


def run(
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
    *,
    config: Path | bool = False,
    tools: Sequence[Any] = (look, count),
    nested: bool = False,
    delegation: str = "tools",
) -> None:
    with LoopbackServer(wire.answer) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-this-test")
        session = Session(
            "anthropic/claude-sonnet-5-5",
            soul=SOUL,
            identity=IDENTITY,
            user=USER,
            memories=[MEMORY],
            tools=tools,
            delegation=delegation,
            nested_spawn=nested,
            config=config,
        )
        started = session.spawn(MESSAGE)
        wire.run.set_result(started)
        result = started.result(60)
    assert result.final_response == FINAL
    for name in wire.words:
        if name != "root":
            assert len(wire.first[name]["messages"]) == 1, f"{name} was handed a conversation"


def project(folder: Path) -> Path:
    for name, text in (
        ("agentnb.yaml", SETTINGS),
        ("strict.md", PROMPT_FILE),
        ("STYLE.md", STYLE),
        ("AGENTS.md", AGENTS),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


ROOT_HAS = SHARED | {USER, MESSAGE, ROOT_SAID, TOOL_RESULT}
AWAITED = {*(TASKS[n] for n in "PQR"), *(ANSWERS[n] for n in "PQR"), *(JOBS[n] for n in "PQR")}


def root_script(*starts: Call) -> list[Reply]:
    """The root looks something up, then starts its jobs, and waits for them."""
    return [
        Reply(text=ROOT_SAID, tool_uses=[("look", {})]),
        Reply(tool_uses=starts),
        Reply(tool_uses=[wait()]),
        Reply(text=FINAL),
    ]


def test_jobs_see_what_they_were_handed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(
        {
            "root": root_script(
                start("P", context=CONTEXT, system_prompt=ORDERED, tools="count"),
                start("Q", tools="look"),
                start("R"),
            ),
            "P": [Reply(tool_uses=[wait("P", "Q")]), Reply(text=ANSWERS["P"])],
        }
    )
    run(wire, monkeypatch)

    guessed = {JOBS["P"], JOBS["Q"]}  # P wrote these itself, and learned nothing by that
    assert wire.words == {
        "root": ROOT_HAS | AWAITED | {CONTEXT, ORDERED},
        "P": SHARED | guessed | {TASKS["P"], CONTEXT, ORDERED},
        "Q": SHARED | {TASKS["Q"]},
        "R": SHARED | {TASKS["R"]},
    }
    assert wire.tools == {
        "root": {"look", "count", *SPAWN_TOOLS},
        "P": {"count"},
        "Q": {"look"},
        "R": {"look", "count"},
    }


def test_job_has_its_own_profile_and_no_word_of_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wire = Wire(
        {
            "root": root_script(
                start("P", profile="strict"),
                start("Q", profile="kind", system_prompt=ORDERED),
                start("R"),
            )
        }
    )
    run(wire, monkeypatch, config=project(tmp_path))

    assert wire.words == {
        # The strict profile has no description: the first line of its prompt.
        "root": ROOT_HAS | AWAITED | {KIND_SAID, PROMPT_FILE, ORDERED},
        "P": SHARED | {TASKS["P"], STYLE, PROMPT_FILE, STRICT},
        "Q": SHARED | {TASKS["Q"], AGENTS, ORDERED},
        "R": SHARED | {TASKS["R"], AGENTS},
    }
    assert wire.tools["P"] == {"count"}
    assert wire.tools["Q"] == wire.tools["R"] == {"look", "count"}


@pytest.mark.parametrize("with_profiles", [False, True])
def test_nested_jobs_know_of_no_ones_jobs_but_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_profiles: bool
) -> None:
    wire = Wire(
        {
            "root": root_script(
                start("P", context=CONTEXT, system_prompt=ORDERED, tools="count"),
                start("Q"),
                start("R"),
            ),
            "P": [
                Reply(tool_uses=[start("P1", context=CONTEXT_BELOW), start("P2")]),
                Reply(tool_uses=[wait("P1", "P2", "Q", "P")]),
                Reply(text=ANSWERS["P"]),
            ],
        }
    )
    run(wire, monkeypatch, config=project(tmp_path) if with_profiles else False, nested=True)

    # An agent that may start sub-agents is told only which profiles there are.
    told = {KIND_SAID, PROMPT_FILE} if with_profiles else set[str]()
    files = {AGENTS} if with_profiles else set[str]()
    below = {*(TASKS[n] for n in ("P1", "P2")), *(ANSWERS[n] for n in ("P1", "P2"))}
    awaited = {JOBS[n] for n in ("P1", "P2", "Q", "P")}
    assert wire.words == {
        "root": ROOT_HAS | AWAITED | {CONTEXT, ORDERED} | told,
        "P": SHARED
        | {TASKS["P"], CONTEXT, ORDERED, CONTEXT_BELOW}
        | awaited
        | below
        | told
        | files,
        "Q": SHARED | {TASKS["Q"]} | told | files,
        "R": SHARED | {TASKS["R"]} | told | files,
        "P1": SHARED | {TASKS["P1"], CONTEXT_BELOW} | told | files,
        "P2": SHARED | {TASKS["P2"]} | told | files,
    }
    assert wire.tools["P"] == wire.tools["P1"] == {"count", *SPAWN_TOOLS}
    assert wire.tools["Q"] == {"look", "count", *SPAWN_TOOLS}


def test_notes_of_the_workspace_reach_who_was_given_it_and_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Reply(tool_uses=[("workspace_read", {"key": "note"})])
    wire = Wire(
        {
            "root": root_script(
                start("P", tools="workspace_read"), start("Q", tools="count"), start("R")
            ),
            "P": [read, Reply(text=ANSWERS["P"])],
            "Q": [read, Reply(text=ANSWERS["Q"])],
        }
    )
    run(wire, monkeypatch, tools=[look, count, "workspace"])

    assert wire.words["P"] == SHARED | {TASKS["P"], NOTE}
    assert wire.words["Q"] == SHARED | {TASKS["Q"]}
    assert wire.words["R"] == SHARED | {TASKS["R"]}
    assert wire.tools["P"] == {"workspace_read"}
    assert NOTE not in wire.words["root"]


def test_job_that_was_not_awaited_reports_only_its_own_result_to_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire(
        {
            "root": [
                Reply(tool_uses=[start("P")]),
                Reply(text=ROOT_SAID),
                Reply(text=FINAL),
            ],
            "P": [
                Reply(tool_uses=[start("P1")]),
                Reply(text="I stop here."),
                Reply(text=ANSWERS["P"]),
            ],
        }
    )
    run(wire, monkeypatch, nested=True)

    assert wire.words == {
        "root": SHARED | {USER, MESSAGE, ROOT_SAID, TASKS["P"], ANSWERS["P"], JOBS["P"]},
        "P": SHARED | {TASKS["P"], TASKS["P1"], ANSWERS["P1"], JOBS["P1"]},
        "P1": SHARED | {TASKS["P1"]},
    }


def test_child_by_block_of_a_job_has_nothing_of_what_the_job_was_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wire = Wire(
        {
            "root": root_script(
                start("P", profile="strict", context=CONTEXT),
                start("Q", system_prompt=ORDERED),
            ),
            "P": [Reply(text=spawn(TASKS["P1"])), Reply(text=ANSWERS["P"])],
            "Q": [Reply(text=spawn(TASKS["P2"])), Reply(text=ANSWERS["Q"])],
        }
    )
    run(wire, monkeypatch, config=project(tmp_path), delegation="both")

    assert wire.words["P1"] == SHARED | {TASKS["P1"]}
    assert wire.words["P2"] == SHARED | {TASKS["P2"]}
    assert wire.tools["P1"] == {"count"}
