"""Texts and keys without the thread id of a run, which differs in each recording.

Only an id that agentnb made by chance is replaced: a thread that a person named keeps its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar

from agentnb.core.codec import plain
from agentnb.core.keys import CallKeys
from agentnb.core.secrets import Secrets
from agentnb.core.types import ROOT_PATH, CompletionRequest

T = TypeVar("T")

_MADE = re.compile(r"nb_[0-9]{8}_[a-z0-9]{6}(\.[0-9]+)*")


def has_id(text: str, thread_id: str) -> bool:
    """Whether a text contains the id, if that was made by chance."""
    return thread_id in text and _MADE.fullmatch(thread_id) is not None


def relative_text(text: str, thread_id: str) -> str:
    """`text` with `root` instead of the run's thread id."""
    return text.replace(thread_id, ROOT_PATH) if has_id(text, thread_id) else text


def relative_pieces(pieces: Sequence[str], thread_id: str) -> list[str]:
    """`relative_text` for the pieces of one text, even if the id spans several of them.

    The number of pieces stays the same.
    """
    whole, found, begun = "".join(pieces), list[str](), 0
    if not has_id(whole, thread_id):
        return [*pieces]
    starts = {match.start() for match in re.finditer(re.escape(thread_id), whole)}
    left_out = {at for start in starts for at in range(start, start + len(thread_id))}
    for piece in pieces:
        places = range(begun, begun + len(piece))
        begun += len(piece)
        said = [ROOT_PATH if at in starts else "" if at in left_out else whole[at] for at in places]
        found.append("".join(said))
    return found


def relative_key(
    model: str,
    request: CompletionRequest,
    key: str,
    thread_id: str,
    secrets: Secrets | None = None,
) -> str:
    """The key of a call in a cassette: its own, unless its request contains the thread's id.

    Args:
        model: `provider/model`.
        request: The call as it is sent in this run.
        key: The call's key.
        thread_id: The id of this run's root.
        secrets: The secrets to mask; by default those that are known now.
    """
    replaced = relative(request, thread_id)
    return key if replaced is request else CallKeys(secrets).key_of(model, replaced)


def relative(value: T, thread_id: str) -> T:
    """A value of ours with `relative_text` applied; the same object if no text contains the id."""
    found: Any = value
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        found = relative_text(value, thread_id)
    elif isinstance(value, tuple):
        items = tuple([relative(item, thread_id) for item in value])
        found = value if all(a is b for a, b in zip(items, value, strict=True)) else items
    elif isinstance(value, Mapping):
        written = plain(value)
        changed = plain(value, lambda text: relative_text(text, thread_id))
        found = value if written == changed else changed
    elif is_dataclass(value) and not isinstance(value, type):
        before = {each.name: getattr(value, each.name) for each in fields(value)}
        after = {name: relative(item, thread_id) for name, item in before.items()}
        if any(after[name] is not before[name] for name in before):
            found = type(value)(**after)
    return found  # type: ignore[no-any-return]
