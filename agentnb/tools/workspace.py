"""The run's workspace: two tools for notes that all agents of a run share.

Agents otherwise know only their task and context. `Session(tools=["workspace"])` gives them these
tools. Models write the notes; `ctx.workspace`, where a user's tools keep their data, is separate,
so that no model can read or replace it.
"""

from __future__ import annotations

from functools import cache

from agentnb.core.errors import ToolError
from agentnb.core.protocols import AGAIN, Tool, ToolContext
from agentnb.core.text import one_line
from agentnb.tools.function import tool

MOST_NOTES = 200
MOST_IN_KEY = 100
MOST_IN_NOTE = 20_000
"""Characters."""


@cache
def workspace_tools() -> tuple[Tool, ...]:
    """`workspace_read` and `workspace_write`."""
    both = tool(workspace_read), tool(workspace_write)
    for each in both:
        each.effects = False  # the notes are the run's own
        each.on_replay = AGAIN
    return both


# Both run on the runtime's loop without awaiting, so they never interleave.


async def workspace_read(context: ToolContext, key: str = "") -> str:
    """Read a note from the workspace that all agents of this run share.

    Args:
        context: Has the notes.
        key: Which note. Leave it out to get the list of all notes.
    """
    notes = context.notes.copy()  # atomic, since threads may write
    if key in notes:
        return notes[key]
    listed = "".join(
        f"\n- {one_line(name, limit=MOST_IN_KEY)} ({len(note):,} characters)"
        for name, note in notes.items()
    )
    if not key:
        return f"The notes:{listed}" if listed else "There are no notes yet."
    raise ToolError(f"There is no note {key!r}. There are:{listed or ' none yet.'}")


async def workspace_write(context: ToolContext, key: str, text: str) -> str:
    """Write a note into the workspace that all agents of this run share, for them to read.

    A note of the same key is replaced.

    Args:
        context: Has the notes.
        key: Short and telling, like `findings/prices`.
        text: The note.
    """
    notes = context.notes
    if not key.strip() or len(key) > MOST_IN_KEY:
        raise ToolError(f"`key` must have 1 to {MOST_IN_KEY} characters: give a shorter one.")
    if len(text) > MOST_IN_NOTE:
        raise ToolError(
            f"`text` has {len(text):,} characters, and a note holds {MOST_IN_NOTE:,} at most: "
            "shorten it, or write it into several."
        )
    if key not in notes and len(notes) >= MOST_NOTES:
        raise ToolError(f"The workspace has all of its {MOST_NOTES} notes: replace one of them.")
    notes[key] = text
    return f"Written: {key} ({len(text):,} characters)."
