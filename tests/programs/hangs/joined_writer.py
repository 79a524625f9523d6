"""Waits for a child's end before it has read what that puts into a queue. With --mended it reads first."""

from __future__ import annotations

import multiprocessing
import sys
import time
from multiprocessing.queues import SimpleQueue

context = multiprocessing.get_context("fork")


def work(results: SimpleQueue[bytes]) -> None:
    results.put(bytes(10_000_000))


def main() -> None:
    results = context.SimpleQueue()
    child = context.Process(target=work, args=(results,))
    child.start()
    print("ready", flush=True)
    if "--mended" in sys.argv:
        results.get()
    child.join()
    while True:  # it goes on
        sum(range(100_000))
        time.sleep(0.02)


main()
