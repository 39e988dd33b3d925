"""The magics in a real kernel: what a person types, and what the notebook shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebook.forked import ForkServer
from tests.notebook.kernel import Door, Kernel, Shown, a_door, started

SCRIPT = """
import agentnb, os, types
provider = agentnb.ScriptedProvider({
    "Plan": '<spawn_agents><agent task="first part"/><agent task="other part"/></spawn_agents>',
    "first part": agentnb.Reply("First is never finished.", pause=hold),
    "other part": "Other is done.",
    "<sub_agent_results>": "Brought together.",
    "Alone": agentnb.Reply("Begun and then held, and ended.", pause=hold),
    "Fail": agentnb.LlmError("The model is out of order."),
    "Hello": "Well said.",
    "Explain": "This is what it means.",
    "From": "This is the way.",
    "Rate": '```json\\n{"title": "<b>it</b>", "stars": 4}\\n```',
})
session = agentnb.configure(provider=provider)
asked = lambda: len(provider.requests)
last = lambda: provider.requests[-1].messages[-1].text
"""


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with a_door() as door:
        yield door


@pytest.fixture(scope="module")
def kernel(door: Door, fork_server: ForkServer) -> Iterator[Kernel]:
    with fork_server.started() as kernel:
        kernel.ok("%load_ext agentnb", door.hold, SCRIPT)
        yield kernel


def texts(shown: Shown) -> list[str]:
    return [display["text/plain"] for display in shown.displays]


def is_one_line(shown: Shown) -> bool:
    """Whether a cell failed with a single line, and showed nothing else."""
    return (
        shown.status == "error"
        and "\n" not in shown.error
        and shown.text.strip() == shown.error
        and shown.error.startswith(f"{shown.error_name}: ")
    )


# -- what a cell shows ------------------------------------------------------------------------


def test_spawn_cell_shows_one_output_with_tree_and_answer(kernel: Kernel) -> None:
    shown = kernel.ok("%%spawn --model demo\nDinner for four")

    (display,) = shown.displays
    assert set(display) == {"text/plain", "text/html"}
    for expected in (
        "root ✓ completed · Dinner for four",
        "├─ 1 ✓ completed · Collect the facts about: Dinner for four",
        "└─ 2.2 ✓ completed · List what speaks against: Dinner for four",
        "(demo) These results of sub-agents are back:",
    ):
        assert expected in display["text/plain"]
        assert expected in display["text/html"]
    assert (shown.stdout, shown.stderr, shown.result, shown.updates) == ("", "", "", 0)


def test_two_runs_of_a_cell_show_the_same_bytes_without_ids_and_times(kernel: Kernel) -> None:
    first = kernel.ok("%%spawn --model demo\nDinner for four")
    second = kernel.ok("%%spawn --model demo\nDinner for four")

    assert first.displays
    assert first.displays == second.displays
    assert first.unstable == []


def test_answer_is_shown_as_text_and_never_as_markup(kernel: Kernel) -> None:
    shown = kernel.ok("%%spawn --model demo --max-depth 0\n<script>alert(1)</script>")

    assert "<script" not in shown.displays[0]["text/html"]
    assert "<script>" in shown.displays[0]["text/plain"]


def test_display_variable_leaves_parts_out(kernel: Kernel) -> None:
    cell = "%%spawn --quiet -o answer\nHello"
    kernel.ok("answer = None", "os.environ['AGENTNB_DISPLAY'] = 'text'")
    as_text = kernel.ok(cell)
    kernel.ok("os.environ['AGENTNB_DISPLAY'] = 'none'")
    as_nothing = kernel.ok(cell)
    kernel.ok("os.environ['AGENTNB_DISPLAY'] = 'Static'")
    as_usual = kernel.ok(cell)
    kernel.ok("del os.environ['AGENTNB_DISPLAY']")

    assert as_text.displays == [{"text/plain": "Well said."}]
    assert as_nothing.text.strip() == ""
    assert [set(d) for d in as_usual.displays] == [{"text/plain", "text/html"}]
    assert kernel.value("answer.output") == "Well said."


def test_display_variable_with_another_value_is_refused_before_anything_starts(
    kernel: Kernel,
) -> None:
    kernel.ok("before = asked()", "os.environ['AGENTNB_DISPLAY'] = 'loud'")
    shown = kernel.run("%%spawn\nHello")
    kernel.ok("del os.environ['AGENTNB_DISPLAY']")

    assert is_one_line(shown)
    for part in ("AGENTNB_DISPLAY", "'loud'", "static", "text", "none"):
        assert part in shown.error
    assert kernel.value("asked() - before") == 0


# -- options ----------------------------------------------------------------------------------


def test_options_reach_the_run(kernel: Kernel) -> None:
    kernel.ok("%%spawn --model demo --budget 80_000 --max-depth=1 -o answer\nDinner")

    assert kernel.value("session.newest_run.budget.total") == 80_000
    assert kernel.value("max(n.depth for n in answer.agent_tree.walk())") == 1
    assert kernel.value("answer.agent_tree.model") == "demo"


def test_quiet_shows_the_answer_alone(kernel: Kernel) -> None:
    shown = kernel.ok("%%spawn --quiet\nHello")

    assert texts(shown) == ["Well said."]
    assert "agentnb-outline" not in shown.displays[0]["text/html"]


def test_raw_takes_braces_as_text(kernel: Kernel) -> None:
    kernel.ok("%%spawn --raw\nExplain {{nowhere_defined}}")

    assert kernel.value("last()") == "Explain {{nowhere_defined}}"


@pytest.mark.parametrize("magic", ["%%spawn", "%%time\n%%spawn"])
def test_form_of_colab_is_no_part_of_the_task(kernel: Kernel, magic: str) -> None:
    kernel.ok(f"{magic} --raw\n#@title A form\nExplain it")

    assert kernel.value("last()") == "Explain it"


def test_background_returns_at_once_and_binds_the_run(kernel: Kernel, door: Door) -> None:
    shown = kernel.ok("%%spawn --bg -o alone\nAlone")
    door.wait_for_knock()

    assert shown.stdout.strip()
    (words,) = shown.displays
    assert "%spawn status" in words["text/plain"]
    assert kernel.value("alone.done, str(alone.status)") == (False, "running")
    door.open()
    assert kernel.value("alone.result(60).output") == "Begun and then held, and ended."


# -- variables --------------------------------------------------------------------------------


def test_values_of_the_notebook_stand_in_the_task(kernel: Kernel) -> None:
    kernel.ok("city, place = 'Ulm', types.SimpleNamespace(name='Bonn')", "table = {'k': 'Kiel'}")
    number = kernel.value("len(Out), len(In)")[1]
    kernel.ok("'an output'")

    kernel.ok(
        "%%spawn\nFrom {{city}} to {{ place.name }} and "
        f'{{{{table["k"]}}}}, see {{{{Out[{number}]}}}} {{and {{more}}'
    )

    assert kernel.value("last()") == "From Ulm to Bonn and Kiel, see an output {and {more}"


def test_values_stand_on_the_options_line_too(kernel: Kernel) -> None:
    kernel.ok("tokens = 70_000", "%%spawn --budget {{tokens}}\nHello")

    assert kernel.value("session.newest_run.budget.total") == 70_000


def test_cell_works_where_common_names_were_taken(kernel: Kernel) -> None:
    kernel.ok("kept = agentnb, get_ipython", "agentnb, get_ipython, str = 1, 2, 3")
    shown = kernel.ok("%%spawn --quiet\nHello {{agentnb}}")
    kernel.ok("agentnb, get_ipython = kept\ndel str")

    assert texts(shown) == ["Well said."]
    assert kernel.value("last()") == "Hello 1"


# -- mistakes ---------------------------------------------------------------------------------

MISTAKES = [
    ("--modle demo", "Hello", "'--modle'"),
    ("--help", "Hello", "'--help'"),
    ("--budget many", "Hello", "'many'"),
    ("--budget -5", "Hello", "'-5'"),
    ("--budget 0", "Hello", "'0'"),
    ("--budget 1.5", "Hello", "'1.5'"),
    ("--max-depth -1", "Hello", "'-1'"),
    ("--model", "Hello", "'--model'"),
    ("--model --bg", "Hello", "'--model'"),
    ("--model ''", "Hello", "''"),
    ("-o", "Hello", "'-o'"),
    ("-o 2x", "Hello", "'2x'"),
    ("-o class", "Hello", "'class'"),
    ("--bg --bg", "Hello", "'--bg'"),
    ("--bg=yes", "Hello", "'yes'"),
    ("--budget 10 --budget 20", "Hello", "'--budget'"),
    ("tell me a story", "Hello", "'tell me a story'"),
    ("--model 'demo", "Hello", "--model 'demo"),
    ("--model nowhere/large", "Hello", "'nowhere/large'"),
    ("--model anthropic", "Hello", "'anthropic'"),
    ("--bg", " \n\t\n", "empty"),
    ("", "", "empty"),
    ("", "Tell {{nowhere_defined}}", "'nowhere_defined'"),
    ("--budget {{nowhere_defined}}", "Hello", "'nowhere_defined'"),
    ("", "Tell {{types.nothing}}", "'nothing'"),
    ("", "Tell {{In[99_999]}}", "99999"),
    ("", "Tell {{1 + 1}}", "1 + 1"),
    ("", "Tell {{print('x')}}", "print('x')"),
    ("", "Tell {{}}", "{{}}"),
]


@pytest.mark.parametrize(("line", "task", "quoted"), MISTAKES)
def test_mistake_is_one_line_that_quotes_it_and_nothing_is_started(
    kernel: Kernel, line: str, task: str, quoted: str
) -> None:
    kernel.ok("before, newest = asked(), session.newest_run")

    shown = kernel.run(f"%%spawn {line}\n{task}")

    assert is_one_line(shown), shown.error
    assert quoted in shown.error
    assert shown.error.endswith((".", "?"))
    assert kernel.value("asked() - before, session.newest_run is newest") == (0, True)


@pytest.mark.parametrize(
    "cell", ["session.run_sync('Halve')", "await session.spawn('Halve')", "%%spawn\nHalve"]
)
def test_run_that_fails_shows_what_it_had_reached_and_one_line(kernel: Kernel, cell: str) -> None:
    kernel.ok(
        "session = agentnb.configure(provider=agentnb.ScriptedProvider({"
        "'Halve': '<spawn_agents><agent task=\"first half\"/></spawn_agents>',"
        "'first half': 'The first half is done.',"
        "'<sub_agent_results>': agentnb.LlmError('The model is gone.', status_code=404)}))"
    )

    shown = kernel.run(cell)
    kernel.ok("session = agentnb.configure(provider=provider)")

    (reached,) = texts(shown)
    assert "1 ✓ completed · first half" in reached
    assert "The first half is done." in reached
    assert shown.status == "error"
    assert shown.error == "LlmError: The model is gone."


def test_failed_run_raises_one_line_and_binds_nothing(kernel: Kernel) -> None:
    kernel.ok("answer = 'as before'")

    shown = kernel.run("%%spawn -o answer\nFail")

    assert shown.status == "error"
    assert shown.error == "LlmError: The model is out of order."
    assert kernel.value("answer") == "as before"


def test_missing_key_is_one_line_that_offers_the_demo(kernel: Kernel) -> None:
    kernel.ok("agentnb.configure(provider=None)")
    shown = kernel.run("%%spawn --model anthropic/claude-sonnet-5-5\nHello")
    kernel.ok("agentnb.configure(provider=provider)", "session = agentnb.get_session()")

    assert is_one_line(shown)
    assert "ANTHROPIC_API_KEY" in shown.error
    assert "demo" in shown.error


# -- %spawn -----------------------------------------------------------------------------------


def test_spawn_line_steers_the_newest_run(kernel: Kernel, door: Door) -> None:
    kernel.ok("%%spawn --bg -o tree\nPlan")
    door.wait_for_knock()

    status = kernel.ok("%spawn status")
    budget = kernel.ok("%spawn budget 90_000")
    told = kernel.ok("%spawn tell root Don't use jargon.")
    paused = [kernel.ok(f"%spawn {verb}") for verb in ("pause 1", "pause", "pause", "status")]
    cancelled = kernel.ok("%spawn cancel 1")
    door.wait_until_left()
    assert not kernel.value("tree.done")  # it would bring the results together
    resumed = [kernel.ok(f"%spawn --run {kernel.value('tree.id')} resume")]

    assert kernel.value("tree.result(60).output, tree.budget.total") == (
        "Brought together.",
        90_000,
    )
    assert kernel.value("[str(r.status) for r in tree.result().sub_agent_results]") == [
        "cancelled",
        "completed",
    ]
    assert "running" in status.stdout
    assert "1 ► running · first part" in status.stdout
    assert "90,000" in budget.stdout
    assert told.stdout.strip() == "Sent. The root reads it at its next turn."
    assert (
        kernel.value("'Don\\'t use jargon.</note' in tree.agent('root').messages[-2].text") is True
    )
    assert cancelled.stdout.strip() == "Cancelled: 1."
    steered = [each.stdout.partition(".")[0] for each in [*paused[:3], *resumed]]
    assert steered == [
        "Paused: 1",
        "Paused: root",
        "Already paused: nothing has changed",
        "Resumed: root",
    ]
    assert paused[3].stdout.startswith("running, paused, ")
    every = (status, budget, told, cancelled, *paused, *resumed)
    assert [each.unstable for each in every] == [[]] * len(every)


def test_spawn_budget_takes_dollars_where_the_run_counts_money(kernel: Kernel, door: Door) -> None:
    kernel.ok("agentnb.set_prices({'scripted': agentnb.Price(3, 15)})")
    kernel.ok("%%spawn --bg --budget $4 -o priced\nPlan")
    door.wait_for_knock()

    raised = kernel.ok("%spawn budget $6")
    status = kernel.ok("%spawn status")
    refused = kernel.run("%spawn budget 90_000")
    kernel.ok("%spawn cancel")
    door.wait_until_left()
    kernel.ok("agentnb.set_prices({})")

    assert kernel.value("(priced.budget.total, priced.budget.unit)") == (6_000_000, "usd")
    assert "$6.00" in raised.stdout
    assert "of $6.00" in status.stdout
    assert is_one_line(refused)
    assert "$4" in refused.error  # how an amount is written
    assert [each.unstable for each in (raised, status)] == [[], []]


def test_spawn_cancel_stops_the_whole_run_which_then_raises(kernel: Kernel, door: Door) -> None:
    kernel.ok("%%spawn --bg -o alone\nAlone")
    door.wait_for_knock()

    first = kernel.ok("%spawn cancel")
    door.wait_until_left()
    second = kernel.ok("%spawn cancel")

    assert first.stdout.strip() == "Cancelled: root."
    assert "Nothing" in second.stdout
    assert kernel.value("alone.done, str(alone.status)") == (True, "cancelled")
    assert kernel.run("alone.result()").error_name == "RunCancelled"


def test_run_option_names_another_run_than_the_newest(kernel: Kernel, door: Door) -> None:
    kernel.ok("%%spawn --bg -o alone\nAlone")
    door.wait_for_knock()
    kernel.ok("%%spawn\nHello")
    run_id = kernel.value("alone.id")

    newest = kernel.ok("%spawn status")
    other = kernel.ok(f"%spawn --run {run_id} cancel")

    door.wait_until_left()
    assert newest.stdout.startswith("completed")
    assert other.stdout.strip() == "Cancelled: root."
    assert kernel.value("str(alone.status)") == "cancelled"


@pytest.mark.parametrize(
    ("line", "quoted"),
    [
        ("%spawn stop", "'stop'"),
        ("%spawn status now", "'now'"),
        ("%spawn cancel 1 2", "'2'"),
        ("%spawn cancel 9.9", "'9.9'"),
        ("%spawn tell 1", "tell"),
        ("%spawn tell 9.9 hm", "'9.9'"),
        ("%spawn tell --run nowhere 1 hm", "'nowhere'"),
        ("%spawn pause 1 2", "'2'"),
        ("%spawn pause 9.9", "'9.9'"),
        ("%spawn resume", "This run has ended"),
        ("%spawn budget", "budget"),
        ("%spawn budget lots", "'lots'"),
        ("%spawn budget -1", "'-1'"),
        ("%spawn help me", "'me'"),
        ("%spawn --run nowhere status", "'nowhere'"),
        ("%spawn --run", "'--run'"),
        ("%spawn --rum 1 status", "'--rum'"),
        ("%agentnb moed", "'moed'"),
        ("%agentnb mode tape", "'tape'"),
        ("%agentnb nest now", "'now'"),
        ("%agentnb help me", "'me'"),
        ("%agentnb config now", "'now'"),
    ],
)
def test_mistake_behind_a_line_magic_is_one_line_that_quotes_it(
    kernel: Kernel, line: str, quoted: str
) -> None:
    kernel.ok("%%spawn\nHello")

    shown = kernel.run(line)

    assert is_one_line(shown), shown.error
    assert quoted in shown.error


def test_budget_of_an_ended_run_is_refused(kernel: Kernel) -> None:
    kernel.ok("%%spawn\nHello")

    shown = kernel.run("%spawn budget 90_000")

    assert is_one_line(shown)
    assert "ended" in shown.error


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%spawn", "%%spawn --model demo"),
        ("%spawn help", "%%spawn --model demo"),
        ("%spawn status", "completed"),
        ("%agentnb", "%agentnb nest"),
        ("%agentnb help", "%agentnb nest"),
        ("%agentnb help", "%agentnb config"),
        ("%agentnb config", "delegation"),
        ("%agentnb mode", "live"),
        ("%agentnb mode live", "live"),
    ],
)
def test_line_magic_says_something_without_ids_and_times(
    kernel: Kernel, line: str, expected: str
) -> None:
    kernel.ok("%%spawn\nHello")

    shown = kernel.ok(line)

    assert expected in shown.stdout
    assert shown.unstable == []
    assert shown.displays == []


@pytest.mark.parametrize("cell", ["%%spawn?", "%spawn?"])
def test_question_mark_shows_every_option_and_examples(kernel: Kernel, cell: str) -> None:
    shown = kernel.ok(cell)

    for option in (
        "--model", "--budget", "--max-depth", "--tools", "--profile", "-o", "--bg",
        "--quiet", "--raw",
    ):  # fmt: skip
        assert option in shown.help
    assert "Examples:" in shown.help
    for verb in ("status", "cancel", "budget", "questions", "answer", "help"):
        assert f"%spawn {verb}" in shown.help


# -- other magics around it, and no magics at all ---------------------------------------------


def test_capture_around_a_spawn_cell_captures_its_output(kernel: Kernel) -> None:
    shown = kernel.ok("%%capture captured\n%%spawn --quiet -o answer\nHello")

    assert shown.text.strip() == ""
    assert kernel.value("[o.data['text/plain'] for o in captured.outputs]") == ["Well said."]
    assert kernel.value("answer.output") == "Well said."


def test_time_around_a_spawn_cell_runs_it(kernel: Kernel) -> None:
    shown = kernel.ok("%%time\n%%spawn --quiet\nHello")

    assert texts(shown) == ["Well said."]
    assert "Wall time" in shown.stdout


def test_spawn_cell_that_another_cell_executes_works(kernel: Kernel) -> None:
    shown = kernel.ok("done = get_ipython().run_cell('%%spawn --quiet\\nHello')")

    assert texts(shown) == ["Well said."]
    assert kernel.value("done.success") is True


def test_magics_are_gone_after_unload_and_back_after_load(kernel: Kernel) -> None:
    kernel.ok("%unload_ext agentnb")
    gone = kernel.run("%%spawn --quiet\nHello")
    kernel.ok("%load_ext agentnb")
    back = kernel.ok("%%spawn --quiet\nHello")

    assert gone.status == "error"
    assert "spawn" in gone.stderr
    assert gone.error == ""
    assert texts(back) == ["Well said."]


def test_import_prints_nothing_and_is_enough_for_the_magics() -> None:
    with started() as fresh:
        imported = fresh.ok("import agentnb")
        wrong = fresh.run("agentnb.Session(budget=-1)")
        settings = fresh.ok("%agentnb mode")
        shown = fresh.ok("%%spawn --model demo --quiet --max-depth 0\nHello")

    assert imported.text.strip() == ""
    assert is_one_line(wrong)
    assert "live" in settings.stdout
    (display,) = shown.displays
    assert display["text/plain"].startswith("(demo)")


def test_typed_answer_of_a_cell_is_a_value_and_is_shown_as_inert_json(kernel: Kernel) -> None:
    kernel.ok(
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Rating:\n"
        "    title: str\n"
        "    stars: int"
    )
    shown = kernel.ok("%%spawn --output Rating --quiet -o rated\nRate it.")

    (text,) = texts(shown)
    assert '"stars": 4' in text
    html = shown.displays[0]["text/html"]
    assert "<b>it</b>" not in html
    assert kernel.ok("print(rated.data)").text.strip() == "Rating(title='<b>it</b>', stars=4)"
    before = kernel.ok("print(asked())").text
    for name in ("Ratings", "rated"):
        wrong = kernel.run(f"%%spawn --output {name}\nRate it.")
        assert is_one_line(wrong)
        assert name in wrong.error
    assert kernel.ok("print(asked())").text == before
