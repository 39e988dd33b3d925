"""Assembles the tool calls of a streamed chat completion from their pieces.

In OpenAI's own form a call begins with index, id and name, and pieces of its arguments follow
under the same index. Other servers deviate:

- Ollama and bridges to Gemini send each call whole, all with the index 0 (ollama/ollama#15457),
  with or without an id; earlier ones left out the index (ollama/ollama#7881).
- llama.cpp and NVIDIA NIM repeated the whole name with each piece of the arguments
  (ggml-org/llama.cpp#13774, NousResearch/hermes-agent#8259), or would have with a new id
  for each (vllm-project/vllm#23522).
- Gemini's names come in pieces (continuedev/continue#5849).
- LM Studio sent each piece of the arguments with an id of its own and no name
  (NousResearch/hermes-agent#106943).

A piece without a name begins a call only if it has a new id and begins an object after a whole
one. A piece with a name begins another call if

1. the open call's arguments are whole, unless the piece repeats its id and begins no object;
2. they are not whole, and the piece has another name, or begins an object under another id;
3. there are none, and the piece has another id, or a name that does not continue the open call's,
   or the same name and nothing else, where no call has an id.

The offered tools' names decide whether two names are two tools or one name in pieces. Without
offered tools they are one name if the call has an id or the piece has no arguments.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentnb.core.types import MALFORMED_INPUT, CompletionRequest, ToolInputDelta, ToolUseBlock
from agentnb.providers.call_arguments import CallArguments, without_parameters
from agentnb.providers.json_values import as_id, as_name
from agentnb.providers.kept_fields import KeptFields
from agentnb.providers.limits import MOST_PARTS, BadReply, TooLarge

_OWN_FIELDS = frozenset(("index", "id", "type", "function"))
_OWN_IN_FUNCTION = frozenset(("name", "arguments"))
IN_FUNCTION = "function."
"""Begins the name of a kept field within a call's `function`, as LiteLLM writes some."""


@dataclass(slots=True)
class _Call:
    index: int | None
    id: str
    name: str
    arguments: CallArguments = field(default_factory=CallArguments)
    others: KeptFields = field(default_factory=lambda: KeptFields(_OWN_FIELDS))
    in_function: KeptFields = field(default_factory=lambda: KeptFields(_OWN_IN_FUNCTION))
    """Fields that we do not know: they are sent back unchanged."""

    @property
    def input(self) -> Mapping[str, Any] | None:
        """The tool's arguments; `None` while they are not whole."""
        return {} if self.arguments.is_blank else self.arguments.value

    def whole(self, *, takes_any: bool) -> Mapping[str, Any] | None:
        """They when no more will come: see `CallArguments.whole`."""
        return {} if self.arguments.is_blank else self.arguments.whole(takes_any=takes_any)

    @property
    def has_arguments(self) -> bool:
        return not self.arguments.is_blank


class ToolCalls:
    """The tool calls of one reply.

    Args:
        request: The request: no call gets an id that is already in its conversation.
        home: The server's word: see `Server.home`.
    """

    def __init__(self, request: CompletionRequest, home: str) -> None:
        self._request, self._home = request, home
        self._offered = {tool.name for tool in request.tools}
        self._bare = without_parameters(request)
        self._calls: list[_Call] = []

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def size(self) -> int:
        """Bytes received."""
        return sum(len(call.name) + call.arguments.size for call in self._calls)

    def grow(self, piece: Mapping[str, Any]) -> tuple[ToolInputDelta, ...]:
        """Add one piece of a call, in any form; returns the pieces due for metering."""
        function = piece.get("function") or {}
        index, raw_id = piece.get("index"), piece.get("id")
        call_id = "" if raw_id is None else as_id(str(raw_id))  # some ids are numbers
        name, arguments = function.get("name") or "", function.get("arguments")
        if isinstance(arguments, Mapping):  # some servers send an object in place of text
            arguments = json.dumps(arguments)
        call = self._open(index, call_id)
        if call is None or self._begins_another(call, call_id, name, arguments):
            if len(self._calls) >= MOST_PARTS:
                raise TooLarge("a reply", MOST_PARTS, "tool calls")
            call = _Call(index, call_id, "")
            self._calls.append(call)
        call.id = call.id or call_id
        call.others.keep(piece)
        call.in_function.keep(function)
        if name and name != call.name and (not call.name or not call.has_arguments):
            call.name = as_name(call.name + name)
        if arguments:
            call.arguments.keep(arguments)
        return call.arguments.metered()

    def _open(self, index: int | None, call_id: str) -> _Call | None:
        """The call that a piece continues, unless it begins another."""
        same = [call for call in reversed(self._calls) if call.index == index]
        if call := next((call for call in same if call_id and call.id == call_id), None):
            return call
        if same:
            return same[0]
        return self._calls[-1] if index is None and self._calls else None

    def _begins_another(self, call: _Call, call_id: str, name: str, arguments: str | None) -> bool:
        """Whether a piece begins another call: the rules are in the module's docstring."""
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
        """Whether a name begins a second call, when the open call has no arguments yet.

        Otherwise it continues or repeats the open call's name.
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
        """The calls that were not cut, each with a unique id.

        Calls with malformed arguments are included, so that the model learns of them.

        Args:
            is_cut: The reply was cut, so that the last call may be a fragment.

        Raises:
            BadReply: A call has no name.
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
            name = _offered_name(call.name, self._offered)
            arguments = call.whole(takes_any=name not in self._bare)
            if is_cut and (arguments is None or (is_last and not call.has_arguments)):
                continue
            if not name:
                raise BadReply("a tool call without a name")
            if arguments is None:
                arguments = {MALFORMED_INPUT: str(call.arguments)}
            inner = call.in_function.whole()
            fields = call.others.whole() | {IN_FUNCTION + each: inner[each] for each in inner}
            extra = {self._home: fields} if fields else None
            block = ToolUseBlock(call.id, name, arguments, extra)
            if not block.id or block.id in used:
                block = replace(block, id=next(fresh))
            used.add(block.id)
            whole.append(block)
        return tuple(whole)

    @property
    def dropped(self) -> list[str]:
        """The names of kept fields that passed a limit."""
        kept = [each for call in self._calls for each in (call.others, call.in_function)]
        return [name for each in kept for name in each.dropped]


def _differ(new: str, known: str) -> bool:
    return bool(new and known) and new != known


def _offered_name(name: str, offered: set[str]) -> str:
    """The offered tool that is meant by a name in which its server left marks of its template."""
    if name in offered or len(name) > _LONGEST_NAME:
        return name
    found = _MARKED.fullmatch(name)
    return found["name"] if found and found["name"] in offered else name


_LONGEST_NAME = 500
"""Characters: a longer name holds more than marks."""
_MARKED = re.compile(
    r"""
    (?: .* \b to= )?  # as in "<|channel|>commentary to=functions.look"
    \s* (?: (?: functions? | tools? | default_api ) [.:/] )?
    (?P<name> [^\s<:]+ )
    (?: :\d+ )?  # as in "functions.look:0"
    \s* (?: <\| .* )?  # as in "look<|channel|>json"
    \s*""",
    re.DOTALL | re.VERBOSE,
)
