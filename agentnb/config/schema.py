"""The schema of a settings file, and the messages for its mistakes.

One pass finds all mistakes: the validation's context holds what a value is checked against (the
project folder, the names of the pools).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic_core import ErrorDetails

from agentnb.config.config import LOCAL
from agentnb.config.document import Document, Loc, Scalar, dotted
from agentnb.config.profile import NamedText
from agentnb.config.project_file import read_project_file
from agentnb.core.shown import listed
from agentnb.core.text import one_line
from agentnb.errors import ConfigMistake
from agentnb.modes import MODES
from agentnb.settings import SETTINGS, Wrong, must_be
from agentnb.typed_fields import checked_field, checked_field_name

_LONGEST_NAME = 64
_MOST_DOLLARS = 10**9
_LISTED = 20
"""Known names listed beside a wrong one."""


class Hints:
    """Finds the known name that a wrong one may have meant.

    Each wrong name is compared with each known one. A hostile file may have many of both, so the
    number of comparisons is limited; after that there are no hints.
    """

    def __init__(self, comparisons: int = 5_000) -> None:
        self.left = comparisons

    def nearest(self, word: str, known: Sequence[str]) -> str | None:
        """The most similar known name; `None` if none is similar enough."""
        if len(word) > _LONGEST_NAME or len(known) > self.left:
            return None
        self.left -= len(known)
        near = [name for name in known if len(name) <= _LONGEST_NAME]
        return next(iter(get_close_matches(word, near, n=1)), None)


@dataclass(frozen=True, slots=True)
class Around:
    """Validation context: what values are checked against."""

    folder: Path
    """The project folder, absolute."""
    pools: Mapping[str, object]
    """The pools, by name."""
    hints: Hints


# -- single values ----------------------------------------------------------------------------


def _name(value: str) -> str:
    if not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{_LONGEST_NAME}}}", value):
        raise ValueError(
            f"{_shown(value)} cannot be used as a name here. Use letters, digits, `_` and "
            f"`-`, at most {_LONGEST_NAME}."
        )
    return value


def _model(value: str) -> str:
    if not value.strip():
        raise ValueError("The name of a model is blank. Write it as `provider/model`.")
    if re.match(r"\s*pool[/:]", value):
        raise ValueError(
            f"{_shown(value)} is a pool, and a pool holds models. Write them out: `provider/model`."
        )
    return value.strip()


def _pool(value: str, info: ValidationInfo) -> str:
    around: Around = info.context  # type: ignore[assignment]  # always given
    if value not in around.pools:
        known = tuple(around.pools)
        near = around.hints.nearest(value, known)
        instead = f"Write `{near}`, or add it" if near else "Add it"
        others = "" if near else f" (known: {_listed(known)})"
        raise ValueError(f"There is no pool {_shown(value)}{others}. {instead} under `llm.pools`.")
    return value


def _file(value: object, info: ValidationInfo) -> NamedText:
    if not isinstance(value, str):
        raise ValueError(_not_a("string, the name of a file", value))
    return read_project_file(info.context.folder, value)  # type: ignore[union-attr]


def _commas(value: object) -> object:
    """Tools may be a list, or a text with commas as the tool `spawn` takes; empty: the default."""
    if not isinstance(value, str):
        return value
    return [name.strip() for name in value.split(",") if name.strip()] or None


def _none_is_default(value: object) -> object:
    return None if value == [] else value


def _fields(value: object) -> object:
    if value == {}:
        raise ValueError("There is no field. Write each below it, as `name: str`; or leave it out.")
    return value


def _no_mapping(value: object) -> object:
    """A key without a value is an empty mapping."""
    return {} if value is None else value


def _base_url(value: str) -> str:
    try:
        url = urlsplit(value)
        fits = url.scheme in ("http", "https") and bool(url.hostname)
    except ValueError:
        fits = False
    # Other characters look like another host, or parsers disagree about the host they lead to.
    if not fits or not re.fullmatch(r"[!-\[\]-~]+", value):
        raise ValueError(
            "This is not the address of a server. Write it like `http://localhost:8000/v1`."
        )
    if url.username is not None or url.query or url.fragment:
        raise ValueError(
            "The address has more than a server and a path. Remove the rest; `api_key_env` names "
            "a key."
        )
    return value


def _variable(value: str) -> str:
    # Upper case only: a key pasted here must not pass for a name, and be shown as one.
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
        raise ValueError(
            "This is not the name of an environment variable in upper case, like `OPENAI_API_KEY`. "
            "Name the variable that holds the key; never put a key into this file."
        )
    return value


def _of_session(value: object, info: ValidationInfo) -> object:
    """Parse and check a setting; `None` if it has no value."""
    check = SETTINGS[str(info.field_name)].check
    if isinstance(value, Scalar):
        written = value.written
        try:
            value = check.parse(written)
        except ValueError:
            value = written
    try:
        return None if value is None else check.take(value)
    except Wrong as wrong:
        raise ValueError(must_be("This", wrong, value)) from None


def _server_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,30}[A-Za-z0-9])?", value) or "__" in value:
        raise ValueError(
            f"{_shown(value)} cannot be the name of an MCP server. Use 1 to 32 letters, digits, "
            "`_` and `-`, not two `_` in a row."
        )
    return value


def _names_as_mapping(value: object) -> object:
    """`[GITHUB_TOKEN]` is short for `{GITHUB_TOKEN: ${GITHUB_TOKEN}}`."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return {_variable(name): f"${{{name}}}" for name in value}
    return _no_mapping(value)


def _checked_headers(headers: dict[str, str] | None) -> dict[str, str] | None:
    for name, value in (headers or {}).items():
        # Never the value in the message: it may be a key.
        if re.search("auth|key|token|secret|cookie", name, re.I) and "${" not in value:
            raise ValueError(
                f"Never put a key into this file. Put that of {_shown(name)} into an environment "
                "variable, and write `${NAME}` in its place."
            )
    return headers


def _mcp_url(value: str) -> str:
    try:
        url = urlsplit(value)
        fits = url.scheme in ("http", "https") and bool(url.hostname) and url.username is None
    except ValueError:
        fits = False
    if not fits or not re.fullmatch(r"[!-\[\]-~]+", value):
        raise ValueError(
            "This is not the address of a server. Write it like `http://localhost:8000/mcp`; a "
            "key goes into `headers`."
        )
    return value


def _scheduler(value: str) -> str:
    if value != LOCAL and not re.fullmatch(r"(tcp|tls|ws|wss|ucx)://[!-~]+:[0-9]{1,5}", value):
        raise ValueError(
            f"{_shown(value)} is not the address of a Dask scheduler. Write it like "
            "`tcp://localhost:8786`; or write `local` for a cluster of this machine's processes."
        )
    return value


def _count(value: object) -> int:
    written = value.written if isinstance(value, Scalar) else ""
    if not re.fullmatch("[1-9][0-9]{0,3}", written):
        raise ValueError(f"{_not_a('whole number from 1 to 9999', value)}")
    return int(written)


def _seconds(value: object) -> float:
    try:
        found = float(value.written) if isinstance(value, Scalar) else 0.0
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ValueError("This must be a number of seconds above 0, such as `60`.")
    return found


def _price(value: object) -> Decimal:
    """Dollars for a million tokens, as written: exactly."""
    try:
        found = Decimal(value.written.replace("_", "")) if isinstance(value, Scalar) else None
    except InvalidOperation:
        found = None
    if found is None or not 0 <= found <= _MOST_DOLLARS:
        raise ValueError(
            "This must be a number of US dollars for a million tokens, at least 0, such as `3` or "
            f"`0.25`, not {_shown(value) if isinstance(value, str) else _kind_of(value)}."
        )
    return found


def _once(prices: dict[str, PriceSection]) -> dict[str, PriceSection]:
    spelled = [re.sub("[/:]", "/", model, count=1) for model in prices]
    twice = {model for model in spelled if spelled.count(model) > 1}
    if twice:
        raise ValueError(f"{_shown(min(twice))} has two prices. Keep one of the two.")
    return prices


def _mode(value: str | None) -> str | None:
    if value is not None and value not in MODES:
        raise ValueError(f"{_shown(value)} is no mode. Write one of {', '.join(MODES)}.")
    return value


Name = Annotated[str, AfterValidator(_name)]
Model = Annotated[str, AfterValidator(_model)]
Pool = Annotated[str, AfterValidator(_pool)]
FieldName = Annotated[str, AfterValidator(checked_field_name)]
Field_ = Annotated[Any, PlainValidator(checked_field)]
File = Annotated[NamedText, PlainValidator(_file)]
Dollars = Annotated[Decimal, PlainValidator(_price)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
Variable = Annotated[str, AfterValidator(_variable)]
ServerName = Annotated[str, AfterValidator(_server_name)]
McpUrl = Annotated[str, AfterValidator(_mcp_url)]
Seconds = Annotated[float, PlainValidator(_seconds)]
Scheduler = Annotated[str, AfterValidator(_scheduler)]
Count = Annotated[int, PlainValidator(_count)]


# -- sections ---------------------------------------------------------------------------------


class Section(BaseModel):
    """A mapping of the file. A key without a value, or with an empty text, counts as left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _nothing_said(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return _no_mapping(data)
        return {k: v for k, v in data.items() if v != "" or k not in cls.model_fields}


class ProfileSection(Section):
    """`tools.spawn.profiles.<name>`."""

    description: str | None = None
    system_prompt: str | None = None
    system_prompt_file: File | None = None
    bootstrap_files: Annotated[list[File] | None, BeforeValidator(_none_is_default)] = None
    tools: Annotated[list[Name] | None, BeforeValidator(_commas)] = None
    approval: Annotated[list[Name] | None, BeforeValidator(_commas)] = None
    pool: Pool | None = None
    output: Annotated[dict[FieldName, Field_] | None, BeforeValidator(_fields)] = None


class SpawnSection(Section):
    """`tools.spawn`."""

    enabled: bool | None = None
    profiles: Annotated[dict[Name, ProfileSection], BeforeValidator(_no_mapping)] = {}


class McpSection(Section):
    """`tools.mcp.<name>`."""

    command: str | None = None
    args: list[str] | None = None
    url: McpUrl | None = None
    env: Annotated[dict[str, str] | None, BeforeValidator(_names_as_mapping)] = None
    headers: Annotated[dict[str, str] | None, AfterValidator(_checked_headers)] = None
    approval: bool | None = None
    timeout_s: Seconds | None = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> McpSection:
        if (self.command is None) == (self.url is None):
            raise ValueError("A server has either a `command` or a `url`. Write one of the two.")
        if self.url is not None and (self.args or self.env):
            raise ValueError("`args` and `env` belong to a `command`. Remove them.")
        if self.command is not None and self.headers:
            raise ValueError("`headers` belong to a `url`. Remove them, or use `env`.")
        return self


class ToolsSection(Section):
    """`tools`."""

    approval: Annotated[list[Name] | None, BeforeValidator(_commas)] = None
    mcp: Annotated[dict[ServerName, McpSection], BeforeValidator(_no_mapping)] = {}
    spawn: SpawnSection = SpawnSection()


class OpenAISection(Section):
    """`llm.providers.openai`."""

    base_url: BaseUrl | None = None
    api_key_env: Variable | None = None


class ProvidersSection(Section):
    """`llm.providers`."""

    openai: OpenAISection = OpenAISection()


class LlmSection(Section):
    """`llm`."""

    default_pool: Pool | None = None
    pools: Annotated[
        dict[Name, Annotated[list[Model], Field(min_length=1)]], BeforeValidator(_no_mapping)
    ] = {}
    providers: ProvidersSection = ProvidersSection()


class PriceSection(Section):
    """`prices.<model>`: US dollars for a million tokens."""

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None


class EngineSection(Section):
    """`engines.<name>`."""

    dask: Scheduler
    workers: Count | None = None
    threads: Count | None = None
    local_tools: Annotated[list[Name] | None, BeforeValidator(_commas)] = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> EngineSection:
        if self.dask != LOCAL and (self.workers or self.threads):
            raise ValueError("`workers` and `threads` belong to `dask: local`. Remove them.")
        return self


_Setting = Annotated[Any, PlainValidator(_of_session)]
SessionSection = create_model(
    "SessionSection",
    __base__=Section,
    __doc__="`session`.",
    **{name: (_Setting, None) for name, setting in SETTINGS.items() if setting.in_file},  # type: ignore[call-overload]  # of a mapping it knows no names
)


class SettingsFile(Section):
    """The whole `agentnb.yaml`."""

    mode: Annotated[str | None, AfterValidator(_mode)] = None
    cassette: str | None = None
    not_recorded: str | None = None
    tools: ToolsSection = ToolsSection()
    llm: LlmSection = LlmSection()
    engines: Annotated[dict[Name, EngineSection], BeforeValidator(_no_mapping)] = {}
    session: SessionSection = SessionSection()  # type: ignore[valid-type]  # made of the settings
    prices: Annotated[
        dict[Model, PriceSection], BeforeValidator(_no_mapping), AfterValidator(_once)
    ] = {}


# -- reading, and what is wrong ----------------------------------------------------------------


def read_settings(
    document: Document, *, folder: Path
) -> tuple[SettingsFile | None, list[ConfigMistake], dict[str, tuple[ConfigMistake, ...]]]:
    """Check a settings file.

    Args:
        document: The file, as it was read.
        folder: The project folder, absolute, without links.

    Returns:
        The settings without broken profiles, or `None` if there are mistakes outside profiles;
        those mistakes; and the mistakes of each profile, by name.
    """
    around = Around(folder, _mapping_at(document.data, ("llm", "pools")), Hints())
    settings, found = _validated(document.data, document, around)
    outside, broken = list[ConfigMistake](), dict[str, list[ConfigMistake]]()
    for loc, mistake in (*document.mistakes, *found):
        is_of_profile = loc[:3] == _PROFILES and len(loc) > 3
        (broken.setdefault(str(loc[3]), []) if is_of_profile else outside).append(mistake)
    if broken and not outside:
        settings, _ = _validated(_without(document.data, broken), document, around)
    in_order = {n: tuple(sorted(own, key=lambda m: m.line or 0)) for n, own in broken.items()}
    return None if outside else settings, outside, in_order


def files_named(data: object) -> Iterator[str]:
    """The files that a settings file's profiles name, broken profiles included."""
    for profile in _mapping_at(data, _PROFILES).values():
        if isinstance(profile, dict):
            files = profile.get("bootstrap_files")
            named = [profile.get("system_prompt_file"), *(files if isinstance(files, list) else ())]
            yield from (name for name in named if isinstance(name, str) and name.strip())


_PROFILES: Loc = ("tools", "spawn", "profiles")


def _validated(
    data: object, document: Document, around: Around
) -> tuple[SettingsFile | None, list[tuple[Loc, ConfigMistake]]]:
    try:
        return SettingsFile.model_validate(data, context=around), []
    except ValidationError as error:
        return None, [_mistake(details, document) for details in error.errors(include_url=False)]


def _mapping_at(data: object, loc: Loc) -> dict[str, Any]:
    for key in loc:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def _without(data: Any, names: Container[str]) -> Any:
    """The data of a file without some of its profiles."""
    spawn = data["tools"]["spawn"]
    kept = {name: said for name, said in spawn["profiles"].items() if name not in names}
    return {**data, "tools": {**data["tools"], "spawn": {**spawn, "profiles": kept}}}


def _mistake(details: ErrorDetails, document: Document) -> tuple[Loc, ConfigMistake]:
    loc = tuple(part for part in details["loc"] if part != "[key]")
    places = (document.lines.get(loc[:end]) for end in range(len(loc), -1, -1))
    line = next(filter(None, places), None)
    return loc, ConfigMistake(dotted(loc), line, _words(details, loc))


def _words(details: ErrorDetails, loc: Loc) -> str:
    kind, value = details["type"], details["input"]
    match kind:
        case "extra_forbidden":
            return _unknown_key(loc)
        case "missing":
            if loc[0] == "engines":
                return "An engine needs `dask`. Write it as `dask: tcp://localhost:8786`."
            return f"A price needs `{loc[-1]}`. Write it as `{loc[-1]}: 3`."
        case "value_error":
            return str(details["ctx"]["error"])
        case "string_type":
            is_number = isinstance(value, Scalar | bool) and loc[:2] != ("llm", "providers")
            hint = f" Put it in quotes: `{_quoted(value)}`." if is_number else ""
            return _not_a("string", value) + hint
        case "bool_type":
            return f"{_not_a('`true` or `false`', value)} Write one of the two."
        case "list_type" | "too_short":
            what = "list" if kind == "list_type" else "list with at least one entry"
            return f"{_not_a(what, value)} Write each entry on its own line, after `- `."
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"{_not_a('mapping', value)} Write keys below it, each as `key: value`."
    return f"{details['msg']}."


def _unknown_key(loc: Loc) -> str:
    key = str(loc[-1])
    if loc[:2] == ("llm", "providers") and re.search("key|token|secret|password", key, re.I):
        return (
            "Never put a key into this file. Put it into an environment variable, and name that "
            "variable by `api_key_env`."
        )
    if loc[0] == "session" and key in SettingsFile.model_fields:
        return f"There is no such key here. Write `{key}` at the top, not under `session`."
    if loc[0] == "session" and key in SETTINGS:
        return f"A file cannot set this. Set it in code: `Session({key}=…)`."
    known = _known_keys(loc[:-1])
    home = dict(reversed([*_homes(SettingsFile, "")])).get(key)
    # A typo of a key known here is likelier than a key of another section.
    if home and not get_close_matches(key, known, n=1, cutoff=0.85):
        return f"There is no such key here. It belongs under `{home}`."
    return f"There is no such key here. {_instead(key, known, Hints())}"


def _known_keys(loc: Loc) -> tuple[str, ...]:
    kind: Any = SettingsFile
    for part in loc:
        fields = getattr(kind, "model_fields", None)
        kind = fields[part].annotation if fields else get_args(kind)[1]
    return tuple(kind.model_fields)


def _homes(section: type[Section], path: str) -> Iterator[tuple[str, str]]:
    """Every key below the top level, with its section."""
    for key, field in section.model_fields.items():
        if path:
            yield key, path
        here = f"{path}.{key}".removeprefix(".")
        below: Any = field.annotation
        if get_origin(below) is dict:
            below, here = get_args(below)[1], f"{here}.NAME"
        if isinstance(below, type) and issubclass(below, Section):
            yield from _homes(below, here)


def _instead(word: str, known: tuple[str, ...], hints: Hints) -> str:
    if near := hints.nearest(word, known):
        return f"Did you mean `{near}`?"
    return f"Use one of {_listed(known)}."


def _listed(names: tuple[str, ...]) -> str:
    return listed((f"`{one_line(name, limit=_LONGEST_NAME)}`" for name in names), most=_LISTED)


def _not_a(what: str, value: object) -> str:
    article = "" if what.startswith("`") else "a "
    return f"This must be {article}{what}, not {_kind_of(value)}."


def _kind_of(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "`true` or `false`"
        case Scalar():
            return "a number or a date"
        case []:
            return "an empty list"
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return "a string"


def _quoted(value: object) -> str:
    written = value.written if isinstance(value, Scalar) else str(value).lower()
    return f'"{one_line(written, limit=40)}"'


def _shown(value: str) -> str:
    return repr(one_line(value, limit=80))
