"""A stranger's text, planted in every possible source, never acts where it is shown.

Unicode's own tables, not the rule under test, decide here what must not be shown.
"""

from __future__ import annotations

import copy
import json
import pickle
import traceback
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb.__main__ import main
from agentnb.bundles import bundle_of
from agentnb.config.load import load_config
from agentnb.core.budget import RequestBudget
from agentnb.core.context import AgentContext
from agentnb.core.errors import (
    AgentnbError,
    InternalError,
    LlmError,
    RunCancelled,
    ToolError,
    UnknownAgent,
    UnknownModel,
    UnreadableRun,
    show_as_line,
)
from agentnb.core.request import RequestContext
from agentnb.core.text import LONGEST_ERROR
from agentnb.core.types import ToolUse
from agentnb.errors import (
    ConfigError,
    NotebookError,
    UnknownPool,
    UnknownProfile,
    UnreadableNotebook,
)
from agentnb.files import read_file
from agentnb.models import Models
from agentnb.notebook.completion import complete
from agentnb.notebook.line import read_options, words_of
from agentnb.notebook.magics import CELL_OPTIONS, SPAWN_VERBS, AgentMagics
from agentnb.notebook.settings import settings_text
from agentnb.notebook.template import fill
from agentnb.notebook.toolbox import tools_named
from agentnb.prices import Price, set_prices
from agentnb.providers.openai import OpenAIProvider
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.record import RunRecord, load_run
from agentnb.run import Run
from agentnb.session import Session
from agentnb.tools.registry import tools_of
from agentnb.views.freeze import freeze_file
from agentnb.views.outline import lines_below, outline
from tests.loopback import LoopbackServer
from tests.loopback import Reply as Served
from tests.support import DEADLINE_S, spawn

NO_LOOK = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2800"
    "\u3164\ufe00\ufe0f\ufeff\uffa0\U00013430\U0001bca0\U0001d173\U000e0041\U000e0100"
)
HOSTILE = (
    "say\x1b[31m\x1b]0;title\x07 gone\rEVIL\x08\x00\x7f \x9b2J\x85 pay\u202egpj \u2066in\u2069 "
    "a\u2028b l\u206ao\ufff9w\U000e0001 " + "|".join(NO_LOOK) + " \ud800 Z" + "\u0336" * 50
)
LONG = "word " * 4_000
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def acting_in(text: str) -> set[str]:
    """Characters that act on a terminal or change the reading order, except newlines and tabs."""
    return {
        character
        for character in text
        if (unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") and character not in "\n\t")
        or unicodedata.bidirectional(character) in TURNING
        or "\u206a" <= character <= "\u206f"
        or "\ufff0" <= character <= "\ufffb"
        or "\U000e0000" <= character <= "\U000e007f"
    }  # fmt: skip


def unseen_in(text: str) -> set[str]:
    return (set(text) & set(NO_LOOK)) | ({"a pile"} if "\u0336" * 4 in text else set())


def names_in(shown: str) -> None:
    """Check a name or message: no character acts, and none is invisible."""
    assert not acting_in(shown), ascii(shown)
    assert not unseen_in(shown), ascii(shown)
    assert "EVIL" in shown or "say" in shown or "word" in shown, "the words are there, made visible"


# -- errors ---------------------------------------------------------------------------------------


def as_file_name(word: str) -> str:
    return word.replace("\0", "").encode("utf-8", "replace").decode()


def raised_by(action: Callable[[], object]) -> BaseException:
    with pytest.raises((AgentnbError, ValueError, LookupError, TypeError, OSError)) as raised:
        action()
    return raised.value


class Careless(LlmError):
    def __init__(self, message: str) -> None:
        pass  # so that the base class is not called


def errors_about(word: str, folder: Path) -> Iterator[BaseException]:
    """One error of each kind, about a stranger's word."""
    yield from (LlmError(word), NotebookError(word), RunCancelled(word), AgentnbError(word, 5))
    yield ToolError(word)
    yield InternalError.wrapping(KeyError(word), where="here")
    yield UnknownAgent(word, known=[word] * 100)
    yield UnknownModel(word, known=["demo"])
    yield UnknownPool(word, known=[word] * 100, source=word)
    yield UnknownProfile(word, known=[word] * 100, source=word)
    yield UnreadableRun(word, word)
    yield UnreadableNotebook(word, word)
    yield Careless(word)
    file = folder / "run.json"
    for head in ({"version": 99, "agentnb": word}, {"version": word}, {"version": [word]}):
        file.write_text(json.dumps({"format": "agentnb run", **head}), encoding="utf-8")
        yield raised_by(lambda: load_run(file))
    for event in ({"kind": word}, {"kind": "agent_spawned", "agent_id": word}):
        head = {"format": "agentnb run", "version": 1, "run_id": word, "task": word}
        line = {"at_s": 0, "parent_id": word, "task_description": word, "depth": 0} | event
        file.write_text(json.dumps(head | {"entries": [line]}), encoding="utf-8")
        yield raised_by(lambda: load_run(file))
    yield raised_by(lambda: load_run(word))
    yield raised_by(lambda: freeze_file(Path(word)))
    yield raised_by(lambda: read_file(Path(as_file_name(word)), max_bytes=1))
    session = Session("demo")
    for settings in (
        {"model": word}, {"budget": word}, {"config": [word]}, {"delegation": word},
        {"user": [word]},
        {"tools": [word]}, {"store": word}, {"mode": word}, {"max_depth": word}, {"provider": word},
        {"max_concurrency": word}, {"on_budget_warning": word}, {"sub_agent_memory": word},
    ):  # fmt: skip
        made: Any = settings
        yield raised_by(partial(Session, **made))
    yield raised_by(lambda: agentnb.configure(**{word: 1}))
    yield raised_by(lambda: session.spawn("x", profile=word))
    yield raised_by(lambda: session.spawn("x", model=word))
    yield raised_by(lambda: session.spawn_all(["x"], mode=word))
    yield raised_by(lambda: session.spawn_all([{word: word}]))  # type: ignore[list-item]
    wrong: Any = word
    yield raised_by(lambda: AgentContext(recalled_memories=wrong))
    yield raised_by(lambda: AgentContext(conversation_history=(wrong,)))
    yield raised_by(lambda: RequestContext(RequestBudget(1), max_depth=wrong))
    yield raised_by(lambda: RequestBudget(wrong))
    yield raised_by(lambda: set_prices({word: wrong}))
    yield raised_by(lambda: Price(input=wrong, output=1))
    yield raised_by(lambda: tools_of(wrong))
    yield raised_by(lambda: agentnb.tool(wrong))
    yield raised_by(lambda: Models([word], provider=None, config=session.config))
    # The text after a magic.
    yield raised_by(lambda: fill("{{" + word + "}}", {}))
    yield raised_by(lambda: fill("{{" + f"a[{word!r}]" + "}}", {"a": {}}))
    yield raised_by(lambda: tools_named([word], {}, ()))
    yield raised_by(lambda: tools_named([word], {word: 5}, ()))
    yield raised_by(lambda: words_of(f"'{word}"))
    for option in ("--budget", "--max-depth", "--tools", "-o", f"--{word}"):
        typed = [option, f",{word}"]
        yield raised_by(partial(read_options, typed, CELL_OPTIONS, magic="%%spawn"))
    magics: Any = AgentMagics(None)
    quoted = f'"{word}"'
    for magic in (quoted, f"mode {quoted}", f"config {quoted}"):
        yield raised_by(partial(magics.agentnb, magic))
    for magic in (quoted, f"status --run {quoted}", f"help {quoted}"):
        yield raised_by(partial(magics.spawn, magic))


def test_no_error_holds_what_acts_or_has_no_look(tmp_path: Path) -> None:
    for error in errors_about(HOSTILE, tmp_path):
        show_as_line(error)
        line = "".join(error._render_traceback_())  # type: ignore[attr-defined]
        for shown in (str(error), repr(error), line):
            if not isinstance(error, OSError):  # Python writes the text of these
                names_in(shown)
            assert not acting_in(shown), ascii(shown)
        if isinstance(error, AgentnbError):
            for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
                assert (str(other), repr(other)) == (str(error), repr(error))
                assert other.args == error.args


def test_every_error_has_a_greatest_length(tmp_path: Path) -> None:
    for error in errors_about(LONG, tmp_path):
        show_as_line(error)
        line = "".join(error._render_traceback_())  # type: ignore[attr-defined]
        for shown in (str(error), repr(error), line):
            assert len(shown) <= LONGEST_ERROR + 100, type(error)


def test_error_that_is_cut_still_ends_with_what_to_do() -> None:
    error = LlmError(f"The server said {LONG}. Set the key to one that is valid.")

    assert len(str(error)) <= LONGEST_ERROR
    assert str(error).startswith("The server said word")
    assert str(error).endswith("Set the key to one that is valid.")


def test_model_gets_the_text_of_a_tools_error_unchanged() -> None:
    error = ToolError(HOSTILE)

    assert error.for_model == HOSTILE
    assert error.args == (HOSTILE,)
    names_in(str(error))


# -- what a server says ---------------------------------------------------------------------------


KIND = f"bad{HOSTILE}"
ERROR = {"type": "error", "error": {"type": KIND, "code": KIND, "message": HOSTILE}}


@pytest.mark.parametrize("model", ["anthropic/m", "openai/m"])
@pytest.mark.parametrize("body", [json.dumps(ERROR), HOSTILE], ids=["json", "text"])
def test_words_and_kind_of_a_servers_error_do_nothing(
    model: str, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = Served(status=400, body=body.encode("utf-8", "replace"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k" * 20)
    monkeypatch.setenv("OPENAI_API_KEY", "k" * 20)
    with LoopbackServer({"": reply}) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        run = Session(model).spawn("Say hello")
        with pytest.raises(LlmError) as raised:
            run.result(DEADLINE_S)

    trace = "".join(traceback.format_exception(raised.value))
    for shown in (str(raised.value), repr(raised.value), str(run.tree), outline_of(run), trace):
        assert not acting_in(shown), ascii(shown)
        assert not unseen_in(shown), ascii(shown)
    assert "EVIL" in str(raised.value)
    assert "(badsay" in str(raised.value) or body is HOSTILE
    for error in (part for part in run.events if hasattr(part.event, "error")):
        assert not acting_in(str(error.event.error))  # type: ignore[union-attr]


# -- every view of a run --------------------------------------------------------------------------


def hostile_run(word: str) -> Run:
    """A run in which every text of a model, a tool, a person and a provider is a stranger's."""

    @agentnb.tool
    def shout(words: str) -> str:
        """Fail aloud."""
        raise ToolError(word)

    replies: list[str | Reply | LlmError] = [
        Reply(
            word,
            tool_uses=(
                ToolUse("1", f"no{word}", {word: word}),
                ToolUse("2", "shout", {"words": word}),
            ),
        ),
        spawn(f"A {word}", f"B {word}", f"C {word}", mode="sequential", before=word),
        word,
        LlmError(word, status_code=401),
        Reply(word, error=LlmError(word, status_code=401)),
        f"**The end** {word}",
    ]  # fmt: skip
    provider = ScriptedProvider(replies)
    session = Session(f"scripted/{word}", provider=provider, tools=[shout], soul=word)
    run = session.spawn(f"T {word}")
    run.result(DEADLINE_S)
    return run


def outline_of(run: RunRecord) -> str:
    assert run.tree is not None
    return outline(run.tree, notes=lines_below(run.tool_counts, run.notes))


def named(run: RunRecord) -> Iterator[str]:
    """What a person sees of a run, without the texts that are shown as paragraphs."""
    yield from (repr(run), str(run), repr(run.tree), str(run.tree), outline_of(run))
    yield from (repr(run.cost), str(run.cost), run.cost.amount, repr(run.agents), repr(run.events))
    for agent in run.agents:
        yield from (repr(agent), repr(agent.cost), str(agent.subtree_cost))
    for figure in (run.plot(), run.plot_timeline(), run.plot_tokens()):
        yield from (repr(figure), figure.alt_text)
    values: Iterable[Any] = (run.tree, run.cost, run.agents, run.events)
    for value in values:
        yield from bundle_of(value).values()


def paragraphs(run: RunRecord) -> Iterator[str]:
    """Outputs that keep a text's layout, and Python's own `repr` of plain values."""
    values: list[Any] = [run, *run.agents, run.notes, run.usage, run.to_json()]
    values += [entry.event for entry in run.events]
    for value in values:
        yield repr(value)
        yield from bundle_of(value).values()
    yield run.to_json()


def check_looks(run: RunRecord) -> None:
    for shown in named(run):
        assert not acting_in(shown), ascii(shown)
        assert not unseen_in(shown), ascii(shown)
    for shown in paragraphs(run):
        assert not acting_in(shown), ascii(shown)


def test_nothing_acts_in_any_look_at_a_run_its_result_or_its_record(tmp_path: Path) -> None:
    run = hostile_run(HOSTILE)

    check_looks(run)
    result = run.result(DEADLINE_S)
    for value in (result, *result.sub_agent_results, *result.memory_contexts, *result.incomplete):
        assert not acting_in(repr(value)) | unseen_in(repr(value))
        for shown in bundle_of(value).values():
            assert not acting_in(shown), ascii(shown)
    for shown in (repr(result.sub_agent_results), repr(result.incomplete), repr(result.agent_tree)):
        assert not acting_in(shown) | unseen_in(shown)
    assert result.final_response == f"**The end** {HOSTILE}", "the value is as it was said"

    run.to_json(tmp_path / "run.json")
    loaded = load_run(tmp_path / "run.json")
    check_looks(loaded)
    assert loaded.output == run.output
    assert loaded.task == run.task


def test_magics_print_nothing_that_acts() -> None:
    run = hostile_run(HOSTILE)

    for verb in ("status", "cancel"):
        shown = SPAWN_VERBS[verb].act(run, [])
        assert not acting_in(shown) | unseen_in(shown)


def test_run_whose_root_fails_says_so_without_acting() -> None:
    provider = ScriptedProvider([LlmError(HOSTILE, status_code=401)])
    run = Session(provider=provider).spawn(HOSTILE)
    with pytest.raises(LlmError) as raised:
        run.result(DEADLINE_S)

    names_in(str(raised.value))
    names_in("".join(traceback.format_exception(raised.value)))
    check_looks(run)


def test_provider_that_breaks_in_a_strangers_words_is_told_without_acting() -> None:
    class Broken(ScriptedProvider):
        name = HOSTILE

        def stream(self, request: Any) -> Any:
            raise KeyError(HOSTILE)

    run = Session(provider=Broken([])).spawn("x")
    with pytest.raises(InternalError) as raised:
        run.result(DEADLINE_S)

    names_in(str(raised.value))
    trace = "".join(traceback.format_exception(raised.value))
    assert not acting_in(trace), ascii(trace)
    check_looks(run)


# -- settings and the command line -----------------------------------------------------------------


def in_yaml(word: str) -> str:
    """As a double-quoted scalar of YAML, which has an escape for every character."""
    kept = "".join(c for c in word if not "\ud800" <= c <= "\udfff")
    return '"' + "".join(c if c.isalnum() else f"\\U{ord(c):08x}" for c in kept[:100]) + '"'


def test_settings_file_shows_its_names_without_acting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    word = in_yaml(HOSTILE)
    file = tmp_path / as_file_name(HOSTILE)[:60]
    file.write_text(
        f"""
tools:
  spawn:
    profiles:
      good: {{description: {word}, tools: [{"a"}], pool: p}}
      {word}: {{description: x}}
      bad: {{{word}: x, pool: {word}, system_prompt_file: {word}}}
llm:
  pools: {{p: [{in_yaml("openai/" + HOSTILE)}, demo]}}
""",
        encoding="utf-8",
    )
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(f"session: {{budget: {word}, delegation: [{word}], {word}: 1}}", "utf-8")
    with pytest.raises(ConfigError) as raised:
        load_config(wrong)
    assert len(raised.value.mistakes) == 3
    for mistake in str(raised.value).splitlines()[1:]:
        names_in(mistake)
    config = load_config(file)
    session = Session(config=config, model="pool:p")

    for shown in (settings_text(session), repr(session), repr(config)):
        assert not acting_in(shown), ascii(shown)
        assert not unseen_in(shown), ascii(shown)
    of_a_run = sum(line.endswith(" (the default)") for line in settings_text(session).splitlines())
    assert settings_text(session).count("\n") - of_a_run < 30
    with pytest.raises(ConfigError) as raised:
        session.spawn("x", profile="bad")
    names_in(str(raised.value))
    names_in(repr(raised.value))
    offered = complete("%%spawn --model ", session, {}, lambda: config)
    assert offered is not None
    assert not any(acting_in(each) | unseen_in(each) for each in offered[1])


@pytest.mark.parametrize(
    "text",
    [
        f"a: !{in_yaml(HOSTILE)[1:-1]} x",
        f"{in_yaml(HOSTILE)}: 1\n{in_yaml(HOSTILE)}: 2",
        f"tools: {in_yaml(HOSTILE)}\nllm: [{in_yaml(HOSTILE)}]",
        "a: \u202e*x",
        "a: @\u115f",
        f"llm: {{default_pool: {in_yaml(HOSTILE)}, pools: {{{in_yaml(HOSTILE)}: [x]}}}}",
        f"llm: {{providers: {{openai: {{base_url: {in_yaml(HOSTILE)}}}}}}}",
        f"llm: {{providers: {{openai: {{api_key_env: {in_yaml(HOSTILE)}}}}}}}",
    ],
)
def test_what_is_wrong_with_a_settings_file_is_told_without_acting(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "agentnb.yaml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as raised:
        load_config(file)

    for shown in (str(raised.value), repr(raised.value)):
        assert not acting_in(shown) | unseen_in(shown), ascii(shown)


@pytest.mark.parametrize(
    "arguments",
    [[HOSTILE], ["freeze", HOSTILE], ["freeze"], [f"--{HOSTILE}"], ["freeze", "x", f"--{HOSTILE}"]],
)
def test_command_line_says_nothing_that_acts(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit):  # argparse exits so
        main(arguments)

    said = capsys.readouterr()
    assert not acting_in(said.out + said.err) | unseen_in(said.out + said.err)


def test_providers_and_tools_show_themselves_without_acting() -> None:
    @agentnb.tool
    def look(a: int) -> str:
        """Look."""
        return ""

    session = Session([f"openai/{HOSTILE}", "demo"])
    shown = [
        repr(session),
        repr(session._models.resolve()[0]) if hasattr(session, "_models") else "",
    ]
    shown += [repr(look), repr(OpenAIProvider(base_url=f"http://x/{HOSTILE}"))]
    for each in shown:
        assert not acting_in(each) | unseen_in(each), ascii(each)
