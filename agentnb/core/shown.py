"""Values that show themselves in a notebook, and the one place that says how.

The core knows no HTML. A value of it that a person may have as the last line of a cell asks the
presenter, which the package sets to what is above the core; without one it is its own `repr`.
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
    """Have values show themselves by `presenter`, and trees print themselves by `outline`."""
    global _presenter, _outline
    _presenter, _outline = presenter, outline


def outline_of(tree: object) -> str:
    """A tree as it is printed."""
    return _outline(tree)


class Shown:
    """A value that IPython, or anything that asks as it does, shows as more than its `repr`."""

    __slots__ = ()

    def _repr_mimebundle_(
        self, include: Container[str] | None = None, exclude: Container[str] | None = None
    ) -> Bundle:
        known_secrets()  # what is shown is masked by what is known
        return {
            kind: text
            for kind, text in _presenter(self).items()
            if (include is None or kind in include) and (exclude is None or kind not in exclude)
        }


class Listed(tuple[T, ...], Shown):
    """A tuple whose `repr` is one short line, however many values it has. So are its slices."""

    __slots__ = ()

    noun: ClassVar[str] = "value"
    """What one of them is called."""

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
    """The first of many names in one line, and how many more there are: `a, b and 18 more`.

    Args:
        names: As they are to be shown.
        most: How many of them are shown.
        none: What stands in place of no names.
    """
    names = list(names)
    shown = ", ".join(names[:most]) if names else none
    more = len(names) - most
    return f"{shown} and {more:,} more" if more > 0 else shown


def counted(number: int, noun: str, statuses: Iterable[Any] = ()) -> str:
    """`12 results: 10 completed, 2 failed`, in the order in which the statuses come up."""
    head = f"{number:,}" if number else "no"
    head += f" {noun}" + ("" if number == 1 else "s")
    by_status = Counter(status for status in statuses if status is not None)
    told = ", ".join(f"{count:,} {status}" for status, count in by_status.items())
    return f"{head}: {told}" if told else head
