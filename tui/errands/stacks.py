"""The stacks of the whole process tree now, read by the dashboard itself: they are there without a session, too."""

from __future__ import annotations

from textual.message import Message

from profd.daemon import processes
from profd.daemon.errors import NoSuchProcess, ProfdError
from profd.daemon.store.rows import RunInfo
from profd.tui.errands.outcomes import ErrandFailed, StacksDumped


def dump(info: RunInfo) -> Message:
    """Look at the stacks of the target and all processes below it, now."""
    # Opening the dashboard does without what looks at processes.
    from profd.daemon.supervise.treedump import dump_tree, merge

    try:
        if not processes.is_running(info.pid, info.start_ticks):
            raise NoSuchProcess(f"the target of {info.id} has ended", "where its time went is in 1 and 2")
        dumped = dump_tree(info.pid)
    except ProfdError as error:
        return ErrandFailed(error, "No stacks")
    return StacksDumped(dumped, merge(dumped))
