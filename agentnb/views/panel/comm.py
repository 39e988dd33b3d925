"""How a widget comes to hear its front end while a cell runs."""

from __future__ import annotations

from ipywidgets import Widget


def hear(widget: Widget) -> None:
    """Have a widget's messages arrive also while a cell blocks the kernel's main shell.

    JupyterLab sends widget messages over a subshell of the kernel, whose thread is free then.
    ipykernel 7.4 sends them back to the shell that last sent on the comm, which is the blocked
    one; without that memory of its they stay where they came. (A private attribute: the browser
    tests click while a cell blocks, and would tell if it was gone.) Older kernels lack it.
    """
    comm = widget.comm
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = None
