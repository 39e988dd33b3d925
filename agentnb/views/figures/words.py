"""Formats words and numbers for figures and their alternative texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from agentnb.core.types import AgentNode, AgentStatus, RunUsage

_NAMED = 12
"""Most agents that an alternative text names."""


def counted(count: int, what: str) -> str:
    """`1 agent`, `2 agents`, `1,234 agents`."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def short_count(tokens: float) -> str:
    """At most four digits: `987`, `1.2k`, `35k`, `1.2M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # Use the larger unit if rounding would give a thousand of the smaller one.
        if tokens >= size * 0.9995:
            scaled = tokens / size
            return (
                f"{scaled:.1f}".removesuffix(".0") + unit
                if scaled < 99.95
                else f"{scaled:.0f}{unit}"
            )
    return f"{tokens:.0f}"


def seconds(duration_s: float) -> str:
    """`340 ms`, `3.2 s`, `2 min 5 s`, `1 h 20 min`."""
    if duration_s < 0.9995:
        return f"{duration_s * 1000:.0f} ms"
    if duration_s < 59.95:
        return f"{duration_s:.1f}".removesuffix(".0") + " s"
    whole = round(duration_s)
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, rest = divmod(round(whole / 60), 60)
    return f"{hours} h" + (f" {rest} min" if rest else "")


def share(part: float, whole: float) -> str:
    """`12 %`, `<1 %`, `>99 %`, `0 %`: never rounded to nothing, nor to all."""
    if whole <= 0 or part <= 0:
        return "0 %"
    percent = 100 * part / whole
    if percent < 1:
        return "<1 %"
    return ">99 %" if percent >= 99.5 and part < whole else f"{percent:.0f} %"


def cache_words(usage: RunUsage) -> str:
    """`42 % of input from cache (12,345 tokens)`; empty if no input has touched a cache."""
    cached = usage.cached_tokens
    if not cached:
        return "0 % of input from cache" if usage.cache_creation_tokens else ""
    whole = usage.input_tokens + usage.cache_creation_tokens + cached
    return f"{share(cached, whole)} of input from cache ({counted(cached, 'token')})"


def by_status(statuses: Iterable[AgentStatus]) -> dict[AgentStatus, int]:
    """The number of agents with each status, in the order of statuses, without zeros."""
    counts = Counter(statuses)
    return {status: counts[status] for status in AgentStatus if counts[status]}


def status_list(agents: Sequence[tuple[str, AgentStatus]]) -> str:
    """Paths and statuses on one line: of all agents, or if many, of those not completed."""
    if len(agents) <= _NAMED:
        return ", ".join(f"{path} {status}" for path, status in agents)
    parts = []
    for status, count in by_status(status for _, status in agents).items():
        paths = [path for path, its in agents if its is status]
        named = ""
        if status is not AgentStatus.COMPLETED:
            named = f" ({', '.join(paths[:_NAMED])}{', …' if count > _NAMED else ''})"
        parts.append(f"{count:,} {status}{named}")
    return ", ".join(parts)


def as_agents(root: AgentNode) -> list[tuple[str, AgentStatus]]:
    """Path and status of each agent, in path order."""
    return [(node.path, node.status) for node in root.walk()]
