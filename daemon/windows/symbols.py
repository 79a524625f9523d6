"""Finds functions and free memory in a running process, which it neither stops nor writes to.

It goes by the map of the process and the symbols that its programs export.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Collection
from pathlib import Path

from profd.daemon import processes
from profd.daemon.interpreter.memory import (
    Memory,
    Unreadable,
    exported,
    mapped_files,
)
from profd.daemon.processes import PAGE_BYTES

_INTERPRETER = re.compile(r"(libpython\d|python(\d|$)|lib(c|pthread)[.-]|ld-musl)")
"""Names of files in which the functions of Python and of the C library are."""
_TAKEN = re.compile(r"(?m)^([0-9a-f]+)-([0-9a-f]+) (?!\S+ \S+ \S+ 0 +\[vsyscall\]$)")
"""A part of a memory map, from the start of its line.

That of vsyscall lies above all addresses that a process may use.
"""


def find(pid: int, names: Collection[str]) -> dict[str, int]:
    """Return the addresses of those functions that the process has; raises Unreadable."""
    executable, found = processes.link(pid, "exe"), dict[str, int]()
    with contextlib.closing(Memory(pid)) as memory:
        for start, path in mapped_files(processes.maps(pid)):
            is_executable = path == executable
            if is_executable or _INTERPRETER.match(Path(path).name):
                with contextlib.suppress(Unreadable):  # a file of that name that is no program
                    new = exported(memory, start, names)
                    found = {**found, **new} if is_executable else {**new, **found}
    return found


def free_page(pid: int) -> int:
    """Return an address in the middle of the widest range of nothing, 0 of a process that ends."""
    taken = _TAKEN.findall(processes.maps(pid))
    edges = [(int(start, 16), int(end, 16)) for start, end in taken]
    gaps = ((after - end, end) for (_, end), (after, _) in itertools.pairwise(edges))
    width, start = max(gaps, default=(0, 0))
    return (start + width // 2) // PAGE_BYTES * PAGE_BYTES
