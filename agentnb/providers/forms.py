"""How requests are written for one model at one address, as its refusals teach.

Servers differ in what they accept, and no table knows them all. So the usual form is sent first,
and a refusal of something that we chose is answered by one other form. `_COMPLAINTS` says which
words count: for a part that was sent, they must name it and say that it is not taken. What a person
gave is never left out.

- A request's own status (`_OF_FORM`) teaches, once the same call succeeds in the other form: for
  this address and model, for all clients of the process. It is forgotten when the server asks for
  what was left out.
- What is refused to an account, or for now, teaches nothing, nor does a server's error (5xx). Each
  such call is tried in the other form, an error's only where it names a part, and once.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from agentnb.core.types import CompletionRequest, Message, OpaqueBlock, ThinkingBlock, ToolUseBlock

# The parts that a form may leave out. Any other name is that of a field that a server sent, and
# that goes back to it.
TOOL_CHOICE = "tool_choice"
"""That a typed answer's tool is forced; without it the tool is offered."""
TOOLS = "tools"
"""That a typed answer is asked for by a tool; without it, in words."""
STREAM_OPTIONS = "stream_options"
"""The request for usage in a chat completion's stream."""
SYSTEM = "system"
"""A system prompt of its own; without it, it precedes the first message."""
NULL_CONTENT = "null content"
"""`null` as the content beside tool calls; without it, an empty text."""
CALL_IDS = "call ids"
"""The ids of tool calls as they came, perhaps from another server; without it, short ones."""
CACHE_CONTROL = "cache_control"
"""The marks of what the Messages API is to cache."""
CONTENT = "content"
"""Thinking in the content, as its server sent it; without it, the content is a text."""
UNSIGNED = "unsigned thinking"
"""Thinking without a signature: a server that gives none may want it, one that signs refuses it."""
MAX_TOKENS, MAX_COMPLETION_TOKENS = "max_tokens", "max_completion_tokens"
"""The two names of a chat completion's limit: one of them is left out."""
_OTHER_LIMIT = {MAX_TOKENS: MAX_COMPLETION_TOKENS, MAX_COMPLETION_TOKENS: MAX_TOKENS}
_NEEDED_BY = {**_OTHER_LIMIT, TOOLS: TOOL_CHOICE}
"""A part stays where a person gave this field: the other name, or what is refused without it."""


@dataclass(frozen=True, slots=True)
class Form:
    """How to write a request: with all that the API knows, but for `without`."""

    without: frozenset[str] = frozenset()
    """Names of parts."""

    def has(self, part: str) -> bool:
        """Whether the part is written."""
        return part not in self.without

    def leaving_out(self, part: str) -> Form:
        """The form without a part; without one name of the limit it has the other."""
        return Form(self.without - {_OTHER_LIMIT.get(part, "")} | {part})

    def putting_back(self, part: str) -> Form:
        """The form with a part."""
        if part in _OTHER_LIMIT:
            return self.leaving_out(_OTHER_LIMIT[part])
        return Form(self.without - {part})


# -- what a refusal says -----------------------------------------------------------------------

_OF_FORM = frozenset((400, 404, 422, 501))
"""Statuses by which servers refuse a request's form: routers answer 404 where no model of theirs
takes it."""
_LONGEST_TEXT = 4_000
"""Characters of each text of a refusal that are read."""
_MOST_SENTENCES = 50
_MISTAKE = r"""\{\\*['"]type\\*['"]\s*:\s*\\*['"]\w+\\*['"]\s*,\s*\\*['"](?:loc|msg)\b"""
"""Begins one of vLLM's list; a part of a message begins with its `type`, too."""
_GOES_ON = (
    r"(?i:(?:the )?(?:supported|allowed|valid|accepted|permitted|expected) "
    r"(?:values|options|one of)|got ['\"`])"
)
_SENTENCE_END = re.compile(
    rf"(?<=[.;!?])\s+(?!{_GOES_ON})|\n+(?![ \t])(?!{_GOES_ON})|(?={_MISTAKE})"
)
"""Pydantic writes what is wrong indented, below the name of the field; vLLM lists of mistakes;
OpenAI what would be taken behind it."""
_WORDS = (
    *("message", "msg", "detail", "details", "error", "errors"),
    *("issues", "metadata", "raw", "reason", "title", "upstream_error"),
)
"""Where error bodies have their words, also those of gateways around the words of another server.
Not read: what they repeat of the request or of a reply."""
_REPEATED = re.compile(
    rf"""\\*['"](?:input|failed_generation)\\*['"]\s*:.*?(?={_MISTAKE}|$)"""
    r"""|\binput_value=.*?(?=, input_type=|$)|, value: ['"{\[].*|; (?:messages|tools) = .*"""
    r"""|\bmessages?=[{\[].*|(?<='tools': )\[\{.*?(?=\}, for model|$)"""
    r"""|(?:(?<=detected: Value ')|(?<=; Value ')).*?(?=' at '|$)""",
    re.S,
)
"""The same within a text, as vLLM, Pydantic, Fireworks, llama.cpp and LiteLLM write mistakes,
also in JSON in JSON."""
_OF_TYPE = re.compile(
    r"""(\btype\\*['"]?[)\]\n].{0,200}?)(?:\\*['"]input\\*['"]\s*:|\binput_value=)\s*\\*['"](\w{1,30})\b""",
    re.S,
)
"""The type that a part of the request has, which is repeated, too."""
_OF_SCHEMA = re.compile(
    r"(?i)\binput_schema\b|\b(?:parameters\.|json schema.*['.])properties\b|\bproperties\["
    r"|\bschema for |\b(?:json|tool) schemas?(?: is| are)? not supported\b|\bunrecognized schema\b"
)
"""In a complaint of what a tool takes, whose names are a person's."""
_MESSAGE = re.compile(r"\bmessages[.\[](\d{1,6})\b")
_OF_REPLY = re.compile(
    r"(tool_use|json_validate)_failed|failed_generation|call validation failed|\bcontent_filter\b"
)
"""Marks of a refusal of what the model wrote, as Groq sends them with status 400, or was asked."""
_NOT_TO_ALL = re.compile(
    r"(?i)(?<![\w/:.-])(?:plan|trial|billing|tier|payment|subscription|quota|licen[sc]e|workspace"
    r"|admin(?:istrator)?|permissions?|credits?|accounts?(?! exhausted)|organi[sz]ations?|teams?"
    r"|projects?|customers?|regions?|countr(?:y|ies)|tenants?|balance|data policy|contact sales"
    r"|api keys?|(?:your|virtual) key|free (?:users?|version)|(?:usage|spending) (?:limit|cap)"
    r"|overloaded|capacity|per minute|please try again|(?:at the|this) moment|right now"
    r"|high (?:load|demand)|maintenance|temporar(?:y|ily)"
    r"|(?:again|retry)\b[\w ]{0,20}\b(?:later|shortly|soon|in a|in \d+))(?![\w/-]|:\w)"
)
"""What is refused to a person may be taken once they pay or ask, or later. No part of a name: those
of models and paths have such words, too."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """What a server says of a request that it refuses.

    Args:
        status: The response's status.
        body: The error's body: JSON values, or text.
    """

    status: int
    body: object = ""

    @property
    def teaches(self) -> bool:
        """Whether the same request would be refused to all, and later, too."""
        said = _MODEL.sub("model", " ".join(self.sentences))
        return self.status in _OF_FORM and not _NOT_TO_ALL.search(said)

    @property
    def is_of_reply(self) -> bool:
        """Whether it is about what the model wrote: the next try may succeed."""
        return any(map(_OF_REPLY.search, _texts(self.body)))

    @property
    def sentences(self) -> tuple[str, ...]:
        """Its sentences, each with the field and the code that its server names."""
        return tuple(islice(_sentences(self.body), _MOST_SENTENCES))


def _texts(said: object, depth: int = 0) -> Iterator[str]:
    """All keys and short texts, for marks that may stand anywhere."""
    if isinstance(said, str):
        yield said[:_LONGEST_TEXT]
    elif isinstance(said, Mapping) and depth < 5:
        for name, value in said.items():
            yield str(name)
            yield from _texts(value, depth + 1)
    elif isinstance(said, list) and depth < 5:
        for value in said[:_MOST_SENTENCES]:
            yield from _texts(value, depth + 1)


def _sentences(said: object, place: str = "", code: str = "", depth: int = 0) -> Iterator[str]:
    if isinstance(said, str):
        text = _REPEATED.sub("", _OF_TYPE.sub(r"\1 got '\2'", said[:_LONGEST_TEXT]))
        for sentence in _SENTENCE_END.split(text):
            if sentence.strip():
                yield f"{place}{sentence}{code}"
    elif isinstance(said, list) and depth < 5:
        for value in said:
            yield from _sentences(value, place, code, depth + 1)
    elif isinstance(said, Mapping) and depth < 5:
        if where := _place(said):
            place = f"{where}: "
            if where.endswith("type") and isinstance(said.get("input"), str):
                code = f" got '{said['input'][:30]}'"
        if isinstance(said.get("code"), str) and "invalid" not in said["code"]:  # of any mistake
            code = f" ({said['code'].replace('_', ' ')})"
        for name in _WORDS:
            yield from _sentences(said.get(name), place, code, depth + 1)


def _fields(said: object, depth: int = 0) -> Iterator[str]:
    """The request's own fields that are named as such."""
    if isinstance(said, list) and depth < 5:
        for value in said:
            yield from _fields(value, depth + 1)
    elif isinstance(said, Mapping) and depth < 5:
        if where := _place(said):
            yield re.split(r"[.\[]", where, maxsplit=1)[0]
        for name in _WORDS:
            yield from _fields(said.get(name), depth + 1)


def _place(said: Mapping[str, Any]) -> str:
    """The field that an error names: `param` of OpenAI's form, `loc` of FastAPI's, zod's `path`."""
    if isinstance(where := said.get("param"), str):
        return where
    for name in "loc", "path":
        if isinstance(where := said.get(name), list):
            return ".".join(str(each) for each in where if each != "body")
    return ""


# -- the table of complaints -------------------------------------------------------------------

_UNSUPPORTED = (
    r"unsupported|incompatible|unavailable|disabled|disallow|forbidden|not one of"
    r"|(?:\b(?:not|no|cannot|never|without)\b|n't\b).{0,60}?"
    r"\b(?:support|permit|allow|accept|enabl|implement|recogni|availab|compatib)"
    r"|\b(?:cannot|can not|can't|may not|must not) (?:be )?"
    r"(?:call|combine|force|give|given|send|sent|set|specif|use)"
    r"|\bonly\b.{0,40}\bsupport"
)
_UNKNOWN = (
    rf"\bun(?:known|recogni[sz]ed|expected)|\bextra\b|extra_forbidden|{_UNSUPPORTED}"
    r"|\billegal\b|\badditional property\b|\bnot (?:defined in|part of) (?:the |this )?schema\b"
    r"|\b(?:invalid|not an? (?:known|valid)) (?:field|property|parameter|argument|key|attribute)\b"
    r"|\bremove\b|\b(?:should|must) not (?:exist\b|have additional\b|be (?:a|in|set|sent|given"
    r"|provided|included|present|used|specified)\b)|\b(?:response|output|read)[- ]only\b"
    r"|\b(?:does|did) not match any (?:of|variant)\b"
)
"""Of a field that is named as one."""
_NEEDED = (
    r"\bmissing\b|\b(?:is|are|be|field|parameter|property|argument) required\b"
    r"|\brequired (?:field|parameter|property|argument)"
    r"|\bmust (?:also )?(?:be (?:passed|sent|provided|included|present|returned|supplied|given"
    r"|defined|preserved|kept|specified|set(?! to))|include|contain|have)\b"
)
"""Says that a part was left out, not that it is refused."""
_MISSED = (
    rf"{_NEEDED}|\brequires?\b|\bcan ?not be (?:omitted|empty|left out)|\bmust define\b"
    r"|\bwithout\b.{0,30}\bspecified\b|\bpass(?:ed)? back\b|\bplease (?:pass|include)\b|^expected\b"
    r"|: expected .thinking\b|\bmust (?:be|begin with|start with)(?: a)? (?:thinking|reasoning)\b"
)
"""The same, of a part that is known to be left out."""
_LIST = re.compile(
    r"(?i)\b(?:expected (?:one|any) of|must be one of|did you mean"
    r"|(?:supported|allowed|valid|accepted|known|permitted|expected) (?:ones|values|parameters"
    r"|fields|keys|options|properties|tags))\b(?:(?!\bbut got\b).)*|(?<=not one of )\[[^\]]*\]"
)
"""Begins a list of what would be taken: it refuses nothing."""
_MODEL = re.compile(r"(?i)\bmodel:? ['\"`][^'\"`]*['\"`]")
"""A model's own name, which may speak of tools."""


_OTHERWISE = rf"{_NEEDED}|\btoo (?:large|long|many|short)\b|\bunexpected ['\"`]tool_use_id['\"`]"


@dataclass(frozen=True, slots=True)
class _Row:
    """One complaint: both patterns are searched in the same sentence, in any case."""

    part: str
    """What it is about; it must have been sent."""
    named: str
    """The part's name, or what it holds, in servers' words."""
    says: str = _UNKNOWN
    """That it is not taken."""
    unless: str = _OTHERWISE
    """Words of a complaint about other things."""
    listed: str = ""
    """What is in a list of what would be taken, if the complaint has one."""
    is_name: bool = True
    """Whether `named` is a name of the request's, not only common words: a server's own error must
    quote one."""


def _name(part: str) -> str:
    """Matches a field's name. A plain word must stand as one: quoted, in a path, or called so."""
    name = re.escape(part)
    if "_" in part:  # Bedrock writes `toolChoice`
        return rf"(?<!\w){re.sub('(?<=[a-z])_', '_?', name)}(?!\w)"
    called = (
        r"\b(?:field|param|parameter|argument|property|key|keyword|input|attribute)s?"
        r"(?: supplied|(?<=field) for \w+)?:?\s+"
    )
    return rf"(?:(?:[.\]'\"`]|{called}){name}(?![\w\[-]|\.\w)|^{name}:)"


def _field(part: str) -> str:
    """Matches a field by its own name: a part may have that of an object before it."""
    return _name(part.rpartition(".")[2])


def _thinking_block(types: str) -> str:
    """Matches what a message holds: a request may also have a field `thinking`."""
    quoted = rf"['\"`]{types}['\"`]"
    return (
        rf"\bblock(?:s| type)?:? ['\"`]?{types}\b|\b{types}['\"`]? (?:content )?blocks?\b"
        rf"|\btag {quoted}|\bmessages[.\[]\d.*{quoted}"
    )


_ANY = r"[\w ]{1,30}"
_NO_STRING = r"\b(?:must|should) be a (?:valid )?string|\bexpected (?:a )?str"
_THINKING = "(?:thinking|reasoning)"
_THINKING_PART = (
    rf"{_thinking_block(_THINKING)}|\b{_THINKING}['\"`]? (?:content|part|chunk)s?\b"
    rf"|\btypes?:? ['\"`]?{_THINKING}\b"
    rf"|\b{_THINKING}['\"`]?:? (?:is )?(?:not an? |an )?\w+ content type\b"
    rf"|\bcontent(?:\[\d*\]|\.\d+)\.{_THINKING}(?![\w.\[])"
)
_NO_LIST = (
    rf"{_NO_STRING}|\bunmarshal array\b|\bnot (?:of type ['\"]str|str type)|\bgot an array\b"
    r"|\bany variant\b|\binterface \{\}"
)
_OF_TEXT = r"\b(?:bytes?|characters?|contains?|length|role:user|tools?|tool.result)\b|\.text\b"
_OF_BLOCK = rf"{_OTHERWISE}|\bcache_control\b"

_TABLE = (
    # Whether a model thinks decides at many servers whether a tool may be forced.
    _Row(
        TOOL_CHOICE,
        r"tool.?choice|\bnamed (?:tool|function)|\btype:? ['\"](?:tool|any)['\"]"
        r"|\bforc(?:e|ed|es|ing)\b.*\b(?:tool|function)|\b(?:tool|function)s?\b.*\bforced\b",
        rf"{_UNKNOWN}|\binvalid\b|\b(?:must|should) be (?:set to |either )?\W?(?:auto|none)"
        # By servers that know its words alone.
        r"|\b(?:only\b.*|values are\W+)\bauto\b|\b(?:valid|be|be a|to|to a) string\b|\bunmarshal\b"
        r"|\btype mismatch\b|\bexpect(?:s|ed)(?: type:)?(?: a)? string\b",
    ),
    _Row(
        TOOLS,
        r"\btools\b(?![\[-]|\.\w)|\btool (?:use|usage|call(?:s|ing)?)\b"
        r"|\bfunction.?call(?:s|ing)?\b|\bfunction tools?\b|\bfunctions\b",
        _UNSUPPORTED,
        # A tool's schema, another field beside tools (we send no format).
        unless=rf"{_OTHERWISE}|pattern|schema|\$ref|keyword|duplicate|parallel|image|\btools\["
        r"|\bjson mode\b|grammar|response.?(?:format|mime)"
        r"|stream_options|does not support ['\"`][^'\"`]*['\"`] with",
        is_name=False,
    ),
    _Row(
        TOOLS,
        rf"(?:\bnot|n't) support (?:{_ANY} or )?(?:tools|tool (?:use|calling)|function calling)"
        rf"(?: or {_ANY})?\W*$",
        r"",
        is_name=False,
    ),
    _Row(TOOLS, _name(TOOLS)),
    # vLLM and llama.cpp, if they were started without tools.
    _Row(
        TOOLS,
        r"--enable-auto-tool-choice|--tool-call-parser|--jinja",
        r"\brequires?\b",
        unless=r"(?!)",
    ),
    _Row(
        STREAM_OPTIONS,
        rf"{_name(STREAM_OPTIONS)}|\binclude_usage\b|\bstream options\b",
        # Gateways that make a stream of a whole reply have not heard that we ask for one.
        rf"{_UNKNOWN}|\binvalid\b|\bonly (?:be )?(?:allowed|defined|set|used)\b"
        r"|\bset (?:together|along)\b",
        unless=rf"{_OTHERWISE}|\bwithout\b|stream_options\.(?!include_usage)\w",
    ),
    # Templates of some models have no place for it.
    _Row(
        SYSTEM,
        r"\bsystem[ _](?:role|message|prompt|instruction)|\bdeveloper (?:role|message|instruction)"
        r"|\brole: system\b|\bonly user\b.*\broles? (?:is|are)\b",
        _UNSUPPORTED,
        unless=rf"{_OTHERWISE}|with the exception|optional|\bonly user\b(?:(?!\bgot\b).)*\bsystem\b"
        r"|\bcontains?\b|policy|image|lacking|multiple|\bat the (?:start|beginning)|empty",
    ),
    _Row(
        SYSTEM,
        rf"{_name(SYSTEM)}|\brole\b.*['\"`]system['\"`]|['\"`]system['\"`].*\brole\b",
        unless=rf"{_OTHERWISE}|\bafter role\b",
    ),
    _Row(SYSTEM, r"['\"`]system['\"`]", r"\binvalid value", listed=r"\buser\b|\bassistant\b"),
    _Row(SYSTEM, r"\brole: system\b", rf"{_UNKNOWN}|\binvalid\b"),
    _Row(
        SYSTEM,
        r"\bmessages[.\[]0\]?\.role\b",
        r"\binput should be\b",
        unless=r"should be\b(?:(?!\bgot\b).)*['\"`]system['\"`]",
    ),
    # Templates that join texts fail with Python's own words.
    _Row(
        NULL_CONTENT,
        r"\bcontent\b|\bNoneType\b|\bNullValue\b",
        rf"{_NO_STRING}|\bNoneType\b|\bnull(?:value)?\b|<nil>|\bNone is not of type\b",
        unless=rf"{_OF_TEXT}|\bgot an array\b",
    ),
    _Row(
        CALL_IDS,
        r"\btool.?(?:use|call|result)\S*id\b|\btool.?calls?\b.*\bid\b",
        r"\bpattern\b|\bmust be a-z\b|\btoo long\b|\blength\b|\bat most \d+ char",
        unless=r"(?!)",
    ),
    _Row(
        UNSIGNED,
        r"\bthinking\b.*\bsignature\b|\bsignature\b.*\bthinking\b"
        r"|\bmessages[.\[]\d.*\bsignature\b",
        rf"{_NEEDED}|\binvalid\b|{_UNKNOWN}",
        unless=r"(?!)",
    ),
    _Row(UNSIGNED, _thinking_block("thinking"), unless=_OF_BLOCK),
    _Row(
        CACHE_CONTROL,
        rf"{_name(CACHE_CONTROL)}|\b(?:cache control|cachePoint|prompt caching)\b",
        unless=rf"{_OTHERWISE}|\bempty\b|\bthinking\b|\bttl\b",
    ),
    _Row(
        CONTENT,
        rf"{_THINKING_PART}|\bcontent\[\d*\]\.type$",
        rf"{_UNKNOWN}|\binvalid (?:value|(?:content |part )*type)\b",
        unless=rf"{_OF_BLOCK}|\bsignature\b|\bpolicy\b|\bfiltered\b|\bnot be generated\b"
        rf"|\bterms\b|\bof type (?!\W?{_THINKING})",
    ),
    _Row(
        CONTENT,
        rf"\binvalid value: (?:['\"`]{_THINKING}['\"`](?! (?:for|of|in) (?!.*\bcontent\b))"
        rf"|{_THINKING}(?=\.|$))",
        r"",
        unless=r"^(?!messages|content)[\w.\[\]]+: invalid value",
        listed=r"(?:\b|_)text\b",
    ),
    _Row(CONTENT, rf"\bgot\W+{_THINKING}\b", r"\btext\b.*\bcontent only\b|\bonly\b.*\btext\b"),
    _Row(
        CONTENT,
        r"\bcontent\W+(?:list\S*\W+)?\d+\W+type\b",
        r"\bshould be .text\b",
        unless=rf"\buser\W+content\b|\btool.result|\bshould be\b(?:(?!\bgot\b).)*\b{_THINKING}\b"
        rf"|\b(?:got|received)\b(?!\W+(?:(?:value|type|an?)\W+)*{_THINKING}\b)",
    ),
    _Row(CONTENT, r"\bcontent\b.{0,40}\btype\b", r"\beither .text\b", unless=r"(?!)"),
    _Row(CONTENT, r"\bmessages\[\d+\]: invalid type: (?:map|sequence)\b", r""),
    _Row(
        CONTENT,
        r"\bcontent\b",
        _NO_LIST,
        unless=_OF_TEXT,
    ),
    _Row(CONTENT, r"\bconcatenate str\b", r"\blist\b"),
    *(
        _Row(
            limit,
            _name(limit),
            unless=rf"{_NEEDED}|exceed|greater|larger?\b|less\b|at most|between|above|below"
            r"|maximum|integer|float|budget_tokens|\bup to\b|not support \d|\brange\b"
            rf"|[<>]=|\bhigh\b|{limit}:? \d|\bset to\b",
        )
        for limit in _OTHER_LIMIT
    ),
)


_MISSED_AS = {
    TOOLS: rf"{_name(TOOLS)}|\bdefine tools\b|\btoolConfig\b",
    UNSIGNED: _name("thinking"),
    CONTENT: rf"\b{_THINKING}['\"`]? (?:content|block|part|chunk)s?\b|\bcontent\[\]\.{_THINKING}\b"
    r"|: expected .thinking\b",
}
"""What names a part that is missed, where that is not its own name."""


def _rows(part: str) -> Iterator[_Row]:
    known = [row for row in _TABLE if row.part == part]
    yield from known or [_Row(part, _field(part))]


@lru_cache(maxsize=256)
def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(words, re.IGNORECASE)


def has_calls(messages: Iterable[Message]) -> bool:
    """Whether there are tool calls, and so ids of them."""
    return any(isinstance(block, ToolUseBlock) for each in messages for block in each.content)


def call_id(form: Form, name: str) -> str:
    """An id of a tool call as a form writes it: nine letters and digits suit all servers."""
    return name if form.has(CALL_IDS) else _hash(name).hex()[:9]


def after(form: Form, complaint: Complaint, sent: Iterable[str], given: Iterable[str] = ()) -> Form:
    """The form to try after a refusal; the same if it is about other things.

    Args:
        form: The form of the request that was refused.
        complaint: What the server said.
        sent: The parts that were written and that we chose, those to try first before others.
        given: The fields that a person gave: what speaks of them is not for us.
    """
    if complaint.is_of_reply:
        return form
    # The option `user` has the name of a role.
    persons = [_pattern(_name(name)) for name in given if name != "user"]
    words = [_pattern(rf"(?<!\w){re.escape(name)}(?!\w)") for name in given]
    for sentence in complaint.sentences:
        refused = _MODEL.sub("model", _LIST.sub("", sentence))
        if _OF_SCHEMA.search(refused):
            continue
        is_of_message = _MESSAGE.match(refused) is not None  # a person gives none of its parts
        if not is_of_message and any(name.search(refused) for name in persons):
            continue
        # By common words a refusal may mean anything: nothing of ours beside a person's option.
        is_loose = complaint.status in _OF_FORM and not any(word.search(refused) for word in words)
        for part in sent:
            rows = (row for row in _rows(part) if row.is_name or is_loose)
            if any(_is_meant(row, refused, _LIST.findall(sentence)) for row in rows):
                return form.leaving_out(part)
        if _pattern(_MISSED).search(sentence):
            for part in sorted(form.without):
                if _pattern(_MISSED_AS.get(part) or _field(part)).search(sentence):
                    return form.putting_back(part)
    return form


def _is_meant(row: _Row, sentence: str, lists: Iterable[str] = ()) -> bool:
    return (
        _pattern(row.named).search(sentence) is not None
        and _pattern(row.says).search(sentence) is not None
        and _pattern(row.unless).search(sentence) is None
        and all(map(_pattern(row.listed).search, lists))
    )


# -- what was learnt -----------------------------------------------------------------------------

_NEVER_MATTERS = {
    *("frequency_penalty", "logit_bias", "metadata", "min_p", "presence_penalty"),
    *("prompt_cache_key", "repetition_penalty", "request_id", "safety_identifier", "seed"),
    *("session_id", "stop", "stop_sequences", "temperature", "top_k", "top_p", "user"),
}
"""A person's options beside which no server takes anything else than without them."""


def _options_in(given: Mapping[str, Any]) -> str:
    """A person's other options, as a hash: a part may be refused beside these values alone."""
    others = {name: given[name] for name in given if name not in _NEVER_MATTERS}
    return _hash(_as_text(others)).hex() if others else ""


def _as_text(options: Mapping[str, Any]) -> str:
    """The same text for the same values, in whatever order."""
    try:
        return json.dumps(options, sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):  # keys of several types, a circle
        return repr(sorted(map(repr, options.items())))


@dataclass(slots=True)
class LearntForms:
    """The forms that servers taught, by server and model. For all threads."""

    _forms: dict[tuple[str, str], Form] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, key: tuple[str, str], usual: Form) -> Form:
        """The form to begin with."""
        return self._forms.get(key, usual)

    def learn(self, key: tuple[str, str], usual: Form, change: Change) -> None:
        """Keep what a call changed: other calls may have changed other parts meanwhile."""
        with self._lock:
            form = self._forms.get(key, usual)
            self._forms[key] = Form(form.without - change.put_back | change.left_out)

    def forget(self) -> None:
        """Forget all."""
        with self._lock:
            self._forms.clear()


@dataclass(frozen=True, slots=True)
class Change:
    """What differs between two forms."""

    left_out: frozenset[str]
    put_back: frozenset[str]

    @classmethod
    def between(cls, old: Form, new: Form) -> Change:
        """What makes the new form of the old one."""
        return cls(new.without - old.without, old.without - new.without)


LEARNT = LearntForms()
"""Of this process."""


class Asking:
    """The forms of one call, from the first try on.

    Args:
        key: The server's word (see `Server.home`), and the model.
        usual: The form of a server that has taught nothing.
        given: The fields that a person gave: they are not ours to leave out. What is refused
            beside them is learnt for calls with these alone, whatever the words.
    """

    def __init__(self, key: tuple[str, str], usual: Form, given: Mapping[str, Any]) -> None:
        self._given, self._own = frozenset(given), (key, usual)
        options = _options_in(given)
        self._learns = ((key[0], f"{key[1]} with {options}"), Form()) if options else self._own
        """What this call teaches: of the model, or of the model with these options."""
        self.form = LEARNT.of(*self._own)
        for part in sorted(LEARNT.of(*self._learns).without):
            self.form = self.form.leaving_out(part)
        if TOOL_CHOICE in given:
            self.form = self.form.putting_back(TOOLS)
        self._known, self._tried, self._is_lesson = self.form, {self.form}, True

    def try_another(self, complaint: Complaint, sent: Iterable[str]) -> bool:
        """Whether the request is to be sent again, in the form that `form` is now.

        Args:
            complaint: Why it was refused.
            sent: As of `after`.
        """
        is_tried = complaint.status in _OF_FORM or (complaint.status >= 500 and self._is_lesson)
        if not is_tried or self._given.intersection(_fields(complaint.body)):
            return False
        ours = [p for p in sent if not self._given & {p, _NEEDED_BY.get(p, p)}]
        other = after(self.form, complaint, ours, self._given)
        if other in self._tried:
            return False
        change = Change.between(self.form, other)
        if complaint.teaches and change.put_back - set(_OTHER_LIMIT):
            for learnt in {self._own, self._learns}:  # it was wrong, whatever comes now
                LEARNT.learn(*learnt, change)
        self._is_lesson = self._is_lesson and complaint.teaches
        self.form = other
        self._tried.add(other)
        return True

    def succeeded(self) -> None:
        """Learn from the call: it was answered in the newest form."""
        if self._is_lesson and self.form != self._known:
            LEARNT.learn(*self._learns, Change.between(self._known, self.form))


# -- thinking that is no longer taken ------------------------------------------------------------

_REFUSED_BLOCK = _Row(
    "", _thinking_block("(?:redacted_)?thinking"), rf"{_UNKNOWN}|\binvalid\b", _OF_BLOCK
)
_ABOUT_THINKING = re.compile(r"(?i)\b(?:redacted_)?thinking\b|\bthought|\bencrypted content\b")
_ABOUT_SIGNATURE = re.compile(
    r"(?i)\bsignature\b|different conversation|cannot be modified|must contain thinking"
    r"|\bencrypted content\b"
)
_MOST_MARKS = 10_000


class RefusedThinking:
    """Thinking that the API no longer takes. For all threads.

    The API binds a block of thinking to what stands before it, and refuses it where that has
    changed. Once refused, the thinking of that conversation is left out of every later request to
    that address: put back, it would be refused again.
    """

    def __init__(self) -> None:
        self._marks: dict[bytes, None] = {}
        """By hash, the oldest first: signatures are long, and there may be thousands."""
        self._lock = threading.Lock()

    def is_meant(self, complaint: Complaint, address: str, request: CompletionRequest) -> bool:
        """Whether a refusal is about thinking in the request that is still sent."""
        if complaint.status not in (400, 422) or not any(
            _speaks_of_thinking(sentence, request.messages) for sentence in complaint.sentences
        ):
            return False
        return any(mark not in self._marks for mark in _marks_in(address, request))

    def add(self, address: str, request: CompletionRequest) -> None:
        """Leave out the thinking in this conversation from now on."""
        with self._lock:
            self._marks |= dict.fromkeys(_marks_in(address, request))
            while len(self._marks) > _MOST_MARKS:
                del self._marks[next(iter(self._marks))]

    def left_out(self, address: str, request: CompletionRequest) -> CompletionRequest:
        """The request without it."""
        marks = self._marks
        if not marks or not any(mark in marks for mark in _marks_in(address, request)):
            return request
        begin = _beginning(address, request)
        messages = tuple(
            replace(
                message,
                content=tuple(
                    block
                    for block in message.content
                    if not (_is_sent(block) and _mark(begin, block) in marks)
                ),
            )
            for message in request.messages
        )
        return replace(request, messages=messages)

    def forget(self) -> None:
        """Forget all."""
        with self._lock:
            self._marks.clear()


REFUSED_THINKING = RefusedThinking()
"""Of this process."""


def _speaks_of_thinking(sentence: str, messages: tuple[Message, ...]) -> bool:
    if _is_meant(_REFUSED_BLOCK, _LIST.sub("", sentence)):
        return True
    if not _ABOUT_SIGNATURE.search(sentence):
        return False
    if _ABOUT_THINKING.search(sentence):
        return True
    found = _MESSAGE.search(sentence)
    at = int(found[1]) if found else len(messages)
    return at < len(messages) and any(map(_is_sent, messages[at].content))


def _is_sent(block: object) -> bool:
    """Whether it is thinking that the Messages API binds to what stands before it.

    Gateways pass it on in fields of a chat completion.
    """
    if isinstance(block, OpaqueBlock):  # of the Messages API, the result of a search has a content
        return not _BOUND.isdisjoint(block.data) or [*block.data] == [CONTENT]
    return isinstance(block, ThinkingBlock) and bool(block.signature or block.redacted_data)


_BOUND = frozenset({"thinking_blocks", "reasoning_details", "reasoning_opaque"})
"""The fields of LiteLLM, OpenRouter and Copilot; Databricks has it in the content."""


def _marks_in(address: str, request: CompletionRequest) -> list[bytes]:
    begin = _beginning(address, request)
    return [
        _mark(begin, block)
        for message in request.messages
        for block in message.content
        if _is_sent(block)
    ]


def _beginning(address: str, request: CompletionRequest) -> bytes:
    """Stands for the address and the conversation, with the options that may refuse thinking."""
    first = request.messages[0].text if request.messages else ""
    return _hash(address, request.system, first, _options_in(request.extra))


def _mark(begin: bytes, block: Any) -> bytes:
    if isinstance(block, OpaqueBlock):
        return _hash(begin.hex(), json.dumps(block.data, sort_keys=True))
    return _hash(begin.hex(), block.redacted_data or block.signature or block.text)


def _hash(*texts: str) -> bytes:
    hashed = hashlib.blake2b(digest_size=16)
    for text in texts:
        encoded = text.encode("utf-8", "backslashreplace")
        hashed.update(len(encoded).to_bytes(8, "big") + encoded)
    return hashed.digest()
