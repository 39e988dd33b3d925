"""The address of the chat completions API.

An explicit address wins over the environment, and that over OpenAI's own address.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

PUBLIC_URL = "https://api.openai.com/v1"


def base_url_in_force(configured: str | None, environment: Mapping[str, str]) -> str:
    """The address to use; `configured` comes from code or a settings file."""
    return configured or environment.get("OPENAI_BASE_URL", "").strip() or PUBLIC_URL


def is_public(base_url: str) -> bool:
    """Whether the address is OpenAI's own, which is stricter than others."""
    with suppress(ValueError):  # an invalid address raises when it is used
        return f".{urlsplit(base_url).hostname}".endswith(".openai.com")
    return False
