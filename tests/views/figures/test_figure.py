from __future__ import annotations

import base64
import io
import pickle
import xml.etree.ElementTree as ET
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from agentnb.views.figures import plot_timeline, plot_tokens, plot_tree
from agentnb.views.figures.figure import RunFigure
from tests.support import run_python
from tests.views.figures.records import record
from tests.views.figures.trees import tree

Drawn = Callable[[bool], RunFigure]
ALL = pytest.mark.parametrize(
    "drawn",
    [
        lambda dark: plot_tree(tree("three levels", 12), dark=dark),
        lambda dark: plot_timeline(record(12), dark=dark),
        lambda dark: plot_tokens(tree("three levels", 12), dark=dark),
    ],
    ids=["tree", "timeline", "tokens"],
)


def picture(data: bytes) -> Image.Image:
    opened = Image.open(io.BytesIO(data))
    opened.load()
    return opened


@ALL
@pytest.mark.parametrize("dark", [False, True])
def test_figure_is_a_matplotlib_figure_that_pyplot_does_not_know(drawn: Drawn, dark: bool) -> None:
    figure = drawn(dark)

    assert Figure in type(figure).__mro__
    assert figure.alt_text
    assert repr(figure) == str(figure)
    assert repr(figure).startswith("<Figure: ")
    assert "\n" not in figure.alt_text


@ALL
def test_bundle_holds_a_picture_its_size_and_words_and_nothing_that_needs_trust(
    drawn: Drawn,
) -> None:
    figure = drawn(False)

    data, about = figure._repr_mimebundle_()

    assert set(data) == {"image/png", "text/plain"}
    assert data["text/plain"] == repr(figure)
    shown = picture(base64.b64decode(data["image/png"]))
    size = about["image/png"]
    assert size["alt"] == figure.alt_text
    assert shown.width == pytest.approx(size["width"] * figure.dpi / 96, abs=1)
    assert shown.height == pytest.approx(size["height"] * figure.dpi / 96, abs=1)


@ALL
def test_picture_carries_its_alternative_text(drawn: Drawn) -> None:
    figure = drawn(False)

    assert picture(figure.to_png()).info["Description"] == figure.alt_text


@ALL
@pytest.mark.parametrize(("dark", "background"), [(False, (255, 255, 255)), (True, (17, 17, 17))])
def test_background_is_opaque_and_exactly_that_of_the_page(
    drawn: Drawn, dark: bool, background: tuple[int, int, int]
) -> None:
    shown = picture(drawn(dark).to_png()).convert("RGBA")

    for corner in ((0, 0), (shown.width - 1, 0), (0, shown.height - 1), (9, shown.height - 1)):
        assert shown.getpixel(corner) == (*background, 255)


@ALL
def test_picture_of_few_colours_looks_like_the_drawing(drawn: Drawn) -> None:
    figure = drawn(False)
    shown = np.asarray(picture(figure.to_png()).convert("RGB"), dtype=int)

    canvas: Any = figure.canvas
    full = np.asarray(canvas.buffer_rgba()).astype(int)[:, :, :3]

    assert np.abs(shown - full).max() <= 80
    assert np.abs(shown - full).mean() < 1


@ALL
def test_saved_files_carry_the_alternative_text_and_are_the_same_each_time(
    drawn: Drawn, tmp_path: Path
) -> None:
    figure = drawn(False)
    png, again, svg = tmp_path / "a.png", tmp_path / "b.png", tmp_path / "a.svg"

    figure.savefig(png)
    figure.savefig(str(again))
    figure.savefig(svg)
    figure.savefig(tmp_path / "a.pdf")
    figure.savefig(tmp_path / "a.jpg")

    assert png.read_bytes() == again.read_bytes()
    assert picture(png.read_bytes()).info["Description"] == figure.alt_text
    root = ET.parse(svg).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = [element.text for element in root.iter() if element.text]
    assert figure.alt_text in words
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert root.findtext("{http://www.w3.org/2000/svg}desc") == figure.alt_text
    assert (root.get("role"), root.get("aria-label")) == ("img", figure.alt_text)
    assert "date" not in svg.read_text(encoding="utf-8")


def test_svg_goes_into_a_file_of_bytes_or_of_text() -> None:
    figure = plot_tree(tree("wide", 3))
    of_bytes, of_text = io.BytesIO(), io.StringIO()

    figure.savefig(of_bytes, format="svg")
    figure.savefig(of_text, format="svg")

    assert of_bytes.getvalue().decode() == of_text.getvalue()
    assert of_text.getvalue().startswith("<?xml")


def test_figure_of_another_size_says_that_size() -> None:
    figure = plot_tree(tree("wide", 3))
    figure.set_size_inches(5, 2)

    data, about = figure.bundle()

    assert (about["image/png"]["width"], about["image/png"]["height"]) == (480, 192)
    assert picture(base64.b64decode(data["image/png"])).size == (960, 384)


def test_saving_takes_what_a_person_asks_for(tmp_path: Path) -> None:
    figure = plot_tree(tree("wide", 3))
    file = io.BytesIO()

    figure.savefig(file, format="png", dpi=48, metadata={"Author": "A. Person"}, facecolor="red")

    saved = picture(file.getvalue())
    assert saved.info["Author"] == "A. Person"
    assert saved.info["Description"] == figure.alt_text
    assert saved.width == pytest.approx(figure.get_figwidth() * 48, abs=1)
    assert saved.convert("RGB").getpixel((0, 0)) == (255, 0, 0)


PERSONAL: Any = {
    "text.parse_math": True,
    "text.color": "red",
    "text.antialiased": False,
    "font.family": "serif",
    "font.size": 30,
    "figure.dpi": 31,
    "figure.facecolor": "yellow",
    "figure.autolayout": True,
    "savefig.dpi": 17,
    "savefig.facecolor": "green",
    "savefig.transparent": True,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 1,
    "lines.linewidth": 9,
    "lines.scale_dashes": False,
    "lines.antialiased": False,
    "patch.linewidth": 9,
    "patch.edgecolor": "red",
    "path.sketch": (5, 100, 3),
    "axes.facecolor": "black",
    "image.cmap": "hot",
}


@ALL
def test_style_of_a_person_changes_nothing_and_is_not_changed(drawn: Drawn, tmp_path: Path) -> None:
    plain = drawn(False)
    plain.savefig(tmp_path / "plain.png")
    with mpl.rc_context(PERSONAL):
        before = dict(mpl.rcParams)
        styled = drawn(False)
        same = styled.to_png() == plain.to_png()
        styled.savefig(tmp_path / "styled.png")
        after = dict(mpl.rcParams)

    assert same
    assert before == after
    assert (tmp_path / "styled.png").read_bytes() == (tmp_path / "plain.png").read_bytes()


def test_figures_drawn_by_many_threads_at_once_are_the_same_as_drawn_alone() -> None:
    def drawn(number: int) -> bytes:
        return plot_tree(tree("three levels", 10 + number % 4)).to_png()

    alone = [drawn(number) for number in range(4)]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(drawn, range(16)))

    assert together == alone * 4


def test_figure_is_drawn_while_the_person_uses_pyplot_and_leaves_it_alone() -> None:
    said = run_python(
        """
        import matplotlib
        matplotlib.use("agg")
        import matplotlib.pyplot as plt
        from agentnb.views.figures import plot_tree
        from tests.views.figures.trees import tree
        axes = plt.figure().gca()
        figure = plot_tree(tree("wide", 5))
        figure.to_png()
        print(plt.gca() is axes, plt.get_fignums(), figure.canvas.manager)
        """
    )

    assert said.split() == ["True", "[1]", "None"]


def test_words_that_a_person_adds_are_seen_in_their_own_colour() -> None:
    figure = plot_tree(tree("wide", 5))
    figure.text(0.5, 0.5, "MINE", fontsize=40, color="#ff00ff")

    shown = np.asarray(picture(figure.to_png()).convert("RGB"), dtype=int)

    far = np.abs(shown - np.array([255, 0, 255])).max(axis=2)
    assert (far < 40).any()


def test_figure_survives_pickling() -> None:
    figure = plot_tree(tree("wide", 5))

    copy = pickle.loads(pickle.dumps(figure))

    assert isinstance(copy, RunFigure)
    assert copy.alt_text == figure.alt_text
    assert copy.to_png() == figure.to_png()
