"""How a widget comes to hear its front end while a cell runs.

A kernel has a main shell, which runs the cells, and may have subshells, each with a thread that
is free meanwhile. JupyterLab sends what widgets hear over a subshell, but for the first messages:
those it sends while that subshell is being made. ipykernel 7.4 sends a message back to the shell
that last sent on its comm. Both lead to the main shell, where a message waits for a cell that
blocks; and where a cell awaits, one that comes as the cell ends makes the next cell look busy for
ever in the page (the end of the message puts back the parent of the cell before).

So each message goes to the subshell that it names, and one that names none to a subshell of ours.
Private names of ipykernel's are used for it, here and nowhere else; the browser tests click while a
cell blocks, and would tell if they were gone. Older kernels have none of this.
"""

from __future__ import annotations

from ipywidgets import Widget

_own: list[str] = []
"""The subshell of ours, once it is there."""


def hear(widget: Widget) -> None:
    """Have a widget's messages arrive also while a cell blocks the kernel's main shell."""
    comm = widget.comm
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = _subshell_for


def _subshell_for(_: object, named: str | None) -> str | None:
    """Where a message goes. ipykernel asks on its one thread for incoming messages."""
    if named is None and not _own:
        _own.extend(_made())
    return named or (_own[0] if _own else None)


def _made() -> list[str]:
    from ipykernel.kernelbase import Kernel

    try:
        thread = Kernel.instance().shell_channel_thread
        return [] if thread is None else [thread.manager._create_subshell()]
    except Exception:  # another version's names: then as JupyterLab and the kernel have it
        return []
