"""The form `new:PROVIDER/MODEL`, and what it names."""

from __future__ import annotations

import pytest

from agentnb.config import config_of
from agentnb.core.errors import BadAssignment
from agentnb.models import Models
from agentnb.providers.scripted import ScriptedProvider
from agentnb.tasks.assignment import NewAgent, check_assignment, parse_assignment

GOOD = {
    "new:demo/demo": NewAgent("demo", "demo"),
    "new:scripted/any": NewAgent("scripted", "any"),
    "new:anthropic/claude-sonnet-5-5": NewAgent("anthropic", "claude-sonnet-5-5"),
    "new:openai/org/model:tag": NewAgent("openai", "org/model:tag"),
    "new:openai/a:b:c": NewAgent("openai", "a:b:c"),
    "new:openai//x": NewAgent("openai", "/x"),
    "new:careful:anthropic/m": NewAgent("anthropic", "m", "careful"),
    "new:careful:openai/org/model:tag": NewAgent("openai", "org/model:tag", "careful"),
    "new:anthropic:openai/x": NewAgent("openai", "x", "anthropic"),
    "new:new:demo/demo": NewAgent("demo", "demo", "new"),
}
BAD: list[object] = [
    "new:",
    "new:anthropic",
    "new:demo",
    "new:careful:demo",
    "new:anthropic/",
    "new:careful:anthropic/",
    "new:/m",
    "new:/",
    "new:careful:/m",
    "new::p/m",
    "new::/m",
    "new:a:b:p/m",
    *(f"new:openai/a{space}b" for space in (" ", "\t", "\n", "\r", "\x1f", "\x85", "\u3000")),
    "new:openai/a\u200b",
    "new: openai/a",
    "new :openai/a",
    " new:openai/a",
    "new:openai/a ",
    "new:openai/a\u2028",
    "anthropic/x",
    "careful:anthropic/x",
    "New:anthropic/x",
    None,
    5,
    b"new:demo/demo",
    ["new:demo/demo"],
]


@pytest.mark.parametrize(("form", "new"), GOOD.items(), ids=GOOD)
def test_good_form_is_read(form: str, new: NewAgent) -> None:
    assert parse_assignment(form) == new
    assert str(new) == form


@pytest.mark.parametrize("form", BAD, ids=repr)
def test_bad_form_is_an_error_with_the_right_one(form: object) -> None:
    with pytest.raises(BadAssignment, match="new:provider/model") as refused:
        parse_assignment(form)

    assert refused.value.given == form


@pytest.mark.parametrize("thread", ["nb_20261123_k3x9aa", "nb_20261123_k3x9aa.1", "", "reviewer"])
def test_anything_else_is_a_thread(thread: str) -> None:
    assert parse_assignment(thread) is None


def check(form: str, *, provider: ScriptedProvider | None = None) -> None:
    new = parse_assignment(form)
    assert new is not None
    models = Models(None, provider=provider, config=config_of(False))
    check_assignment(new, providers=models.provider_names, profiles=["careful", "anthropic"])


@pytest.mark.parametrize(
    "form", ["new:demo/demo", "new:openai/org/model:tag", "new:careful:anthropic/m"]
)
def test_registered_providers_and_profiles_are_known(form: str) -> None:
    check(form)


def test_profile_may_be_called_like_a_provider() -> None:
    check("new:anthropic:openai/x")

    with pytest.raises(BadAssignment, match="no profile 'openai'"):
        check("new:openai:anthropic/x")


def test_sessions_own_provider_is_known_by_its_name() -> None:
    check("new:scripted/any", provider=ScriptedProvider([]))

    with pytest.raises(BadAssignment, match="no provider 'scripted'"):
        check("new:scripted/any")


@pytest.mark.parametrize("form", ["new:nobody/m", "new:careful:nobody/m", "new:pool/deep"])
def test_unknown_provider_is_an_error_with_the_known_ones(form: str) -> None:
    with pytest.raises(BadAssignment, match="no provider") as refused:
        check(form, provider=ScriptedProvider([]))

    assert refused.value.given == form
    assert refused.value.known == ("scripted", "anthropic", "demo", "openai")


def test_unknown_profile_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(BadAssignment, match="no profile 'careless'") as refused:
        check("new:careless:demo/demo")

    assert refused.value.known == ("careful", "anthropic")
