"""The settings of a file hold; and where the file is looked up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import agentnb
from agentnb.config import Config, OpenAIServer, config_of, load_config
from agentnb.config.profile import Profile
from agentnb.core.errors import UnknownModel
from agentnb.errors import ConfigError, UnknownPool, UnknownProfile
from tests.support import run_python

WHOLE = """\
tools:
  spawn:
    enabled: true
    profiles:
      reviewer:
        description: |
          Finds mistakes.
          Says where.
        system_prompt: "Be strict: always."
        system_prompt_file: prompts/reviewer.md
        bootstrap_files: [STYLE.md, prompts/reviewer.md]
        tools: [grep, run_tests]
        pool: best
      on:
        tools: grep,run_tests ,
        bootstrap_files: []
      1:
      none:
        tools: []
llm:
  default_pool: fast
  pools:
    fast:
      - anthropic/claude-haiku-4-5
    best: [anthropic/claude-opus-5, " demo "]
  providers:
    openai:
      base_url: http://localhost:11434/v1
      api_key_env: OLLAMA_KEY
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "agentnb.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_whole_file_is_in_force_as_it_is_written(project: Path) -> None:
    (project / "prompts").mkdir()
    (project / "prompts" / "reviewer.md").write_text("Look twice: é.", encoding="utf-8")
    (project / "STYLE.md").write_text("\ufeffPlain.", encoding="utf-8")

    config = load_config(written(project, WHOLE))

    assert config.folder == project
    assert config.spawn_enabled is True
    assert config.profiles == {
        "reviewer": Profile(
            "reviewer",
            description="Finds mistakes.\nSays where.\n",
            system_prompt="Be strict: always.",
            prompt_file=("prompts/reviewer.md", "Look twice: é."),
            bootstrap=(("STYLE.md", "Plain."), ("prompts/reviewer.md", "Look twice: é.")),
            tools=("grep", "run_tests"),
            pool="best",
            models=("anthropic/claude-opus-5", "demo"),
        ),
        "on": Profile("on", tools=("grep", "run_tests")),
        "1": Profile("1"),
        "none": Profile("none", tools=()),
    }
    assert list(config.profiles) == ["reviewer", "on", "1", "none"]
    assert config.pools == {
        "fast": ("anthropic/claude-haiku-4-5",),
        "best": ("anthropic/claude-opus-5", "demo"),
    }
    assert config.default_pool == "fast"
    assert config.openai == OpenAIServer("http://localhost:11434/v1", "OLLAMA_KEY")


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "tools:\nllm:\n", "tools:\n  spawn:\n    profiles:\n    enabled:\n", "{}"],
)
def test_file_that_says_nothing_is_the_defaults(project: Path, text: str) -> None:
    config = load_config(written(project, text))

    assert config == Config(project, source=str(project / "agentnb.yaml"))
    assert config.spawn_enabled is None


def test_nothing_and_empty_texts_are_the_defaults(project: Path) -> None:
    keys = ("description", "system_prompt", "system_prompt_file", "pool", "tools")
    empty = ", ".join(f'{key}: ""' for key in keys)
    nothing = ", ".join(f"{key}: null" for key in (*keys, "bootstrap_files"))
    written(
        project,
        f"tools: {{spawn: {{profiles: {{a: {{{empty}, bootstrap_files: []}}, b: {{{nothing}}}, "
        'c: {bootstrap_files: "", tools: " , "}, d: {tools: []}}, enabled: ""}}\n'
        'llm: {default_pool: ""}',
    )

    config = load_config(project)

    assert list(config.profiles.values()) == [*map(Profile, "abc"), Profile("d", tools=())]
    assert (config.default_pool, config.spawn_enabled) == (None, None)
    assert config.broken == {}


def test_what_is_in_force_cannot_be_changed(project: Path) -> None:
    config = load_config(written(project, "llm:\n  pools:\n    fast: [demo]"))

    with pytest.raises(TypeError):
        config.pools["slow"] = ("demo",)  # type: ignore[index]
    with pytest.raises(TypeError):
        config.profiles["a"] = Profile("a")  # type: ignore[index]
    with pytest.raises(AttributeError):
        config.default_pool = "fast"  # type: ignore[misc]


def test_link_inside_the_project_folder_may_be_followed(project: Path) -> None:
    (project / "CLAUDE.md").write_text("the text")
    (project / "AGENTS.md").symlink_to("CLAUDE.md")
    written(project, "tools: {spawn: {profiles: {a: {system_prompt_file: ./AGENTS.md}}}}")

    assert load_config(project).profile("a").prompt_file == ("AGENTS.md", "the text")


def test_project_folder_is_where_the_file_is_named_and_not_where_a_link_leads(
    project: Path,
) -> None:
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    written(elsewhere, "")
    (project / "agentnb.yaml").symlink_to(elsewhere / "agentnb.yaml")

    assert load_config("agentnb.yaml").folder == project


# -- finding it -------------------------------------------------------------------------------


def test_file_in_the_working_directory_is_found_without_a_name(project: Path) -> None:
    written(project, "llm:\n  pools:\n    fast: [demo]")

    assert list(config_of(None).pools) == ["fast"]
    assert config_of(False) == Config(project)
    assert repr(Config(project)) == "Config('no file', profiles=[], pools=[])"
    many = Config(project, pools={f"p{n}": ("demo",) for n in range(1_300)})
    assert repr(many).endswith(
        ", pools=['p0', " + ", ".join(repr(f"p{n}") for n in range(1, 20)) + " and 1,280 more])"
    )


def test_file_further_up_is_not_looked_for(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(project, "llm:\n  pools:\n    fast: [demo]")
    (project / "notebooks").mkdir()
    monkeypatch.chdir("notebooks")

    assert config_of(None) == Config(project / "notebooks")


def test_file_and_folder_can_be_named(project: Path) -> None:
    file = written(project, "llm:\n  pools:\n    fast: [demo]")
    named = file.rename(project / "other.yaml")

    assert list(config_of("other.yaml").pools) == ["fast"]
    assert list(config_of(named).pools) == ["fast"]
    written(project, "llm:\n  pools:\n    slow: [demo]")
    assert list(config_of(project).pools) == ["slow"]


def test_settings_that_were_loaded_are_taken_as_they_are(project: Path) -> None:
    config = agentnb.load_config(written(project, ""))

    assert config_of(config) is config


def test_wrong_file_in_the_working_directory_is_told_and_not_passed_over(project: Path) -> None:
    written(project, "nonsense: 1")
    with pytest.raises(ConfigError, match="nonsense"):
        config_of(None)

    (project / "agentnb.yaml").rename(project / "agentnb.yml")
    with pytest.raises(ConfigError, match=r"Rename it to agentnb\.yaml"):
        config_of(None)


@pytest.mark.parametrize("config", [True, 1, {}, b"agentnb.yaml"])
def test_what_names_no_settings_is_refused(config: object) -> None:
    with pytest.raises(ValueError, match=r"`config` must be the path .* or False for none, not "):
        config_of(config)


def test_working_directory_that_is_gone_has_no_settings(project: Path) -> None:
    project.rmdir()

    assert config_of(None).source == ""
    assert config_of(None).default_bootstrap == ()


def test_session_without_a_file_loads_neither_yaml_nor_pydantic(project: Path) -> None:
    code = """
        import sys
        from agentnb import Session
        Session(model="demo")
        print({"yaml", "pydantic"} & set(sys.modules))
    """

    assert run_python(code).strip() == "set()"


# -- bootstrap files --------------------------------------------------------------------------


def test_bootstrap_files_are_the_profiles_else_those_of_the_project_that_exist(
    project: Path,
) -> None:
    (project / "AGENTS.md").write_text("for agents")
    (project / "own.md").write_text("its own")
    written(project, "tools: {spawn: {profiles: {a: {bootstrap_files: [own.md]}, b: , c: {}}}}")
    config = load_config(project)

    assert config.bootstrap_of_run()(config.profile("a")) == (("own.md", "its own"),)
    assert config.bootstrap_of_run()(config.profile("b")) == (("AGENTS.md", "for agents"),)
    assert config.bootstrap_of_run()(None) == (("AGENTS.md", "for agents"),)

    (project / "ENVIRONMENT.md").write_text("where it runs")
    assert load_config(project).bootstrap_of_run()(None) == (
        ("AGENTS.md", "for agents"),
        ("ENVIRONMENT.md", "where it runs"),
    )
    assert Config(project).bootstrap_of_run()(None) == load_config(project).bootstrap_of_run()(None)


def test_bootstrap_file_of_the_project_is_read_once_in_a_run_and_anew_for_the_next(
    project: Path,
) -> None:
    (project / "AGENTS.md").write_text("first")
    config = load_config(written(project, "tools: {spawn: {profiles: {a: }}}"))
    of_run = config.bootstrap_of_run()
    assert of_run(None) == (("AGENTS.md", "first"),)

    (project / "AGENTS.md").write_text("second")

    assert of_run(config.profile("a")) == of_run(None) == (("AGENTS.md", "first"),)
    assert config.bootstrap_of_run()(None) == (("AGENTS.md", "second"),)
    assert config.default_bootstrap == (("AGENTS.md", "second"),)


def test_agents_file_that_cannot_be_given_is_told_only_when_an_agent_is_given_it(
    project: Path,
) -> None:
    (project / "AGENTS.md").write_bytes(b"x" * 100_001)
    config = load_config(written(project, ""))

    with pytest.raises(ConfigError) as raised:
        config.bootstrap_of_run()(None)

    assert str(raised.value) == (
        "AGENTS.md: The file 'AGENTS.md' is larger than 100 kB. Shorten it, "
        "or give each profile its own `bootstrap_files`."
    )


# -- names ------------------------------------------------------------------------------------


def test_pool_is_written_out_wherever_it_is_named(project: Path) -> None:
    config = load_config(written(project, "llm: {pools: {fast: [a/b, demo], one: [c/d]}}"))

    assert config.models_of("pool:fast") == ("a/b", "demo")
    assert config.models_of("pool/one") == ("c/d",)
    assert config.models_of(["x/y", "pool:one", "pool:fast"]) == ("x/y", "c/d", "a/b", "demo")
    assert config.models_of("pool") == ("pool",)
    assert config.models_of("poolside:pool:fast") == ("poolside:pool:fast",)


def test_unknown_pool_and_unknown_profile_name_the_known_ones(project: Path) -> None:
    config = load_config(written(project, WHOLE.split("      reviewer:")[0] + "      a: {}"))

    with pytest.raises(UnknownPool) as pool:
        config.models_of("pool:fast")
    assert str(pool.value) == (
        "There is no pool 'fast' (known: none). Add it under `llm.pools` in "
        f"{project / 'agentnb.yaml'}, or name a model as `provider/model`."
    )
    with pytest.raises(UnknownProfile) as profile:
        config.profile("b")
    assert (profile.value.name, profile.value.known) == ("b", ("a",))
    assert str(profile.value) == (
        "There is no profile 'b' (known: 'a'). Add it under `tools.spawn.profiles` in "
        f"{project / 'agentnb.yaml'}, or leave `profile` out."
    )


def test_all_models_of_pools_that_nobody_answers_to_are_told_by_line(project: Path) -> None:
    written(project, "llm:\n  pools:\n    fast: [gpt, demo]\n    best:\n    - demo\n    - x/y")

    def check(model: str) -> None:
        if model != "demo":
            raise UnknownModel(model, known=["demo"])

    with pytest.raises(ConfigError) as raised:
        load_config("agentnb.yaml").check_models(check)

    first, second = raised.value.mistakes
    assert (first.place, second.place) == (
        "line 3, `llm.pools.fast[0]`",
        "line 6, `llm.pools.best[1]`",
    )
    assert "'gpt'" in first.what
    assert str(raised.value).startswith("agentnb.yaml has 2 mistakes.")


def test_change_of_the_file_since_it_was_read_is_seen(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(project, "llm: {}")
    config = load_config("agentnb.yaml")
    monkeypatch.chdir(os.sep)

    assert not config.has_changed()
    assert not Config(project).has_changed()
    file.write_text("tools: {}")
    assert config.has_changed()
    file.unlink()
    assert config.has_changed()


@pytest.mark.parametrize("name", ["rules.md", "prompt.md"])
@pytest.mark.parametrize("text", ["other", None], ids=["edited", "gone"])
def test_change_of_a_file_that_a_profile_names_is_seen(
    project: Path, name: str, text: str | None
) -> None:
    for file in ("rules.md", "prompt.md", "AGENTS.md"):
        (project / file).write_text("first")
    profile = "{bootstrap_files: [rules.md], system_prompt_file: prompt.md}"
    config = load_config(written(project, f"tools: {{spawn: {{profiles: {{a: {profile}}}}}}}"))
    (project / "AGENTS.md").write_text("read for each run anyway")
    assert not config.has_changed()

    if text is None:
        (project / name).unlink()
    else:
        (project / name).write_text(text)

    assert config.has_changed()
