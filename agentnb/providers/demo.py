"""A model for a first try: without key or network, always with the same answer.

It answers any prompt with a small tree, so that a user can watch, steer and cancel before they
have a key. It first calls each offered tool once, with arguments made from the tool's schema, and
reports the results in its answer. Its texts start with `(demo)`, so that no one takes them for
answers. It quotes text from a prompt or a tool's result on one line, so that it never becomes a
spawn block.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any, TypeGuard
from xml.sax.saxutils import escape

from agentnb.core.budget import BYTES_PER_TOKEN, estimate_input_tokens, estimate_tokens
from agentnb.core.text import literal, one_line
from agentnb.core.types import (
    Block,
    CompletionRequest,
    Message,
    Role,
    SpawnMode,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
    ToolUseBlock,
    Usage,
    assistant_message,
)
from agentnb.providers.demo_answers import answer_for
from agentnb.providers.demo_arguments import CannotFill, arguments_for

PACE_VARIABLE = "AGENTNB_DEMO_PACE_S"

_MAX_PACE_S = 60.0
_TOPIC_WIDTH = 60
_TASK_WIDTH = 120
_LISTED_RESULTS = 12
_MOST_CALLS = 5
"""Most tools that an agent calls; more would only make the demonstration longer."""
_SHOWN_OF_CALL = 120
_SHOWN_OF_RESULT = 200

_ROOT_TASKS = (
    "Collect the facts about: {}",
    "Find arguments for and against: {}",
    "Work out an outline for: {}",
)
_DEBATE = "Find arguments for and against: "
_DEBATE_TASKS = ("List what speaks for: {}", "List what speaks against: {}")

_SPAWN, _AWAIT = "spawn", "spawn_await"
_JOB_TOOLS = frozenset({_SPAWN, _AWAIT, "spawn_status", "spawn_cancel"})
_JOB = re.compile(r"^\[[0-9a-f]{6}: ([A-Z ]+)\]$", re.MULTILINE)
_JOB_STATUS = {"OK": "completed"}

_RESULT = re.compile(r'<result task="([^"]*)" status="([a-z]+)"')
_PREVIOUS_RESULT = re.compile(r"<previous_result(?: [^>]*)?>.*?</previous_result>", re.DOTALL)
_WORD_GROUP = re.compile(r"\s*\S+(?:\s+\S{1,3}(?!\S))?\s*")
# A backslash before a quote would be read as an escape.
_IN_ATTRIBUTE = {'"': "&quot;", "\\": "&#92;"}
_SOFT_BRACKETS = str.maketrans("<>", "\u2039\u203a")


class DemoProvider:
    """Answers any prompt offline, with a tree of six agents where it may delegate.

    Args:
        pace_s: Seconds between two pieces of a reply (one or two words); 0 for no wait. The
            environment variable `AGENTNB_DEMO_PACE_S` overrides it.

    Raises:
        ValueError: The pace is not a number of seconds from 0 to 60.
    """

    name = "demo"

    def __init__(self, pace_s: float = 0.02) -> None:
        self._pace_s = pace_s
        _ = self.pace_s  # raise for a bad value now, not at the first call

    @property
    def pace_s(self) -> float:
        """Seconds between two pieces; read each time, since the environment may change."""
        if from_environment := os.environ.get(PACE_VARIABLE, "").strip():
            return _checked_pace(from_environment, source=PACE_VARIABLE)
        return _checked_pace(self._pace_s, source="pace_s")

    def supports_tools(self, model: str) -> bool:
        """False: it writes a typed answer as JSON text, so that a person sees it stream."""
        return False

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        """Stream the reply piece by piece, with usage estimated as the core estimates it."""
        input_tokens = estimate_input_tokens(request)
        yield Usage(input_tokens=input_tokens)
        reply, calls = demo_turn(request)
        text = _first_bytes(reply, request.max_tokens * BYTES_PER_TOKEN)
        pace_s = self.pace_s
        for group in _WORD_GROUP.findall(text):
            await asyncio.sleep(pace_s)
            yield TextDelta(group)
        is_whole = text == reply
        said = text + "".join(str(call.input) for call in calls if is_whole)
        yield Usage(input_tokens=input_tokens, output_tokens=estimate_tokens(said))
        if is_whole and calls:
            for call in calls:
                yield call
            uses = [ToolUseBlock(call.id, call.name, call.input) for call in calls]
            yield Stopped("tool_use", Message(Role.ASSISTANT, (TextBlock(text), *uses)))
        else:
            yield Stopped("end_turn" if is_whole else "max_tokens", assistant_message(text))


@dataclass(frozen=True)
class _Conversation:
    """A request's conversation, as the demo model reads it."""

    task: str
    """The newest user message without tool results."""
    is_first: bool
    """Whether that is the first message."""
    own: Sequence[ToolSpec]
    """The offered tools, without those that start sub-agents."""
    called: Sequence[ToolUseBlock]
    """Calls made to these tools."""
    job_calls: Sequence[ToolUseBlock]
    """Calls made to the tools that start sub-agents."""
    results: Mapping[str, ToolResultBlock]
    """By the id of the call."""
    words: str
    """The first user message: arguments of calls are made from it."""

    @classmethod
    def of(cls, request: CompletionRequest, jobs: Container[str]) -> _Conversation:
        blocks = [block for message in request.messages for block in message.content]
        calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
        # The first text: later ones describe given objects.
        said = [
            (at, next((block.text for block in message.content if _is_text(block)), ""))
            for at, message in enumerate(request.messages)
            if message.role is Role.USER
            and not all(isinstance(block, ToolResultBlock) for block in message.content)
        ] or [(0, "")]
        if "<task>" in request.system:
            said = [(at, _after_previous_result(text)) for at, text in said]
        return cls(
            task=said[-1][1],
            is_first=said[-1][0] == 0,
            own=[tool for tool in request.tools if tool.name not in jobs],
            called=[call for call in calls if call.name not in jobs],
            job_calls=[call for call in calls if call.name in jobs],
            results={
                block.tool_use_id: block for block in blocks if isinstance(block, ToolResultBlock)
            },
            words=said[0][1],
        )

    def calls(self) -> tuple[list[ToolUse], list[str]]:
        """The calls to make, and a line for each tool that is not called."""
        made, refused = list[ToolUse](), list[str]()
        for at, tool in enumerate(self.own):
            if len(made) == _MOST_CALLS:
                others = ", ".join(tool.name for tool in self.own[at:])
                what = f"- not called, since {_MOST_CALLS} are enough to show it: {others}"
                refused.append(_quoted(what, _SHOWN_OF_RESULT))
                break
            try:
                arguments = arguments_for(tool.input_schema, self.words)
            except CannotFill as why:
                refused.append(f"- {tool.name} was not called: {_quoted(str(why), 160)}")
            else:
                made.append(ToolUse(f"demo_tool_{at}", tool.name, arguments))
        return made, refused

    def report(self) -> str:
        """The results of the tools, a line for each; empty without tools."""
        results = [self._result_line(call) for call in self.called if call.id in self.results]
        lines = [*results, *self.calls()[1]]
        return "\n".join([_TOOLS_HEAD, "", *lines]) + "\n\n" if lines else ""

    def _result_line(self, call: ToolUseBlock) -> str:
        result = self.results[call.id]
        verb = "failed" if result.is_error else "gave"
        words = _quoted(result.text, _SHOWN_OF_RESULT) or "(nothing)"
        return f"- {_as_call(call.name, call.input)} {verb}: {words}"


def demo_turn(request: CompletionRequest) -> tuple[str, tuple[ToolUse, ...]]:
    """Return what the demo model says and which tools it calls: the user's first, then `spawn`.

    It delegates by tools if they are offered and the system prompt describes no spawn block.
    """
    if request.output_schema is not None:
        return _typed(request.output_schema, request.messages), ()
    offered = {tool.name for tool in request.tools}
    jobs = _JOB_TOOLS if offered >= _JOB_TOOLS else frozenset[str]()
    conversation = _Conversation.of(request, jobs)
    calls = () if conversation.called else conversation.calls()[0]
    if calls:
        listed = ", ".join(_as_call(call.name, call.input) for call in calls)
        return _CALLING.format(listed), tuple(calls)
    about_tools = conversation.report()
    if not jobs or "<agent_capabilities>" in request.system or "<task>" in request.system:
        said = _reply(
            request.system,
            conversation.task,
            is_first=conversation.is_first,
            about_tools=about_tools,
        )
        return said, ()
    job_calls = conversation.job_calls
    if not job_calls:
        topic = conversation.task
        tasks = enumerate(task.format(_about(topic)) for task in _ROOT_TASKS)
        return _PLAN, tuple(ToolUse(f"demo_{at}", _SPAWN, {"task": task}) for at, task in tasks)
    if job_calls[-1].name == _SPAWN:
        waiting = "(demo) All of them are at work, each on its own part. I wait for their results."
        return waiting, (ToolUse("demo_wait", _AWAIT, {"job_ids": "*"}),)
    tasks_given = [str(call.input.get("task")) for call in job_calls if call.name == _SPAWN]
    words = [_JOB_STATUS.get(word, "failed") for word in _JOB.findall(request.last_user_text)]
    return _synthesis(list(zip(tasks_given, words, strict=False)), about_tools), ()


def _reply(system: str, task: str, *, is_first: bool, about_tools: str) -> str:
    """The reply of a turn without tool calls; `about_tools` reports the calls made before."""
    results = _RESULT.findall(task.partition("<sub_agent_results>")[2])
    if results:
        return _synthesis([(unescape(task), status) for task, status in results], about_tools)
    if "<agent_capabilities>" in system and is_first:
        if "<task>" not in system:
            return _plan(task)
        if task.startswith(_DEBATE):
            return _debate(task.removeprefix(_DEBATE))
    return _answer(task, about_tools)


def _typed(schema: Mapping[str, Any], messages: Sequence[Message]) -> str:
    """A typed answer as JSON, made up from the words of the first message."""
    # The first block: the words that ask for JSON are a separate block.
    texts = [b.text for m in messages if m.role is Role.USER for b in m.content[:1] if _is_text(b)]
    try:
        answer = answer_for(schema, _after_previous_result(texts[0]) if texts else "")
        return json.dumps(answer, ensure_ascii=False)
    except CannotFill as why:
        return f"(demo) The demo model cannot make up such an answer: {_quoted(str(why), 160)}"


def _is_text(block: Block) -> TypeGuard[TextBlock]:
    return isinstance(block, TextBlock)


def _after_previous_result(message: str) -> str:
    handed = _PREVIOUS_RESULT.match(message)
    return message[handed.end() :].strip() if handed else message


# -- what it says ----------------------------------------------------------------------------


_PLAN = (
    "(demo) This is the demo model: no model was asked, and nothing has left this computer. As a "
    "real model would with a large task, it splits yours into three and hands them to sub-agents."
)


_CALLING = (
    "(demo) A model would call a tool when it needs one. The demo model calls what it is offered, "
    "with arguments made up from the task: {}."
)
_TOOLS_HEAD = "The tools, called with made-up arguments:"


def _plan(prompt: str) -> str:
    return f"{_PLAN}\n\n" + _spawn_block(SpawnMode.PARALLEL, _ROOT_TASKS, topic=prompt)


def _debate(topic: str) -> str:
    return "(demo) Each side gets a look of its own, one after the other.\n\n" + _spawn_block(
        SpawnMode.SEQUENTIAL, _DEBATE_TASKS, topic=topic
    )


def _answer(task: str, about_tools: str = "") -> str:
    return (
        f"(demo) Here a model would answer: {_as_words(task)}\n\n"
        f"{about_tools}"
        "It would work from what it was handed and from nothing else, come to the point in a "
        "paragraph such as this one, and say what it is not sure of. The demo model knows "
        "nothing; it only shows how the work is shared out."
    )


def _synthesis(results: Sequence[tuple[str, str]], about_tools: str = "") -> str:
    lines = [f"- {_as_words(task)} ({status})" for task, status in results[:_LISTED_RESULTS]]
    if len(results) > _LISTED_RESULTS:
        lines.append(f"- and {len(results) - _LISTED_RESULTS} more")
    missing = sum(status != "completed" for _, status in results)
    count = f"{missing} of {len(results)} did not complete" if missing else "All completed"
    return (
        "(demo) These results of sub-agents are back:\n\n" + "\n".join(lines) + "\n\n"
        f"{about_tools}"
        f"{count}. Here a model would bring them together in one answer. For a real one, choose "
        "a model and set its key."
    )


# -- how it says it --------------------------------------------------------------------------


def _spawn_block(mode: SpawnMode, tasks: Sequence[str], *, topic: str) -> str:
    about = _about(topic)
    agents = [f'  <agent task="{escape(task.format(about), _IN_ATTRIBUTE)}" />' for task in tasks]
    return "\n".join([f'<spawn_agents mode="{mode}">', *agents, "</spawn_agents>"])


def _about(topic: str) -> str:
    return _printable(one_line(topic, limit=_TOPIC_WIDTH)) or "(nothing)"


def _as_words(task: str) -> str:
    """The task's beginning without angle brackets: a quoted tag would be read as a spawn block."""
    return _quoted(task, _TASK_WIDTH) or "(nothing)"


def _quoted(text: str, limit: int) -> str:
    return _printable(one_line(text, limit=limit)).translate(_SOFT_BRACKETS)


def _as_call(name: str, arguments: Mapping[str, Any]) -> str:
    """A call in Python syntax."""
    given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"{name}({_quoted(given, _SHOWN_OF_CALL)})"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _first_bytes(text: str, limit: int) -> str:
    return text.encode()[: max(limit, 0)].decode(errors="ignore")


def _checked_pace(value: float | str, *, source: str) -> float:
    try:
        pace_s = float(value)
    except ValueError:
        pace_s = math.nan
    if not 0 <= pace_s <= _MAX_PACE_S:
        raise ValueError(
            f"`{source}` is {literal(value)}; it has to be a number of seconds from 0 to "
            f"{_MAX_PACE_S:g}, such as 0.02."
        )
    return pace_s
