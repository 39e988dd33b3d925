"""Encodes the records and events of one run as rows. Runs on the writer's thread.

Each text is stored once. The text of a reply is stored with its call; a message that is just that
text, the end of its agent and the next request refer to it. An event's row has only the fields that
no record has.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from agentnb.core.codec import plain
from agentnb.core.errors import AgentnbError, CannotRecover
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    AgentSpawned,
    Entry,
    ModelCallFinished,
    ModelCallStarted,
    Row,
    RowEntries,
    RunFinished,
    TextRow,
    ToolCallFinished,
    ToolCallStarted,
    rows_of,
)
from agentnb.core.media import with_media
from agentnb.core.records import (
    FINISHED,
    STARTED,
    CallRecord,
    EndRecord,
    Kept,
    OrderRecord,
    Pieces,
    RunHead,
    ToolCallRecord,
    VerdictRecord,
)
from agentnb.core.secrets import Secrets, known_secrets
from agentnb.core.types import (
    FINAL_ANSWER,
    ROOT_PATH,
    AgentStatus,
    CompletionRequest,
    MediaBlock,
    Message,
    TextBlock,
    ToolSpec,
    bare_model,
    id_at,
    path_of,
)
from agentnb.store.as_json import (
    FILE,
    MEDIA,
    difference,
    event_json,
    file_bytes,
    json_of,
    media_json,
    number_of,
    reply_json,
    usage_json,
)
from agentnb.store.event_fields import (
    fields_of_end,
    fields_of_reply,
    fields_of_tool_call,
    summary_of,
)
from agentnb.store.pieces import pack
from agentnb.store.rows import Rows, sealed
from agentnb.store.trouble import RunIsThere

_Columns = tuple[str | None, int | None, str | None]
"""Path, number and body of an event."""
_NOT_OURS = "it was deleted meanwhile, or another process has taken it; see `agentnb.runs()`"
_TYPED = '{"typed":true}'
"""What the event of a typed answer has in addition to the agent's end record."""
CONTENTS = ("system", "user", "assistant", "message", "tools", FILE, MEDIA)
"""Kinds of contents: texts (a system prompt, a message that is one text), JSON (any other message,
a list of tools, the files of a tool call), and the bytes of files."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A whole run, which replaces what the store has of it."""

    things: Sequence[Kept | Sequence[Entry]]


class _Call:
    """A model call that is open, or whose last events have not arrived yet."""

    __slots__ = (
        "first",
        "is_apart",
        "is_full",
        "is_over",
        "is_started",
        "record",
        "rows",
        "seqs",
        "text",
        "texts",
        "times",
    )

    def __init__(self, record: CallRecord, first: tuple[Any, ...]) -> None:
        self.record = record
        self.first: tuple[Any, ...] | None = first
        """The columns that are known when the call starts; `None` once its row is written."""
        self.rows: list[TextRow] = []
        self.seqs: list[range] = []
        self.times: Sequence[float] = ()
        """Times of the record's pieces; the next two are their texts, and the joined text."""
        self.texts: Sequence[str] = ()
        self.text = ""
        self.is_full = False
        """Whether the `seqs` of all its pieces are known."""
        self.is_started = False
        """Whether its `ModelCallStarted` was seen."""
        self.is_over = False
        """Whether its `ModelCallFinished` was seen before its result."""
        self.is_apart = False
        """Whether its deltas are not the pieces of its record, and have rows of their own."""


class _Agent:
    """What the encoding of one agent's rows needs of its earlier rows."""

    __slots__ = (
        "calls",
        "end",
        "has_id",
        "last",
        "messages",
        "path",
        "system",
        "system_number",
        "tools",
    )

    def __init__(self, path: str) -> None:
        self.path = path
        self.has_id = False
        """Whether a reader can compute its id from the path."""
        self.calls: list[_Call] = []
        """The calls that are not over yet, in order."""
        self.last: tuple[int, Message | None, str] = (0, None, "")
        """The newest finished call: number, message, text."""
        self.messages: tuple[int, tuple[Message, ...]] = (0, ())
        """Number of the newest call, and its messages."""
        self.system: str | None = None
        self.system_number = 0
        self.tools: dict[str, ToolCallRecord] = {}
        """By id: tool calls whose events have not all arrived."""
        self.end: tuple[int, EndRecord] | None = None


class RunEncoder:
    """Encodes one run.

    Args:
        head: The run's head.
        version: The version of agentnb.
        is_there: Whether the store already has the run; its rows are then replaced.
    """

    def __init__(self, head: RunHead, version: str, *, is_there: bool = False) -> None:
        self._head = head
        self._version = version
        self._is_there = is_there
        self.run = 0
        """`runs.id`; 0 before `open`."""
        self.is_lost = False
        """Whether nothing of the run is stored any more."""
        self.error: AgentnbError | None = None
        """Why nothing of the run could be stored from the beginning; else `None`."""
        self._agents: dict[str, _Agent] = {}
        """By path: the agents that have not ended, and the root."""
        self._by_id: dict[str, _Agent] = {}
        self._contents: dict[str, dict[str, int]] = {kind: {} for kind in CONTENTS}
        """Numbers of contents, by kind and body. Nearly all bodies are texts of the run's events,
        so they are in memory anyway."""
        self._last_content = 0
        self._tool_specs: tuple[tuple[ToolSpec, ...], int] = ((), 0)
        """The newest tools and the number of their content: one object, which all agents with these
        tools share. Likewise the newest schema of an answer."""
        self._answer_schema: tuple[Mapping[str, Any] | None, int] = (None, 0)
        self._changed: dict[_Call, _Agent] = {}
        self._places = {"orders": 0, "ends": 0}
        self._spawned = 0
        self._usage: dict[str, list[int]] = {}
        self._end: EndRecord | RunFinished | None = None
        self._end_place = 0
        """Place of the run's `EndRecord`; 0 if there is none."""
        self._end_is_new = False
        self._handlers: dict[type, Callable[[Any], _Columns]] = {
            ModelCallStarted: self._started,
            ModelCallFinished: self._finished,
            AgentCompleted: self._agent_end,
            AgentFailed: self._agent_end,
            AgentCancelled: self._agent_end,
            AgentExhausted: self._agent_end,
            ToolCallStarted: self._tool_event,
            ToolCallFinished: self._tool_event,
            RunFinished: self._run_finished,
        }

    def open(self, db: sqlite3.Connection, process: int) -> None:
        """Add the run's row, or find the existing one."""
        if self._is_there:
            self._find(db, process)
        else:
            self._add(db, process)

    def _find(self, db: sqlite3.Connection, process: int) -> None:
        found = db.execute(
            "SELECT id FROM runs WHERE run_id = ? AND process = ?", (self._head.run_id, process)
        ).fetchone()
        if found is None:
            self.is_lost, self.error = True, CannotRecover(self._head.run_id, _NOT_OURS)
        else:
            self.run = found[0]

    def _add(self, db: sqlite3.Connection, process: int) -> None:
        head = self._head
        values = (
            head.run_id,
            head.thread_id,
            head.session_id,
            head.name,
            json_of(list(head.tags)),
            head.task,
            head.model,
            number_of(head.budget_total),
            number_of(head.max_depth),
            json_of(head.settings),
            head.started_at,
            process,
            self._version,
            head.first_child,
        )
        try:
            cursor = db.execute(
                "INSERT INTO runs (run_id, thread_id, session_id, name, tags, task, model,"
                " budget_total, max_depth, settings, started_at, process, version, first_child)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                sealed(values, known_secrets()),
            )
        except sqlite3.IntegrityError:
            self.is_lost, self.error = True, RunIsThere(head.run_id)
            return
        assert cursor.lastrowid is not None
        self.run = cursor.lastrowid

    def take(self, thing: RunHead | Replaced | Kept | Sequence[Entry], rows: Rows) -> None:
        """Encode a record, or entries. The head of a new run is written by `open`."""
        match thing:
            case CallRecord():
                self._take_call(thing, rows)
            case RowEntries():
                self._take_rows(thing.first, thing.rows, rows)
            case RunHead():
                pass
            case Replaced(things):
                self._begin_again(rows)
                for each in things:
                    self.take(each, rows)
            case EndRecord():
                self._take_end(thing, rows)
            case ToolCallRecord():
                self._take_tool_call(thing, rows)
            case OrderRecord():
                self._take_order(thing, rows)
            case VerdictRecord(path, number, kind, value):
                rows.verdicts.append((self.run, path, number, kind, json_of(value)))
            case _:
                for entry in thing:
                    self._take_rows(entry.seq, rows_of([entry]), rows)

    def _begin_again(self, rows: Rows) -> None:
        head = self._head
        rows.replaced.append((
            head.model,
            number_of(head.budget_total),
            number_of(head.max_depth),
            json_of(head.settings),
            self._version,
            self.run,
        ))  # fmt: skip

    def finish(self, rows: Rows) -> None:
        """Encode the calls that changed, and the end of the run."""
        for call, agent in self._changed.items():
            self._write_call(call, agent, rows)
        self._changed.clear()
        if self._end_is_new:
            self._write_end(rows)
            self._end_is_new = False

    # -- model calls ------------------------------------------------------------------------------

    def _take_call(self, record: CallRecord, rows: Rows) -> None:
        agent = self._agents.get(record.path) or self._new_agent(record.path)
        for call in agent.calls:
            if call.record.number == record.number:
                call.record = record
                break
        else:
            call = self._new_call(record, agent, rows)
        self._changed[call] = agent
        if record.pieces:
            if type(record.pieces) is Pieces:
                call.times, _, call.texts = zip(*record.pieces.rows, strict=True)
            else:
                call.times, call.texts = zip(*record.pieces, strict=True)
            call.text = "".join(call.texts)
        if record.status == STARTED:
            return
        if call.is_over:
            agent.calls.remove(call)
        agent.last = record.number, record.message, call.text
        usage = record.usage
        if usage is not None:
            counted = self._usage.setdefault(record.model, [0, 0, 0, 0])
            counted[0] += usage.input_tokens
            counted[1] += usage.output_tokens
            counted[2] += usage.cache_creation_tokens
            counted[3] += usage.cache_read_tokens

    def _write_call(self, call: _Call, agent: _Agent, rows: Rows) -> None:
        record, said = call.record, call.record.message
        times, texts, text = call.times, call.texts, call.text
        if record.status != STARTED or texts:
            if call.rows and not _begins_with(times, texts, call.rows):
                self._set_apart(call, agent, rows)
        elif call.rows:
            times, _, texts = zip(*call.rows, strict=True)
            text = "".join(texts)
        message = None if said is None else reply_json(said, text)
        if texts:
            is_whole = record.stop_reason not in (None, "max_tokens")
            texts, text = _masked(texts, text, rows.secrets, is_whole=is_whole)
        usage, error = record.usage, record.error
        reply = (
            record.status,
            text if texts else None,
            pack([*map(len, texts)], times, _joined(call.seqs)) if texts else None,
            message,
            record.stop_reason,
            None if usage is None else usage_json(usage),
            None if error is None else json_of(error),
            number_of(record.duration_ms),
            number_of(record.estimate_error),
            record.not_closed,
        )
        if call.first is None:
            rows.replies.append((*reply, self.run, record.path, record.number))
        else:
            rows.model_calls.append((*call.first, *reply))
            call.first = None

    def _new_call(self, record: CallRecord, agent: _Agent, rows: Rows) -> _Call:
        first = (
            self.run,
            record.path,
            record.number,
            record.attempt,
            record.key,
            record.model,
            record.is_synthesis,
            self._request(record, agent, rows),
            record.at_s,
        )
        call = _Call(record, first)
        agent.calls.append(call)
        return call

    def _request(self, record: CallRecord, agent: _Agent, rows: Rows) -> str:
        """A request as references; messages that the agent's previous call had are not repeated."""
        request = record.request
        messages, (after, before) = request.messages, agent.messages
        same = len(before)
        if messages[:same] != before:
            pairs = zip(messages, before, strict=False)
            same = next((n for n, (a, b) in enumerate(pairs) if a != b), min(same, len(messages)))
        number, reply, _ = agent.last
        new = []
        for message in messages[same:]:
            if message is reply or (reply is not None and message == reply):
                new.append(-number)
            else:
                new.append(self._message(message, rows))
        agent.messages = record.number, messages
        if request.system is not agent.system:
            agent.system = request.system
            agent.system_number = self._content("system", request.system, rows)
        tools = self._tools(request.tools, rows) if request.tools else 0
        answer = ""
        if request.output_schema is not None:
            answer = f',"answer":{self._answer_tool(request, rows)}'
        rest: dict[str, Any] = {}
        if request.extra:
            rest["extra"] = plain(request.extra)
        if request.model != bare_model(record.model):
            rest["model"] = request.model
        return (
            f'{{"after":{after},"same":{same},"new":{new},"system":{agent.system_number},"tools":{tools},'
            f'"max_tokens":{request.max_tokens},"cache_prefix":{request.cache_prefix}{answer}'
            f"{',' + json_of(rest)[1:] if rest else '}'}"
        )

    def _message(self, message: Message, rows: Rows) -> int:
        content = message.content
        if len(content) == 1 and type(content[0]) is TextBlock and not content[0].extra:
            return self._content(message.role.value, content[0].text, rows)
        (kept,) = with_media((message,), lambda block: self._file(block, rows))
        return self._content("message", json_of(kept), rows)

    def _content(self, kind: str, body: str, rows: Rows) -> int:
        """The number of a content; a new content is added."""
        known = self._contents[kind]
        number = known.get(body)
        if number is None:
            self._last_content = number = known[body] = self._last_content + 1
            rows.contents.append((self.run, number, kind, body))
        return number

    def _answer_tool(self, request: CompletionRequest, rows: Rows) -> int:
        """The number of the content with the schema of an answer, written as a tool.

        A model with tools is asked with that tool, so its content usually exists already.
        """
        schema, number = self._answer_schema
        if request.output_schema is not schema:
            tools, schema = request.tools, request.output_schema
            assert schema is not None
            if len(tools) != 1 or tools[0].input_schema is not schema:
                tools = (ToolSpec(FINAL_ANSWER, "", schema),)
            number = self._content("tools", json_of(list(tools)), rows)
            self._answer_schema = schema, number
        return number

    def _file(self, block: MediaBlock, rows: Rows) -> MediaBlock:
        """The block without its file, which is stored once per run, under its digest."""
        known = self._contents[FILE]
        if block.digest not in known:
            content = file_bytes(block)
            if content is None:
                return block
            self._last_content = known[block.digest] = self._last_content + 1
            # Bytes are not searched for secrets: they are not text that could show one.
            rows.contents.append((self.run, self._last_content, FILE, content))
        return block.named()

    def _tools(self, tools: tuple[ToolSpec, ...], rows: Rows) -> int:
        known, number = self._tool_specs
        if tools is not known:
            number = self._content("tools", json_of(list(tools)), rows)
            self._tool_specs = tools, number
        return number

    # -- entries ----------------------------------------------------------------------------------

    def _take_rows(self, first: int, found: Sequence[Row], rows: Rows) -> None:
        # Most rows are deltas: a stretch of one agent's is taken as a whole, not one by one.
        handlers, events, run = self._handlers, rows.events, self.run
        at, count = 0, len(found)
        while at < count:
            row = found[at]
            if len(row) == 2:
                at_s, event = row
                handle = handlers.get(type(event), self._other)
                events.append((run, first + at, at_s, event.kind, *handle(event)))
                at += 1
                continue
            call = self._speaking(row[1])
            if call is None:
                events.append((run, first + at, *self._delta(row)))
                at += 1
                continue
            length = _stretch(call, found, at)
            if length:
                call.is_full = True
            else:
                call.rows.append(row)
                length = 1
            call.seqs.append(range(first + at, first + at + length))
            at += length

    def _speaking(self, agent_id: str) -> _Call | None:
        """The call that an agent's text belongs to, marked as changed; `None` if there is none."""
        agent = self._agent_of(agent_id)
        for call in agent.calls:
            if call.is_started and not call.is_over:
                if call.is_apart or call.is_full:
                    return None  # these deltas have rows of their own
                self._changed[call] = agent
                return call
        return None

    def _delta(self, row: TextRow) -> tuple[Any, ...]:
        """A delta outside a call."""
        at_s, agent_id, text = row
        agent = self._agent_of(agent_id)
        body = json_of({"agent_id": agent_id, "text": text})
        return at_s, "agent_text_delta", agent.path, None, body

    def _set_apart(self, call: _Call, agent: _Agent, rows: Rows) -> None:
        """Write the deltas of a call one by one, since they are not the pieces of its record."""
        for seq, row in zip(chain.from_iterable(call.seqs), call.rows, strict=True):
            rows.events.append((self.run, seq, *self._delta(row)))
        call.is_apart = True
        call.rows, call.seqs = [], []

    def _other(self, event: Any) -> _Columns:
        """The columns of an event that no record describes."""
        if type(event) is AgentSpawned:
            self._spawned += 1
        agent_id = getattr(event, "agent_id", None)
        path = None if agent_id is None else self._agent_of(agent_id).path
        return path, None, event_json(event)

    def _started(self, event: ModelCallStarted) -> _Columns:
        agent = self._agent_of(event.agent_id)
        for call in agent.calls:
            record = call.record
            if (
                not call.is_started
                and (event.request is record.request or event.request == record.request)
                and event.model == record.model
                and event.attempt == record.attempt
                and event.is_synthesis == record.is_synthesis
                and agent.has_id
            ):
                call.is_started = True
                return agent.path, record.number, None
        return agent.path, None, event_json(event)

    def _finished(self, event: ModelCallFinished) -> _Columns:
        agent = self._agent_of(event.agent_id)
        for place, call in enumerate(agent.calls):
            if call.is_started and not call.is_over:
                record = call.record
                if record.status == STARTED:
                    call.is_over = True
                    break
                del agent.calls[place]
                if not agent.has_id:
                    break
                if (
                    event.message is record.message
                    and event.usage is record.usage
                    and event.error is None
                    and record.error is None
                    and record.not_closed is None
                    and event.duration_ms == record.duration_ms
                    and event.stop_reason == record.stop_reason
                    and event.estimate_error == record.estimate_error
                    and event.model == record.model
                ):  # nearly always
                    return agent.path, record.number, None
                return agent.path, record.number, difference(event, fields_of_reply(record))
        return agent.path, None, event_json(event)

    # -- tool calls -------------------------------------------------------------------------------

    def _take_tool_call(self, record: ToolCallRecord, rows: Rows) -> None:
        agent = self._agents.get(record.path) or self._new_agent(record.path)
        agent.tools[record.tool_use_id] = record
        rows.tool_calls.append((
            self.run,
            record.path,
            record.number,
            record.agent_id,
            record.tool_use_id,
            record.name,
            json_of(record.input),
            record.effects,
            record.at_s,
            record.status,
            record.result,
            record.is_error,
            number_of(record.duration_ms),
            record.ended,
        ))  # fmt: skip
        if record.media:  # rare, so it has no column
            named = [self._file(block, rows) for block in record.media]
            body = media_json(record.path, record.number, named, record.unseen)
            self._content(MEDIA, body, rows)

    def _tool_event(self, event: ToolCallStarted | ToolCallFinished) -> _Columns:
        agent = self._agent_of(event.agent_id)
        record = agent.tools.get(event.tool_use_id)
        if record is None or record.agent_id != event.agent_id:
            return agent.path, None, event_json(event)
        cut = None
        if isinstance(event, ToolCallFinished):
            if record.status != FINISHED:
                return agent.path, None, event_json(event)
            del agent.tools[event.tool_use_id]
            if event.result != record.result and record.result.startswith(event.result):
                cut = len(event.result)
        base = fields_of_tool_call(type(event), record, cut)
        given = {} if cut is None else {"cut_at": cut}
        return agent.path, record.number, difference(event, base, given)

    # -- ends, orders -----------------------------------------------------------------------------

    def _take_end(self, record: EndRecord, rows: Rows) -> None:
        place = self._next("ends")
        text: str | None = record.text
        number = first = length = None
        if record.path is None:
            self._end, self._end_place, self._end_is_new = record, place, True
            agent = self._agents.get(ROOT_PATH)
        else:
            agent = self._agents.get(record.path) or self._new_agent(record.path)
            agent.end = place, record
        if agent is not None and text:
            said = agent.last[2]
            if said == text:
                number, text = agent.last[0], None
            elif (at := said.find(text)) >= 0 and rows.secrets.mask(said) is said:
                number, first, length, text = agent.last[0], at, len(text), None
        if text and record.status is not AgentStatus.COMPLETED:  # it may contain a reply cut off
            text = rows.secrets.mask_words(text)
        rows.ends.append((
            self.run,
            place,
            record.path,
            record.attempt,
            record.status.value,
            text,
            number,
            first,
            length,
            record.error,
            record.cut,
            number_of(record.tokens_used),
            number_of(record.duration_ms),
            record.at_s,
            record.by,
        ))  # fmt: skip

    def _agent_end(
        self, event: AgentCompleted | AgentFailed | AgentCancelled | AgentExhausted
    ) -> _Columns:
        agent = self._agent_of(event.agent_id)
        if agent.end is None or not agent.has_id:
            return agent.path, None, event_json(event)
        place, record = agent.end
        if not agent.calls and not agent.tools and agent.path != ROOT_PATH:
            del self._agents[agent.path], self._by_id[event.agent_id]
        if (
            type(event) is AgentCompleted
            and event.text == record.text
            and event.tokens_used == record.tokens_used
            and event.duration_ms == record.duration_ms
            and event.cut == record.cut
            and event.result_summary == summary_of(record.text)
        ):  # nearly always
            return agent.path, place, _TYPED if event.typed else None
        return agent.path, place, difference(event, fields_of_end(type(event), record))

    def _run_finished(self, event: RunFinished) -> _Columns:
        self._end_is_new = True  # the figures also count what followed the record
        if not isinstance(self._end, EndRecord):
            self._end = event
            return None, None, event_json(event)
        return None, self._end_place, difference(event, fields_of_end(RunFinished, self._end))

    def _write_end(self, rows: Rows) -> None:
        end = self._end
        assert end is not None
        rows.runs.append((
            str(end.status),
            end.error,
            self._spawned,
            number_of(end.tokens_used),
            json_of(self._usage),
            number_of(end.duration_ms),
            self.run,
        ))  # fmt: skip

    def _take_order(self, record: OrderRecord, rows: Rows) -> None:
        rows.orders.append((
            self.run,
            self._next("orders"),
            record.kind,
            record.by,
            record.path,
            record.number,
            record.at_s,
            json_of(record.value),
        ))  # fmt: skip

    def _next(self, table: str) -> int:
        self._places[table] += 1
        return self._places[table]

    # -- agents -----------------------------------------------------------------------------------

    def _new_agent(self, path: str) -> _Agent:
        self._agents[path] = agent = _Agent(path)
        return agent

    def _agent_of(self, agent_id: str) -> _Agent:
        agent = self._by_id.get(agent_id)
        if agent is None:
            path = path_of(agent_id, self._head.thread_id)
            agent = self._agents.get(path) or self._new_agent(path)
            agent.has_id = id_at(path, self._head.thread_id) == agent_id
            self._by_id[agent_id] = agent
        return agent


def _stretch(call: _Call, found: Sequence[Row], at: int) -> int:
    """How many rows from `at` on are exactly the pieces of a call; 0 if that is not easy to see.

    The rows of an agent are complete and in order. So if the last piece is exactly as many rows
    after the first as the call has pieces, all rows in between are its pieces.
    """
    times = call.times
    behind = at + len(times)
    if not times or call.seqs or behind > len(found):
        return 0
    first, last = found[at], found[behind - 1]
    is_all = len(last) == 3 and first[1] == last[1]
    return len(times) if is_all and first[0] == times[0] and last[0] == times[-1] else 0


def _joined(ranges: Sequence[range]) -> Sequence[int]:
    return ranges[0] if len(ranges) == 1 else [*chain.from_iterable(ranges)]


def _begins_with(times: Sequence[float], texts: Sequence[str], rows: Sequence[TextRow]) -> bool:
    """Whether the pieces begin with these deltas."""
    count = len(rows)
    row_times, _, row_texts = zip(*rows, strict=True)
    return row_times == times[:count] and row_texts == texts[:count]


def _masked(
    texts: Sequence[str], text: str, secrets: Secrets, *, is_whole: bool
) -> tuple[Sequence[str], str]:
    """Pieces and their text with secrets masked, even the start of one at the end of a cut reply.

    The number of pieces stays the same, since each has its `seq`.
    """
    if secrets.mask(text) is not text:
        texts = secrets.mask_pieces(texts)
        text = "".join(texts)
    rest = 0 if is_whole else len(text) - secrets.beginning_at_end(text)
    if not is_whole and rest < len(text):
        kept = list[str]()
        for piece in texts:
            kept.append(piece[:rest])
            rest -= len(kept[-1])
        texts, text = kept, "".join(kept)
    return texts, text
