"""What this process knows of the servers that it asked, by their own words."""

from __future__ import annotations

import threading
from collections.abc import Callable
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

    @property
    def cuts_streams(self) -> bool:
        """Whether it seems to end an open reply when another request comes.

        One that does leaves a whole reply for each burst of calls; another loses a reason rarely.
        """
        return 0 < self.cut_beside and self.whole_beside <= 2 * self.cut_beside

    def has_company(self) -> Callable[[], bool]:
        """Returns a function for the call that begins: whether another was open beside it."""
        was_beside, begun = self.open > 1, self.begun
        return lambda: was_beside or self.begun > begun


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
