"""What a board sends: rows, what is opened, answers to orders; and when it is silent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agentnb.core.errors import NoSuchThread
from agentnb.views.boards.publisher import BoardPublisher, changed_rows
from agentnb.views.boards.source import Conversation
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.renewal import SAVE_EVERY_S
from agentnb.views.panel.rules import MessageRefused
from agentnb.views.panel.viewers import GONE_AFTER_S
from tests.views.boards.some_board import Board, SomeSource, line, task_row
from tests.views.panel.manual_run import ManualRun

TALK = Conversation("reviewer", "idle", 0, (line(1), line(2, "Hi")))


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board(SomeSource(task_row(1), task_row(2)))
    yield board
    board.publisher.close()


def look(board: Board) -> list[dict[str, Any]]:
    """Something has changed; what was sent for it."""
    before = len(board.sent)
    board.source.change()
    board.publisher.look()
    return board.sent[before:]


def test_message_has_changed_rows_and_the_order_only_if_it_changed() -> None:
    one, two, three = task_row(1), task_row(2), task_row(3)
    before = {"t1": one, "t2": two}
    done = task_row(2, status="completed")

    assert changed_rows([one, two], before, seq=2) is None
    assert changed_rows([one, done], before, seq=2) == {
        "type": "frame", "seq": 2, "base": 1, "rows": [done], "order": None,
    }  # fmt: skip
    assert changed_rows([three, one], before, seq=2) == {
        "type": "frame", "seq": 2, "base": 1, "rows": [three], "order": ["t3", "t1"],
    }  # fmt: skip


def test_saved_board_has_a_thousand_rows_and_counts_the_others() -> None:
    source = SomeSource(*map(task_row, range(1_000)))
    board = Board(source)
    assert board.publisher.saved() == board.publisher.whole()
    source.all += [task_row(1_000, status="in_progress"), task_row(1_001), task_row(1_002)]
    source.change()
    saved = board.publisher.saved()

    assert saved["order"] == [row["id"] for row in saved["rows"]]
    assert len(saved["rows"]) == 1_000
    assert saved["left_out"] == "3 more rows: 2 pending, 1 in progress"
    whole = board.publisher.whole()
    assert len(whole["rows"]) == 1_003, "a kernel answers with all"
    assert whole["seq"] == saved["seq"]
    board.publisher.close()


def test_each_frame_is_built_on_the_one_before(board: Board) -> None:
    whole = board.publisher.whole()
    assert [row["id"] for row in whole["rows"]] == whole["order"] == ["t1", "t2"]

    board.source.all[0] = task_row(1, notes=1)
    (first,) = look(board)
    assert look(board) == []  # nothing that is shown
    board.source.all.append(task_row(3))
    (second,) = look(board)

    assert (first["base"], first["seq"], second["base"]) == (
        whole["seq"],
        second["base"],
        first["seq"],
    )
    assert board.publisher.whole()["seq"] == second["seq"]


def test_rows_are_saved_after_a_change_and_then_from_time_to_time() -> None:
    now_s, saved = [100.0], list[list[str]]()
    source = SomeSource(task_row(1))
    publisher = BoardPublisher(
        source,
        lambda _: None,
        save=lambda: saved.append(publisher.whole()["order"] or []),
        clock=lambda: now_s[0],
    )

    def grow() -> None:
        source.all.append(task_row(len(source.all) + 1))
        source.change()
        publisher.look()

    publisher.whole()
    publisher.look()
    assert len(saved) == 1, "the rows that the first state has"
    grow()
    grow()
    assert len(saved) == 1
    now_s[0] += SAVE_EVERY_S
    publisher.look()
    publisher.look()

    assert saved[1:] == [["t1", "t2", "t3"]]
    grow()
    publisher.catch_up()
    publisher.catch_up()
    assert saved[2:] == [["t1", "t2", "t3", "t4"]]
    publisher.close()
    source.all.clear()
    source.change()
    publisher.catch_up()
    assert len(saved) == 3, "it is closed"


def test_nothing_is_read_while_nothing_changes(board: Board) -> None:
    board.publisher.whole()
    reads = board.source.reads
    for _ in range(5):
        board.publisher.look()

    assert board.source.reads == reads


def test_opened_task_is_told_whole_and_again_when_it_changes(board: Board) -> None:
    details: Any = {"title": "Task 1", "status": "pending", "notes": []}
    board.source.details["t1"] = details
    board.hear(type="hello", view="v")

    (told,) = board.hear(type="open", view="v", id="t1")
    assert (told["view"], told["id"], told["task"]) == ("v", "t1", details)
    assert look(board) == []
    board.source.details["t1"] = details | {"status": "completed"}
    assert [message["task"]["status"] for message in look(board)] == ["completed"]
    assert board.hear(type="open", view="v", id="t9")[0]["task"] is None
    board.hear(type="open", view="v", id=None)
    board.source.details.clear()
    assert look(board) == []


def test_conversation_is_told_from_its_beginning_and_then_what_is_new(board: Board) -> None:
    board.source.talks["x"] = TALK
    board.hear(type="hello", view="v")

    (whole,) = board.hear(type="read", view="v", thread="x", most=50)
    assert (whole["n"], whole["order"], len(whole["lines"])) == (0, [1, 2], 2)
    assert look(board) == []
    answered = replace(TALK, status="working", lines=(*TALK.lines, line(3)))
    board.source.talks["x"] = answered
    (more,) = look(board)
    assert (more["n"], more["status"], more["order"]) == (1, "working", [1, 2, 3])
    assert [each["id"] for each in more["lines"]] == [3]
    board.source.talks["x"] = replace(answered, status="idle")
    (idle,) = look(board)
    assert (idle["n"], idle["status"], idle["order"], idle["lines"]) == (2, "idle", None, [])
    board.hear(type="read", view="v", thread=None, most=50)
    board.source.talks["x"] = TALK
    assert look(board) == []


def test_live_text_streams_and_ends_when_it_is_a_message(board: Board) -> None:
    run = ManualRun().began().called("root").said("root", "Half ")
    board.source.talks["x"] = TALK
    board.source.frames = FramePublisher(run.bus)
    board.hear(type="hello", view="v")
    board.hear(type="read", view="v", thread="x", most=50)

    (first,) = board.of("live")
    assert (first["n"], first["reset"], first["text"]) == (0, True, "Half ")
    run.said("root", "an answer")
    board.wait_until(lambda: len(board.of("live")) > 1)
    assert board.of("live")[1]["add"] == "an answer"
    board.source.frames = None
    board.source.talks["x"] = replace(TALK, lines=(*TALK.lines, line(3, "Half an answer")))
    told = look(board)
    assert [message["type"] for message in told] == ["conversation", "live"]
    assert told[1]["over"]


def test_order_is_carried_out_and_its_effect_told_before_its_end(board: Board) -> None:
    board.hear(type="hello", view="v")
    board.source.all[0] = task_row(1, status="completed")

    told = board.hear(type="status", view="v", order=7, id="t1", status="completed")

    assert [message["type"] for message in told] == ["frame", "done"]
    assert told[1] == {"type": "done", "view": "v", "order": 7, "error": ""}
    assert [order["type"] for order in board.source.orders] == ["status"]


def test_error_of_an_order_is_one_line_for_the_view_that_gave_it(board: Board) -> None:
    board.hear(type="hello", view="v")
    board.source.error = NoSuchThread("\x1b[31m\nx")

    told = board.hear(type="send", view="v", order=1, thread="x", text="Hello")

    assert (told[-1]["view"], told[-1]["order"]) == ("v", 1)
    assert "No agent found" in told[-1]["error"]
    assert not {"\x1b", "\n"} & {*told[-1]["error"]}


def test_trouble_with_the_store_is_told_once_until_it_has_passed(board: Board) -> None:
    board.source.error = ValueError("The disk is full.")
    for _ in range(3):
        board.publisher.look()
    board.source.error = None
    board.publisher.look()
    board.source.error = ValueError("The disk is full.")
    board.publisher.look()

    assert [each["line"] for each in board.of("notice")] == ["The disk is full."] * 2


def test_page_that_asks_whether_it_has_the_newest_rows_gets_an_answer(board: Board) -> None:
    board.hear(type="hello", view="v")
    newest = board.of("frame")[-1]["seq"]

    assert {"type": "newest"} in board.hear(type="sync", seq=newest)
    assert board.hear(type="sync", seq=newest - 1)[-1]["type"] == "frame"


def test_view_that_is_not_there_opens_nothing(board: Board) -> None:
    with pytest.raises(MessageRefused):
        board.hear(type="open", view="v", id="t1")
    board.hear(type="hello", view="v")
    board.hear(type="bye", view="v")
    with pytest.raises(MessageRefused):
        board.hear(type="read", view="v", thread="x", most=50)


def test_board_that_nobody_looks_at_rests_and_wakes_with_all_that_changed() -> None:
    now_s = [0.0]
    board = Board(SomeSource(task_row(1)), clock=lambda: now_s[0])
    board.source.talks["x"] = TALK
    board.hear(type="hello", view="v")
    board.hear(type="read", view="v", thread="x", most=50)

    now_s[0] = GONE_AFTER_S + 1
    wait_for_rest(board.publisher)
    assert board.source.rests == 1
    looks = board.source.looks
    board.source.all[0] = task_row(1, notes=1)
    board.source.talks["x"] = replace(TALK, lines=(*TALK.lines, line(3)))
    board.source.change()
    assert board.source.looks == looks

    board.hear(type="here", view="v")
    board.wait_until(lambda: len(board.of("conversation")) == 2)
    assert board.of("frame")[-1]["rows"] == [task_row(1, notes=1)]
    board.publisher.close()


def wait_for_rest(publisher: BoardPublisher) -> None:
    thread = publisher._thread
    assert thread is not None
    thread.join(120)
    assert not thread.is_alive()


def test_closed_board_ends_its_thread_and_lets_go_of_the_store(board: Board) -> None:
    board.hear(type="hello", view="v")
    thread = board.publisher._thread
    board.publisher.close()
    board.publisher.close()

    assert thread is not None
    thread.join(120)
    assert board.source.rests >= 1
    before = len(board.sent)
    board.source.change()
    assert board.sent[before:] == []
