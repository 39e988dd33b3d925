"""Masks the secrets of this process in all text that leaves it.

A secret is the value, of 8 characters or more, of an environment variable whose name says so or
which the settings name for a key, or any key that a provider was given or has sent. Text that is
shown, written or raised has `[secret NAME]` in its place, whatever its encoding. What a model is
sent is not changed.

A text is searched for each secret in turn, longest first, so that a secret that begins with another
one is masked whole. This takes linear time in the text, whatever the secrets contain.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from urllib.parse import quote, quote_plus, unquote

SHORTEST = 8
"""Fewest characters of a secret: a shorter value is a word like `ollama`, not worth hiding."""
_MOST_NOTED = 1_000
_LONGEST_NAME = 60
_LONG = 16
"""Fewest characters of a secret whose parts are masked, too: it cannot be a word."""
_LINE = re.compile(r"[^\s-]{16,}")
"""A line of a secret with several lines, such as a private key."""

_ENDS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_HEADERS = "_CUSTOM_HEADERS"
_ADDRESSES = ("_BASE_URL", "_PROXY")
_SCHEMES = ("basic", "bearer", "token")
_SENT = ("authorization", "proxy-authorization", "x-api-key")
"""Headers that contain a key."""

_noted: dict[str, str] = {}
"""Names of the secrets that were given or sent, by value, the newest last."""
_named: set[str] = set()
"""Environment variables that the settings name for a key."""


def note(name: str, value: str | None) -> None:
    """Register a secret that was given in code, or is sent as a key.

    Args:
        name: The name shown instead of the secret.
        value: Ignored if it is too short for a secret.
    """
    value = (value or "").strip()
    if len(value) < SHORTEST or value in _noted:
        return
    _noted[value] = name  # no lock: a process forked meanwhile would wait for it for ever
    for oldest in list(_noted)[:-_MOST_NOTED]:
        _noted.pop(oldest, None)


def note_variable(name: str | None) -> None:
    """Register an environment variable that contains a key, whatever its name."""
    if name:
        _named.add(name)


def note_headers(headers: Mapping[str, str]) -> None:
    """Register the keys in the headers of a request."""
    for name in _SENT:
        for value in _parts_of_header(headers.get(name) or ""):
            note("x-api-key" if name == "x-api-key" else name.title(), value)


def note_address(name: str, address: str | None) -> None:
    """Register the password in an address."""
    for value in _passwords_in(address or ""):
        note(name, value)


def _in_environment() -> Iterator[tuple[str, str]]:
    """Values and names of the secrets in the environment."""
    for name in os.environ:
        holds = "key" if name in _named else _holds(name)
        if not holds:
            continue  # nearly all variables: their values are not read, as this runs often
        value = os.environ.get(name, "")
        if holds == "key":
            yield value, name
        elif holds == "headers":
            for line in value.splitlines():
                yield from ((part, name) for part in _parts_of_header(line.partition(":")[2]))
        else:
            yield from ((password, name) for password in _passwords_in(value))


@lru_cache(maxsize=4096)
def _holds(name: str) -> str:
    """What a variable holds, by its name: `key`, `headers`, `address`, or empty for no secret."""
    upper = name.upper()
    ends = {"key": _ENDS, "headers": (_HEADERS,), "address": _ADDRESSES}
    return next((what for what, end in ends.items() if upper.endswith(end)), "")


def _parts_of_header(value: str) -> Iterator[str]:
    """A header's value without its scheme, and the password in basic authentication."""
    scheme, _, rest = value.strip().partition(" ")
    if scheme.lower() not in _SCHEMES:
        yield value
        return
    yield rest
    if scheme.lower() == "basic":
        with suppress(ValueError):
            user_and_password = base64.b64decode(rest, validate=True).decode()
            yield user_and_password.partition(":")[2]


def _passwords_in(address: str) -> Iterator[str]:
    """The password in an address, as written and as sent; the user if there is no password.

    A password that was not encoded may contain the `/` that ends the host.
    """
    behind = address.partition("//")[2] or address
    before_path = behind.partition("/")[0]
    written = (before_path if "@" in before_path else behind).rpartition("@")[0]
    if "@" in before_path or ":" in written:
        user, _, password = map(unquote, written.partition(":"))
        yield written.partition(":")[2] or written
        yield password or user
        with suppress(ValueError):  # a lone surrogate has no UTF-8
            yield base64.b64encode(f"{user}:{password}".encode()).decode()


# -- masking --------------------------------------------------------------------------------------


class Secrets:
    """The secrets known at one time.

    Args:
        names: The secrets' names, by value.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)
        marks = {
            form: _mark(name) for value, name in self.names.items() for form in _forms_of(value)
        }
        self._marks = sorted(marks.items(), key=lambda mark: -len(mark[0]))
        self._lengths = [-len(form) for form, _ in self._marks]
        solid = {_solid(value): _mark(name) for value, name in self.names.items()}
        self._long = sorted(
            (_Piecemeal(value, mark) for value, mark in solid.items() if len(value) >= _LONG),
            key=lambda one: -len(one.value),
        )

    def __repr__(self) -> str:
        return f"Secrets({len(self.names)})"

    def mask(self, text: str) -> str:
        """`text` with `[secret NAME]` in place of each whole secret."""
        # Skip secrets that are longer than the text: most texts are short, most keys are not.
        for form, mark in self._marks[bisect_left(self._lengths, -len(text)) :]:
            if form in text:
                text = text.replace(form, mark)
        return text

    def mask_pieces(self, pieces: Sequence[str]) -> Sequence[str]:
        """The pieces of one text with its secrets masked, also those that span pieces.

        Returns:
            The same number of pieces. A secret's replacement is in the piece where it began.
        """
        whole = "".join(pieces)
        if self.mask(whole) == whole:
            return pieces
        spans, place, begun, kept = self._spans(whole), 0, 0, list[str]()
        for piece in pieces:
            begin, end = begun, begun + len(piece)
            said, done = list[str](), begin
            while place < len(spans) and spans[place][0] < end:
                first, behind, mark = spans[place]
                said += [whole[done:first], mark if first >= begin else ""]
                done = min(behind, end)
                if behind > end:
                    break
                place += 1
            kept.append("".join([*said, whole[done:end]]))
            begun = end
        return kept

    def _spans(self, text: str) -> list[tuple[int, int, str]]:
        """Start, end and replacement of each secret in a text, in order."""
        pattern = "|".join(re.escape(form) for form, _ in self._marks)
        marks = dict(self._marks)
        return [(*found.span(), marks[found[0]]) for found in re.finditer(pattern, text)]

    def mask_words(self, text: str) -> str:
        """`mask` for a text in which secrets may be cut or broken, such as another program's.

        Also masks the first or last third of a long secret, and ignores white space within it. A
        user in an address is masked, too.
        """
        text = _USER.sub("//…@", self.mask(text))
        solid = _solid(text)
        for one in self._long:
            if one.head in solid or one.tail in solid:
                text = _without_pieces(text, solid, one)
                solid = _solid(text)
        return text

    def beginning_at_end(self, text: str) -> int:
        """How many characters at the end of a text may be the beginning of a secret.

        Fewer than `SHORTEST` count as 0, since many words end like some secret begins.
        """
        most, end = 0, text[-SHORTEST:]
        for form, _ in self._marks if len(end) == SHORTEST else ():
            at = form.rfind(end, 0, len(form) - 1)
            while at >= 0 and not text.endswith(form[: at + SHORTEST]):
                at = form.rfind(end, 0, at + SHORTEST - 1)
            most = max(most, at + SHORTEST if at >= 0 else 0)
        return most


_USER = re.compile(r"//[^\s/@]+@")


def _mark(name: str) -> str:
    return f"[secret {re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:_LONGEST_NAME]}]"


class _Piecemeal:
    """A secret that is found by its beginning or its end."""

    def __init__(self, value: str, mark: str) -> None:
        least = max(SHORTEST + 2, len(value) // 3)
        self.value, self.mark = value, mark
        self.head, self.tail = value[:least], value[-least:]


def _solid(text: str) -> str:
    """The text without white space."""
    return "".join(text.split())


def _without_pieces(text: str, solid: str, one: _Piecemeal) -> str:
    """The text without parts that begin or end like the secret, white space ignored."""
    value = one.value
    spans = sorted([*_heads(solid, value, one.head), *_tails(solid, value, one.tail)])
    places = [place for place, character in enumerate(text) if not character.isspace()]
    pieces, done = list[str](), 0
    for begin, end in spans:
        first, behind = places[begin], places[end - 1] + 1
        if first >= done:
            pieces += [text[done:first], one.mark]
        done = max(done, behind)
    return "".join([*pieces, text[done:]])


def _heads(solid: str, value: str, head: str) -> Iterator[tuple[int, int]]:
    at = solid.find(head)
    while at >= 0:
        end = at + len(head)
        while end < len(solid) and end - at < len(value) and solid[end] == value[end - at]:
            end += 1
        yield at, end
        at = solid.find(head, end)


def _tails(solid: str, value: str, tail: str) -> Iterator[tuple[int, int]]:
    done, at = 0, solid.find(tail)
    while at >= 0:
        begin, end = at, at + len(tail)
        while (
            begin > done and end - begin < len(value) and solid[begin - 1] == value[begin - end - 1]
        ):
            begin -= 1
        yield begin, end
        done = end
        at = solid.find(tail, end)


@lru_cache(maxsize=_MOST_NOTED)
def _forms_of(value: str) -> tuple[str, ...]:
    """The forms in which a secret may appear: plain, and encoded for texts, addresses, headers."""
    raw = value.encode("utf-8", "replace")
    encoded = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    forms = {
        value,
        " ".join(value.split()),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        html.escape(value),
        *encoded,
        *(re.sub("%..", lambda match: match[0].lower(), each) for each in encoded),
        *_in_base64(raw),
    }
    if "\n" in value:
        forms.update(_LINE.findall(value))
    return tuple(form for form in forms if len(form) >= SHORTEST)


def _in_base64(raw: bytes) -> Iterator[str]:
    """A secret in base64, at any offset in a longer text."""
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + raw).decode()
        # Without characters that contain bits of the bytes before or after it.
        own = whole[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        yield own
        yield own.translate(_URL_SAFE)


_URL_SAFE = str.maketrans("+/", "-_")


# -- for the callers ------------------------------------------------------------------------------

_newest = Secrets({})


def known_secrets() -> Secrets:
    """The current secrets. Reads the environment: call it once for many texts."""
    global _newest
    names = dict(_noted.copy())
    # A variable's name replaces that of the header in which its value was sent.
    found = ((value.strip(), name) for value, name in _in_environment())
    names.update(pair for pair in found if len(pair[0]) >= SHORTEST)
    if names != _newest.names:
        _newest = Secrets(names)
    return _newest


def masked(text: str) -> str:
    """A text of agentnb's, of a person or of a model, with secrets masked."""
    return known_secrets().mask(text)


def masked_words(text: str) -> str:
    """Another program's text with secrets masked, whole or cut. See `Secrets.mask_words`."""
    return known_secrets().mask_words(text)


def masked_as_known(text: str) -> str:
    """`masked` for one of many texts: uses the newest result of `known_secrets`."""
    return _newest.mask(text)


def secrets_as_known() -> Secrets:
    """The newest result of `known_secrets`."""
    return _newest


def without_user(address: str) -> str:
    """An address, however malformed, without user, password and query."""
    shown = address
    if "@" in address:
        head, mark, rest = address.partition("//")
        start = f"{head}//" if mark and "@" in rest else ""
        shown = f"{start}…@{address.rpartition('@')[2]}"
    head, mark, _ = shown.partition("?")
    return f"{head}?…" if mark else head
