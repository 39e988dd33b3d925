"""What this process knows of the servers that it asked, by their own words."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from agentnb.core.secrets import without_user


@dataclass(slots=True)
class Server:
    """One server, as its replies have shown it. For all clients and threads."""

    home: str = ""
    """The key of what belongs to it: see `agentnb.core.types.OpaqueBlock.api`."""
    is_vendors: bool = False
    """Whether it is the API's own: it separates thinking from text."""
    signs: bool = False
    """Whether it has signed thinking: it takes none back without a signature."""
    ends_with_reason: set[str] = field(default_factory=set)
    """Models whose replies end with a reason: one without was cut."""
    thinks_in_text: set[str] = field(default_factory=set)
    """Models whose replies begin within the thinking, and have its end tag in their text."""
    answers_at_once: set[str] = field(default_factory=set)
    """Models that have answered without a tag of thinking: they are none of these."""
    tags_thinking: set[tuple[str, str]] = field(default_factory=set)
    """Models that think between tags in their text, with the tag that begins it."""


_servers: dict[str, Server] = {}
_lock = threading.Lock()


def server_of(provider: str, base_url: str, *, is_vendors: bool) -> Server:
    """The server of a provider: one object for each address.

    Args:
        provider: The provider's name.
        base_url: Its address; of the vendor's own the name says enough.
        is_vendors: Whether it is the vendor's own.
    """
    home = provider if is_vendors else f"{provider} {without_user(base_url).rstrip('/')}"
    with _lock:
        return _servers.setdefault(home, Server(home, is_vendors))


def forget() -> None:
    """Forget all servers."""
    with _lock:
        _servers.clear()
