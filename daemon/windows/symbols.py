"""Finds functions and free memory in a running process, which it neither stops nor writes to.

It goes by the map of the process and the symbols that its programs export.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.interpreter.memory import PAGE_BYTES, Memory, Unreadable, exported

_INTERPRETER = re.compile(r"(libpython\d|python(\d|$)|lib(c|pthread)[.-]|ld-musl)")
"""Names of files in which the functions of Python and of the C library are."""


class Mapping(NamedTuple):
    """A line of ``/proc/PID/maps``; ``path`` is empty for memory of no file."""

    start: int
    end: int
    offset: int
    path: str


def mappings(pid: int) -> list[Mapping]:
    """Return the map of a process in order of addresses; empty if it may not be read."""
    found = []
    for line in filter(None, processes.maps(pid).split("\n")):
        words = line.split(None, 5)
        start, _, end = words[0].partition("-")
        path = words[5] if len(words) > 5 else ""
        found.append(Mapping(int(start, 16), int(end, 16), int(words[2], 16), path))
    return found


def find(pid: int, names: Collection[str]) -> dict[str, int]:
    """Return the addresses of those functions that the process has; raises Unreadable."""
    known, executable = mappings(pid), processes.link(pid, "exe")
    found: dict[str, int] = {}
    with contextlib.closing(Memory(pid)) as memory:
        for mapping in known:
            is_executable = mapping.path == executable
            if mapping.offset or not (is_executable or _INTERPRETER.match(Path(mapping.path).name)):
                continue
            with contextlib.suppress(Unreadable):  # a file of that name that is no program
                new = exported(memory, mapping.start, names)
                found = {**found, **new} if is_executable else {**new, **found}
    return found


def free_page(pid: int) -> int:
    """Return an address in the middle of the widest range of nothing, 0 of a process that ends."""
    taken = [mapping for mapping in mappings(pid) if mapping.path != "[vsyscall]"]
    gaps = ((after.start - before.end, before.end) for before, after in itertools.pairwise(taken))
    width, start = max(gaps, default=(0, 0))
    return (start + width // 2) // PAGE_BYTES * PAGE_BYTES
