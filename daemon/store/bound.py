"""Bounds the memory for reading run files by the size of the files, whatever they contain."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from profd.daemon import processes
from profd.daemon.errors import RunUnreadable
from profd.daemon.store.database import honest_size

_OWN_MEMORY_BYTES, _MEMORY_OF_A_BYTE = 192 << 20, 64
"""What a process may take beyond its present memory: for itself, and per byte of its run files."""
_BOUNDED: list[MemoryBound] = []


class MemoryBound:
    """Bounds the memory that this process may take for run files, which may still grow."""

    def __init__(self, *files: Path) -> None:
        self._files = files
        self.before = resource.getrlimit(resource.RLIMIT_DATA)
        self._most: int | None = None
        if _BOUNDED:  # already bounded: this is the second of two runs
            self._own = self.before[0]
        else:
            taken = int(processes.status(os.getpid()).get("VmData", "0 kB").split()[0]) << 10
            self._own = taken + _OWN_MEMORY_BYTES
            self._most = None if self.before[0] == resource.RLIM_INFINITY else self.before[0]
        self.renew()

    def renew(self) -> None:
        """Set the bound by the present size of the files."""
        most = self._own + _MEMORY_OF_A_BYTE * sum(map(honest_size, self._files))
        self._bytes = most if self._most is None else min(most, self._most)
        resource.setrlimit(resource.RLIMIT_DATA, (self._bytes, self.before[1]))

    def spare(self, pid: int) -> None:
        """Give a process that was started meanwhile the limit that held before the bound."""
        with contextlib.suppress(OSError):  # the process has ended
            resource.prlimit(pid, resource.RLIMIT_DATA, self.before)

    def overrun(self) -> RunUnreadable:
        """Return the error to raise if this process needs more memory."""
        what = f"{self._files[0]} takes more than {self._bytes >> 20} MiB of memory"
        remedy = (
            "select a part of it: `profd summary` with --from, --to, --rank; or raise `ulimit -d`"
        )
        return RunUnreadable(f"{what}, which is more than its size accounts for", remedy)


@contextlib.contextmanager
def bounded_memory(*files: Path) -> Iterator[MemoryBound]:
    """Bound the memory of this process by the size of run files.

    Raises RunUnreadable if the process needs more.
    """
    bound = MemoryBound(*files)
    _BOUNDED.append(bound)
    try:
        yield bound
    except MemoryError:
        raise bound.overrun() from None
    finally:
        _BOUNDED.pop()
        resource.setrlimit(resource.RLIMIT_DATA, bound.before)
