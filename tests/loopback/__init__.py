"""A Messages API on this machine, for tests through the real SDK.

Four layers that know nothing of those above them: `http11` moves bytes, `messages` knows what
the API accepts and how it answers, `sender` puts an answer on the wire, faults included, and
`server` has the thread, the records and the scripts.
"""

from tests.loopback.messages import (
    Act,
    Cut,
    Drip,
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
    "Act",
    "Cut",
    "Drip",
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
