"""The message with sub-agents' results for their parent, and answers composed without a model.

Pure functions. Every piece that a model wrote is escaped, so that no answer can close its element
or start another spawn. In an answer for a person each agent's Markdown is a separate part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agentnb.core import parts
from agentnb.core.money import TOKENS, in_words
from agentnb.core.quotation import attribute, escaped
from agentnb.core.text import one_line
from agentnb.core.types import (
    AgentStatus,
    Block,
    MediaBlock,
    Message,
    Role,
    SubAgentResult,
    TextBlock,
    ToolResultBlock,
)

_MOST_OF_A_TOOL_RESULT = 2000
"""Most characters of a tool's result that are shown instead of a missing answer."""

TOKENS_PER_TASK = 64
TOKENS_OF_ANSWER = 512

_REQUEST = (
    "Your sub-agents have finished; their results stand above, in the order of their tasks. "
    "Synthesise them: bring them together into one complete answer to the original request. "
    "Where a task did not complete, name what is missing. Do not start further sub-agents."
)


_NO_PATH = "\N{EN DASH}"
"""Path of a result that is not from a run."""


def synthesis_need(conversation_tokens: int, tasks: int) -> int:
    """The least tokens that a synthesis needs, whatever the results are.

    Args:
        conversation_tokens: Tokens of the conversation before it.
        tasks: Number of results, each cut to almost nothing.
    """
    return conversation_tokens + TOKENS_PER_TASK * tasks + TOKENS_OF_ANSWER


def result_body(result: SubAgentResult) -> str:
    """A result's text: the response, else the error, else `(no output)`."""
    if result.response and result.response.strip():
        return result.response
    return f"Error: {result.error}" if result.error else "(no output)"


def build_synthesis_prompt(
    results: Sequence[SubAgentResult], *, body_limit: int | None = None
) -> str:
    """The message that gives a parent its sub-agents' results.

    Args:
        results: The results in task order, including skipped ones. An incomplete answer is marked
            `cut`.
        body_limit: Most characters of each body; a result that is cut here is marked `truncated`.
    """
    lines = ["<sub_agent_results>"]
    for result in results:
        body = result_body(result)
        is_cut = body_limit is not None and len(body) > body_limit
        mark = (' cut="true"' if result.cut else "") + (' truncated="true"' if is_cut else "")
        lines += [
            f'  <result task={attribute(result.task)} status="{result.status}"{mark}>',
            _indented(escaped(body[:body_limit] if is_cut else body)),
            "  </result>",
        ]
    return "\n".join([*lines, "</sub_agent_results>", "", _REQUEST])


def even_limit(lengths: Sequence[int], room: int) -> int:
    """The largest limit for which the lengths, each cut to it, add up to at most `room`.

    Short bodies stay whole; the room that they leave goes to the long ones.
    """
    left = room
    for done, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - done)
        if length > share:
            return max(0, share)
        left -= length
    return max(lengths, default=0)


def results_as_text(results: Sequence[SubAgentResult]) -> str:
    """The results as Markdown, in task order, for an answer without a synthesis."""
    return "\n\n".join(
        f"**{result.path or _NO_PATH} {parts.title(result.task)}** ({_standing(result)})\n\n"
        f"{_for_person(result)}"
        for result in results
    )


def is_none_done(results: Sequence[SubAgentResult], judges: int) -> bool:
    """Whether no row was completed, as a row is by more than half of its judges."""
    done = [each.status is AgentStatus.COMPLETED for each in results]
    rows = (done[at : at + judges] for at in range(0, len(done), judges))
    return not any(2 * sum(row) > judges for row in rows)


def why_none(results: Sequence[SubAgentResult], noun: str) -> str:
    """Why no task was completed: each reason once, the most frequent first.

    Args:
        results: The results of all tasks; of rows those of all judges.
        noun: What a task is called.
    """
    undone = [each for each in results if each.status is not AgentStatus.COMPLETED]
    reasons = Counter(one_line(each.error or str(each.status), limit=300) for each in undone)
    told = [
        f"{why.rstrip('.')} ({count:,} of {len(results):,})" if len(reasons) > 1 else why
        for why, count in reasons.most_common(3)
    ]
    told += [f"and {more:,} other reasons"] if (more := len(reasons) - len(told)) else []
    return f"No {noun} was completed: {'; '.join(told)}"


def said_and_results(said: str, results: Sequence[SubAgentResult]) -> str:
    """An agent's text as Markdown, followed by its sub-agents' results."""
    if not results:
        return said
    return "\n\n".join(filter(None, (parts.closed(said), results_as_text(results))))


def _standing(result: SubAgentResult) -> str:
    return f"{result.status}, cut at a limit" if result.cut else str(result.status)


def _for_person(result: SubAgentResult) -> str:
    if (result.response and result.response.strip()) or not result.error:
        return parts.part(result_body(result))
    return f"*{parts.line(result.error)}*"


def answer_without_model(
    *,
    why: str,
    said: str,
    results: Sequence[SubAgentResult],
    total: int,
    limit: str = "",
    unit: str = TOKENS,
    above: Sequence[str] = (),
) -> str:
    """The answer of a run that ended before the root's synthesis.

    Args:
        why: Why it ended.
        said: The root's text so far.
        results: Results of its sub-agents.
        total: The budget's total, in its unit.
        limit: Name of the setting that ended the run; empty for the budget.
        unit: The budget's unit.
        above: Names of the budgets above the run's; if one of them ended the run, `why` names it.
    """
    has = said_and_results(said.strip(), results)
    is_own = not any(name in why for name in above)
    if not has and limit:
        return f"Nothing of this task was done: {why}. Give it a larger `{limit}`."
    if not has and not is_own:
        return f"Nothing of this task was done: {why}. Raise that budget."
    if not has:
        return (
            f"The budget of {in_words(total, unit)} does not cover this task, and nothing of it "
            f"was done: {why}. Give it a larger budget."
        )
    undone = [r for r in results if r.status is not AgentStatus.COMPLETED]
    missing = f" {len(undone)} of {len(results)} tasks were not completed." if undone else ""
    what = "run" if limit or not is_own else f"budget of {in_words(total, unit)}"
    note = f"*The {what} ended here: {why}.{missing}*"
    return f"{has}\n\n{note}"


def answer_out_of_turns(
    text: str, messages: Sequence[Message], *, results: Sequence[SubAgentResult], turns: int
) -> str:
    """The answer of an agent that used all its turns and was not done.

    It consists of the agent's last text, its sub-agents' results if it has not seen them yet, and a
    note that says where it ended. Without text and sub-agents' results, it has the results of the
    last tool calls.

    Args:
        text: The text of its last turn.
        messages: Its conversation.
        results: Its sub-agents' results.
        turns: The number of turns that it took.
    """
    said, unseen = text.strip() or _last_text(messages), _last_tools(messages)
    added = results if unseen or not said else ()
    has = said_and_results(said, added) if added else parts.closed(said) or unseen
    note = f"*The agent ended here: it took all of its {turns} turns and was not done.*"
    return "\n\n".join(filter(None, (has, note)))


_NO_PICTURES_BELOW = 10_000
"""If results are cut to fewer characters than this, their files are left out: each file costs as
much as some thousand characters."""


def with_short_tool_results(messages: Sequence[Message], limit: int) -> tuple[Message, ...]:
    """The conversation with each tool result cut to `limit` characters.

    If the limit is low, the files of the results are left out, too.
    """
    return tuple(
        replace(message, content=tuple(_short_content(message.content, limit)))
        if any(isinstance(block, ToolResultBlock) for block in message.content)
        else message
        for message in messages
    )


def _short_content(content: Sequence[Block], limit: int) -> Iterator[Block]:
    files = sum(isinstance(block, MediaBlock) for block in content)
    leaves_out = bool(files) and limit < _NO_PICTURES_BELOW
    for block in content:
        if not (leaves_out and isinstance(block, MediaBlock)):
            yield _shortened(block, limit)
    if leaves_out:
        them = "1 file was" if files == 1 else f"{files} files were"
        yield TextBlock(f"({them} left out: the budget is used up)")


def _shortened(block: Block, limit: int) -> Block:
    if not isinstance(block, ToolResultBlock) or len(block.text) <= limit:
        return block
    return replace(block, text=f"{block.text[:limit]}\n\n(cut here: the budget is used up)")


def _last_text(messages: Sequence[Message]) -> str:
    """An agent's last text since the last user message that is not only tool results."""
    for message in reversed(messages):
        if message.role == Role.ASSISTANT and (said := message.text.strip()):
            return said
        if message.role == Role.USER and any(isinstance(b, TextBlock) for b in message.content):
            break
    return ""


def _last_tools(messages: Sequence[Message]) -> str:
    last = messages[-1].content if messages else ()
    texts = [block.text.strip() for block in last if isinstance(block, ToolResultBlock)]
    return "\n\n".join(parts.closed(text[:_MOST_OF_A_TOOL_RESULT]) for text in texts if text)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))
