"""How a model is asked for a typed answer: by its only tool, or in words."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from agentnb.core.prompt import FINAL_ANSWER_TOOL, asked_in_words
from agentnb.core.protocols import OutputType, Provider, supports_tools
from agentnb.core.types import FINAL_ANSWER, CompletionRequest, ToolSpec


def asking_for(output: OutputType, request: CompletionRequest) -> CompletionRequest:
    """The request, asking only for a typed answer."""
    return replace(request, tools=_final_answer_tools(output), output_schema=output.schema)


@lru_cache(maxsize=64)
def _final_answer_tools(output: OutputType) -> tuple[ToolSpec]:
    """One shared object for all agents, which makes the keys of calls faster."""
    return (ToolSpec(FINAL_ANSWER, FINAL_ANSWER_TOOL, output.schema),)


def asked_of(provider: Provider, request: CompletionRequest) -> CompletionRequest:
    """The request in the form that the model takes: without tools, it asks for JSON in words.

    Made for each call, since the models of a chain may differ. The words are not part of the
    conversation; the next call adds them again.
    """
    if request.output_schema is None or supports_tools(provider, request.model):
        return request
    return asked_in_words(request)
