"""Says whether the kernel keeps a thread frozen with its control group.

`docker pause` and batch systems freeze groups. Such a thread looks asleep, in whatever system call
it was. Either the kernel function that it is in shows that it is frozen, or, if it was frozen in
its sleep, its group does.
"""

from __future__ import annotations

import functools

from profd.daemon import processes

_TRAPS = (b"do_freezer_trap", b"get_signal", b"__refrigerator")
"""The functions of the kernel in which frozen threads are kept.

Version 2 of control groups uses the first, which may be compiled into the second.
"""


def is_frozen(pid: int, os_tid: int) -> bool:
    """Say whether a thread is frozen; False if we may not look."""
    if processes.read(f"{processes.PROC}/{pid}/task/{os_tid}/wchan") in _TRAPS:
        return True
    lines = (
        (processes.read(f"{processes.PROC}/{pid}/cgroup") or b"")
        .decode(errors="replace")
        .splitlines()
    )
    for controllers, path in (line.split(":", 2)[1:] for line in lines if line.count(":") > 1):
        if not controllers or "freezer" in controllers.split(","):
            root, mount = _mounted(is_unified=not controllers)
            inside = path if root == "/" else path.removeprefix(root)
            file = "cgroup.events" if not controllers else "freezer.state"
            state = processes.read(f"{mount}{inside}/{file}") or b""
            if b"frozen 1" in state or state.strip() == b"FROZEN":
                return True
    return False


@functools.lru_cache(2)
def _mounted(*, is_unified: bool) -> tuple[str, str]:
    """Return the root group and the mount point of a hierarchy; empty if it is not mounted."""
    lines = (
        (processes.read(f"{processes.PROC}/self/mountinfo") or b"")
        .decode(errors="replace")
        .splitlines()
    )
    for before, after in (line.split(" - ", 1) for line in lines if " - " in line):
        fields, (kind, *_, options) = before.split(), after.split()
        has_freezer = kind == "cgroup" and "freezer" in options.split(",")
        if (kind == "cgroup2") if is_unified else has_freezer:
            return fields[3], fields[4]
    return "/", ""
