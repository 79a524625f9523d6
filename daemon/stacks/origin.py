"""What a process's code was read from: since when, and the folder that relative names begin in.

Python reads a file when it is imported, and keeps its name alone. Only what has not changed since
the process began its program is surely what it read.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS


class Origin(NamedTuple):
    """Where the code of a process is from.

    ``since_ns`` is when it began its program, of the wall clock, None if that is not to matter.
    ``folders`` are those that it may have begun in: Python 3.8, ``runpy`` and ``python -m
    cProfile`` keep a script's name as it was given.
    """

    since_ns: int | None = None
    folders: tuple[str, ...] = ()


ANY = Origin()
"""That of code whose files are taken as they are now."""


def origin_of(pid: int, exec_ns: int | None = None, folder: str = "") -> Origin:
    """Return the origin of the code that a process runs now; raises nothing where it is gone.

    ``exec_ns`` is when it surely had not begun this program yet, if it was seen to begin another
    one; ``folder`` the one that it was started in, if that is known.
    """
    # A shell says where it is, and starts others there unless they are to begin elsewhere.
    said = processes.environment(pid, frozenset({"PWD"})).get("PWD", "")
    found = [folder] if folder else [said, processes.link(pid, "cwd")]
    folders = (os.path.normpath(one) for one in found if one.startswith("/"))
    return Origin(exec_ns or _begun_ns(pid), tuple(dict.fromkeys(folders)))


def _begun_ns(pid: int) -> int | None:
    """Return when a process was started.

    Of a forked one, which has its code, when its parent was.
    """
    stat = processes.read_stat(pid)
    while (
        stat is not None and stat.image and (parent := processes.read_stat(stat.ppid)) is not None
    ):
        if parent.image != stat.image:  # the stack of each program starts elsewhere
            break
        stat = parent
    if stat is None:
        return None
    # To the end of the clock tick in which it started: what was written just before is no change.
    since_boot_ns = (stat.start_ticks + 1) * SECOND_NS // processes.CLOCK_TICKS
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + since_boot_ns
