"""The torch loop of ``loads/steploop.py``, driven block by block: how long so many steps took it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import load

ENDLESS = 1_000_000_000
"""More steps than any benchmark waits for."""


class Took(NamedTuple):
    """What a block of steps took of the loop's process: time by the clock, and CPU time of all its threads."""

    wall_s: float
    cpu_s: float

    def __add__(self, other: object) -> Took:
        if not isinstance(other, Took):
            return NotImplemented
        return Took(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)


class Loop:
    """A running loop."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process

    def step(self, count: int) -> Took:
        """Take so many steps; ends the benchmark where the loop has ended."""
        self.begin(count)
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if len(words) != 2:
            sys.exit(f"the loop ended with {self._process.wait()}")
        return Took(float(words[0]), float(words[1]))

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


def whole_run(launcher: Sequence[str], threads: int, count: int) -> Took:
    """Take so many steps in a fresh process started through ``launcher``; returns when all of that has ended."""
    words = [*launcher, *load.command("steploop", threads)]
    done = subprocess.run(words, input=f"{count}\n", check=True, stdout=subprocess.PIPE, text=True)
    wall_s, cpu_s = done.stdout.splitlines()[-1].split()
    return Took(float(wall_s), float(cpu_s))
