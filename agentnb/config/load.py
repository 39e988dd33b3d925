"""Load a settings file: the settings, or all its mistakes.

A file that cannot be read, or has mistakes outside its profiles, is an error at once. Mistakes in a
profile are kept until it is used.

Without a name the file is looked up in the working directory only: a kernel starts there, beside
its notebook, and a file further up may belong to another person.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agentnb.config.config import FILE_NAME, Config, EngineEntry, McpEntry, OpenAIServer
from agentnb.config.profile import Profile
from agentnb.config.project_file import NoText, WatchedFile, read_project_file, read_text
from agentnb.core.text import literal
from agentnb.errors import ConfigError, ConfigMistake, wrong_settings_as_line

if TYPE_CHECKING:
    from agentnb.config.schema import EngineSection, McpSection, ProfileSection

WRONG_NAME = "agentnb.yml"


def config_of(config: object) -> Config:
    """The settings that a person's `config` means.

    Args:
        config: The path of a file or a folder; loaded settings; `None` for the file in the working
            directory, if there is one; `False` for no file.

    Raises:
        ConfigError: See `load_config`.
        ValueError: `config` is something else.
    """
    match config:
        case Config():
            return config
        case str() | os.PathLike():
            return load_config(config)
        case None:
            return _found_in(_folder_of(Path(FILE_NAME)))
        case False:
            return Config(_folder_of(Path(FILE_NAME)))
    raise ValueError(
        "`config` must be the path of a file or a folder, a `Config` from `load_config`, None "
        "for the "
        f"{FILE_NAME} in the working directory, or False for none, not {literal(config)}."
    )


def reread(config: object, last: Config) -> Config:
    """Read a person's `config` again if one of its files has changed.

    The folder stays: a file found in the working directory is looked up in the same folder again.

    Args:
        config: As for `config_of`.
        last: The settings as last read.

    Returns:
        The new settings; `last` itself if none of its files has changed.

    Raises:
        ConfigError: A changed file has mistakes.
    """
    if config is False or isinstance(config, Config) or not last.has_changed():
        return last
    if config is None:
        return _found_in(last.folder)
    return _load(last.folder / Path(last.source).name, last.source)


def _found_in(folder: Path) -> Config:
    """The settings of a folder; the defaults if it has no file."""
    file = folder / FILE_NAME
    if os.path.lexists(file) or os.path.lexists(file.with_name(WRONG_NAME)):
        return _load(file, FILE_NAME)
    return Config(folder, watched=(_watched(file, FILE_NAME),))


@wrong_settings_as_line()
def load_config(path: str | os.PathLike[str] = FILE_NAME) -> Config:
    """Read a settings file, and the files that it names.

    A session checks the models of the pools, since it knows the providers.

    Args:
        path: The file, or a folder with an `agentnb.yaml`.

    Raises:
        ConfigError: The file has mistakes: reports all at once, each with its line, the full path
            of its key and the fix. If all are within profiles, it does not raise: see
            `Config.broken`.
        ValueError: `path` is not a path.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(
            f"The path of a settings file must be a string or a `Path`, not {literal(path)}."
        )
    file = Path(path).expanduser()
    if file.is_dir():
        file = file / FILE_NAME
    return _load(_folder_of(file) / file.name, str(file))


def _load(file: Path, source: str) -> Config:
    """Read a settings file.

    Args:
        file: Absolute path.
        source: The file as it was named, for errors.
    """
    # Imported here: a session without a file needs neither pydantic nor YAML.
    from agentnb.config.document import dotted, read_document
    from agentnb.config.schema import files_named, read_settings

    folder = file.parent
    watched = [_watched(file, source)]
    text = _text_of(file, source)
    document = read_document(text)
    watched += _watched_files(files_named(document.data), folder)
    settings, mistakes, broken = read_settings(document, folder=folder)
    if mistakes or settings is None:
        raise ConfigError(source, [*mistakes, *(each for own in broken.values() for each in own)])
    lines = {dotted(loc): line for loc, line in document.lines.items()}
    spawn, llm = settings.tools.spawn, settings.llm
    session: Any = settings.session
    pools = {name: tuple(models) for name, models in llm.pools.items()}
    profiles = {name: _profile(name, section, pools) for name, section in spawn.profiles.items()}
    return Config(
        folder=folder,
        source=source,
        spawn_enabled=spawn.enabled,
        approval=tuple(settings.tools.approval or ()),
        mcp=MappingProxyType({n: _server(n, each) for n, each in settings.tools.mcp.items()}),
        profiles=MappingProxyType(profiles),
        broken=MappingProxyType(broken),
        pools=MappingProxyType(pools),
        default_pool=llm.default_pool,
        openai=OpenAIServer(llm.providers.openai.base_url, llm.providers.openai.api_key_env),
        engines=MappingProxyType({n: _engine(n, each) for n, each in settings.engines.items()}),
        mode=settings.mode,
        cassette=settings.cassette,
        not_recorded=settings.not_recorded or "",
        session=MappingProxyType(session.model_dump(exclude_none=True)),
        prices=MappingProxyType(
            {model: each.model_dump(exclude_none=True) for model, each in settings.prices.items()}
        ),
        digest=sha256(text.encode()).hexdigest(),  # of the text as read, even if it changed since
        watched=tuple(watched),
        lines=MappingProxyType(lines),
    )


def _server(name: str, section: McpSection) -> McpEntry:
    env = section.env or {}
    return McpEntry(
        name=name,
        command=section.command or "",
        args=tuple(section.args or ()),
        url=section.url or "",
        env=tuple(env.items()),
        headers=tuple((section.headers or {}).items()),
        approval=section.approval,
        timeout_s=section.timeout_s,
    )


def _engine(name: str, section: EngineSection) -> EngineEntry:
    return EngineEntry(
        name=name,
        dask=section.dask,
        workers=section.workers,
        threads=section.threads or 1,
        local_tools=tuple(section.local_tools or ()),
    )


def _profile(name: str, section: ProfileSection, pools: dict[str, tuple[str, ...]]) -> Profile:
    return Profile(
        name=name,
        description=section.description or "",
        system_prompt=section.system_prompt or "",
        prompt_file=section.system_prompt_file,
        bootstrap=None if section.bootstrap_files is None else tuple(section.bootstrap_files),
        tools=None if section.tools is None else tuple(section.tools),
        approval=tuple(section.approval or ()),
        pool=section.pool,
        fields=tuple((section.output or {}).items()),
        models=pools[section.pool] if section.pool else (),
    )


def _watched(file: Path, source: str) -> WatchedFile:
    return WatchedFile.now(file, lambda: _text_of(file, source))


def _watched_files(names: Iterable[str], folder: Path) -> Iterator[WatchedFile]:
    """The files that profiles name, broken profiles included: a missing file may yet be written."""
    for name in dict.fromkeys(names):
        yield WatchedFile.now(folder / name, partial(_text_of_named, folder, name))


def _text_of_named(folder: Path, name: str) -> str:
    return read_project_file(folder, name)[1]


def _text_of(file: Path, source: str) -> str:
    try:
        return read_text(file)
    except FileNotFoundError:
        what = "There is no such file. Create it, or correct the path."
        if file.name == FILE_NAME and file.with_name(WRONG_NAME).exists():
            what = f"There is an {WRONG_NAME}, which is not read. Rename it to {FILE_NAME}."
    except OSError as error:
        what = f"The file cannot be read ({error.strerror}): check its permissions."
    except NoText as error:
        what = f"The file {error}"
    raise ConfigError(source, [ConfigMistake("", None, what)])


def _folder_of(file: Path) -> Path:
    # The folder of the link, not of its target.
    try:
        return file.parent.resolve()
    except OSError:  # the working directory is gone
        return file.parent
