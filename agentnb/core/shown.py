"""How the core's values are displayed in a notebook.

The core knows no HTML. A value that may be the last line of a cell asks the presenter, which the
package sets; without one, its `repr` is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from typing import Any, ClassVar, Self, SupportsIndex, TypeVar, overload

from agentnb.core.secrets import known_secrets

T = TypeVar("T")

Bundle = dict[str, str]
"""MIME types to text."""


def _as_text(value: object) -> Bundle:
    return {"text/plain": repr(value)}


_presenter: Callable[[object], Bundle] = _as_text
_outline: Callable[[Any], str] = repr


def present_with(presenter: Callable[[object], Bundle], outline: Callable[[Any], str]) -> None:
    """Set how values are displayed, in place of the earlier presenter.

    Args:
        presenter: Returns a value's MIME bundle.
        outline: Returns a tree as text.
    """
    global _presenter, _outline
    _presenter, _outline = presenter, outline


def outline_of(tree: object) -> str:
    """A tree as text."""
    return _outline(tree)


class Shown:
    """A value with a MIME bundle for IPython."""

    __slots__ = ()

    def _repr_mimebundle_(
        self, include: Container[str] | None = None, exclude: Container[str] | None = None
    ) -> Bundle:
        known_secrets()  # refreshed here: the presenter masks with `masked_as_known`
        return {
            kind: text
            for kind, text in self._bundle().items()
            if (include is None or kind in include) and (exclude is None or kind not in exclude)
        }

    def _bundle(self) -> Bundle:
        """The value's MIME bundle. A type on a floor above the presenter overrides this."""
        return _presenter(self)


class Listed(tuple[T, ...], Shown):
    """A tuple whose `repr` is one short line, like that of its slices."""

    __slots__ = ()

    noun: ClassVar[str] = "value"
    """Names one value."""

    @overload
    def __getitem__(self, place: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: SupportsIndex | slice) -> T | Self:
        if isinstance(place, slice):
            return type(self)(super().__getitem__(place))
        return super().__getitem__(place)

    @property
    def headline(self) -> str:
        """`12 results: 10 completed, 2 failed`."""
        return counted(len(self), self.noun, (getattr(item, "status", None) for item in self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.headline})"


def listed(names: Iterable[str], *, most: int = 20, none: str = "none") -> str:
    """The first of many names on one line, and the number of the others: `a, b and 18 more`.

    Args:
        names: The names as they are shown.
        most: Most names that are shown.
        none: The text if there are no names.
    """
    names = list(names)
    shown = ", ".join(names[:most]) if names else none
    more = len(names) - most
    return f"{shown} and {more:,} more" if more > 0 else shown


def _plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def counted(number: int, noun: str, statuses: Iterable[Any] = ()) -> str:
    """`12 results: 10 completed, 2 failed`, with statuses in the order of their first occurrence.

    Args:
        number: The number of values; 0 is shown as `no`.
        noun: The noun for one value.
        statuses: The values' statuses; `None` is not counted.
    """
    head = f"{number:,}" if number else "no"
    head += f" {noun if number == 1 else _plural(noun)}"
    by_status = Counter(status for status in statuses if status is not None)
    by_count = ", ".join(f"{count:,} {status}" for status, count in by_status.items())
    return f"{head}: {by_count}" if by_count else head
