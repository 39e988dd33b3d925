"""A saved notebook without its live views: those are gone, and nothing else is."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agentnb.errors import UnreadableNotebook
from agentnb.views.freeze import IN_WORDS, LIVE_VIEW, WIDGET_VIEW, freeze_file, frozen

STATE = {"application/vnd.jupyter.widget-state+json": {"version_major": 2, "state": {"a": {}}}}
ANSWER = {
    "output_type": "display_data",
    "data": {"text/plain": ["the answer: é 日本"]},
    "metadata": {},
}


def view(metadata: Any = LIVE_VIEW, *, kind: str = "display_data") -> dict[str, Any]:
    """An output that shows a widget; as a live view of ours unless it says otherwise."""
    data = {WIDGET_VIEW: {"model_id": "a", "version_major": 2, "version_minor": 0}}
    return {"output_type": kind, "data": data, "metadata": metadata}


def document(*outputs: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A notebook of words, and one code cell."""
    words = {"cell_type": "markdown", "metadata": {}, "source": ["words"]}
    code = {
        "cell_type": "code",
        "execution_count": 1,
        "metadata": {"tags": ["kept"]},
        "outputs": list(outputs),
        "source": [],
        "unknown": {"field": 1.5},
    }
    return {"cells": [words, code], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def test_live_views_are_taken_out_and_what_stands_between_them_stays() -> None:
    before = document(view(), ANSWER, view(kind="execute_result"), name="kept")
    untouched = copy.deepcopy(before)

    after, taken = frozen(before)

    assert taken == 2
    assert after == document(ANSWER, name="kept")
    assert before == untouched


def test_words_beside_a_view_stay_unless_they_were_taken_back() -> None:
    words = {"output_type": "display_data", "data": {"text/plain": "x"}, "metadata": IN_WORDS}
    taken_back = {**words, "data": {}}
    of_another = {**taken_back, "metadata": {}}

    after, _ = frozen(document(view(), words, taken_back, of_another))

    assert after == document(words, of_another)


@pytest.mark.parametrize(
    "output",
    [
        view({}),
        view({"agentnb": {"view": "picture"}}),
        view({"agentnb": "live"}),
        view(None),
        {"output_type": "display_data", "data": {"text/plain": "x"}, "metadata": LIVE_VIEW},
        {"output_type": "stream", "name": "stdout", "text": WIDGET_VIEW},
        {"output_type": "display_data", "data": [WIDGET_VIEW], "metadata": LIVE_VIEW},
    ],
)
def test_output_that_is_no_live_view_of_ours_stays(output: dict[str, Any]) -> None:
    assert frozen(document(output, widgets=STATE)) == (document(output, widgets=STATE), 0)


def test_saved_state_of_widgets_goes_with_the_last_view_of_one() -> None:
    others = view({})

    assert frozen(document(view(), widgets=STATE, name="kept")) == (document(name="kept"), 1)
    assert frozen(document(view(), others, widgets=STATE)) == (document(others, widgets=STATE), 1)


def model(name: str = "", *parts: str, classes: tuple[str, ...] = ()) -> dict[str, Any]:
    """The saved state of a widget: its class, and other models that it refers to."""
    children = [f"IPY_MODEL_{part}" for part in parts]
    return {"state": {"_anywidget_id": name, "_dom_classes": [*classes], "children": children}}


SLIDER = {"slider": model("", "layout"), "layout": model()}
PANEL = {
    "a": model("", "tree", "row", "shared", classes=("agentnb-panel",)),
    "tree": model("agentnb.views.panel.tree_view.TreeView"),
    "row": model("", "button"),
    "button": model(),
    "shared": model(),
}


def state(**models: Any) -> dict[str, Any]:
    kind = "application/vnd.jupyter.widget-state+json"
    return {kind: {"version_major": 2, "state": models}, "other": 1}


@pytest.mark.parametrize("is_gone", [False, True])
def test_state_of_our_views_goes_though_another_widget_stays(is_gone: bool) -> None:
    foreign = view({})
    foreign["data"][WIDGET_VIEW]["model_id"] = "slider"
    slider = {**SLIDER, "linked": model("", "shared"), "loose": model()}
    before = document(*[view()] * (not is_gone), foreign, widgets=state(**PANEL, **slider))

    after, taken = frozen(before)

    assert taken == (not is_gone)
    assert after == document(foreign, widgets=state(shared=model(), **slider))


def test_panel_in_a_box_of_the_person_stays() -> None:
    box = view({})
    box["data"][WIDGET_VIEW]["model_id"] = "box"
    before = document(box, widgets=state(box=model("", "a"), **PANEL))

    assert frozen(before) == (before, 0)


def test_file_with_only_the_state_of_gone_views_is_written(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(document(ANSWER, widgets=state(**PANEL, **SLIDER))))

    assert freeze_file(path) == 0
    assert json.loads(path.read_text()) == document(ANSWER, widgets=state(**SLIDER))


@pytest.mark.parametrize(
    "widgets", [None, 3, {}, {"application/vnd.jupyter.widget-state+json": {"state": [1]}}]
)
def test_state_of_an_unknown_form_stays_as_it_is(widgets: Any) -> None:
    others = view({})
    assert frozen(document(others, widgets=widgets)) == (document(others, widgets=widgets), 0)


@pytest.mark.parametrize("cells", [[], [None], [{"outputs": None}], [{"outputs": [None, 3]}]])
def test_cells_of_an_unknown_form_stay_as_they_are(cells: list[Any]) -> None:
    strange = {"cells": cells, "metadata": 7}

    assert frozen(strange) == (strange, 0)


def test_file_is_written_as_jupyter_writes_it_in_the_order_that_it_had(tmp_path: Path) -> None:
    file = tmp_path / "saved.ipynb"
    file.write_text(as_saved(document(view(), ANSWER, zebra=1, aardvark=1e-07)), encoding="utf-8")

    assert freeze_file(file) == 1

    expected = as_saved(document(ANSWER, zebra=1, aardvark=1e-07))
    assert file.read_text(encoding="utf-8") == expected
    assert "日本" in expected
    assert list(tmp_path.iterdir()) == [file]


def written(file: Path) -> tuple[int, int, int]:
    """What would change if the file were written, or another put in its place."""
    found = file.stat()
    return found.st_ino, found.st_mtime_ns, found.st_mode


def test_file_without_live_views_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "saved.ipynb"
    file.write_bytes(b'{"cells":   [], "metadata": {}}')
    file.chmod(0o444)
    before = written(file)

    assert freeze_file(file) == 0

    assert (file.read_bytes(), written(file)) == (b'{"cells":   [], "metadata": {}}', before)


def test_half_a_character_is_written_as_it_was_read(tmp_path: Path) -> None:
    file = tmp_path / "saved.ipynb"
    text = as_saved(document(view(), {**ANSWER, "data": {"text/plain": "half: HALF"}}))
    file.write_text(text.replace("HALF", "\\ud83d"), encoding="utf-8")

    assert freeze_file(file) == 1

    assert '"half: \\ud83d"' in file.read_text(encoding="utf-8")
    assert json.loads(file.read_bytes()) == document(
        {**ANSWER, "data": {"text/plain": "half: \ud83d"}}
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b'{"cells": [', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a notebook of format 4"),
        (b'{"worksheets": []}', "not a notebook of format 4"),
        (b'{"cells": {}}', "not a notebook of format 4"),
    ],
)
def test_what_is_no_notebook_is_named_in_one_line_and_left(
    tmp_path: Path, content: bytes, why: str
) -> None:
    file = tmp_path / "odd.ipynb"
    file.write_bytes(content)

    with pytest.raises(UnreadableNotebook, match=why) as told:
        freeze_file(file)

    assert str(file) in str(told.value)
    assert "\n" not in str(told.value)
    assert file.read_bytes() == content


def test_file_that_is_not_there_or_is_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableNotebook, match=r"nowhere\.ipynb.*there is no such file\. "):
        freeze_file(tmp_path / "nowhere.ipynb")
    with pytest.raises(UnreadableNotebook, match=f"there is no such file in {Path.cwd()}"):
        freeze_file(Path("nowhere.ipynb"))
    with pytest.raises(UnreadableNotebook, match="it is a folder"):
        freeze_file(tmp_path)


def as_saved(notebook: dict[str, Any]) -> str:
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
