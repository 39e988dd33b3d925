from __future__ import annotations

import unicodedata
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.path import Path
from matplotlib.text import Text

from agentnb.views.figures import lettering
from agentnb.views.figures.lettering import BOLD, MISSING, REGULAR, Font, Lettering
from agentnb.views.figures.sheet import Sheet
from agentnb.views.figures.theme import LIGHT


def sheet() -> Sheet:
    return Sheet(400, 100, LIGHT, name="words", alt_text="Words.")


def written(text: str, **how: object) -> Text:
    page = sheet()
    page.text(20, 50, text, **how)  # type: ignore[arg-type]
    (found,) = page.figure.findobj(Lettering)
    assert isinstance(found, Text)
    return found


@given(st.text(max_size=60), st.floats(0, 300))
@example("00:җःःःس", 77.0)  # its last letter is wider than the ellipsis
@example("iiiiW", 24.0)
def test_any_text_fits_its_room_and_is_drawn_without_a_word_of_warning(
    text: str, room: float
) -> None:
    page = sheet()

    used = page.text(10, 50, text, room=room)

    page.figure.canvas.draw()
    assert used <= room + 1e-6


def test_outline_of_a_word_is_as_wide_as_what_is_reserved_for_it() -> None:
    for text in ("Heat pumps, 100 %", "Größe", "WWWW", "二酸化炭素", "קומקום"):
        box = REGULAR.outline(text).get_extents()
        assert box.x1 <= REGULAR.width(text, 1) + 0.1, text


def test_width_agrees_with_the_one_of_matplotlib() -> None:
    plain = Text(0, 0, "Summarise the report", parse_math=False)
    page = sheet()
    page.figure.add_artist(plain)
    plain.set_fontproperties(lettering._properties(9, False))

    ours = REGULAR.width("Summarise the report", 9 / 72 * page.figure.dpi)

    # Matplotlib sets letters on whole dots, and moves some pairs together.
    assert ours == pytest.approx(plain.get_window_extent().width, rel=0.04)


@pytest.mark.parametrize("text", ["$x$", "a_b^c", "\\frac{1}{2}", "100 % & more", "$$"])
def test_no_letter_is_taken_for_markup(text: str) -> None:
    assert written(text).get_text() == text
    assert np.size(REGULAR.outline(text).vertices) == sum(
        np.size(REGULAR.outline(letter).vertices) for letter in text
    )


def test_letter_that_no_font_has_becomes_a_box_and_a_joiner_nothing() -> None:
    box = REGULAR.outline(f"a{MISSING}b")

    assert np.array_equal(REGULAR.outline("a\U000f0000b").vertices, box.vertices)
    assert REGULAR.width("\U000f0000", 1) == REGULAR.width(MISSING, 1)
    assert REGULAR.width("\U000e0041", 1) == 0
    assert written("a\U000f0000b").get_text() == "a\U000f0000b"


def test_further_fonts_of_the_machine_are_asked_for_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The fonts of formulas have letters that DejaVu lacks, and come with matplotlib.
    further = str(REGULAR._file.with_name("STIXGeneral.ttf"))
    letter = next(
        chr(code)
        for code in lettering._opened(further).get_charmap()
        if code > 0x2000
        and unicodedata.category(chr(code)) in ("Lu", "So", "Sm")
        and not lettering._opened(str(REGULAR._file)).get_char_index(code)
    )
    monkeypatch.setattr(lettering, "_further_files", lambda: ())
    assert Font("DejaVuSans.ttf").width(letter, 1) == REGULAR.width(MISSING, 1)
    monkeypatch.setattr(lettering, "_further_files", lambda: (further,))
    font = Font("DejaVuSans.ttf")

    assert font.width(letter, 1) > 0
    missing = REGULAR.outline(MISSING).vertices
    assert not np.array_equal(font.outline(letter).vertices, missing)


def test_letters_apart_from_their_accents_are_put_together() -> None:
    assert written("Gro\u0308\u00dfe").get_text() == "Gr\u00f6\u00dfe"


def test_text_is_cut_to_its_room_with_an_ellipsis() -> None:
    room = REGULAR.width("Summarise the rep…", 12) + 1

    assert REGULAR.fitted("Summarise the report", 12, room) == "Summarise the rep…"
    assert REGULAR.fitted("Summarise the report", 12, 1000) == "Summarise the report"
    assert REGULAR.fitted("Summarise the report", 12, 3) == ""


def test_text_without_end_costs_no_more_than_what_is_seen() -> None:
    assert len(REGULAR.fitted("word " * 1_000_000, 12, 10_000)) < 300


def test_label_begins_ends_or_has_its_middle_where_it_says() -> None:
    boxes = {ha: written("Middle", ha=ha).get_window_extent() for ha in ("left", "right", "center")}
    at = 20 / 96 * 192

    assert boxes["left"].x0 == pytest.approx(at, abs=4)
    assert boxes["right"].x1 == pytest.approx(at, abs=4)
    assert (boxes["center"].x0 + boxes["center"].x1) / 2 == pytest.approx(at, abs=4)


def test_label_is_drawn_where_its_box_is() -> None:
    page = sheet()
    page.text(30, 60, "Hxg", size=20)
    page.figure.canvas.draw()
    dots = np.asarray(page.figure.canvas.buffer_rgba())[:, :, 0]  # type: ignore[attr-defined]
    (label,) = page.figure.findobj(Lettering)

    rows, columns = np.nonzero(dots < 200)

    box = label.get_window_extent()
    assert columns.min() == pytest.approx(box.x0, abs=2)
    assert columns.max() == pytest.approx(box.x1, abs=2)
    assert dots.shape[0] - rows.max() == pytest.approx(box.y0, abs=2)
    assert dots.shape[0] - rows.min() == pytest.approx(box.y1, abs=2)


def test_label_follows_when_its_text_or_its_colour_is_changed() -> None:
    label = written("short")
    before = label.get_window_extent().width

    label.set_text("much longer than before")
    label.set_color("#ff0000")
    figure = label.get_figure(root=True)
    assert figure is not None
    figure.canvas.draw()

    assert label.get_window_extent().width > 2 * before
    dots = np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]
    assert ((dots[:, :, 0] > 200) & (dots[:, :, 1] < 60)).any()


def test_hidden_and_empty_labels_draw_nothing() -> None:
    page = sheet()
    page.text(10, 50, "seen")
    page.text(10, 80, "")
    (label,) = page.figure.findobj(Lettering)
    label.set_visible(False)
    page.figure.canvas.draw()

    assert np.asarray(page.figure.canvas.buffer_rgba()).min() == 255  # type: ignore[attr-defined]


def test_letters_are_read_once_and_are_the_same_on_every_thread() -> None:
    text = "The quick brown fox, Größe, 100 % — and ✓"
    alone = Font("DejaVuSans.ttf").outline(text)

    def outline(font: Font) -> Path:
        return font.outline(text)

    for _ in range(5):
        shared = Font("DejaVuSans.ttf")
        with ThreadPoolExecutor(8) as threads:
            for path in threads.map(outline, [shared] * 32):
                assert np.array_equal(path.vertices, alone.vertices)


def test_bold_letters_are_wider() -> None:
    assert BOLD.width("root", 12) > REGULAR.width("root", 12)
