from __future__ import annotations

import ast

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from agentnb.notebook.transform import rewrite_spawn_cell, without_form


def arguments(cell: str) -> tuple[str, str]:
    """The arguments in the rewritten cell, after a check that it is one awaited call."""
    rewritten = "".join(rewrite_spawn_cell(cell.splitlines(keepends=True)))
    tree = compile(rewritten, "cell", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(tree, ast.Module)
    (statement,) = tree.body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Await)
    call = statement.value.value
    assert isinstance(call, ast.Call)
    assert ast.unparse(call.func) == "__import__('agentnb.notebook').notebook.spawn_cell"
    line, task = (ast.literal_eval(argument) for argument in call.args)
    return line, task


@pytest.mark.parametrize(
    ("cell", "line", "task"),
    [
        ("%%spawn\nDo it", "", "Do it"),
        ("%%spawn --bg  -o x \nDo it\n\nand more\n", "--bg  -o x", "Do it\n\nand more\n"),
        ("%%spawn\t--bg\nDo it", "--bg", "Do it"),
        ("%%spawn", "", ""),
        ('%%spawn\n""" \' \\n {{x}}\n%%spawn\n', "", '""" \' \\n {{x}}\n%%spawn\n'),
        ("#@title Compare\n# @markdown It costs.\n%%spawn --bg\nDo it", "--bg", "Do it"),
        ('%%spawn --model "a\'b"\n\x1b ü 🌳', '--model "a\'b"', "\x1b ü 🌳"),
    ],
)
def test_spawn_cell_becomes_one_await_with_line_and_task_as_they_were(
    cell: str, line: str, task: str
) -> None:
    assert arguments(cell) == (line, task)


@pytest.mark.parametrize(
    ("cell", "task"),
    [
        ('#@title Compare { display-mode: "form" }\nDo it\n', "Do it\n"),
        ("# @title Compare\n#@markdown What it does\n\nDo it", "\nDo it"),
        ("#@title Compare", ""),
        ("Do it\n#@title Compare\nand more", "Do it\n#@title Compare\nand more"),
        ("# The title\nDo it", "# The title\nDo it"),
        ("#@titled\nDo it", "#@titled\nDo it"),
    ],
)
def test_form_of_colab_is_no_part_of_a_task(cell: str, task: str) -> None:
    assert without_form(cell) == task


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "x = 1\n",
        "%spawn status\n",
        "%%spawn?\n",
        "%%spawn??\n",
        "%%spawned\nDo it",
        "%%time\n%%spawn\nDo it",
        "# %%spawn\nx",
        "# @titles\n%%spawn\nx",
        "#@title A form\nx = 1",
        "text = '''\n%%spawn\n'''",
    ],
)
def test_every_other_cell_stays_as_it_is(cell: str) -> None:
    lines = cell.splitlines(keepends=True)

    assert rewrite_spawn_cell(lines) == lines


@pytest.mark.parametrize(
    "body",
    [
        "",
        "\n",
        " --bg\nDo it",
        "\nDo it\\",
        "\nDo (",
        "\nDo it\n",
        "\nDo it\n\n",
        "\nDo it\n\nand more",
        "?",
    ],
)
def test_cell_is_complete_where_a_magic_of_ipython_is(body: str) -> None:
    manager = TransformerManager()  # type: ignore[no-untyped-call]
    manager.cleanup_transforms.append(rewrite_spawn_cell)

    told = manager.check_complete(f"%%spawn{body}")

    assert told == manager.check_complete(f"%%time{body}")
    assert "await" in manager.transform_cell("%%spawn\nDo it")
