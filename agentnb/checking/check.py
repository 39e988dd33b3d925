"""`agentnb.check(run)`: test what a person expects of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from agentnb.checking.given import Checkable, newest_record, record_of
from agentnb.core.errors import show_as_line
from agentnb.core.events import ToolCallStarted
from agentnb.core.shown import Bundle, Shown, counted, listed
from agentnb.core.text import literal, quoted, visible
from agentnb.core.types import ROOT_PATH, AgentNode, AgentStatus, path_of
from agentnb.errors import CheckFailed, UnknownPrice
from agentnb.prices import Cost, dollars
from agentnb.record import RunRecord
from agentnb.views.marked import marked_outline

_DOLLARS = re.compile(r"\$ ?((?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?|\.\d+)")
_ANSWER_LENGTH = 300
"""Characters of an answer that does not say what was expected."""
_NEWEST: Final = object()


def check(run: Checkable | object = _NEWEST) -> Check:
    """Test what a run did: `check(run).completed().spawned(3).under(50_000).said("Paris")`.

    Each method tests immediately and returns the check, so calls can be chained. The check shows a
    line for each passed test.

    Args:
        run: A `Run`, a `RunRecord` (from `session.load` or `load_run`), or a result. By default
            the run started last in this process. Waits for a run that has not ended.

    Raises:
        ValueError: `run` is not a run.
        RuntimeError: The run has not ended, and this is the thread that executes it.
    """
    return Check(newest_record() if run is _NEWEST else record_of(run))  # type: ignore[arg-type]


class Check(Shown):
    """Tests of one run. Created by `agentnb.check`.

    A failed test raises `CheckFailed`, an `AssertionError`: its message is the tree of agents with
    the wrong lines marked, what was expected, and what was found.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._passed: list[str] = []

    def __repr__(self) -> str:
        return f"Check({counted(len(self._passed), 'test')} passed)"

    def __str__(self) -> str:
        """A line for each test that passed. Without ids, times and counts of the run."""
        return "\n".join(f"✓ {line}" for line in self._passed) or "nothing tested yet"

    def _bundle(self) -> Bundle:
        from agentnb.views.markdown import text_html  # only when shown: Markdown takes time

        lines = str(self).split("\n")
        html = [f"<p>{'<br>'.join(map(text_html, lines))}</p>"]
        return {
            "text/plain": "\n".join(lines),
            "text/html": "\n".join(['<div class="agentnb-result">', *html, "</div>"]),
        }

    # -- tests ------------------------------------------------------------------------------------

    def completed(self) -> Check:
        """The run's status is `completed`; its sub-agents' may differ."""
        __tracebackhide__ = True
        status = self._record.status
        if status is not AgentStatus.COMPLETED:
            why = self._record.agent(ROOT_PATH).error if self._record.tree is not None else None
            found = f"{status}: {visible(why, _ANSWER_LENGTH)}" if why else str(status)
            raise self._failed("a completed run", found, {ROOT_PATH: "not completed"})
        return self._and("completed")

    def spawned(self, n: int) -> Check:
        """The run has exactly `n` agents besides its root. Skipped tasks do not count."""
        __tracebackhide__ = True
        _check_count("spawned", n, "agents")
        there = max(0, len(self._nodes()) - 1)
        if there != n:
            found = f"{there:,}"
            marks = {ROOT_PATH: f"{counted(there, 'agent')} below, not {n:,}"}
            raise self._failed(f"{counted(n, 'agent')} below the root", found, marks)
        return self._and(f"{counted(n, 'agent')} below the root")

    def max_depth(self, n: int) -> Check:
        """No agent is deeper than `n` levels below the root."""
        __tracebackhide__ = True
        _check_count("max_depth", n, "levels")
        deeper = [node for node in self._nodes() if node.depth > n]
        if deeper:
            deepest = max(node.depth for node in deeper)
            marks = {node.path: f"level {node.depth:,}" for node in deeper}
            expected = f"at most {counted(n, 'level')} below the root"
            raise self._failed(expected, f"{deepest:,}", marks)
        return self._and(f"at most {counted(n, 'level')} below the root")

    def under(self, limit: int | str) -> Check:
        """The run used fewer tokens, or cost less, than a limit.

        Args:
            limit: Tokens, as the provider counted them (`50_000`), or US dollars by list prices at
                the time of the calls (`"$0.10"`).

        Raises:
            UnknownPrice: A call has no price, and the others cost less than the limit.
        """
        __tracebackhide__ = True
        if (usd := _dollars_in(limit)) is not None:
            return self._costs_less(usd)
        assert isinstance(limit, int)
        used = self._record.usage.total_tokens
        if used >= limit:
            most = max(self._nodes(), key=lambda node: node.tokens_used)
            marks = {most.path: f"{most.tokens_used:,} of the {used:,}"}
            raise self._failed(f"under {counted(limit, 'token')}", f"{used:,}", marks)
        return self._and(f"under {counted(limit, 'token')}")

    def _costs_less(self, limit: Decimal) -> Check:
        __tracebackhide__ = True
        cost, most = self._record.cost, _in_dollars(limit)
        if Decimal(repr(cost.at_least_usd)) >= limit:
            path, part = max(cost.by_agent.items(), key=lambda each: each[1].at_least_usd)
            at_least = "at least " if cost.unpriced else ""
            marks = {path: f"{at_least}{dollars(part.at_least_usd)}"}
            found = f"{at_least}{dollars(cost.at_least_usd)}"
            raise self._failed(f"a cost under {most}", found, marks)
        if cost.unpriced:
            raise self._unpriced(cost, most)
        return self._and(f"under {most}")

    def said(self, text: str, agent: str | None = None) -> Check:
        """An answer contains this text, in the same case.

        Args:
            text: A part of the answer.
            agent: Whose answer: a path such as `1.2`, or an agent's id. By default the run's.

        Raises:
            UnknownAgent: The run has no such agent.
        """
        __tracebackhide__ = True
        if not isinstance(text, str) or not text:
            raise ValueError(f"Give `said` a part of the answer, as text, not {literal(text)}.")
        path, answer = self._answer_of(agent)
        whose = "the answer" if path == ROOT_PATH else f"the answer of agent {visible(path, 60)}"
        if text not in answer:
            case = " (it is there in another case)" if text.lower() in answer.lower() else ""
            found = f"{quoted(answer, limit=_ANSWER_LENGTH)}{case}" if answer else "no answer"
            expected = f"{quoted(text, limit=_ANSWER_LENGTH)} in {whose}"
            raise self._failed(expected, found, {path: "does not say it"})
        return self._and(f"{whose} says {quoted(text)}")

    def used_tool(self, name: str, times: int | None = None) -> Check:
        """The agents called a tool.

        Args:
            name: The tool's name.
            times: The exact number of calls by all agents, failed ones included; 0 for never. By
                default at least one.
        """
        __tracebackhide__ = True
        if not isinstance(name, str) or not name:
            raise ValueError(f"`used_tool` takes the name of a tool, not {literal(name)}.")
        if times is not None:
            _check_count("used_tool", times, "calls", argument="times")
        calls = self._tool_calls()
        by_agent = {path: count for (path, tool), count in calls.items() if tool == name}
        made = sum(by_agent.values())
        shown = f"tool {visible(name, 60)}"
        how_often = "at least once" if times is None else counted(times, "call")
        if (made == 0) if times is None else (made != times):
            marks = {path: counted(count, "call") for path, count in by_agent.items()}
            found = f"{counted(made, 'call')}; all tools: {_all_tools(calls)}"
            raise self._failed(f"{shown}: {how_often}", found, marks or {ROOT_PATH: "none"})
        return self._and(f"{shown}: {how_often}")

    # -- what is there ----------------------------------------------------------------------------

    def _nodes(self) -> list[AgentNode]:
        tree = self._record.tree
        return [] if tree is None else [*tree.walk()]

    def _answer_of(self, agent: str | None) -> tuple[str, str]:
        record = self._record
        if agent is None or agent in (ROOT_PATH, record.thread_id):
            return ROOT_PATH, record.output
        view = record.agent(agent)
        return view.path, view.text

    def _tool_calls(self) -> Counter[tuple[str, str]]:
        """Number of calls, by the agent's path and the tool's name."""
        root_id = self._record.thread_id
        return Counter(
            (path_of(entry.event.agent_id, root_id), entry.event.name)
            for entry in self._record.events
            if isinstance(entry.event, ToolCallStarted)
        )

    # -- what is said of it -----------------------------------------------------------------------

    def _and(self, passed: str) -> Check:
        self._passed.append(passed)
        return self

    def _failed(
        self,
        expected: str,
        found: str,
        marks: Mapping[str, str],
        kind: type[CheckFailed] = CheckFailed,
    ) -> CheckFailed:
        root = self._record.tree
        tree = "(The run has no agents.)" if root is None else marked_outline(root, marks)
        error = kind(expected, found, tree=tree, paths=[*marks])
        show_as_line(error)
        return error

    def _unpriced(self, cost: Cost, most: str) -> CheckFailed:
        marks = {path: one.amount for path, one in cost.by_agent.items() if one.unpriced}
        model = literal(cost.unpriced[0].model)
        found = (
            f"a cost that is not known ({cost}); `agentnb.set_prices({{{model}: "
            "agentnb.Price(input=..., output=...)})` sets a price"
        )
        return self._failed(f"a cost under {most}", found, marks, UnknownPrice)


def _all_tools(calls: Counter[tuple[str, str]]) -> str:
    by_tool = Counter[str]()
    for (_, tool), count in calls.items():
        by_tool[tool] += count
    return listed(f"{visible(tool, 60)} ({by_tool[tool]:,})" for tool in sorted(by_tool))


def _dollars_in(limit: object) -> Decimal | None:
    """An amount in US dollars; `None` if it is a number of tokens.

    Raises:
        ValueError: It is neither.
    """
    if isinstance(limit, str) and (found := _DOLLARS.fullmatch(limit.strip())):
        amount = Decimal(found[1].replace(",", ""))
        if amount > 0:
            return amount
    elif isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        return None
    raise ValueError(
        f"`under` takes tokens as a whole number (50_000), or US dollars as a text that begins "
        f'with a dollar sign ("$0.10", "$1", "$1,500"), above 0; not {literal(limit)}.'
    )


def _in_dollars(amount: Decimal) -> str:
    """As a person writes it: `$0.10`, `$0.0005`."""
    digits = f"{amount:,f}"
    whole, _, cents = digits.partition(".")
    return f"${whole}.{cents:0<2}" if cents else f"${whole}"


def _check_count(method: str, n: object, what: str, *, argument: str = "n") -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ValueError(
            f"`{argument}` of `{method}` must be a whole number of {what}, at least 0, not "
            f"{literal(n)}."
        )
