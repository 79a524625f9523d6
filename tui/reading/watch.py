"""The wish for fresh data, told to the session while it lives: it makes recordings shorter while somebody watches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from profd.daemon.errors import SessionFailed
from profd.daemon.store.rows import RunInfo

# A session that cannot be reached may be starting, or ending: it is asked again, but not at every look.
LOOKS_TO_RETRY = 10


class Connection(Protocol):
    """A connection to a session."""

    def watch(self) -> object:
        """Ask for fresh data until the connection is closed; raises SessionFailed."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


Connect = Callable[[Path], Connection]


class Watch:
    """Keeps a session's data fresh; one that cannot be reached costs freshness and nothing else."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._looks_to_retry = 0

    def keep(self, info: RunInfo) -> None:
        """See to it that the session of a live run knows that it is watched."""
        if info.state != "live" or not info.control_socket:
            self.close()
        elif self._connection is None and self._looks_to_retry == 0:
            self._open(Path(info.control_socket))
        else:
            self._looks_to_retry = max(self._looks_to_retry - 1, 0)

    def close(self) -> None:
        """Stop watching."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, socket: Path) -> None:
        self._looks_to_retry = LOOKS_TO_RETRY
        try:
            connection = self._connect(socket)
        except SessionFailed:
            return
        try:
            connection.watch()
        except SessionFailed:
            connection.close()
        else:
            self._connection = connection
