"""A server's process by itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentnb.tools.mcp.process import ServerProcess
from tests.support import until


@pytest.mark.skipif(not hasattr(os, "fork"), reason="servers that are commands need Linux or macOS")
@pytest.mark.parametrize("before", range(4))
async def test_cancel_between_two_pipes_leaves_none_of_them_open(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    begun: list[object] = []

    def held(connect: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def connect_unless_held(protocol: Any, pipe: object) -> object:
            begun.append(pipe)
            if len(begun) > before:
                await loop.create_future()
            return await connect(protocol, pipe)

        return connect_unless_held

    for name in ("connect_read_pipe", "connect_write_pipe"):
        monkeypatch.setattr(loop, name, held(getattr(loop, name)))
    server = ServerProcess(["cat"], {}, None, lambda: None)
    pipes = [server._process.stdin, server._process.stdout, server._process.stderr]
    connecting = asyncio.create_task(server.connect())
    await until(lambda: len(begun) > before or connecting.done())
    connecting.cancel()
    await asyncio.wait({connecting})

    server.kill()
    await asyncio.sleep(0)  # a transport closes its pipe with the loop's next step

    assert [pipe for pipe in pipes if pipe is not None and not pipe.closed] == []
