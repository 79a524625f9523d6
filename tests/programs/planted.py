"""Is 200 ms in one function, which is a range of torch's profiler too, and 200 ms in another that is none, by turns."""

from __future__ import annotations

import sys
import threading
import time

import torch

PLANTED_S = 0.2


def spend(seconds: float) -> None:
    """Compute for so long, with torch seldom: of every operator a trace has a line."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(20_000))
        torch.ones(16).add_(1.0)


def planted() -> None:
    """Be in the range, and in this function, for as long as each other."""
    with torch.profiler.record_function("planted"):
        spend(PLANTED_S)


def between() -> None:
    """Be in neither."""
    spend(PLANTED_S)


def wait_for_line(over: threading.Event) -> None:
    """Say when a line has come."""
    sys.stdin.readline()
    over.set()


def main() -> None:
    """Take turns until a line comes on stdin."""
    torch.set_num_threads(1)
    over = threading.Event()
    threading.Thread(target=wait_for_line, args=(over,), daemon=True).start()
    planted()
    print("ready", flush=True)
    while not over.is_set():
        planted()
        between()


main()
