"""Recognises figures and images among what a function returns, and makes files of them.

No drawing library is imported here: what nobody has imported has made no figure. It runs on the
thread of the call, since drawing takes long.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple

from agentnb.core.media import MOST_BYTES_OF_TOOL, media_tokens, media_type_of
from agentnb.core.text import one_line
from agentnb.core.types import MediaBlock
from agentnb.objects.short import is_a, tried

_SMALLER = 3
"""How many times a picture that is too large is made at half its size."""
_SHOWN_BY = ("_repr_png_", "_repr_jpeg_")
_MODES_OF_PNG = frozenset({"1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"})


class Picture(NamedTuple):
    """A file, and what a model reads of it that cannot see it."""

    block: MediaBlock
    words: str


def may_be_picture(value: object) -> bool:
    """Whether `picture_of` has anything to do for a value."""
    if isinstance(value, MediaBlock | bytes | bytearray):
        return True
    shows = any(callable(getattr(type(value), name, None)) for name in _SHOWN_BY)
    return shows or _figure_of(value) is not None


def picture_of(value: object) -> Picture | None:
    """The file that a value is or draws; `None` for any other value.

    That is a block, the bytes of an image or a PDF, a figure or axes of matplotlib, an image of
    PIL, and what shows itself in a notebook by `_repr_png_` or `_repr_jpeg_`.
    """
    found = _found(value)
    if found is not None:
        _ = found.block.digest, media_tokens(found.block)  # here, and not on the loop of all agents
    return found


def _found(value: object) -> Picture | None:
    if isinstance(value, MediaBlock):
        return Picture(value, _words("file", one_line(value.name)))
    if isinstance(value, bytes | bytearray):
        media_type = media_type_of(bytes(value))
        if media_type is None:
            return None
        return Picture(_block(bytes(value), media_type), _words("file", media_type))
    if (figure := _figure_of(value)) is not None:
        title = one_line(_title_of(figure))
        return Picture(_block(_drawn(figure), "image/png", title), _words("figure", title))
    if is_a(value, "PIL.Image", "Image"):
        image: Any = value
        size = f"{image.width:,} x {image.height:,}"
        return Picture(_block(_written(image), "image/png"), _words("image", size))
    for name in _SHOWN_BY:
        # By the class: what an object makes up for any name is none of its methods.
        show = getattr(type(value), name, None)
        # One that fails has no picture, and its text is told: the function itself did not fail.
        content = tried(partial(_shown, show, value), b"") if callable(show) else b""
        media_type = media_type_of(content)
        if media_type is not None:
            return Picture(_block(content, media_type), _words("figure", type(value).__name__))
    return None


def _words(noun: str, about: str) -> str:
    return f"({noun}: {about})" if about else f"({noun})"


def _block(content: bytes, media_type: str, name: str = "") -> MediaBlock:
    return MediaBlock(media_type, base64.b64encode(content).decode(), name)


# -- matplotlib -----------------------------------------------------------------------------------


def _figure_of(value: Any) -> Any:
    """A figure, also that of axes: `DataFrame.plot` returns them. `None` for anything else."""
    if is_a(value, "matplotlib.axes", "Axes"):
        value = value.get_figure()
    return value if is_a(value, "matplotlib.figure", "Figure") else None


def _title_of(figure: Any) -> str:
    whole = figure.get_suptitle() if hasattr(figure, "get_suptitle") else ""
    titles = [whole, *(axes.get_title() for axes in figure.axes)]
    return next((title for title in titles if title.strip()), "")


def _drawn(figure: Any) -> bytes:
    def at(shrunk: int) -> bytes:
        buffer = BytesIO()
        # Without the library's version the same figure gives the same bytes on every machine that
        # draws it so: a replay may run the tool again.
        about = {"Software": None}
        figure.savefig(buffer, format="png", dpi=figure.get_dpi() / shrunk, metadata=about)
        return buffer.getvalue()

    return _fitting(at)


# -- PIL, and what shows itself -------------------------------------------------------------------


def _written(image: Any) -> bytes:
    image = image if image.mode in _MODES_OF_PNG else image.convert("RGB")

    def at(shrunk: int) -> bytes:
        buffer, made = BytesIO(), image
        if shrunk > 1:
            made = image.resize((max(1, image.width // shrunk), max(1, image.height // shrunk)))
        made.save(buffer, format="PNG")
        return buffer.getvalue()

    return _fitting(at)


def _fitting(made: Callable[[int], bytes]) -> bytes:
    """A picture at its own size, or at a half, a quarter, an eighth of it: the first that fits."""
    content = b""
    for power in range(_SMALLER + 1):
        content = made(2**power)
        if len(content) <= MOST_BYTES_OF_TOOL:
            break
    return content


def _shown(show: Callable[[object], object], value: object) -> bytes:
    """What a method for a notebook gives: bytes or base64, perhaps with metadata."""
    found = show(value)
    if isinstance(found, tuple) and found:
        found = found[0]
    if isinstance(found, str):
        return base64.b64decode(found)
    return bytes(found) if isinstance(found, bytes | bytearray) else b""
