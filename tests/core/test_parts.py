"""Markdown of several agents in one answer: each is shown well, and within its own part."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from markdown_it import MarkdownIt

from agentnb.core import parts
from agentnb.core.synthesis import answer_without_model, results_as_text
from agentnb.core.types import AgentStatus, SubAgentResult
from agentnb.views.markdown import answer_html
from tests.hostile_words import CRAFTED, check_part, markdown

SEED = 13
BEFORE = "**1 The first** (completed)"
AFTER = (
    "**2 The next** (completed)\n\n> Words with [x], [^1], HTML, $y$ and `code`.\n\n*The end: [x].*"
)

_OTHER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def other_html(text: str) -> str:
    """What a renderer makes of it that hands HTML through."""
    return str(_OTHER.render(text))


RENDERERS = pytest.mark.parametrize("render", [answer_html, other_html])


@RENDERERS
@pytest.mark.parametrize("attack", CRAFTED)
def test_attack_stays_within_its_part(attack: str, render: Callable[[str], str]) -> None:
    check_part(render, BEFORE, parts.part(attack), AFTER)


@RENDERERS
def test_any_mixture_of_markdown_stays_within_its_part(render: Callable[[str], str]) -> None:
    random = Random(SEED)
    for _ in range(300):
        text = markdown(random)
        if part := parts.part(text):
            check_part(render, BEFORE, part, AFTER)


@RENDERERS
@pytest.mark.parametrize(
    "lines", ["> [x]: http://evil.example", "> > [x]:\n> > http://y.example", "b\n---"]
)
def test_check_finds_what_reaches_beyond_a_quote(lines: str, render: Callable[[str], str]) -> None:
    with pytest.raises(AssertionError):
        check_part(render, BEFORE, lines, AFTER)


def test_every_line_of_a_part_has_its_mark_or_is_blank() -> None:
    random = Random(SEED)
    for _ in range(100):
        part = parts.part(markdown(random))
        assert all(line.startswith(">") or not line for line in part.split("\n"))
        assert len(part.splitlines()) == part.count("\n") + bool(part)


def test_honest_markdown_is_shown_well_within_its_part() -> None:
    text = (
        "# T\n\nA *b* `List<int>`, `$HOME`, $a<b$ and $5.\n\n"
        "| a | b |\n|---|---|\n| 1 | `x<T>` |\n\n"
        "```python\nif a<b: x: list[int] = y[0]\n\n    pass  # $1\n```\n"
        "1. one\n   ```\n   two\n   ```\n2. three\n\n$$\na<b\n$$\n\n> said"
    )

    assert answer_html(parts.part(text)) == (
        "<blockquote>\n<h1>T</h1>\n"
        "<p>A <em>b</em> <code>List&lt;int&gt;</code>, <code>$HOME</code>, $a&lt; b$ and "
        "<span>$</span>5.</p>\n"
        '<table>\n<thead>\n<tr>\n<th style="text-align:left">a</th>\n'
        '<th style="text-align:left">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n'
        '<td style="text-align:left">1</td>\n'
        '<td style="text-align:left"><code>x&lt;T&gt;</code></td>\n'
        "</tr>\n</tbody>\n</table>\n</blockquote>\n"
        "<blockquote>\n<pre><code>if a&lt;b: x: list[int] = y[0]\n\n    pass  # $1\n</code></pre>\n"
        "</blockquote>\n"
        "<blockquote>\n<ol>\n<li>one</li>\n</ol>\n</blockquote>\n"
        "<blockquote>\n<pre><code>two\n</code></pre>\n</blockquote>\n"
        '<blockquote>\n<ol start="2">\n<li>three</li>\n</ol>\n<p>$$\na&lt; b\n$$</p>\n'
        "</blockquote>\n"
        "<blockquote>\n<blockquote>\n<p>said</p>\n</blockquote>\n</blockquote>\n"
    )


TASKS = [
    "a\n# b",
    "**bold** _it_ ~~no~~",
    "`code",
    "[l](http://evil.example) [x]",
    "<b>&amp;</b> <!--",
    "$x$ \\(y\\) \\[z\\] \\\\[z\\\\]",
    "snake_case *",
]


@RENDERERS
@pytest.mark.parametrize("task", TASKS)
def test_task_in_a_heading_is_the_words_that_it_consists_of(
    task: str, render: Callable[[str], str]
) -> None:
    html = render(f"**1 {parts.title(task)}** (completed)\n\n> x")

    shown = html.partition("</strong> (completed)</p>\n<blockquote>")[0]
    words = shown.removeprefix("<p><strong>1 ").replace("<span>", "").replace("</span>", "")
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        words = words.replace(entity, sign)
    assert words == " ".join(task.split())


def result(response: str, number: int = 1, error: str | None = None) -> SubAgentResult:
    status = AgentStatus.FAILED if error else AgentStatus.COMPLETED
    return SubAgentResult(
        f"a.{number}", "t", status, response=response, error=error, path=str(number)
    )


@RENDERERS
def test_answer_without_a_model_keeps_each_agent_within_its_part(
    render: Callable[[str], str],
) -> None:
    hostile = "```\n[x]: http://evil.example"

    def answer(*responses: str, said: str = hostile) -> str:
        results = [result(response, number) for number, response in enumerate(responses, 1)]
        results.append(result("", 9, error="<!-- [x]: http://evil.example ```\n---"))
        return render(answer_without_model(why="w", said=said, results=results, total=10))

    html = answer(hostile, "[x]\n\n[x]: http://evil.example", "Mine: [x]")

    assert "<a" not in html
    assert html.count("<strong>") == 4
    assert html.count("Mine: [x]") == 1
    assert html.endswith(
        "<em>The budget of 10 tokens ended here: w. 1 of 4 tasks were not completed.</em></p>\n"
    )
    after = "<p><strong>9 t</strong> (failed)</p>"
    assert answer("y").partition(after)[2] == answer("<!--\n\n~~~").partition(after)[2] != ""


def test_parts_within_parts_stay_parts() -> None:
    inner = results_as_text([result("```\ncode"), result("Words.", 2)])

    assert results_as_text([result(inner)]) == (
        "**1 t** (completed)\n\n"
        "> **1 t** (completed)\n\n"
        "> > ```\n> > code\n> > ```\n\n"
        "> **2 t** (completed)\n\n"
        "> > Words."
    )


@pytest.mark.parametrize("deep", ["> " * 60, "- " * 60, "  " * 30 + "- "])
def test_part_that_is_nested_too_deep_is_shown_as_it_was_written(deep: str) -> None:
    html = answer_html(f"{BEFORE}\n\n{parts.part(deep + 'the words')}")

    assert html.startswith("<p><strong>")
    assert "the words\n</code></pre>" in html


def test_words_that_others_follow_are_closed_and_else_as_they_were() -> None:
    plain = "I *split* it.\n\n- a\n- b\n\n| a |\n|---|"

    assert parts.closed(plain) == plain
    assert parts.closed("Look:\n~~~ py\nx") == "Look:\n\n```py\nx\n```"
