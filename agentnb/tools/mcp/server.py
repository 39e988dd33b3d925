"""`agentnb.mcp`: names a server whose tools agents may call.

In a list of tools, a server stands for all its tools, and `server__tool` for one of them. Both are
only names until a run starts and the server lists its tools.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentnb.core.errors import ToolError
from agentnb.core.protocols import ToolContext
from agentnb.core.secrets import note, note_address, note_headers, note_variable, without_user
from agentnb.core.text import LONGEST_LINE, literal, visible
from agentnb.core.types import ToolSpec

if TYPE_CHECKING:
    from agentnb.config import McpEntry
    from agentnb.core.questions import Question

MARK = "__"
"""Between the name of a server and that of its tool."""
TIMEOUT_S = 300.0
"""Seconds that a call may take, where nothing else is said."""
_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9_-]{0,30}[a-zA-Z0-9])?")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ANY = {"type": "object"}


@dataclass(unsafe_hash=True)  # never changed; only a `Tool` may not say so
class McpServer:
    """A server, as a person names it. Equal ones are one process in a session.

    It can stand in a list of tools, as if it were one. No model ever sees it.
    """

    name: str
    command: tuple[str, ...] = ()
    """The program and its arguments; empty for one that is reached by HTTP."""
    url: str = ""
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Environment variables besides the few that every server gets."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    folder: str | None = None
    """Where it is started; the working directory when left out."""
    approval: bool | Callable[[Question], object] | None = None
    """Whether its calls need approval; `None`: what a tool says of itself counts."""
    timeout_s: float = TIMEOUT_S
    of_file: bool = False
    """Whether a settings file names it: `${NAME}` in its values stands for a variable then."""
    spec: ToolSpec = field(init=False, repr=False, compare=False)
    """Its name in lists of tools."""

    def __post_init__(self) -> None:
        self.spec = ToolSpec(self.name, f"The tools of the MCP server {self.name}.", _ANY)

    def __repr__(self) -> str:
        what = without_user(self.url) if self.url else " ".join(self.command)
        return visible(f"<MCP server {self.name}: {what}>", LONGEST_LINE)

    @property
    def prefix(self) -> str:
        """What the names of its tools begin with."""
        return self.name + MARK

    def one(self, name: str) -> McpToolName | None:
        """One of its tools, by the name that agents have for it; `None` if it is none of its."""
        return McpToolName(self, name) if name.startswith(self.prefix) else None

    def values(self, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Environment variables or headers, as they are sent.

        Raises:
            KeyError: A settings file names a variable that is not set.
        """
        if not self.of_file:
            return dict(pairs)
        return {name: _VARIABLE.sub(lambda m: os.environ[m[1]], value) for name, value in pairs}

    def program(self) -> str | None:
        """The file of its program, as it is found when it starts; `None` if there is none.

        Raises:
            KeyError: As for `values`.
        """
        word, folder = self.command[0], Path(self.folder or os.curdir).absolute()
        if "/" in word:
            return shutil.which(str(folder / word))
        # It gets this process's PATH unless `env` has one; relative entries start from `folder`.
        env = {"PATH": os.environ.get("PATH", os.defpath), **self.values(self.env)}
        entries = [str(folder / each) for each in os.get_exec_path(env)]
        return shutil.which(word, path=os.pathsep.join(entries))

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """It stands for its tools, and is none."""
        raise ToolError(f"{self.name!r} is an MCP server: call one of its tools.")


@dataclass
class McpToolName:
    """One tool of a server, in a list of tools: a name, until the server is connected."""

    server: McpServer
    name: str
    spec: ToolSpec = field(init=False, repr=False, compare=False)
    """Its name in lists of tools."""

    def __post_init__(self) -> None:
        self.spec = ToolSpec(self.name, f"A tool of the MCP server {self.server.name}.", _ANY)

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """See `McpServer.call`."""
        raise ToolError(f"The MCP server {self.server.name!r} is not connected.")


def mcp(
    command: str | Sequence[str] | None = None,
    *,
    url: str | None = None,
    name: str | None = None,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    approval: bool | Callable[[Question], object] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> McpServer:
    """Name an MCP server for a list of tools: `Session(tools=[agentnb.mcp(...)])`.

    The server starts when a run needs it. Its tools are named `name__tool`; the server's name
    stands for all of them.

    Args:
        command: The program to start, which speaks MCP over stdin and stdout; or a list of the
            program and its arguments.
        url: The address of a server that speaks streamable HTTP, in place of `command`.
        name: The server's name: 1 to 32 letters, digits, `_` and `-`; by default taken from the
            command or the address.
        args: Arguments of `command`.
        env: Environment variables of the program. Of this process's own it gets only a few, such
            as `PATH` and `HOME`. The values are secrets: records mask them.
        headers: Headers of each request to `url`.
        approval: Whether a call needs approval, or a function that answers, as for `agentnb.tool`.
            By default only tools that declare themselves destructive do.
        timeout_s: Seconds after which a call is stopped.

    Raises:
        ValueError: An argument is wrong.
    """
    words = _words(command, args)
    if bool(words) == bool(url):
        raise ValueError(
            "An MCP server has either a `command` or a `url`: "
            '`agentnb.mcp("npx", args=["-y", "some-server"])` or `agentnb.mcp(url="http://…")`.'
        )
    if url and (env or args):
        raise ValueError("`env` and `args` belong to a `command`; a `url` takes `headers`.")
    if words and headers:
        raise ValueError("`headers` belong to a `url`; a `command` takes `env`.")
    if url:
        check_url(url)
    if name is None:
        name = _name_of(words, url or "")
    _check_name(name)
    if approval is not None and not isinstance(approval, bool) and not callable(approval):
        raise ValueError(
            "`approval` must be True, False, or a callable that gets a `Question`, not "
            f"{literal(approval)}."
        )
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise ValueError(f"`timeout_s` must be a number above 0, not {literal(timeout_s)}.")
    server = McpServer(
        name,
        words,
        url or "",
        env=_pairs("env", env),
        headers=_pairs("headers", headers),
        approval=approval,
        timeout_s=float(timeout_s),
    )
    for variable, value in server.env:
        note(variable, value)
    note_headers({key.lower(): value for key, value in server.headers})
    note_address("url", server.url)
    return server


def server_of_file(entry: McpEntry, folder: Path) -> McpServer:
    """A server of the settings file, which is started in the file's folder."""
    for variable in variables_of(entry):
        note_variable(variable)
    for name, value in entry.env:
        if not _VARIABLE.search(value):
            note(name, value)
    return McpServer(
        entry.name,
        (entry.command, *entry.args) if entry.command else (),
        entry.url,
        env=entry.env,
        headers=entry.headers,
        folder=str(folder),
        approval=entry.approval,
        timeout_s=entry.timeout_s or TIMEOUT_S,
        of_file=True,
    )


def variables_of(entry: McpEntry) -> list[str]:
    """The environment variables whose values an entry of the settings file hands on."""
    values = [value for _, value in (*entry.env, *entry.headers)]
    return list(dict.fromkeys(name for value in values for name in _VARIABLE.findall(value)))


def check_url(url: object) -> None:
    """Raise `ValueError` for what is not the address of a server."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        fits = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError("`url` must be an address such as `http://localhost:8000/mcp`.")


def _words(command: object, args: object) -> tuple[str, ...]:
    given = [] if command is None else [command] if isinstance(command, str) else command
    for what, words in (("command", given), ("args", args)):
        if isinstance(words, str) or not isinstance(words, Sequence):
            raise ValueError(f"`{what}` must be a list of strings, not {literal(words)}.")
        for word in words:
            if not isinstance(word, str | os.PathLike) or "\0" in str(word):
                raise ValueError(f"`{what}` must hold strings, not {literal(word)}.")
    assert isinstance(given, Sequence)
    assert isinstance(args, Sequence)
    if given and not str(given[0]).strip():
        raise ValueError("`command` is blank: name the program to start.")
    return tuple(str(word) for word in (*given, *args)) if given else ()


def _pairs(what: str, given: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    pairs = {} if given is None else given
    if not isinstance(pairs, Mapping):
        raise ValueError(f"`{what}` must be a dict of strings.")
    for name, value in pairs.items():
        if not isinstance(name, str) or not name or not isinstance(value, str):
            # Never the value: it may be a key.
            raise ValueError(f"`{what}` must be a dict of strings: {literal(name)} has none.")
    return tuple(pairs.items())


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or MARK in name:
        raise ValueError(
            f"{literal(name)} cannot be the name of an MCP server: give one of 1 to 32 letters, "
            "digits, `_` and `-`, by `agentnb.mcp(..., name=...)`."
        )


def _name_of(words: Sequence[str], url: str) -> str:
    """A name from what is started, or from the host.

    The last word that looks like a name of a server says most: of `npx -y @org/server-files /data`
    that is the package, of `python server.py` the file.
    """
    if url:
        found = urlsplit(url).hostname or ""
    else:
        found = next((w for w in words[1:] if _says_much(w)), words[0])
        found = re.sub(r"@[^/@]+\Z", "", found).rstrip("/")  # a version
        found = Path(found).stem if found.endswith((".py", ".js", ".ts", ".mjs")) else found
        found = found.rpartition("/")[2]
        found = re.sub(r"\A(mcp-)?server-|-mcp\Z|\Amcp-|-server\Z", "", found)
    found = re.sub(r"[^A-Za-z0-9]+", "-", found).strip("-")[:32].strip("-")
    return found or "mcp"


def _says_much(word: str) -> bool:
    return not word.startswith("-") and word not in ("run", "exec", "x", "tool")
