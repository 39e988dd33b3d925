"""A typed answer as a cell shows it: indented JSON in a code fence, where nothing acts."""

from __future__ import annotations

import json
import re

from agentnb.core.types import OrchestratorResult


def answer_of(result: OrchestratorResult) -> str:
    """The answer of a run in Markdown: a typed answer as readable JSON, any other unchanged."""
    if result.data is None:
        return result.final_response
    try:
        value = json.loads(result.final_response)
    except (ValueError, RecursionError):  # a secret was masked in it, for example
        return result.final_response
    text = json.dumps(value, ensure_ascii=False, indent=2)
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}json\n{text}\n{fence}"
