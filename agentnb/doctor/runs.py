"""Checks what stops runs: their mode and its cassette, the demo model, and MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from agentnb.core.secrets import without_user
from agentnb.core.text import literal, visible
from agentnb.doctor.finding import Finding, fault, ok, warn
from agentnb.doctor.project import can_be_written
from agentnb.errors import BadCassette
from agentnb.modes import AUTO, CASSETTE_VARIABLE, MODE_VARIABLE, REPLAY
from agentnb.providers.demo import PACE_VARIABLE, DemoProvider
from agentnb.repeat import Repeat
from agentnb.tools.mcp.server import McpServer


def check_mode(read: Callable[[], Repeat], *, in_kernel: bool) -> Iterator[Finding]:
    """Whether runs can go in the mode that is in force.

    Args:
        read: Gives the mode, and its cassette.
        in_kernel: Whether the name of the notebook may be known.
    """
    try:
        repeat = read()
    except ValueError as error:
        yield fault("mode", str(error), f"set {MODE_VARIABLE} again, or unset it")
        return
    mode = repeat.mode
    if mode.trouble is not None:
        # A terminal never knows the notebook that its kernel will know.
        kind = fault if in_kernel and mode.uses_cassette else warn
        yield kind("mode", f"`{mode.name}` ({mode.why}), and no cassette is named", mode.trouble)
        return
    if mode.cassette is None or not mode.uses_cassette:
        yield ok("mode", f"`{mode.name}` ({mode.why})")
        return
    path = mode.cassette.path
    where = f"`{mode.name}` ({mode.why}), with the cassette {literal(str(path))}"
    try:
        repeat.check_cassette()
    except BadCassette as error:
        at = f"line {error.line:,}: " if error.line else ""
        yield fault("mode", f"{where}: {at}{error.why}", error.fix)
        return
    if mode.name != REPLAY and not (path.parent.is_dir() and can_be_written(path.parent)):
        kind = warn if mode.name == AUTO and path.parent.is_dir() else fault
        yield kind(
            "mode",
            f"{where}: its folder is not there, or cannot be written",
            f"make the folder, or set {CASSETTE_VARIABLE} to a file in one that you may write to",
        )
    elif (trouble := repeat.read_only()) is not None:
        yield (warn if mode.name == AUTO else fault)("mode", where, trouble)
    else:
        yield ok("mode", where)


def check_demo() -> Iterator[Finding]:
    """Whether the demo model can answer."""
    try:
        DemoProvider()
    except ValueError as error:
        yield fault("demo", str(error), f"set {PACE_VARIABLE} again, or unset it")


def check_servers(servers: Iterable[McpServer]) -> Iterator[Finding]:
    """Whether MCP servers have their program and their variables. Starts none.

    Args:
        servers: Those of the settings file, and of the session.
    """
    for each in servers:
        name = f"server {each.name}"
        try:
            each.values((*each.env, *each.headers))
            program = each.program() if each.command else each.url
        except KeyError as error:
            yield fault(
                name,
                f"its settings name the environment variable {error.args[0]}, which is not set",
                f"set the environment variable {error.args[0]}, and start the kernel again",
            )
            continue
        if program is None:
            yield fault(
                name,
                f"there is no program {literal(each.command[0])} to start it",
                "install it, or give its full path as `command`, or its folder in the `PATH` of "
                "the server's `env`",
            )
        else:
            yield ok(name, f"{visible(without_user(program), 200)} (not asked)")
