"""Whether the disk of a run file has room for more of it: a run never takes what the training may need.

profd stops well before the disk is full. What it leaves free is also what folding the log into the file may take.
"""

from __future__ import annotations

import os
from pathlib import Path

from profd.daemon.units import size

LEFT_FREE_BYTES = 1 << 30
LEFT_FREE_SHARE = 0.05
"""Of the whole disk; the smaller one of the two is left free."""
_MORE = 1.5  # so much of it has to be free again before a run goes on: it is not to stop and go all the time


class Room:
    """Looks at the disk of a file that is written with a log beside it, and at the file."""

    def __init__(self, path: Path, most_bytes: int | None = None) -> None:
        """Take the file; ``most_bytes`` is how large it may be with its log, None where only the disk says so."""
        self._files = (path, path.with_name(f"{path.name}-wal"))
        self._most_bytes = most_bytes
        self.is_short = False
        self.why = ""
        """What there is room for, or not, in words."""

    def look(self) -> bool:
        """Look again; True where ``is_short`` changed by that. A disk that does not tell has room."""
        try:
            disk = os.statvfs(self._files[0].parent)
        except OSError:
            return False
        free_bytes, whole_bytes = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        file_bytes, log_bytes = map(_size, self._files)
        kept_bytes = min(LEFT_FREE_BYTES, LEFT_FREE_SHARE * whole_bytes) + log_bytes
        was_short, self.is_short = self.is_short, free_bytes < kept_bytes * (_MORE if self.is_short else 1)
        self.why = f"{size(free_bytes)} are free on the disk of the run file"
        if self._most_bytes is not None and file_bytes + log_bytes > self._most_bytes:
            self.is_short = True
            self.why = f"the run file has {size(file_bytes + log_bytes)}, and lies in memory"
        return self.is_short != was_short


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
