"""Tells systemd how the supervisor is: ready, alive, stopping. Without systemd it tells nobody."""

from __future__ import annotations

import contextlib
import os
import socket


class Notifier:
    """The socket that systemd named; its variables are taken out of the environment, as no child is to answer."""

    def __init__(self) -> None:
        address = os.environ.pop("NOTIFY_SOCKET", "")
        watchdog_us = os.environ.pop("WATCHDOG_USEC", "")
        os.environ.pop("WATCHDOG_PID", None)
        self.watchdog_s = int(watchdog_us) / 1e6 if watchdog_us.isdecimal() else None
        """After how long without a sign of life systemd ends the supervisor; None: never."""
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def tell(self, state: str) -> None:
        """Say ``READY=1``, ``WATCHDOG=1`` or ``STOPPING=1``."""
        if self._address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(state.encode(), self._address)
