"""Find Python processes that a script has started and left behind.

They go on once the script has ended, and nobody records them.

Their parent is gone. What tells that they are the script's is when they began, which process took
them over, and what they inherited: the script's session or its environment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from profd.daemon import processes
from profd.daemon.naming import is_profd
from profd.daemon.tree.attachable import Attachable, find_attachable

_OF_ONE_SHELL = (b"_=", b"SHLVL=", b"PWD=", b"OLDPWD=")
"""Variables that a shell or a script changes for what it starts."""


def left_running(start_ticks: int, session: int) -> list[Attachable]:
    """Return the outermost Python processes that an ended script left to the ancestors of profd.

    ``start_ticks`` is when the script began, ``session`` the id of its session. If profd is the
    first process of a container, none goes on: they end with it.
    """
    if is_profd(processes.command_line(1)):
        return []
    heirs = {1, *[*_ancestors(os.getpid())][1:]}
    return find_attachable(
        pid
        for pid in processes.pids()
        if _is_orphan(pid, start_ticks, heirs) and _inherits(pid, session)
    )


def _is_orphan(pid: int, start_ticks: int, heirs: set[int]) -> bool:
    """Return whether all above a process began after the script, up to the heir of its parent."""
    stat = processes.read_stat(pid)
    while stat is not None and stat.start_ticks >= start_ticks:
        if stat.ppid in heirs:
            return True
        stat = processes.read_stat(stat.ppid)
    return False


def _ancestors(pid: int) -> Iterator[int]:
    """Yield the PIDs of a process's ancestors, the nearest first."""
    while (stat := processes.read_stat(pid)) is not None and stat.ppid:
        pid = stat.ppid
        yield pid


def _inherits(pid: int, session: int) -> bool:
    """Return whether a process is in the script's session or has its environment."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getsid(pid) == session:
            return True
    theirs = set((processes.read(f"{processes.PROC}/{pid}/environ") or b"").split(b"\0"))
    ours = {b"%b=%b" % pair for pair in os.environb.items()}
    return bool(ours) and {one for one in ours if not one.startswith(_OF_ONE_SHELL)} <= theirs
