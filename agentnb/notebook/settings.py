"""The output of `%agentnb config`: the settings of the next run, and where each comes from.

It is the same on every machine and in every replay: no ids, times, keys or absolute paths.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence, Sized
from itertools import chain, islice
from pathlib import Path

from agentnb.config import Config
from agentnb.config.config import FILE_NAME, LOCAL
from agentnb.config.profile import NamedText, Profile
from agentnb.core.secrets import masked, without_user
from agentnb.core.text import LONGEST_IN_ERROR, LONGEST_LINE, literal, visible
from agentnb.default_session import configure, get_session
from agentnb.delegation import tools_of_profile
from agentnb.errors import ConfigError, ConfigMistake
from agentnb.models import Origin
from agentnb.modes import AUTO, LIVE, MEANS, REPLAY, Mode
from agentnb.repeat import asked_labels, say_mode
from agentnb.run_store import TURN_OFF, path_in_words
from agentnb.session import Session
from agentnb.settings import SETTINGS
from agentnb.trust import costly_settings, foreign_engines, foreign_servers, is_trusted, sending_of

_DEFAULT = "the default"
_SHOWN_ELSEWHERE = ("model", "delegation", "config", "provider", "store", "mode", "cassette")
_ORIGINS = {
    Origin.CODE: "set in code",
    Origin.DEFAULT_POOL: "llm.default_pool",
    Origin.DEFAULT: _DEFAULT,
}
_DELEGATION = {
    "block": "by spawn block",
    "tools": "by tools",
    "both": "by spawn block and by tools",
}
_MOST = 50
"""Most profiles, and most pools, that are shown."""

Row = tuple[str, str]


def settings_text(session: Session) -> str:
    """The settings of a session's next run, as lines of text.

    Raises:
        ConfigError: The settings file has mistakes.
    """
    session.reread_settings()
    config = session.config
    sections = [
        ("", _general(session)),
        ("Settings of a run (session):", _of_a_run(session)),
        ("Profiles (tools.spawn.profiles):", chain(*_profiles(session))),
        ("MCP servers (tools.mcp):", _mcp_servers(config)),
        ("Engines (engines):", _engines(config)),
        ("Pools (llm.pools):", _pools(config)),
        ("Dollars for a million tokens (prices):", _prices(config)),
        ("OpenAI-compatible server (llm.providers.openai):", _server(config)),
    ]
    lines = [_head(config)]
    for title, rows in sections:
        if aligned := _aligned(list(rows)):
            lines += [title, *aligned] if title else aligned
    return masked("\n".join(lines))


def _head(config: Config) -> str:
    if not config.source:
        return f"No {FILE_NAME} is used: settings that are not set in code have their defaults."
    head = f"Settings of {visible(Path(config.source).name, LONGEST_IN_ERROR)}"
    if config.has_changed():
        return (
            f"{head}, as load_config() read it (it has changed since; to reread it: "
            f"agentnb.configure(config={literal(Path(config.source).name)})):"
        )
    return f"{head}:"


def _general(session: Session) -> Iterator[Row]:
    config = session.config
    model = session.model if isinstance(session.model, str) else _in_order(session.model)
    yield "model", f"{model} ({_ORIGINS[session.model_origin]})"
    pool = config.default_pool
    yield "default pool", "none (the default)" if pool is None else f"{pool} (llm.default_pool)"
    yield "delegation", _delegation(session)
    try:
        files = _names(config.default_bootstrap) or "none: there is no AGENTS.md or ENVIRONMENT.md"
    except ConfigError as error:
        files = str(error)
    yield "bootstrap", f"{files} (the default)"
    yield from _store(session)
    yield "mode", f"{session.mode.name} ({session.mode.why})"
    if session.mode.uses_cassette:
        yield "cassette", _cassette(session.mode)


def _prices(config: Config) -> Iterator[Row]:
    for model, each in islice(config.prices.items(), _MOST):
        yield model, ", ".join(f"{kind} {dollars:f}" for kind, dollars in each.items())
    yield from _rest(config.prices)


def _store(session: Session) -> Iterator[Row]:
    store = session.store
    if store.path is None:
        yield "store", f"none: runs are in memory only ({store.origin})"
        return
    yield "store", f"{store.where} ({store.origin}); {TURN_OFF}"
    if store.trouble is not None:
        yield "", store.trouble


def mode_text(session: Session, *, in_full: bool = True) -> str:
    """The current mode and its meaning.

    Args:
        session: The session.
        in_full: Whether to say also who set it, and the state of the cassette and the runs. Without
            these, the text is the same in JupyterLab, nbval and CI, and in each pass.
    """
    mode = session.mode
    means = MEANS[mode.name].format(_cassette(mode) if in_full else _name(mode))
    if mode.trouble is not None:  # without a cassette, only the mode `live` works as it says
        means = f"{means} {mode.trouble}" if mode.name == LIVE else mode.trouble
    lines = [f"Mode: {mode.name}{f' ({mode.why})' if in_full else ''}. {means}"]
    if in_full or mode.name == REPLAY:  # report at once that a cassette cannot be read
        lines += session.about_mode()
    elif session.read_only is not None:
        lines.append(session.read_only)
    return masked("\n".join([visible(line, LONGEST_LINE) for line in lines]))


def say_in_lesson(mode: str) -> str:
    """Be a line `%agentnb mode` of a lesson that `record` or `check` runs in another mode.

    It sets none until a run has begun. Below that what is recorded answers, whatever records.

    Returns:
        What that line says, but for faults of the cassette.
    """
    if asked_labels():
        say_mode(LIVE if mode == LIVE else AUTO)
        configure()
    return masked(f"Mode: {mode}. {MEANS[mode].format(_name(get_session().mode))}")


def _name(mode: Mode) -> str:
    return "a cassette" if mode.cassette is None else path_in_words(mode.cassette.path)


def _cassette(mode: Mode) -> str:
    origin = "" if mode.cassette is None else f" ({mode.cassette.origin})"
    return f"{_name(mode)}{origin}"


def _delegation(session: Session) -> str:
    where = _origin(session, "delegation")
    if where == _DEFAULT and session.config.spawn_enabled is not None:
        where = "tools.spawn.enabled"
    return f"{_DELEGATION[session.delegation]} ({where})"


def _of_a_run(session: Session) -> Iterator[Row]:
    """The settings that a file or code may set for a run; not those of other sections."""
    for name, setting in SETTINGS.items():
        if name in _SHOWN_ELSEWHERE or not (setting.in_file or session.is_given(name)):
            continue
        where = _origin(session, name)
        is_costly = where == f"session.{name}" and costly_settings(session.config, [name])
        if is_costly and not is_trusted(session.config):
            where += "; not trusted: no run starts before `%agentnb trust`"
        value = getattr(session.settings, name)
        if name == "tools":
            of_code = (each for each in session.tools if not getattr(each, "of_file", False))
            value = tuple(tool.spec.name for tool in of_code)
        used = session.spent if name == "session_budget" else ""
        yield name, f"{_written(value)}{used and f', {used} is used'} ({where})"


def _origin(session: Session, name: str) -> str:
    if session.is_given(name):
        return _ORIGINS[Origin.CODE]
    return f"session.{name}" if name in session.config.session else _DEFAULT


def _written(value: object) -> str:
    match value:
        case None:
            return "no limit"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,}"
        case str() | tuple():
            return visible(value if isinstance(value, str) else ", ".join(value), 80) or "none"
    return "a callable"


def _profiles(session: Session) -> Iterator[Iterator[Row]]:
    config = session.config
    for profile in islice(config.profiles.values(), _MOST):
        yield _profile(profile, session)
    yield _rest(config.profiles)
    for name, mistakes in islice(config.broken.items(), _MOST):
        yield chain([(name, "cannot be used:")], _mistakes(mistakes))
    yield _rest(config.broken)


def _pools(config: Config) -> Iterator[Row]:
    for name, models in islice(config.pools.items(), _MOST):
        yield name, _in_order(models)
    yield from _rest(config.pools)


def _rest(entries: Sized) -> Iterator[Row]:
    """A row that counts the entries not shown."""
    if (more := len(entries) - _MOST) > 0:
        yield "", f"… and {more:,} more"


def _mistakes(mistakes: Sequence[ConfigMistake]) -> Iterator[Row]:
    for mistake in mistakes:
        yield "", f"{mistake.place}: {mistake.what}"


def _profile(profile: Profile, session: Session) -> Iterator[Row]:
    summary = visible(profile.summary, LONGEST_IN_ERROR)
    if summary and not profile.description.strip():
        summary += " (the first line of its prompt)"
    yield profile.name, summary or "no description"
    tools = "all of its parent's (the default)"
    yield "  tools", tools if profile.tools is None else ", ".join(profile.tools) or "none"
    try:
        tools_of_profile(profile, session.tools, session.config, session.toolsets)
    except ConfigError as error:
        yield from _mistakes(error.mistakes)
    yield "  pool", profile.pool or "its parent's model (the default)"
    files = "the default ones" if profile.bootstrap is None else _names(profile.bootstrap) or "none"
    yield "  bootstrap", files
    parts = [profile.prompt_file[0]] if profile.prompt_file else []
    if profile.system_prompt:
        parts.append("system_prompt")
    yield "  prompt", ", then ".join(parts) or "none"


def _server(config: Config) -> Iterator[Row]:
    server = config.openai
    if server.base_url is not None:
        yield "base_url", server.base_url
    if server.api_key_env is not None:
        yield "api_key_env", f"{server.api_key_env} (the variable; its value is not shown)"
    sending = sending_of(config)
    if sending is not None and not sending.stays_here:
        allowed = f"{sending.what} may go there"
        not_yet = "not given: nothing is sent there before `%agentnb trust`"
        yield "trust", allowed if is_trusted(config) else not_yet


def _mcp_servers(config: Config) -> Iterator[Row]:
    trusted = is_trusted(config)
    for entry in islice(config.mcp.values(), _MOST):
        what = without_user(entry.url) if entry.url else shlex.join((entry.command, *entry.args))
        if not trusted and foreign_servers(config, [entry.name]):
            what += "; not trusted: no run has it before `%agentnb trust`"
        yield entry.name, what
    yield from _rest(config.mcp)


def _engines(config: Config) -> Iterator[Row]:
    trusted = is_trusted(config)
    for entry in islice(config.engines.values(), _MOST):
        what = "processes of this machine" if entry.dask == LOCAL else entry.dask
        if not trusted and foreign_engines(config, [entry.name]):
            what += "; not trusted: no run has it before `%agentnb trust`"
        yield entry.name, what
    yield from _rest(config.engines)


def _names(files: Sequence[NamedText]) -> str:
    return ", ".join(name for name, _ in files)


def _in_order(models: Sequence[str]) -> str:
    return ", then ".join(models)


def _aligned(rows: Sequence[Row]) -> list[str]:
    """One aligned line per row, with control characters of a settings file escaped."""
    shown = [(_label(label), visible(value, LONGEST_LINE)) for label, value in rows]
    width = max((len(label) for label, _ in shown), default=0)
    return [f"  {label:<{width}}  {value}" for label, value in shown]


def _label(text: str) -> str:
    indent = len(text) - len(text.lstrip(" "))
    return " " * min(indent, 2) + visible(text, 80)
