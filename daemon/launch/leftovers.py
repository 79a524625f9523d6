"""Find Python processes that a script has started and left behind.

They go on once the script has ended, and nobody records them.

Their parent is gone. What tells that they are the script's is when they began, which process took
them over, and what they inherited: the script's session or its environment.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.naming import is_profd
from profd.daemon.secrets import mask_command

_OF_ONE_SHELL = (b"_=", b"SHLVL=", b"PWD=", b"OLDPWD=")
"""Variables that a shell or a script changes for what it starts."""


class Leftover(NamedTuple):
    """A Python process that goes on; secrets in its command are masked."""

    pid: int
    command: tuple[str, ...]


def left_running(start_ticks: int, session: int) -> list[Leftover]:
    """Return the outermost Python processes that an ended script left to the ancestors of profd.

    ``start_ticks`` is when the script began, ``session`` the id of its session.
    """
    above = set(itertools.islice(_ancestors(os.getpid()), 1, None)) | {1}
    found: dict[int, Leftover] = {}
    for pid in sorted(processes.pids()):
        stat = processes.read_stat(pid)
        if (
            stat is None
            or not stat.is_running
            or stat.start_ticks < start_ticks
            or stat.ppid not in above
        ):
            continue
        if processes.owner_uid(pid) != os.geteuid() or not _inherits(pid, session):
            continue
        for one in (pid, *processes.descendants(pid)):
            words = processes.command_line(one)
            if processes.python_version(one) is not None and not is_profd(words):
                found[one] = Leftover(one, mask_command(words))
                break
    return list(found.values())


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
