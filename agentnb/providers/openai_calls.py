"""The tool calls of a streamed chat completion, put together from their pieces.

In OpenAI's own form a call begins with index, id and name, and grows by pieces of its arguments
under the same index. Other servers leave out the index or give every call the index 0, leave out
the id or give each the same, repeat the name with each piece, or send a call whole. What holds for
all of them: a piece that can belong to the open call does, and else it begins another.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentnb.core.types import MALFORMED_INPUT, CompletionRequest, ToolUseBlock
from agentnb.providers.sse import BadReply
from agentnb.providers.wire_values import GrowingText, as_text, tool_input


@dataclass(slots=True)
class _Call:
    index: int | None
    id: str
    name: str
    arguments: GrowingText = field(default_factory=GrowingText)

    @property
    def input(self) -> Mapping[str, Any] | None:
        """What is to be handed to the tool; `None` while it is not whole."""
        text = str(self.arguments)
        return tool_input(text) if text.strip() else {}

    @property
    def has_arguments(self) -> bool:
        return bool(str(self.arguments).strip())


class ToolCalls:
    """The tool calls of one reply.

    Args:
        request: What was asked: no call gets an id that is in its conversation.
    """

    def __init__(self, request: CompletionRequest) -> None:
        self._request = request
        self._calls: list[_Call] = []

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def size(self) -> int:
        """Bytes that came of them."""
        return sum(len(call.name) + call.arguments.size for call in self._calls)

    def grow(self, piece: Mapping[str, Any]) -> None:
        """Take one piece of a call, of whatever shape."""
        function = piece.get("function") or {}
        index, said_id = piece.get("index"), piece.get("id")
        call_id = "" if said_id is None else as_text(str(said_id))  # some count their calls
        name, arguments = function.get("name") or "", function.get("arguments")
        call = self._open(index, call_id, name)
        if call is None:
            call = _Call(index, call_id, "")
            self._calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or as_text(name)
        if isinstance(arguments, Mapping):  # not as a text, as it should be
            arguments = json.dumps(arguments)
        if arguments:
            call.arguments.keep(arguments)

    def _open(self, index: int | None, call_id: str, name: str) -> _Call | None:
        """The call that a piece belongs to; `None` where it begins another."""
        same = (call for call in reversed(self._calls) if call.index == index)
        call = next(same, None)
        if call is None and index is None and not (call_id or name) and self._calls:
            call = self._calls[-1]
        if call is None or _differ(call_id, call.id) or _differ(name, call.name):
            return None
        if not name or not call.has_arguments:
            return call
        # The name once more: with each piece of one call, or of a call that is like the one before.
        return None if call.input is not None else call

    def whole(self, *, is_cut: bool) -> tuple[ToolUseBlock, ...]:
        """The calls that were not cut, each with an id that no other has.

        One whose arguments are no JSON object is among them, so that its model is told.

        Args:
            is_cut: The reply was cut, so that the last call may be a fragment.

        Raises:
            BadReply: A call has no name, so that nobody can answer it.
        """
        used = {
            block.id
            for message in self._request.messages
            for block in message.content
            if isinstance(block, ToolUseBlock)
        }
        fresh = (name for n in itertools.count(1) if (name := f"call_{n}") not in used)
        whole = []
        for call in self._calls:
            is_last = call is self._calls[-1]
            if is_cut and (call.input is None or (is_last and not call.has_arguments)):
                continue
            block = _block(call)
            if not block.id or block.id in used:
                block = ToolUseBlock(next(fresh), block.name, block.input)
            used.add(block.id)
            whole.append(block)
        return tuple(whole)


def _differ(said: str, known: str) -> bool:
    return bool(said and known) and said != known


def _block(call: _Call) -> ToolUseBlock:
    if not call.name:
        raise BadReply("a tool call without a name")
    if (input := call.input) is None:
        input = {MALFORMED_INPUT: str(call.arguments)}
    return ToolUseBlock(call.id, call.name, input)
