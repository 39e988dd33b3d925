"""What a person may give to an agent, by name or by words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from agentnb.errors import NotebookError
from agentnb.objects.given import MOST_FILES, objects_given

TABLE = pd.DataFrame({"a": [1]})
NOTEBOOK: dict[str, Any] = {"df": TABLE, "prices": [1.5], "_": 1, "In": [], "get_ipython": print}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(*names: str) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_objects_by_name_are_handed_on_as_they_are() -> None:
    given = objects_given({"df": TABLE, "list": [1], "größe": 3})

    assert list(given) == ["df", "list", "größe"]
    assert given["df"] is TABLE
    assert objects_given(None) == {}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a b", "a name has letters, digits and `_`"),
        ("", "a name has letters"),
        ("1a", "a name has letters"),
        (3, "a name has letters"),
        ("a.csv", "a name has letters"),
        ("class", "a keyword of Python"),
        ("None", "a keyword of Python"),
        ("_df", "may not begin with `_`"),
        ("In", "every kernel uses this name itself"),
        ("Out", "every kernel uses this name itself"),
        ("exit", "every kernel uses this name itself"),
        ("quit", "every kernel uses this name itself"),
        ("get_ipython", "every kernel uses this name itself"),
    ],
)
def test_name_that_no_code_could_use_is_refused_with_the_reason(name: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        objects_given({name: 1})

    assert repr(name) in str(caught.value)


def test_two_spellings_of_one_name_are_refused() -> None:
    # Python reads the first one, a ligature, as the second.
    with pytest.raises(ValueError, match="twice: rename one"):
        objects_given({"\ufb01le": 1, "file": 2})


@pytest.mark.parametrize("give", [3, TABLE, TABLE["a"], b"df", iter(["df"]), [TABLE], {1, 2}])
def test_what_is_neither_names_nor_objects_by_name_is_refused(give: Any) -> None:
    with pytest.raises(ValueError, match=r"such as \{'df': df\}"):
        objects_given(give, NOTEBOOK)


@pytest.mark.parametrize(
    "words", ["df,prices", " df , prices,", ["df", "prices"], ("df", "prices")]
)
def test_words_are_names_of_the_notebook(words: Any) -> None:
    given = objects_given(words, NOTEBOOK)

    assert list(given) == ["df", "prices"]
    assert given["df"] is TABLE


def test_unknown_name_is_refused_with_the_nearest_and_those_that_there_are() -> None:
    with pytest.raises(NotebookError) as caught:
        objects_given("dff", NOTEBOOK)

    assert "'dff'" in str(caught.value)
    assert "known: 'df', 'prices')" in str(caught.value)
    assert "or correct the name to 'df'." in str(caught.value)


@pytest.mark.parametrize("word", ["_", "In", "get_ipython", "class"])
def test_name_of_the_notebook_that_cannot_be_given_is_refused(word: str) -> None:
    with pytest.raises(NotebookError, match=f"cannot have '{word}'"):
        objects_given([word], NOTEBOOK)


def test_pattern_becomes_paths_by_name(folder: Path) -> None:
    touch("notes/b.pdf", "notes/report-2024.pdf", "notes/2024.pdf", "notes/x.txt", "notes/a.pdf/x")

    given = objects_given("df,notes/*.pdf", NOTEBOOK)

    assert given == {
        "df": TABLE,
        "file_2024_pdf": Path("notes/2024.pdf"),
        "b_pdf": Path("notes/b.pdf"),
        "report_2024_pdf": Path("notes/report-2024.pdf"),
    }


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.csv", "a_csv"),
        ("Übersicht 1.csv", "Übersicht_1_csv"),
        (".env", "env"),
        ("1.csv", "file_1_csv"),
        ("--.--", "file"),
        ("a[1].txt", "a_1_txt"),
        ("x/class", "class_file"),
        ("x/In", "In_file"),
        ("²x.csv", "file_2x_csv"),
        ("a\u20ddb.c", "a_b_c"),
    ],
)
def test_file_gets_a_name_that_code_can_use(folder: Path, file: str, name: str) -> None:
    touch(file)

    assert objects_given([file], {}) == {name: Path(file)}
    assert name.isidentifier()


def test_files_of_one_name_are_told_apart_and_take_no_given_name(folder: Path) -> None:
    touch("x/a.csv", "y/a.csv", "a-csv.")

    given = objects_given("x/a.csv,y/*.csv,a-csv.,a_csv", {"a_csv": 7})

    assert given == {
        "a_csv_2": Path("x/a.csv"),
        "a_csv_3": Path("y/a.csv"),
        "a_csv_4": Path("a-csv."),
        "a_csv": 7,
    }


def test_files_are_given_by_name_in_order(folder: Path) -> None:
    names = [f"x/{at:02}.csv" for at in range(12)]
    touch(*names[6:], *names[:6])

    assert [*objects_given("x/*.csv", {}).values()] == [Path(name) for name in names]


def test_file_that_is_named_twice_is_given_once(folder: Path) -> None:
    touch("x/a.csv", "x/b.csv")

    assert list(objects_given("x/b.csv,x/*.csv,x/**", {})) == ["b_csv", "a_csv"]


def test_folder_is_given_as_one_path(folder: Path) -> None:
    touch("x/a.csv")

    assert objects_given("./x", {}) == {"x": Path("x")}


def test_pattern_without_a_file_is_refused(folder: Path) -> None:
    touch("x/y/a.csv")

    for word in ("nowhere.csv", "*.pdf", "x/*"):  # the last finds a folder only
        with pytest.raises(NotebookError, match="finds no file") as caught:
            objects_given([word], NOTEBOOK)
        assert repr(word) in str(caught.value)


def test_word_that_names_a_file_but_no_object_says_how_to_name_the_file(folder: Path) -> None:
    touch("README")

    with pytest.raises(NotebookError, match=r"or, for the file, write `\./README`"):
        objects_given("README", {})

    assert objects_given("./README", {}) == {"README": Path("README")}


def test_pattern_may_find_200_files_and_no_more(folder: Path) -> None:
    touch(*(f"x/{at:03}.csv" for at in range(MOST_FILES)))
    assert len(objects_given("x/*.csv", {})) == 200

    touch("x/one-more.csv")
    with pytest.raises(NotebookError, match="more than 200 files"):
        objects_given("x/*.csv", {})


def test_pattern_may_begin_at_the_root(folder: Path) -> None:
    touch("x/a.csv")

    given = objects_given([f"{folder}/x/*.csv"], {})

    assert given == {"a_csv": folder / "x" / "a.csv"}
