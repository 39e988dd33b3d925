"""A lesson's settings file says its mode, its cassette, and what a student reads of a miss."""

from __future__ import annotations

from pathlib import Path

import pytest

import agentnb
from agentnb import ScriptedProvider, Session
from agentnb.config import load_config
from agentnb.core.errors import NotRecorded
from agentnb.errors import BadCassette, UntrustedSettings
from agentnb.repeat import counted_anew
from agentnb.trust import trust

CASSETTES = ("rivers", "lakes")
REPLAY = "mode: replay\ncassette: rivers.cassette.jsonl\n"


@pytest.fixture(autouse=True)
def _folder(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with two recordings, in which no settings file is trusted."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    for name in ("AGENTNB_MODE", "AGENTNB_CASSETTE", "AGENTNB_TRUST", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name in CASSETTES:
        asked("Plan.", answer=name, mode="record", cassette=f"{name}.cassette.jsonl")


def asked(task: str, answer: str | None = None, **settings: object) -> object:
    """What a run in a new kernel answers; without an answer its model is an error."""
    provider = ScriptedProvider([] if answer is None else [answer])
    with counted_anew():
        session = Session(provider=provider, store=None, **settings)  # type: ignore[arg-type]
        return session.run_sync(task).output


def write(text: str) -> None:
    Path("agentnb.yaml").write_text(text)


def test_file_says_mode_and_cassette_without_trust() -> None:
    write(REPLAY)

    assert asked("Plan.") == "rivers"
    assert Session(store=None).mode.why == "agentnb.yaml"


def test_code_and_environment_are_heard_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write(REPLAY)
    assert asked("Plan.", cassette="lakes.cassette.jsonl") == "lakes"
    assert asked("Plan.", answer="new", mode="live") == "new"
    monkeypatch.setenv("AGENTNB_CASSETTE", "lakes.cassette.jsonl")
    assert asked("Plan.") == "lakes"
    monkeypatch.setenv("AGENTNB_MODE", "live")
    assert asked("Plan.", answer="new") == "new"


@pytest.mark.parametrize("mode", ["auto", "record", "live"])
def test_mode_that_asks_models_needs_trust(mode: str) -> None:
    write(f"mode: {mode}\ncassette: rivers.cassette.jsonl\n")
    before = Path("rivers.cassette.jsonl").read_bytes()

    with pytest.raises(UntrustedSettings, match=f"mode: {mode}"):
        asked("Another.", answer="new")
    assert Path("rivers.cassette.jsonl").read_bytes() == before

    assert f"mode: {mode}" in trust(load_config("agentnb.yaml"))
    assert asked("Another.", answer="new") == "new"


@pytest.mark.parametrize("mode", ["", "mode: replay\n"])
def test_cassette_that_code_writes_to_needs_trust_and_can_get_it(mode: str) -> None:
    write(f"{mode}cassette: rivers.cassette.jsonl\n")

    with pytest.raises(
        UntrustedSettings, match=r"be recorded in 'rivers.*`cassette` from the file"
    ):
        asked("Another.", answer="new", mode="auto")
    assert asked("Plan.", mode="replay") == "rivers"

    assert "runs may be recorded in 'rivers" in trust(load_config("agentnb.yaml"))
    assert asked("Another.", answer="new", mode="auto") == "new"


def test_student_reads_the_authors_sentence() -> None:
    write(f"{REPLAY}not_recorded: Change the prompt back, or ask your tutor.\n")

    with pytest.raises(NotRecorded) as raised:
        asked("Plan!")

    said = str(raised.value)
    assert said.endswith("\nChange the prompt back, or ask your tutor.")
    assert "mode auto" not in said
    assert "[-Plan.-]{+Plan!+}" in said or "Plan{+!+}" in said or "Plan[-.-]{+!+}" in said


@pytest.mark.parametrize("copy", ["rivers (1)", "rivers(2)", "rivers-Copy1"])
def test_copy_of_a_notebook_is_told_which_name_it_needs(
    copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(f"{copy}.ipynb").touch()
    monkeypatch.setenv("JPY_SESSION_NAME", str(Path(f"{copy}.ipynb").absolute()))

    with pytest.raises(BadCassette) as raised:
        asked("Plan.", mode="replay")

    assert "Rename this copy of the notebook to 'rivers.ipynb'" in str(raised.value)
    assert agentnb.AgentnbError in type(raised.value).__mro__
