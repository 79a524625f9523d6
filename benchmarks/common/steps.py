"""The torch loop of ``loads/steploop.py``, and what steps take."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from common import load

ENDLESS = 1_000_000_000
"""More steps than any benchmark waits for."""


class Took(NamedTuple):
    """What a block of steps took of the loop's process: time by the clock, and CPU time of all its
    threads.
    """

    wall_s: float
    cpu_s: float


class Loop:
    """A running loop."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process

    def begin(self, count: int) -> None:
        """Begin to take so many steps."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()


@contextlib.contextmanager
def bare(threads: int) -> Iterator[Loop]:
    """Run a loop with so many torch threads."""
    with load.running("steploop", threads) as process:
        yield Loop(process)
