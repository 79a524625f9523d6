"""Find which source a process's code was read from: since when, and from which folder.

Python reads a file when it imports it, and keeps only its name. Only a file that has not changed
since the process began its program is surely the text that was read.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS


class Origin(NamedTuple):
    """The time and folder that the code of a process comes from.

    ``since_ns`` is when the process began its program, by the wall clock, or None if that is not to
    matter. ``folders`` are those in which it may have begun: Python 3.8, ``runpy`` and ``python -m
    cProfile`` keep a script's name as it was given, so a relative name begins there.
    """

    since_ns: int | None = None
    folders: tuple[str, ...] = ()


ANY = Origin()
"""The origin of code whose files are taken as they are now."""


def origin_of(pid: int, exec_ns: int | None = None, folder: str = "") -> Origin:
    """Return the origin of the code that a process runs now; raises nothing if the process is gone.

    ``exec_ns`` is a time when the process surely had not begun this program yet, if it was seen to
    begin another one. ``folder`` is the folder in which it was started, if that is known.
    """
    # A shell exports its folder, and starts programs there unless they are told otherwise.
    said = processes.environment(pid, frozenset({"PWD"})).get("PWD", "")
    found = [folder] if folder else [said, processes.link(pid, "cwd")]
    folders = (os.path.normpath(one) for one in found if one.startswith("/"))
    return Origin(exec_ns or _begun_ns(pid), tuple(dict.fromkeys(folders)))


def _begun_ns(pid: int) -> int | None:
    """Return when a process was started.

    For a forked process, which runs its parent's code, that is when its parent was started.
    """
    stat = processes.read_stat(pid)
    while (
        stat is not None and stat.image and (parent := processes.read_stat(stat.ppid)) is not None
    ):
        if parent.image != stat.image:  # each program has its stack at another address
            break
        stat = parent
    if stat is None:
        return None
    # Take the end of the clock tick in which it started: what was written just before is no change.
    since_boot_ns = (stat.start_ticks + 1) * SECOND_NS // processes.CLOCK_TICKS
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + since_boot_ns
