"""The figures cost nothing until one is drawn."""

from __future__ import annotations

from tests.support import run_python


def test_matplotlib_is_loaded_by_the_first_drawing_and_pyplot_never() -> None:
    said = run_python(
        """
        import sys
        from agentnb.views.figures import plot_timeline, plot_tokens, plot_tree
        print("matplotlib" in sys.modules, "numpy" in sys.modules)
        for figure in (plot_tree(None), plot_timeline([]), plot_tokens(None)):
            figure.to_png()
        print("matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
        """
    )

    assert said.split() == ["False", "False", "True", "False"]
