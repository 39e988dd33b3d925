"""`agentnb.compare(before, after)`: two runs' trees side by side, and which words differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentnb.cassette.words import Piece, marked, word_diff
from agentnb.checking.given import Checkable, record_of
from agentnb.core.shown import Bundle, Listed, Shown, counted
from agentnb.core.text import LONGEST_LINE, quoted, visible
from agentnb.core.types import AgentStatus, path_key
from agentnb.prices import dollars
from agentnb.record import RunRecord
from agentnb.views.outline import GLYPHS
from agentnb.views.table import ROWS, Table

Change = Literal["same", "changed", "only before", "only after"]
_TEXTS = ("task", "answer", "error")
_FIELDS = ("status", *_TEXTS, "tokens", "cost_usd")
_CELL_WIDTH = 70
_TASK_WIDTH = 30
_ONLY_BLANKS = "(only white space differs, or a secret)"


def compare(before: Checkable, after: Checkable) -> Comparison:
    """Compare two runs agent by agent: those with the same path.

    Args:
        before: A `Run`, a `RunRecord` (from `session.load` or `load_run`), or a result. Waits for
            a run that has not ended.
        after: The other run; its tree may have any shape.

    Raises:
        ValueError: One of them is not a run.
        RuntimeError: One has not ended, and this is the thread that executes it.
    """
    return Comparison(side_of(record_of(before)), side_of(record_of(after)))


@dataclass(frozen=True, slots=True, repr=False)
class ComparedAgent:
    """One agent of one of the runs, or a skipped task. Its texts are masked."""

    path: str
    status: AgentStatus
    task: str
    answer: str
    error: str | None
    tokens: int
    """Its own, as the provider counted them."""
    cost_usd: float | None
    """Of its own calls; `None` if one has no price."""

    def __repr__(self) -> str:
        return f"ComparedAgent({visible(self.path, 60)}, {self.status}, {quoted(self.task)})"


@dataclass(frozen=True, slots=True, repr=False)
class AgentChange:
    """What differs between the agents of one path."""

    path: str
    change: Change
    before: ComparedAgent | None
    """`None` if only the run after has the agent."""
    after: ComparedAgent | None
    differs: tuple[str, ...] = ()
    """The fields that differ, such as `status` or `answer`; empty if only one run has the
    agent."""

    def __repr__(self) -> str:
        what = f": {', '.join(self.differs)}" if self.differs else ""
        return f"AgentChange({visible(self.path, 60)}, {self.change}{what})"

    def words(self, field: str = "answer") -> str:
        """The words that differ in a text, as `… the [-old-]{+new+} word …`; empty if none differ.

        Args:
            field: `answer`, `task` or `error`.
        """
        if field not in _TEXTS:
            raise ValueError(f"`field` must be one of {', '.join(_TEXTS)}, not {quoted(field)}.")
        return marked(self.pieces(field))

    def pieces(self, field: str) -> list[Piece]:
        """The same in pieces."""
        if self.before is None or self.after is None:
            return []
        one, other = getattr(self.before, field) or "", getattr(self.after, field) or ""
        return word_diff(one, other)


class AgentChanges(Listed[AgentChange]):
    """What differs between the agents of two runs, in path order."""

    __slots__ = ()
    noun = "agent"


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of one run."""

    status: AgentStatus
    agents: int
    tokens: int
    cost_usd: float | None
    """`None` if a call has no price."""
    cost: str
    """In words."""

    def __str__(self) -> str:
        agents, tokens = counted(self.agents, "agent"), counted(self.tokens, "token")
        return f"{_in_words(self.status)} · {agents} · {tokens} · {self.cost}"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the runs."""

    agents: Mapping[str, ComparedAgent]
    """By path; with the tasks that were skipped."""
    totals: Totals


class Comparison(Shown):
    """Two runs, compared. Created by `agentnb.compare`."""

    def __init__(self, before: Side, after: Side) -> None:
        these, those = before.agents, after.agents
        paths = sorted({*these, *those}, key=path_key)
        self.agents = AgentChanges(_change(p, these.get(p), those.get(p)) for p in paths)
        """All agents of both runs and the tasks that they skipped, in path order."""
        self.before = before.totals
        self.after = after.totals

    @property
    def same(self) -> bool:
        """Whether all agents of both have equal statuses, texts, tokens and costs."""
        return self.before == self.after and all(each.change == "same" for each in self.agents)

    @property
    def changed(self) -> AgentChanges:
        """The agents that differ."""
        return AgentChanges(each for each in self.agents if each.change != "same")

    def __repr__(self) -> str:
        return f"Comparison({self._in_short})"

    def __str__(self) -> str:
        """The comparison for a terminal."""
        return self._bundle()["text/plain"]

    @property
    def _in_short(self) -> str:
        count = Counter(each.change for each in self.agents)
        return ", ".join(f"{count[change]:,} {change}" for change in sorted(count)) or "no agents"

    def to_records(self) -> list[dict[str, Any]]:
        """One flat dict per agent in path order: `pandas.DataFrame(comparison.to_records())`.

        Each field of a `ComparedAgent` appears twice, as `status_before` and `status_after`;
        `None` where a run does not have the agent.
        """
        return [
            {"path": each.path, "change": each.change, "differs": ", ".join(each.differs)}
            | {
                f"{name}_{which}": _plain(getattr(agent, name, None))
                for name in _FIELDS
                for which, agent in (("before", each.before), ("after", each.after))
            }
            for each in self.agents
        ]

    # -- shown ------------------------------------------------------------------------------------

    def _bundle(self) -> Bundle:
        from agentnb.views.markdown import text_html  # only when shown: Markdown takes time

        if self.same:
            lines, parts = [f"The runs are the same: {self.before}"], []
        else:
            lines = [f"before: {self.before}", f"after:  {self.after}", self._in_short]
            parts = [_table(self.changed), *_texts(self.changed[:ROWS])] if self.changed else []
        lines = [visible(line, LONGEST_LINE) for line in lines]
        html = [f"<p>{'<br>'.join(map(text_html, lines))}</p>", *(part for _, part in parts)]
        return {
            "text/plain": "\n\n".join(["\n".join(lines), *(part for part, _ in parts)]),
            "text/html": "\n".join(['<div class="agentnb-result">', *html, "</div>"]),
        }


def _table(changed: Sequence[AgentChange]) -> tuple[str, str]:
    rows = [
        (
            each.path,
            ", ".join(each.differs).replace("cost_usd", "cost") or each.change,
            _cell(each.before),
            _cell(each.after),
        )
        for each in changed[:ROWS]
    ]
    columns = ("agent", "differs", "before", "after")
    table = Table(columns, rows, length=len(changed), cell_width=_CELL_WIDTH)
    return table.plain, table.html


def _cell(agent: ComparedAgent | None) -> str:
    if agent is None:
        return "–"  # noqa: RUF001 - a dash, as for a task that was skipped
    cost = "" if agent.cost_usd is None else f" · {dollars(agent.cost_usd)}"
    task, tokens = visible(agent.task, _TASK_WIDTH), counted(agent.tokens, "token")
    return f"{_in_words(agent.status)} · {task} · {tokens}{cost}"


def _texts(changed: Sequence[AgentChange]) -> list[tuple[str, str]]:
    """For each differing text, a line with its words: plain, and as HTML."""
    from agentnb.views.markdown import text_html

    found: list[tuple[str, str]] = []
    for each in changed:
        for name in _TEXTS:
            if name not in each.differs:
                continue
            title = f"{visible(each.path, 60)}, {name}:"
            pieces = each.pieces(name)
            html = marked(pieces, _piece_html) or text_html(_ONLY_BLANKS)
            found.append(
                (f"{title} {marked(pieces) or _ONLY_BLANKS}", f"<p>{text_html(title)} {html}</p>")
            )
    return found


def _piece_html(piece: Piece) -> str:
    from agentnb.views.markdown import text_html

    tag = {"gone": "del", "new": "ins"}.get(piece.kind)
    text = text_html(piece.text)
    return text if tag is None else f"<{tag}>{text}</{tag}>"


def _in_words(status: AgentStatus) -> str:
    return f"{GLYPHS[status]} {status}"


# -- what is compared ------------------------------------------------------------------------------


def side_of(record: RunRecord) -> Side:
    """A run as it is compared."""
    return Side({row["path"]: _agent(row) for row in record.to_records()}, _totals(record))


def _agent(row: Mapping[str, Any]) -> ComparedAgent:
    return ComparedAgent(
        path=row["path"],
        status=AgentStatus(row["status"]),
        task=row["task"],
        answer=row["answer"],
        error=row["error"],
        tokens=row["tokens_used"],
        cost_usd=row["cost_usd"],
    )


def _change(path: str, before: ComparedAgent | None, after: ComparedAgent | None) -> AgentChange:
    if before is None or after is None:
        return AgentChange(path, "only after" if before is None else "only before", before, after)
    differs = tuple([n for n in _FIELDS if getattr(before, n) != getattr(after, n)])
    return AgentChange(path, "changed" if differs else "same", before, after, differs)


def _totals(record: RunRecord) -> Totals:
    tree, cost = record.tree, record.cost
    return Totals(
        status=record.status,
        agents=0 if tree is None else sum(1 for _ in tree.walk()),
        tokens=record.usage.total_tokens,
        cost_usd=cost.usd,
        cost=cost.amount,
    )


def _plain(value: object) -> object:
    return str(value) if isinstance(value, AgentStatus) else value
