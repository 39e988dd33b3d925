"""What a fault is: a way to spoil a reply, beside it what has to come of it.

That is the sentence that a person reads, and who tries again: the transport (four calls in
all), the agent (two), or nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentnb.core.errors import LlmError
from tests.faults.wire import Wire
from tests.loopback import Reply

TRANSPORT, AGENT, NOBODY = 4, 2, 1
"""Who tries again, as the number of calls that are made when the fault is always there."""
CALL_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A spoilt reply, and what has to come of it."""

    name: str
    reply: Callable[[Wire, str], Reply]
    """From the dialect and the text that would have been said."""
    calls: int
    """How many are made when the fault is always there."""
    kind: type[LlmError]
    says: str
    """The sentence that a person reads; what stands in braces is the dialect's."""
    waits_s: tuple[float, float] | None = None
    """Between these, where the provider asks for a wait."""
    shows_text: bool = False
    """Half of the text is heard before it."""
    ends_by: str | None = None
    """What ends a stall: the turn's deadline (`deadline`), or the server (`let_go`)."""
    breaks_connection: bool = True
    """The connection is of no more use, whoever closes it."""
    only: str | None = None
    """The one dialect in which it can be, by its name."""
