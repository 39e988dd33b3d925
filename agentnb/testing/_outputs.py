"""What the outputs of a notebook's cell say, and how that differs from the saved ones. Pure.

Only texts count: answer, outline and errors of a run are texts in every output of ours. Live views
and HTML show the same once more. Of a picture of a tree its alternative text counts, which has the
agents and their statuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any

from agentnb.modes import MODES
from agentnb.views.freeze import IN_WORDS

_TEXTS = ("text/plain", "text/markdown")
"""The first that an output has counts."""
_TREE = "Tree of "
"""How the alternative text of a tree begins; those of other figures have times."""
_MODE_TOLD = re.compile(rf"^Mode: (?:{'|'.join(MODES)}) \(.*\n?", re.MULTILINE)
"""The line of `%agentnb mode` that names who set it."""
_BESIDE = re.compile(r'class="agentnb-beside(?: agentnb-meanwhile)?(?: agentnb-open)?"')
_NEAR = 2
"""Lines shown around a difference."""
_LONGEST = 200
"""Characters shown of a line."""

Output = Mapping[str, Any]
"""As nbformat has it: `output_type`, and `text`, `data` and `metadata`, or `ename` and `evalue`."""


def compared(outputs: Sequence[Output]) -> list[Output]:
    """The outputs without what says how a run stood at that time, or who set the mode."""
    return [_without_mode(each) for each in outputs if not _is_in_words(each)]


def _without_mode(output: Output) -> Output:
    if output["output_type"] != "stream":
        return output
    text = _MODE_TOLD.sub("", _joined(output["text"]))
    return type(output)({**output, "text": text})  # type: ignore[call-arg]


def _is_in_words(output: Output) -> bool:
    if output.get("metadata") == IN_WORDS:
        return True
    # A tool took the metadata away.
    return bool(_BESIDE.search(_joined(output.get("data", {}).get("text/html", ""))))


def differences(
    saved: Sequence[Output], made: Sequence[Output], *, clean: Callable[[str], str] = str
) -> list[str]:
    """Lines that say what differs between the texts of a cell's outputs; empty if nothing does.

    Args:
        saved: The outputs in the notebook.
        made: The outputs now.
        clean: Applied to each text, for what may differ.
    """
    was, now = (dict(_texts(outputs, clean)) for outputs in (saved, made))
    lines: list[str] = []
    for place in dict.fromkeys([*was, *now]):
        if place.startswith("picture") and not (place in was and place in now):
            continue  # a tool took the metadata away
        if was.get(place) != now.get(place):
            lines += [f"{place} differs (- saved, + now):", *_diff(was.get(place), now.get(place))]
    return lines


def _texts(outputs: Sequence[Output], clean: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Each text by its place: all of a stream, which may come in any pieces, is one."""
    streams: dict[str, str] = {}
    number = trees = 0
    for output in outputs:
        kind = output["output_type"]
        if kind == "stream":
            streams[output["name"]] = streams.get(output["name"], "") + _joined(output["text"])
        elif kind == "error":
            yield "the error", clean(f"{output['ename']}: {output['evalue']}")
        elif (text := _text_of(output.get("data", {}))) is not None:
            number += 1
            yield f"output {number}", clean(text)
        if (tree := _tree_of(output)) is not None:
            trees += 1
            yield f"picture {trees}", clean(tree)
    for name, text in streams.items():
        yield name, clean(text)


def _text_of(data: Mapping[str, Any]) -> str | None:
    return next((_joined(data[kind]) for kind in _TEXTS if kind in data), None)


def _tree_of(output: Output) -> str | None:
    """The alternative text, if it is a picture of a tree and nothing else says the same."""
    told = output.get("metadata", {}).get("image/png", {}).get("alt", "")
    if not told.startswith(_TREE) or _text_of(output["data"]) == told:
        return None
    return str(told)


def _joined(text: str | Sequence[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _diff(was: str | None, now: str | None) -> Iterator[str]:
    before, after = ((side or "").splitlines() for side in (was, now))
    found = [*unified_diff(before, after, lineterm="", n=_NEAR)][2:]
    if not found:
        yield "  (only in the ends of lines)"
    for line in found:
        if not line.startswith("@@"):
            shown = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
            yield f"  {shown[:1]} {shown[1:]}".rstrip()
