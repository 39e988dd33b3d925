"""Counts tokens at cache breakpoints as the Messages API does.

A breakpoint marks the end of a prefix: the tools, the system prompt up to it, the messages up to
it. A call reads the longest marked prefix in the cache, and writes what is marked after it. A
prefix is in the cache from the first event of the reply to the call that wrote it: calls that
arrive earlier write it again. A short prefix is not cached.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tests.loopback.messages import input_tokens
from tests.loopback.said import BYTES_PER_TOKEN, Reply, as_json

LEAST_TOKENS = 1024
"""The shortest prefix that is cached."""


class CacheBooks:
    """A script for the loopback server, which adds the counts to the replies of another.

    Args:
        script: Returns the reply to a request.
    """

    def __init__(self, script: Callable[[dict[str, Any]], Reply]) -> None:
        self._script = script
        self._cached: set[str] = set()
        self._lock = threading.Lock()
        self.written: list[int] = []
        """Tokens that each call wrote, in order of arrival; so is the next one."""
        self.read: list[int] = []

    def __call__(self, body: dict[str, Any]) -> Reply:
        marks = [mark for mark in _marks(body) if mark[1] >= LEAST_TOKENS]
        with self._lock:
            read = max((size for digest, size in marks if digest in self._cached), default=0)
            longest = max((size for _, size in marks), default=0)
            self.read.append(read)
            self.written.append(longest - read)
        usage = {
            "input_tokens": max(0, input_tokens(body) - longest),
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": longest - read,
        }
        digests = {digest for digest, _ in marks}

        def begun() -> None:
            with self._lock:
                self._cached |= digests

        return replace(self._script(body), usage=usage, begun=begun)


def _marks(body: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Digest and tokens of each marked prefix."""
    marks: list[tuple[str, int]] = []
    so_far = as_json([body["model"], body.get("tools", [])])
    system = body.get("system", [])
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else [*system]
    for message in body["messages"]:
        content = message["content"]
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks:
        so_far += as_json({name: value for name, value in block.items() if name != "cache_control"})
        if "cache_control" in block:
            digest = hashlib.sha256(so_far.encode()).hexdigest()
            marks.append((digest, len(so_far.encode()) // BYTES_PER_TOKEN))
    return marks
