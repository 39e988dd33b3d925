"""From a file to the settings in force, or to all that is wrong with it.

Without a name a file is looked for in the working directory and nowhere else: that is where a
kernel starts, beside its notebook, and what lies further up may be somebody else's.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from agentnb.config.config import FILE_NAME, Config, OpenAIServer
from agentnb.config.project_file import NoText, read_text
from agentnb.core.errors import ConfigError, ConfigMistake
from agentnb.core.profiles import Profile

if TYPE_CHECKING:
    from agentnb.config.schema import ProfileSection

WRONG_NAME = "agentnb.yml"


def config_of(config: object) -> Config:
    """What a person's `config` stands for.

    Args:
        config: A path, of a file or a folder; settings that were loaded; `None` for the file in
            the working directory, should there be one; `False` for none.

    Raises:
        ConfigError: See `load_config`.
        ValueError: It is none of that.
    """
    match config:
        case Config():
            return config
        case str() | os.PathLike():
            return load_config(config)
        case None if _is_there(FILE_NAME) or _is_there(WRONG_NAME):
            return load_config(FILE_NAME)
        case None | False:
            return Config(_folder_of(Path(FILE_NAME)))
    raise ValueError(
        f"`config` must be the path of a file or a folder, what `load_config` gave, None for the "
        f"{FILE_NAME} in the working directory, or False for none, not {config!r}."
    )


def load_config(path: str | os.PathLike[str] = FILE_NAME) -> Config:
    """Read a settings file, and the files that it names.

    Which providers there are is a session's to say: it checks the models of the pools.

    Args:
        path: The file, or the folder that holds an `agentnb.yaml`.

    Raises:
        ConfigError: It cannot be taken as it is. All mistakes are told at once, each with its
            line, the whole path of its key and what to do.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        file = file / FILE_NAME
    source = str(file)
    # Here and not above: a session without a file needs neither pydantic nor YAML.
    from agentnb.config.document import dotted, read_document
    from agentnb.config.schema import read_settings

    text = _text_of(file)
    document = read_document(text)
    folder = _folder_of(file)
    settings, mistakes = read_settings(document, folder=folder)
    mistakes = [*document.mistakes, *mistakes]
    if mistakes or settings is None:
        raise ConfigError(source, mistakes)
    lines = {dotted(loc): line for loc, line in document.lines.items()}
    spawn, llm = settings.tools.spawn, settings.llm
    pools = {name: tuple(models) for name, models in llm.pools.items()}
    profiles = {name: _profile(name, said, pools) for name, said in spawn.profiles.items()}
    return Config(
        folder=folder,
        source=source,
        spawn_enabled=spawn.enabled,
        profiles=MappingProxyType(profiles),
        pools=MappingProxyType(pools),
        default_pool=llm.default_pool,
        openai=OpenAIServer(llm.providers.openai.base_url, llm.providers.openai.api_key_env),
        text=text,
        lines=MappingProxyType(lines),
    )


def _profile(name: str, said: ProfileSection, pools: dict[str, tuple[str, ...]]) -> Profile:
    return Profile(
        name=name,
        description=said.description or "",
        system_prompt=said.system_prompt or "",
        prompt_file=said.system_prompt_file,
        bootstrap=None if said.bootstrap_files is None else tuple(said.bootstrap_files),
        tools=None if said.tools is None else tuple(said.tools),
        pool=said.pool,
        models=pools[said.pool] if said.pool else (),
    )


def _text_of(file: Path) -> str:
    try:
        return read_text(file)
    except FileNotFoundError:
        what = "There is no such file. Write one, or correct the path."
        if file.name == FILE_NAME and file.with_name(WRONG_NAME).exists():
            what = f"There is an {WRONG_NAME}, which is not read. Rename it to {FILE_NAME}."
    except OSError as error:
        what = f"The file cannot be read ({error.strerror})."
    except NoText as error:
        what = f"The file {error}"
    raise ConfigError(str(file), [ConfigMistake("", None, what)])


def _is_there(name: str) -> bool:
    return os.path.lexists(name)


def _folder_of(file: Path) -> Path:
    # Of the file where it was named, not of what a link there points to.
    try:
        return file.parent.resolve()
    except OSError:  # the working directory is gone
        return file.parent
