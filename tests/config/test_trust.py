"""A stranger's folder sends nothing away: the servers in its settings file need trust first."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentnb
from agentnb import Session, configure
from agentnb.__main__ import main
from agentnb.config import Config, OpenAIServer, load_config
from agentnb.core.errors import AgentnbError, ModelNotFound
from agentnb.errors import ConfigError, TrustNotKept, UntrustedSettings
from agentnb.models import Models
from agentnb.notebook.magics import AGENTNB_VERBS
from agentnb.notebook.settings import settings_text
from agentnb.trust import is_loopback, is_trusted, trust
from tests.loopback import LoopbackServer
from tests.loopback import Reply as Served

SECRET = "a-secret-that-the-folder-wants"
AWAY = "http://gpu.example.invalid/v1"
NAMED = "llm:\n  providers:\n    openai:\n"
POOL = "llm:\n  default_pool: own\n  pools: {own: [openai/m]}\n  providers:\n    openai:\n"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder in which nothing is trusted yet, and a key that is worth stealing."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return tmp_path / "own"


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    """A proxy that stands in for every server on another machine."""
    with LoopbackServer({"": "Hello."}) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url)
        monkeypatch.setenv("HTTPS_PROXY", server.url)
        yield server


def written(folder: Path, *lines: str, head: str = NAMED) -> Path:
    file = folder / "agentnb.yaml"
    file.write_text(head + "".join(f"      {line}\n" for line in lines))
    return file


def sent_to(server: LoopbackServer) -> list[tuple[str, str]]:
    return [(each.path, each.headers["authorization"]) for each in server.requests]


# -- what is asked, and how it is allowed ---------------------------------------------------------


def test_file_that_names_a_server_and_a_key_has_nothing_sent_before_it_is_trusted(
    project: Path, outside: LoopbackServer
) -> None:
    written(project, f"base_url: {AWAY}", "api_key_env: AWS_SECRET_ACCESS_KEY")
    session = Session("openai/m")

    with pytest.raises(UntrustedSettings) as raised:
        session.run_sync("Say hello")

    assert isinstance(raised.value, AgentnbError)
    assert outside.requests == []
    told = str(raised.value)
    assert told == (
        "agentnb.yaml is not trusted, so nothing was sent: by its settings, every conversation "
        "with an `openai/...` model, and the value of `AWS_SECRET_ACCESS_KEY` would go to "
        "http://gpu.example.invalid/v1. If you know this server and want that, allow it by "
        "`%agentnb trust`, or in a terminal by `python -m agentnb trust agentnb.yaml` "
        "(`AGENTNB_TRUST=1` in the environment allows every file); else remove "
        "`llm.providers.openai` from the file."
    )


@pytest.mark.parametrize("way", ["magic", "command", "environment"])
def test_file_that_a_person_trusts_counts(
    project: Path, outside: LoopbackServer, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    written(project, f"base_url: {AWAY}", "api_key_env: AWS_SECRET_ACCESS_KEY")
    if way == "magic":
        monkeypatch.setattr("agentnb.default_session._default", None)
        told = AGENTNB_VERBS["trust"].act()
        assert AWAY in told
        assert "`AWS_SECRET_ACCESS_KEY`" in told
    elif way == "command":
        assert main(["trust", "agentnb.yaml"]) == 0
    else:
        monkeypatch.setenv("AGENTNB_TRUST", "1")

    with pytest.raises(ModelNotFound):  # what plays the proxy knows no such server
        Session("openai/m").run_sync("Say hello")

    assert sent_to(outside) == [(f"{AWAY}/chat/completions", f"Bearer {SECRET}")]


def test_changed_file_asks_again_also_within_a_session_and_one_that_is_put_back_does_not(
    project: Path, outside: LoopbackServer
) -> None:
    file = written(project, f"base_url: {AWAY}")
    session = Session("openai/m")
    assert main(["trust", "."]) == 0
    assert is_trusted(session.config)

    written(project, "base_url: http://evil.example.invalid/v1")
    with pytest.raises(UntrustedSettings, match=r"evil\.example\.invalid"):
        session.spawn("Say hello")
    file.write_text(file.read_text().replace("evil", "gpu"))
    with pytest.raises(ModelNotFound):
        session.run_sync("Say hello")

    assert [path for path, _ in sent_to(outside)] == [f"{AWAY}/chat/completions"]


def test_trust_is_for_one_file_at_one_place_however_it_is_reached(project: Path) -> None:
    written(project, f"base_url: {AWAY}")
    copy, link = project.parent / "copy", project.parent / "link"
    copy.mkdir()
    (copy / "agentnb.yaml").write_bytes((project / "agentnb.yaml").read_bytes())
    (project / "link.yaml").symlink_to(project / "agentnb.yaml")
    link.symlink_to(project)
    trust(load_config("agentnb.yaml"))

    assert is_trusted(load_config(project))
    assert is_trusted(load_config(link))  # the same place, by another name
    assert not is_trusted(load_config(copy))
    assert not is_trusted(load_config(project / "link.yaml"))


def test_what_counts_is_what_was_read_and_not_what_is_there_by_now(project: Path) -> None:
    written(project, f"base_url: {AWAY}")
    read_before = load_config("agentnb.yaml")
    written(project, "base_url: http://evil.example.invalid/v1")
    trust(read_before)

    assert is_trusted(read_before)
    assert not is_trusted(load_config("agentnb.yaml"))


def test_naming_a_file_in_code_is_no_trust_and_settings_made_in_code_need_none(
    project: Path,
) -> None:
    file = written(project, f"base_url: {AWAY}")
    made = Config(project, openai=OpenAIServer(AWAY, "AWS_SECRET_ACCESS_KEY"))

    for said in (file, str(file), project, load_config(file)):
        with pytest.raises(UntrustedSettings, match=r"python -m agentnb trust \S+agentnb\.yaml"):
            Session("openai/m", config=said).spawn("Say hello")
    Models("openai/m", provider=None, config=made).resolve()


# -- what needs no trust --------------------------------------------------------------------------


def test_server_of_this_machine_is_asked_at_once_and_past_a_proxy(
    project: Path, outside: LoopbackServer
) -> None:
    with LoopbackServer({"": "Hello."}) as here:
        written(project, f"base_url: {here.url}/v1", "api_key_env: AWS_SECRET_ACCESS_KEY")
        answer = Session("openai/m").run_sync("Say hello")

    assert answer.final_response == "Hello."
    assert sent_to(here) == [("/v1/chat/completions", f"Bearer {SECRET}")]
    assert outside.requests == []  # it would have looked for a server on its own machine


def test_key_alone_goes_to_a_server_of_this_machine_and_nowhere_else(
    project: Path, outside: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(project, "api_key_env: AWS_SECRET_ACCESS_KEY")
    session = Session("openai/m")

    with pytest.raises(UntrustedSettings, match=r"would go to https://api\.openai\.com/v1\."):
        session.spawn("Say hello")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://me:hidden-word@example.invalid/v1?k=hidden-too")
    with pytest.raises(UntrustedSettings) as raised:
        session.spawn("Say hello")
    assert "would go to https://…@example.invalid/v1?…. If" in str(raised.value)
    assert "hidden" not in str(raised.value)
    with LoopbackServer({"": "Hello."}) as here:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{here.url}/v1")
        assert session.run_sync("Say hello").final_response == "Hello."
    assert outside.requests == []


def test_words_of_a_file_are_cut_in_the_error(project: Path) -> None:
    written(project, f"base_url: {AWAY}/{'a' * 5_000}", f"api_key_env: {'A' * 5_000}")

    with pytest.raises(UntrustedSettings) as raised:
        Session("openai/m").spawn("Say hello")
    assert len(str(raised.value)) < 1_000


def test_profiles_pools_and_limits_of_a_file_work_without_trust(project: Path) -> None:
    written(project, f"base_url: {AWAY}", head=POOL)
    with (project / "agentnb.yaml").open("a") as file:
        file.write("tools: {spawn: {profiles: {poet: {system_prompt: Rhyme.}}}}\n")

    session = Session("demo")
    run = session.spawn("Say hello", profile="poet")

    assert run.result(60).final_response
    assert session.config.pools == {"own": ("openai/m",)}


def test_headers_of_the_environment_that_would_go_along_are_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(project, f"base_url: {AWAY}")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer x")

    with pytest.raises(UntrustedSettings, match="`OPENAI_API_KEY` and `OPENAI_CUSTOM_HEADERS`"):
        Session("openai/m").spawn("Say hello")


def test_settings_can_be_looked_at_before_they_are_trusted(project: Path) -> None:
    written(project, f"base_url: {AWAY}", "api_key_env: AWS_SECRET_ACCESS_KEY", head=POOL)
    session = Session()

    before = settings_text(session)
    trust(session.config)
    after = settings_text(session)

    assert before.splitlines()[-3:] == [
        f"  base_url     {AWAY}",
        "  api_key_env  AWS_SECRET_ACCESS_KEY (the variable; its value is not shown)",
        "  trust        not given: nothing is sent there before `%agentnb trust`",
    ]
    assert after.splitlines()[-1] == (
        "  trust        every conversation with an `openai/...` model, and the value of "
        "`AWS_SECRET_ACCESS_KEY` may go there"
    )


def test_server_that_sends_elsewhere_is_not_followed_with_the_key(
    project: Path, outside: LoopbackServer
) -> None:
    def moved(body: dict[str, object]) -> Served:
        return Served(status=307, headers={"location": "http://evil.example.invalid/"})

    with LoopbackServer(moved) as here:
        written(project, f"base_url: {here.url}/v1")
        with pytest.raises(AgentnbError, match="a redirect is not followed"):
            Session("openai/m").run_sync("Say hello")

    assert outside.requests == []


def test_model_that_asks_for_a_profile_is_told_that_its_server_is_not_trusted(
    project: Path, outside: LoopbackServer
) -> None:
    written(project, f"base_url: {AWAY}", head=POOL)
    with (project / "agentnb.yaml").open("a") as file:
        file.write("tools: {spawn: {profiles: {poet: {pool: own}}}}\n")
    call = agentnb.ToolUse("t1", "spawn", {"task": "Rhyme", "profile": "poet"})
    provider = agentnb.ScriptedProvider([agentnb.Reply(tool_uses=(call,)), "Done."])

    Session(provider=provider, delegation="tools").run_sync("Say hello")

    assert "cannot be used: agentnb.yaml is not trusted" in str(provider.requests[1].messages[-1])
    assert outside.requests == []


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost",
        "http://localhost:11434/v1",
        "https://LOCALHOST/v1",
        "http://127.0.0.1:8000/v1",
        "http://127.3.2.1/",
        "http://[::1]:8000/v1",
        "http://localhost/@evil.example/v1",
    ],
)
def test_address_of_this_machine(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost.evil.example/v1",
        "http://localhost.",
        "http://localhost.localdomain",
        "http://evil.localhost",
        "http://127.0.0.1.nip.io/v1",
        "http://127.0.0.1@evil.example/v1",
        "http://localhost:80@evil.example/v1",
        "http://localhost\\@evil.example/v1",
        "http://localhost\\.evil.example/v1",
        "http://localhost#@evil.example/v1",
        "http://localhost?@evil.example/v1",
        "http://localhost;@evil.example/v1",
        "http://localhost%2f@evil.example/v1",
        "http://localhost:80:90",
        "http://localhost\n.evil.example/v1",
        "http://localhost\t",
        " http://localhost",
        "http:localhost",
        "http:///localhost",
        "//localhost",
        "file://localhost/etc/passwd",
        "http://2130706433/v1",
        "http://0x7f000001/v1",
        "http://0x7f.0.0.1/v1",
        "http://0177.0.0.1/v1",
        "http://127.0.0.01/v1",
        "http://127.1/v1",
        "http://127.0.0.256/v1",
        "http://128.0.0.1/v1",
        "http://0.0.0.0:8000/v1",
        "http://[::ffff:127.0.0.1]/v1",
        "http://[::ffff:8.8.8.8]/v1",
        "http://[::1%25eth0]/v1",
        "http://[::]/v1",
        "http://[::2]/v1",
        "http://\uff4cocalhost/v1",
        "http://127.0.0.\u0661/v1",
        "http://127\u30020\u30020\u30021/v1",
        "",
    ],
)
def test_address_that_looks_like_this_machine_and_may_be_another(address: str) -> None:
    assert not is_loopback(address)


@pytest.mark.parametrize(
    "address",
    ["http://localhost\\@evil.example/v1", "https://api.open\u0430i.com/v1", "http://a\u202eb/v1"],
)
def test_address_that_can_be_read_in_two_ways_is_a_mistake_of_the_file(
    project: Path, address: str
) -> None:
    written(project, f"base_url: {address}")

    with pytest.raises(ConfigError, match="This is not the address of a server"):
        load_config("agentnb.yaml")


# -- what is kept ---------------------------------------------------------------------------------


def mark(own_folder: Path) -> Path:
    (file,) = (own_folder / "agentnb" / "trusted").iterdir()
    return file


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_trust_is_kept_for_this_user_alone(project: Path, own_folder: Path) -> None:
    trust(load_config(written(project, f"base_url: {AWAY}")))

    file = mark(own_folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert SECRET not in file.read_text()


@pytest.mark.parametrize(
    "content",
    ["", "{" * 10_000, "1", "\x00", "e3b0c44298fc1c149afbf4c8996fb924  x", "9" * 200_000],
)
def test_trust_file_that_says_something_else_is_no_trust(
    project: Path, own_folder: Path, content: str
) -> None:
    config = load_config(written(project, f"base_url: {AWAY}"))
    trust(config)
    mark(own_folder).write_text(content)

    assert not is_trusted(config)
    trust(config)
    assert is_trusted(config)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
@pytest.mark.parametrize("harm", ["others may write", "another user's", "a pipe", "a folder"])
def test_trust_file_that_may_be_another_users_work_is_no_trust(
    project: Path, own_folder: Path, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(written(project, f"base_url: {AWAY}"))
    trust(config)
    file = mark(own_folder)
    match harm:
        case "others may write":
            file.chmod(0o666)
        case "another user's":
            monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
        case "a pipe":
            file.unlink()
            os.mkfifo(file)
        case "a folder":
            file.unlink()
            file.mkdir()

    assert not is_trusted(config)


def test_link_that_was_put_where_trust_is_kept_is_not_written_through(
    project: Path, own_folder: Path
) -> None:
    config = load_config(written(project, f"base_url: {AWAY}"))
    trust(config)
    file, victim = mark(own_folder), project / "victim"
    victim.write_text("before")
    file.unlink()
    file.symlink_to(victim)

    trust(config)

    assert victim.read_text() == "before"
    assert is_trusted(config)


def test_folder_that_depends_on_where_a_process_runs_is_nobodys(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(written(project, f"base_url: {AWAY}"))
    monkeypatch.setenv("XDG_CONFIG_HOME", "own")
    monkeypatch.setenv("HOME", ".")
    monkeypatch.setenv("USERPROFILE", ".")
    monkeypatch.setenv("APPDATA", ".")

    with pytest.raises(TrustNotKept, match="There is no home folder"):
        trust(config)
    assert not is_trusted(config)
    assert list(project.iterdir()) == [project / "agentnb.yaml"]


def test_where_nothing_can_be_kept_it_says_what_else_there_is(
    project: Path, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(project, f"base_url: {AWAY}")
    own_folder.write_text("no folder")

    assert main(["trust", str(file)]) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert "`AGENTNB_TRUST=1` in the environment" in said.err


def test_file_that_needs_no_trust_and_one_that_is_not_there_are_told(
    project: Path, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(project, "base_url: http://localhost:1/v1")

    assert main(["trust", "agentnb.yaml", "nowhere.yaml"]) == 2

    said = capsys.readouterr()
    assert said.out == (
        "agentnb.yaml names only servers on this machine, which need no trust. Nothing was saved.\n"
    )
    assert "nowhere.yaml: There is no such file." in said.err
    assert not own_folder.exists()


@pytest.mark.parametrize("value", ["", "0", "true", "yes", "2"])
def test_only_one_value_of_the_variable_trusts(
    project: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("AGENTNB_TRUST", value)

    assert not is_trusted(load_config(written(project, f"base_url: {AWAY}")))


def test_magic_trusts_the_file_that_the_next_run_has_or_the_one_that_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentnb.default_session._default", None)
    other = project / "with a space"
    other.mkdir()
    written(other, f"base_url: {AWAY}")
    with pytest.raises(agentnb.AgentnbError, match=r"This session uses no agentnb\.yaml"):
        AGENTNB_VERBS["trust"].act()

    session = configure(config=other, model="openai/m")
    with pytest.raises(
        UntrustedSettings, match=r"`%agentnb trust '[^']+with a space/agentnb\.yaml"
    ):
        session.spawn("Say hello")
    AGENTNB_VERBS["trust"].act()
    assert is_trusted(session.config)
    written(other, f"base_url: {AWAY}/v2")
    AGENTNB_VERBS["trust"].act(str(other / "agentnb.yaml"))
    session.reread_settings()
    assert is_trusted(session.config)
