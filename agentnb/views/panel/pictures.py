"""The files in a tool's result as the panel shows them: images as `data:` URLs, others in words.

A URL holds base64 that was checked to be an image of its type, so that a page gets nothing that it
could take for markup. Messages stay small: files that do not fit are only named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentnb.core.calls import ToolCallState
from agentnb.core.media import PDF, described
from agentnb.core.records import ToolCallRecord
from agentnb.core.text import visible
from agentnb.core.types import MediaBlock
from agentnb.views.panel.wire import ToolPicture

MOST_IN_MESSAGE = 2_000_000
"""Most characters of pictures in one message. Jupyter drops more than 3 MB in 3 s."""
_NAME_LENGTH = 60

WholeToolCalls = Mapping[tuple[str, int], ToolCallRecord]
"""See `agentnb.core.bus.EventBus.whole_tool_calls`."""


def pictures_of(calls: Sequence[ToolCallState], whole: WholeToolCalls) -> list[list[ToolPicture]]:
    """The files of each of some calls of one agent. If not all fit, the newest are shown."""
    room, found = MOST_IN_MESSAGE, list[list[ToolPicture]]()
    for call in reversed(calls):
        record = whole.get((call.started.agent_id, call.number)) if call.media else None
        media = call.media if record is None else record.media
        shown = list[ToolPicture]()
        for place, block in enumerate(media, 1):
            fits = len(block.data) <= room and block.is_image
            room -= len(block.data) if fits else 0
            shown.append(_picture(call, place, block, fits=fits))
        found.append(shown)
    return found[::-1]


def _picture(call: ToolCallState, place: int, block: MediaBlock, *, fits: bool) -> ToolPicture:
    noun = "PDF" if block.media_type == PDF else "Picture"
    name = visible(call.started.name, _NAME_LENGTH)
    return {
        "src": f"data:{block.media_type};base64,{block.data}" if fits else "",
        "alt": f"{noun} {place} of call {call.number}, {name} ({described(block)})",
    }
