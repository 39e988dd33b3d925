"""A Messages API on this machine, for tests through the real SDK.

Three layers that know nothing of those above them: `http11` moves bytes, `messages` knows what
the API accepts and how it answers, `server` has the thread, the records and the scripts.
"""

from tests.loopback.messages import (
    Event,
    Reply,
    Step,
    ToolCall,
    input_tokens,
    output_tokens,
    signature_of,
)
from tests.loopback.server import LoopbackServer, Received, Script

__all__ = [
    "Event",
    "LoopbackServer",
    "Received",
    "Reply",
    "Script",
    "Step",
    "ToolCall",
    "input_tokens",
    "output_tokens",
    "signature_of",
]
