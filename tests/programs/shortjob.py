"""A training as short as they come: says it is ready, waits for a line on stdin, makes some steps and ends.

Usage: shortjob.py STEPS
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time


def forward(batch: int) -> int:
    return sum(range(batch))


def train(steps: int) -> None:
    for _step in range(steps):
        forward(20_000)
        time.sleep(0.005)


def main() -> None:
    with contextlib.suppress(AttributeError):  # Yama lets anyone read this process
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
    print("ready", flush=True)
    sys.stdin.readline()
    train(int(sys.argv[1]))


main()
