"""Which control groups processes are in, and which files of theirs tell of limits: version 1, version 2, or both.

A limit of any group above binds a process too, so groups are taken with all that lie above them, as far as we can see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from profd.daemon import procfile

# Version 1 has no word for "no limit": it is the greatest number of whole pages.
_NO_LIMIT = 1 << 62


class Hierarchy(NamedTuple):
    """A tree of groups that is mounted: ``root`` is which group lies at ``mount``."""

    version: int
    controllers: frozenset[str]
    root: str
    mount: str


class Group(NamedTuple):
    """A group of one hierarchy: its folder, and its path in the hierarchy, by which it is called."""

    version: int
    folder: str
    path: str

    def file(self, name: str) -> str:
        """Return the path of a file of the group."""
        return f"{self.folder}/{name}"


class MemoryState(NamedTuple):
    """Memory of a group: working set is what is used but for file cache that the kernel can drop."""

    limit_bytes: int
    used_bytes: int
    working_set_bytes: int


class CpuState(NamedTuple):
    """CPU time of a group: in how many of its periods it had used up what it may have."""

    limit_cores: float
    periods: int
    throttled_periods: int
    throttled_s: float


def hierarchies(mountinfo: bytes | None) -> list[Hierarchy]:
    """Return the hierarchies that are mounted, by the text of ``/proc/PID/mountinfo``."""
    found = []
    for line in (mountinfo or b"").decode(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        fields, file_system = before.split(" "), after.split(" ")
        if len(fields) > 4 and file_system[0] in ("cgroup", "cgroup2"):
            version = 2 if file_system[0] == "cgroup2" else 1
            found.append(Hierarchy(version, frozenset(file_system[-1].split(",")), fields[3], fields[4]))
    return found


def groups_of(pid: int, controller: str, mounted: Sequence[Hierarchy]) -> list[Group]:
    """Return the group of a process that has a controller, and those above it, the innermost first."""
    text = (procfile.read(f"/proc/{pid}/cgroup") or b"").decode(errors="replace")
    paths = {
        names: path for _, names, path in (line.split(":", 2) for line in text.splitlines() if line.count(":") > 1)
    }
    first = next((path for names, path in paths.items() if controller in names.split(",")), None)
    for hierarchy in mounted:
        if hierarchy.version == 1 and controller in hierarchy.controllers and first is not None:
            return list(_upwards(hierarchy, first))
        if hierarchy.version == 2 and first is None and "" in paths:
            return list(_upwards(hierarchy, paths[""]))
    return []


def _upwards(hierarchy: Hierarchy, path: str) -> Iterator[Group]:
    """Yield a group and those above it, up to the one at the mount point."""
    top, inner = PurePosixPath(hierarchy.root), PurePosixPath(path)
    # A container without a namespace for groups sees its own at the mount point, and calls it by its path outside.
    below = inner.relative_to(top) if inner.is_relative_to(top) and ".." not in inner.parts else PurePosixPath()
    while True:
        folder = str(PurePosixPath(hierarchy.mount) / below)
        yield Group(hierarchy.version, folder, str(top / below))
        if below == PurePosixPath():
            return
        below = below.parent


def memory_of(group: Group) -> MemoryState | None:
    """Return the memory of a group that has a limit; None of one that has none."""
    names = ("memory.max", "memory.current") if group.version == 2 else _MEMORY_NAMES_1
    limit, used = (procfile.read_number(group.file(name)) for name in names)
    if limit is None or used is None or limit >= _NO_LIMIT:
        return None
    cache = procfile.read_pairs(group.file("memory.stat"))
    inactive = cache.get(b"inactive_file" if group.version == 2 else b"total_inactive_file", 0)
    return MemoryState(limit, used, max(used - inactive, 0))


_MEMORY_NAMES_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def cpu_of(group: Group) -> CpuState | None:
    """Return the CPU time of a group that has a limit; None of one that has none."""
    if group.version == 2:
        words = (procfile.read(group.file("cpu.max")) or b"").split()
    else:
        files = (group.file(f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        words = [word for file in files for word in (procfile.read(file) or b"").split()]
    if len(words) != 2 or not all(word.isdigit() and int(word) for word in words):
        return None
    stat = procfile.read_pairs(group.file("cpu.stat"))
    throttled_s = stat.get(b"throttled_usec", 0) / 1e6 if group.version == 2 else stat.get(b"throttled_time", 0) / 1e9
    periods, throttled = stat.get(b"nr_periods", 0), stat.get(b"nr_throttled", 0)
    return CpuState(int(words[0]) / int(words[1]), periods, throttled, throttled_s)


def oom_kills_of(group: Group) -> int | None:
    """Return how many processes of a group the kernel has ended for want of memory; None where it does not tell."""
    name = "memory.events" if group.version == 2 else "memory.oom_control"
    return procfile.read_pairs(group.file(name)).get(b"oom_kill")
