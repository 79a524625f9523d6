"""The command that the user wants to be run when a run hangs. Started and reaped, never waited for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping


class Hook:
    """A shell command that is told of hangs through its environment; none where ``command`` is None."""

    def __init__(self, command: str | None) -> None:
        self._command = command
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, variables: Mapping[str, str]) -> str | None:
        """Start the command with these variables; returns why it could not be started, None where it was."""
        if self._command is None:
            return None
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **variables},
            )
        except (OSError, ValueError) as error:
            return f"the command for hangs could not be started ({error})"
        self._running.append(process)
        return None

    def running(self) -> tuple[subprocess.Popen[bytes], ...]:
        """Return those that were started and not taken leave of."""
        return tuple(self._running)

    def reap(self) -> None:
        """Take leave of those that have ended, so that none is left as a zombie."""
        self._running = [process for process in self._running if process.poll() is None]
