"""Two cassettes, run by run, in the words of `compare`: `python -m agentnb cassette diff`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from agentnb.cassette import Cassette
from agentnb.cassette.decode import task_in
from agentnb.cassette.words import word_difference
from agentnb.checking.compare import ComparedAgent, Comparison, Side, Totals
from agentnb.core.records import CallRecord, EndRecord, RunJournal
from agentnb.core.shown import counted
from agentnb.core.text import quoted, visible
from agentnb.core.types import ROOT_PATH, AgentStatus, ToolUseBlock
from agentnb.prices import Call, cost_of


def recorded_differences(old: Cassette, new: Cassette) -> Iterator[str]:
    """What differs, a paragraph or more for each run, and at last the counts; nothing if none does.

    Args:
        old: The recordings before.
        new: Those after: runs with the same label are compared.
    """
    count: Counter[str] = Counter()
    for label in dict.fromkeys([*old.labels, *new.labels]):
        name = f"Run {quoted(label)}"
        if label not in new or label not in old:
            which = "before" if label in old else "after"
            count[f"only {which}"] += 1
            yield f"{name} is only in the cassette {which}."
            continue
        compared = Comparison(recorded_side(old, label), recorded_side(new, label))
        models = dict.fromkeys(each.journal(label).head.model for each in (old, new))
        is_alike = compared.same and len(models) == 1
        what = "\n".join(_edited(old, new, label)) if is_alike else str(compared)
        count["changed" if what else "same"] += 1
        if what:
            said = f" ({visible(' → '.join(models), 200)})" if len(models) > 1 else ""
            yield f"{name}{said}:\n{what}"
    if count.total() > count["same"]:
        parts = [f"{count[kind]:,} {kind}" for kind in sorted(count)]
        yield f"{counted(count.total(), 'run')}: {', '.join(parts)}"


def _edited(old: Cassette, new: Cassette, label: str) -> Iterator[str]:
    """The replies of a run that differ: a replay gives the new ones, whatever it ended with."""
    before, after = (dict(_answers(each.journal(label))) for each in (old, new))
    for place, said in before.items():
        if said != (now := after.get(place, said)):
            path, what, number, _ = place
            who = "root" if path == ROOT_PATH else f"agent {path}"
            yield f"  {visible(who, 60)}, {what} {number}: {word_difference(said, now)}"


def _answers(journal: RunJournal) -> Iterator[tuple[tuple[str, str, int, str], str]]:
    """The replies and the results of tools, by agent, kind, number and key."""
    for call in journal.calls:
        yield (call.path, "reply", call.number, call.key), _said(call)
    for made in journal.tool_calls:
        yield (made.path, "result of tool call", made.number, ""), made.result or ""


def _said(call: CallRecord) -> str:
    """A reply's text, and what it gives tools."""
    content = () if call.message is None else call.message.content
    given = (json.dumps(each.input) for each in content if isinstance(each, ToolUseBlock))
    return " ".join([call.text if call.message is None else call.message.text, *given])


def recorded_side(cassette: Cassette, label: str) -> Side:
    """A run as its cassette has it; an agent without an end is running.

    Args:
        cassette: Holds it.
        label: The run's.
    """
    journal = cassette.journal(label)
    at = datetime.fromtimestamp(journal.head.started_at, UTC)
    ends = {end.path: end for end in journal.ends}
    tasks = {ROOT_PATH: journal.head.task}
    tokens: Counter[str] = Counter()
    for call in journal.calls:
        asked = call.request  # a table's row has its task in its message
        tasks.setdefault(call.path, task_in(asked.system) or asked.messages[0].text)
        tokens[call.path] += 0 if call.usage is None else call.usage.total_tokens
    paths = list(filter(None, dict.fromkeys([*tasks, *ends])))
    calls = (Call(each.path, each.model, each.usage, at) for each in journal.calls)
    cost = cost_of(calls, paths=paths)

    def agent(path: str) -> ComparedAgent:
        end = ends.get(path) or EndRecord(path, AgentStatus.RUNNING)
        own, usd = tasks.get(path, ""), cost.by_agent[path].usd
        return ComparedAgent(path, end.status, own, end.text, end.error, tokens[path], usd)

    agents = {path: agent(path) for path in paths}
    status = ends[None].status if None in ends else AgentStatus.RUNNING
    totals = Totals(status, len(agents), tokens.total(), cost.usd, cost.amount)
    return Side(agents, totals)
