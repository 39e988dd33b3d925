"""Ends of replies: one table of reasons and one rule for a missing one, in both dialects."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import agentnb
from agentnb.core.errors import Refused, StreamBroken
from agentnb.core.types import CompletionRequest, Stopped, user_message
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.ends import MAY_BE_CUT, checked
from agentnb.providers.limits import BadReply
from agentnb.providers.openai import OpenAIProvider
from agentnb.providers.servers import Server
from tests.loopback import Event, LoopbackServer, Reply
from tests.loopback.completions import DONE, chunk

HELLO = CompletionRequest("m", "", (user_message("Say hello"),))
PROVIDERS = {"chat": OpenAIProvider, "messages": AnthropicProvider}
MODELS = {"chat": "openai/m", "messages": "anthropic/m"}


@pytest.fixture(params=PROVIDERS)
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def reply(dialect: str, reason: object, *texts: str, details: object = None) -> Reply:
    """A reply that ends for a reason, with the end mark of its stream.

    Args:
        dialect: `chat` or `messages`.
        reason: As the server says it.
        texts: Its text in pieces.
        details: Those of a refusal, in the Messages API.
    """
    if dialect == "chat":
        said = [chunk({"content": text}) for text in texts]
        return Reply(events=(*said, chunk({}, finish_reason=reason), DONE))
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m"}
    block: dict[str, Any] = {"type": "text", "text": ""}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 9}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
    ]
    for text in texts:
        delta = {"type": "text_delta", "text": text}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    events += [
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_details": details},
            "usage": {"output_tokens": 1},
        },
        {"type": "message_stop"},
    ]
    wire: list[Event] = [(each["type"], json.dumps(each)) for each in events]
    return Reply(events=wire)


@contextlib.contextmanager
def serving(
    monkeypatch: pytest.MonkeyPatch, script: Callable[[Any], Reply]
) -> Iterator[LoopbackServer]:
    with LoopbackServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-a-real-key")
        yield server


async def end_of(dialect: str) -> Stopped:
    async with contextlib.aclosing(PROVIDERS[dialect]()) as provider:
        async with contextlib.aclosing(provider.stream(HELLO)) as stream:
            end = [event async for event in stream][-1]
    assert isinstance(end, Stopped)
    return end


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("end_turn", "end_turn"),
        ("stop", "end_turn"),
        ("STOP", "end_turn"),
        ("COMPLETE", "end_turn"),
        ("eos", "end_turn"),
        ("eos_token", "end_turn"),
        ("stop_sequence", "stop_sequence"),
        ("pause_turn", "pause_turn"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("length", "max_tokens"),
        ("MAX_TOKENS", "max_tokens"),
        ("model_length", "max_tokens"),
        ("token_limit", "max_tokens"),
        ("model_context_window_exceeded", "model_context_window_exceeded"),
        ("content_filter", "refusal"),
        ("content-filter", "refusal"),
        ("content_filter: PROHIBITED_CONTENT", "refusal"),
        ("SAFETY", "refusal"),
        ("sensitive", "refusal"),
        ("Refusal", "refusal"),
        ("SPII", "refusal"),
        ("MODEL_ARMOR", "refusal"),
        ("IMAGE_SAFETY", "refusal"),
        ("guardrail_intervened", "refusal"),
        ("RECITATION", "refusal"),
        ("LANGUAGE", "refusal"),
        ("BLOCKLIST", "refusal"),
        ("PROHIBITED_CONTENT", "refusal"),
        ("IMAGE_PROHIBITED_CONTENT", "refusal"),
        ("IMAGE_RECITATION", "refusal"),
        ("content_filtered", "refusal"),
        ("ERROR_TOXIC", "refusal"),
        ("repetition", "max_tokens"),
    ],
)
async def test_reason_is_heard_in_any_case_and_in_any_servers_words(
    monkeypatch: pytest.MonkeyPatch, dialect: str, reason: str, told: str
) -> None:
    with serving(monkeypatch, lambda _: reply(dialect, reason, "Hi")):
        end = await end_of(dialect)

    assert (end.reason, end.message.text) == (told, "Hi")
    assert bool(end.note) is (told == "refusal" and reason != "Refusal")


@pytest.mark.parametrize(
    ("reason", "details", "told"),
    [
        ("refusal", None, "declined to answer: Half an"),
        ("refusal", {"category": None, "explanation": None}, "declined to answer: Half an"),
        ("refusal", {"category": "cyber"}, "declined to answer (cyber): Half an"),
        (
            "refusal",
            {"category": "bio", "explanation": "About toxins."},
            "declined to answer (bio: About toxins): Half an",
        ),
        ("refusal", {"category": ["odd"], "explanation": 5}, "declined to answer: Half an"),
        ("refusal", "odd", "declined to answer: Half an"),
        ("SPII", None, "declined to answer (SPII): Half an"),
        ("content_filter: OTHER", None, "declined to answer (content_filter: OTHER): Half an"),
    ],
)
def test_refusal_names_its_category_its_explanation_and_the_words_before(
    monkeypatch: pytest.MonkeyPatch, dialect: str, reason: str, details: Any, told: str
) -> None:
    if dialect == "chat" and details:
        pytest.skip("The Messages API's own.")
    asked = reply(dialect, reason, "Half an", details=details)
    with serving(monkeypatch, lambda _: asked) as server:
        with agentnb.Session(model=MODELS[dialect], store=None) as session:
            with pytest.raises(Refused, match=re.escape(told)):
                session.spawn("Say hello").result()
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        (
            {"hate": {"filtered": True, "severity": "high"}, "self_harm": {"filtered": False}},
            "hate",
        ),
        ({"jailbreak": {"filtered": True}, "violence": {"filtered": True}}, "jailbreak, violence"),
    ],
)
def test_filter_of_a_chat_server_is_named(
    monkeypatch: pytest.MonkeyPatch, filters: Any, told: str
) -> None:
    end = chunk({}, finish_reason="content_filter")
    choices: Any = dict(end[1])["choices"]  # type: ignore[arg-type]
    choices[0]["content_filter_results"] = filters
    with serving(monkeypatch, lambda _: Reply(events=(end, DONE))):
        with agentnb.Session(model="openai/m", store=None) as session:
            with pytest.raises(Refused, match=re.escape(f"(content_filter: {told}).")):
                session.spawn("Say hello").result()


def test_refusal_is_replayed_in_the_same_words(
    monkeypatch: pytest.MonkeyPatch, dialect: str, tmp_path: Any
) -> None:
    cassette, model = tmp_path / "declined.cassette.jsonl", MODELS[dialect]
    told = []
    with serving(monkeypatch, lambda _: reply(dialect, "SPII", "Half an")) as server:
        for mode in ("record", "replay"):
            with agentnb.Session(model=model, store=None, mode=mode, cassette=cassette) as session:
                with pytest.raises(Refused) as declined:
                    session.spawn("Say hello").result()
            told.append(str(declined.value))
        assert len(server.requests) == 1
    assert "(SPII): Half an" in told[0]
    assert told[1] == told[0]


@pytest.mark.parametrize(
    "reason",
    ["error", "abort", "cancelled", "tired", "function_call_filter: MALFORMED_FUNCTION_CALL"],
)
async def test_reason_that_is_not_known_is_no_end(
    monkeypatch: pytest.MonkeyPatch, dialect: str, reason: str
) -> None:
    with serving(monkeypatch, lambda _: reply(dialect, reason, "Par")):
        with pytest.raises(StreamBroken, match="the unknown stop reason"):
            await end_of(dialect)


def test_model_that_gives_no_reason_alone_may_be_asked_as_much_as_there_is() -> None:
    server = Server()

    def heard(reason: str | None, *, has_company: bool) -> str:
        return checked(reason, server, "m", has_company=has_company, has_answer=True)

    with pytest.raises(BadReply):
        heard(None, has_company=True)
    assert server.at_once == 1
    assert heard(None, has_company=False) == MAY_BE_CUT
    assert server.at_once == sys.maxsize
    assert heard("stop", has_company=False) == ""
    with pytest.raises(BadReply):
        heard(None, has_company=True)
    assert server.at_once == 1, "it has given reasons since"


@pytest.mark.parametrize("nothing", [None, "", "null", "none", "NULL", "None"])
async def test_end_without_a_reason_is_one_only_for_a_server_that_gives_none(
    monkeypatch: pytest.MonkeyPatch, dialect: str, nothing: str | None
) -> None:
    replies = [
        reply(dialect, nothing, "Hi"),
        reply(dialect, nothing),  # nothing came
        reply(dialect, "stop", "Hi"),
        reply(dialect, nothing, "Hi"),
    ]
    with serving(monkeypatch, lambda _: replies.pop(0)):
        assert (await end_of(dialect)).note == MAY_BE_CUT
        with pytest.raises(StreamBroken, match="an end without a reason"):
            await end_of(dialect)
        assert (await end_of(dialect)).note == ""
        with pytest.raises(StreamBroken, match="an end without a reason"):
            await end_of(dialect)


def test_note_of_an_end_is_shown_wherever_a_person_looks(
    monkeypatch: pytest.MonkeyPatch, dialect: str, tmp_path: Any
) -> None:
    cassette = tmp_path / "notes.cassette.jsonl"
    model = MODELS[dialect]
    with serving(monkeypatch, lambda _: reply(dialect, None, "Hi")):
        with agentnb.Session(
            model=model, store=tmp_path / "store", mode="record", cassette=cassette
        ) as session:
            run = session.spawn("Say hello")
            assert run.result().final_response == "Hi"
            loaded = session.load(run.id)
            with agentnb.Session(
                model=model, store=None, mode="replay", cassette=cassette
            ) as other:
                replayed = other.spawn("Say hello")
                replayed.result()
            for record in (run, loaded, replayed):
                (row,) = record.to_records()
                assert row["notes"] == MAY_BE_CUT
                assert record.agent("root").notes == (MAY_BE_CUT,)
                assert list(record.notes["root"]) == [MAY_BE_CUT]
                assert "may be cut" in json.dumps(record.to_json())


def test_note_of_a_rows_end_is_shown_below_the_maps_table(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    with (
        serving(monkeypatch, lambda _: reply(dialect, None, "Hi")),
        agentnb.Session(model=MODELS[dialect], store=None) as session,
    ):
        result = session.map(["a", "b", "c"], "{{text}}?", judges=2).result()

        shown = result._repr_mimebundle_()

    assert result.notes == {MAY_BE_CUT: 3}
    assert result.df["error"].isna().all()
    for form in ("text/plain", "text/html"):
        assert f"3 rows: {MAY_BE_CUT}" in shown[form]
