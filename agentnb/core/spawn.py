r"""Finds spawn blocks in a model's reply.

The reply is scanned once, from left to right, and no position is scanned again from an earlier
start. So reading takes linear time and never fails, whatever a model writes; a block that cannot be
understood is not followed.

- Fenced code is text, by the rules of CommonMark, wherever the fence opens; only inside a quoted
  value three backticks are not a fence. Fences that are indented by more than three spaces or
  follow a quote mark (`>`) are not recognised.
- Inline code is text, too: from a run of backticks to the next run of the same length in its
  paragraph, which ends at a blank line or a fence. If code and a tag overlap, the one that begins
  first counts: a start tag in code is an example, and backticks in quoted values of a tag are text.
- A tag is its exact lower-case name, followed by white space, `>` or `/`. It ends at `>`, or, if
  that is missing, at the next `<` or fence. Only an end tag completes a block: a start tag closed
  by `/>` is like any other start tag.
- A start tag inside an open block begins a new block: the earlier one was never completed.
- A quote closes a value only if the tag then reads on: the next attribute or the tag's end must
  come before another quote. In well-formed tags that is always so, and `task='Bob's work'` keeps
  its apostrophe. A quote after an odd number of backslashes never closes a value. A value that is
  never closed extends to the end of the reply.
"""

from __future__ import annotations

import json
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
    "final_text",
    "parse_spawn_instructions",
    "read_reply",
    "task_of",
    "without_block",
]

SPAWN = "spawn"
"""Name of the tool that starts a sub-agent; its input has the `task`."""


class SpawnProblem(StrEnum):
    """Why a reply with a start tag outside code has no instruction."""

    UNCLOSED = "unclosed"
    """No block is complete: the end tag is missing."""
    NO_TASK = "no_task"
    """The first complete block has no agent with a task."""


@dataclass(frozen=True, slots=True)
class SpawnReading:
    """Everything that a reply says about sub-agents."""

    instruction: SpawnInstruction | None
    """The tasks to start; `None` if there are none."""
    text_before: str
    """Text before the first start tag outside code; the whole reply without one."""
    problem: SpawnProblem | None = None
    """Why there is no instruction although there is such a start tag; else `None`."""
    extra_blocks: int = 0
    """Number of complete blocks outside code after the one that counts."""
    in_code_only: bool = False
    """Whether there are start tags, and all of them are in code, fenced or inline."""
    other_tasks: tuple[str, ...] = ()
    """Tasks of the blocks that do not count: unfinished, or after the one that counts."""

    @property
    def has_block(self) -> bool:
        """Whether there is a spawn block outside code, complete or not."""
        return self.instruction is not None or self.problem is not None

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks that can be read, whether they are followed or not."""
        return (*(self.instruction.tasks if self.instruction else ()), *self.other_tasks)


def parse_spawn_instructions(response: str) -> SpawnInstruction | None:
    """Read the first complete spawn block outside code, fenced or inline.

    Returns:
        The mode and the stripped, non-blank tasks in order; `None` if no block is complete or the
        first complete one has no task.
    """
    return read_reply(response).instruction


def extract_text_before_spawn(response: str) -> str:
    """Return the trimmed text before the first start tag outside code, or the whole text."""
    return read_reply(response).text_before


def without_block(text: str) -> str:
    """Return `text` as an answer: if a start tag is outside code, all start tags are escaped.

    An answer that was put together from parts may contain a tag that no agent meant: in a task, in
    an error, or between two fences that were cut off.
    """
    if not read_reply(text).has_block:
        return text
    return text.replace("<spawn_agents", "&lt;spawn_agents")


def without_acting_block(text: str) -> str:
    """A typed answer's text without an acting spawn block; inside JSON, the block is escaped."""
    if not read_reply(text).has_block:
        return text
    if is_json(text):  # there a `<` occurs only inside a string
        return text.replace("<", "\\u003c")
    return without_block(text)


def is_json(text: str) -> bool:
    """Whether the whole of a text is JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def final_text(text: str, error: str | None) -> str:
    """The final text of a run. Never empty.

    Args:
        text: The root's answer, perhaps partial.
        error: Why the run ended early; `None` if it did not.
    """
    if error is None:
        return text or "(no output)"
    return without_block("\n\n".join(part for part in (text, f"*{error}*") if part))


def task_of(spawn_input: Mapping[str, Any]) -> str:
    """Return the task in the input of a call of the tool `spawn`; empty if it has none."""
    task = spawn_input.get("task") if isinstance(spawn_input, Mapping) else None
    return task.strip() if isinstance(task, str) else ""


def read_reply(response: str) -> SpawnReading:
    """Read everything that a reply says about sub-agents, in linear time, for any string.

    The first complete block is the one whose end tag comes first. It counts even if it has no task:
    a later block is an extra one and is not followed.
    """
    # Most replies have no start tag; this is cheaper than the search for code.
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

# Without the lookbehind, a long name without a value would be tried from each letter.
_IN_TAG = re.compile(
    rf"{_FENCE}"
    r"|(?P<tag_end>[<>])"
    r"""|(?<![^\s"'<>/=])(?P<name>[^\s"'<>/=]++)\s*+=\s*+(?P<quote>["'])""",
    re.MULTILINE,
)

# Looks only to the next quote or angle bracket, so that many quotes do not scan the same text.
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
    """Finds the end of inline code, asked from left to right.

    The runs of backticks of a paragraph are collected once, at the first of them.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._known_to = 0
        """End of the paragraph whose runs are known."""
        self._runs: dict[int, deque[int]] = {}
        """By length: the starts of the runs of that length, from the current one on."""

    def after(self, opening: re.Match[str]) -> int:
        """The end of the code that a run of backticks opens; the run's own end if it opens none."""
        if opening.end() > self._known_to:
            self._collect_runs(opening.start())
        length = len(opening[0])
        same = self._runs.get(length, _NO_RUNS)
        while same and same[0] < opening.end():
            same.popleft()
        return same[0] + length if same else opening.end()

    def _collect_runs(self, start: int) -> None:
        end = _PARAGRAPH_END.search(self._text, start)
        self._known_to = end.start() if end else len(self._text)
        self._runs = {}
        for run in _TICKS.finditer(self._text, start, self._known_to):
            self._runs.setdefault(len(run[0]), deque()).append(run.start())


_NO_RUNS: deque[int] = deque()


def _read_tag(text: str, pos: int) -> tuple[dict[str, str], int]:
    """Read the quoted attributes after a tag's name; of two with the same name, the first."""
    attributes: dict[str, str] = {}
    while found := _IN_TAG.search(text, pos):
        if found["name"] is None:
            # `pos` if the tag has no `>`: backticks before the next tag may open code.
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
    r"""Decode `\"`, `\'` and XML entities once; a pair of backslashes stays a pair."""
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
