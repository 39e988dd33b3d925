"""Images and PDFs among a table's rows: the row's agent gets the whole file, before the prompt.

Errors in a file are raised before any call, with its name and the fix.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from agentnb.core.media import MOST_BASE64, PDF, media_tokens, media_type_of, size_words
from agentnb.core.protocols import Provider, links_of, supports_media
from agentnb.core.text import literal, visible
from agentnb.core.types import MediaBlock, bare_model
from agentnb.files import read_file

SUFFIXES: Mapping[str, str] = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".pdf": PDF,
}
"""The media types of the files that are documents, by suffix in lower case."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file that a row's agent gets whole."""

    path: str
    """Absolute, as a recovered run reads the file again."""
    block: MediaBlock


def is_document(path: object) -> bool:
    """Whether a row is the path of an image or a PDF, by its suffix."""
    return isinstance(path, PurePath) and path.suffix.lower() in SUFFIXES


def read_document(path: str | os.PathLike[str]) -> MediaBlock:
    """Read an image or a PDF.

    Raises:
        ValueError: It is missing, unreadable, empty, too large, or not what its suffix says; the
            message has its name and what to do.
    """
    path = Path(path)
    name, media_type = literal(path.name, 100), SUFFIXES.get(path.suffix.lower())
    if media_type is None:
        known = ", ".join(SUFFIXES)
        raise ValueError(
            f"{name} is neither an image nor a PDF by its name: give a file with {known}."
        )
    most = MOST_BASE64[media_type] // 4 * 3
    try:
        size = path.stat().st_size
        content = b"" if size > most else read_file(path, max_bytes=most)
    except FileNotFoundError:
        raise ValueError(f"There is no file {literal(str(path))}: check its path.") from None
    except (OSError, ValueError) as error:  # `ValueError`: a name that no system allows
        why = visible(getattr(error, "strerror", None) or str(error), 200).rstrip(".")
        raise ValueError(f"The file {name} cannot be read ({why}): check what it is.") from None
    if size > most:
        raise ValueError(_too_large(name, media_type, size, most))
    if not content:
        raise ValueError(f"The file {name} is empty: write it again, or leave its row out.")
    found = media_type_of(content)
    if found != media_type:
        raise ValueError(_wrong_content(name, media_type, found))
    block = MediaBlock(media_type, base64.b64encode(content).decode(), path.name)
    _ = block.digest, media_tokens(block)  # cached here, so as not to block the agents' event loop
    return block


def _too_large(name: str, media_type: str, size: int, most: int) -> str:
    kind, fix = ("a PDF", "split it") if media_type == PDF else ("an image", "scale it down")
    limit = MOST_BASE64[media_type] >> 20
    return (
        f"The file {name} has {size_words(size)}, and {kind} may have at most {size_words(most)} "
        f"(the API takes {limit} MB of base64): {fix}."
    )


def _wrong_content(name: str, media_type: str, found: str | None) -> str:
    if found is None:
        return (
            f"The file {name} is not {media_type}, as its name says: save it again as PNG, JPEG, "
            "GIF, WebP or PDF."
        )
    suffix = next(suffix for suffix, each in SUFFIXES.items() if each == found)
    return f"The file {name} is {found}, and not {media_type}: rename it to end in {suffix}."


def words_for(document: Document, *, has_texts: bool) -> str:
    """What replaces `{{text}}` in the prompt of a document's row.

    Args:
        document: The document.
        has_texts: Whether the table also has text files, for which the prompt needs `{{text}}`.

    Raises:
        ValueError: The table has documents only, so that `{{text}}` is a mistake.
    """
    name = document.block.name
    if has_texts:
        return f"(see the attached {name})"
    raise ValueError(
        f"{literal(name, 100)} is attached before the prompt, and has no `{{{{text}}}}`: remove "
        "that from the prompt, or name `{{name}}` or `{{path}}` instead."
    )


class DocumentReader:
    """Reads the documents of one table; equal files share one base64 text in memory."""

    def __init__(self) -> None:
        self._by_path: dict[str, Document] = {}
        self._by_digest: dict[str, MediaBlock] = {}

    def read(self, path: PurePath) -> Document:
        """See `read_document`."""
        absolute = str(Path(path).absolute())
        found = self._by_path.get(absolute)
        if found is None:
            block = read_document(absolute)
            same = self._by_digest.setdefault(block.digest, block)
            if same is not block:
                block = MediaBlock(block.media_type, same.data, block.name)
            found = self._by_path[absolute] = Document(absolute, block)
        return found


def check_taken(
    documents: Iterable[Document | None], providers: Iterable[tuple[Provider, str]]
) -> None:
    """Check that each model of a map accepts the types of its files.

    Args:
        documents: The documents of the rows.
        providers: Each provider, and its model as `provider/model`.

    Raises:
        ValueError: A model does not; the message names the first file of that type.
    """
    first = {each.block.media_type: each.block for each in documents if each is not None}
    for provider, label in providers if first else ():
        for link in links_of(provider, label):
            for media_type, block in first.items():
                if not supports_media(link.provider, bare_model(link.model), media_type):
                    raise ValueError(_not_taken(link.model, block))


def _not_taken(model: str, block: MediaBlock) -> str:
    is_pdf = block.media_type == PDF
    kind, way = ("a PDF", ", or save it as text") if is_pdf else ("an image", "")
    return (
        f"The model {literal(model, 60)} takes no {block.media_type}, and "
        f"{literal(block.name, 60)} is {kind}: use a model that reads it "
        f'(`model="anthropic/..."`){way}.'
    )


# -- in a run that is recovered -------------------------------------------------------------------


def to_plain(documents: Sequence[Document | None]) -> list[dict[str, str] | None]:
    """A map's documents as plain values for the store, without the files' contents."""
    return [
        None
        if each is None
        else {
            "path": each.path,
            "media_type": each.block.media_type,
            "data": each.block.named().data,
            "name": each.block.name,
        }
        for each in documents
    ]


def from_plain(kept: Sequence[Mapping[str, Any] | None]) -> tuple[Document | None, ...]:
    """The documents of a recovered map; the files are read again.

    Raises:
        ValueError: A file is gone, or has changed.
    """
    reader = DocumentReader()
    found: list[Document | None] = []
    for each in kept:
        document = None if each is None else reader.read(Path(each["path"]))
        if each is not None and document is not None:
            was = MediaBlock(each["media_type"], each["data"], each["name"])
            if was.digest != document.block.digest:
                raise ValueError(
                    f"The file {literal(each['path'])} has changed since: put back what it was, or "
                    "run the cell again."
                )
        found.append(document)
    return tuple(found)
