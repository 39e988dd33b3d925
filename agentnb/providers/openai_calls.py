"""The tool calls of a streamed chat completion, put together from their pieces.

In OpenAI's own form a call begins with index, id and name, and grows by pieces of its arguments
under the same index. Other servers leave that form, each in its own way:

- Ollama and bridges to Gemini send each call whole, all with the index 0 (ollama/ollama#15457),
  with or without an id; earlier ones left out the index (ollama/ollama#7881).
- llama.cpp and NVIDIA NIM repeated the whole name with each piece of the arguments
  (ggml-org/llama.cpp#13774, NousResearch/hermes-agent#8259), or would have with a new id
  for each (vllm-project/vllm#23522).
- Gemini's names come in pieces (continuedev/continue#5849).
- LM Studio sent each piece of the arguments with an id of its own and no name
  (NousResearch/hermes-agent#106943).

A piece without a name never begins a call, but where it has an id of its own and begins an object
after a whole one. One with a name begins another call where

1. the arguments of the open call are whole, unless it says its id again and brings no new object;
2. they are not whole, and it says another name, or begins an object under another id;
3. there are none, and it says another id, or a name that is no rest of the open one's, or the same
   name without anything else, where no call has an id.

The names of the tools that were offered say whether two names are two tools or one in pieces.
Without them it is one where the call has an id, or where the piece has no arguments at all.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentnb.core.types import MALFORMED_INPUT, CompletionRequest, ToolInputDelta, ToolUseBlock
from agentnb.providers.call_arguments import CallArguments
from agentnb.providers.json_values import as_name
from agentnb.providers.limits import MOST_PARTS, BadReply, TooLarge


@dataclass(slots=True)
class _Call:
    index: int | None
    id: str
    name: str
    arguments: CallArguments = field(default_factory=CallArguments)

    @property
    def input(self) -> Mapping[str, Any] | None:
        """What is to be handed to the tool; `None` while it is not whole."""
        return {} if self.arguments.is_blank else self.arguments.value

    @property
    def has_arguments(self) -> bool:
        return not self.arguments.is_blank


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

    def grow(self, piece: Mapping[str, Any]) -> tuple[ToolInputDelta, ...]:
        """Take one piece of a call, of whatever shape; returns what is to be metered by now."""
        function = piece.get("function") or {}
        index, said_id = piece.get("index"), piece.get("id")
        call_id = "" if said_id is None else as_name(str(said_id))  # some count their calls
        name, arguments = function.get("name") or "", function.get("arguments")
        if isinstance(arguments, Mapping):  # not as a text, as it should be
            arguments = json.dumps(arguments)
        call = self._open(index, call_id)
        if call is None or self._begins_another(call, call_id, name, arguments):
            if len(self._calls) >= MOST_PARTS:
                raise TooLarge("a reply", MOST_PARTS, "tool calls")
            call = _Call(index, call_id, "")
            self._calls.append(call)
        call.id = call.id or call_id
        if name and name != call.name and (not call.name or not call.has_arguments):
            call.name = as_name(call.name + name)
        if arguments:
            call.arguments.keep(arguments)
        return call.arguments.metered()

    def _open(self, index: int | None, call_id: str) -> _Call | None:
        """The call that a piece belongs to, if it begins none."""
        same = [call for call in reversed(self._calls) if call.index == index]
        if call := next((call for call in same if call_id and call.id == call_id), None):
            return call
        if same:
            return same[0]
        return self._calls[-1] if index is None and self._calls else None

    def _begins_another(self, call: _Call, call_id: str, name: str, arguments: str | None) -> bool:
        """Whether a piece begins another call than the open one."""
        is_other_id = _differ(call_id, call.id)
        begins_object = (arguments or "").lstrip().startswith("{")
        if not name:
            return is_other_id and begins_object and call.has_arguments and call.input is not None
        if not call.has_arguments:
            return is_other_id or self._is_second_name(call, call_id, name, arguments)
        if not call.name:  # its arguments came first
            return is_other_id
        if call.input is not None:
            return begins_object or name != call.name or not call_id or is_other_id
        return name != call.name or (is_other_id and begins_object)

    def _is_second_name(self, call: _Call, call_id: str, name: str, arguments: str | None) -> bool:
        """Whether a name, after one that had no arguments yet, is a second call's.

        Else it is the rest of the open call's, or the whole of it once more.
        """
        has_id = bool(call_id or call.id)
        if name == call.name:
            return not has_id and not arguments
        if not call.name:
            return False
        if known := [tool.name for tool in self._request.tools]:
            is_rest = any(tool.startswith(call.name + name) for tool in known)
            return call.name in known and not is_rest
        return not has_id and arguments is not None

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
