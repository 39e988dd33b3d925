"""What this process knows of the servers that it asked, by their own words."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from agentnb.core.secrets import without_user

_ALONE = 8
"""Whole replies one at a time after a first cut one."""


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
    ends_without: set[str] = field(default_factory=set)
    """Models whose replies end without one, though no other request came."""
    begun: int = 0
    """Calls so far."""
    open: int = 0
    """Calls that are open now."""
    cut_beside: int = 0
    """Replies that ended without a reason when another call had been open beside theirs."""
    whole_beside: int = 0
    """Replies that ended with a reason although another call had been open beside theirs."""
    thinks_in_text: set[str] = field(default_factory=set)
    """Models whose replies begin within the thinking, and have its end tag in their text."""
    answers_at_once: set[str] = field(default_factory=set)
    """Models that have answered without a tag of thinking: they are none of these."""
    tags_thinking: set[tuple[str, str]] = field(default_factory=set)
    """Models that think between tags in their text, with the tag that begins it."""

    whole_alone: int = 0
    """Replies that ended with a reason, with no other call beside them, since the last cut one."""

    @property
    def at_once(self) -> int:
        """How many calls it may be asked at once, by what its replies have shown.

        A server that ends an open reply when another request comes leaves one whole reply for each
        burst of calls; another loses a reason rarely. So two calls are tried again after a while,
        which doubles with each cut.
        """
        if not self.cut_beside or self.whole_beside > 2 * self.cut_beside:
            return sys.maxsize
        is_while = self.whole_alone < _ALONE << min(self.cut_beside - 1, 16)
        return 1 if is_while else 2

    def has_company(self) -> Callable[[], bool]:
        """Returns a function for the call that begins: whether another was open beside it."""
        was_beside, begun = self.open > 1, self.begun
        return lambda: was_beside or self.begun > begun


def any_takes_turns() -> bool:
    """Whether some server is not asked as many calls at once as there are."""
    return any(each.cut_beside and each.at_once <= 2 for each in [*_servers.values()])


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
