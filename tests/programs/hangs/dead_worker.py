"""A DataLoader's worker holds the lock that the other one wants, and is killed: nobody notices."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time


def load(index: int) -> int:
    """Give a sample; the third one is the end of who loads it."""
    if index == 3:
        print("ready", flush=True)
        time.sleep(1.0)  # who watches is to know the worker before it is gone
        os.kill(os.getpid(), signal.SIGKILL)
    return index


def main() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(sum(pool.map(load, range(8), chunksize=1)))


main()
