"""An agent's code in a worker, from outside: real processes, and what they answer."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from agentnb.core.threads import run_in_thread
from agentnb.workers.given import DataFile, write_data_file
from agentnb.workers.returned_models import Picture
from tests.workers.pools import LONG_S, Pool, marked, quick

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="a worker is forked, which this system cannot"
)

SECRET = "sk-test-0123456789abcdef"
HOME = Path("home")
FRAME = pd.DataFrame({"x": np.arange(1_000_000.0), "s": pd.Categorical(["text"] * 1_000_000)})


def made_in_the_kernel() -> object:
    """An object of a module that no other process can import."""
    module = sys.modules["ghosts"] = types.ModuleType("ghosts")
    exec("class Ghost: ...", vars(module))
    return module.Ghost()


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """One pool for the file. Its agent `a` has all names, and each test takes its own besides."""
    os.environ["SOMEBODYS_API_KEY"] = SECRET
    sys.path.append(HOME)  # type: ignore[arg-type]  # a notebook's mistake, which Python ignores
    given: dict[str, object] = {
        "df": FRAME,
        "items": [1, 2],
        "pl_df": pl.DataFrame({"a": [1, None]}),
        "lock": threading.Lock(),
        "file": open(__file__),  # noqa: PTH123
        "function": lambda: 1,
        "hidden": "only for others",
        "ghost": made_in_the_kernel(),
    }
    pool = Pool(given, limits=quick())
    pool.workers.give("a", ["df", "items", "pl_df"])
    yield pool
    pool.close()
    given["file"].close()  # type: ignore[attr-defined]
    del sys.modules["ghosts"]
    sys.path.remove(HOME)  # type: ignore[arg-type]
    del os.environ["SOMEBODYS_API_KEY"]


def test_last_expression_is_the_value_and_names_stay_between_calls(pool: Pool) -> None:
    first = pool.run("n = 20\nn + 1")
    second = pool.run("n * 2")

    assert (first.text, first.names, first.is_error) == ("21\n(Bound: n)", ("n",), False)
    assert (second.text, second.names) == ("40", ())


def test_a_person_sees_that_a_worker_starts_and_when_the_code_runs(pool: Pool) -> None:
    before = len(pool.reports)

    pool.run("1", "seen")
    pool.run("2", "seen")

    assert pool.reports[before:] == ["a worker starts", "it runs", "it runs"]


def test_what_is_printed_comes_with_the_value_also_from_a_process(pool: Pool) -> None:
    code = "import os as o, sys as s\nprint('one')\no.system('echo two; echo bad >&2')\nNone"
    ran = pool.run(code)

    assert ran.text == "one\ntwo\nStandard error:\nbad\n(Bound: o, s)"


def test_long_output_keeps_its_beginning_and_its_end(pool: Pool) -> None:
    ran = pool.run("print('begin'); print('x' * 1_000_000); print('end')")

    assert ran.text.startswith("begin\nxxx")
    assert ran.text.endswith("xxx\nend")
    assert "… 980,011 bytes left out …" in ran.text
    assert len(ran.text) < 21_000


def test_error_says_where_in_the_cell_and_nothing_of_the_machinery(pool: Pool) -> None:
    ran = pool.run("def get(rows):\n    return rows['q']\n\nget({})")

    assert ran.is_error
    assert ran.text == (
        "Line 4: get({})\nLine 2, in get: return rows['q']\nKeyError: 'q'\n(Bound: get)"
    )


def test_error_of_the_grammar_shows_its_line(pool: Pool) -> None:
    assert pool.run("x = = 1").text == "In line 1: x = = 1\nSyntaxError: invalid syntax"


def test_cell_may_await_and_display(pool: Pool) -> None:
    ran = pool.run("import asyncio\nawait asyncio.sleep(0)\ndisplay('shown')\n'value'")

    assert ran.text == "'shown'\n'value'\n(Bound: asyncio)"


def test_displays_that_are_left_out_are_counted(pool: Pool) -> None:
    ran = pool.run("for _i in range(25): display('shown')")

    said = "'shown'\n(5 more displayed values are left out: 20 go at most.)"
    assert ran.text.endswith(said)
    assert ran.text.count("shown") == 20


def test_text_that_is_no_valid_unicode_comes_with_its_escapes(pool: Pool) -> None:
    shown = pool.run("class Odd:\n    def __repr__(self): return '<\\ud800>'\nOdd()")
    raised = pool.run("raise ValueError('<\\ud800>')")

    assert shown.text == "<\\ud800>\n(Bound: Odd)"
    assert raised.text.endswith("ValueError: <\\ud800>")


@pytest.mark.parametrize("error", ["SystemExit", "KeyboardInterrupt"])
def test_value_whose_text_raises_is_an_error_and_the_worker_lives(pool: Pool, error: str) -> None:
    ran = pool.run(f"class Bad:\n    def __repr__(self): raise {error}\nBad()")

    assert (ran.is_error, ran.ended) == (True, False)
    assert f"\n{error}\n" in ran.text


def test_import_path_of_a_worker_is_the_persons_but_for_what_is_no_text(pool: Pool) -> None:
    ran = pool.run("import sys; sys.path")

    # Not their order: pytest may have put a folder of other tests before them since.
    mine: list[object] = [*sys.path]
    assert [each for each in mine if isinstance(each, str) and repr(each) not in ran.text] == []
    assert HOME in mine
    assert "Path(" not in ran.text


def test_worker_that_cannot_be_started_is_an_error_that_says_why(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))

    ran = pool.run("1", "without a folder")

    assert ran.is_error
    assert ran.text.startswith("The worker did not start: [Errno 2] No such file or directory")


def test_frame_is_told_by_its_shape_types_and_first_rows(pool: Pool) -> None:
    ran = pool.run("df")

    assert ran.text.startswith("DataFrame, 1,000,000 rows x 2 columns (x float64, s category)")
    assert ran.text.endswith("… 999,990 more rows")
    assert len(ran.text) < 1_000


def test_asking_the_person_is_an_error_at_once(pool: Pool) -> None:
    ran = pool.run("input('Name? ')")

    assert "StdinNotImplementedError" in ran.text


def test_open_figures_come_as_pictures_and_are_closed(pool: Pool) -> None:
    code = "import matplotlib.pyplot as plt\nfor _ in range(9):\n    plt.figure()\nplt.show()"
    ran = pool.run(code)
    after = pool.run("plt.get_fignums()")

    assert len(ran.pictures) == 8
    assert all(each.startswith(b"\x89PNG") for each in ran.pictures)
    assert "(figure 1: PNG, 640 x 480)" in ran.text
    assert "(1 more figures are left out: 8 go at most.)" in ran.text
    assert after.text == "[]"


def test_labels_of_a_figure_are_not_cut_at_its_edge(pool: Pool) -> None:
    pool.run(
        "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\n"
        "ax.bar(['a long name of a city'], [1])\nax.tick_params(axis='x', rotation=90)\nNone"
    )
    bottom = pool.run("bool(ax.get_tightbbox().y0 >= 0 and ax.get_position().y0 > 0.2)")

    assert bottom.text == "True"


def test_figure_that_is_the_value_comes_once_though_pyplot_does_not_know_it(pool: Pool) -> None:
    ran = pool.run("from matplotlib.figure import Figure\nFigure(figsize=(2, 1))")

    assert len(ran.pictures) == 1
    assert "(figure 1: PNG, 200 x 100)" in ran.text


def test_agent_gets_only_the_names_that_it_is_told(pool: Pool) -> None:
    assert pool.run("sorted({'df', 'hidden'} & globals().keys())").text == "['df']"
    assert pool.run("df", "nobody told").text.endswith("NameError: name 'df' is not defined")


def test_copy_is_changed_without_the_person_or_another_agent_seeing_it(pool: Pool) -> None:
    pool.workers.give("c1", ["df"])
    pool.workers.give("c2", ["df"])

    pool.run("df.loc[:, 'x'] = -1.0", "c1")

    assert pool.run("float(df.x.max())", "c2").text == "999999.0"
    assert pool.run("float(df.x.max())", "c1").text == "-1.0"
    assert FRAME.x.max() == 999_999


@pytest.mark.skipif(not Path("/proc").exists(), reason="/proc tells what a process maps")
def test_numbers_are_mapped_not_copied(pool: Pool) -> None:
    pool.workers.give("m", ["df"])
    code = (
        "at = df.x.to_numpy().ctypes.data\n"
        "line, = [line for line in open('/proc/self/maps') if int(line.split('-')[0], 16) <= at "
        "< int(line.split()[0].split('-')[1], 16)]\n'agentnb-data' in line"
    )

    assert "True" in pool.run(code, "m").text


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can seal a file")
def test_no_worker_can_change_what_others_were_given(pool: Pool) -> None:
    pool.workers.give("w", ["df"])
    code = (
        "import os\n"
        "files = ['/proc/self/fd/' + name for name in os.listdir('/proc/self/fd')]\n"
        "data = [file for file in files if 'agentnb-data' in os.path.realpath(file)][0]\n"
        "file = os.open(data, os.O_RDWR)\nos.pwrite(file, b'x', 0)"
    )

    assert "PermissionError" in pool.run(code, "w").text


def test_what_cannot_be_handed_over_is_said_and_stops_nothing_else(pool: Pool) -> None:
    pool.workers.give("l", ["lock", "file", "function", "items"])

    ran = pool.run("items", "l")

    assert "`lock` could not be handed to the worker: cannot pickle '_thread.lock' object" in (
        ran.text
    )
    assert "`file` could not be handed to the worker: cannot pickle" in ran.text
    assert "`function` could not be handed to the worker:" in ran.text
    assert ran.text.endswith("[1, 2]")
    assert not ran.is_error


def test_object_whose_module_only_the_person_has_is_said_too(pool: Pool) -> None:
    pool.workers.give("g", ["ghost", "items"])

    ran = pool.run("items", "g")

    said = "`ghost` could not be handed to the worker: ModuleNotFoundError: No module named 'ghost"
    assert ran.text.startswith(said)
    assert ran.text.endswith("[1, 2]")
    assert "could not" not in pool.run("items", "g").text


@pytest.mark.skipif(not Path("/proc").exists(), reason="/proc shows other processes")
def test_no_secret_is_in_the_environment_of_a_worker_or_of_what_watches_it(pool: Pool) -> None:
    code = f"""
        import os
        from pathlib import Path
        seen, pid = [repr(dict(os.environ))], os.getpid()
        while pid not in (0, 1, {os.getpid()}):
            for name in ("environ", "cmdline"):
                try:
                    seen.append(Path(f"/proc/{{pid}}/{{name}}").read_text())
                except OSError:
                    pass
            pid = int(Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[1])
        len(seen) >= 3, sum({SECRET[:12]!r} in each for each in seen), "PATH" in seen[0]
    """

    ran = pool.run(
        "if True:"
        + code.rsplit("len(seen)", 1)[0]
        + "\n"
        + "len(seen)"
        + (code.rsplit("len(seen)", 1)[1].strip()),
        "env",
    )

    assert "(True, 0, True)" in ran.text


def test_names_come_back_as_objects_and_what_was_not_changed_does_not(pool: Pool) -> None:
    pool.workers.give("h", ["df", "items", "pl_df"])
    pool.run(
        "import pandas as pd, matplotlib.pyplot as plt\n"
        "top = df.nlargest(2, 'x')\nfig = plt.figure(figsize=(2, 1))\n"
        "items.append(3)\npl_df.height\n_own = 1\n"
        "class Model: ...\nmodel = Model()\ndef f(): ...\nsum_x = df.x.sum()",
        "h",
    )

    returned = pool.end("h")

    objects: dict[str, Any] = dict(returned.objects)
    assert sorted(objects) == ["fig", "items", "sum_x", "top"]
    pd.testing.assert_frame_equal(objects["top"], FRAME.nlargest(2, "x"))
    assert objects["items"] == [1, 2, 3]
    assert isinstance(objects["fig"], Picture)
    assert type(objects["sum_x"]) is np.float64
    assert list(returned.left_out) == ["model"]
    assert "__main__.Model cannot come back" in returned.left_out["model"]


def test_end_returns_what_was_bound_and_then_no_code_runs(pool: Pool) -> None:
    pool.run("k = 1", "e")

    assert pool.end("e").objects == {"k": 1}
    assert "No code runs any more" in pool.run("k", "e").text
    assert pool.end("never seen").objects == {}


def test_given_data_is_closed_though_the_call_that_wanted_it_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on, written = threading.Event(), threading.Event(), list[DataFile]()

    def slow(objects: Any) -> DataFile:
        begun.set()
        go_on.wait(LONG_S)
        written.append(write_data_file(objects))
        return written[0]

    monkeypatch.setattr("agentnb.workers.pool.write_data_file", slow)
    pool = Pool({"numbers": [1]}, limits=quick())

    async def cancelled() -> None:
        call = asyncio.create_task(pool.running("numbers"))
        assert await run_in_thread(lambda: begun.wait(LONG_S))
        call.cancel()
        await asyncio.wait({call})
        go_on.set()
        await asyncio.wait({*filter(None, [pool.workers._writing])})

    pool.wait(cancelled())
    file = written[0].file
    assert file is not None
    os.fstat(file)
    pool.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_call_that_has_to_wait_says_why_and_waits(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two agents, one place: the second call runs when the first has ended."""
    monkeypatch.setattr(pool.workers, "_slots", asyncio.Semaphore(1))
    gate = tmp_path / "gate"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(.01)"
    said: list[str] = []

    def noted(why: str, waits: asyncio.Event) -> None:
        said.append(why)
        waits.set()

    async def both() -> list[str]:
        order: list[str] = []
        begun, waits = asyncio.Event(), asyncio.Event()
        run = pool.workers.run
        first = asyncio.create_task(run("x", wait, report=lambda _: begun.set()))
        first.add_done_callback(lambda _: order.append("first"))
        await begun.wait()
        second = asyncio.create_task(run("y", "2", on_wait=lambda why: noted(why, waits)))
        second.add_done_callback(lambda _: order.append("second"))
        await waits.wait()
        gate.touch()
        await asyncio.gather(first, second)
        await asyncio.sleep(0)
        return order

    assert pool.wait(both()) == ["first", "second"]
    assert said == ["as many calls run code as may at a time: 4"]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="/proc counts the pages")
def test_workers_share_what_they_were_given_and_what_they_import() -> None:
    frame = pd.DataFrame({"x": np.arange(5_000_000.0)})  # 40 MB
    pool = Pool({"frame": frame}, limits=quick())
    try:
        for i in range(6):
            pool.workers.give(f"{i}", ["frame"])
            assert pool.run("float(frame.x.sum())", f"{i}").text == "12499997500000.0"
        held = sum(proportional(pid) for pid in marked(pool.mark))
    finally:
        pool.close()

    # A copy for each would be 240 MB, and a process with pandas takes 70.
    assert held < 340_000_000


def proportional(pid: int) -> int:
    """Bytes of a process in memory; a page that several have is shared out among them.

    Those of a guard, which are few, only the superuser may count.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except PermissionError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
