"""A worker of a pool is killed with a task in hand, once a line was given: the pool waits for its result for ever.

Until then a thread computes, so that nobody takes the wait for the line for a hang.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import sys
import threading

context = multiprocessing.get_context("fork")
may_die = context.Event()


def load(index: int) -> int:
    """Give a sample; the process that loads the third one ends."""
    if index == 3:
        print("ready", flush=True)
        may_die.wait()
        os.kill(os.getpid(), signal.SIGKILL)
    return index


def let_die() -> None:
    while not select.select([sys.stdin], [], [], 0)[0]:
        pass
    may_die.set()


with context.Pool(2) as pool:
    threading.Thread(target=let_die, daemon=True).start()
    print(sum(pool.map(load, range(8), chunksize=1)))
