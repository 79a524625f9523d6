"""Sees to it that a host has one supervisor for each user: who comes second is told who was first."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from profd.daemon.errors import SessionFailed
from profd.daemon.store.database import unwritable

_LOCK = "daemon.lock"


class Instance:
    """The lock, held until ``close`` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Take the lock in ``folder``; raises SessionFailed where another process holds it, and OutputUnwritable."""
        path = folder / _LOCK
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise SessionFailed(
                f"profd daemon runs already, as pid {holder} (it holds {path})", f"end that one first: kill {holder}"
            ) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, b"%d\n" % os.getpid())

    def close(self) -> None:
        """Let go of the lock."""
        os.close(self._fd)
