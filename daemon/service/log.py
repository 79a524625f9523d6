"""The log of the service in lines of JSON, and its notifications to systemd.

docs/daemon.md has the fields and events.
"""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import datetime
from typing import BinaryIO

import msgspec

from profd.daemon.errors import ProfdError

_LEVELS = {"error": 3, "warning": 4, "info": 6}  # syslog's


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line; ``time`` is ISO 8601 with the offset of local time."""

    time: str
    level: str
    event: str
    message: str
    run: str = ""
    pid: int = 0


class JsonLog:
    """Writes lines to a stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._has_levels = "JOURNAL_STREAM" in os.environ

    def say(
        self, event: str, message: str, *, level: str = "info", run: str = "", pid: int = 0
    ) -> None:
        """Write a line; one that cannot be written is lost: its reader is gone."""
        now = datetime.now().astimezone().isoformat(timespec="milliseconds")
        text = msgspec.json.encode(LogLine(now, level, event, message, run, pid)) + b"\n"
        prefix = b"<%d>" % _LEVELS[level] if self._has_levels else b""
        with contextlib.suppress(OSError):
            self._stream.write(prefix + text)
            self._stream.flush()

    def complain(self, event: str, error: ProfdError, *, run: str = "", pid: int = 0) -> None:
        self.say(event, str(error), level="warning", run=run, pid=pid)


class SystemdNotifier:
    """The socket that systemd named.

    Its variables are taken out of the environment, as no child is to answer.
    """

    def __init__(self) -> None:
        address = os.environ.pop("NOTIFY_SOCKET", "")
        watchdog_us = os.environ.pop("WATCHDOG_USEC", "")
        os.environ.pop("WATCHDOG_PID", None)
        self.watchdog_s = int(watchdog_us) / 1e6 if watchdog_us.isdecimal() else None
        """After how long without a sign of life systemd ends the supervisor; None: never."""
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def tell(self, state: str) -> None:
        if self._address:
            with (
                contextlib.suppress(OSError),
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
            ):
                sender.sendto(state.encode(), self._address)
