"""The mode in force and the notebook's cassette, from all settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agentnb.modes import (
    CassetteFile,
    Labels,
    cassette_of,
    label_of,
    mode_of,
    mode_of_test,
    notebook_of,
    recorded_label,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a notebook."""
    (tmp_path / "lesson.ipynb").write_text("{}")
    return tmp_path


def named(folder: Path, environment: Mapping[str, str], **variables: object) -> str | None:
    """The name of the notebook's cassette, and the source of the notebook's name."""
    notebook = notebook_of(environment, variables, folder)
    found = cassette_of(None, environment, notebook, folder)
    return None if found is None else f"{found.path.relative_to(folder)} ({found.origin})"


OWN = "lesson.cassette.jsonl (the notebook's, by {})"


@pytest.mark.parametrize(
    ("environment", "variables", "found"),
    [
        ({}, {}, None),
        ({"PYTEST_CURRENT_TEST": "books/lesson.ipynb::Cell 1 (setup)"}, {}, OWN.format("nbval")),
        ({"PYTEST_CURRENT_TEST": "tests/test_it.py::test_it (call)"}, {}, None),
        ({"PYTEST_CURRENT_TEST": "gone.ipynb::Cell 1 (call)"}, {}, None),
        ({"JPY_SESSION_NAME": "lesson.ipynb"}, {}, OWN.format("Jupyter")),
        ({"JPY_SESSION_NAME": "renamed.ipynb"}, {}, None),
        ({"JPY_SESSION_NAME": "RTC:lesson.ipynb"}, {}, None),
        ({"JPY_SESSION_NAME": "a console"}, {}, None),
        ({"JPY_SESSION_NAME": "null\0.ipynb"}, {}, None),
        ({}, {"__vsc_ipynb_file__": "lesson.ipynb"}, OWN.format("VS Code")),
        ({}, {"__vsc_ipynb_file__": 5}, None),
        (
            {"JPY_SESSION_NAME": "x.ipynb"},
            {"__vsc_ipynb_file__": "lesson.ipynb"},
            OWN.format("VS Code"),
        ),
        (
            {"AGENTNB_CASSETTE": "other.jsonl", "JPY_SESSION_NAME": "lesson.ipynb"},
            {},
            "other.jsonl (AGENTNB_CASSETTE)",
        ),
    ],
)
def test_cassette_is_the_one_that_is_named_else_the_notebooks_own(
    folder: Path, environment: dict[str, str], variables: dict[str, object], found: str | None
) -> None:
    assert named(folder, environment, **variables) == found


def test_absolute_name_of_a_notebook_elsewhere_names_the_file_beside_it(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    notebook = notebook_of({"JPY_SESSION_NAME": str(folder / "lesson.ipynb")}, {}, elsewhere)

    found = cassette_of(None, {}, notebook, elsewhere)

    assert found is not None
    assert found.path == folder / "lesson.cassette.jsonl"


def test_setting_comes_before_the_environment_and_the_notebook(folder: Path) -> None:
    environment = {"AGENTNB_CASSETTE": "other.jsonl"}
    found = cassette_of(Path("mine.jsonl"), environment, None, folder)

    assert found == CassetteFile(folder / "mine.jsonl", "set in code")


def mode(
    folder: Path, *, given: str | None = None, magic: str | None = None, **environment: str
) -> str:
    notebook = notebook_of({"JPY_SESSION_NAME": "lesson.ipynb"}, {}, folder)
    cassette = cassette_of(None, environment, notebook, folder)
    found = mode_of(given, magic, environment, cassette, folder)
    assert found.trouble is None
    return f"{found.name}: {found.why}"


def test_first_who_says_a_mode_is_heard(folder: Path) -> None:
    assert mode(folder) == "live: the default"
    assert mode(folder, CI="1") == "live: the default"  # there is no cassette
    (folder / "lesson.cassette.jsonl").touch()
    assert mode(folder) == "live: the default"
    assert mode(folder, CI="true") == "replay: CI is set, and lesson.cassette.jsonl is there"
    for off in ("", "0", "false", "False"):
        assert mode(folder, CI=off) == "live: the default"
    assert mode(folder, CI="1", AGENTNB_MODE="live") == "live: AGENTNB_MODE"
    assert mode(folder, AGENTNB_MODE="auto", magic="record") == "record: %agentnb mode"
    assert mode(folder, AGENTNB_MODE="auto", magic="record", given="replay") == (
        "replay: set in code"
    )


def test_unknown_mode_in_the_environment_is_an_error_that_lists_the_modes(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"AGENTNB_MODE.*live, record, auto or replay.*'rec'"):
        mode(folder, AGENTNB_MODE="rec")


@pytest.mark.parametrize("wanted", ["record", "auto", "replay"])
def test_mode_without_a_cassette_says_what_to_set(folder: Path, wanted: str) -> None:
    found = mode_of(wanted, None, {}, None, folder)

    assert found.trouble is not None
    assert "AGENTNB_CASSETTE" in found.trouble
    assert wanted in found.trouble


def test_ci_with_a_cassette_that_may_be_another_notebooks_says_so(folder: Path) -> None:
    assert mode_of(None, None, {"CI": "1"}, None, folder).trouble is None
    (folder / "some.cassette.jsonl").touch()

    found = mode_of(None, None, {"CI": "1"}, None, folder)

    assert found.name == "live"
    assert "some.cassette.jsonl" in (found.trouble or "")
    assert "AGENTNB_CASSETTE" in (found.trouble or "")


def test_replay_without_a_notebooks_name_takes_the_folders_only_cassette(folder: Path) -> None:
    own = folder / "lesson.cassette.jsonl"
    for each in (own, folder / "lesson.jsonl", folder / "below" / "b.cassette.jsonl"):
        each.parent.mkdir(exist_ok=True)
        each.touch()

    for said in (
        mode_of("replay", None, {}, None, folder),
        mode_of(None, "replay", {"CI": "1"}, None, folder),
        mode_of(None, None, {"AGENTNB_MODE": "replay"}, None, folder),
        mode_of("auto", None, {}, None, folder),  # which writes nothing to it
    ):
        assert said.cassette is not None
        assert (said.cassette.path, said.trouble) == (own, None)
    assert mode_of("record", None, {}, None, folder).cassette is None  # perhaps another notebook's

    inherited = CassetteFile(
        folder / "course" / "grade.cassette.jsonl", "the notebook's, by Jupyter"
    )
    said = mode_of("replay", None, {}, inherited, folder)
    assert said.cassette is not None
    assert said.cassette.path == own
    assert mode_of("auto", None, {}, inherited, folder).cassette == inherited
    here = CassetteFile(folder / "gone.cassette.jsonl", "the notebook's, by Jupyter")
    assert mode_of("replay", None, {}, here, folder).cassette == here  # its error names the file

    (folder / "other.cassette.jsonl").touch()
    found = mode_of("replay", None, {}, None, folder)
    assert found.cassette is None
    assert "which of lesson.cassette.jsonl, other.cassette.jsonl" in (found.trouble or "")
    assert "AGENTNB_CASSETTE" in (found.trouble or "")


def test_notebook_that_was_renamed_without_its_cassette_asks_no_model_in_ci(folder: Path) -> None:
    notebook = folder / "new name.ipynb"
    notebook.touch()
    told = {"PYTEST_CURRENT_TEST": f"{notebook.name}::Cell 1 (call)"}

    def trouble(**environment: str) -> str | None:
        beside = cassette_of(None, environment, notebook_of(told, {}, folder), folder)
        found = mode_of(None, None, environment, beside, folder)
        assert found.name == "live"
        return found.trouble

    assert trouble(CI="1") is None  # a notebook that never had one
    (folder / "lesson.cassette.jsonl").touch()
    assert trouble(CI="1") is None  # that is another notebook's
    (folder / "lesson.ipynb").unlink()
    said = trouble(CI="1")
    assert said is not None
    assert "git mv lesson.cassette.jsonl 'new name.cassette.jsonl'" in said
    assert "AGENTNB_MODE=live" in said
    assert trouble() is None
    assert trouble(CI="1", AGENTNB_MODE="live") is None
    assert trouble(CI="1", AGENTNB_CASSETTE="mine.cassette.jsonl") is None


def test_test_with_a_cassette_is_replayed_unless_somebody_says_a_mode(folder: Path) -> None:
    cassette = CassetteFile(folder / "it.cassette.jsonl", "the test's")

    def found(option: str | None = None, **environment: str) -> str:
        mode = mode_of_test(option, environment, cassette, folder)
        return f"{mode.name}: {mode.why}{' (but not over the network)' if mode.trouble else ''}"

    assert found() == "live: the default"
    assert found(CI="1") == "live: the default (but not over the network)"
    assert found("live", CI="1", AGENTNB_MODE="auto") == "live: --agentnb-mode"
    assert found(CI="1", AGENTNB_MODE="live") == "live: AGENTNB_MODE"
    cassette.path.touch()
    assert found() == "replay: it.cassette.jsonl is there"
    assert found(CI="1") == "replay: CI is set, and it.cassette.jsonl is there"
    assert found(AGENTNB_MODE="live") == "live: AGENTNB_MODE"
    assert found("record", AGENTNB_MODE="live") == "record: --agentnb-mode"


def test_label_is_the_name_else_the_beginning_of_the_tasks_hash() -> None:
    assert label_of("plan", "Do it.") == "plan"
    assert label_of("", "Do it.") == label_of("", "Do it.")
    assert label_of("", "Do it.") != label_of("", "Do it!")
    assert len(label_of("", "half \ud83d a character")) == 8


def test_runs_of_one_label_are_counted_for_each_cassette() -> None:
    labels = Labels()
    one, other = Path("one"), Path("other")

    assert [labels.next(one, "x") for _ in range(3)] == ["x", "x~2", "x~3"]
    assert labels.next(one, "y") == "y"
    assert labels.next(other, "x") == "x"
    labels.forget()
    assert [labels.next(one, "x") for _ in range(2)] == ["x", "x~2"]


@pytest.mark.parametrize(
    ("label", "known", "found"),
    [
        ("x", ["x"], "x"),
        ("x~2", ["x"], "x"),
        ("x~3", ["x", "x~2"], "x~2"),
        ("x~2", ["x", "x~2", "x~3"], "x~2"),
        ("x~5", ["x", "x~3"], "x~3"),
        ("y", ["x"], None),
        ("y~2", ["x"], None),
        ("a~b", ["a~b"], "a~b"),
        ("a~b~2", ["a~b"], "a~b"),
    ],
)
def test_cell_that_is_repeated_beyond_its_recordings_reads_the_last_one(
    label: str, known: list[str], found: str | None
) -> None:
    assert recorded_label(label, dict.fromkeys(known)) == found
