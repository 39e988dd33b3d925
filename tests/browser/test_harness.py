"""The harness sees what it claims to see: else the other tests of this folder prove little."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import find_chromium
from tests.browser.desk import DARK, Desk
from tests.browser.notebook import Notebook
from tests.notebook.kernel import a_door

WIDGETS = """
import asyncio
import ipywidgets
from IPython.display import display

clicked = asyncio.Event()
loop = asyncio.get_running_loop()
button = ipywidgets.Button(description="Let it go")
button.on_click(lambda _: loop.call_soon_threadsafe(clicked.set))
slider = ipywidgets.IntSlider(value=3, min=0, max=9)
display(slider, button)
await clicked.wait()
print(f"let go at {slider.value}")
"""


def test_click_and_key_reach_the_kernel_while_a_cell_awaits(desk: Desk) -> None:
    notebook = desk.notebook(WIDGETS)

    notebook.start(0)
    handle = notebook.output(0).get_by_role("slider")
    handle.focus()
    handle.press("ArrowRight")
    expect(notebook.output(0).locator(".widget-readout")).to_have_text("4")
    assert notebook.is_running(0)
    notebook.output(0).get_by_role("button", name="Let it go").click()
    notebook.wait(0)

    expect(notebook.output(0)).to_contain_text("let go at 4")


def test_kernel_runs_the_code_of_this_clone_without_a_persons_settings(desk: Desk) -> None:
    import agentnb

    notebook = desk.notebook(
        "import agentnb, os; print(agentnb.__file__, os.environ['IPYTHONDIR'])"
    )

    notebook.run(0)

    expect(notebook.output(0)).to_contain_text(agentnb.__file__)
    expect(notebook.output(0)).to_contain_text(str(desk.server.folder.parent))


def test_request_to_another_machine_is_written_down_and_not_answered(desk: Desk) -> None:
    addresses = ["http://example.com/a", "http://192.0.2.1/b", "http://[2001:db8::1]/c"]

    came_back = desk.page.evaluate(
        "urls => Promise.all(urls.map(url => fetch(url).then(() => url, () => null)))", addresses
    )

    assert came_back == [None, None, None]
    assert desk.watch.left_the_machine == addresses
    desk.watch.forget()


def test_error_in_a_script_is_written_down(desk: Desk) -> None:
    with desk.page.expect_event("pageerror"):
        desk.page.evaluate("() => void setTimeout(() => { throw new Error('loud') })")

    assert "loud" in desk.watch.errors[0]
    desk.watch.forget()


def test_interrupt_button_ends_a_cell_that_waits(desk: Desk) -> None:
    notebook = desk.notebook("import threading; print('begun'); threading.Event().wait()")

    notebook.start(0)
    expect(notebook.output(0)).to_contain_text("begun")
    notebook.interrupt()
    notebook.wait(0)

    expect(notebook.output(0)).to_contain_text("KeyboardInterrupt")


def test_run_all_goes_cell_by_cell_and_a_door_tells_how_far_it_is(desk: Desk) -> None:
    with a_door() as door:
        waits = "import asyncio\nawait asyncio.to_thread(asyncio.run, hold())\nprint('one')"
        notebook = desk.notebook(door.hold, waits, "print(2)")

        notebook.start_all()
        door.wait_for_knock()
        notebook.wait(0)
        assert notebook.is_running(1)
        assert notebook.is_running(2)
        door.open()
        notebook.wait(2)

    expect(notebook.output(1)).to_contain_text("one")
    expect(notebook.output(2)).to_contain_text("2")


def test_copy_from_elsewhere_is_not_trusted_and_what_one_ran_is(desk: Desk) -> None:
    source = "from IPython.display import HTML; HTML('<b>bold</b><script>window.ran = 1</script>')"
    notebook = desk.notebook(source)
    notebook.run(0)
    assert desk.page.evaluate("window.ran") == 1
    assert notebook.save()["cells"][0]["outputs"]
    assert notebook.is_trusted

    desk.page.evaluate("delete window.ran")
    copy = desk.untrusted_copy(notebook)

    expect(copy.output(0)).to_contain_text("bold")
    assert not copy.is_trusted
    assert desk.page.evaluate("window.ran") is None


def test_page_comes_back_after_a_reload_and_its_kernel_was_there_all_the_time(desk: Desk) -> None:
    notebook = desk.notebook("kept = 41", "print(kept + 1)")
    notebook.run(0)
    notebook.save()
    kernels = desk.server.kernels

    notebook.reload()
    notebook.run(1)

    expect(notebook.output(1)).to_contain_text("42")
    assert desk.server.kernels == kernels


def test_page_that_is_too_slow_for_its_widgets_shows_them_after_a_reload(desk: Desk) -> None:
    notebook = desk.notebook("import ipywidgets", "ipywidgets.IntSlider(value=3)")
    notebook.run(0, 1)
    notebook.save()
    page = desk.another_page(is_empty=True)
    late = (
        "const own = setTimeout; setTimeout = (f, ms, ...a) => own(f, ms === 100 ? 3e3 : ms, ...a)"
    )
    page.add_init_script(late)

    again = Notebook(page, desk.server, notebook.name)
    again.reload()

    expect(again.output(1).get_by_role("slider")).to_be_visible()


def test_page_can_be_dark_and_is_light_otherwise(desk: Desk) -> None:
    colour = "() => getComputedStyle(document.body).getPropertyValue('--jp-layout-color1').trim()"
    assert desk.page.evaluate(colour) == "white"

    desk.set_theme(DARK)
    assert desk.page.evaluate(colour) == "#212121"
    desk.tidy()

    assert desk.page.evaluate(colour) == "white"


def test_browser_is_the_cheapest_that_the_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "of-playwright"
    driver: Any = SimpleNamespace(chromium=SimpleNamespace(executable_path=str(own)))
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_chromium(driver) is None
    for better in (own.name, "google-chrome", "chromium", "chromium-headless-shell"):
        (tmp_path / better).touch(mode=0o755)
        assert find_chromium(driver) == str(tmp_path / better)
