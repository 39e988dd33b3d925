"""Reuse of answers: a row that an earlier map has answered is not asked again.

Rows are the same if their first calls are: model, prompt and tools. A map looks for its rows in
the maps with the same name (else the same prompt) and the same type of answers: in the store,
with those that were interrupted or killed, or without a store among the maps of this kernel.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from agentnb.core.budget import as_json
from agentnb.core.plan import ReusedAnswer
from agentnb.core.protocols import OutputType

Found = Mapping[str, Sequence[ReusedAnswer]]
"""The answers of one map by key, in the order of its rows."""
Label = tuple[str, str | None]
"""The name or prompt of a map, and the schema of its answers as JSON."""
Keep = Callable[[str, str], None]
"""Called with the key and the answer's text of a completed row."""
MOST_MAPS = 20
"""Number of earlier maps of a label that are searched."""


def together(maps: Iterable[Found]) -> dict[str, list[ReusedAnswer]]:
    """Merge the answers of several maps, given from the newest to the oldest.

    For each key an older map adds only as many answers as it has beyond those already found, since
    the newer map may have reused its answers.
    """
    merged: dict[str, list[ReusedAnswer]] = {}
    for found in maps:
        for key, answers in found.items():
            known = merged.setdefault(key, [])
            known += answers[len(known) :]
    return merged


class _Answers:
    """The common part of both sources of answers. See `agentnb.core.plan.RowAnswers`."""

    def __init__(self, keep: Keep | None) -> None:
        self._keep = keep
        self.taken = 0
        """Number of answers that `find` has returned."""

    @property
    def keeps(self) -> bool:
        """Whether `keep` does anything, so that it is worth to compute a row's key."""
        return self._keep is not None

    def keep(self, number: int, key: str, text: str) -> None:
        """Keep the answer of a completed row for later maps."""
        if self._keep is not None:
            self._keep(key, text)


class EarlierAnswers(_Answers):
    """Answers of earlier maps. See `agentnb.core.plan.RowAnswers`.

    Args:
        found: The answers by key; each is used for one row, in order.
        keep: Called for each completed row; by default its answer is not kept.
    """

    def __init__(self, found: Found, keep: Keep | None = None) -> None:
        super().__init__(keep)
        self._left = {key: deque(answers) for key, answers in found.items()}

    def __len__(self) -> int:
        return sum(map(len, self._left.values()))

    def find(self, number: int, key: Callable[[], str]) -> ReusedAnswer | None:
        """The next answer for a row with this key, `None` if there is none left."""
        if not self._left:
            return None  # saves computing the key
        answers = self._left.get(key())
        if not answers:
            return None
        self.taken += 1
        return answers.popleft()


class KernelAnswers:
    """The answers of this kernel's maps, for sessions without a store. Safe from any thread."""

    def __init__(self) -> None:
        self._maps: dict[Label, deque[dict[str, list[ReusedAnswer]]]] = defaultdict(
            lambda: deque(maxlen=MOST_MAPS)
        )
        """By label: the answers of its maps, the newest first."""
        self._lock = threading.Lock()

    def found(self, label: Label) -> Found:
        """The answers of all maps of a label."""
        with self._lock:
            return together(self._maps[label])

    def begin(self, label: Label) -> Keep:
        """Add a new map, and return a function that keeps its answers."""
        own: dict[str, list[ReusedAnswer]] = {}
        with self._lock:
            self._maps[label].appendleft(own)

        def keep(key: str, text: str) -> None:
            with self._lock:
                own.setdefault(key, []).append(ReusedAnswer("", text))

        return keep


class TakenAnswers(_Answers):
    """Answers by the agents' numbers, whatever the rows' keys. See `RowAnswers`."""

    def __init__(self, by_number: Mapping[int, ReusedAnswer], keep: Keep | None = None) -> None:
        super().__init__(keep)
        self._by_number = by_number

    @property
    def foreign(self) -> Set[int]:
        """The numbers of the answers that another model gave."""
        return {number for number, answer in self._by_number.items() if answer.is_foreign}

    def __len__(self) -> int:
        return len(self._by_number)

    def find(self, number: int, key: Callable[[], str]) -> ReusedAnswer | None:
        """The answer for the agent with this number, `None` if there is none."""
        answer = self._by_number.get(number)
        self.taken += answer is not None
        return answer


def label_of(name: str, prompt: str, output: OutputType | None) -> Label:
    """The label by which a map finds earlier ones."""
    schema = None if output is None else as_json(output.schema)
    return f"name {name}" if name else f"prompt {prompt}", schema
