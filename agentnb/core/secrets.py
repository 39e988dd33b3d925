"""The secrets of this process, and what stands in their place wherever words leave it.

A secret is the value, of 8 characters or more, of an environment variable whose name says so or
that the settings name for a key, and whatever a provider was given or has sent as a key. A text
that is shown, written or raised has `[secret NAME]` where one stood, however it is encoded. What a
model is sent is not changed.

Texts are searched for each secret in turn, longest first, so that one that begins another takes
nothing from it: that is linear in the text, whatever a secret holds.
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
"""What is shorter is a word like `ollama`, that a server wants to see and nobody has to hide."""
_MOST_NOTED = 1_000
_LONGEST_NAME = 60
_LONG = 16
"""From here on a secret is no word: a piece of it, or it in pieces, is known for what it is."""
_LINE = re.compile(r"[^\s-]{16,}")
"""A line of a secret that has several, as a certificate's key has."""

_ENDS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_HEADERS = "_CUSTOM_HEADERS"
_ADDRESSES = ("_BASE_URL", "_PROXY")
_SCHEMES = ("basic", "bearer", "token")
_SENT = ("authorization", "proxy-authorization", "x-api-key")
"""Headers that hold a key, whoever sets them."""

_noted: dict[str, str] = {}
"""By its value, the name of each secret that was given or sent, the newest last."""
_named: set[str] = set()
"""Environment variables that the settings name for a key."""


def note(name: str, value: str | None) -> None:
    """Learn of a secret that was given in code, or is sent as a key.

    Args:
        name: What stands in its place.
        value: May be too short to be one.
    """
    value = (value or "").strip()
    if len(value) < SHORTEST or value in _noted:
        return
    _noted[value] = name  # no lock: a process that forks meanwhile must not wait for it
    for oldest in list(_noted)[:-_MOST_NOTED]:
        _noted.pop(oldest, None)


def note_variable(name: str | None) -> None:
    """Learn of an environment variable that holds a key, whatever it is called."""
    if name:
        _named.add(name)


def note_headers(headers: Mapping[str, str]) -> None:
    """Learn of the keys in the headers of a request."""
    for name in _SENT:
        for value in _parts_of_header(headers.get(name) or ""):
            note("x-api-key" if name == "x-api-key" else name.title(), value)


def note_address(name: str, address: str | None) -> None:
    """Learn of the password in an address."""
    for value in _passwords_in(address or ""):
        note(name, value)


def _in_environment() -> Iterator[tuple[str, str]]:
    """Values and names of the secrets that the environment holds now."""
    for name in os.environ:
        upper, value = name.upper(), os.environ.get(name, "")
        if upper.endswith(_ENDS) or name in _named:
            yield value, name
        elif upper.endswith(_HEADERS):
            for line in value.splitlines():
                yield from ((part, name) for part in _parts_of_header(line.partition(":")[2]))
        elif upper.endswith(_ADDRESSES):
            yield from ((password, name) for password in _passwords_in(value))


def _parts_of_header(value: str) -> Iterator[str]:
    """A header's value, without the word that says of which kind it is, and what it holds."""
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
    """The password in an address, and how it is sent; the user, if that is all there is.

    A password that should have been encoded may hold what ends the part before a host.
    """
    behind = address.partition("//")[2] or address
    before_path = behind.partition("/")[0]
    written = (before_path if "@" in before_path else behind).rpartition("@")[0]
    if "@" in before_path or ":" in written:
        user, _, password = map(unquote, written.partition(":"))
        yield written.partition(":")[2] or written
        yield password or user
        with suppress(ValueError):  # half a character
            yield base64.b64encode(f"{user}:{password}".encode()).decode()


# -- what is known, ready to be looked for --------------------------------------------------------


class Secrets:
    """The secrets that were known at one time.

    Args:
        names: By value.
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
        """`text` with `[secret NAME]` where a secret stood, whole."""
        # What is longer than the text cannot stand in it: most texts are short, most keys are not.
        for form, mark in self._marks[bisect_left(self._lengths, -len(text)) :]:
            if form in text:
                text = text.replace(form, mark)
        return text

    def mask_pieces(self, pieces: Sequence[str]) -> Sequence[str]:
        """The pieces of one text, without the secrets that stand in it, also across pieces.

        As many pieces as before: what is said in place of a secret stands where it began.
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
        """Where secrets stand in a text, in order, and what is said in their place."""
        pattern = "|".join(re.escape(form) for form, _ in self._marks)
        marks = dict(self._marks)
        return [(*found.span(), marks[found[0]]) for found in re.finditer(pattern, text)]

    def mask_words(self, text: str) -> str:
        """The same for what another program says, which may cut or break what it repeats.

        Of a secret that is long enough to be no word, a third of it at its beginning or its end is
        found, too, and white space within it is passed over. So is a user in an address.
        """
        text = _USER.sub("//…@", self.mask(text))
        solid = _solid(text)
        for one in self._long:
            if one.head in solid or one.tail in solid:
                text = _without_pieces(text, solid, one)
                solid = _solid(text)
        return text

    def beginning_at_end(self, text: str) -> int:
        """How many characters at the end of a text may be the first ones of a secret.

        Fewer than `SHORTEST` are none: many words end as some secret begins.
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
    """A secret that is known by a piece of it."""

    def __init__(self, value: str, mark: str) -> None:
        least = max(SHORTEST + 2, len(value) // 3)
        self.value, self.mark = value, mark
        self.head, self.tail = value[:least], value[-least:]


def _solid(text: str) -> str:
    """A text without its white space."""
    return "".join(text.split())


def _without_pieces(text: str, solid: str, one: _Piecemeal) -> str:
    """A text without what begins or ends as a secret does, white space left out of both."""
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
    """How a secret may be written: as it is, and as texts, addresses and headers hold it."""
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
    """What base64 makes of a secret, wherever in a longer text it stands."""
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + raw).decode()
        # Characters that hold bits of the bytes before it, or behind it, are left out.
        own = whole[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        yield own
        yield own.translate(_URL_SAFE)


_URL_SAFE = str.maketrans("+/", "-_")


# -- for whoever lets words out -------------------------------------------------------------------

_newest = Secrets({})


def known_secrets() -> Secrets:
    """The secrets that there are now. Looks through the environment: not for each of many texts."""
    global _newest
    names = dict(_noted.copy())
    # A variable says more than the header that its value was sent in.
    found = ((value.strip(), name) for value, name in _in_environment())
    names.update(pair for pair in found if len(pair[0]) >= SHORTEST)
    if names != _newest.names:
        _newest = Secrets(names)
    return _newest


def masked(text: str) -> str:
    """A text of ours, or of a person's or a model's, without secrets."""
    return known_secrets().mask(text)


def masked_words(text: str) -> str:
    """What another program says, without secrets, whole or in part."""
    return known_secrets().mask_words(text)


def masked_as_known(text: str) -> str:
    """`masked`, for one of many texts: by what was known when it was last looked for."""
    return _newest.mask(text)


def secrets_as_known() -> Secrets:
    """`known_secrets`, by what was known when it was last looked for."""
    return _newest


def without_user(address: str) -> str:
    """An address without what may be a user and a password, however odd it is, or a query."""
    shown = address
    if "@" in address:
        head, mark, rest = address.partition("//")
        start = f"{head}//" if mark and "@" in rest else ""
        shown = f"{start}…@{address.rpartition('@')[2]}"
    head, mark, _ = shown.partition("?")
    return f"{head}?…" if mark else head
