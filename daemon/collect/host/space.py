"""Room on file systems: the shared memory that workers hand batches over in, and where the target writes.

A network file system is never asked: where its server is gone, so would be who asks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from profd.daemon import procfile
from profd.daemon.collect.host.lane import Watched
from profd.daemon.paths import NETWORK_FILE_SYSTEMS
from profd.daemon.store.records import Point


class Space:
    """Asks the file systems that the target sees, which may be those of a container."""

    interval_s = 10.0

    def read(self, watched: Watched) -> Iterator[Point]:
        """Yield what is used of each, and how large it is."""
        if not watched.identities:
            return
        process = f"/proc/{watched.identities[0].pid}"
        mounts = _mounts(procfile.read(f"{process}/mounts"))
        yield from _room("shm", f"{process}/root/dev/shm", _mount_of("/dev/shm", mounts), mounts)
        try:
            folder = os.readlink(f"{process}/cwd")  # noqa: PTH115
        except OSError:
            return
        yield from _room("disk", f"{process}/cwd", _mount_of(folder, mounts), mounts, has_name=True)


def _room(name: str, path: str, mount: str, mounts: dict[str, str], *, has_name: bool = False) -> Iterator[Point]:
    if mounts.get(mount, "").startswith(NETWORK_FILE_SYSTEMS) or mount not in mounts:
        return
    try:
        found = os.statvfs(path)
    except OSError:
        return
    device = mount if has_name else None
    # What is kept for root counts as used: the target cannot have it.
    yield Point(f"{name}_used_bytes", (found.f_blocks - found.f_bavail) * found.f_frsize, device=device)
    yield Point(f"{name}_total_bytes", found.f_blocks * found.f_frsize, device=device)


def _mounts(text: bytes | None) -> dict[str, str]:
    """Return the type of the file system at each mount point, the uppermost where several lie at one place."""
    words = (line.split(" ") for line in (text or b"").decode(errors="replace").splitlines())
    return {fields[1].replace("\\040", " "): fields[2] for fields in words if len(fields) > 2}


def _mount_of(path: str, mounts: dict[str, str]) -> str:
    """Return the mount point that a path lies below, by its text alone."""
    return max((mount for mount in mounts if Path(path).is_relative_to(mount)), key=len, default="")
