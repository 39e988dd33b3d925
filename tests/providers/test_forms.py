"""What a server's refusal teaches of the form of a request, and what it must not teach.

The words are those of real servers. Each row of the tables stands for a kind.
"""

from __future__ import annotations

import contextlib
import json
import re
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agentnb.core.errors import InvalidRequest, LlmError
from agentnb.core.types import (
    FINAL_ANSWER,
    CompletionRequest,
    Message,
    OpaqueBlock,
    Role,
    Stopped,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    user_message,
)
from agentnb.providers import anthropic_wire, openai_wire
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.forms import (
    CACHE_CONTROL,
    CALL_IDS,
    CONTENT,
    MAX_COMPLETION_TOKENS,
    MAX_TOKENS,
    NULL_CONTENT,
    STREAM_OPTIONS,
    SYSTEM,
    TOOL_CHOICE,
    TOOLS,
    UNSIGNED,
    Asking,
    Complaint,
    Form,
    RefusedThinking,
    after,
)
from agentnb.providers.openai import OpenAIProvider
from agentnb.providers.servers import Server, server_of
from tests.loopback import LoopbackServer, Reply
from tests.loopback.messages import signature_of

PARTS = (
    TOOL_CHOICE,
    TOOLS,
    SYSTEM,
    STREAM_OPTIONS,
    MAX_TOKENS,
    NULL_CONTENT,
    CALL_IDS,
    CACHE_CONTROL,
    "reasoning_content",
    "mark",
    UNSIGNED,
    CONTENT,
)
"""All that one request can hold, and two fields of its server."""


def openai(message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The body of an error as the SDK gives it."""
    return {"message": message, "type": "invalid_request_error", "param": param, "code": code}


REFUSED = [
    # In the words of MiniMax, of templates, of DeepSeek and of gateways.
    (SYSTEM, "invalid params, chat content has invalid message role: system (2013)"),
    (SYSTEM, "Jinja Exception: Unknown role: system"),
    (STREAM_OPTIONS, "stream_options should be set along with stream = true"),
    (
        STREAM_OPTIONS,
        {
            "message": "invalid input error",
            "details": [
                {"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}
            ],
        },
    ),
    # Ids of another server.
    (CALL_IDS, "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"),
    (CALL_IDS, "messages.2.content.0.tool_result.tool_use_id: String should match pattern '^[a-z]"),
    (CALL_IDS, "Tool call id was functions.look:0 but must be a-z, A-Z, 0-9, with a length of 9."),
    (
        CALL_IDS,
        openai(
            "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with "
            "maximum length 40, but got a string with length 64 instead.",
            param="messages[1].tool_calls[0].id",
            code="string_above_max_length",
        ),
    ),
    (
        CALL_IDS,
        "1 validation error detected: Value 'a.b:0' at 'messages.2.member.content.1.member.toolUse."
        "toolUseId' failed to satisfy constraint: Member must satisfy regular expression pattern",
    ),
    # Gateways that do not cache.
    (
        CACHE_CONTROL,
        "messages.2.content.0.tool_result.cache_control: Extra inputs are not permitted",
    ),
    (CACHE_CONTROL, "system.0.cache_control: Extra inputs are not permitted"),
    # A forced tool.
    (TOOL_CHOICE, 'tool_choice: type "tool" and "any" are not supported for this model'),
    (TOOL_CHOICE, 'type "tool" and "any" are not supported for this model'),
    (TOOL_CHOICE, "Thinking may not be enabled when tool_choice forces tool use."),
    (TOOL_CHOICE, "Thinking mode does not support this tool_choice"),
    (TOOL_CHOICE, "deepseek-reasoner does not support this tool_choice"),
    (TOOL_CHOICE, "Forced function calling is not available with reasoning"),
    (TOOL_CHOICE, "tool_choice must be either 'auto' or 'none'"),
    (TOOL_CHOICE, "No endpoints found that support the provided 'tool_choice' value."),
    (TOOL_CHOICE, "tool_choice 'specified' is incompatible with thinking enabled"),
    (
        TOOL_CHOICE,
        "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support "
        "being set to required or object in thinking mode",
    ),
    (
        TOOL_CHOICE,
        "Invalid tool_choice type: 'object'. Supported string values: none, auto, required",
    ),
    (TOOL_CHOICE, openai("Unknown parameter.", param="tool_choice", code="unknown_parameter")),
    (TOOL_CHOICE, openai("Bad request.", param="tool_choice", code="unknown_parameter")),
    (
        TOOL_CHOICE,
        {"detail": [{"loc": ["body", "tool_choice"], "msg": "Extra inputs are not permitted"}]},
    ),
    (TOOL_CHOICE, "tool_choice.type: Input should be 'auto' or 'none'"),
    (TOOL_CHOICE, "tool_choice: data did not match any variant of untagged enum ToolChoice"),
    (TOOL_CHOICE, "tool_choice: Input should be a valid string"),
    (TOOL_CHOICE, "Error: oneOf at '/' not met: Type mismatch of '/tool_choice', 'string' not in"),
    (
        TOOL_CHOICE,
        "json: cannot unmarshal object into Go struct field ChatCompletionRequest.tool_choice of "
        "type string",
    ),
    (
        TOOL_CHOICE,
        "1 validation error for ChatCompletionRequest\ntool_choice\n  Input should be 'auto' or "
        "'none' [type=literal_error, input_value='unknown field `mark`', input_type=str]\n    For "
        "further information visit https://errors.pydantic.dev/2.11/v/literal_error",
    ),
    # Tools.
    (TOOLS, "This model does not support tools."),
    (TOOLS, "Unrecognized request argument supplied: tools."),
    (TOOLS, "registry.ollama.ai/library/gemma:2b does not support tools"),
    (TOOLS, "No endpoints found that support tool use. To learn more, see our page on routing."),
    (TOOLS, "Function calling is not enabled for models/gemma-3-27b-it"),
    (TOOLS, "`tools` is not supported by this model"),
    (TOOLS, "deepseek-reasoner does not support Function Calling"),
    (TOOLS, "tools param requires --jinja flag"),
    (TOOLS, "Tool use is disabled for this model"),
    (
        TOOLS,
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    ),
    (TOOLS, openai("Unrecognized request argument supplied: tools", code="unknown_parameter")),
    (
        TOOLS,
        openai(
            "Function tools with reasoning_effort are not supported for gpt-5.6 in "
            "/v1/chat/completions. Use /v1/responses instead.",
            param="reasoning_effort",
        ),
    ),
    (
        TOOLS,
        {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {"raw": '{"error":"tools not supported"}'},
        },
    ),
    (TOOLS, {"errors": [{"reason": "tools not supported"}]}),
    (TOOLS, {"title": "Bad request", "detail": "tools not supported"}),
    (TOOLS, {"title": "tools not supported", "status": 400}),
    # The system prompt.
    (SYSTEM, "System role not supported"),
    (SYSTEM, "Developer instruction is not enabled for models/gemma-3-27b-it"),
    (SYSTEM, "Unexpected role 'system'"),
    (SYSTEM, "invalid role: system, only user and assistant are supported"),
    (SYSTEM, "Only user and assistant roles are supported!"),
    (SYSTEM, "Only user, assistant and tool roles are supported, got system."),
    (SYSTEM, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
    (SYSTEM, "system: Extra inputs are not permitted"),
    (SYSTEM, "'system' is not one of ['user', 'assistant'] - 'messages.0.role'"),
    (SYSTEM, "This model does not support the 'system' parameter"),
    (SYSTEM, "messages[0].role: Input should be 'user' or 'assistant', got 'system'"),
    (SYSTEM, "Invalid value: 'system'. Supported values are: 'user', 'assistant'."),
    (
        SYSTEM,
        {
            "detail": [
                {
                    "loc": ["body", "messages", 0, "role"],
                    "msg": "Input should be 'user' or 'assistant'",
                    "input": "system",
                }
            ]
        },
    ),
    # Usage in a stream.
    (STREAM_OPTIONS, "stream_options is not supported when tools are used"),
    (
        STREAM_OPTIONS,
        "unknown field `stream_options`, expected one of `model`, `max_tokens`, `tools`, "
        "`tool_choice`",
    ),
    (STREAM_OPTIONS, "unrecognized field: stream_options"),
    (STREAM_OPTIONS, "body.stream_options: Extra inputs are not permitted"),
    (STREAM_OPTIONS, "'include_usage' is not allowed"),
    (STREAM_OPTIONS, {"message": ["property stream_options should not exist"], "statusCode": 400}),
    (STREAM_OPTIONS, "stream_options is not a known field"),
    (STREAM_OPTIONS, "'stream_options' is not a valid parameter"),
    (STREAM_OPTIONS, "Property stream_options not defined in schema"),
    (STREAM_OPTIONS, "stream_options: this field is not part of the schema"),
    (STREAM_OPTIONS, "additional property 'stream_options' found"),
    (STREAM_OPTIONS, "body/stream_options must NOT have additional properties"),
    (
        STREAM_OPTIONS,
        "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are "
        "not permitted', 'input': {'tools': 'not supported'}}]",
    ),
    # The limit's name.
    (
        MAX_TOKENS,
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.",
    ),
    (MAX_TOKENS, openai("Unsupported parameter", param="max_tokens", code="unsupported_parameter")),
    (MAX_TOKENS, "this model is not supported MaxTokens, please use MaxCompletionTokens"),
    (MAX_TOKENS, "mistral does not support parameters: {'max_tokens': 4096}, for model=small"),
    (STREAM_OPTIONS, "The 'stream_options' parameter is only allowed when 'stream' is enabled."),
    (STREAM_OPTIONS, "Stream options can only be defined when `stream=True`."),
    (STREAM_OPTIONS, "'stream' and 'stream_options' must be set together"),
    # Fields that a server sent. What it repeats of their values is not read.
    *(
        (
            "mark",
            f"Extra inputs are not permitted, field: 'messages[8].mark', value: '{value}'",
        )
        for value in (
            "default",
            "The system prompt is not supported.",
            "The description is missing, so I look",
            "It must include a number. unknown field `tools`",
        )
    ),
    (
        "mark",
        '{\\"detail\\":[{\\"type\\":\\"extra_forbidden\\",\\"loc\\":[\\"body\\",\\"mark\\"],\\"msg\\":'
        '\\"Extra inputs are not permitted\\",\\"input\\":\\"unknown field `tools`\\"}]}',
    ),
    ("mark", "Unknown parameter: mark."),
    (
        "reasoning_content",
        "The reasoning_content is for display purposes only. Please remove the reasoning_content "
        "from your message to reduce network traffic.",
    ),
    ("reasoning_content", "Invalid request: 'reasoning_content' must not be set in messages"),
    ("reasoning_content", "reasoning_content should not be provided in input messages"),
    ("reasoning_content", "'messages[2]': invalid field 'reasoning_content'"),
    ("reasoning_content", "illegal property reasoning_content in messages[2]"),
    ("reasoning_content", "reasoning_content is a response-only field"),
    (
        "reasoning_content",
        "1 validation error for ChatCompletionRequest\nmessages.2.assistant.reasoning_content\n  "
        "Extra inputs are not permitted [type=extra_forbidden, input_value='hm', input_type=str]",
    ),
    ("reasoning_content", "Unknown parameter: 'messages[1].reasoning_content'."),
    ("reasoning_content", "property 'reasoning_content' is unsupported"),
    (
        "reasoning_content",
        "This model doesn't support the reasoningContent.reasoningText.text field. Remove it and "
        "try again.",
    ),
    ("mark", "messages.1.mark: Extra inputs not permitted"),
    ("mark", openai("Unknown parameter.", param="messages[1].mark", code="unknown_parameter")),
    # The content beside calls.
    (NULL_CONTENT, "Invalid 'content': 'content' field must be a string or an array of objects."),
    (NULL_CONTENT, "messages[3].content must be a string or an object (was null)"),
    (NULL_CONTENT, "messages.3.content: Input should be a valid string"),
    (NULL_CONTENT, 'can only concatenate str (not "NoneType") to str'),
    (
        NULL_CONTENT,
        "Invalid type for 'messages[2].content': expected one of a string or array of objects, but "
        "got null instead.",
    ),
    (NULL_CONTENT, "None is not of type 'string' - 'messages.2.content'"),
    (NULL_CONTENT, 'Error rendering: Cannot apply filter "string" to type: NullValue'),
    (NULL_CONTENT, "invalid message content type: <nil>"),
    (NULL_CONTENT, "messages[2].content: invalid type: null, expected a string at line 1"),
    # Thinking.
    (UNSIGNED, "messages.1.content.0.thinking.signature: Field required"),
    (
        UNSIGNED,
        "messages.1.content.0: Input tag 'thinking' found using 'type' does not match any of the "
        "expected tags: 'text', 'image', 'tool_use', 'tool_result'",
    ),
    (UNSIGNED, "messages.1.content.0: unsupported content block type 'thinking'"),
    (UNSIGNED, "unknown content block type: thinking"),
    (UNSIGNED, "messages.1.content.0.type: 'thinking' blocks are not supported by this model"),
    (UNSIGNED, "messages.1.content.0 must not be a thinking block"),
    (CONTENT, "messages.1.content.0: unknown content block type: reasoning"),
    # Routers, and models that keep no prompts.
    (CACHE_CONTROL, "No endpoints found that support cache control"),
    (
        CACHE_CONTROL,
        "You invoked an unsupported model or your request did not allow prompt caching. See the "
        "documentation for more information.",
    ),
    (CALL_IDS, "messages.1.content.0.tool_use.id: String should have at most 64 characters"),
    # Words that elsewhere tell of an account, a full server, a schema or a length.
    (TOOLS, "Function calling is not supported for model accounts/fireworks/models/llama-v2"),
    (TOOLS, "This model does not support tool use, remove tools and retry"),
    (STREAM_OPTIONS, "JSON schema: additional properties are not allowed: 'stream_options'"),
    # In the words of Bedrock, and of zod.
    (
        TOOL_CHOICE,
        "Malformed input request: #/tool_choice: expected type: String, found: JSONObject",
    ),
    (
        STREAM_OPTIONS,
        {
            "name": "ZodError",
            "issues": [{"message": "Unrecognized key(s) in object: 'stream_options'"}],
        },
    ),
    *(
        (TOOL_CHOICE, {"issues": [{"code": code, "path": ["tool_choice"], "message": said}]})
        for code, said in [
            ("invalid_type", "Expected string, received object"),
            ("invalid_union", "Invalid input"),
        ]
    ),
    (TOOL_CHOICE, "tool_choice expects a string, got object"),
    (TOOL_CHOICE, "tool_choice should be string"),
    (TOOL_CHOICE, "Unable to coerce 'tool_choice' to string"),
    # Tools with what we do not send, and names with words of an account.
    (TOOLS, "This model does not support tools or JSON schema output."),
    (TOOLS, "This model does not support image input or tools"),
    (TOOLS, "Tool use isn't available: model google/gemma:free does not support tools."),
    (TOOLS, "this model does not support tools (provider: trial-lab)"),
    (TOOLS, "model plan-7b does not support tools"),
    (TOOLS, "Function calling is not supported by account-classifier-v2"),
    (TOOLS, "Tool calling is not supported in this version of llama-server, please upgrade"),
    # Gateways: their own sentence, a request that is repeated, their names for things.
    (
        TOOLS,
        "Request failed: Bad request (400): model does not support tools.\nPlease retry if you "
        "think this is a transient or recoverable error.",
    ),
    (
        TOOLS,
        "litellm.UnsupportedParamsError: together_ai does not support parameters: {'tools': "
        "[{'type': 'function', 'function': {'name': 'final_answer', 'parameters': {'properties': "
        "{'plan': {'type': 'string'}}}}}]}, for model=mistralai/Mixtral-8x22B.",
    ),
    (
        UNSIGNED,
        'All accounts exhausted. Last error: HTTP 400: {"message": "messages.1.content.0: Invalid '
        '`signature` in `thinking` block"}',
    ),
    (
        UNSIGNED,
        {
            "error": {
                "upstream_error": {
                    "error": {
                        "message": "messages.1.content.0: Invalid `signature` in `thinking` block"
                    }
                }
            }
        },
    ),
    (
        TOOL_CHOICE,
        {"message": 'Supported tool_choice values are "auto" and "none" currently.'},
    ),
    (
        CACHE_CONTROL,
        "Malformed input request: #/messages/6/content/0: extraneous key [cachePoint] is not "
        "permitted, please reformat your input and try again.",
    ),
    (SYSTEM, "400 The input system_instruction is not supported."),
    (TOOLS, "LLM Module: Unknown field for GenerationConfig: tools."),
    (TOOL_CHOICE, "Value 'tool_choice' is not supported. Allowed: 'x' at 'y'"),
    (STREAM_OPTIONS, "'stream_options': this key is not allowed"),
    (
        TOOL_CHOICE,
        "This model doesn't support the toolConfig.toolChoice.any field. Remove "
        "toolConfig.toolChoice.any and try again.",
    ),
]

NOT_TO_ALL = [
    # Of an account.
    (TOOLS, "Tool use requests are not permitted to exceed 10 per minute"),
    (TOOLS, "There is no available capacity for tool calling, please retry"),
    (TOOLS, "Tool calling is not available for accounts without a payment method"),
    (TOOLS, "Function calling is not enabled on the Hobby plan"),
    (TOOLS, "Trial keys cannot use tools, please use a production key"),
    (TOOLS, "Tool calling disabled: billing not set up"),
    (TOOLS, "The requested model is not available for tool use on your plan"),
    (TOOLS, "Access to tool calling is not available on the free tier. Please upgrade."),
    (TOOLS, "`tools` is not supported on the free plan"),
    (TOOL_CHOICE, "tool_choice is not available on your current plan, please upgrade"),
    (SYSTEM, "System prompts are not available on the free tier"),
    (STREAM_OPTIONS, "stream_options is not available on the free tier"),
    (TOOLS, "Tool calling is not available for free users"),
    (TOOLS, "Tool calling is not enabled for this workspace"),
    (TOOLS, "Tool calling is not enabled for your project. Contact sales@example.com"),
    (TOOLS, "This API key is not allowed to use tools"),
    (TOOLS, "Function calling is not available for starter customers"),
    (TOOLS, "Your quota does not permit tool use"),
    (
        TOOLS,
        "Tool use is not supported for unverified organizations. Please verify your organization.",
    ),
    (TOOLS, "No endpoints found that support tool use under your data policy"),
    (TOOLS, "Tool use is not available in your region"),
    (TOOLS, "Your license does not permit tool use"),
    (TOOLS, "Tool use is disabled by your administrator"),
    (TOOLS, "Tool use is not allowed: insufficient permissions"),
    (TOOLS, "Tool use is temporarily unavailable for this model, please try again later"),
    (TOOLS, "The model is overloaded: function calling is currently unavailable. Try again later."),
    (TOOLS, "`tools` cannot be used now, retry in 20 seconds"),
    (TOOLS, "Function calling is not enabled for your organization"),
    # In a sentence beside, or without a full stop.
    (TOOLS, "You are on the free plan. `tools` is not supported."),
    (TOOL_CHOICE, "Your trial has ended.\ntool_choice cannot be used."),
    (TOOLS, {"title": "Upgrade your plan", "detail": "`tools` is not supported"}),
    (TOOLS, "Tool use is not available. Please try again later."),
    (TOOLS, "The service is overloaded. Tools are not available."),
    (TOOLS, "Function calling is currently unavailable, please try again"),
    (TOOLS, "Tools are not available at the moment"),
    (TOOLS, "Tool calling is disabled due to high load"),
    (TOOLS, "Tool calling is disabled during maintenance"),
    (TOOLS, "Tool use is not available: insufficient balance"),
    (TOOLS, "Tool calling is not allowed for this virtual key"),
    (TOOLS, "Tool use is not allowed for the API key abc"),
    (TOOLS, "Free tier: tools are not supported"),
    (TOOLS, "Your plan: function calling is not supported"),
    (TOOLS, "Tool calling is not available in your country"),
    (CACHE_CONTROL, "Prompt caching is not enabled for this project"),
]
"""What is refused to an account, or for now."""

UNION = [
    ("SystemMessage", "role", "Input should be 'system'"),
    ("UserMessage", "role", "Input should be 'user'"),
    ("UserMessage", "name", "Input should be a valid dictionary"),
]
"""What FastAPI says of a message of many kinds: each kind, and what it would take."""

OTHERS = [
    # The conversation, as llama.cpp repeats it.
    'Failed to parse messages: Unsupported content part type: "image_url"; messages = [ { "role": '
    '"system", "content": "Be kind." }, { "content": "The model does not support tools. No." } ]',
    # Tool calls that do not fit together, and other things that are too long.
    "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a",
    "Invalid parameter: 'tool_call_id' of 'a' not found in 'tool_calls' of previous message",
    "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64",
    "Invalid 'messages[3].content': string too long. Expected a string with maximum length "
    "1048576, but got a string with length 1200345 instead.",
    # A call's arguments, and what was asked.
    "tool call validation failed: parameters for tool final_answer did not match schema: errors: "
    "[additionalProperties 'system' not allowed]",
    {"message": "Invalid prompt: system message blocked: not allowed", "code": "content_filter"},
    "Invalid request: tools.function.parameters is not a valid moonshot flavored json schema, "
    "details: <At path 'properties.system': type is not supported>",
    # Formats that a person asked for, by words and not by the names of their fields.
    "Cannot use custom grammar constraints with tools.",
    "json mode cannot be combined with tool/function calling",
    "Function calling with a response mime type: 'application/json' is unsupported",
    # What the model wrote, or a server that is ill.
    "error parsing tool call: raw='{\"value\": ', err=unexpected end of JSON input",
    "unexpected EOF",
    "An unexpected error occurred while calling tools",
    "An unexpected error occurred while reading the system prompt",
    "An unexpected error forced the server to end the request",
    "model runner has unexpectedly stopped, this may be due to resource limitations",
    "Tool choice is required, but model did not call a tool",
    openai("Failed to call a function. Tools are not supported here.", code="tool_use_failed"),
    {"message": "tools not supported", "failed_generation": "<function=x>"},
    openai("Generated JSON has tools that are not supported.", code="json_validate_failed"),
    # A list of what would be taken.
    "unknown field `seed`, expected one of `model`, `max_tokens`, `tools`, `tool_choice`",
    "property seed should not exist; tools, tool_choice and stream_options are read",
    "'mark_2' is not a valid parameter",
    "messages/0 must NOT have additional properties",
    "tools[0].function: additional property 'strict' found",
    "tool_choice: the function 'answer' is not defined in tools",
    "max_tokens is not a valid integer",
    "openai does not support parameters: ['seed'], supported ones are 'tools', 'tool_choice'",
    # Another part of the request.
    openai(
        "Error from provider: Upstream request failed: [unsupported_tool_schema] The tool schema "
        "is not supported (unsupported_keyword).",
        param="tools",
    ),
    "JSON Schema not supported: could not understand the instance `{'title': 'Tools'}`.",
    'JSON schema conversion failed:\nUnrecognized schema: {"system":"tools not supported"}',
    "1 validation error detected: Value 'The system prompt is not supported.' at 'messages.1."
    "member.content' failed to satisfy constraint: Member must have length less than 9",
    f"1 validation error detected: Value '{'The system prompt is not supported. ' * 200}' at 'm'",
    "2 validation errors detected: Value '' at 'messages.1.name' failed to satisfy constraint: "
    "Member must not be null; Value 'Tools are not supported.' at 'messages.1' failed to satisfy",
    "Unknown parameter for look: system",
    "Invalid argument for final_answer: tools",
    openai("Tool schemas are not supported.", param="tools"),
    "Tool schema uses unsupported keyword `pattern` in tools",
    "Unsupported value: 'reasoning_effort' does not support 'minimal' with tools",
    "messages[0].content: null byte (\\u0000) is not allowed",
    "messages.0.content.0.text: Input should be a valid string",
    "Request signature is invalid or expired",
    "The system prompt contains content that is not allowed by our usage policy",
    "Only user, system and assistant roles are supported!",
    "Only user and assistant roles are supported, with the exception of an initial optional "
    "system message!",
    "Unsupported value: 'max_tokens' must be an integer, not float",
    "Streaming is not supported without `stream_options`",
    "stream_options.include_obfuscation: Extra inputs are not permitted",
    "tools.0.custom.input_schema: JSON schema is invalid",
    "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at its top",
    openai(
        "Invalid schema for function 'final_answer': 'allOf' is not permitted.",
        param="tools[0].function.parameters",
        code="invalid_function_parameters",
    ),
    "No endpoints found that support image input: not supported",
    "Unsupported value: 'temperature' does not support 0.2 with this model",
    "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode",
    "messages: text content blocks must be non-empty",
    "Function calls and results not balanced: Not the same number of function calls and responses",
    # What a person wrote, in a message that is repeated.
    str(
        [
            {
                "type": "missing",
                "loc": ("body", "messages", 1, "name"),
                "msg": "Field required",
                "input": {
                    "role": "user",
                    "content": [{"type": "text", "text": "The system prompt is not supported."}],
                },
            },
        ]
    ),
    "Invalid user message={'role': 'user', 'content': [{'type': 'text', 'text': 'The system "
    "prompt is not supported.'}]} at index 1.",
    # A role of ours, in a list.
    "'tool' is not one of ['system', 'assistant', 'user', 'function'] - 'messages.2.role'",
    # A value that is too large, not a name.
    openai("Range of max_tokens should be [1, 8192]", code="invalid_parameter_error"),
    openai("max_tokens should be in [1, 8192]", code="invalid_parameter_error"),
    {"code": "Client specified an invalid argument", "error": "`max_tokens` was 8192"},
    "'max_tokens' or 'max_completion_tokens' is too large: 8192",
    "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens",
    "max_tokens cannot be set above 4096",
    "The max_tokens of 100000 is not supported by this model, which supports up to 8192",
    "Unsupported value: 'max_tokens' does not support 64000 with this model.",
    "The tools contain duplicates, which is not supported",
    "Multiple system messages are not supported",
    "System messages are only supported at the start of the conversation",
    "The system message must not be empty: not supported",
    "The system prompt is too long, which is not supported",
    # Something else than thinking, though its name stands there.
    "messages.1.content.0.thinking.estimated_tokens: Extra inputs are not permitted",
    "tools.0.input_schema.properties.content.thinking: unsupported keyword",
    "Image content: thinking models do not support images",
    "Document content part 'thinking.pdf' is not supported",
    # Something is missing.
    "thinking is enabled but reasoning_content is missing in assistant tool call message 2",
    "The `reasoning_content` in the thinking mode must be passed back to the API.",
    "stream_options: Field required",
    "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. "
    "When `thinking` is enabled, a final message must start with a thinking block",
    # Of each kind of message, what it would take.
    {"detail": [{"loc": ["messages", 0, *at], "msg": words} for *at, words in UNION]},
    str(
        [
            {"type": "x", "loc": ("body", "messages", 0, *at), "msg": words, "input": "system"}
            for *at, words in UNION
        ]
    ),
    "messages.0.role: Input should be 'system' or 'user'",
    "messages.0.role: Field required",
    # A part is named, and missing or too large.
    "`tools` is too long: 200 of them are not supported",
    "Unexpected body: the 'system' field is required",
    "Invalid value: 'system' prompt is too long",
    "Invalid value: 'system'. Supported values are: 'low', 'high'.",
    "Unexpected content: a thinking block is required",
    "Invalid value: 'low'. Supported values are: 'high'.",
    "max_tokens: 64000 is not supported by this model",
    "This model only supports max_tokens <= 4096",
    "'max_tokens' must not be set to 0",
    # Of what a person's type has.
    "Invalid schema for function 'final_answer': In context=('properties', 'tools'), 'oneOf' is "
    "not permitted.",
    "tools[0].function_declarations[0].parameters.properties[max_tokens].format: only 'enum' is "
    "supported",
    "tools.0.custom.cacheControl: value 2h is not supported, ttl must be 5m or 1h",
    # A part is named, and taken.
    "tool_choice: the forced tool is slow",
    "tool_choice.name is invalid: too long",
    "tools: 3 were read",
    "`system` was read",
    "The server was started with --jinja",
    "stream_options: include_usage was read",
    "`max_tokens` was 8192",
    "messages.1.content was read",
    "The thinking block has a signature",
    "`mark` was read",
    "Input 'name' must be a string",
    "`thinking` is not supported by this model",
    # Marks where they may not stand, and what stands at the wrong place.
    "messages.1.content.0.text: cache_control cannot be set for empty text blocks",
    "messages.1.content.0: cache_control cannot be set on thinking blocks",
    "messages.7.content.0: unexpected `tool_use_id` found in `mark` blocks: srvtoolu_01J. Each "
    "`mark` block must have a corresponding `server_tool_use` block before it.",
    "Unexpected role 'tool' after role 'system'",
    "Invalid 'tools[0].function.parameters': 'format' is not permitted in tools with more",
    # The model, the account, the network.
    "The requested model 'org/Llama-function-calling-v3' is not supported by any provider",
    "model `qwen3-tools` is not supported",
    "This model requires a paid account",
    "The model `tool-llama` does not exist",
    "model: kimi-k2-thinking",
    "Free tool credits used up",
    "This request was blocked: data residency is enforced for this workspace",
    "upstream not found: thinking-pool",
    "",
    {},
    None,
    [[[[[[["tools not supported"]]]]]]],
]


@pytest.mark.parametrize(("part", "said"), REFUSED)
def test_refusal_of_a_part_that_was_sent_leaves_it_out(part: str, said: object) -> None:
    complaint = Complaint(400, said)
    assert after(Form(), complaint, PARTS) == Form().leaving_out(part)
    assert complaint.teaches


@pytest.mark.parametrize(("part", "said"), NOT_TO_ALL)
def test_refusal_to_an_account_or_for_now_holds_for_one_call(part: str, said: object) -> None:
    for _ in range(2):
        asking = Asking(("home", "m"), Form(), {})
        assert asking.form == Form()
        assert asking.try_another(Complaint(400, said), PARTS)
        assert asking.form == Form().leaving_out(part)
        asking.succeeded()


@pytest.mark.parametrize(("part", "said"), REFUSED)
def test_refusal_of_a_part_that_was_not_sent_changes_nothing(part: str, said: object) -> None:
    alike = {TOOLS, CONTENT if part in (UNSIGNED, NULL_CONTENT) else part}
    others = [each for each in PARTS if each not in {part, *alike}]
    assert after(Form(), Complaint(400, said), others) == Form()


@pytest.mark.parametrize("said", OTHERS)
def test_complaint_about_other_things_changes_nothing(said: object) -> None:
    for status in (400, 404, 500):
        assert after(Form(), Complaint(status, said), PARTS) == Form()


# Thinking in the content, which the API of chat completions does not know.
IN_CONTENT = [
    # A list where a text belongs.
    "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string",
    "invalid message content type: []interface {}",
    "messages[2]: invalid type: sequence, expected a string at line 1 column 312",
    "messages[2]: invalid type: map, expected content part",
    "messages[2].content: data did not match any variant of untagged enum MessageContent at line 1",
    'can only concatenate str (not "list") to str',
    "[{'type': 'thinking', 'thinking': 'Hm.'}] is not of type 'string' - 'messages.2.content'",
    openai(
        "Invalid type for 'messages[2].content': expected one of a string or null, but got an "
        "array instead.",
        param="messages[2].content",
        code="invalid_type",
    ),
    "<400> InternalError.Algo.InvalidParameter: The content field is not str type: messages[2]",
    "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2.content' : "
    "value must be a string)]",
    # A type of parts that is not known.
    openai(
        "Invalid value: 'thinking'. Supported values are: 'text' and 'refusal'.",
        param="messages[2].content[0].type",
        code="invalid_value",
    ),
    "content type 'thinking' is not supported",
    "Unknown part type: thinking",
    'Failed to parse messages: Unsupported content part type: "thinking"; messages = [ {"a": 1} ]',
    "Invalid content type: thinking. Supported: text, image_url",
    "Invalid content type. Reasoning content is not supported in messages[2].",
    "Content parts of type thinking are not supported by this model",
    'Empty content part type: "thinking" is not allowed',
    'Bad request: json: unknown content block type "reasoning"',
    "unsupported content[].type",
    "Invalid 'content': 'content' objects must have a 'type' field that is either 'text' or "
    "'image_url'.",
    "messages[2].content[0].type: unknown variant `thinking`, expected `text` at line 1 column 99",
    openai(
        "[\"At body -> messages -> 2 -> content -> list -> 0 -> type: Input should be 'text'\"]",
        code="bad_request",
    ),
    "body.messages.2.assistant.content.0.type: Input should be 'text'",
    "Extra inputs are not permitted, field: 'messages[2].content[0].thinking', value: [{'a': 1}]",
    {
        "detail": [
            {
                "loc": ["body", "messages", 2, "content", 0, "thinking"],
                "msg": "Extra inputs are not permitted",
            }
        ]
    },
    "messages.2.content.0.type: Input should be 'text', 'image_url' or 'input_audio'",
    "1 validation error: {'type': 'literal_error', 'loc': ('body', 'messages', 2, 'content', "
    "'list[ContentPart]', 0, 'type'), 'msg': \"Input should be 'text'\", 'input': 'thinking'}",
    openai(
        "litellm.BadRequestError: OpenAIException - Invalid value: 'thinking'. Supported values "
        "are: 'text' and 'refusal'."
    ),
    "thinking is not a supported content type",
    "'thinking' is not a supported content type",
    "thinking: unsupported content type",
    openai("Invalid value: 'thinking'.", param="messages.[1].content.[0].type"),
    "Bad request: Invalid value: 'thinking'. Supported values are: 'text' and 'refusal'.",
    {"metadata": {"raw": '{"error": {"message": "Invalid value: \'thinking\'."}}'}},
    "VertexAIException - Unable to generate: Unknown content type 'thinking'",
    "thinking parts generated by another model are not supported",
    "Invalid value: 'thinking' for messages[2].content[0].type",
    "messages.2.content.0.type: Input should be 'text', 'image_url' (got 'thinking')",
    "Invalid value: thinking. Supported values are: 'text','image_url','video_url' and 'video'.",
    "DeepSeek V4.1 supports text and image content only; got 'thinking'",
    openai(
        "Invalid value: 'thinking'. Supported values are: 'output_text' and 'refusal'.",
        param="messages[1].content[0]",
    ),
    "messages.2.content.0.type: Input should be 'text' but the server got value: 'thinking'",
    {
        "detail": [
            {
                "loc": ["body", "messages", 2, "content", 0, "type"],
                "msg": "Input should be 'text'",
                "input": "thinking",
            }
        ]
    },
]

# The content of other messages, what is missing there, and what is wanted back.
OF_OTHER_CONTENT = [
    "messages.1.content: Field required",
    "'content' field is required and cannot be empty",
    "messages.3.content: must contain a tool_result block for each tool_use block",
    "messages.1.content: text content blocks must contain non-whitespace text",
    "'messages.5' : for 'role:user' the following must be satisfied[('messages.5.content' : value "
    "must be a string)]",
    'Failed to parse messages: Unsupported content part type: "image_url"; messages = []',
    openai("Invalid value: 'image_url'.", param="messages[5].content[0].type"),
    "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string of 40 characters",
    "messages.1.content.0: Invalid `signature` in `thinking` block",
    # Of a table or a file that the person gave, of a tool's schema, of a filter.
    "messages.4.content.0.type: Input should be 'text', 'image_url' or 'thinking'",
    "messages.0.content.1.image.source.type: Input should be 'base64'",
    "tools[0].function.parameters.properties.content.type: Input should be 'string'",
    "json: cannot unmarshal array into Go struct field tools.function.parameters.properties."
    "content.type of type string",
    "messages.4.content.0.tool_result.content.0.type: Input should be 'text' or 'image'",
    "Tool result content must be a string",
    "messages[4] should be a valid string",
    "messages[0]: data did not match any variant of untagged enum ChatCompletionRequestMessage",
    "messages.4.user.content.0.type: Input should be 'text'",
    openai("Invalid value: 'thinking'.", param="mode"),
    openai("Invalid value: 'thinking'.", param="include[0]"),
    "Invalid value: 'thinking'. Supported values are: 'low', 'medium', and 'high'.",
    "Invalid value: 'thinking' for field 'chat_template'",
    "Invalid value: 'thinking'.\nAllowed values are: 'low', 'high'.",
    "Invalid value: 'thinking'. The supported values are: 'low', 'high'.",
    "Invalid value: 'thinking'. Expected one of 'low', 'high'.",
    "Invalid value: thinking mode is off",
    "DeepSeek V4.1 supports text and image content only; got 'input_audio'",
    "messages.0.content.1.type: Input should be 'text', got 'image_url' (thinking is off)",
    "[{'type': 'literal_error', 'loc': ('body', 'messages', 0, 'content', 1, 'type'), 'msg': "
    "\"Input should be 'text'\", 'input': 'image_url', 'ctx': {'expected': \"'text'\"}}]",
    "messages.0.content.1.type\n  Input should be 'text' [type=literal_error, "
    "input_value='image_url', input_type=str]",
    {
        "detail": [
            {
                "loc": ["body", "messages", 0, "content", 1, "type"],
                "msg": "Input should be 'text'",
                "input": "image_url",
            }
        ]
    },
    "Reasoning content of type file is not supported",
    "messages.0.content.1.type: Input should be 'text', 'image_url' (got 'file')",
    "Thinking mode: unsupported content type 'image_url'",
    "The model's reasoning content was filtered: not allowed by policy",
    "The model's reasoning content could not be generated: unavailable, try again",
    # Of the thinking of one conversation.
    "Invalid thinking block in messages[1]: it belongs to a different conversation",
    "The thinking block is invalid or expired",
    "messages.1.content.0: Invalid thinking block: could not verify",
    "messages.1.content.0: thinking blocks must be unmodified",
    "messages.1.content.0: unrecognized signature of a thinking block",
    # Of content that must be there.
    "The content field is required for reasoning models.",
    "tool_result content must be included directly after tool_use when thinking is enabled",
    "messages.3.content.0.type: Expected `text`, `image_url` or `thinking`, but found `file`",
    "messages.3.user.content.1.thinking: Field required",
]
WANTED_IN_CONTENT = [
    "The first content block must be a thinking block when thinking is enabled",
    "a final assistant message must start with a thinking block",
    "Reasoning content of the earlier turns must be sent back, please include the thinking blocks",
    "The `content[].thinking` in the thinking mode must be passed back to the API.",
    "messages.47.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`.",
    "thinking is enabled but thinking content is missing in assistant tool call message at index 2",
]


@pytest.mark.parametrize("said", IN_CONTENT)
def test_refusal_of_thinking_in_the_content_makes_it_a_text(said: object) -> None:
    sent = [part for part in PARTS if part not in (NULL_CONTENT, UNSIGNED)]

    assert after(Form(), Complaint(400, said), sent) == Form(frozenset({CONTENT}))


@pytest.mark.parametrize("said", OF_OTHER_CONTENT)
def test_complaint_about_other_content_changes_nothing(said: object) -> None:
    text = Form(frozenset({CONTENT}))

    assert after(Form(), Complaint(400, said), [CONTENT, NULL_CONTENT, TOOLS]) == Form()
    assert after(text, Complaint(400, said), [NULL_CONTENT, TOOLS]) == text


def test_field_that_begins_with_a_line_is_not_its_bare_word() -> None:
    said = Complaint(400, "Unsupported image type png")

    assert after(Form(), said, ["_type"]) == Form()
    assert after(Form(), Complaint(400, "unknown field _type"), ["_type"]) != Form()


@pytest.mark.parametrize("said", WANTED_IN_CONTENT)
def test_thinking_in_the_content_that_a_server_wants_is_put_back(said: str) -> None:
    assert after(Form(), Complaint(400, said), [CONTENT]) == Form()
    assert after(Form(frozenset({CONTENT})), Complaint(400, said), []) == Form()


def test_content_in_parts_becomes_a_text_once_a_missing_one_is_no_longer_null() -> None:
    said = Complaint(400, "messages.1.content: Input should be a valid string")
    form = after(Form(), said, [NULL_CONTENT, CONTENT])

    assert after(form, said, [CONTENT]) == Form(frozenset({NULL_CONTENT, CONTENT}))


def test_array_where_a_text_belongs_is_not_what_is_missing() -> None:
    said = "Invalid type for 'messages[2].content': expected a string or null, but got an array"

    form = after(Form(), Complaint(400, said), [NULL_CONTENT, CONTENT])
    assert form == Form(frozenset({CONTENT}))


@pytest.mark.parametrize("is_kept", [True, False])
def test_content_beside_calls_is_null_only_where_nothing_else_stands_there(is_kept: bool) -> None:
    home = Server("openai http://localhost/v1")
    kept = OpaqueBlock(home.home, {CONTENT: [{"type": "thinking", "thinking": "Hm."}]})
    said = Message(Role.ASSISTANT, (kept, ToolUseBlock("a", "look", {}))[0 if is_kept else 1 :])
    request = replace(HELLO, messages=(user_message("Say hello"), said))

    sent = openai_wire.parts_sent(request, openai_wire.USUAL, home)
    assert (NULL_CONTENT in sent, CONTENT in sent) == (not is_kept, is_kept)


def test_error_of_a_server_must_quote_a_name() -> None:
    for said in ("no available server for tools", "tool calls are not supported right now"):
        assert after(Form(), Complaint(503, said), PARTS) == Form()
    assert not after(Form(), Complaint(503, "unknown field `tools`"), PARTS).has(TOOLS)
    assert not after(Form(), Complaint(500, "Unsupported param: tools"), PARTS).has(TOOLS)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("reasoning_content", "The `reasoning_content` in the thinking mode must be passed back."),
        ("reasoning_content", "thinking is enabled but reasoning_content is missing at index 2"),
        ("reasoning_content", "The `reasoning_content` field cannot be omitted"),
        ("reasoning_content", "thinking mode requires reasoning_content in assistant messages"),
        ("reasoning_content", "You must pass back reasoning_content"),
        ("reasoning_content", "Expected `reasoning_content` in assistant message"),
        ("reasoning_content", "reasoning_content can not be empty in thinking mode"),
        (TOOLS, "Requests which include tool_use or tool_result blocks must define tools"),
        (TOOL_CHOICE, "tool_choice: Field required"),
        (MAX_TOKENS, "max_tokens: Field required"),
        (UNSIGNED, "The `content[].thinking` in the thinking mode must be passed back to the API."),
        # In the words of LiteLLM and Bedrock.
        (
            TOOLS,
            "litellm.UnsupportedParamsError: Bedrock doesn't support tool calling without `tools=` "
            "param specified. Pass `tools=` param OR set `litellm.modify_params = True`",
        ),
        (
            TOOLS,
            "The toolConfig field must be defined when using toolUse and toolResult content "
            "blocks.",
        ),
    ],
)
def test_part_that_a_server_misses_is_put_back(part: str, said: str) -> None:
    given_up = Form(frozenset({STREAM_OPTIONS})).leaving_out(part)

    put_back = after(given_up, Complaint(400, said), [STREAM_OPTIONS])
    assert put_back.has(part)
    assert not put_back.has(STREAM_OPTIONS)
    assert put_back.has(MAX_TOKENS)


def test_one_name_of_the_limit_is_always_sent() -> None:
    new = Form().leaving_out(MAX_TOKENS)
    assert (new.has(MAX_TOKENS), new.has(MAX_COMPLETION_TOKENS)) == (False, True)
    assert new.leaving_out(MAX_COMPLETION_TOKENS) == Form(frozenset({MAX_COMPLETION_TOKENS}))
    said = Complaint(400, "unknown field `max_completion_tokens`")
    assert after(new, said, [MAX_COMPLETION_TOKENS]).has(MAX_TOKENS)
    for words in (
        "max_completion_tokens cannot be set above 4096",
        "`max_completion_tokens` was 8192",
        "unknown field `seed`",
    ):
        assert after(new, Complaint(400, words), [MAX_COMPLETION_TOKENS]) == new


@pytest.mark.parametrize("name", [MAX_TOKENS, MAX_COMPLETION_TOKENS])
async def test_limit_that_a_person_gave_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with serving(monkeypatch, lambda _: Reply(text="Hi")) as server:
        await ask("chat", replace(HELLO, extra={name: 7}))

        (sent,) = server.requests
        limits = {each: sent.body[each] for each in sent.body if each.startswith("max_")}
        assert limits == {name: 7}


# -- over the wire, in both dialects -------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
HELLO = CompletionRequest("m", "Be kind.", (user_message("Say hello"),))
TYPED = replace(HELLO, tools=(ToolSpec(FINAL_ANSWER, "", SCHEMA),), output_schema=SCHEMA)
PROVIDERS = {"chat": OpenAIProvider, "messages": AnthropicProvider}
Script = Callable[[dict[str, Any]], Reply]


@pytest.fixture(params=PROVIDERS)
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@contextlib.contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, script: Script) -> Iterator[LoopbackServer]:
    with LoopbackServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-a-real-key")
        yield server


async def ask(dialect: str, *requests: CompletionRequest) -> Stopped | None:
    """Make these calls, one after the other, by a provider of their own."""
    last = None
    async with contextlib.aclosing(PROVIDERS[dialect]()) as provider:
        for request in requests:
            async with contextlib.aclosing(provider.stream(request)) as stream:
                last = [event async for event in stream][-1]
    return last if isinstance(last, Stopped) else None


async def told(dialect: str, request: CompletionRequest) -> Stopped:
    end = await ask(dialect, request)
    assert end is not None
    return end


def answer(body: dict[str, Any]) -> Reply:
    return (
        Reply(tool_uses=[(FINAL_ANSWER, {"value": "x"})]) if body.get("tools") else Reply(text="{}")
    )


def forced(server: LoopbackServer) -> list[bool]:
    return ["tool_choice" in each.body for each in server.requests]


def with_tools(server: LoopbackServer) -> list[bool]:
    return ["tools" in each.body for each in server.requests]


@pytest.mark.parametrize("status", [400, 404, 422, 501])
async def test_what_a_refusal_taught_holds_for_all_clients_of_the_process(
    monkeypatch: pytest.MonkeyPatch, dialect: str, status: int
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        if "tool_choice" in body:
            return Reply(status=status, message="tool_choice is not supported by this model")
        return answer(body)

    with serving(monkeypatch, script) as server:
        for _ in range(2):
            await ask(dialect, TYPED)
        await ask(dialect, replace(TYPED, model="another"))

        assert forced(server) == [True, False, False, True, False]


async def test_model_without_tools_is_asked_in_words(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        refusal = Reply(status=400, message="m does not support tools")
        return refusal if body.get("tools") else Reply(text='{"value": "x"}')

    with serving(monkeypatch, script) as server:
        end = await ask(dialect, TYPED, TYPED)

        assert end is not None
        assert end.message.text == '{"value": "x"}'
        assert with_tools(server) == [True, False, False]
        assert not forced(server)[-1]
        assert "JSON" in json.dumps(server.requests[-1].body["messages"])


async def test_refusal_teaches_nothing_while_the_other_form_fails_too(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    fails = [True, True, False, False]

    def script(body: dict[str, Any]) -> Reply:
        if fails.pop(0):
            return Reply(status=400, message="tool_choice is not supported, nor is this model")
        return answer(body)

    with serving(monkeypatch, script) as server:
        with pytest.raises(InvalidRequest):
            await ask(dialect, TYPED)
        await ask(dialect, TYPED)

        assert forced(server) == [True, False, True]


async def test_refusal_teaches_nothing_if_the_answer_to_the_other_form_breaks_off(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    replies = [Reply(status=400, message="tool_choice is not supported"), Reply(events=[])]

    def script(body: dict[str, Any]) -> Reply:
        return replies.pop(0) if replies else answer(body)

    with serving(monkeypatch, script) as server:
        with pytest.raises(LlmError):
            await ask(dialect, TYPED)
        await ask(dialect, TYPED)

        assert forced(server) == [True, False, True]


def test_calls_that_learn_two_parts_side_by_side_teach_both() -> None:
    first, second = (Asking(("home", "m"), Form(), {}) for _ in range(2))
    assert first.try_another(Complaint(400, "`tool_choice` is not supported"), PARTS)
    assert second.try_another(Complaint(400, "System role not supported"), PARTS)
    for asking in (first, second):
        asking.succeeded()

    assert Asking(("home", "m"), Form(), {}).form == Form(frozenset({TOOL_CHOICE, SYSTEM}))
    assert Asking(("home", "another"), Form(), {}).form == Form()


def test_call_teaches_only_what_it_changed_itself() -> None:
    learnt = Asking(("home", "m"), Form(), {})
    assert learnt.try_another(Complaint(400, "Unknown parameter: mark"), PARTS)
    learnt.succeeded()

    slow, quick = (Asking(("home", "m"), Form(), {}) for _ in range(2))
    assert slow.try_another(Complaint(400, "System role not supported"), PARTS)
    assert quick.try_another(Complaint(400, "`mark` must be passed back"), PARTS)
    slow.succeeded()

    assert Asking(("home", "m"), Form(), {}).form == Form(frozenset({SYSTEM}))


def test_part_that_is_missed_is_learnt_at_once_and_a_name_of_the_limit_is_not() -> None:
    key, usual = ("home", "m"), Form(frozenset({MAX_COMPLETION_TOKENS}))
    taught = Asking(key, usual, {})
    assert taught.try_another(Complaint(400, "Unknown parameter: mark"), PARTS)
    taught.succeeded()

    by_error = Asking(key, usual, {})
    assert by_error.try_another(Complaint(500, "`mark` must be passed back"), PARTS)
    assert Asking(key, usual, {}).form == taught.form
    failed = Asking(key, usual, {})
    assert failed.try_another(Complaint(400, "`mark` must be passed back"), PARTS)
    assert Asking(key, usual, {}).form == usual
    assert failed.try_another(Complaint(400, "Unknown parameter: max_tokens"), PARTS)
    assert Asking(key, usual, {}).form == usual


def test_parts_that_are_refused_and_missed_are_tried_once_each() -> None:
    asking = Asking(("home", "m"), Form(), {})

    assert asking.try_another(Complaint(400, "Unknown parameter: mark"), ["mark"])
    assert not asking.try_another(Complaint(400, "`mark` must be passed back"), [])


async def test_servers_error_that_names_a_part_is_answered_once_and_teaches_nothing(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        if "tool_choice" in body:
            return Reply(status=500, message="KeyError: unknown parameter 'tool_choice'")
        return answer(body)

    with serving(monkeypatch, script) as server:
        await ask(dialect, TYPED, TYPED)

        assert forced(server) == [True, False, True, False]


async def test_refusal_for_now_costs_a_request_and_nothing_is_learnt(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    passing = Reply(status=400, message="Tool use is not available. Please try again later.")
    replies = [passing, Reply(text='{"value": "x"}')]

    with serving(monkeypatch, lambda body: replies.pop(0) if replies else answer(body)) as server:
        end = await ask(dialect, TYPED, TYPED)

        assert with_tools(server) == [True, False, True]
        assert forced(server)[-1]
        assert end is not None


async def test_second_error_of_a_server_in_one_call_is_not_answered(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    words = "unknown parameter 'tool_choice', unknown parameter 'tools'"
    with serving(monkeypatch, lambda _: Reply(status=500, message=words)) as server:
        with pytest.raises(LlmError):
            await ask(dialect, TYPED)

        assert len(server.requests) == 2


@pytest.mark.parametrize("status", [401, 403, 413, 429])
async def test_refusal_of_the_caller_is_not_answered_by_another_form(
    monkeypatch: pytest.MonkeyPatch, dialect: str, status: int
) -> None:
    refusal = Reply(status=status, message="tool_choice is not supported by this model")
    with serving(monkeypatch, lambda _: refusal) as server:
        with pytest.raises(LlmError):
            await ask(dialect, TYPED)

        assert len(server.requests) == 1


def test_sentence_that_speaks_of_a_persons_field_is_passed_over() -> None:
    said = Complaint(400, "Function tools with reasoning_effort are not supported")

    assert not after(Form(), said, PARTS).has(TOOLS)
    assert after(Form(), said, PARTS, ["reasoning_effort"]) == Form()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("logprobs", "logprobs is not supported with tools + stream"),
        ("seed", "seed is not supported with tool calling"),
        ("reasoning", "reasoning cannot be combined with function calling"),
        ("thinking", "Thinking mode does not support tools"),
    ],
)
def test_persons_option_in_plain_words_takes_no_tools_away(name: str, words: str) -> None:
    said = Complaint(400, words)

    assert not after(Form(), said, PARTS).has(TOOLS)
    assert after(Form(), said, PARTS, [name]) == Form()
    forced = Complaint(400, f"tool_choice is not supported with {name}")
    assert after(Form(), forced, PARTS, [name]) == Form().leaving_out(TOOL_CHOICE)


async def test_what_is_refused_beside_a_persons_field_is_learnt_for_calls_with_it(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    words = "Built-in tools (google_search) and Function Calling cannot be combined in one request"

    def refuses(body: dict[str, Any]) -> Reply:
        if "search" in body and "tools" in body:
            return Reply(status=400, message=words)
        return answer(body)

    searching = replace(TYPED, extra={"search": {}})
    with serving(monkeypatch, refuses) as server:
        await ask(dialect, searching, TYPED, searching)

        assert with_tools(server) == [True, False, True, False]


ALONE = [
    ({"thinking": {"type": "enabled"}}, "Thinking mode does not support this tool_choice"),
    ({"thinking": {"type": "enabled"}}, "tool_choice is incompatible with thinking enabled"),
    (
        {"enable_thinking": True},
        "tool_choice does not support being set to object in thinking mode",
    ),
    ({"provider": {"only": ["x"]}}, "No endpoints found that support tool use. To learn more: …"),
    (
        {"web_search_options": {}},
        "Function calling is not supported for Search Grounding requests.",
    ),
    ({"reasoning_effort": "none"}, "System role not supported for this request"),
    (
        {"provider": {"only": ["x"], "sort": "price"}},
        "No endpoints found that support the provided 'tool_choice' value.",
    ),
]
"""A person's option, and a refusal beside it that does not name it."""


@pytest.mark.parametrize(("option", "words"), ALONE)
async def test_refusal_beside_an_option_takes_nothing_from_calls_without_it(
    monkeypatch: pytest.MonkeyPatch, option: dict[str, Any], words: str
) -> None:
    ((name, value),) = option.items()
    bodies: list[dict[str, Any]] = []

    def is_usual(body: dict[str, Any]) -> bool:
        return "tool_choice" in body and body["messages"][0]["role"] == "system"

    def refuses(body: dict[str, Any]) -> Reply:
        bodies.append(body)
        is_refused = body.get(name) == value and is_usual(body)
        return Reply(status=400, message=words) if is_refused else answer(body)

    other = {name: "other"} if isinstance(value, str) else {name: {"type": "other"}}
    same = {name: dict(reversed(value.items())) if isinstance(value, dict) else value}
    beside = [replace(TYPED, extra=each) for each in (option, other, same)]
    with serving(monkeypatch, refuses):
        await ask("chat", beside[0], TYPED, beside[1], beside[2])

    assert [is_usual(body) for body in bodies] == [True, False, True, True, False]


async def test_what_is_refused_beside_a_temperature_is_learnt_for_all_calls(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    def refuses(body: dict[str, Any]) -> Reply:
        if "tool_choice" in body:
            return Reply(status=400, message="tool_choice is not supported by this model")
        return answer(body)

    warm = replace(TYPED, extra={"temperature": 0.2, "user": "me"})
    with serving(monkeypatch, refuses) as server:
        await ask(dialect, warm, TYPED)

        assert ["tool_choice" in each.body for each in server.requests] == [True, False, False]


@pytest.mark.parametrize("is_plain_first", [False, True])
async def test_tools_that_a_person_chose_among_are_sent_whatever_was_learnt(
    monkeypatch: pytest.MonkeyPatch, is_plain_first: bool
) -> None:
    def refuses(body: dict[str, Any]) -> Reply:
        if "tools" in body and body.get("tool_choice") != "required":
            return Reply(status=400, message="This model does not support tools")
        return answer(body)

    chosen = replace(TYPED, extra={"tool_choice": "required"})
    with serving(monkeypatch, refuses) as server:
        await ask("chat", *[TYPED] * is_plain_first, chosen)

        assert server.requests[-1].body["tool_choice"] == "required"
        assert with_tools(server)[-1]


@pytest.mark.parametrize(
    "odd", [{"x": {1: 2, "a": 3}}, {"x": {None: 1, "a": [None, float("nan")]}}, {"x": [{}, ()]}]
)
def test_options_of_any_kind_have_a_key(odd: dict[str, Any]) -> None:
    key = ("home", "m")
    asking = Asking(key, Form(), odd)
    assert asking.try_another(Complaint(400, "System role not supported"), PARTS)
    asking.succeeded()

    assert Asking(key, Form(), odd).form == Form(frozenset({SYSTEM}))
    assert Asking(key, Form(), {"x": 1}).form == Form()


def test_option_with_the_name_of_a_role_is_not_meant_by_it() -> None:
    said = Complaint(400, "Unexpected role 'system', expected 'user' or 'assistant'")

    assert not after(Form(), said, PARTS, ["user"]).has(SYSTEM)


async def test_tools_stay_where_a_person_chose_among_them(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    refusal = Reply(status=400, message="This model does not support tools")
    with serving(monkeypatch, lambda _: refusal) as server:
        with pytest.raises(LlmError, match="does not support tools"):
            await ask(dialect, replace(TYPED, extra={"tool_choice": "auto"}))

        assert with_tools(server) == [True]


def test_what_is_missed_is_put_back_also_beside_a_persons_field() -> None:
    key = ("home", "m")
    plain, beside = Asking(key, Form(), {}), Asking(key, Form(), {"search": 1})
    assert plain.try_another(Complaint(400, "System role not supported"), PARTS)
    plain.succeeded()
    assert beside.try_another(Complaint(400, "Unknown parameter: mark together with s"), PARTS)
    beside.succeeded()

    assert Asking(key, Form(), {}).form == Form(frozenset({SYSTEM}))
    again = Asking(key, Form(), {"search": 1})
    assert again.form == Form(frozenset({SYSTEM, "mark"}))
    assert again.try_another(Complaint(400, "`mark` must be passed back"), PARTS)
    assert Asking(key, Form(), {"search": 1}).form == Form(frozenset({SYSTEM}))


def test_block_in_a_message_is_no_field_of_a_persons() -> None:
    said = Complaint(400, "messages.1.content.0: Input tag 'thinking' does not match any of: text")

    assert not after(Form(), said, [UNSIGNED], ["thinking"]).has(UNSIGNED)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tool_choice": "auto"}, "tool_choice is not supported by this model"),
        ({"tools": []}, "`tools` is not supported by this model"),
        ({"tool_choice": "auto"}, "Forcing a tool is not supported by this model"),
        ({"tools": []}, "Function calling is not supported by this model"),
    ],
)
async def test_what_a_person_gave_is_never_left_out(
    monkeypatch: pytest.MonkeyPatch, dialect: str, given: dict[str, Any], words: str
) -> None:
    with serving(monkeypatch, lambda _: Reply(status=400, message=words)) as server:
        with pytest.raises(InvalidRequest):
            await ask(dialect, replace(TYPED, extra=given))

        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("given", "param", "words"),
    [
        (
            {"reasoning_effort": "low"},
            "reasoning_effort",
            "Function tools with reasoning_effort are not supported",
        ),
        ({"reasoning": {"effort": 1}}, "reasoning.effort", "Function tools are not supported here"),
    ],
)
async def test_refusal_of_a_persons_field_is_not_answered_though_it_speaks_of_ours(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], param: str, words: str
) -> None:
    body = json.dumps({"error": openai(words, param=param)}).encode()
    with serving(monkeypatch, lambda _: Reply(status=400, body=body)) as server:
        with pytest.raises(InvalidRequest):
            await ask("chat", replace(TYPED, extra=given))

        assert len(server.requests) == 1


async def test_field_that_was_given_up_is_sent_again_to_a_server_that_misses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takes = [False]

    def script(body: dict[str, Any]) -> Reply:
        is_sent = "reasoning_content" in body["messages"][-2]
        if is_sent and not takes[0]:
            return Reply(status=400, message="Unknown parameter: 'messages[1].reasoning_content'")
        if not is_sent and takes[0]:
            return Reply(status=400, message="The `reasoning_content` must be passed back.")
        return Reply(text="Hi")

    with serving(monkeypatch, script) as server:
        thought = ThinkingBlock(
            "Hm.", extra={f"openai {server.url}/v1": {"reasoning_content": None}}
        )
        said = Message(Role.ASSISTANT, (thought, TextBlock("Hello.")))
        request = replace(HELLO, messages=(*HELLO.messages, said, user_message("And?")))
        await ask("chat", request, request)
        takes[0] = True
        await ask("chat", request, request)

        sent = ["reasoning_content" in each.body["messages"][-2] for each in server.requests]
        assert sent == [True, False, False, False, True, True]


async def test_only_the_fields_that_a_server_refuses_are_left_out_also_beside_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        refused = "mark" in json.dumps(body)
        words = "Unknown parameter: 'messages[2].tool_calls[0].mark'."
        return Reply(status=400, message=words) if refused else Reply(text="Hi")

    with serving(monkeypatch, script) as server:
        home = f"openai {server.url}/v1"
        fields = {"mark": 1, "extra_content": {"google": "x"}}
        call = ToolUseBlock("t", "look", {}, {home: fields})
        said = Message(Role.ASSISTANT, (OpaqueBlock(home, {"reasoning_details": []}), call))
        results = Message(Role.USER, (ToolResultBlock("t", "seen"),))
        request = replace(HELLO, messages=(*HELLO.messages, said, results))
        await ask("chat", request)

        sent = server.requests[-1].body["messages"][2]
        assert "reasoning_details" in sent
        assert sent["tool_calls"][0]["extra_content"] == {"google": "x"}
        assert len(server.requests) == 2


async def test_call_without_a_text_has_an_empty_one_where_null_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        words = "messages[2].content must be a string or an object (was null)"
        is_null = body["messages"][2]["content"] is None
        return Reply(status=400, message=words) if is_null else Reply(text="Hi")

    said = Message(Role.ASSISTANT, (ToolUseBlock("t", "look", {}),))
    results = Message(Role.USER, (ToolResultBlock("t", "seen"),))
    request = replace(HELLO, messages=(*HELLO.messages, said, results))
    with serving(monkeypatch, script) as server:
        await ask("chat", request, request)

        contents = [each.body["messages"][2]["content"] for each in server.requests]
        assert contents == [None, "", ""]


WORDS_OF_IDS = {
    "chat": "Tool call id was look:0 but must be a-z, A-Z, 0-9, with a length of 9.",
    "messages": "",  # the server's own
}


async def test_words_beside_the_status_in_words_are_heard(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    """As Spring and NestJS write errors: the SDKs take `error` alone."""
    words = {"chat": "Unknown parameter: 'tool_choice'", "messages": "tool_choice: unknown field"}
    body = {"statusCode": 400, "error": "Bad Request", "message": words[dialect]}

    def script(request: dict[str, Any]) -> Reply:
        is_refused = "tool_choice" in request or not request.get("tools")
        return Reply(status=400, body=json.dumps(body).encode()) if is_refused else answer(request)

    with serving(monkeypatch, script) as server:
        await ask(dialect, TYPED)
        assert forced(server) == [True, False]

        with pytest.raises(InvalidRequest, match=re.escape(words[dialect])):
            await ask(dialect, HELLO)


async def test_ids_of_another_server_are_written_as_all_servers_take_them(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    """As Kimi's in a chain that goes on with Claude or Mistral."""

    def script(body: dict[str, Any]) -> Reply:
        is_refused = dialect == "chat" and "look:0" in json.dumps(body)
        return Reply(status=400, message=WORDS_OF_IDS[dialect]) if is_refused else Reply(text="Hi")

    said = Message(Role.ASSISTANT, tuple(ToolUseBlock(f"look:{n}", "look", {}) for n in range(2)))
    results = Message(Role.USER, tuple(ToolResultBlock(f"look:{n}", str(n)) for n in range(2)))
    request = replace(HELLO, messages=(*HELLO.messages, said, results))
    with serving(monkeypatch, script) as server:
        await ask(dialect, request, request)

        was_raw = ["look:0" in json.dumps(each.body) for each in server.requests]
        text = json.dumps(server.requests[-1].body)
    ids = re.findall(r'"(?:tool_call_|tool_use_)?id": "([^"]*)"', text)
    assert was_raw == [True, False, False]
    assert ids == [*ids[:2], *ids[:2]]
    assert len({*ids}) == 2
    assert all(re.fullmatch("[a-z0-9]{9}", each) for each in ids)


async def test_marks_of_the_cache_are_left_out_where_they_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        words = "messages.2.content.0.text.cache_control: Extra inputs are not permitted"
        is_marked = "cache_control" in json.dumps(body)
        return Reply(status=400, message=words) if is_marked else Reply(text="Hi")

    said = Message(Role.ASSISTANT, (TextBlock("Hello."),))
    talk = (*HELLO.messages, said, user_message("And?"))
    long = replace(HELLO, system="Be kind. " * 1_000, cache_prefix=8_000)
    with serving(monkeypatch, script) as server:
        await ask("messages", replace(HELLO, messages=talk), replace(long, messages=talk), long)

        marked = ["cache_control" in json.dumps(each.body) for each in server.requests]
    assert marked == [True, False, False, False]
    parts = [anthropic_wire.parts_sent(each, Form(), Server("")) for each in (HELLO, long)]
    assert [CACHE_CONTROL in each for each in parts] == [False, True]


async def test_complaint_of_null_content_is_not_answered_where_none_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "messages[2].content must be a string or an object (was null)"
    with serving(monkeypatch, lambda _: Reply(status=400, message=words)) as server:
        with pytest.raises(InvalidRequest):
            await ask("chat", HELLO)

        assert len(server.requests) == 1


# -- refused thinking ----------------------------------------------------------------------------


def thinking(text: str, signature: str) -> tuple[Message, ...]:
    said = Message(Role.ASSISTANT, (ThinkingBlock(text, signature), TextBlock("Hello.")))
    return (*HELLO.messages, said, user_message("And?"))


@pytest.mark.parametrize(
    "words",
    [
        "image: the file's signature does not match image/png",
        "messages.0.content: Invalid signature",
        "messages.7.content.0: Invalid signature",
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ],
)
async def test_refusal_of_something_else_leaves_thinking_where_it_is(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    request = replace(HELLO, messages=thinking("Hm.", signature_of("Hm.")))
    with serving(monkeypatch, lambda _: Reply(status=400, message=words)) as server:
        for _ in range(2):
            with pytest.raises(InvalidRequest):
                await ask("messages", request)

        assert ["Hm." in json.dumps(each.body) for each in server.requests] == [True, True]


@pytest.mark.parametrize("status", [401, 404, 413, 429, 500])
async def test_other_status_than_that_of_refused_thinking_leaves_it_where_it_is(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    request = replace(HELLO, messages=thinking("Hm.", signature_of("Hm.")))
    words = "messages.1.content.0: Invalid `signature` in `thinking` block"
    with serving(monkeypatch, lambda _: Reply(status=status, message=words)) as server:
        with pytest.raises(LlmError):
            await ask("messages", request)

        assert len(server.requests) == 1


@pytest.mark.parametrize("parts_sent", [anthropic_wire.parts_sent, openai_wire.parts_sent])
def test_what_another_server_sent_is_no_part_of_the_request(
    parts_sent: Callable[[CompletionRequest, Form, Server], list[str]],
) -> None:
    kept = OpaqueBlock("here", {"type": "mark"}), OpaqueBlock("there", {"type": "secret"})
    more = OpaqueBlock("there", {"secret": "field"})
    extra = {"here": {"cited": 1}, "there": {"hidden": 2}}
    used = ToolUseBlock("1", "look", {}, extra)
    said = Message(Role.ASSISTANT, (*kept, more, used))
    sent = parts_sent(replace(HELLO, messages=(said,)), Form(), Server(home="here"))

    assert "cited" in sent
    assert {"mark", "type"} & {*sent}
    assert not {"secret", "hidden"} & {*sent}


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    "words",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.1.content.0: Invalid signature. It is bound to a different conversation",
        "`thinking` blocks in the latest assistant message cannot be modified.",
        "messages.1.content.0: Invalid `data` in `redacted_thinking` block",
        "messages.1.content.0.thinking: each thinking block must contain thinking",
        "Corrupted thought signature.",
        "The encrypted content gAAA... could not be verified.",
        "messages.1.content.0: unsupported content block type 'thinking'",
        "messages.1.content.0: Input tag 'thinking' found using 'type' does not match any of the "
        "expected tags: 'text', 'image'",
    ],
)
async def test_refused_thinking_is_left_out_of_its_own_conversation_only(
    monkeypatch: pytest.MonkeyPatch, words: str, status: int
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        is_refused = body["messages"][0]["content"][0]["text"] == "Say hello"
        is_sent = "Hm." in json.dumps(body)
        refusal = Reply(status=status, message=words)
        return refusal if is_refused and is_sent else Reply(text="Yes.")

    request = replace(HELLO, messages=thinking("Hm.", signature_of("Hm.")))
    first = user_message("Something else")
    another = replace(request, messages=(first, *request.messages[1:]))
    with serving(monkeypatch, script) as server:
        assert (await told("messages", request)).note.startswith(
            "The server refused earlier thinking"
        )
        assert [(await told("messages", each)).note for each in (request, another)] == ["", ""]

        sent = ["Hm." in json.dumps(each.body) for each in server.requests]
        assert sent == [True, False, False, True]


@pytest.mark.parametrize("is_signed_here", [True, False])
async def test_thinking_without_a_signature_is_not_sent_beside_signed_thinking(
    monkeypatch: pytest.MonkeyPatch, is_signed_here: bool
) -> None:
    with serving(monkeypatch, lambda _: Reply(text="Yes.")) as server:
        home = f"anthropic {server.url}"
        of_home = {home: {"type": None}}
        of_signer = of_home if is_signed_here else {"anthropic elsewhere": {"type": None}}
        signed = ThinkingBlock("Hm.", signature_of("Hm."), extra=of_signer)
        blocks = (signed, ThinkingBlock("a thought", extra=of_home), TextBlock("Two."))
        said = Message(Role.ASSISTANT, blocks)
        messages = (*HELLO.messages, said, user_message("Well?"))
        await ask("messages", replace(HELLO, messages=messages))

        request = server.requests[0]  # the API itself would refuse what is not signed
        assert ("Hm." in json.dumps(request.body)) is is_signed_here
        assert ("a thought" in json.dumps(request.body)) is not is_signed_here


def of_gateway(text: str) -> OpaqueBlock:
    return OpaqueBlock("home", {"thinking_blocks": [{"type": "thinking", "thinking": text}]})


def conversation(*blocks: Any, system: str = "Be kind.") -> CompletionRequest:
    """One that has an answer with each of these blocks."""
    messages = [user_message("Say hello")]
    for block in blocks:
        messages += [Message(Role.ASSISTANT, (block, TextBlock("Hi."))), user_message("And?")]
    return replace(HELLO, system=system, messages=tuple(messages))


KINDS = [
    lambda text: ThinkingBlock(text, f"signature of {text}"),
    lambda text: ThinkingBlock("", redacted_data=text),
    of_gateway,
    lambda text: OpaqueBlock("home", {CONTENT: [{"type": "reasoning", "summary": [text]}]}),
]


@pytest.mark.parametrize("thought", KINDS, ids=["signed", "redacted", "gateway", "in the content"])
def test_only_the_thinking_that_was_refused_is_left_out(thought: Callable[[str], Any]) -> None:
    refused = RefusedThinking()
    words = Complaint(400, "messages.1.content.0: Invalid signature in `thinking` block")
    old = conversation(thought("a"))
    assert refused.is_meant(words, "home", old)
    refused.add("home", old)

    def blocks(request: CompletionRequest, address: str = "home") -> list[Any]:
        left = refused.left_out(address, request).messages[1::2]
        return [block for each in left for block in each.content if block != TextBlock("Hi.")]

    assert blocks(old) == []
    assert not refused.is_meant(words, "home", old)
    newer = conversation(thought("a"), thought("b"))
    assert blocks(newer) == [thought("b")]
    assert refused.is_meant(words, "home", newer)
    assert blocks(old, "another address") == [thought("a")]
    assert blocks(replace(old, system="Be short.")) == [thought("a")]


def test_thinking_refused_beside_an_option_is_sent_without_it() -> None:
    refused = RefusedThinking()
    plain = conversation(ThinkingBlock("Hm.", "S"))
    off, warm = (
        replace(plain, extra=each)
        for each in ({"thinking": {"type": "disabled"}}, {"temperature": 1})
    )
    refused.add("home", off)

    assert refused.left_out("home", off) != off
    assert refused.left_out("home", plain) == plain
    refused.add("home", plain)
    assert refused.left_out("home", warm) != warm


def test_marks_of_refused_thinking_are_small_and_the_oldest_are_forgotten() -> None:
    refused = RefusedThinking()

    def request(number: int) -> CompletionRequest:
        return conversation(ThinkingBlock("", f"{number}" * 1_000))

    tracemalloc.start()
    try:
        for number in range(10_001):
            refused.add("home", request(number))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size < 3 * 2**20
    assert [refused.left_out("home", request(n)) == request(n) for n in (0, 1, 10_000)] == [
        True,
        False,
        False,
    ]


def test_hash_of_a_conversation_knows_where_its_parts_end() -> None:
    refused = RefusedThinking()
    one = conversation(ThinkingBlock("", "s"), system="Be kind.S")
    other = conversation(ThinkingBlock("", "s"), system="Be kind.")
    other = replace(other, messages=(user_message("SSay hello"), *other.messages[1:]))
    refused.add("home", one)

    assert refused.left_out("home", other) == other


SEARCH = (
    OpaqueBlock(
        "anthropic", {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    ),
    OpaqueBlock(
        "anthropic", {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{}]}
    ),
)


def test_content_of_a_search_is_no_thinking() -> None:
    words = Complaint(400, "messages.1.content.0: Invalid `signature` in `thinking` block")
    refused = RefusedThinking()
    thinks, searches = conversation(ThinkingBlock("Hm.", "S"), *SEARCH), conversation(*SEARCH)

    assert not refused.is_meant(words, "home", searches)
    refused.add("home", thinks)
    left = refused.left_out("home", thinks).messages[1::2]
    assert [each.content[:-1] for each in left] == [(), *((block,) for block in SEARCH)]


async def test_thinking_is_left_out_once_in_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "messages.1.content.0: Invalid `signature` in `thinking` block"
    request = replace(HELLO, messages=thinking("Hm.", signature_of("Hm.")))
    with serving(monkeypatch, lambda _: Reply(status=400, message=words)) as server:
        with pytest.raises(InvalidRequest):
            await ask("messages", request)

        assert ["Hm." in str(each.body) for each in server.requests] == [True, False]


async def test_thinking_that_was_left_out_is_no_part_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["Invalid `signature` in `thinking` block", "Unknown parameter: thinking_blocks"] * 9
    with serving(monkeypatch, lambda _: Reply(status=400, message=words.pop(0))) as server:
        kept = replace(of_gateway("Hm."), api=f"openai {server.url}/v1")
        with pytest.raises(InvalidRequest):
            await ask("chat", conversation(kept))

        assert len(server.requests) == 2


@pytest.mark.parametrize("with_text", [True, False])
@pytest.mark.parametrize("model", ["magistral-small", "any"])
async def test_thinking_in_the_content_that_is_refused_costs_one_request_and_is_told(
    monkeypatch: pytest.MonkeyPatch, model: str, with_text: bool
) -> None:
    """Beside calls alone, too: there the content was never null. Mistral's models take it."""
    with serving(monkeypatch, lambda _: Reply(text="Hello.")) as server:
        parts = [{"type": "thinking", "thinking": [words("Hm.")]}]
        kept = OpaqueBlock(f"openai {server.url}/v1", {CONTENT: parts})
        more = (TextBlock("Hi."),) if with_text else ()
        messages = (
            user_message("Say hello"),
            Message(Role.ASSISTANT, (kept, *more, ToolUseBlock("a", "look", {}))),
            Message(Role.USER, (ToolResultBlock("a", "seen"),)),
        )
        request = replace(HELLO, model=model, messages=messages)
        notes = [(await told("chat", request)).note for _ in range(2)]
        contents = [each.body["messages"][-2]["content"] for each in server.requests]

    whole = [*parts, *([words("Hi.")] if with_text else [])]
    if model == "any":
        text = "Hi." if with_text else None
        assert contents == [whole, text, text]
        assert "left out from now on" in notes[0]
    else:
        assert contents == [whole, whole]
        assert notes[0] == ""
    assert notes[1] == ""


async def test_error_of_a_server_takes_thinking_away_for_one_call_and_no_note_says_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = Reply(status=500, message="unsupported content[].type: thinking")
    replies = [failed, Reply(text="Hello."), Reply(text="Hello.")]
    with serving(monkeypatch, lambda _: replies.pop(0)) as server:
        parts = [{"type": "thinking", "thinking": [words("Hm.")]}]
        kept = OpaqueBlock(f"openai {server.url}/v1", {CONTENT: parts})
        request = replace(conversation(kept), model="magistral-small")
        notes = [(await told("chat", request)).note for _ in range(2)]
        sent = ["Hm." in str(each.body) for each in server.requests]

    assert sent == [True, False, True]
    assert notes == ["", ""]


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize("field", ["thinking_blocks", "reasoning_details", "reasoning_opaque"])
async def test_thinking_that_a_gateway_passes_on_and_that_is_refused_is_left_out(
    monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """A gateway repeats the words of the server behind it, which do not name its own field."""
    words = "messages.1.content.0: Invalid `signature` in `thinking` block"

    def script(body: dict[str, Any]) -> Reply:
        is_refused = "Say hello" in str(body) and "Hm." in str(body)
        return Reply(status=400, message=words) if is_refused else Reply(text="Yes.")

    with serving(monkeypatch, script) as server:
        home = server_of("openai", f"{server.url}/v1/", is_vendors=False).home
        kept = OpaqueBlock(home, {field: [{"type": "thinking", "thinking": "Hm."}]})
        said = Message(Role.ASSISTANT, (kept, TextBlock("Hello.")))
        request = replace(HELLO, messages=(*HELLO.messages, said, user_message("And?")))
        another = replace(request, messages=(user_message("Else"), *request.messages[1:]))
        assert (await told("chat", request)).note.startswith("The server refused earlier thinking")
        assert [(await told("chat", each)).note for each in (request, another)] == ["", ""]

        assert ["Hm." in str(each.body) for each in server.requests] == [True, False, False, True]
