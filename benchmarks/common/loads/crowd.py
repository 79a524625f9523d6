"""A program with workers and threads that do little: cost against their number, on a machine with few cores.

Usage: crowd.py WORKERS THREADS. The main thread computes for half of its time; each worker, a process of a
multiprocessing pool, for 3 % of it; each further thread for a tenth of a percent. Stands in for a training loop.
"""

import multiprocessing
import sys
import threading
import time


def compute(seconds: float) -> None:
    """Keep a core busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def decode(_: int) -> None:
    """Work as a worker, for ever."""
    while True:
        compute(0.003)
        time.sleep(0.097)


def tick() -> None:
    """Work as a thread beside the main thread, for ever."""
    while True:
        compute(0.0005)
        time.sleep(0.5)


def forward() -> None:
    """First half of a step's work."""
    compute(0.005)


def backward() -> None:
    """Second half of a step's work."""
    compute(0.005)


def train() -> None:
    """Take steps for ever."""
    step = 0
    while True:
        forward()
        backward()
        time.sleep(0.01)
        step += 1


def main(workers: int, threads: int) -> None:
    """Start the crowd and train."""
    if workers:
        # Before the threads: a fork takes only the thread along that forks.
        pool = multiprocessing.get_context("fork").Pool(workers)
        pool.map_async(decode, range(workers), chunksize=1)
    already = threading.active_count()  # a pool has threads of its own
    for _ in range(max(threads - already, 0)):
        threading.Thread(target=tick, daemon=True).start()
    print("ready", flush=True)
    train()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
