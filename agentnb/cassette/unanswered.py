"""Calls that no model answered: they are no part of a recording.

A missing key, a server that cannot be reached or has no room: kept, such a failure would answer for
ever, though the next call may succeed. What a server says of the request itself is a recording, and
so are a model's refusal and a reply that broke off. A call that fails before the same agent has an
answer, from a further try or the next model of a chain, is kept with that: a replay goes the same
way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from agentnb.core.records import CallRecord, EndRecord, Kept
from agentnb.core.shown import listed
from agentnb.core.text import one_line
from agentnb.core.types import ROOT_PATH, path_key

_STATUSES = (401, 402, 403, 429)
_ERRORS = frozenset(
    (
        *("MissingKey", "MissingExtra", "AuthenticationFailed", "NoCredit", "RateLimited"),
        *("Overloaded", "ServerFailed", "ConnectionFailed", "CallTimedOut", "ClusterFailed"),
        *("WorkerLost", "NetworkClosed"),
    )
)


def is_unanswered(record: CallRecord) -> bool:
    """Whether a finished call failed before a model said anything, and not for its request."""
    error = record.error
    if error is None or record.message is not None or record.stop_reason is not None:
        return False
    status = error["status"]
    is_status = status is not None and (status in _STATUSES or status >= 500)
    return is_status or bool(_ERRORS & {error["class"], error.get("base")})


def answered(records: Iterable[CallRecord]) -> list[CallRecord]:
    """The calls of a recording but for those that no model answered."""
    calls = Answers()
    kept = (each for record in records for each in calls.part_of(record))
    return [each for each in kept if isinstance(each, CallRecord)]


class Answers:
    """Of one run: which of its records are part of a recording, as they come."""

    def __init__(self) -> None:
        self._held: defaultdict[str, list[CallRecord]] = defaultdict(list)
        """By agent: the newest calls, of which none was answered."""
        self.left_out: list[CallRecord] = []
        """Those that ended their agents."""

    def part_of(self, record: Kept) -> Sequence[Kept]:
        """What is to be kept now."""
        match record:
            case CallRecord() if is_unanswered(record):
                self._held[record.path].append(record)
                return ()
            case CallRecord(path=path):
                return (*self._held.pop(path, ()), record)
            case EndRecord(path=path):
                self.left_out += self._held.pop(path or ROOT_PATH, ())
                return () if self._has_failed_below(path or ROOT_PATH) else (record,)
        return (record,)

    def _has_failed_below(self, path: str) -> bool:
        beginning = "" if path == ROOT_PATH else f"{path}."
        paths = {each.path for each in self.left_out}
        return any(each == path or each.startswith(beginning) for each in paths)

    def in_words(self) -> str:
        """What was left out, and why, as the beginning of a sentence."""
        agents = {each.path: each for each in self.left_out}
        paths = sorted(agents, key=path_key)
        error = agents[paths[0]].error
        assert error is not None
        why = f"{error['class']}: {one_line(error['message'])}"
        return f"agent {listed(paths, most=5)} got no answer from a model ({why})"
