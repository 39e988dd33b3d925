"""Why a reply ended, in servers' words and in ours: one table for both dialects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentnb.core.text import literal, one_line, short_reason
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
    "tool_call": "tool_use",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    # Other servers and gateways.
    "eos": "end_turn",
    "eos_token": "end_turn",
    "complete": "end_turn",
    "model_length": "max_tokens",
    "token_limit": "max_tokens",
    "max_output_tokens": "max_tokens",
    "repetition": "max_tokens",  # vLLM ends a text that turns in circles
    # Filters: of Gemini, behind bridges, GLM, Bedrock and Cohere.
    "safety": "refusal",
    "recitation": "refusal",
    "language": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
    "spii": "refusal",
    "model_armor": "refusal",
    "image_safety": "refusal",
    "image_prohibited_content": "refusal",
    "image_recitation": "refusal",
    "sensitive": "refusal",
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
    "error_toxic": "refusal",
}
"""By a server's word, in lower case. One that is not here says that the reply broke off."""
_NOTHING = ("null", "none")
"""Sent by some servers with each piece before the last."""


def said(raw: object) -> str | None:
    """A server's word for an end, cut to a readable length; `None` if it says nothing."""
    return None if not raw or str(raw).lower() in _NOTHING else short_reason(raw)


def our_word(reason: str | None, *, has_calls: bool) -> str:
    """Our word for an end; empty for an unknown one.

    Args:
        reason: See `said`. Without one it is taken for a usual end.
        has_calls: Whether the reply holds tool calls: some servers end those as they end a text.
    """
    word = (reason or "end_turn").partition(":")[0]  # Gemini's bridge says more behind it
    ours = _OURS.get(word.lower().replace("-", "_"), "")
    return "tool_use" if has_calls and ours in ("end_turn", "stop_sequence") else ours


def declined(reason: str | None, text: str, details: object = None) -> str:
    """Why a model, or a filter of its server, declined to answer; empty if no more is known.

    Args:
        reason: See `said`.
        text: The text that came before.
        details: The server's own, of any shape: `category` and `explanation` are read.
    """
    known = details if isinstance(details, Mapping) else {}
    category = known.get("category") or ("" if (reason or "").lower() == "refusal" else reason)
    why = ": ".join(filter(None, map(_words, (category, known.get("explanation")))))
    if not why:
        return ""
    words = f": {_words(text)}" if text.strip() else ""
    return f"The model declined to answer ({why}){words}. Rephrase the task, or use another model."


def _words(said: Any) -> str:
    return one_line(said).rstrip(".") if isinstance(said, str) else ""


def checked(
    reason: str | None, server: Server, model: str, *, has_company: bool, has_answer: bool
) -> str:
    """The note for a reply that has ended; empty for none.

    Args:
        reason: See `said`.
        server: Has given reasons for the ends of this model, or not.
        model: The model that was asked.
        has_company: Whether another call to the server was open beside this one.
        has_answer: Whether the reply holds text or calls.

    Raises:
        BadReply: It has not ended well: for an unknown reason, or for none though its server gives
            reasons, has said nothing, or may have ended it for another request.
    """
    if reason is None:
        if has_company and model not in server.ends_without:
            server.cut_beside += 1
            server.whole_alone = 0
            raise BadReply("an end without a reason")
        if model in server.ends_with_reason or not has_answer:
            raise BadReply("an end without a reason")
        server.ends_without.add(model)
        server.cut_beside = 0
        return MAY_BE_CUT
    if not our_word(reason, has_calls=False):
        raise BadReply(f"the unknown stop reason {literal(reason)}")
    server.whole_beside += has_company
    server.whole_alone += not has_company
    server.ends_without.discard(model)
    server.ends_with_reason.add(model)
    return ""
