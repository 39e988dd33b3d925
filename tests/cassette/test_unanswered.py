"""What no model answered is no recording: `auto` asks again, and `record` leaves the old run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentnb import Reply, Run, ScriptedProvider
from agentnb.cassette.cassette import Cassette
from agentnb.core.errors import (
    AuthenticationFailed,
    CallTimedOut,
    ConnectionFailed,
    InvalidRequest,
    LlmError,
    MissingKey,
    ModelNotFound,
    NoCredit,
    Overloaded,
    RateLimited,
    Refused,
    ServerFailed,
    StreamBroken,
)
from agentnb.core.protocols import FallbackModel
from agentnb.core.types import CompletionRequest
from agentnb.providers.fallback import FallbackProvider
from tests.repeating import ended, new_kernel, session_in
from tests.support import run_python, spawn, task_of

PATH = Path("x.cassette.jsonl")


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentnb.core._call.retry.TRANSPORT_ATTEMPTS", 1)


def run_in(mode: str, model: Any, **settings: Any) -> Run:
    """A run in a kernel of its own."""
    provider = model if isinstance(model, FallbackProvider) else ScriptedProvider(model)
    with new_kernel():
        session = session_in(mode, provider=provider, **settings)
        run = ended(session.spawn("How deep?", name="deep"))
        session.tell_trouble()
        return run


def said(run: Run) -> str:
    """Its answer, or the name of its error."""
    error = run._future.exception()
    return str(run.result().output) if error is None else type(error).__name__


def failing(error: Exception) -> Any:
    def model(request: CompletionRequest) -> Any:
        raise error

    return model


def answering(request: CompletionRequest) -> str:
    return "Seven metres."


UNANSWERED = [
    MissingKey("there is no key"),
    AuthenticationFailed("the key is wrong", status_code=401),
    LlmError("pay first", status_code=402),
    NoCredit("Your credit balance is too low to access the API", status_code=400),
    NoCredit("the quota is spent"),  # within a reply, which has no status of its own
    LlmError("not from here", status_code=403),
    RateLimited("slow down", status_code=429),
    ServerFailed("broken", status_code=500),
    Overloaded("full", status_code=529),
    ConnectionFailed("no route to it"),
    CallTimedOut("nothing came"),
]
ANSWERED = [
    InvalidRequest("the request is malformed", status_code=400),
    ModelNotFound("no such model", status_code=404),
    LlmError("too large", status_code=413),
    InvalidRequest("cannot be processed", status_code=422),
    Refused("I would rather not."),
    StreamBroken("the reply broke off"),
]


def name_of(error: LlmError) -> str:
    return f"{type(error).__name__} {error.status_code or ''}".strip()


@pytest.mark.parametrize("error", UNANSWERED, ids=name_of)
def test_failure_that_no_model_gave_is_not_recorded(
    error: LlmError, capsys: pytest.CaptureFixture[str]
) -> None:
    for mode in ("record", "auto"):
        assert said(run_in(mode, failing(error))) == type(error).__name__
        assert not PATH.exists()
        told = capsys.readouterr().err
        assert told.startswith("x.cassette.jsonl: run 'deep': agent root got no answer")
        assert f"{type(error).__name__}: {error}" in told
        assert told.count("\n") == 1
    assert said(run_in("auto", answering)) == "Seven metres."
    assert said(run_in("replay", failing(error))) == "Seven metres."


@pytest.mark.parametrize("error", ANSWERED, ids=name_of)
def test_what_is_said_of_the_request_is_a_recording(
    error: LlmError, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(run_in("record", failing(error))) == type(error).__name__
    for mode in ("auto", "replay"):
        assert said(run_in(mode, answering)) == type(error).__name__
    assert capsys.readouterr().err == ""


def test_reply_that_broke_off_is_a_recording() -> None:
    def model(request: CompletionRequest) -> Any:
        return Reply("Seven", error=ServerFailed("gone", status_code=500))

    assert said(run_in("record", model)) == "ServerFailed"
    assert said(run_in("replay", answering)) == "ServerFailed"


def test_script_that_starts_no_further_run_is_told_at_its_end() -> None:
    done = run_python(
        """
        import contextlib, sys
        import agentnb
        from agentnb.core.errors import MissingKey

        sys.stderr = sys.stdout
        model = agentnb.ScriptedProvider([agentnb.Reply("", error=MissingKey("there is no key"))])
        session = agentnb.Session(provider=model, mode="auto", cassette="x.cassette.jsonl")
        with contextlib.suppress(MissingKey):
            session.spawn("How deep?", name="deep").result(60)
        print("the end")
        """
    )

    last, told = done.splitlines()
    assert last == "the end"
    assert told.startswith("x.cassette.jsonl: run 'deep': agent root got no answer")


def test_old_recording_stays_if_no_model_answers(capsys: pytest.CaptureFixture[str]) -> None:
    run_in("record", answering)
    before, error = PATH.read_bytes(), MissingKey("there is no key")

    assert said(run_in("record", failing(error))) == "MissingKey"

    assert PATH.read_bytes() == before
    assert "the recording of before stays" in capsys.readouterr().err
    assert said(run_in("replay", failing(error))) == "Seven metres."


def tree(replies: dict[str, Any]) -> Any:
    """A root that asks two agents, and answers with what it heard; errors are raised."""

    def model(request: CompletionRequest) -> Any:
        task = task_of(request)
        if task in replies:
            if isinstance(replies[task], Exception):
                raise replies[task]
            return replies[task]
        if sum(message.role == "assistant" for message in request.messages):
            return "both" if "full" not in request.messages[-1].text else "one of two"
        return spawn("a", "b")

    return model


FULL = tree({"a": "the first", "b": Overloaded("full", status_code=529)})
WHOLE = tree({"a": "the first", "b": "the second"})


def test_old_recording_stays_though_much_of_the_new_run_is_in_the_file_already() -> None:
    run_in("record", WHOLE)
    before = PATH.read_bytes()

    assert said(run_in("record", FULL)) == "one of two"

    assert PATH.read_bytes() == before


def test_first_recording_keeps_what_was_answered_and_auto_asks_the_rest() -> None:
    assert said(run_in("record", FULL)) == "one of two"
    kinds = [json.loads(line) for line in PATH.read_text().splitlines()[1:]]
    ends = {each["path"] for each in kinds if each["kind"] == "end" and "path" in each}
    assert ends == {"1"}
    assert said(run_in("replay", WHOLE)) == "NotRecorded"

    asked: list[str] = []

    def model(request: CompletionRequest) -> Any:
        asked.append(task_of(request))
        return WHOLE(request)

    assert said(run_in("auto", model)) == "both"
    assert "a" not in asked
    assert "b" in asked
    assert said(run_in("replay", FULL)) == "both"


def test_failure_that_was_worked_around_is_part_of_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentnb.core._call.retry.TRANSPORT_ATTEMPTS", 2)
    errors = [Overloaded("full", status_code=529, retry_after_s=0.0)]

    def once(request: CompletionRequest) -> Any:
        if errors:
            raise errors.pop()
        return "Seven metres."

    first = run_in("record", once)
    again = run_in("replay", failing(AssertionError()))
    assert said(again) == said(first) == "Seven metres."
    assert [call.error is None for call in Cassette.read(PATH).calls("deep")] == [False, True]


def test_chain_that_moved_on_moves_on_again() -> None:
    def chain(first: Any, second: Any) -> FallbackProvider:
        models = (first, second)
        links = [
            FallbackModel(ScriptedProvider(model), f"scripted/{at}")
            for at, model in enumerate(models)
        ]
        return FallbackProvider(links)

    missing = failing(MissingKey("there is no key"))
    unasked = failing(AssertionError())
    assert said(run_in("record", chain(missing, answering))) == "Seven metres."
    assert said(run_in("replay", chain(unasked, unasked))) == "Seven metres."


def test_failure_in_an_older_cassette_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr("agentnb.cassette.unanswered.is_unanswered", lambda _: False)
        run_in("record", failing(MissingKey("there is no key")))
    assert "MissingKey" in PATH.read_text()
    assert said(run_in("replay", answering)) == "MissingKey"

    assert said(run_in("auto", answering)) == "Seven metres."
    assert said(run_in("replay", failing(AssertionError()))) == "Seven metres."
    assert "MissingKey" not in PATH.read_text()
