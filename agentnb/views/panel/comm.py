"""Delivers a widget's messages from the page while a cell runs.

A kernel's main shell runs the cells; subshells have threads that stay free meanwhile. JupyterLab
sends widget messages over a subshell, except for the first ones, sent while that subshell is being
made. ipykernel 7.4 also routes a message to the shell that last sent on its comm. Both lead to the
main shell, where a message waits for a cell that blocks. While a cell awaits, a message that
arrives as the cell ends makes the next cell look busy for ever in the page (the message's end
restores the parent of the cell before).

So each message goes to the subshell that it names, and others to a subshell of our own. Only this
module uses ipykernel's private names; browser tests click while a cell blocks, and fail if the
names change. Older kernels have no subshells.
"""

from __future__ import annotations

from ipywidgets import Widget

_own: list[str] = []
"""Our subshell's id, once it is made."""


def hear(widget: Widget) -> None:
    """Let a widget's messages arrive while a cell blocks the kernel's main shell."""
    comm = widget.comm
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = _subshell_for


def _subshell_for(_: object, named: str | None) -> str | None:
    """The subshell for a message. ipykernel calls this on its one thread for incoming messages."""
    if named is None and not _own:
        _own.extend(_made())
    return named or (_own[0] if _own else None)


def _made() -> list[str]:
    from ipykernel.kernelbase import Kernel

    try:
        thread = Kernel.instance().shell_channel_thread
        return [] if thread is None else [thread.manager._create_subshell()]
    except Exception:  # names of another version: use the default routing
        return []
