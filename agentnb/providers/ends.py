"""Why a reply ended, in servers' words and in ours: one table for both dialects."""

from __future__ import annotations

from agentnb.core.text import literal, short_reason
from agentnb.providers.limits import BadReply
from agentnb.providers.servers import Server

CUT = ("max_tokens", "model_context_window_exceeded", "refusal")
"""Our words for ends after which the last part may be a fragment."""
MAY_BE_CUT = "The server did not say why its reply ended, so it may be cut."

_OURS = {
    # The Messages API's own.
    "end_turn": "end_turn",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
    "pause_turn": "pause_turn",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "model_context_window_exceeded",
    "refusal": "refusal",
    # Those of chat completions.
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    # Other servers and gateways.
    "eos": "end_turn",
    "eos_token": "end_turn",
    "complete": "end_turn",
    "model_length": "max_tokens",
    # Bridges to Gemini; the last is GLM's.
    "safety": "refusal",
    "recitation": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
    "sensitive": "refusal",
}
"""By a server's word, in lower case. One that is not here says that the reply broke off."""
_NOTHING = ("null", "none")
"""Sent by some servers with each piece before the last."""


def said(raw: object) -> str | None:
    """A server's word for an end, cut to a readable length; `None` if it says nothing."""
    return None if not raw or raw in _NOTHING else short_reason(raw)


def our_word(reason: str | None, *, has_calls: bool) -> str:
    """Our word for an end; empty for an unknown one.

    Args:
        reason: See `said`. Without one it is taken for a usual end.
        has_calls: Whether the reply holds tool calls: some servers end those as they end a text.
    """
    ours = _OURS.get((reason or "end_turn").lower().replace("-", "_"), "")
    return "tool_use" if has_calls and ours in ("end_turn", "stop_sequence") else ours


def checked(reason: str | None, server: Server, model: str, *, has_answer: bool) -> str:
    """The note for a reply that has ended; empty for none.

    Args:
        reason: See `said`.
        server: Has given reasons for the ends of this model, or not.
        model: The model that was asked.
        has_answer: Whether the reply holds text or calls.

    Raises:
        BadReply: It has not ended well: for an unknown reason, or for none though its server gives
            reasons or has said nothing.
    """
    if reason is None:
        if model in server.ends_with_reason or not has_answer:
            raise BadReply("an end without a reason")
        return MAY_BE_CUT
    if not our_word(reason, has_calls=False):
        raise BadReply(f"the unknown stop reason {literal(reason)}")
    server.ends_with_reason.add(model)
    return ""
