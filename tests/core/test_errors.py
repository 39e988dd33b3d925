"""Errors form the tree that is drawn, say what to do, and survive the way to another process."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from agentnb import errors as errors_of_a_person
from agentnb.core import errors
from agentnb.core.errors import (
    AgentEnded,
    AgentnbError,
    AmbiguousRun,
    BadAssignment,
    CannotRecover,
    InternalError,
    InvalidOutput,
    LlmError,
    McpServerFailed,
    MissingExtra,
    NoAnswer,
    NoOpenQuestion,
    NoSuchMemory,
    NoSuchRun,
    NoSuchSession,
    NoSuchTask,
    NoSuchThread,
    NotAllowed,
    OrchestratorError,
    RateLimited,
    RunCancelled,
    RunChanged,
    SessionBudgetUsedUp,
    SessionClosed,
    TaskInProgress,
    ToolError,
    UnknownAgent,
    UnknownModel,
    UnreadableRun,
)
from agentnb.core.shown import listed
from agentnb.core.types import AgentNode, AgentStatus, OrchestratorResult
from agentnb.errors import (
    UPDATE,
    BadCassette,
    CheckFailed,
    ConfigError,
    ConfigMistake,
    ModeChanged,
    NoCassette,
    NotebookError,
    TrustNotKept,
    UnknownPool,
    UnknownPrice,
    UnknownProfile,
    UnreadableNotebook,
    UntrustedSettings,
)
from tests.messages import VALUE, Message, messages_in, sentences

PACKAGE = Path(errors_of_a_person.__file__).parent
MODULES = (errors, errors_of_a_person)
CLASSES = [
    cls
    for module in MODULES
    for _, cls in inspect.getmembers(module, inspect.isclass)
    if issubclass(cls, AgentnbError) and cls.__module__ == module.__name__
]
LLM_ERRORS = [cls for cls in CLASSES if issubclass(cls, LlmError)]


def _drawn_tree() -> set[tuple[str, str]]:
    """Child and parent for each class in the modules' docstrings."""
    above: list[str] = []
    pairs = set()
    for line in "\n".join(str(module.__doc__) for module in MODULES).splitlines():
        drawn = re.match(r"^    ((?:│   |    )*)(?:[├└]── )?([A-Z].*)$", line)
        if drawn is None:
            continue
        depth = (len(line) - len(line.lstrip(" │├└─"))) // 4 - 1
        names = re.match(r"(\w+(?:, \w+)*)", drawn.group(2))
        assert names is not None
        del above[depth:]
        for name in names.group(1).split(", "):
            if above:
                pairs.add((name, above[-1]))
        above.append(names.group(1))
    return pairs


def test_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    real = {(cls.__name__, cls.__bases__[0].__name__) for cls in CLASSES if cls is not AgentnbError}

    assert len(real) > 15
    assert _drawn_tree() == real


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_says_when_it_is_raised(cls: type[AgentnbError]) -> None:
    assert cls.__doc__


def test_bad_names_are_also_what_plain_python_would_raise() -> None:
    assert issubclass(UnknownAgent, LookupError)
    assert issubclass(NoSuchRun, LookupError)
    assert issubclass(AmbiguousRun, LookupError)
    assert issubclass(UnknownModel, ValueError)
    assert issubclass(UnknownPool, ValueError)
    assert issubclass(UnknownProfile, ValueError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(NotebookError, ValueError)
    assert issubclass(MissingExtra, ImportError)


# -- calls to a model --------------------------------------------------------------------------


@pytest.mark.parametrize("cls", LLM_ERRORS)
def test_failed_call_says_whether_and_when_to_try_again(cls: type[LlmError]) -> None:
    plain = cls("m")
    told = cls("m", retryable=not plain.retryable, retry_after_s=2.5, status_code=500)

    assert plain.retryable is cls.default_retryable
    assert (plain.retry_after_s, plain.status_code, plain.partial_result) == (None, None, None)
    assert told.retryable is not plain.retryable
    assert (told.retry_after_s, told.status_code) == (2.5, 500)


def test_transport_failures_are_tried_again_and_what_cannot_change_is_not() -> None:
    retryable = {cls.__name__ for cls in LLM_ERRORS if cls("m").retryable}
    permanent = {cls.__name__ for cls in LLM_ERRORS if cls("m").permanent}

    assert retryable == {
        "RateLimited",
        "Overloaded",
        "ServerFailed",
        "ConnectionFailed",
        "StreamBroken",
        "WorkerLost",
    }
    assert permanent == {
        "MissingKey",
        "NoCredit",
        "AuthenticationFailed",
        "InvalidRequest",
        "ModelNotFound",
        "NotRecorded",
        "Refused",
        "NoPrice",
        "ClusterFailed",
    }


@pytest.mark.parametrize("status_code", [400, 401, 403, 404, 413])
def test_status_that_asking_again_cannot_change_is_permanent(status_code: int) -> None:
    assert LlmError("m", status_code=status_code).permanent
    assert not LlmError("m", status_code=500).permanent
    assert not LlmError("m").permanent


# -- on the way to another process -------------------------------------------------------------


def _result() -> OrchestratorResult:
    node = AgentNode("a", None, "root", "t", 0, AgentStatus.FAILED)
    return OrchestratorResult(AgentStatus.FAILED, "so far", node)


ONE_OF_EACH: list[AgentnbError] = [
    *(cls("what happened", retry_after_s=3.0, status_code=404) for cls in LLM_ERRORS),
    AgentnbError("m"),
    OrchestratorError("m"),
    NoAnswer("The model gave no answer. Put the task in other words."),
    UntrustedSettings("agentnb.yaml", what="the key", where="https://a", allow="allow it"),
    UntrustedSettings("agentnb.yaml", does="code would go", allow="allow it", key="engines.lab"),
    TrustNotKept("agentnb.yaml", "no room"),
    SessionBudgetUsedUp("$20.00 of $20.00"),
    InvalidOutput("Report", "score: Input should be a valid integer"),
    McpServerFailed("files", "it exited with code 1; there is no configuration"),
    RunCancelled("enough"),
    RunCancelled(),
    InternalError.wrapping(KeyError("k"), where="here"),
    UnknownAgent("1.9", known=["root", "1"]),
    NoSuchRun("019a"),
    UnknownModel("gpt", known=["anthropic", "demo"]),
    CheckFailed("2 agents", "3", tree="> root", paths=["root"]),
    UnknownPrice("a cost under $1", "none", tree="> root", paths=["root"]),
    UnknownPool("slow", known=["fast"], source="agentnb.yaml"),
    UnknownProfile("writer", known=["reviewer"], source="agentnb.yaml"),
    ConfigError("agentnb.yaml", [ConfigMistake("llm.pool", 3, "There is no such key here.")]),
    NoOpenQuestion(),
    NoOpenQuestion("q2", ["q1"]),
    AgentEnded("2.1"),
    AgentEnded("root", "paused"),
    NoSuchRun("7f"),
    CannotRecover("7f", "it was cancelled; start its task again"),
    RunChanged("7f01", {"1.2": "its call differs from the recorded one"}),
    NoSuchMemory(7),
    AmbiguousRun("7f", known=["7f01", "7f1a"]),
    UnreadableRun("run.json", "it is JSON, but not a run"),
    NoSuchThread("nb_20261101_k3x9aa"),
    NoSuchThread("last", mode="replay"),
    NoSuchSession("nb_20261101_k3x9aa"),
    NoSuchSession("last", mode="replay"),
    SessionClosed(),
    NoSuchTask("t9", known=["t1", "t2"]),
    TaskInProgress("t1", "nb_20261101_k3x9aa.1"),
    NotAllowed("t1"),
    BadAssignment("new:gpt", "there is no `/` in it", known=["demo"]),
    UnreadableNotebook("a.ipynb", "it is a folder"),
    BadCassette("a.cassette.jsonl", 3, "it was cut"),
    BadCassette("a.cassette.jsonl", None, "a newer agentnb wrote it", fix=UPDATE),
    ModeChanged("live", "replay"),
    NoCassette("Mode `replay` needs a cassette."),
    MissingExtra("matplotlib", extra="plots"),
    ToolError("m"),
    NotebookError("m"),
]


def test_one_of_each_error_is_here() -> None:
    assert {type(error) for error in ONE_OF_EACH} == set(CLASSES)


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda e: type(e).__name__)
def test_error_that_was_pickled_or_copied_says_the_same(error: AgentnbError) -> None:
    if isinstance(error, OrchestratorError):
        error = copy.copy(error)
        error.partial_result = _result()

    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert (str(other), other.args) == (str(error), error.args)
        assert vars(other) == vars(error)
        assert other is not error


def test_copy_of_an_error_is_changed_on_its_own() -> None:
    error = RateLimited("slow down")
    other = copy.copy(error)
    other.retry_after_s = 9.0

    assert error.retry_after_s is None


# -- words -------------------------------------------------------------------------------------


# Their callers write the message.
WRITTEN_ELSEWHERE = {
    *LLM_ERRORS, AgentnbError, ConfigError, NoCassette, NotebookError, OrchestratorError, ToolError
}  # fmt: skip
# Who stopped a run; where a bug is; the tree of a run that is not as expected.
WITHOUT_FIX = {RunCancelled, InternalError, CheckFailed, UnknownPrice}
# Where a clause begins: a fix tells the reader to do something.
FIX = re.compile(
    r"(?:^|[:;,(] )(?:(?:or|else|and|then|so) )*(?:add|allow|answer one|ask|await|call|cancel|"
    r"check|choose|copy|correct|create|define|did you mean|give|import|install|keep|leave|let|look|"
    r"move|name|open|pass|put|raise|record|remove|rename|rephrase|restore|run|save|set|shorten|"
    r"simplify|start|stop|try|type|use|wait|write)\b|can be changed by",
    re.IGNORECASE,
)
# A model reads them, as the result of its call.
FOR_A_MODEL = {"ToolError", "CannotRead", "ServerGone"}


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda e: type(e).__name__)
def test_error_is_one_sentence_with_the_fix_or_has_the_fix_as_its_second_and_last(
    error: AgentnbError,
) -> None:
    said = sentences(str(error))

    assert len(said) <= 2, said
    if type(error) not in WRITTEN_ELSEWHERE | WITHOUT_FIX:
        assert FIX.search(said[-1]), said


@cache
def _messages() -> list[Message]:
    return [each for each in messages_in(PACKAGE.rglob("*.py")) if each.error not in FOR_A_MODEL]


def _too_long(messages: list[Message]) -> set[tuple[str, str]]:
    """Place and text of the messages with more than one sentence and a fix."""
    return {
        (each.place, each.text)
        for each in messages
        if len(sentences(each.text)) > (1 if each.is_fix else 2)
    }


def _without_fix(messages: list[Message]) -> set[tuple[str, str]]:
    """Place and text of the messages whose second sentence does not say what to do."""
    return {
        (each.place, each.text)
        for each in messages
        if len(said := sentences(each.text)) == 2 and said[1] != VALUE and not FIX.search(said[1])
    }


def test_no_error_in_the_source_has_more_than_one_sentence_and_its_fix() -> None:
    assert len(_messages()) > 1_000
    assert _too_long(_messages()) == set()


def test_second_sentence_of_an_error_in_the_source_says_what_to_do() -> None:
    assert len([each for each in _messages() if len(sentences(each.text)) == 2]) > 50
    assert _without_fix(_messages()) == set()


PLANTED = """
NOTE = "It is red. It is round."
def note(of): return f"The {of} is red. It is round. Use another."
class Red(Exception):
    def __init__(self, why, fix=""):
        super().__init__(f"{why} is red. It is round. {fix}")
def raised(a, b):
    hint = " Use another." if a else ""
    if a: raise ValueError("It is red. It is round. Use another.")
    if a: raise ValueError(f"{a!r} is red. It is round.{hint}")
    if a: raise KeyError(NOTE + " Use another.")
    if a: raise TypeError(note(a))
    if a: raise Red(a, fix="Use another. It is better.")
    if a: return OSError(f"{a} is red. It is round. {b}")
    if a: raise ConfigError(a, [ConfigMistake("", None, "Red. Round. Use another.")])
    raise ValueError(f"{a} is red. It is round.")
"""


def test_three_sentences_in_the_source_are_found_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    found = list(messages_in([tmp_path / "planted.py"]))

    lines = {int(place.partition(":")[2]) for place, _ in _too_long(found)}
    assert lines == {6, 9, 10, 11, 12, 13, 14, 15}
    assert _without_fix(found) >= {("planted.py:16", "X is red. It is round.")}


@pytest.mark.parametrize(
    ("message", "count"),
    [
        ("It is red", 1),
        ("It is red.", 1),
        ("It is red: use another.", 1),
        ("It is red. Use another.", 2),
        ("Is it red? Use another!", 2),
        ("It is red. It is round. Use another.", 3),
        ("It is red (very. really so). Use another.", 3),
        ('He said "It is. So. What." of it.', 1),
        ("The answer 'No. Never. Not at all.' of the server's own. Use another.", 2),
        ("Write `a. B. C.` for it, e.g. `d. E.`, i.e. all. Use another.", 2),
        ("agentnb.yaml costs $20.00 at gpu.example.invalid. Use 3.5 of it.", 2),
        ("agentnb.yaml is red. agentnb.yml is not. Use another.", 3),
        ("`agentnb.mcp(..., name=...)` or so... and on. Use another.", 2),
        ("agentnb.yaml has 2 mistakes.\n  line 1: It is red. Use another.\n  line 2: No.", 2),
        ("2 mistakes.\n  line 1: It is red. It is round. Use another.", 3),
        ("It is red.\nIt is round.\nUse another.", 1),
    ],
)
def test_sentences_are_counted_without_code_quotations_files_and_numbers(
    message: str, count: int
) -> None:
    assert len(sentences(message)) == count


@pytest.mark.parametrize("order", ["sent a note", "paused", "resumed"])
def test_order_for_what_has_ended_names_what_takes_it(order: str) -> None:
    assert str(AgentEnded("root", order)) == (
        f"This run has ended, so it cannot be {order}: start a new one."
    )
    assert str(AgentEnded("2.1", order)) == (
        f"The agent '2.1' has ended, so it cannot be {order}: choose one that `run.tree` shows at "
        "work."
    )


def test_unknown_agent_names_the_known_ones_and_how_to_say_it() -> None:
    error = UnknownAgent("9", known=["root", "1", "1.1"])

    assert (error.name, error.known) == ("9", ("root", "1", "1.1"))
    assert str(error) == (
        "This run has no agent '9' so far (known: 'root', '1', '1.1'): "
        "give the path or the id of one of them."
    )


def test_unknown_agent_of_a_large_run_names_the_first_twenty() -> None:
    text = str(UnknownAgent("x", known=[str(n) for n in range(1000)]))

    assert "'19' and 980 more)" in text
    assert "'20'" not in text
    assert "(known: none yet)" in str(UnknownAgent("x", known=[]))


def test_unknown_run_says_where_the_known_ones_are_listed() -> None:
    error = NoSuchRun("7f")

    assert error.run == "7f"
    assert "'7f'" in str(error)
    assert "`agentnb.runs()`" in str(error)


def test_ambiguous_run_gives_each_as_much_of_its_id_as_tells_it_from_the_others() -> None:
    error = AmbiguousRun("7f", known=["7f1a9", "7f01c", "7f1b3"])

    assert (error.run, error.known) == ("7f", ("7f1a9", "7f01c", "7f1b3"))
    assert str(error) == (
        "3 runs have an id that begins with '7f' (newest first: '7f1a', '7f0', '7f1b'): "
        "give more characters of the id."
    )


def test_unknown_model_names_the_providers_and_the_way_without_a_key() -> None:
    error = UnknownModel("gpt", known=["anthropic", "demo"])

    assert "'gpt'" in str(error)
    assert "anthropic, demo" in str(error)
    assert "`demo`, which needs no key" in str(error)


def test_cancelled_run_says_why_where_that_is_known() -> None:
    assert RunCancelled("enough").reason == "enough"
    assert "cancelled (enough)" in str(RunCancelled("enough"))
    assert str(RunCancelled()) == "The run was cancelled."


def test_bug_is_told_by_its_type_its_place_and_its_text_on_one_line() -> None:
    error = InternalError.wrapping(LookupError("two\nlines"), where="the provider 'x'")

    assert str(error) == "Unexpected LookupError in the provider 'x': two lines"
    assert str(InternalError.wrapping(LookupError(), where="w")).endswith(": no message")


def test_missing_extra_says_what_to_install() -> None:
    assert "`pip install 'agentnb[plots]'`" in str(MissingExtra("matplotlib", extra="plots"))


def test_missing_extra_of_a_folder_that_is_not_installed_names_the_folder_not_the_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", nothing)

    said = str(MissingExtra("matplotlib", extra="plots"))

    assert "`pip install -e '.[plots]'` in the folder of agentnb" in said


def test_names_that_are_known_are_listed_up_to_twenty_and_then_counted() -> None:
    names = [f"n{n}" for n in range(1_300)]

    for error in (
        UnknownPool("x", known=names, source="agentnb.yaml"),
        UnknownProfile("x", known=names, source="agentnb.yaml"),
        UnknownAgent("x", known=names),
    ):
        assert "'n0', 'n1'," in str(error)
        assert "'n19' and 1,280 more)" in str(error)
        assert error.known == tuple(names)
    assert listed(["a", "b", "c"], most=3) == "a, b, c"
    assert listed(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert listed([]) == "none"
