"""Messages for a running agent: from the run's inbox, and notes from persons.

The agent reads both with its next call, in the last user message. Messages in the inbox wait for
its first reply; notes from persons do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agentnb.core.cancel import foreign
from agentnb.core.clock import Clock
from agentnb.core.events import AgentTold
from agentnb.core.journal import AgentLog
from agentnb.core.past import AgentPast
from agentnb.core.protocols import AgentWork, Inbox
from agentnb.core.request import RequestContext
from agentnb.core.text import sendable
from agentnb.core.types import CompletionRequest, with_texts
from agentnb.core.words import Note

_NEWS_S = 0.01
"""Seconds between two looks of a replayed run for messages that are late."""

HasRoom = Callable[[AgentWork, CompletionRequest], bool]


class WordsCame(Exception):
    """A note arrived while the agent's call waited: restart the call, so that it includes it."""


class AgentNews:
    """Messages for one running agent.

    Args:
        agent_id: The agent's id.
        request: The run's context, which has the inbox and the notes.
        log: The agent's log.
        past: The agent's past, in a recovered or replayed run; else `None`.
        has_room: Whether a call fits into the budget; always true if it could wait for room.
    """

    def __init__(
        self,
        agent_id: str,
        request: RequestContext,
        log: AgentLog,
        past: AgentPast | None,
        has_room: HasRoom,
    ) -> None:
        self._agent_id = agent_id
        self._inbox, self._words = request.inbox, request.words
        self._clock: Clock = request.clock
        self._log = log
        self._past = past
        self._has_room = has_room
        self._has_replied = False
        self._to_publish: list[AgentTold] = []
        """Notes to publish with the next call."""
        self._left: int | None = None
        """How many notes do not fit into the next call's budget; `None` if it takes none, since it
        has started or continues a reply."""

    # -- before a call ----------------------------------------------------------------------------

    async def take(self, work: AgentWork, request: CompletionRequest) -> Sequence[str]:
        """See `agentnb.core.protocols.RunServices.take_news`."""
        if self._past is not None:
            number = self._log.calls + 1
            if told := await self._told_before(self._past, number):
                return told
            if self._past.is_settled(number):
                return ()
        texts = await self._from_inbox(work, request)
        notes = self._from_persons(work, request, texts)
        if texts or notes:
            value: dict[str, Any] = {"call": self._log.calls + 1, "texts": texts}
            if notes:
                value["notes"] = [note._asdict() for note in notes]
            self._log.verdict("told", value)
        return [*texts, *self._said(notes)]

    async def _told_before(self, past: AgentPast, number: int) -> list[str]:
        """The messages that the agent read with this call in the recorded run.

        One call has several verdicts if more messages arrived while it waited.
        """
        texts: list[str] = []
        while (told := past.of_call("told", number)) is not None:
            self._log.verdict("told", {**told, "call": number})
            if past.is_done_again and self._inbox is not None:
                await self._take_again(self._inbox, len(told["texts"]))
            notes = [Note(each["text"], each["by"]) for each in told.get("notes", ())]
            texts += [*told["texts"], *self._said(notes)]
        return texts

    async def _take_again(self, inbox: Inbox, count: int) -> None:
        """Take as many messages as in the recorded run: their senders may be later this time."""
        taken = 0
        while taken < count:
            with foreign("the inbox"):
                taken += len(await inbox.take(self._agent_id))
            if taken < count:
                await self._clock.sleep(_NEWS_S)

    async def _from_inbox(self, work: AgentWork, request: CompletionRequest) -> list[str]:
        inbox = self._inbox
        if inbox is None or not self._has_replied:
            return []
        if self._past is not None:
            await self._past.does_more()
        with foreign("the inbox"):
            if not inbox.has_news(self._agent_id):
                return []
        if not self._has_room(work, request):
            return []  # the root's synthesis: the reserve is for the sub-agents' results
        with foreign("the inbox"):
            taken = await inbox.take(self._agent_id)
            return [sendable(text) for text in taken if text.strip()]

    def _from_persons(
        self, work: AgentWork, request: CompletionRequest, before: Sequence[str]
    ) -> list[Note]:
        """Take the notes from persons; they wait if the call has no room for them.

        Only the root's synthesis, which uses the reserve, may lack room. The root then takes one
        more turn for the notes, and leaves them out if there is no room then either.

        Args:
            work: As in `take`.
            request: The call without any messages.
            before: The messages from the inbox.
        """
        notes: list[Note] = []
        if self._words.waiting(self._agent_id):
            notes = self._words.take(self._agent_id)
            texts = [*before, *(note.for_model for note in notes)]
            longer = replace(request, messages=with_texts(request.messages, texts))
            if not self._has_room(work, longer):
                self._words.put_back(self._agent_id, notes)
                notes = []
        self._left = self._words.waiting(self._agent_id)
        return notes

    def _said(self, notes: Sequence[Note]) -> list[str]:
        """The notes as the model reads them. They are published when the call begins."""
        self._to_publish += [
            AgentTold(agent_id=self._agent_id, text=note.text, by=note.by) for note in notes
        ]
        return [note.for_model for note in notes]

    # -- around a call ----------------------------------------------------------------------------

    def check_for_words(self) -> None:
        """Raise `WordsCame` if notes have arrived that a waiting call could still include."""
        if self._left is not None and self._words.waiting(self._agent_id) > self._left:
            raise WordsCame

    def told_with_call(self) -> list[AgentTold]:
        """The notes to publish with the call that starts now; each only once."""
        told, self._to_publish = self._to_publish, []
        return told

    def call_started(self) -> None:
        """A call starts: from now on it takes no notes."""
        self._left = None

    def has_reply(self) -> None:
        """Note that the agent has a reply."""
        self._has_replied = True

    # -- at its end -------------------------------------------------------------------------------

    async def has_words(self) -> bool:
        """Whether an agent about to end has unread notes from a person.

        In a repeated run the record decides. In a recovered run, an agent whose recorded notes were
        unread waits until they are delivered again.
        """
        if (past := self._past) is not None:
            if past.was_told_with(self._log.calls + 1):
                return True
            if past.ends_as_recorded:
                return False
            if past.has_open_words:
                await past.does_more()
        return self._words.waiting(self._agent_id) > 0

    def close(self) -> None:
        """The agent reads nothing more: later notes to it are refused, since it has ended."""
        self._words.close(self._agent_id)
