"""APIs on this machine, for tests through the real SDKs.

Layers, each independent of those above it: `http11` reads and writes HTTP, `said` has what a script
answers, `messages` and `completions` have what their API accepts and how it answers, `sender` sends
an answer, faults included, and `server` has the thread, the records and the scripts.
"""

from tests.loopback.messages import input_tokens, signature_of
from tests.loopback.said import (
    Act,
    Cut,
    Drip,
    Event,
    Reply,
    Step,
    ToolCall,
    output_tokens,
    system_of,
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
    "system_of",
]
