"""The diary of a program of the corpus: after each step a line ``time_ns steps planted_ns``, by the wall clock.

The program says "ready" after its fifth step: what it starts with is over.
``planted_ns`` is how long the planted part has taken so far, by the program's own clock.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path


class Diary:
    """Counts steps and the time of the planted part."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._steps = 0
        self._planted_ns = 0

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """Time the part that is planted."""
        begun_ns = time.perf_counter_ns()
        yield
        self._planted_ns += time.perf_counter_ns() - begun_ns

    def stepped(self) -> None:
        """Write down that a step is over."""
        self._steps += 1
        self._file.write(f"{time.time_ns()} {self._steps} {self._planted_ns}\n")
        if self._steps == 5:
            print("ready", flush=True)


def begin() -> tuple[Diary, bool]:
    """Return the diary that the command line names, and whether the program runs without its cause.

    SIGTERM ends the program at once: the diary is written line by line.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("diary", type=Path)
    parser.add_argument("--mended", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # what is running at exit may not be interrupted well
    return Diary(arguments.diary), arguments.mended
