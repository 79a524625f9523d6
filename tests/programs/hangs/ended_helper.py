"""Waits for a queue that nobody fills, while a helper ends as it should, and nobody knows with which status.

With --mended the queue is filled.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from multiprocessing.queues import SimpleQueue

context = multiprocessing.get_context("fork")


def prepare() -> None:
    time.sleep(6)


def serve(orders: SimpleQueue[int], results: SimpleQueue[int]) -> None:
    while True:
        orders.get()
        results.put(1)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel takes the status of children
    orders, results = context.SimpleQueue(), context.SimpleQueue()
    context.Process(target=prepare).start()
    context.Process(target=serve, args=(orders, results), daemon=True).start()
    print("ready", flush=True)
    if "--mended" in sys.argv:
        orders.put(0)
    results.get()
    while True:  # it goes on
        sum(range(100_000))
        time.sleep(0.02)


main()
