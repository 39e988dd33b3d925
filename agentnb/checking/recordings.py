"""Two cassettes, run by run, in the words of `compare`: `python -m agentnb cassette diff`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from agentnb.cassette import Cassette
from agentnb.cassette.decode import task_in
from agentnb.checking.compare import ComparedAgent, Comparison, Side, Totals
from agentnb.core.records import EndRecord
from agentnb.core.shown import counted
from agentnb.core.text import quoted, visible
from agentnb.core.types import ROOT_PATH, AgentStatus
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
        is_same = compared.same and len(models) == 1
        count["same" if is_same else "changed"] += 1
        if not is_same:
            said = f" ({visible(' → '.join(models), 200)})" if len(models) > 1 else ""
            yield f"{name}{said}:\n{compared}"
    if count.total() > count["same"]:
        parts = [f"{count[kind]:,} {kind}" for kind in sorted(count)]
        yield f"{counted(count.total(), 'run')}: {', '.join(parts)}"


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
