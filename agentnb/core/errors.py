"""The errors of runs, models and tools.

    AgentnbError
    ├── OrchestratorError           a run ended without an answer; has `partial_result`
    │   ├── LlmError                a model call failed; has `retryable` and `retry_after_s`
    │   │   ├── MissingKey, AuthenticationFailed, ModelNotFound, Refused
    │   │   ├── InvalidRequest      the request itself is not accepted
    │   │   │   └── NoCredit        the account is used up
    │   │   ├── RateLimited, Overloaded, ServerFailed, ConnectionFailed
    │   │   ├── StreamBroken, CallTimedOut
    │   │   ├── ClusterFailed, WorkerLost   an engine's workers cannot be used; one is gone
    │   │   ├── NoPrice             a budget in dollars, and a model without a list price
    │   │   └── NotRecorded         a call that the replay's cassette does not have; has `miss`
    │   ├── NoAnswer                a model gave no answer, even when asked again
    │   ├── InvalidOutput           an answer is not of its type, even after a correction
    │   ├── McpServerFailed         an MCP server could not be used, so the run made no call
    │   ├── RunCancelled            a person, or the notebook, stopped it
    │   └── InternalError           a bug, in agentnb or in foreign code
    ├── UnknownAgent                a path or an id that no agent of the run has
    ├── UnknownModel                a model name that no provider answers to
    ├── NoOpenQuestion              an answer to a question that is not open
    ├── AgentEnded                  a command to an agent that has ended
    ├── NoSuchRun, AmbiguousRun     an id, or its beginning, that matches no run, or several
    ├── CannotRecover               a run that cannot be recovered, and why
    ├── RunChanged                  a run whose agents no longer fit its record
    ├── NoSuchMemory                a number that no memory has
    ├── UnreadableRun               a file that is not a run, or that cannot be read
    ├── NoSuchSession, NoSuchThread, NoSuchTask     an id that is not in the store or session
    ├── SessionBudgetUsedUp         a session whose runs have spent its budget
    ├── SessionClosed               an attempt to start something in a closed session
    ├── TaskInProgress              an attempt to reassign a task that an agent works on
    ├── NotAllowed                  an agent's attempt to change a task that is not its own
    ├── BadAssignment               `assigned_to` is neither an agent nor a form that creates one
    ├── MissingExtra                an optional dependency is not installed
    └── ToolError                   an error that a tool reports to the model

Errors of settings, magics and notebooks are in agentnb/errors.py.

Bad arguments of plain functions raise `ValueError`. The constructor masks secrets, escapes control
characters and cuts long messages: none contains a key, a whole prompt, or a terminal escape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

from agentnb.core.secrets import masked_words
from agentnb.core.shown import listed
from agentnb.core.text import (
    LONGEST_ERROR,
    LONGEST_IN_ERROR,
    LONGEST_LINE,
    literal,
    one_line,
    visible,
    visible_lines,
)

if TYPE_CHECKING:
    from agentnb.core.types import OrchestratorResult

PERMANENT_STATUSES = (400, 401, 403, 404, 413)
"""HTTP statuses after which the same call cannot succeed."""
_MOST_SAID = 10_000
"""Characters of a foreign error's message that are read."""


class AgentnbError(Exception):
    """Base of all errors of this package. Copies and pickles keep its fields.

    The constructor masks, escapes and cuts the message, so `args`, pickles and events have the
    same text as `str`. The fields hold the original values.
    """

    def __init__(self, *words: object) -> None:
        super().__init__(*(_in_bounds(word) if isinstance(word, str) else word for word in words))

    # For a subclass whose constructor does not call this one, and for arguments that are not text.
    def __str__(self) -> str:
        return _in_bounds(super().__str__())

    def __repr__(self) -> str:
        words = ", ".join(literal(word, LONGEST_ERROR) for word in self.args)
        return masked_words(f"{type(self).__name__}({words})")

    def __reduce__(self) -> tuple[object, ...]:
        # Not with the constructor, as other exceptions do: some of ours build their message there.
        return _remade, (type(self), self.args, self.__dict__)


def _in_bounds(words: str) -> str:
    return visible_lines(masked_words(words), LONGEST_ERROR)


def _remade(
    kind: type[AgentnbError], args: tuple[object, ...], fields: dict[str, object]
) -> AgentnbError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


def make_causes_visible(error: BaseException) -> None:
    """Mask and escape the messages of an error's causes: a traceback shows them, too.

    An SDK's errors quote a server's text unchanged.
    """
    seen: set[int] = set()
    chained = [error.__cause__, error.__context__]
    while chained:
        each = chained.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        chained += [each.__cause__, each.__context__]
        if not isinstance(each, AgentnbError):
            with suppress(Exception):  # a foreign class
                each.args = tuple(_in_bounds(a) if isinstance(a, str) else a for a in each.args)


class ForeignError(Exception):
    """Replaces a foreign error as the cause of one of ours: the original may contain a key."""


def in_words(error: BaseException, *, limit: int = LONGEST_IN_ERROR) -> str:
    """An error's message on one line, without secrets; empty if it has none."""
    return visible(masked_words(_said(error)), limit)


def _said(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_SAID]
    except Exception:  # its class has a bug
        return ""


def without_frames(error: BaseException, *, links: int = 5) -> ForeignError:
    """An error and its causes as words, without their fields and frames.

    A library's frames contain its arguments: headers, and the key in them.

    Args:
        error: The foreign error.
        links: How many errors of the chain are kept.
    """
    kind = type(error)
    said = in_words(error, limit=300)
    stands_for = ForeignError(f"{kind.__module__}.{kind.__qualname__}{said and ': '}{said}")
    if links > 1 and (cause := cause_of(error)) is not None:
        stands_for.__cause__ = without_frames(cause, links=links - 1)
    return stands_for


def cause_of(error: BaseException) -> BaseException | None:
    """The cause that a traceback shows for an error."""
    if error.__cause__ is None and not error.__suppress_context__:
        return error.__context__
    return error.__cause__


def show_as_line(error: BaseException, line: str | None = None) -> None:
    """Let a notebook show an error as one line, and its notes, instead of its traceback.

    IPython calls an exception's own `_render_traceback_`. The traceback stays on the error, for a
    debugger or a script.

    Args:
        error: The error.
        line: The line; type and message when left out.
    """
    if line is None:
        words = str(error)
        # A plain error may quote many lines (a table, for example); ours have one, or one for each
        # mistake.
        line = words if isinstance(error, AgentnbError) else visible(words, LONGEST_LINE)
        line = masked_words(f"{type(error).__name__}: {line}")
    notes = getattr(error, "__notes__", ())
    # Not a lambda, so that the error can still be pickled.
    error._render_traceback_ = partial(list, (line, *notes))  # type: ignore[attr-defined]


class OrchestratorError(AgentnbError):
    """A run ended without an answer."""

    partial_result: OrchestratorResult | None = None
    """The run's partial result; `None` until the error leaves the run."""


class LlmError(OrchestratorError):
    """A call to a model failed.

    Args:
        message: What happened, with the provider's own words, and what to do.
        retryable: Whether the same request may succeed soon; by default the class's value. Used
            only while nothing of the reply was shown.
        retry_after_s: Seconds that the provider asks to wait.
        status_code: The HTTP status, if there was one.
    """

    default_retryable = False
    permanent = False
    """Whether a retry cannot help, so that the agent does not try a second time."""
    # Here as well, for a subclass whose constructor does not call this one.
    retryable = False
    retry_after_s: float | None = None
    status_code: int | None = None

    def __init__(
        self,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
        status_code: int | None = None,
    ) -> None:
        super().__init__(message or f"The model failed without a message ({type(self).__name__}).")
        self.retryable = self.default_retryable if retryable is None else retryable
        self.retry_after_s = retry_after_s
        self.status_code = status_code
        if status_code in PERMANENT_STATUSES:
            self.permanent = True


class SessionBudgetUsedUp(AgentnbError, ValueError):
    """The runs of a session have together spent its budget, so no further run starts."""

    def __init__(self, share: str) -> None:
        self.share = share
        super().__init__(
            f"The session's budget is used up: {share} is spent by its runs. Raise it with "
            '`agentnb.configure(session_budget="$40")` (or `Session(session_budget=…)`), or take '
            "a new session."
        )


class NoPrice(LlmError):
    """A budget counts money, and a model has no list price: its calls cannot be priced."""

    permanent = True

    @classmethod
    def of(cls, *models: str) -> NoPrice:
        """The error for models, as `provider/model`."""
        one = literal(models[0], 120).strip("'\"")
        return cls(
            f"No price is known for {known_names(models)}, so a budget of money cannot hold its "
            f'calls. Set one with `agentnb.set_prices({{"{one}": agentnb.Price(input=…, '
            "output=…)})` (US dollars per million tokens) or under `prices` of agentnb.yaml, or "
            "give the budget in tokens."
        )


class MissingKey(LlmError):
    """No credentials were found for a provider."""

    permanent = True


class AuthenticationFailed(LlmError):
    """The provider did not accept the credentials (401, 403)."""

    permanent = True


class InvalidRequest(LlmError):
    """The provider did not accept the request (400, 413)."""

    permanent = True


class NoCredit(InvalidRequest):
    """The account has no credit left, or has reached its own limit (402; some say 400 or 429)."""


class ModelNotFound(LlmError):
    """The provider does not know the model (404)."""

    permanent = True


class Refused(LlmError):
    """The model, or the provider's filter, declined to answer."""

    permanent = True


class RateLimited(LlmError):
    """Too many calls or tokens for now (429)."""

    default_retryable = True


class Overloaded(LlmError):
    """The provider is overloaded for now (529)."""

    default_retryable = True


class ServerFailed(LlmError):
    """The provider failed (408, 409, 5xx)."""

    default_retryable = True


class ConnectionFailed(LlmError):
    """The provider could not be reached, or hung up before it answered."""

    default_retryable = True


class ClusterFailed(LlmError):
    """The workers of a cluster cannot do what a run needs; the message says what to change."""

    permanent = True


class WorkerLost(LlmError):
    """The worker of a cluster on which a call was open is gone."""

    default_retryable = True


class StreamBroken(LlmError):
    """A reply was cut or garbled."""

    default_retryable = True


class CallTimedOut(LlmError):
    """A turn did not end in time."""


class NotRecorded(LlmError):
    """A replay needs a call that was not recorded. The message says what differs.

    Example:
        `raise NotRecorded(str(miss), miss=miss)`

    Args:
        message: What differs from the nearest recorded call, and how to record this one.
        miss: The same as an `agentnb.cassette.Miss`; `None` if the error itself was read from a
            record.
        facts: As for every `LlmError`.
    """

    permanent = True
    miss: object = None

    def __init__(self, message: str, *, miss: object = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.miss = miss


class NoAnswer(OrchestratorError):
    """A model gave no answer, also when it was asked once more.

    It may have thought until `max_output_tokens` or its context window was used up, or said
    nothing, or asked only for sub-agents that were not started.
    """


class InvalidOutput(OrchestratorError):
    """An answer does not fit the required type, even after one correction.

    Its text is kept: `run.agent(path).text` has it and, if it is the root's,
    `partial_result.final_response`.

    Args:
        name: The type's name.
        why: What is wrong with the answer.
    """

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(
            f"The answer, which is kept as text, is not a valid {name} even after one correction: "
            f"{one_line(why).rstrip('.')}. Simplify the type, or ask another model."
        )


class McpServerFailed(OrchestratorError):
    """An MCP server whose tools a run needs cannot be used.

    Args:
        server: The server's name.
        why: What is wrong, as a clause.
    """

    def __init__(self, server: str, why: str) -> None:
        self.server, self.why = server, why
        super().__init__(
            f"The MCP server {literal(server)} cannot be used, so no model was called: "
            f"{visible(why, LONGEST_LINE)}. Check that it starts, or remove it from the run's "
            "tools."
        )


class RunCancelled(OrchestratorError):
    """A run was stopped before its end."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason
        super().__init__(
            f"The run was cancelled ({reason})." if reason else "The run was cancelled."
        )


class InternalError(OrchestratorError):
    """A bug: code raised an error that it must not raise. Chains the cause."""

    @classmethod
    def wrapping(cls, error: BaseException, *, where: str) -> InternalError:
        """Wrap an error.

        Args:
            error: Becomes the cause; if it contains a secret, only its masked message does.
            where: The code that raised it, for the message.
        """
        detail = in_words(error) or "no message"
        wrapped = cls(f"Unexpected {type(error).__name__} in {where}: {detail}")
        wrapped.__cause__ = without_frames(error) if _shows_a_secret(error) else error
        make_causes_visible(wrapped)
        return wrapped


def _shows_a_secret(error: BaseException) -> bool:
    """Whether the message of an error, or of one of its causes, contains a secret."""
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen:
        seen.append(link)
        link = cause_of(link)
    words = [_said(link) for link in seen]
    return any(masked_words(each) != each for each in words)


class ToolError(AgentnbError):
    """Raised by a tool: the model gets its text unchanged, as an error that it can act on."""

    def __init__(self, *words: object) -> None:
        Exception.__init__(self, *words)  # what a model is sent is not masked

    @property
    def for_model(self) -> str:
        """Its text, unchanged. `str` is for a person."""
        is_ours = type(self).__str__ is AgentnbError.__str__
        return Exception.__str__(self) if is_ours else str(self)


class UnknownAgent(AgentnbError, LookupError):
    """A path or an id that no agent of the run has."""

    def __init__(self, name: str, *, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"This run has no agent {literal(name)} so far (known: "
            f"{known_names(known, 'none yet')}): give the path or the id of one of them."
        )


class UnknownModel(AgentnbError, ValueError):
    """A model name that no provider answers to."""

    def __init__(self, name: str, *, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"No provider answers to the model {literal(name)}. Write it as `provider/model` with "
            f"one of the providers {', '.join(known)}: for example `anthropic/claude-sonnet-5-5`, "
            "`openai/llama3.2` for your own OpenAI-compatible server, or `demo`, "
            "which needs no key."
        )


def known_names(names: Sequence[str], none: str = "none") -> str:
    return listed((literal(name, 64) for name in names), none=none)


class NoOpenQuestion(AgentnbError):
    """The answered question is not open: unknown, answered, or void.

    Args:
        question_id: The question; by default the budget's.
        open_ids: The questions that are open.
    """

    def __init__(self, question_id: str = "", open_ids: Sequence[str] = ()) -> None:
        self.question_id, self.open_ids = question_id, tuple(open_ids)
        if not question_id:
            super().__init__(
                "The budget has no open question: an answer counts only while the run is paused. "
                "Stop the run with `run.cancel()`, or give it more with `run.set_budget(total)`."
            )
            return
        super().__init__(
            f"No question {literal(question_id)} is open (open: {known_names(open_ids)}): it was "
            "answered, its agent has ended, or the run never asked it; answer one that "
            "`run.questions` lists."
        )


class AgentEnded(AgentnbError):
    """A note, a pause or a resume for an agent that has ended, or takes no more notes.

    Args:
        path: The agent's path.
        order: What was ordered, as a participle: `sent a note`, `paused`, `resumed`.
        why: The reason, as the rest of a sentence; by default that the agent has ended.
    """

    def __init__(self, path: str, order: str = "sent a note", *, why: str = "") -> None:
        self.path = path
        if path == "root" and not why:  # `types`, which names it, is a higher layer
            super().__init__(f"This run has ended, so it cannot be {order}: start a new one.")
            return
        super().__init__(
            f"The agent {literal(path)} {why or 'has ended'}, so it cannot be {order}: choose one "
            "that `run.tree` shows at work."
        )


class NoSuchRun(AgentnbError, LookupError):
    """No run has this id, or one that begins with it.

    Args:
        run: The id, or its beginning, as given.
        is_listed: Whether memory has only a summary of the run.
    """

    def __init__(self, run: str, *, is_listed: bool = False) -> None:
        self.run = run
        if is_listed:
            super().__init__(
                f"Only a summary of the run {literal(run)} is left: it is in no store and no "
                "longer in memory; keep later runs in a variable, or in a store."
            )
            return
        super().__init__(
            f"There is no run {literal(run)}: give the `id`, or its beginning, of one that "
            "`agentnb.runs()` lists."
        )


class CannotRecover(AgentnbError):
    """A run cannot be recovered.

    Args:
        run: Its id, or the beginning of it, as given.
        why: Why not, as a clause; the fix may follow after a semicolon.
    """

    def __init__(self, run: str, why: str) -> None:
        self.run, self.why = run, why
        super().__init__(f"The run {literal(run)} cannot be recovered: {why}.")


class RunChanged(AgentnbError):
    """Agents of a run no longer fit its record: a prompt, a tool, a model changed.

    Args:
        run_id: The run.
        agents: The reason, by path.
    """

    def __init__(self, run_id: str, agents: Mapping[str, str]) -> None:
        self.run_id, self.agents = run_id, dict(agents)
        paths = sorted(agents)
        shown = "; ".join(f"agent {path}: {agents[path]}" for path in paths[:_MOST_NAMED])
        if len(paths) > _MOST_NAMED:
            shown += f"; and {len(paths) - _MOST_NAMED} more"
        super().__init__(
            f"The run {literal(run_id)} no longer fits its record, so nothing was asked or changed "
            f'({shown}). Give `changed="keep"` to continue with the recorded agents, or '
            '`changed="redo"` to run these agents again.'
        )


_MOST_NAMED = 5
"""Most agents that a message names."""


class NoSuchMemory(AgentnbError, LookupError):
    """No memory of the store has this number.

    Args:
        number: The number, as given.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(
            f"There is no memory {literal(number)}: give one that `session.memories()` lists, or "
            "its `id`."
        )


class AmbiguousRun(AgentnbError, LookupError):
    """Several runs have an id with this beginning.

    Args:
        run: The beginning, as given.
        known: The ids that begin with it, newest run first.
    """

    def __init__(self, run: str, *, known: Sequence[str]) -> None:
        self.run, self.known = run, tuple(known)
        beginnings = _shortest_beginnings(self.known)
        super().__init__(
            f"{len(self.known):,} runs have an id that begins with {literal(run)} (newest first: "
            f"{known_names(beginnings)}): give more characters of the id."
        )


def _shortest_beginnings(ids: Sequence[str]) -> list[str]:
    """The shortest beginning of each id that no other of them has."""
    ordered = sorted(set(ids))
    shared = dict.fromkeys(ordered, 0)
    for one, other in pairwise(ordered):  # the longest beginning in common is with a neighbour
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
        length = sum(1 for _ in alike)
        shared[one], shared[other] = max(shared[one], length), length
    return [each[: shared[each] + 1] for each in ids]


class UnreadableRun(AgentnbError, ValueError):
    """A file is not a run that this version can read.

    Args:
        source: The file, as named.
        what: What is wrong with it, as a clause.
        fix: What to do, as a sentence; by default to choose another file.
    """

    def __init__(self, source: str, what: str, *, fix: str = "") -> None:
        self.source = source
        fix = fix or "Give the path of a file that `run.to_json(path)` wrote."
        super().__init__(f"{literal(source)} cannot be read as a run: {what}. {fix}")


class NoSuchThread(AgentnbError, LookupError):
    """No thread has this id.

    Args:
        thread: The id, as given.
        mode: The mode of a session without earlier kernels' runs; empty for any other.
    """

    def __init__(self, thread: str, *, mode: str = "") -> None:
        self.thread = thread
        fix = "give the `id` of one that `session.threads()` lists."
        if thread == "last":
            fix = "this session has no messages yet; start with `%%spawn`, without a thread."
        super().__init__(f"No agent found for thread {literal(thread)}{_only_live(mode)}: {fix}")


class NoSuchSession(AgentnbError, LookupError):
    """No session of the store has this id.

    Args:
        session: The id, as given.
        mode: See `NoSuchThread`.
    """

    def __init__(self, session: str, *, mode: str = "") -> None:
        self.session = session
        fix = "`session.id` of an earlier one, or 'last', reopens it if it had a message or a task."
        if session == "last":
            fix = "there is none so far, so check that `store` is the right one."
        super().__init__(
            f"There is no session {literal(session)} in this store{_only_live(mode)}. Leave `id` "
            f"out for a new one; {fix}"
        )


def _only_live(mode: str) -> str:
    """What a mode does not read, and the mode that does, as a clause; empty for no mode."""
    if not mode:
        return ""
    return f" (mode `{mode}` reads no earlier kernels' threads, mode `live` does)"


class SessionClosed(AgentnbError, RuntimeError):
    """A closed session starts nothing."""

    def __init__(self) -> None:
        super().__init__(
            "The session is closed: create a new one, or reopen this one with "
            "`Session(id=session.id)`."
        )


class NoSuchTask(AgentnbError, LookupError):
    """No task of the session has this id.

    Args:
        task: The id, as given.
        known: The existing ids.
    """

    def __init__(self, task: str, *, known: Sequence[str]) -> None:
        self.task, self.known = task, tuple(known)
        super().__init__(
            f"There is no task {literal(task)} (known: {known_names(known, 'none yet')}). "
            "Give the id of one of them."
        )


class TaskInProgress(AgentnbError, ValueError):
    """A task that an agent works on cannot be assigned to another.

    Args:
        task: Its id.
        assigned_to: The thread of the agent.
    """

    def __init__(self, task: str, assigned_to: str) -> None:
        self.task, self.assigned_to = task, assigned_to
        super().__init__(
            f"The task {literal(task)} is in work by {literal(assigned_to)}: wait until it has "
            "ended, or cancel its run, and assign it then."
        )


class NotAllowed(AgentnbError):
    """An agent tried to change a task that is neither its own nor assigned to it.

    Args:
        task: The task's id.
    """

    def __init__(self, task: str) -> None:
        self.task = task
        super().__init__(
            f"The task {literal(task)} can be changed by the agent that created it, by the one "
            "that it is assigned to, and by the person; others may read it."
        )


class BadAssignment(AgentnbError, ValueError):
    """`assigned_to` is neither an agent's thread nor a form that creates an agent.

    Args:
        given: The value.
        why: What is wrong with it, as a clause.
        known: The valid names, if the name is wrong.
    """

    def __init__(self, given: object, why: str, *, known: Sequence[str] = ()) -> None:
        self.given, self.why, self.known = given, why, tuple(known)
        names = f" (known: {known_names(known)})" if known else ""
        super().__init__(
            f"{literal(given)} cannot be assigned to: {why}{names}. Write `new:provider/model` for "
            "a new agent, `new:profile:provider/model` for one with a profile, or the id of an "
            "agent's thread."
        )


class MissingExtra(AgentnbError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, *, extra: str) -> None:
        self.extra = extra
        command = f"`pip install 'agentnb[{extra}]'`"
        if not _is_installed():
            # An index may have another project of agentnb's name.
            command = f"`pip install -e '.[{extra}]'` in the folder of agentnb"
        super().__init__(f"{what} is not installed: install it with {command}.")


def _is_installed() -> bool:
    """Whether pip knows agentnb here; false if it is run from a folder."""
    from importlib import metadata  # loads a mail parser: imported only for an error

    try:
        metadata.distribution("agentnb")
    except metadata.PackageNotFoundError:
        return False
    return True
