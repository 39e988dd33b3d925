"""How requests of the Messages API are written for one model at one address, as its refusals teach.

What a model accepts differs, and no table knows all servers. A refusal of something that we chose
is answered by the same request in one other form. What that taught holds until the process ends.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentnb.core.types import CompletionRequest, Message, ThinkingBlock

_STATUSES = (400, 404, 422, 501)
"""Statuses by which servers refuse the form of a request."""
_ABOUT_CHOICE = re.compile(r"(?i)tool|choice|forc|think")
_ABOUT_THINKING = re.compile(r"(?i)signature|different conversation|cannot be modified")
_MOST_FORGOTTEN = 10_000


@dataclass(frozen=True, slots=True)
class MessageForm:
    """How to write a request."""

    forces: bool = True
    """Whether a typed answer's tool is forced: models that always think refuse it."""

    def after(self, status: int, complaint: str, body: Mapping[str, Any]) -> MessageForm:
        """The form to try after a refusal; the same if the refusal is about other things.

        What was sent is looked at first: words alone may mean anything.

        Args:
            status: The status of the refusal.
            complaint: The server's words.
            body: What was sent, without a person's own fields.
        """
        if status in _STATUSES and "tool_choice" in body and _ABOUT_CHOICE.search(complaint):
            return replace(self, forces=False)
        return self


USUAL = MessageForm()


class LearnedForms:
    """The forms that models accepted, by address and model. For all threads."""

    def __init__(self) -> None:
        self._forms: dict[tuple[str, str], MessageForm] = {}

    def of(self, address: str, model: str) -> MessageForm:
        """The form to begin with."""
        return self._forms.get((address, model), USUAL)

    def learn(self, address: str, model: str, form: MessageForm) -> None:
        """Keep the form of a request that was accepted."""
        if form != USUAL:
            self._forms[address, model] = form


class RefusedThinking:
    """Thinking that the API no longer takes. For all threads.

    The API binds a block of thinking to what stands before it, and refuses it where that has
    changed. Once refused, the thinking of that conversation is left out of every later request:
    put back, it would be refused again.
    """

    def __init__(self) -> None:
        self._marks: dict[str, None] = {}
        """Signatures, and what stands for them in blocks without one; the oldest go first."""
        self._lock = threading.Lock()

    def is_meant(self, status: int, complaint: str, messages: Iterable[Message]) -> bool:
        """Whether a refusal is about thinking in the messages that is still sent."""
        is_about_it = status == 400 and _ABOUT_THINKING.search(complaint) is not None
        return is_about_it and any(mark not in self._marks for mark in _marks_in(messages))

    def add(self, messages: Iterable[Message]) -> None:
        """Leave out the thinking in these messages from now on."""
        with self._lock:
            self._marks |= dict.fromkeys(_marks_in(messages))
            while len(self._marks) > _MOST_FORGOTTEN:
                del self._marks[next(iter(self._marks))]

    def left_out(self, request: CompletionRequest) -> CompletionRequest:
        """The request without it."""
        marks = self._marks
        if not marks or not any(mark in marks for mark in _marks_in(request.messages)):
            return request
        messages = tuple(
            replace(
                message,
                content=tuple([b for b in message.content if not marks.keys() & _marks_of(b)]),
            )
            for message in request.messages
        )
        return replace(request, messages=messages)


def _marks_in(messages: Iterable[Message]) -> list[str]:
    return [m for message in messages for block in message.content for m in _marks_of(block)]


def _marks_of(block: object) -> set[str]:
    if not isinstance(block, ThinkingBlock):
        return set()
    # Of thinking without a signature, the text: a server that gave none may want it back, and one
    # that signs its own refuses it.
    return {block.redacted_data or block.signature or block.text} - {""}
