"""Answers from before: a row that was answered in an earlier map is not asked again.

A row is the same if its first call is: model, prompt, tools. Maps of one label (their name, else
their prompt) and one type of answers know each other's rows: those in the store, also of maps that
were interrupted or killed, and without a store those of this kernel.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from agentnb.core.budget import as_json
from agentnb.core.plan import ReusedAnswer
from agentnb.core.protocols import OutputType

Found = Mapping[str, Sequence[ReusedAnswer]]
"""By key: the answers of one map, in the order of its rows."""
Label = tuple[str, str | None]
"""Name or prompt of maps, and the schema of their answers."""
Keep = Callable[[str, str], None]
"""Takes key and text of a row that has completed."""
MOST_MAPS = 20
"""Earlier maps of a label that are looked at."""


def together(maps: Iterable[Found]) -> dict[str, list[ReusedAnswer]]:
    """The answers of several maps, the newest first.

    An older map adds to a key only the answers that it has more: it may be where the newer one has
    its answers from.
    """
    merged: dict[str, list[ReusedAnswer]] = {}
    for found in maps:
        for key, answers in found.items():
            known = merged.setdefault(key, [])
            known += answers[len(known) :]
    return merged


class _Answers:
    """What is common to both sources of answers. See `agentnb.core.plan.RowAnswers`."""

    def __init__(self, keep: Keep | None) -> None:
        self._keep = keep
        self.taken = 0
        """How many were taken."""

    @property
    def keeps(self) -> bool:
        """Whether it wants to be told of new answers."""
        return self._keep is not None

    def keep(self, number: int, key: str, text: str) -> None:
        """A row has completed."""
        if self._keep is not None:
            self._keep(key, text)


class EarlierAnswers(_Answers):
    """Answers of earlier maps. See `agentnb.core.plan.RowAnswers`.

    Args:
        found: By key; each answers one row, in order.
        keep: Takes key and text of each row that has completed; not called when left out.
    """

    def __init__(self, found: Found, keep: Keep | None = None) -> None:
        super().__init__(keep)
        self._left = {key: deque(answers) for key, answers in found.items()}

    def __len__(self) -> int:
        return sum(map(len, self._left.values()))

    def find(self, number: int, key: Callable[[], str]) -> ReusedAnswer | None:
        """The answer to a row with this key."""
        if not self._left:
            return None  # a key takes time
        answers = self._left.get(key())
        if not answers:
            return None
        self.taken += 1
        return answers.popleft()


class KernelAnswers:
    """The answers of a kernel's maps that no store keeps. Safe from any thread."""

    def __init__(self) -> None:
        self._maps: dict[Label, deque[dict[str, list[ReusedAnswer]]]] = defaultdict(
            lambda: deque(maxlen=MOST_MAPS)
        )
        """The newest first."""
        self._lock = threading.Lock()

    def found(self, label: Label) -> Found:
        """The answers of the maps of a label."""
        with self._lock:
            return together(self._maps[label])

    def begin(self, label: Label) -> Keep:
        """A map begins. What this returns keeps its answers."""
        own: dict[str, list[ReusedAnswer]] = {}
        with self._lock:
            self._maps[label].appendleft(own)

        def keep(key: str, text: str) -> None:
            with self._lock:
                own.setdefault(key, []).append(ReusedAnswer("", text))

        return keep


class TakenAnswers(_Answers):
    """Answers by the agents' numbers, whatever their calls were. See `RowAnswers`."""

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
        """The answer to the row with this number."""
        answer = self._by_number.get(number)
        self.taken += answer is not None
        return answer


def label_of(name: str, prompt: str, output: OutputType | None) -> Label:
    """By what maps know each other."""
    schema = None if output is None else as_json(output.schema)
    return f"name {name}" if name else f"prompt {prompt}", schema
