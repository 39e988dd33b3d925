"""Where chat completions are asked for.

What is said goes before the environment, and that before OpenAI's own address.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

PUBLIC_URL = "https://api.openai.com/v1"


def base_url_in_force(said: str | None, environment: Mapping[str, str]) -> str:
    """The address in force, where `said` is what a person or a file says, if anything."""
    return said or environment.get("OPENAI_BASE_URL", "").strip() or PUBLIC_URL


def is_public(base_url: str) -> bool:
    """Whether it is OpenAI's own, which is stricter than all others."""
    with suppress(ValueError):  # what is no address is told when it is used
        return f".{urlsplit(base_url).hostname}".endswith(".openai.com")
    return False
