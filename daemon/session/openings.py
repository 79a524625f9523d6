"""Notice that somebody opens a file, such as the run that is being recorded.

It uses inotify(7), at no cost while nobody opens the file.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

_OPEN = 0x20
LATELY_S = 300.0
"""How long after an opening the file counts as read.

A scraper that reads once a minute counts as reading all the time. So does a user's occasional look.
"""


class Openings:
    """Calls ``opened`` in the running loop whenever a file is opened from now on."""

    def __init__(self, path: Path, opened: Callable[[], None]) -> None:
        self._opened, self._last_s = opened, -math.inf
        libc = ctypes.CDLL(None)
        self._fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._is_watched = (
            self._fd >= 0 and libc.inotify_add_watch(self._fd, os.fsencode(path), _OPEN) >= 0
        )
        if self._is_watched:
            asyncio.get_running_loop().add_reader(self._fd, self._take)

    def were_lately(self) -> bool:
        """Return whether somebody opened the file lately, or may have.

        That is unknown if it is not watched: a user has a limited number of watches.
        """
        return not self._is_watched or time.monotonic() - self._last_s < LATELY_S

    def close(self) -> None:
        if self._is_watched:
            asyncio.get_running_loop().remove_reader(self._fd)
        if self._fd >= 0:
            os.close(self._fd)

    def _take(self) -> None:
        os.read(self._fd, 4096)
        self._last_s = time.monotonic()
        self._opened()
