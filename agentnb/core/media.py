"""Type, size and token cost of images and PDFs. Pure functions; only image headers are decoded."""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from struct import unpack_from

from agentnb.core.text import visible
from agentnb.core.types import MediaBlock, Message, ToolOutput

PDF = "application/pdf"
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MEDIA_TYPES = (*IMAGES, PDF)
"""The types that both APIs accept."""
MB = 1024 * 1024
MOST_BASE64 = {PDF: 32 * MB, **dict.fromkeys(IMAGES, 5 * MB)}
"""Most characters of base64: 5 MB for an image; 32 MB for a PDF, the limit of a whole request. From
Anthropic's pages "Vision" and "PDF support", July 2026; OpenAI accepts larger images."""

MOST_OF_TOOL = 8
"""Most files in the result of one tool call."""
MOST_BYTES_OF_TOOL = MB
"""Most bytes of each of these files: a cassette stores them whole, and every later call of the
agent sends them."""

_PIXELS_PER_TOKEN = 750
_LONGEST_EDGE = 1568
"""In pixels; a larger image is scaled down first."""
_TOKENS_OF_IMAGE = 1600
"""Most tokens of one image; also taken for an image whose size is not found."""
_TOKENS_OF_PAGE = 2000
"""A page is sent as text and as an image: 1,500 to 3,000 tokens of text, by "PDF support"."""
_BYTES_OF_PAGE = 50_000
"""Bytes per page of a PDF whose pages are not found: newer PDFs may compress them."""
_HEADER = 256 * 1024
"""Leading bytes of a file that are searched for the size of an image."""
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")


def media_tokens(block: MediaBlock) -> int:
    """Input tokens of an image or a PDF, estimated by the rules of Anthropic's API.

    An image: width times height divided by 750, at most 1,600; 1,600 if its header has no size. A
    PDF: 2,000 per page; if its pages are compressed, each 50 kB count as a page. If the file is
    only named: 1,600 for an image, by its size for a PDF.
    """
    known: int | None = getattr(block, "_tokens", None)
    if known is None:
        known = _pdf_tokens(block) if block.media_type == PDF else _image_tokens(block)
        object.__setattr__(block, "_tokens", known)
    return known


def _image_tokens(block: MediaBlock) -> int:
    size = image_size(block.media_type, _bytes_of(block, _HEADER))
    if size is None:
        return _TOKENS_OF_IMAGE
    width, height = size
    scale = min(1.0, _LONGEST_EDGE / max(width, height))
    tokens = math.ceil(width * scale * height * scale / _PIXELS_PER_TOKEN)
    return max(1, min(tokens, _TOKENS_OF_IMAGE))


def _pdf_tokens(block: MediaBlock) -> int:
    pages = len(_PAGE.findall(_bytes_of(block))) or -(-block.size // _BYTES_OF_PAGE)
    return _TOKENS_OF_PAGE * max(1, pages)


def _bytes_of(block: MediaBlock, most: int | None = None) -> bytes:
    data = block.data if most is None else block.data[: most // 3 * 4]
    try:
        return b"" if block.is_named else base64.b64decode(data)
    except (binascii.Error, ValueError):  # not base64: a person made it by hand
        return b""


# -- headers --------------------------------------------------------------------------------------


def media_type_of(content: bytes) -> str | None:
    """The media type of a file by its first bytes; `None` unless it is a known image or a PDF."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    # PDF readers accept some bytes before the mark.
    return PDF if b"%PDF-" in content[:1024] else None


def image_size(media_type: str, header: bytes) -> tuple[int, int] | None:
    """Width and height in pixels; `None` if the file's first bytes do not contain them."""
    try:
        match media_type:
            case "image/png" if header[12:16] == b"IHDR":
                size = unpack_from(">II", header, 16)
            case "image/gif":
                size = unpack_from("<HH", header, 6)
            case "image/webp":
                size = _webp_size(header)
            case "image/jpeg":
                size = _jpeg_size(header)
            case _:
                return None
    except (IndexError, ValueError, struct.error):
        return None
    width, height = size
    return (width, height) if width > 0 and height > 0 else None


def _webp_size(header: bytes) -> tuple[int, int]:
    match header[12:16]:
        case b"VP8X" if len(header) >= 30:
            width, height = header[24:27], header[27:30]
            return 1 + int.from_bytes(width, "little"), 1 + int.from_bytes(height, "little")
        case b"VP8L":
            (bits,) = unpack_from("<I", header, 21)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = unpack_from("<HH", header, 26)
            return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def _jpeg_size(header: bytes) -> tuple[int, int]:
    at = 2
    while header[at] == 0xFF:
        mark = header[at + 1]
        if mark == 0xFF:  # a filler
            at += 1
        elif 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):  # the frame itself
            height, width = unpack_from(">HH", header, at + 5)
            return width, height
        else:
            (length,) = unpack_from(">H", header, at + 2)
            at += 2 + length
    return 0, 0


# -- in words -------------------------------------------------------------------------------------


def media_words(block: MediaBlock) -> str:
    """A file's description for a person: `[image: kitchen.png, 12 kB]`."""
    what = "PDF" if block.media_type == PDF else "image"
    name = f"{visible(block.name, 100)}, " if block.name else ""
    return f"[{what}: {name}{size_words(block.size)}]"


def size_words(size: int) -> str:
    """Bytes as a person reads them, rounded up."""
    if size < 1000:
        return f"{size} bytes"
    return f"{-(-size // 1000):,} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def described(block: MediaBlock) -> str:
    """A file's description for a model: `image/png, 640 x 480`."""
    size = image_size(block.media_type, _bytes_of(block, _HEADER))
    about = size_words(block.size) if size is None else f"{size[0]:,} x {size[1]:,}"
    return f"{visible(block.media_type, 100)}, {about}"


# -- what a tool returns --------------------------------------------------------------------------


def taken(output: ToolOutput) -> ToolOutput:
    """A tool's output with the files that can be sent to a model, and a line for those left out."""
    lines, kept = [output.text], list[MediaBlock]()
    for block in output.media:
        if why := _why_left_out(block):
            lines.append(f"(a file was left out: {visible(block.media_type, 100)}, {why})")
        else:
            kept.append(block)
    if len(kept) > MOST_OF_TOOL:
        more = len(kept) - MOST_OF_TOOL
        lines.append(f"({more:,} more left out: a result has at most {MOST_OF_TOOL} files)")
    return ToolOutput("\n".join(filter(None, lines)), tuple(kept[:MOST_OF_TOOL]))


def _why_left_out(block: MediaBlock) -> str:
    if block.media_type not in MEDIA_TYPES:
        return f"and only {', '.join(MEDIA_TYPES)} are taken"
    if block.size > MOST_BYTES_OF_TOOL:
        return f"{size_words(block.size)}, and at most 1 MB is taken"
    try:
        content = binascii.a2b_base64(block.data, strict_mode=True)
    except ValueError:
        return "whose data is not base64"
    if media_type_of(content) != block.media_type:
        return "and its content is not of that type"
    return ""


# -- each file only once --------------------------------------------------------------------------


def media_of(messages: Iterable[Message]) -> Iterator[MediaBlock]:
    """The files in some messages."""
    for message in messages:
        for block in message.content:
            if type(block) is MediaBlock:
                yield block


def with_media(
    messages: tuple[Message, ...], change: Callable[[MediaBlock], MediaBlock]
) -> tuple[Message, ...]:
    """The messages with `change` applied to each file; the same object if they have no files."""
    if next(media_of(messages), None) is None:
        return messages
    return tuple(
        replace(
            message,
            content=tuple(
                change(block) if type(block) is MediaBlock else block for block in message.content
            ),
        )
        for message in messages
    )


class EachOnce:
    """Writes and reads blocks so that each file is stored once; repeats are only named."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        """Data by digest."""

    def write(self, block: MediaBlock) -> MediaBlock:
        """The block to write: with its file at the first time, then only named."""
        if block.is_named or block.digest in self._files:
            return block.named()
        self._files[block.digest] = block.data
        return block

    def read(self, block: MediaBlock) -> MediaBlock:
        """The block with its file, which was read before; unchanged if it was not."""
        if not block.is_named:
            self._files[block.digest] = block.data
            return block
        return replace(block, data=self._files.get(block.digest, block.data))
