r"""Reads a model's reply: is there an order to start sub-agents in it?

The reply is gone through once, from left to right, and no position is looked at again from
an earlier start. So whatever a model writes, reading takes time in proportion to its length
and never fails; what cannot be understood is no order.

- Lines are read as CommonMark does: what stands in a fenced code block is text, wherever the
  fence opens; only inside a quoted value are three backticks just three backticks. Fences
  that stand deeper than three spaces or behind a quote mark (`>`) are not known here.
- So is inline code: what stands between a run of backticks and the next run of the same length
  in its paragraph, which a blank line or a fence ends. Of code and a tag the one counts that
  begins first: a start tag that stands in code is an example, and backticks in the quoted values
  of a tag that does not are text.
- A tag is its exact lower-case name, followed by white space, `>` or `/`. It ends at `>`, or,
  where the model forgot that, at the next `<` or fence. Only an end tag completes a block: a
  start tag closed by `/>` is a start tag like any other.
- A start tag inside an open block begins anew: the earlier one was never completed.
- A quote closes a value only if the tag then reads on: the next attribute or the tag's end
  comes before another quote does. In well-formed tags that is always so, and
  `task='Bob's work'` keeps its apostrophe. A quote behind an odd number of backslashes never
  closes. A value that is never closed reaches to the end of the reply.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentnb.core.types import SpawnInstruction, SpawnMode

__all__ = [
    "SPAWN",
    "SpawnInstruction",
    "SpawnMode",
    "SpawnProblem",
    "SpawnReading",
    "extract_text_before_spawn",
    "parse_spawn_instructions",
    "read_reply",
    "task_of",
    "without_block",
]

SPAWN = "spawn"
"""The tool by which an agent starts a sub-agent; its input names the `task`."""


class SpawnProblem(StrEnum):
    """Why a start tag outside any code led to no order."""

    UNCLOSED = "unclosed"
    """No block is complete: the end tag is missing."""
    NO_TASK = "no_task"
    """The first complete block has no agent with a task."""


@dataclass(frozen=True, slots=True)
class SpawnReading:
    """All that a reply says about sub-agents."""

    instruction: SpawnInstruction | None
    """The order; `None` when there is nothing to follow."""
    text_before: str
    """What stands before the first start tag outside code; the whole reply without one."""
    problem: SpawnProblem | None = None
    """Set when there is such a start tag and yet no order."""
    extra_blocks: int = 0
    """Complete blocks outside code after the one that counts."""
    in_code_only: bool = False
    """There are start tags, and all of them stand in code, fenced or inline."""
    other_tasks: tuple[str, ...] = ()
    """Tasks of the blocks that do not count: without an end, or after the one that counts."""

    @property
    def has_block(self) -> bool:
        """Whether a spawn block stands outside all code, complete or not."""
        return self.instruction is not None or self.problem is not None

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks that can be read, whether they are followed or not."""
        return (*(self.instruction.tasks if self.instruction else ()), *self.other_tasks)


def parse_spawn_instructions(response: str) -> SpawnInstruction | None:
    """Read the order of the first complete spawn block outside code, fenced or inline.

    Returns:
        The mode and the stripped, non-blank tasks in order; `None` when no block is complete
        or the first complete one has no task.
    """
    return read_reply(response).instruction


def extract_text_before_spawn(response: str) -> str:
    """Return the trimmed text before the first start tag outside code, or the whole text."""
    return read_reply(response).text_before


def without_block(text: str) -> str:
    """Return `text` as a last word: a start tag that stands outside all code is made words.

    An answer that is put together may have one though no part of it was an order: in a task's
    own name, in an error, or between two fences that were cut off.
    """
    if not read_reply(text).has_block:
        return text
    return text.replace("<spawn_agents", "&lt;spawn_agents")


def task_of(spawn_input: Mapping[str, Any]) -> str:
    """Return the task in the input of a call of the tool `spawn`; empty where it names none."""
    task = spawn_input.get("task") if isinstance(spawn_input, Mapping) else None
    return task.strip() if isinstance(task, str) else ""


def read_reply(response: str) -> SpawnReading:
    """Read all that a reply says about sub-agents, in linear time, for any string.

    "The first complete block" is the one whose end tag comes first. It counts even when it
    has no task: a later block then is an extra one and is not followed.
    """
    # Most replies; the search for code costs more.
    if "<spawn_agents" not in response or _START_TAG.search(response) is None:
        return SpawnReading(None, response.strip())
    first_start, all_blocks = _scan(response)
    blocks = [block for block in all_blocks if block.is_complete]
    others = (block for block in all_blocks if block is not next(iter(blocks), None))
    return SpawnReading(
        instruction=_instruction(blocks[0]) if blocks else None,
        text_before=response[:first_start].strip(),
        problem=None if first_start is None else _problem(blocks),
        extra_blocks=max(0, len(blocks) - 1),
        in_code_only=first_start is None,
        other_tasks=tuple(task for block in others for task in _tasks(block)),
    )


@dataclass(slots=True)
class _Block:
    mode: str
    tasks: list[str] = field(default_factory=list)
    is_complete: bool = False


def _tasks(block: _Block) -> tuple[str, ...]:
    return tuple(task for task in map(str.strip, block.tasks) if task)


def _instruction(block: _Block) -> SpawnInstruction | None:
    mode = SpawnMode.PARALLEL
    if block.mode.strip() == SpawnMode.SEQUENTIAL:
        mode = SpawnMode.SEQUENTIAL
    tasks = _tasks(block)
    return SpawnInstruction(mode, tasks) if tasks else None


def _problem(blocks: list[_Block]) -> SpawnProblem | None:
    if not blocks:
        return SpawnProblem.UNCLOSED
    return SpawnProblem.NO_TASK if _instruction(blocks[0]) is None else None


# -- scanning: every function takes a position and returns one that is not before it ---------

_LINE = r"(?:^|(?<=\r))[ ]{0,3}"
_FENCE = rf"{_LINE}(?P<fence>`{{3,}}+(?![^`\r\n]*+`)|~{{3,}}+)"
_NAME_ENDS = r"(?=[\s/>])"

_START_TAG = re.compile(rf"<spawn_agents{_NAME_ENDS}")
_MARK = re.compile(
    rf"{_FENCE}"
    r"|\\[\\`]"  # a backtick that opens nothing
    r"|(?P<ticks>`++)"
    rf"|(?P<start><spawn_agents{_NAME_ENDS})"
    rf"|(?P<agent><agent{_NAME_ENDS})"
    r"|(?P<end></spawn_agents\s*+>)",
    re.MULTILINE,
)
_FENCE_END = re.compile(rf"{_LINE}(?P<fence>`{{3,}}+|~{{3,}}+)[ \t]*+(?=[\r\n]|\Z)", re.MULTILINE)

_PARAGRAPH_END = re.compile(rf"(?>\r\n|\r|\n)[ \t]*+(?=[\r\n]|\Z)|{_FENCE}", re.MULTILINE)
_TICKS = re.compile(r"`++")

# Without the look behind, a long name that leads nowhere would be tried from each letter.
_IN_TAG = re.compile(
    rf"{_FENCE}"
    r"|(?P<tag_end>[<>])"
    r"""|(?<![^\s"'<>/=])(?P<name>[^\s"'<>/=]++)\s*+=\s*+(?P<quote>["'])""",
    re.MULTILINE,
)

# Looks no further than the next quote or angle bracket: many quotes share no stretch of text.
_TAG_READS_ON = (
    r"""(?=(?:[^"'<>=]++|=(?!\s*+["']))*(?:=\s*+["']|>|</?(?:agent|spawn_agents)[\s/>]))"""
)
_VALUE_END = {
    quote: re.compile(rf"\\.|(?P<quote>{quote}){_TAG_READS_ON}", re.DOTALL) for quote in "\"'"
}


def _scan(text: str) -> tuple[int | None, list[_Block]]:
    """Find the first start tag outside code, and all blocks."""
    code = _InlineCode(text)
    first_start: int | None = None
    blocks: list[_Block] = []
    block: _Block | None = None
    pos = 0
    while mark := _MARK.search(text, pos):
        pos = mark.end()
        match mark.lastgroup:
            case "fence":
                pos = _after_fence(text, mark)
            case "ticks":
                pos = code.after(mark)
            case "start":
                first_start = mark.start() if first_start is None else first_start
                attributes, pos = _read_tag(text, pos)
                block = _Block(attributes.get("mode", ""))
                blocks.append(block)
            case "agent" if block is not None:
                attributes, pos = _read_tag(text, pos)
                block.tasks.append(attributes.get("task", ""))
            case "end" if block is not None:
                block.is_complete = True
                block = None
    return first_start, blocks


def _after_fence(text: str, opening: re.Match[str]) -> int:
    for closing in _FENCE_END.finditer(text, opening.end()):
        if closing["fence"].startswith(opening["fence"]):  # same character, as long or longer
            return closing.end()
    return len(text)


class _InlineCode:
    """Where inline code ends, asked from left to right.

    The runs of backticks of a paragraph are looked for once, when the first of them is met.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._known_to = 0
        """The end of the paragraph whose runs are known."""
        self._runs: dict[int, deque[int]] = {}
        """By length: where each run that long begins, those from the current one on."""

    def after(self, opening: re.Match[str]) -> int:
        """The place behind the code that a run of backticks opens; behind itself if none."""
        if opening.end() > self._known_to:
            self._look_at_paragraph(opening.start())
        length = len(opening[0])
        same = self._runs.get(length, _NO_RUNS)
        while same and same[0] < opening.end():
            same.popleft()
        return same[0] + length if same else opening.end()

    def _look_at_paragraph(self, start: int) -> None:
        end = _PARAGRAPH_END.search(self._text, start)
        self._known_to = end.start() if end else len(self._text)
        self._runs = {}
        for run in _TICKS.finditer(self._text, start, self._known_to):
            self._runs.setdefault(len(run[0]), deque()).append(run.start())


_NO_RUNS: deque[int] = deque()


def _read_tag(text: str, pos: int) -> tuple[dict[str, str], int]:
    """Read the quoted attributes from behind a tag's name; of two of a name, the first."""
    attributes: dict[str, str] = {}
    while found := _IN_TAG.search(text, pos):
        if found["name"] is None:
            # Behind what was read: backticks that open code may stand before what ends the tag.
            return attributes, found.end() if found[0] == ">" else pos
        end = _value_end(text, found.end(), found["quote"])
        if end is None:
            break
        attributes.setdefault(found["name"], _decode(text[found.end() : end]))
        pos = end + 1
    return attributes, len(text)


def _value_end(text: str, pos: int, quote: str) -> int | None:
    for found in _VALUE_END[quote].finditer(text, pos):
        if found["quote"]:
            return found.start()
    return None


# -- decoding --------------------------------------------------------------------------------

_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
# Digits are bounded, since `int` refuses very long numbers.
_ENCODED = re.compile(
    r"\\\\"
    r"|\\(?P<quote>[\"'])"
    r"|&(?:(?P<named>amp|lt|gt|quot|apos)"
    r"|#0*+(?P<decimal>[0-9]{1,7})"
    r"|#[xX]0*+(?P<hex>[0-9a-fA-F]{1,6}));"
)


def _decode(value: str) -> str:
    r"""Decode `\"`, `\'` and XML's entities once; a pair of backslashes stays a pair."""
    return _ENCODED.sub(_decoded, value)


def _decoded(found: re.Match[str]) -> str:
    if found["quote"]:
        return found["quote"]
    if found["named"]:
        return _NAMED[found["named"]]
    if found["decimal"] or found["hex"]:
        code = int(found["decimal"]) if found["decimal"] else int(found["hex"], 16)
        return chr(code) if _is_xml_character(code) else found[0]
    return found[0]


def _is_xml_character(code: int) -> bool:
    """Source: `Char` in https://www.w3.org/TR/xml/#charsets."""
    return (
        code in (0x9, 0xA, 0xD)
        or 0x20 <= code <= 0xD7FF
        or 0xE000 <= code <= 0xFFFD
        or 0x10000 <= code <= 0x10FFFF
    )
