"""Binds the given names to copies: the data file is mapped, and a page is copied when it changes.

The file was written by the person's own process, so its pickles are read as they are.
"""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

_PART = 1 << 20


class Given:
    """The names that one worker was given.

    Args:
        index: By name: where in the data file its pickle and its buffers are, as offset and length.
        data: Descriptor of the data file; `None` if there is none.
    """

    def __init__(self, index: Mapping[str, Any], data: int | None) -> None:
        self._index, self._data = index, data
        self._file = self._mapped() if data is not None and index else None
        self.objects: dict[str, Any] = {}
        self.failed: dict[str, str] = {}
        for name in index:
            try:
                self.objects[name] = self._read(name, self._file)
            except Exception as error:
                self.failed[name] = f"{type(error).__name__}: {error}"[:500]

    def changed(self, names: Mapping[str, Any], *, in_doubt: Sequence[str]) -> dict[str, Any]:
        """The given names that are bound to something else now, or whose object was changed.

        Args:
            names: The names as they are bound now.
            in_doubt: Those that the code mentions: what it never names it cannot change.
        """
        changed = {}
        for name, first in self.objects.items():
            if name not in names or name.startswith("_"):
                continue
            now = names[name]
            if now is not first or (name in in_doubt and not self._is_as_given(name, now)):
                changed[name] = now
        return changed

    def _mapped(self) -> mmap.mmap:
        assert self._data is not None
        return mmap.mmap(self._data, 0, access=mmap.ACCESS_COPY)

    def _read(self, name: str, file: mmap.mmap | None) -> Any:
        assert file is not None
        whole = memoryview(file)
        entry = self._index[name]
        at, size = entry["pickle"]
        buffers = [whole[start : start + length] for start, length in entry["buffers"]]
        return pickle.loads(whole[at : at + size], buffers=buffers)

    def _is_as_given(self, name: str, now: Any) -> bool:
        """Whether an object pickles as the one that was given; false if that cannot be told."""
        try:
            # A new mapping: this worker may have written to the pages of the first.
            return _is_same(_dumped(now), _dumped(self._read(name, self._mapped())))
        except Exception:
            return False


def _dumped(value: Any) -> list[memoryview]:
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [memoryview(stream), *(each.raw() for each in buffers)]


def _is_same(one: list[memoryview], other: list[memoryview]) -> bool:
    if [len(each) for each in one] != [len(each) for each in other]:
        return False
    return all(
        # Copies of a part: views are compared item by item, which takes long.
        bytes(a[start : start + _PART]) == bytes(b[start : start + _PART])
        for a, b in zip(one, other, strict=True)
        for start in range(0, len(a), _PART)
    )


def names_bound(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The first hundred names that are bound to something else than before."""
    nothing = object()
    changed = (
        name
        for name, value in now.items()
        if not name.startswith("_") and before.get(name, nothing) is not value
    )
    return [str(name)[:100] for name in changed if name not in ("In", "Out", "exit", "quit")][:100]
