"""Waits for a semaphore that a helper took and has ended with. With --mended the helper gives it back."""

import multiprocessing
import multiprocessing.synchronize
import os
import sys
import time

context = multiprocessing.get_context("fork")


def measure(turns: multiprocessing.synchronize.Semaphore) -> None:
    turns.acquire()
    if "--mended" in sys.argv:
        turns.release()
    os._exit(0)


turns = context.Semaphore(1)
helper = context.Process(target=measure, args=(turns,))
helper.start()
helper.join()
print("ready", flush=True)
turns.acquire()
while True:  # it goes on
    sum(range(100_000))
    time.sleep(0.02)
