"""First cells of notebooks: agentnb with a scripted model, which waits at a door."""

from __future__ import annotations

import html
from collections.abc import Sequence

from tests.loopback.server import LoopbackServer
from tests.notebook.kernel import Door

_BEGIN = """
%load_ext agentnb
import asyncio
import os
import agentnb
from agentnb import Reply, ScriptedProvider
from agentnb.core.errors import LlmError, RateLimited, StreamBroken
from agentnb.core.types import Usage
from tests.support import by_agent, requests_of, spawn
"""


def scripted(replies: str, *, door: Door | None = None, settings: str = "") -> str:
    """A cell that makes a session with `provider`, whose agents answer by their task.

    Args:
        replies: Python code of a dict for `tests.support.by_agent`: replies by task, `root` for
            the root. `hold` in it waits at the door.
        door: Holds replies.
        settings: Further settings of the session, as Python code.
    """
    hold = door.hold if door is not None else ""
    made = f"session = agentnb.configure(provider=provider, {settings})"
    return f"{_BEGIN}{hold}\nprovider = by_agent({replies})\n{made}"


def over_http(server: LoopbackServer, *, settings: str = "") -> str:
    """A cell that makes a session whose agents call the test's server, by the real SDK."""
    return (
        f"{_BEGIN}\nos.environ['ANTHROPIC_BASE_URL'] = {server.url!r}\n"
        "os.environ['ANTHROPIC_API_KEY'] = 'key-of-this-test'\n"
        f"session = agentnb.configure(model='anthropic/claude-sonnet-5-5', {settings})"
    )


def block(tasks: Sequence[str], *, before: str = "") -> str:
    """A reply that requests sub-agents, for a server's script."""
    agents = "".join(f'<agent task="{html.escape(task)}" />' for task in tasks)
    return f'{before}\n<spawn_agents mode="parallel">{agents}</spawn_agents>'
