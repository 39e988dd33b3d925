"""System prompts, and the messages that start or correct an agent's work.

A system prompt consists of sections in a fixed order; empty ones are left out. Every value from
outside is escaped, so that none can close its section or open another. A prompt depends only on its
arguments, and `<task>` is last: siblings share everything before it, which a provider can cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from html import escape
from typing import Any

from agentnb.core.protocols import MOST_FOR_MODEL
from agentnb.core.quotation import escaped
from agentnb.core.text import one_line
from agentnb.core.types import (
    FINAL_ANSWER,
    AgentConfig,
    AgentStatus,
    Briefing,
    CompletionRequest,
    Role,
    TextBlock,
)

DEFAULT_INSTRUCTIONS = """\
You work for a person in a Jupyter notebook. Answer in Markdown and to the point. When you are \
unsure, or something could not be found out, say so."""

SUB_AGENT_INSTRUCTIONS = """\
You are a sub-agent: another agent has given you one focused sub-task, which stands at the end. \
Answer it directly, thorough and to the point. Your answer goes back to that agent, which sees \
nothing else of your work, and you cannot ask it anything: where something is missing, make a \
sensible assumption and name it."""

CAPABILITIES = """\
You can delegate to sub-agents. Delegate only when the task gains from it, as with independent \
parts or steps that build on each other; otherwise answer yourself. To delegate, end your reply \
with one block in exactly one of these forms, outside any code fence or backticks (there it is \
an example and is not run):

<spawn_agents mode="parallel">
  <agent task="List the main arguments for a carbon tax, with one source each." />
  <agent task="List the main arguments against a carbon tax, with one source each." />
</spawn_agents>

<spawn_agents mode="sequential">
  <agent task="Write a Python function that merges overlapping intervals." />
  <agent task="Review the function in the previous result and correct its mistakes." />
</spawn_agents>

Parallel: all at once. Sequential: one by one, each handed the result of the one before it. \
Otherwise a sub-agent shares your personality but sees nothing of its siblings or of this \
conversation, so make each task specific and self-contained. Inside a task write &quot; for a \
double quote.

Text before the block is welcome: explain your approach there. Afterwards the results come back \
to you, and you bring them together in one answer."""

MAY_DELEGATE = "Your sub-agents may delegate further: there are {levels} levels below you."
MAY_NOT_DELEGATE = "Your sub-agents cannot delegate further: there is 1 level below you."


class SystemPromptBuilder:
    """Builds system prompts. It has no state: use the class or an instance.

    `config` is the agent that a prompt is for. The text does not depend on it, so agents on
    different models get the same words.
    """

    @staticmethod
    def build(
        config: AgentConfig,
        soul: str = "",
        identity: str = "",
        user: str = "",
        *,
        session_memory: str = "",
        long_term_memory: str = "",
        instructions: str = "",
    ) -> str:
        """Build a root's prompt that does not mention delegation.

        Args:
            config: The agent that the prompt is for.
            soul: Its personality.
            identity: Its identity.
            user: A text about the person that it works for.
            session_memory: Its memories of this conversation.
            long_term_memory: Its memories from earlier conversations.
            instructions: How to work; the built-in instructions when empty.
        """
        return joined(
            _section("soul", soul),
            _section("identity", identity),
            _section("user_context", user),
            _section("session_memory", session_memory),
            _section("long_term_memory", long_term_memory),
            _section("instructions", instructions)
            or _section("instructions", DEFAULT_INSTRUCTIONS),
        )

    @staticmethod
    def build_with_capabilities(
        config: AgentConfig,
        soul: str = "",
        identity: str = "",
        user: str = "",
        *,
        session_memory: str = "",
        long_term_memory: str = "",
        instructions: str = "",
        depth: int = 0,
        max_depth: int = 3,
    ) -> str:
        """Build a root's prompt like `build`, with a section on how to delegate.

        That section is left out if `depth` is not below `max_depth`.
        """
        prompt = SystemPromptBuilder.build(
            config,
            soul,
            identity,
            user,
            session_memory=session_memory,
            long_term_memory=long_term_memory,
            instructions=instructions,
        )
        return joined(prompt, _capabilities(max_depth - depth))

    @staticmethod
    def build_for_sub_agent(
        config: AgentConfig,
        soul: str,
        identity: str,
        task: str,
        depth: int,
        *,
        max_depth: int = 3,
        long_term_memory: str = "",
        briefings: Sequence[Briefing] = (),
        profiles: str = "",
        by_block: bool = True,
    ) -> str:
        """Build a sub-agent's prompt: nothing about the person or the parent's conversation.

        Args:
            config: The agent that the prompt is for.
            soul: The personality, shared with the parent.
            identity: The identity, shared with the parent.
            task: Its task.
            depth: Its depth in the tree, 1 for a child of the root.
            max_depth: The deepest level; the prompt of an agent there does not mention delegation.
            long_term_memory: The parent's recalled memories that it inherits.
            briefings: Texts before its task, in this order.
            profiles: Description of the profiles, if it may choose one.
            by_block: Whether it may delegate by a spawn block.
        """
        levels = max_depth - depth if by_block else 0
        shared = _shared_by_siblings(soul, identity, long_term_memory, levels)
        sections = (_section(each.section, each.text, each.name) for each in briefings)
        return joined(shared, *sections, profiles, _section("task", task))

    @staticmethod
    def build_for_row(system: str, depth: int, *, max_depth: int, profiles: str = "") -> str:
        """Build the prompt of a mapped row's agent: the person's text, and how to delegate.

        Args:
            system: The text that all rows share.
            depth: The agent's depth in the tree.
            max_depth: The deepest level; the prompt of an agent there does not mention delegation.
            profiles: Description of the profiles, if it may choose one.
        """
        return joined(system, _capabilities(max_depth - depth), profiles)


@lru_cache(maxsize=64)
def _shared_by_siblings(soul: str, identity: str, long_term_memory: str, levels: int) -> str:
    return joined(
        _section("soul", soul),
        _section("identity", identity),
        _section("long_term_memory", long_term_memory),
        _section("sub_agent_instructions", SUB_AGENT_INSTRUCTIONS),
        _capabilities(levels),
    )


def shared_prefix_length(sub_agent_prompt: str) -> int:
    """Count the leading characters of a sub-agent's prompt that it shares with its siblings.

    Returns:
        The index at which the `<task>` section starts; 0 if there is none.
    """
    # Values are escaped, so the last opening tag of that name is the section's own.
    return max(0, sub_agent_prompt.rfind("<task>\n"))


def child_message(
    task: str,
    previous_result: str | None = None,
    *,
    status: AgentStatus = AgentStatus.COMPLETED,
    cut: bool = False,
    context: str = "",
) -> str:
    """Write a sub-agent's first user message.

    Args:
        task: Its task.
        previous_result: The result of the agent before it in a sequence; `None` for the first one,
            and for agents that run in parallel.
        status: The status of the agent before it; shown unless its answer is complete.
        cut: Whether that agent's answer was cut at a limit.
        context: What its parent wants it to know; used only without a previous result.
    """
    before = _section("context", context)
    if previous_result is not None:
        is_whole = status is AgentStatus.COMPLETED and not cut
        marks = "" if is_whole else f' status="{status}"' + (' cut="true"' if cut else "")
        before = f"<previous_result{marks}>\n{escaped(previous_result)}\n</previous_result>"
    return joined(before, task)


FINAL_ANSWER_TOOL = "Give your answer. This ends your work."
GIVE_FINAL_ANSWER = (
    "Give this answer of yours now in the form that is asked for, complete, with nothing else."
)


NO_TEXT = "Your last reply was empty. Give your answer to the task now."
ANSWER_IS_NOTED = "Your answer is noted."
ANSWER_WAS_CUT = "It was cut off before its end: give a shorter one."


def no_other_tool(name: str) -> str:
    """The error, for the model, of a call of a tool that is not offered any more."""
    return f"You called {one_line(name)!r}, which is not run any more. Call `{FINAL_ANSWER}`."


def json_instruction(schema: Mapping[str, Any]) -> str:
    """Ask a model that cannot call tools for an answer as JSON."""
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return f"Answer with one JSON object and nothing else. Its JSON schema:\n{text}"


def asked_in_words(request: CompletionRequest) -> CompletionRequest:
    """The request for a typed answer without its tool: the last user message asks for JSON."""
    assert request.output_schema is not None
    asks = TextBlock(json_instruction(request.output_schema))
    messages = list(request.messages)
    # The last message is the model's own if it continues a reply that it paused.
    for at in reversed(range(len(messages))):
        if messages[at].role is Role.USER:
            messages[at] = replace(messages[at], content=(*messages[at].content, asks))
            break
    return replace(request, tools=(), messages=tuple(messages))


def wrong_answer(why: str) -> str:
    """Ask for a typed answer again.

    Args:
        why: What is wrong with it, one line per mistake.
    """
    return f"The answer does not have the form that is asked for:\n{why}\nGive it again, corrected."


def corrective_message(reason: str) -> str:
    """Write the user message that asks for an answer after a spawn was not followed.

    Args:
        reason: Why it was not followed, as the rest of a sentence: "the block has no end tag".
    """
    return (
        "The sub-agents that you asked for were not started, because "
        f"{reason.strip().rstrip('.')}. "
        "Answer the task directly yourself now, without a spawn block."
    )


ANSWER_FROM_RESERVE = (
    "The budget of this run is used up, but for this answer. Call no tools and start no "
    "sub-agents: answer the task now with what you have, and name what is missing."
)

BLOCK_BESIDE_TOOLS = (
    "(The spawn block in this reply was not followed, because the reply also called tools. To "
    "delegate by a block, write it in a reply that calls none.)"
)


SAME_CALL_AGAIN = (
    "(You have made the same call three times, and each failed in the same way. Do not make it "
    "again: do otherwise, or answer with what you have and say what is missing.)"
)


def result_for_model(text: str) -> str:
    """A tool's result as the model gets it: only its beginning if it is very long."""
    if len(text) <= MOST_FOR_MODEL:
        return text
    return (
        f"{text[:MOST_FOR_MODEL]}\n\n(The result has {len(text):,} characters; these are the "
        f"first {MOST_FOR_MODEL:,}.)"
    )


def _capabilities(levels: int) -> str:
    if levels < 1:
        return ""
    outlook = MAY_NOT_DELEGATE if levels == 1 else MAY_DELEGATE.format(levels=levels)
    return f"<agent_capabilities>\n{CAPABILITIES} {outlook}\n</agent_capabilities>"


def _section(tag: str, value: str, name: str = "") -> str:
    if not value.strip():
        return ""
    start = f'{tag} name="{escape(name)}"' if name else tag
    return f"<{start}>\n{escaped(value.strip())}\n</{tag}>"


def joined(*sections: str) -> str:
    """Join sections into one prompt, without empty ones."""
    return "\n\n".join(filter(None, sections))


def listed(memories: Iterable[str]) -> str:
    """Memories as a list, for their section."""
    # A memory's further lines are indented, so that none looks like another memory.
    entries = ("\n  ".join(memory.strip().splitlines()) for memory in memories)
    return "\n".join(f"- {entry}" for entry in entries if entry)
