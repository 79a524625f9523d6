"""Finds the control groups of a process, and says whether they keep it frozen."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from profd.daemon import processes

_TRAPS = (b"do_freezer_trap", b"get_signal", b"__refrigerator")
"""The functions of the kernel in which frozen threads are kept.

Version 2 of control groups uses the first, which may be compiled into the second.
"""


class Hierarchy(NamedTuple):
    """A mounted tree of groups, with the group ``root`` at ``mount``."""

    version: int
    controllers: frozenset[str]
    root: str
    mount: str


class Group(NamedTuple):
    """A group of one hierarchy: its folder, and its path in the hierarchy, which is its name."""

    version: int
    folder: str
    path: str


def hierarchies() -> list[Hierarchy]:
    """Return the hierarchies that are mounted for this process."""
    found = []
    for line in processes.read_text(f"{processes.PROC}/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, file_system = before.split(" "), after.split(" ")
        if len(fields) > 4 and file_system[0] in ("cgroup", "cgroup2"):
            version = 2 if file_system[0] == "cgroup2" else 1
            controllers = frozenset(file_system[-1].split(","))
            found.append(Hierarchy(version, controllers, fields[3], fields[4]))
    return found


def groups_of(pid: int, controller: str, mounted: Sequence[Hierarchy]) -> list[Group]:
    """Return the group of a process that has a controller, and those above it.

    The innermost group comes first. Without a controller they are those of version 2.
    """
    lines = processes.read_text(f"{processes.PROC}/{pid}/cgroup")
    return list(_groups(lines, controller, tuple(mounted)))


@functools.lru_cache(64)  # each process is looked at several times a second, and hardly ever moves
def _groups(lines: str, controller: str, mounted: tuple[Hierarchy, ...]) -> tuple[Group, ...]:
    parts = (line.split(":", 2) for line in lines.splitlines() if line.count(":") > 1)
    paths = {names: path for _, names, path in parts}
    of_version_1 = [
        path for names, path in paths.items() if controller and controller in names.split(",")
    ]
    if of_version_1:
        fitting = [one for one in mounted if one.version == 1 and controller in one.controllers]
        path = of_version_1[0]
    else:
        fitting = [one for one in mounted if one.version == 2 and "" in paths]
        path = paths.get("", "")
    return tuple(_upwards(fitting[0], path)) if fitting else ()


def _upwards(hierarchy: Hierarchy, path: str) -> Iterator[Group]:
    top, inner = PurePosixPath(hierarchy.root), PurePosixPath(path)
    # A container without a namespace for groups sees its own at the mount point, and calls it by
    # its path outside.
    below = (
        inner.relative_to(top)
        if inner.is_relative_to(top) and ".." not in inner.parts
        else PurePosixPath()
    )
    while True:
        folder = str(PurePosixPath(hierarchy.mount) / below)
        yield Group(hierarchy.version, folder, str(top / below))
        if below == PurePosixPath():
            return
        below = below.parent


def is_frozen(pid: int, os_tid: int) -> bool:
    """Say whether the kernel keeps a thread frozen with its group; False if we may not look.

    `docker pause` and batch systems freeze groups. Such a thread looks asleep, in whatever system
    call it was. Either the kernel function that it is in shows that it is frozen, or, if it was
    frozen in its sleep, its group does.
    """
    if processes.read(f"{processes.PROC}/{pid}/task/{os_tid}/wchan") in _TRAPS:
        return True
    # A machine may have both versions, and either may freeze.
    for controller, file in (("freezer", "freezer.state"), ("", "cgroup.events")):
        for group in groups_of(pid, controller, _mounted())[:1]:
            state = processes.read(f"{group.folder}/{file}") or b""
            if b"frozen 1" in state or b"FROZEN" in state:
                return True
    return False


_mounted = functools.lru_cache(1)(hierarchies)
