"""What a function draws reaches the model as a picture, and its title as text."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import agentnb
from agentnb import MediaBlock, ToolOutput
from agentnb.core.media import MOST_BYTES_OF_TOOL, image_size, media_type_of
from agentnb.tools.result import as_output
from tests.files_of import gif, jpeg, pdf, png
from tests.tools.calling import Context

T = TypeVar("T")


def figure(title: str = "Whales by year", side: float = 2.0) -> Figure:
    drawn = Figure(figsize=(side, side))
    drawn.subplots().plot([1, 3, 2])
    drawn.axes[0].set_title(title)
    return drawn


def made(value: Any) -> tuple[str, list[bytes]]:
    """The text of a value, and its files."""
    output = as_output(value)
    assert isinstance(output, ToolOutput)
    return output.text, [base64.b64decode(each.data) for each in output.media]


class Shows:
    """Shows itself in a notebook, in one way or another."""

    def __init__(self, png: Any = None, jpeg: Any = None) -> None:
        self.png, self.jpeg = png, jpeg

    def _repr_png_(self) -> Any:
        return self.png

    def _repr_jpeg_(self) -> Any:
        return self.jpeg


def test_figure_becomes_its_picture_and_its_title() -> None:
    text, (content,) = made(figure("Whales\nby year"))

    assert text == "(figure: Whales by year)"
    assert image_size("image/png", content) == (200, 200)
    assert made(figure("Whales\nby year"))[1] == [content]  # a replay may draw it again
    assert b"atplotlib" not in content
    titled = figure("small")
    titled.suptitle("The whole")
    assert made(titled)[0] == "(figure: The whole)"
    assert made(titled.axes[0])[1] == made(titled)[1]  # axes stand for their figure
    assert made(Figure())[0] == "(figure)"


def test_image_becomes_its_picture() -> None:
    text, (content,) = made(Image.new("CMYK", (30, 20)))

    assert text == "(image: 30 x 20)"
    assert image_size("image/png", content) == (30, 20)


def test_large_picture_is_made_smaller() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1_000, 1_000, 3), dtype=np.uint8)
    drawn = Figure(figsize=(8, 8), dpi=200)
    drawn.figimage(noise, resize=False)
    for value in (Image.fromarray(noise), drawn):
        _, (content,) = made(value)
        assert 1_000 < len(content) <= MOST_BYTES_OF_TOOL
        with Image.open(BytesIO(content)) as image:
            assert max(image.size) < 1_000


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (Shows(png()), png()),
        (Shows(base64.b64encode(png()).decode()), png()),
        (Shows((png(), {"width": 2})), png()),
        (Shows(jpeg=jpeg(2, 3)), jpeg(2, 3)),
        (gif(2, 3), gif(2, 3)),
        (bytearray(pdf()), pdf()),
        (MediaBlock("image/png", base64.b64encode(png()).decode()), png()),
    ],
)
def test_what_shows_itself_or_is_a_file_becomes_one(value: Any, content: bytes) -> None:
    output = as_output(value)
    assert isinstance(output, ToolOutput)
    (block,) = output.media
    assert base64.b64decode(block.data) == content
    assert block.media_type == media_type_of(content)
    assert output.text.startswith("(")


@pytest.mark.parametrize("value", [Shows(), Shows, b"words", ["a", 1], "(figure)", [png()] * 65])
def test_all_else_is_text_as_before(value: Any) -> None:
    assert isinstance(as_output(value), str)


class Broken(Shows):
    """Shows itself by a program that is not there."""

    def _repr_png_(self) -> Any:
        raise OSError("there is no program 'dot'")

    def __str__(self) -> str:
        return "a graph of 3 nodes"


@pytest.mark.parametrize("value", [Broken(), Shows(png="no base64!"), Shows(png=b"no picture")])
def test_what_cannot_show_itself_is_told_as_text(value: Any) -> None:
    assert as_output(value) == str(value)


def test_texts_and_pictures_of_a_list_keep_their_order() -> None:
    text, files = made(("first", png(), {"n": 1}, figure("Second")))

    assert text == 'first\n(file: image/png)\n{"n":1}\n(figure: Second)'
    assert len(files) == 2
    assert files[0] == png()


def test_output_stays_as_it_is() -> None:
    output = ToolOutput("words", (MediaBlock("image/png", "aGk="),))
    assert as_output(output) is output


@pytest.mark.parametrize("is_async", [False, True])
def test_picture_is_drawn_on_a_thread(is_async: bool) -> None:
    drawn_on = list[threading.Thread]()

    class Slow:
        def _repr_png_(self) -> bytes:
            drawn_on.append(threading.current_thread())
            return png()

    async def draw_soon() -> Any:
        """Draw it."""
        return Slow()

    def draw() -> Any:
        """Draw it."""
        return Slow()

    class OnThread(Context):
        async def on_thread(self, function: Callable[[], T]) -> T:
            return await asyncio.to_thread(function)

    tool: Any = agentnb.tool(draw_soon if is_async else draw)
    output = asyncio.run(tool.call({}, OnThread()))

    assert isinstance(output, ToolOutput)
    assert drawn_on
    assert threading.main_thread() not in drawn_on
