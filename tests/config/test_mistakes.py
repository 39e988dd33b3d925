"""All mistakes in a settings file are reported at once: line, key, and fix."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentnb.config import load_config
from agentnb.core.errors import AgentnbError
from agentnb.errors import ConfigError

PROFILE = "tools:\n  spawn:\n    profiles:\n      reviewer:\n"
REVIEWER = "`tools.spawn.profiles.reviewer"
NAME_RULE = "cannot be used as a name here. Use letters, digits, `_` and `-`, at most 64."
NO_LIST = "Write each entry on its own line, after `- `."
NO_MAPPING = "Write keys below it, each as `key: value`."
NO_ADDRESS = "This is not the address of a server. Write it like `http://localhost:8000/v1`."
NO_KEY = (
    "Never put a key into this file. Put it into an environment variable, and name that variable "
    "by `api_key_env`."
)
NO_VARIABLE = (
    "This is not the name of an environment variable in upper case, like `OPENAI_API_KEY`. "
    "Name the variable that holds the key; never put a key into this file."
)
MORE_THAN_A_SERVER = (
    "The address has more than a server and a path. Remove the rest; `api_key_env` names a key."
)
LOOK = (
    "Look at this line and the one before it: indents are spaces, a space follows `:`, and a "
    "string with `: ` or ` #` in it needs quotes."
)
OPENAI = "llm:\n  providers:\n    openai:\n"

MISTAKES = {
    "unknown key, like a known one": (
        PROFILE + "        sytem_prompt: Be strict.",
        f"line 5, {REVIEWER}.sytem_prompt`: There is no such key here. "
        "Did you mean `system_prompt`?",
    ),
    "unknown key, unlike all": (
        "colour: 1",
        "line 1, `colour`: There is no such key here. Use one of `mode`, `cassette`, "
        "`not_recorded`, `tools`, `llm`, `engines`, `session`, `prices`.",
    ),
    "mode that is none": (
        "mode: rec",
        "line 1, `mode`: 'rec' is no mode. Write one of live, record, auto, replay.",
    ),
    "mode in the wrong place": (
        "session:\n  mode: replay",
        "line 2, `session.mode`: There is no such key here. "
        "Write `mode` at the top, not under `session`.",
    ),
    "key in the wrong place": (
        "pools:\n  fast: [demo]",
        "line 1, `pools`: There is no such key here. It belongs under `llm`.",
    ),
    "key in the wrong place, of a profile": (
        "tools:\n  spawn:\n    bootstrap_files: []",
        "line 3, `tools.spawn.bootstrap_files`: There is no such key here. "
        "It belongs under `tools.spawn.profiles.NAME`.",
    ),
    "unknown key, unlike all, deeper": (
        "tools:\n  spawn:\n    active: true",
        "line 3, `tools.spawn.active`: There is no such key here. "
        "Use one of `enabled`, `profiles`.",
    ),
    "unknown provider": (
        "llm:\n  providers:\n    opnai: {}",
        "line 3, `llm.providers.opnai`: There is no such key here. Did you mean `openai`?",
    ),
    "list for a mapping": (
        "- tools",
        f"line 1: This must be a mapping, not a list. {NO_MAPPING}",
    ),
    "text for a mapping, deeper": (
        "tools:\n  spawn: on the whole",
        f"line 2, `tools.spawn`: This must be a mapping, not a string. {NO_MAPPING}",
    ),
    "list for the mapping of names": (
        "tools:\n  spawn:\n    profiles:\n    - reviewer",
        f"line 3, `tools.spawn.profiles`: This must be a mapping, not a list. {NO_MAPPING}",
    ),
    "number for a text": (
        PROFILE + "        description: 2026",
        f"line 5, {REVIEWER}.description`: This must be a string, not a number or a date. "
        'Put it in quotes: `"2026"`.',
    ),
    "yes for a text": (
        PROFILE + "        system_prompt: yes",
        f"line 5, {REVIEWER}.system_prompt`: This must be a string, not `true` or `false`. "
        'Put it in quotes: `"true"`.',
    ),
    "list for a text": (
        PROFILE + "        description: [a, b]",
        f"line 5, {REVIEWER}.description`: This must be a string, not a list.",
    ),
    "text for yes or no": (
        'tools:\n  spawn:\n    enabled: "yes"',
        "line 3, `tools.spawn.enabled`: This must be `true` or `false`, not a string. "
        "Write one of the two.",
    ),
    "number for yes or no": (
        "tools:\n  spawn:\n    enabled: 1",
        "line 3, `tools.spawn.enabled`: This must be `true` or `false`, not a number or a date. "
        "Write one of the two.",
    ),
    "text for a list": (
        PROFILE + "        bootstrap_files: AGENTS.md",
        f"line 5, {REVIEWER}.bootstrap_files`: This must be a list, not a string. {NO_LIST}",
    ),
    "number in a list": (
        PROFILE + "        tools:\n        - grep\n        - 7",
        f"line 7, {REVIEWER}.tools[1]`: This must be a string, not a number or a date. "
        'Put it in quotes: `"7"`.',
    ),
    "number for a file": (
        PROFILE + "        system_prompt_file: 7",
        f"line 5, {REVIEWER}.system_prompt_file`: This must be a string, the name of a file, "
        "not a number or a date.",
    ),
    "name of a profile": (
        "tools:\n  spawn:\n    profiles:\n      code reviewer: {}",
        f"line 4, `tools.spawn.profiles.code reviewer`: 'code reviewer' {NAME_RULE}",
    ),
    "long name of a pool": (
        f"llm:\n  pools:\n    {'x' * 65}: [demo]",
        f"line 3, `llm.pools.{'x' * 65}`: '{'x' * 65}' {NAME_RULE}",
    ),
    "name of a tool": (
        PROFILE + "        tools: grep, a tool",
        f"line 5, {REVIEWER}.tools[1]`: 'a tool' {NAME_RULE}",
    ),
    "default pool": (
        "llm:\n  default_pool: fsat\n  pools:\n    fast: [demo]",
        "line 2, `llm.default_pool`: There is no pool 'fsat'. Write `fast`, or add "
        "it under `llm.pools`.",
    ),
    "pool of a profile": (
        PROFILE + "        pool: fast",
        f"line 5, {REVIEWER}.pool`: There is no pool 'fast' (known: none). "
        "Add it under `llm.pools`.",
    ),
    "empty pool": (
        "llm:\n  pools:\n    fast: []",
        "line 3, `llm.pools.fast`: This must be a list with at least one entry, "
        f"not an empty list. {NO_LIST}",
    ),
    "pool without a word": (
        "llm:\n  pools:\n    fast:",
        f"line 3, `llm.pools.fast`: This must be a list, not nothing. {NO_LIST}",
    ),
    "pool in a pool": (
        "llm:\n  pools:\n    fast: [demo]\n    best: ['pool:fast']",
        "line 4, `llm.pools.best[0]`: 'pool:fast' is a pool, and a pool holds models. "
        "Write them out: `provider/model`.",
    ),
    "blank model": (
        "llm:\n  pools:\n    fast:\n    - demo\n    - ' '",
        "line 5, `llm.pools.fast[1]`: The name of a model is blank. Write it as `provider/model`.",
    ),
    "key in the file": (
        OPENAI + "      api_key: abc",
        f"line 4, `llm.providers.openai.api_key`: {NO_KEY}",
    ),
    "token of a provider": (
        "llm:\n  providers:\n    token: abc",
        f"line 3, `llm.providers.token`: {NO_KEY}",
    ),
    "key for the name of its variable": (
        OPENAI + "      api_key_env: sk-123abc",
        f"line 4, `llm.providers.openai.api_key_env`: {NO_VARIABLE}",
    ),
    "key of lower-case letters for the name of its variable": (
        OPENAI + "      api_key_env: f00dbeef",
        f"line 4, `llm.providers.openai.api_key_env`: {NO_VARIABLE}",
    ),
    "key of digits for the name of its variable": (
        OPENAI + "      api_key_env: 1234",
        "line 4, `llm.providers.openai.api_key_env`: This must be a string, not a number or a "
        "date.",
    ),
    "password in an address": (
        OPENAI + "      base_url: https://me:secret@host/v1",
        f"line 4, `llm.providers.openai.base_url`: {MORE_THAN_A_SERVER}",
    ),
    "key in an address": (
        OPENAI + "      base_url: https://host/v1?key=secret",
        f"line 4, `llm.providers.openai.base_url`: {MORE_THAN_A_SERVER}",
    ),
    "no address": (
        OPENAI + "      base_url: localhost:8000",
        f"line 4, `llm.providers.openai.base_url`: {NO_ADDRESS}",
    ),
    "broken address": (
        OPENAI + '      base_url: "http://[::1"',
        f"line 4, `llm.providers.openai.base_url`: {NO_ADDRESS}",
    ),
    "key twice": (
        "llm:\n  pools:\n    fast: [demo]\n    fast: [demo]",
        "line 4, `llm.pools.fast`: The key is already on line 3. Keep one of the two.",
    ),
    "alias": (
        "llm:\n  pools:\n    fast: &fast [demo]\n    best: *fast",
        "line 4: Aliases are not supported. Write the value where it belongs.",
    ),
    "tag": (
        "tools: !!python/object/apply:os.getcwd []",
        "line 1: Tags that start with `!` are not supported. Remove the tag.",
    ),
    "deep nesting": (
        "tools: " + 100_000 // 2 * "[",
        "line 1: Values are nested more than 20 levels deep. Remove the brackets.",
    ),
    "key that is a list": (
        "? [a, b]\n: c",
        "line 1: A key must be a word, not a list or a mapping.",
    ),
    "open bracket": (
        "tools:\n  spawn:\n    profiles: {\n",
        "line 4: This is not YAML: while parsing a flow node (line 4), expected the node "
        f"content, but found '<stream end>'. {LOOK}",
    ),
    "tab": (
        "tools:\n\tspawn: {}",
        "line 2: This is not YAML: while scanning for the next token, found character "
        f"'\\t' that cannot start any token. {LOOK}",
    ),
    "control character": (
        "tools: {}\n# \x07",
        f"line 2: This is not YAML: the character U+0007 is not allowed. {LOOK}",
    ),
    "second document": (
        "tools: {}\n---\nllm: {}",
        "line 2: This is not YAML: expected a single document in the stream (line 1), but found "
        f"another document. {LOOK}",
    ),
}


def told(text: str, folder: Path) -> str:
    """The error of reading a settings file."""
    (folder / "agentnb.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_config("agentnb.yaml")
    return str(raised.value)


def told_of_profile(text: str, folder: Path) -> str:
    """The error of using the one broken profile of a settings file."""
    (folder / "agentnb.yaml").write_text(text, encoding="utf-8")
    config = load_config("agentnb.yaml")
    (name,) = config.broken
    assert name not in config.profiles
    with pytest.raises(ConfigError) as raised:
        config.profile(name)
    return str(raised.value)


@pytest.mark.parametrize("case", MISTAKES)
def test_mistake_is_told_with_its_line_its_key_and_what_to_do(project: Path, case: str) -> None:
    text, expected = MISTAKES[case]

    is_of_profile = ", `tools.spawn.profiles." in expected
    said = (told_of_profile if is_of_profile else told)(text, project)

    comma = "," if expected.startswith("line") else ""
    assert said == f"agentnb.yaml{comma} {expected}"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (OPENAI + "      api_key: sk-123abc", "123abc"),
        (OPENAI + "      api_key_env: sk-123abc", "123abc"),
        (OPENAI + "      api_key_env: 777555", "777555"),
        (OPENAI + "      base_url: https://me:geheim@host", "geheim"),
        (OPENAI + "      base_url: [https://me:geheim@host]", "geheim"),
        ("llm:\n  providers:\n    anthropic:\n      api_key: geheim", "geheim"),
        ("llm:\n  providers:\n    openai: {api_key: geheim", "geheim"),
    ],
)
def test_no_error_shows_what_may_be_a_key(project: Path, text: str, secret: str) -> None:
    assert secret not in told(text, project)


def test_mistakes_are_told_all_at_once_in_the_order_of_the_lines(project: Path) -> None:
    text = """\
tools:
  spawn:
    enabled: maybe
    profiles:
      reviewer: {system_prompt_file: nowhere.md, pool: slow}
      reviewer: {}
      the writer: {}
llm:
  default_pool: fast
  pool: {}
"""

    said = told(text, project)

    assert said == "\n  ".join(
        [
            "agentnb.yaml has 7 mistakes.",
            "line 3, `tools.spawn.enabled`: This must be `true` or `false`, not a string. "
            "Write one of the two.",
            f"line 5, {REVIEWER}.system_prompt_file`: There is no file 'nowhere.md' in the "
            "project folder. Create it, or correct the name.",
            f"line 5, {REVIEWER}.pool`: There is no pool 'slow' (known: none). "
            "Add it under `llm.pools`.",
            f"line 6, {REVIEWER}`: The key is already on line 5. Keep one of the two.",
            f"line 7, `tools.spawn.profiles.the writer`: 'the writer' {NAME_RULE}",
            "line 9, `llm.default_pool`: There is no pool 'fast' (known: none). "
            "Add it under `llm.pools`.",
            "line 10, `llm.pool`: There is no such key here. Did you mean `pools`?",
        ]
    )


def test_of_very_many_mistakes_the_first_twenty_are_shown(project: Path) -> None:
    (project / "agentnb.yaml").write_text("\n".join(f"key{n}: 1" for n in range(50)))

    with pytest.raises(ConfigError) as raised:
        load_config("agentnb.yaml")

    assert len(raised.value.mistakes) == 50
    lines = str(raised.value).splitlines()
    assert len(lines) == 22
    assert "`key19`" in lines[-2]
    assert lines[-1] == "  And 30 more."


def test_mistakes_can_be_read_as_fields(project: Path) -> None:
    (project / "agentnb.yaml").write_text("tools:\n  spwan: {}")

    with pytest.raises(ConfigError) as raised:
        load_config(project)

    assert isinstance(raised.value, ValueError | AgentnbError)
    assert raised.value.source == str(project / "agentnb.yaml")
    (mistake,) = raised.value.mistakes
    assert (mistake.key, mistake.line) == ("tools.spwan", 2)


# -- the file itself ----------------------------------------------------------------------------


def test_file_that_is_not_there_is_told(project: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config("settings.yaml")

    assert str(raised.value) == (
        "settings.yaml: There is no such file. Create it, or correct the path."
    )


def test_file_with_the_other_ending_is_not_passed_over(project: Path) -> None:
    (project / "agentnb.yml").touch()

    with pytest.raises(ConfigError) as raised:
        load_config(".")

    assert str(raised.value) == (
        "agentnb.yaml: There is an agentnb.yml, which is not read. Rename it to agentnb.yaml."
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("tools: {}".encode("utf-16"), "The file is not UTF-8 (byte 0). Save it as UTF-8 text."),
        (b"# \xe4\n", "The file is not UTF-8 (byte 2). Save it as UTF-8 text."),
        (b"# \0", "The file is not text (it contains a zero byte). Name a text file."),
        (b"#" * 100_001, "The file is larger than 100 kB. Shorten it."),
    ],
)
def test_file_that_is_no_small_text_is_told(project: Path, content: bytes, expected: str) -> None:
    (project / "agentnb.yaml").write_bytes(content)

    with pytest.raises(ConfigError) as raised:
        load_config("agentnb.yaml")

    assert str(raised.value) == f"agentnb.yaml: {expected}"


def test_device_is_told_and_not_waited_for(project: Path) -> None:
    os.mkfifo(project / "agentnb.yaml")

    with pytest.raises(ConfigError, match=r"is a folder or a device\. Name a text file\."):
        load_config("agentnb.yaml")


# -- the files that it names --------------------------------------------------------------------


def of_file(name: str, folder: Path) -> str:
    """The errors for a file as a profile's `system_prompt_file` and as its bootstrap file."""
    said = told_of_profile(f"{PROFILE}        system_prompt_file: '{name}'", folder)
    start = f"agentnb.yaml, line 5, {REVIEWER}"
    text = said.removeprefix(f"{start}.system_prompt_file`: ")
    said = told_of_profile(f"{PROFILE}        bootstrap_files:\n        - '{name}'", folder)
    assert said == f"{start}.bootstrap_files[0]`: {text}".replace("line 5", "line 6")
    return text


@pytest.fixture
def outside(project: Path) -> Path:
    """A file beside the project folder."""
    file = project.parent / "outside.md"
    file.write_text("what nobody handed on")
    (project / "inside").mkdir()
    (project / "by_link.md").symlink_to(file)
    (project / "up").symlink_to(project.parent)
    return file


@pytest.mark.parametrize(
    "name",
    [
        "../outside.md",
        "inside/../../outside.md",
        "by_link.md",
        "up/outside.md",
        "/etc/hostname",
        "..",
    ],
)
@pytest.mark.usefixtures("outside")
def test_file_outside_the_project_folder_is_refused_whichever_way_leads_there(
    project: Path, name: str
) -> None:
    assert of_file(name, project) == (
        f"The file {name!r} is outside the project folder, where the settings file is. "
        "Copy it into the folder, and name it from there."
    )


def test_folder_with_the_same_beginning_is_outside(project: Path) -> None:
    beside = project.parent / "project2"
    beside.mkdir()
    (beside / "a.md").touch()

    assert "is outside" in of_file(str(beside / "a.md"), project)


def test_file_that_is_named_and_cannot_be_taken_is_told(project: Path) -> None:
    (project / "folder").mkdir()
    (project / "large.md").write_bytes(b"x" * 100_001)
    (project / "picture.png").write_bytes(b"\x89PNG\r\n")
    (project / "zero.md").write_bytes(b"a\0b")
    (project / "itself.md").symlink_to("itself.md")

    assert of_file("a.md", project) == (
        "There is no file 'a.md' in the project folder. Create it, or correct the name."
    )
    assert of_file("folder", project) == (
        "The file 'folder' is a folder or a device. Name a text file."
    )
    assert of_file("large.md", project) == (
        "The file 'large.md' is larger than 100 kB. Shorten it."
    )
    assert of_file("picture.png", project) == (
        "The file 'picture.png' is not UTF-8 (byte 0). Save it as UTF-8 text."
    )
    assert of_file("zero.md", project) == (
        "The file 'zero.md' is not text (it contains a zero byte). Name a text file."
    )
    assert of_file(" ", project) == (
        "The name of a file is blank. Name a file of the project folder."
    )
    assert of_file("itself.md", project).startswith("The file 'itself.md' cannot be read (")
    assert of_file("x" * 300, project).startswith(f"The file '{'x' * 199}…' cannot be read (")
