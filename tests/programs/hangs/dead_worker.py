"""A worker is killed with a task in hand, once a line was given: the main process waits for its result for ever.

Until then a thread computes, so that nobody takes the wait for the line for a hang. Nobody asks for the worker's
status, as a pool does ten times a second: what ended it can be seen however late somebody looks.
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
results = context.Queue()


def load(index: int) -> None:
    """Give a sample; the process that loads the second one ends."""
    if index == 1:
        print("ready", flush=True)
        may_die.wait()
        os.kill(os.getpid(), signal.SIGKILL)
    results.put(index)
    signal.pause()


def let_die() -> None:
    while not select.select([sys.stdin], [], [], 0)[0]:
        pass
    may_die.set()


workers = [context.Process(target=load, args=(index,), daemon=True) for index in range(2)]
for worker in workers:
    worker.start()
threading.Thread(target=let_die, daemon=True).start()
print(sum(results.get() for _ in workers))
