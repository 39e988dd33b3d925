"""Keys never appear in an error, however it is printed, in a record or in a view."""

from __future__ import annotations

import base64
import contextlib
import html
import json
import logging
import pickle
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import IPython
import pytest
from IPython.core.ultratb import VerboseTB

import agentnb
from agentnb import Reply, ScriptedProvider, Session, load_run
from agentnb.core.errors import (
    AgentnbError,
    ForeignError,
    InternalError,
    LlmError,
    OrchestratorError,
    ToolError,
    cause_of,
)
from agentnb.core.protocols import Provider
from agentnb.core.secrets import (
    SHORTEST,
    Secrets,
    known_secrets,
    masked,
    masked_words,
    note,
    without_user,
)
from agentnb.core.types import (
    CompletionRequest,
    Message,
    Role,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    Usage,
    user_message,
)
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.openai import OpenAIProvider
from agentnb.run import Run
from agentnb.runtime import get_runtime
from tests.loopback import LoopbackServer
from tests.loopback import Reply as Served
from tests.support import DEADLINE_S

HELLO = CompletionRequest(model="m", system="", messages=(user_message("Say hello"),))
KEY = "k3y-Of.a+person/2026=(not|a[regex)*"
"""With characters that are special in a pattern, an address, HTML or JSON."""


@pytest.fixture
def closing() -> Iterator[Callable[[Any], Any]]:
    made: list[Any] = []

    def close_later(provider: Any) -> Any:
        made.append(provider)
        return provider

    yield close_later
    for provider in made:
        get_runtime().submit(provider.aclose()).result(DEADLINE_S)


_NO_COLOURS: dict[str, Any] = (
    {"theme_name": "nocolor"} if IPython.version_info >= (9,) else {"color_scheme": "NoColor"}
)


# -- where a text can appear -----------------------------------------------------------------------


def ways_out(error: BaseException, run: Run | None = None) -> Iterator[tuple[str, str]]:
    """Each way in which an error, and the run that it ended, can be seen."""
    yield "str", str(error)
    yield "repr", repr(error)
    whole = traceback.TracebackException.from_exception(error, capture_locals=True)
    yield "traceback with locals", "".join(whole.format())
    verbose: Any = VerboseTB(**_NO_COLOURS)  # they take most of the time, and may part a key
    yield "IPython, verbose", verbose.text(type(error), error, error.__traceback__)
    yield "pickle", pickle.dumps(error).decode("latin-1")
    link: BaseException | None = error
    while link is not None:
        yield "a cause", f"{link!r} {vars(link)!r}"
        yield "a context", repr(link.__context__)
        link = link.__cause__
    if run is not None:
        yield from looks(run)


def looks(run: Run) -> Iterator[tuple[str, str]]:
    """All that can be seen of a run."""
    document = run.to_json()
    yield "to_json", document
    yield "repr", f"{run!r} {run.tree!r} {run.notes!r}"
    yield "outline", str(run.tree)
    yield "bundle", str(run._repr_mimebundle_())
    yield "records", str(run.to_records())
    for agent in run.agents:
        yield "agent", str(agent._repr_mimebundle_())
    view = run.tree_view()
    sent: list[Any] = []
    view.send = lambda content, buffers=None: sent.append(content)
    try:
        view._handle_custom_msg({"type": "hello", "view": "v"}, None)
        for agent in run.agents:
            message = {
                "type": "details",
                "view": "v",
                "agent": agent.path,
                "call": None,
                "at": None,
            }
            view._handle_custom_msg(message, None)
        assert len(sent) >= 2
        yield "panel", f"{sent} {view._full_frame()}"
    finally:
        view.close()


def check_unseen(found: Iterator[tuple[str, str]], *secrets: str) -> list[str]:
    """Check that no secret appears anywhere. Returns the texts that were searched."""
    texts = []
    for way, text in found:
        for secret in secrets:
            assert secret not in text, f"{way}: {text[max(0, text.find(secret) - 200) :][:400]}"
        texts.append(text)
    return texts


def failed_run(session: Session) -> tuple[Run, OrchestratorError]:
    run = session.spawn("Say hello")
    with pytest.raises(OrchestratorError) as raised:
        run.result(DEADLINE_S)
    return run, raised.value


async def failure_of(provider: Provider) -> Exception:
    try:
        async for _ in provider.stream(HELLO):
            pass
    except Exception as error:
        return error
    raise AssertionError("nobody is there")


# -- a server that repeats its requests ------------------------------------------------------------

ECHOES: dict[str, Callable[[str], str]] = {
    "whole": lambda key: f"Bad header: {key}!",
    "percent-encoded": lambda key: f"Bad header: {quote(key, safe='')}",
    "percent-encoded in lower case": lambda key: (
        f"Bad: {quote(key, safe='').lower()}" if key == key.lower() else f"Bad: {quote(key)}"
    ),
    "in base64": lambda key: f"Bad: Basic {base64.b64encode(f'me:{key}'.encode()).decode()}",
    "in base64, elsewhere": lambda key: f"{base64.b64encode(f'you:{key}'.encode()).decode()}",
    "in HTML": lambda key: f"Bad: {html.escape(key)}",
    "in JSON": lambda key: json.dumps({"bad": key}),
    "over lines": lambda key: f"Bad: {key[:9]}\n   {key[9:20]}\r\n\t{key[20:]}",
    "its beginning": lambda key: f"Bad header: {key[:18]}...",
    "its end": lambda key: f"Bad header: ...{key[-18:]}",
    "many times": lambda key: f"{key}{key} {key}",
    "in an address": lambda key: f"Not found: http://me:{key}@host/v1",
}


CASES = [
    *[("anthropic", echo) for echo in ECHOES],
    *[
        (dialect, echo)
        for dialect in ("openai", "openai in code", "headers")
        for echo in ("whole", "in base64", "its beginning")
    ],
]


@pytest.mark.parametrize(("dialect", "echo"), CASES)
def test_server_that_repeats_a_key_tells_nobody(
    monkeypatch: pytest.MonkeyPatch,
    closing: Callable[[Any], Any],
    echo: str,
    dialect: str,
) -> None:
    said = ECHOES[echo](KEY)
    provider: Provider
    with LoopbackServer(lambda _: Served(status=400, message=said)) as server:
        if dialect.startswith("openai"):
            in_code = KEY if dialect.endswith("code") else None
            if in_code is None:
                monkeypatch.setenv("OPENAI_API_KEY", KEY)
            provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key=in_code)
        else:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", KEY if dialect == "anthropic" else "short")
            if dialect == "headers":
                monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", f"X-One: 1\nX-Gateway: {KEY}")
            provider = AnthropicProvider()
        run, error = failed_run(Session(f"{provider.name}/m", provider=closing(provider)))
        assert len(server.requests) == 1

    texts = check_unseen(ways_out(error, run), KEY, said, KEY[:18], KEY[-18:])
    assert any("[secret " in text for text in texts)
    assert repr(KEY)[1:-1] not in str(texts)


async def test_key_that_a_broken_stream_repeats_tells_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    for reply in (
        Served(events=(f'data: {{"{KEY}": '.encode() + b"\n\n",)),
        Served(body=f"<html>{KEY}</html>".encode(), headers={"content-type": "text/html"}),
        Served(body=KEY.encode(), headers={"content-type": KEY}),
        Served(status=307, headers={"location": f"http://evil.example/?{quote(KEY)}"}),
    ):
        with LoopbackServer({"": reply}) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            async with contextlib.aclosing(AnthropicProvider()) as provider:
                error = await failure_of(provider)

        check_unseen(ways_out(error), KEY, quote(KEY))


@pytest.mark.parametrize(
    "address",
    [
        "ftp://me:{}@host.example/v1",
        "http//me:{}@host.example/v1",
        "me:{}@host.example/v1",
        "http://me:{}@:99999999/v1",
        "http://me:{}@[::1/v1",
        "http://{}@127.0.0.1:1/v1",
        "http://127.0.0.1:1/v1?key={}",
        "http://me:{}@127.0.0.1:1/v1",
    ],
)
@pytest.mark.parametrize("password", ["s3cret-Word-of-2026", "s3cret/Word@of:2026", "s3%2Fcr%40et"])
async def test_password_in_an_address_is_seen_nowhere(
    monkeypatch: pytest.MonkeyPatch, address: str, password: str
) -> None:
    given = address.format(password)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", given)
    for provider in (OpenAIProvider(base_url=given), AnthropicProvider()):
        async with contextlib.aclosing(provider):
            error = await failure_of(provider)
        check_unseen(ways_out(error), password, password[3:9])
        check_unseen(iter([("repr", repr(provider))]), password, password[3:9])


def test_password_in_an_address_is_not_logged(
    caplog: pytest.LogCaptureFixture, closing: Callable[[Any], Any]
) -> None:
    caplog.set_level(logging.DEBUG)
    with LoopbackServer({"": "Hello."}) as server:
        address = server.url.replace("://", "://me:s3cret-Word-of-2026@")
        provider = closing(OpenAIProvider(base_url=f"{address}/v1", api_key=KEY))
        Session("openai/m", provider=provider).run_sync("Say hello")
        sent = server.requests[0].headers["authorization"]

    assert sent == f"Basic {base64.b64encode(b'me:s3cret-Word-of-2026').decode()}"
    assert "HTTP Request: POST http://127.0.0.1" in caplog.text
    assert "s3cret-Word-of-2026" not in caplog.text
    assert KEY not in caplog.text


def test_what_is_below_a_provider_leaves_with_no_error(
    monkeypatch: pytest.MonkeyPatch, closing: Callable[[Any], Any]
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with LoopbackServer(lambda _: Served(status=400, message="No.")) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        _, error = failed_run(Session("a/m", provider=closing(AnthropicProvider())))

    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    link: BaseException | None = error
    causes = []
    while (link := cause_of(link) if link is not None else None) is not None:
        causes.append(link)
        frames += [frame.filename for frame in traceback.extract_tb(link.__traceback__)]
    assert frames
    assert not any("anthropic" in name or "httpx" in name for name in frames)
    (said,) = [each for each in causes if isinstance(each, ForeignError)]
    assert str(said).startswith(
        "anthropic.BadRequestError: Error code: 400"
    )  # who reads on, learns


@pytest.mark.parametrize("end", ["cancelled", "too slow"])
def test_call_that_is_stopped_in_the_middle_shows_no_key(
    monkeypatch: pytest.MonkeyPatch, closing: Callable[[Any], Any], end: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    hold = threading.Event()
    with LoopbackServer({"": Served(text="Hello to all", hold=hold)}) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        patience_s = 600 if end == "cancelled" else 0.2
        session = Session("a/m", provider=closing(AnthropicProvider()), call_timeout_s=patience_s)
        run = session.spawn("Say hello")
        if end == "cancelled":
            server.wait_streaming(1)
            run.cancel()
        with pytest.raises(OrchestratorError) as raised:
            run.result(DEADLINE_S)
        hold.set()

    check_unseen(ways_out(raised.value, run), KEY)


# -- errors of other code --------------------------------------------------------------------------


class Careless:
    """A person's own provider, whose errors disclose secrets."""

    name = "careless"

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        yield Usage(1, 1)
        raise self.error


def test_error_of_a_persons_own_provider_shows_no_key_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_GATEWAY_TOKEN", KEY)
    caused = ValueError(f"header {KEY}")
    caused.__cause__ = KeyError(KEY)
    for raised in (LlmError(f"no {KEY}"), RuntimeError(f"no {KEY}"), caused):
        run, error = failed_run(Session("careless/m", provider=Careless(raised)))

        texts = check_unseen(ways_out(error, run), KEY)
        assert "[secret MY_GATEWAY_TOKEN]" in texts[0]


def test_bug_that_shows_no_secret_keeps_its_frames() -> None:
    bug = RuntimeError("a bug")

    wrapped = InternalError.wrapping(bug, where="here")

    assert wrapped.__cause__ is bug


def test_every_error_of_ours_is_masked_where_it_is_made_but_a_tools_own_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_SECRET", KEY)

    error = AgentnbError(f"a {KEY}", 5)

    assert error.args == ("a [secret SOME_SECRET]", 5)
    assert pickle.loads(pickle.dumps(error)).args == error.args
    assert ToolError(f"a {KEY}").for_model == f"a {KEY}"  # a model gets it unchanged


# -- what is written and shown ---------------------------------------------------------------------


def test_secret_in_a_prompt_is_sent_as_it_is_and_written_and_shown_masked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_DATABASE_PASSWORD", KEY)
    mask = "[secret MY_DATABASE_PASSWORD]"

    @agentnb.tool
    def look(at: str) -> str:
        """Look at it."""
        return f"seen {at}"

    call = agentnb.ToolUse("t1", "look", {"at": KEY, KEY: [KEY]})
    provider = ScriptedProvider([Reply("I look.", tool_uses=(call,)), Reply(f"It is {KEY}.")])
    session = Session(provider=provider, tools=[look], user=f"My key is {KEY}.")
    run = session.spawn(f"Use {KEY}")
    result = run.result(DEADLINE_S)

    assert KEY in provider.requests[0].system
    assert KEY in provider.requests[0].messages[0].text
    assert result.final_response == f"It is {KEY}."
    run.to_json(tmp_path / "run.json")
    loaded = load_run(tmp_path / "run.json")
    assert loaded.task == f"Use {mask}"
    assert loaded.output == f"It is {mask}."
    said = [entry.event for entry in loaded.events if entry.event.kind == "agent_text_delta"]
    assert "".join(event.text for event in said) == f"I look.It is {mask}."
    assert [entry.seq for entry in loaded.events] == [entry.seq for entry in run.events]
    texts = check_unseen(looks(run), KEY, json.dumps(KEY)[1:-1], html.escape(KEY))
    assert mask in texts[0]
    check_unseen(iter([("result", str(result._repr_mimebundle_()))]), KEY, html.escape(KEY))


def test_document_without_secrets_is_the_same_and_names_of_ours_are_never_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Session(provider=ScriptedProvider(["Done."])).spawn("Say completed")
    run.result(DEADLINE_S)
    before = run.to_json()
    for name in ("agent_id", "agent_completed", "completed", "duration_ms", "run_started"):
        monkeypatch.setenv("SORT_KEY", name)
        document = json.loads(run.to_json())

        assert document["entries"][-1]["status"] == "completed"
        kinds = [entry["kind"] for entry in json.loads(before)["entries"]]
        assert [entry["kind"] for entry in document["entries"]] == kinds
    monkeypatch.delenv("SORT_KEY")
    assert run.to_json() == before


class InPieces:
    """Streams a text in pieces of equal length."""

    name = "pieces"

    def __init__(self, text: str, length: int) -> None:
        self.pieces = [text[at : at + length] for at in range(0, len(text), length)]

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        for piece in self.pieces:
            yield TextDelta(piece)
        said = Message(Role.ASSISTANT, (TextBlock("".join(self.pieces)),))
        yield Stopped("end_turn", said)


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
def test_secret_that_streams_into_a_panel_is_never_shown_in_part(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    from agentnb.views.panel.details import Details
    from agentnb.views.panel.fold import PanelFold

    monkeypatch.setenv("MY_TOKEN", KEY)
    text = f"It is {KEY}, I say: {KEY[:20]}"
    run = Session(provider=InPieces(text, chunk)).spawn("Say it")
    run.result(DEADLINE_S)
    rows = run._bus.rows_since(0)
    fold, look, shown = PanelFold(), Details("root"), ""
    for row in rows:
        fold.feed([row])
        told = look.more(fold, lambda _: "")
        if told is not None:
            shown = told["text"] if told["reset"] and "text" in told else shown
            shown += told.get("add", "")
        assert len(row) == 2 or KEY[:SHORTEST] not in shown  # a reply may end with any part of it

    assert shown == f"It is [secret MY_TOKEN], I say: {KEY[:20]}"


# -- the rules -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("SOME_KEY", True),
        ("GITHUB_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("CLIENT_SECRET", True),
        ("DB_PASSWORD", True),
        ("SOME_KEY_ID", False),
        ("KEYBOARD", False),
        ("MONKEY", False),
    ],
)
def test_variable_is_a_secret_by_the_end_of_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, is_secret: bool
) -> None:
    monkeypatch.setenv(name, "abcd1234")

    assert masked("an abcd1234.") == (f"an [secret {name}]." if is_secret else "an abcd1234.")


def test_value_of_seven_characters_is_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "abcd123")

    assert masked("an abcd123.") == "an abcd123."


def test_variable_that_the_settings_name_is_a_secret_whatever_it_is_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "agentnb.yaml").write_text(
        "llm: {providers: {openai: {base_url: http://localhost:1/v1, api_key_env: MY_SERVERS}}}"
    )
    monkeypatch.setenv("MY_SERVERS", KEY)
    Session("demo", config=tmp_path)

    assert masked(KEY) == "[secret MY_SERVERS]"


def test_longest_secret_counts_where_one_begins_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "abcdefgh")
    monkeypatch.setenv("B_KEY", "abcdefghijkl")
    monkeypatch.setenv("C_KEY", "cdefghij")

    text = "abcdefgh abcdefghijkl abcdefghij cdefghij"
    assert masked(text) == "[secret A_KEY] [secret B_KEY] [secret A_KEY]ij [secret C_KEY]"


@pytest.mark.parametrize("separator", ["\n", "\r\n"])
def test_secret_of_several_lines_is_masked_line_by_line(
    monkeypatch: pytest.MonkeyPatch, separator: str
) -> None:
    lines = ["-----BEGIN KEY-----", "A" * 30 + "b1", "C" * 30 + "d2", "-----END KEY-----"]
    monkeypatch.setenv("PRIVATE_KEY", separator.join(lines))

    assert masked(separator.join(lines)) == "[secret PRIVATE_KEY]"
    assert lines[1] not in masked(f"x {lines[1]} y")
    assert lines[2] not in masked_words(" ".join(lines))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://localhost:1/v1", "http://localhost:1/v1"),
        ("http://me:word@host/v1", "http://…@host/v1"),
        ("http://me:wo/rd@host/v1", "http://…@host/v1"),
        ("http://me:w@rd@host/v1", "http://…@host/v1"),
        ("me:word@host", "…@host"),
        ("me:word@//host", "…@//host"),
        ("http://host/?key=word", "http://host/?…"),
        ("http://host/#word@x", "http://…@x"),
    ],
)
def test_address_is_shown_without_its_user(address: str, shown: str) -> None:
    assert without_user(address) == shown


def test_name_of_a_mask_holds_nothing_that_acts() -> None:
    secrets = Secrets({KEY: 'odd" \x1b[31m\u202e' + "n" * 100})

    assert secrets.mask(KEY) == f"[secret odd____31m_{'n' * 49}]"


def test_secrets_show_nothing_of_themselves() -> None:
    note("api_key", KEY)
    note("api_key", "half a character: \ud83d")

    assert KEY not in repr(known_secrets())


@pytest.mark.parametrize(
    "text",
    [
        "a" * 60_000,
        ("a" * 15 + "b") * 4_000,
        "a " * 30_000,
        "//" * 30_000,
        "//a:" * 15_000,
        "//a@" * 15_000,
        "\u2003" * 60_000,
    ],
    ids=lambda text: repr(text[:5]),
)
def test_work_grows_with_the_length_and_not_faster(text: str) -> None:
    secrets = Secrets({"a" * 40 + "c": "A", "a" * 20: "B", "c" + "a" * 40: "C"})

    short = work_of(lambda: secrets.mask_words(text[: len(text) // 8]))
    long = work_of(lambda: secrets.mask_words(text))

    assert long <= 12 * short + 5_000


def work_of(act: Callable[[], object]) -> int:
    """The Python lines that an act executes; the C code for each is linear in the text."""
    steps = 0

    def count(*_: object) -> Any:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        act()
    finally:
        sys.settrace(before)
    return steps
