"""Whether a tool call may run: the gate before every call of every agent.

A call needs approval if its tool says so, or if its name is among those that its agent may not call
unasked. The answer is recorded as a verdict in the step in which it takes effect, so a repeated
call, in a recovered or replayed run, gets the same answer, and no person is asked twice.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentnb.core._call.tool_order import ANSWER
from agentnb.core.clock import TimeLimit
from agentnb.core.codec import plain
from agentnb.core.events import AgentWaiting
from agentnb.core.keys import digest_of
from agentnb.core.protocols import Ruling, Tool, approval_of, supports_marks
from agentnb.core.questions import APPROVAL, ENDED, Answer, Gate
from agentnb.core.records import ToolCallRecord
from agentnb.core.text import literal, one_line, sendable, visible
from agentnb.core.types import ROOT_PATH

if TYPE_CHECKING:
    from agentnb.core._call.services import AgentServices
    from agentnb.core.journal import AgentLog
    from agentnb.core.request import RunState

APPROVE, DENY, ASK = "approve", "deny", "ask"
WAITS_FOR_APPROVAL = "approval of "
"""Prefix of the `AgentWaiting` reason; the tool's name follows."""
_MOST_OF_ARGUMENTS = 1000
"""Most characters of changed arguments that the model reads."""


class Approvals:
    """The gate of one agent's tool calls.

    Args:
        agent_id: The agent's id.
        run: The run's state.
        services: The agent's run services.
        log: Numbers and records the agent's verdicts.
        gated: Names of tools that need approval, whatever the tools declare.
    """

    def __init__(
        self,
        agent_id: str,
        run: RunState,
        *,
        services: AgentServices,
        log: AgentLog,
        gated: Collection[str],
    ) -> None:
        self._agent_id = agent_id
        self._services = services
        self._questions = run.questions
        self._secrets = run.recorder.secrets
        self._approve = run.request.approve
        self._log = log
        self._gated = gated

    async def rule(self, call: ToolCallRecord, tool: Tool | None) -> Ruling:
        """See `agentnb.core.protocols.RunServices.rule`."""
        past = self._services.past
        approval = False if tool is None else approval_of(tool) or call.name in self._gated
        digest = ""
        kept: Mapping[str, Any] | None = None
        recorded: ToolCallRecord | None = None
        if approval or past is not None:
            digest = self._digest_of(call)
        if past is not None:
            # Even if the tool no longer needs approval: a denied call stays denied.
            kept = past.approval(call, digest)
            recorded = past.tool_call(_approved(call, kept))
            self._services.follow(call, recorded, kept)
        if kept is not None:
            await self._tell_again(kept, call, is_recorded=recorded is not None)
            if recorded is None and (kept["answer"] == ENDED or self._services.is_done_again):
                # What voided it did not recur, or it approved the call of another run.
                kept = None
        is_settled = recorded is not None or not tool or self._is_settled(call, tool)
        if kept is None and approval and not is_settled:
            kept = await self._ask(call, approval, digest)
        if kept is None:
            return Ruling(call, recorded, may_repeat=not approval)
        is_approved = kept["answer"] == APPROVE
        return Ruling(
            _approved(call, kept),
            recorded,
            refusal="" if is_approved else self._refusal(call.name, kept),
            note=_note_on(kept["value"]) if is_approved else "",
            may_repeat=is_approved,
            was_asked="place" in kept,
        )

    def _is_settled(self, call: ToolCallRecord, tool: Tool) -> bool:
        """Whether a call was open when the process died and will not be repeated."""
        if supports_marks(tool):
            return self._services.mark_of(call) is not None
        return call.effects and self._services.is_unknown(call)

    async def _tell_again(
        self, kept: Mapping[str, Any], call: ToolCallRecord, *, is_recorded: bool
    ) -> None:
        """Publish a recorded question and its answer, at their recorded places."""
        questions, services = self._questions, self._services
        self._publish_waiting(call.name)
        questions.tell_asked(kept["question"], APPROVAL, self._text(call.name), self._agent_id)
        answer = Answer(kept["answer"], kept["by"], kept["reason"], kept["value"])
        try:
            if services.past is not None:
                await services.tool_order.turn_to(ANSWER, call.number)
            if kept["answer"] == ENDED and not is_recorded:
                await services.may_call(call)  # waits for the cancel that ended it
        finally:
            questions.tell_answered(kept["question"], answer, self._agent_id)
            services.tool_order.came(ANSWER, call.number)
            place = services.tool_order.next_place()
            self._log.verdict("approved", {**kept, "tool_call": call.number, **place})

    async def _ask(self, call: ToolCallRecord, approval: object, digest: str) -> Mapping[str, Any]:
        """Ask whether a call may run. Returns the verdict, which is recorded."""
        services = self._services
        await services.hold_as_before(call.number)  # held in the record, it may never have begun
        await services.may_call(call)
        kept: dict[str, Any] = {"answer": ENDED, "by": "limit", "reason": "", "value": None}
        if services.stopped_by():
            return kept

        def keep(question_id: str, answer: Answer) -> None:
            kept.update(
                tool_call=call.number,
                digest=digest,
                question=question_id,
                answer=answer.answer,
                by=answer.by,
                reason=answer.reason,
                value=plain(answer.value),
                **services.tool_order.next_place(),
            )
            self._log.verdict("approved", {**kept})

        self._publish_waiting(call.name)
        try:
            with TimeLimit(services.clock) as limit, services.ending_with_run(limit):
                await self._questions.answer_to(
                    APPROVAL,
                    self._agent_id,
                    self._text(call.name),
                    # A copy: an answer's code cannot change the model's request as a side effect.
                    {"tool": call.name, "arguments": plain(call.input)},
                    keep,
                    gate=self._gate(call.name, approval),
                    keeps_end=True,
                )
        except TimeoutError:  # a limit stopped all tools: the question is void
            pass
        return kept

    def _gate(self, name: str, approval: object) -> Gate | None:
        """The function that answers instead of a person: the tool's own, else the session's."""
        if callable(approval):
            return Gate(approval, None, f"`approval` of the tool {literal(name)}", read_answer)
        if self._approve is not None:
            return Gate(self._approve, None, "`approve`", read_answer)
        return None

    def _refusal(self, name: str, kept: Mapping[str, Any]) -> str:
        return f"The tool {name!r} was not run: {self._why(kept)}."

    def _why(self, kept: Mapping[str, Any]) -> str:
        reason = str(kept["reason"]).rstrip(".")
        if kept["answer"] == ENDED:
            return self._services.stopped_by() or "the question whether it may run was dropped"
        if kept["by"] in ("panel", "code"):
            return f"a person denied it: {reason}" if reason else "a person denied it"
        if kept["by"] == "limit":
            return f"it needs approval, and {reason}"
        return reason or "it was denied"

    def _text(self, name: str) -> str:
        path = self._services.path
        who = "the root" if path == ROOT_PATH else f"agent {path}"
        return f"May {who} call {visible(name, 64)}?"

    def _publish_waiting(self, name: str) -> None:
        reason = f"{WAITS_FOR_APPROVAL}{visible(name, 64)}"
        self._services.publish(AgentWaiting(agent_id=self._agent_id, reason=reason))

    def _digest_of(self, call: ToolCallRecord) -> str:
        """A digest of the tool's name and the model's arguments."""
        return digest_of([call.name, call.input], self._secrets)


def read_answer(returned: object) -> Answer | None:
    """The answer that a person's own function returned; `None` if it leaves it to the person.

    Raises:
        ValueError: It returned anything else.
    """
    if isinstance(returned, str) and returned in (APPROVE, DENY):
        return Answer(str(returned))
    if isinstance(returned, str) and returned == ASK:
        return None
    if isinstance(returned, Mapping) and all(isinstance(name, str) for name in returned):
        return Answer(APPROVE, value=dict(returned))
    raise ValueError(
        f"returned {literal(returned)}: it must return 'approve', 'deny', 'ask', or other "
        "arguments as a dict"
    )


def _approved(call: ToolCallRecord, kept: Mapping[str, Any] | None) -> ToolCallRecord:
    """The call with its final arguments."""
    if kept is None or kept["answer"] != APPROVE or kept["value"] is None:
        return call
    return replace(call, input=kept["value"])


def _note_on(arguments: object) -> str:
    if arguments is None:
        return ""
    shown = sendable(one_line(json.dumps(arguments, ensure_ascii=False), limit=_MOST_OF_ARGUMENTS))
    return f"(Not run as asked: a person changed the arguments to {shown}.)"
